/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/pickle/pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/pickle/pickle_opcodes.h"

enum { CHUNK_SIZE_MAX = 128 * 1024 };

bool machine_fail(struct pickle_machine *machine, const char *format, ...)
{
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);

    size_t offset = (size_t)(machine->opcode - machine->begin);
    if (machine->opcode == machine->end) {
        machine->status = dcp_error_set(DCP_ERR_FORMAT, "pickle, byte %zu: %s", offset, what);
    } else {
        const char *name = pickle_opcode_forms[*machine->opcode].name;
        machine->status = dcp_error_set(DCP_ERR_FORMAT, "pickle, byte %zu, opcode 0x%02x%s%s: %s",
                                        offset, *machine->opcode, name != NULL ? " " : "",
                                        name != NULL ? name : "", what);
    }
    return false;
}

static bool fail_no_memory(struct pickle_machine *machine, size_t bytes)
{
    machine->status = error_no_memory(bytes, "the values of a pickle");
    return false;
}

/* Chunks double in size, so that the many small pickles of a checkpoint take little memory. */
static bool new_chunk(struct pickle_machine *machine)
{
    size_t size = machine->chunk_size * 2;
    machine->chunk_size = size < CHUNK_SIZE_MAX ? size : CHUNK_SIZE_MAX;
    machine->bump = arena_allocate(&machine->document->arena, machine->chunk_size);
    if (machine->bump == NULL) {
        machine->bump_end = NULL;
        return fail_no_memory(machine, machine->chunk_size);
    }
    machine->bump_end = machine->bump + machine->chunk_size;
    machine->floor = (uintptr_t)machine->bump;
    return true;
}

void *machine_allocate_elsewhere(struct pickle_machine *machine, size_t size)
{
    if (size > machine->chunk_size / 4) {
        void *large = arena_allocate(&machine->document->arena, size);
        if (large == NULL)
            fail_no_memory(machine, size);
        return large;
    }
    return new_chunk(machine) ? machine_allocate(machine, size) : NULL;
}

bool machine_grow_stack(struct pickle_machine *machine)
{
    size_t capacity = machine->capacity == 0 ? 64 : machine->capacity * 2;
    struct pickle_slot *slots =
        memory_reallocate_array(machine->slots, capacity, sizeof *machine->slots);
    if (slots == NULL)
        return fail_no_memory(machine, capacity * sizeof *machine->slots);
    machine->slots = slots;
    machine->capacity = capacity;
    return true;
}

bool machine_fail_underflow(struct pickle_machine *machine, size_t count)
{
    return machine_fail(machine, "needs %zu values on the stack%s, found %zu", count,
                        machine->fence != 0 ? " above the mark" : "",
                        machine->count - machine->fence);
}

bool machine_push_mark(struct pickle_machine *machine)
{
    if (!machine_push(machine, NULL, 0))
        return false;
    machine->slots[machine->count - 1].at.old_fence = machine->fence;
    machine->fence = machine->count;
    return true;
}

bool machine_pop_mark(struct pickle_machine *machine, struct pickle_slot **slots, size_t *count)
{
    if (machine->fence == 0)
        return machine_fail(machine, "there is no mark on the stack");
    *slots = &machine->slots[machine->fence];
    *count = machine->count - machine->fence;
    machine->count = machine->fence - 1;
    machine->fence = machine->slots[machine->count].at.old_fence;
    return true;
}

bool machine_pop(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    if (machine->fence != 0 && machine->fence == machine->count)
        return machine_pop_mark(machine, &slots, &count);
    if (machine_top(machine, 1) == NULL)
        return false;
    machine->count--;
    return true;
}

bool machine_fail_memo_put(struct pickle_machine *machine, uint64_t number)
{
    return machine_fail(machine, "memo number %llu is too large for a pickle of %zu bytes",
                        (unsigned long long)number, (size_t)(machine->end - machine->begin));
}

bool machine_fail_memo_get(struct pickle_machine *machine, uint64_t number)
{
    return machine_fail(machine, "memo number %llu was never stored", (unsigned long long)number);
}
