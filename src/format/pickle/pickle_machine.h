/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to the pickle reader: the machine that executes opcodes.
 *
 * Values are allocated from chunks of the document's arena by a bump pointer. Each stack slot
 * stores the bump pointer from before its value was made. When a digester takes a value, all memory
 * from there on is free and the pointer is set back, unless an older value may point into it: a
 * value that the memo fetches again. Storing or changing such a value therefore raises the floor,
 * below which the pointer is never set. Values that are not in the memo are reachable only from
 * their stack slot, and only the top of the stack can be changed. */
#ifndef FORMAT_PICKLE_PICKLE_MACHINE_H
#define FORMAT_PICKLE_PICKLE_MACHINE_H

#include "format/pickle/pickle.h"
#include "format/pickle/pickle_memo.h"

/* A value on the stack, or with value NULL a mark. */
struct pickle_slot {
    struct pickle_value *value;
    union {
        uintptr_t start;  /* of a value: the bump pointer before it was made */
        size_t old_fence; /* of a mark: the fence outside of it */
    } at;
};

struct pickle_machine {
    const unsigned char *begin, *end;
    const unsigned char *next;   /* byte to read */
    const unsigned char *opcode; /* the current opcode */
    uint64_t number;             /* its argument: a number, or the length of the text */
    const unsigned char *text;
    bool persistent_ids;
    uint16_t nesting_max; /* UINT16_MAX: no limit */
    const struct pickle_digester *digester;
    struct pickle_document *document;
    struct pickle_memo memo;
    struct pickle_slot *slots;
    size_t count;
    size_t capacity;
    size_t fence;    /* slots below it are outside the innermost mark */
    char *bump;      /* next free byte */
    char *bump_end;  /* of the chunk */
    uintptr_t floor; /* bump is never set below it */
    size_t chunk_size;
    dcp_status status;
};

/* Sets the error message, with the opcode and its offset. Always returns false, as do the functions
 * below when they fail. */
bool machine_fail(struct pickle_machine *machine, const char *format, ...) DCP_PRINTF(2, 3);

/* Allocates size bytes, aligned to 8, if the chunk does not have them. NULL with the error set. */
void *machine_allocate_elsewhere(struct pickle_machine *machine, size_t size);
bool machine_grow_stack(struct pickle_machine *machine);

/* Allocates size bytes of the arena; NULL with the error set. */
static inline void *machine_allocate(struct pickle_machine *machine, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (size > (size_t)(machine->bump_end - machine->bump))
        return machine_allocate_elsewhere(machine, size);
    void *bytes = machine->bump;
    machine->bump += size;
    return bytes;
}

/* A value with room for payload bytes in its union. */
static inline struct pickle_value *machine_value(struct pickle_machine *machine,
                                                 enum pickle_kind kind, size_t payload)
{
    struct pickle_value *value =
        machine_allocate(machine, offsetof(struct pickle_value, as) + payload);
    if (value == NULL)
        return NULL;
    value->kind = (uint8_t)kind;
    value->flags = 0;
    value->tag = 0;
    value->serial = machine->document->value_count++;
    return value;
}

static inline bool machine_push(struct pickle_machine *machine, struct pickle_value *value,
                                uintptr_t start)
{
    if (machine->count == machine->capacity && !machine_grow_stack(machine))
        return false;
    struct pickle_slot *slot = &machine->slots[machine->count++];
    slot->value = value;
    slot->at.start = start;
    return true;
}

/* Pushes a value without parts, just made. */
static inline bool machine_push_new(struct pickle_machine *machine, enum pickle_kind kind,
                                    size_t payload, struct pickle_value **value)
{
    uintptr_t start = (uintptr_t)machine->bump;
    *value = machine_value(machine, kind, payload);
    return *value != NULL && machine_push(machine, *value, start);
}

bool machine_fail_underflow(struct pickle_machine *machine, size_t count);

/* The topmost slots above the innermost mark; NULL if there are fewer. */
static inline struct pickle_slot *machine_top(struct pickle_machine *machine, size_t count)
{
    if (machine->count - machine->fence < count) {
        machine_fail_underflow(machine, count);
        return NULL;
    }
    return &machine->slots[machine->count - count];
}

/* Removes the innermost mark and takes the slots above it off the stack, into *slots and *count. */
bool machine_pop_mark(struct pickle_machine *machine, struct pickle_slot **slots, size_t *count);
bool machine_push_mark(struct pickle_machine *machine);

bool machine_fail_memo_put(struct pickle_machine *machine, uint64_t number);
bool machine_fail_memo_get(struct pickle_machine *machine, uint64_t number);

static inline bool machine_memo_put(struct pickle_machine *machine, uint64_t number)
{
    struct pickle_memo *memo = &machine->memo;
    struct pickle_slot *slot = machine_top(machine, 1);
    if (slot == NULL)
        return false;
    if (number >= (uint64_t)(machine->end - machine->begin))
        return machine_fail_memo_put(machine, number);
    if (number > memo->end)
        memo->has_gaps = true;
    if (number >= memo->end)
        memo->end = number + 1;
    struct pickle_value **place = pickle_memo_place(memo, number);
    if (place != NULL) {
        *place = slot->value;
        slot->value->flags |= VALUE_RETAINED;
        machine->floor = (uintptr_t)machine->bump;
    }
    return true;
}

static inline bool machine_memo_get(struct pickle_machine *machine, uint64_t number)
{
    struct pickle_value **place = pickle_memo_place(&machine->memo, number);
    if (place == NULL || *place == NULL)
        return machine_fail_memo_get(machine, number);
    return machine_push(machine, *place, (uintptr_t)machine->bump);
}

/* The opcodes that take values from the stack. */
bool machine_tuple(struct pickle_machine *machine, size_t count);
bool machine_tuple_to_mark(struct pickle_machine *machine);
bool machine_frozenset(struct pickle_machine *machine);
bool machine_append(struct pickle_machine *machine);      /* APPEND */
bool machine_append_many(struct pickle_machine *machine); /* APPENDS */
bool machine_set_item(struct pickle_machine *machine);    /* SETITEM */
bool machine_set_items(struct pickle_machine *machine);   /* SETITEMS */
bool machine_add_items(struct pickle_machine *machine);   /* ADDITEMS */
bool machine_pop(struct pickle_machine *machine);
bool machine_stack_global(struct pickle_machine *machine);
bool machine_reduce(struct pickle_machine *machine);
bool machine_new_object(struct pickle_machine *machine, bool keywords); /* NEWOBJ, NEWOBJ_EX */
bool machine_build(struct pickle_machine *machine);
bool machine_persistent(struct pickle_machine *machine);

#endif
