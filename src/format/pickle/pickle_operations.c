/* SPDX-License-Identifier: BSD-3-Clause */
/* The opcodes that take values from the stack and build containers, calls and objects. */
#include <string.h>

#include "format/pickle/pickle_machine.h"

/* After a change to a value: what it points to now lies below the bump pointer. */
static void note_change(struct pickle_machine *machine, const struct pickle_value *value)
{
    if ((value->flags & VALUE_RETAINED) != 0)
        machine->floor = (uintptr_t)machine->bump;
}

static bool is_hashable(const struct pickle_value *value)
{
    return (value->flags & VALUE_UNHASHABLE) == 0;
}

static bool grow_sequence(struct pickle_machine *machine, struct pickle_sequence *sequence,
                          size_t more)
{
    size_t capacity = (size_t)sequence->count + more;
    if (capacity < (size_t)sequence->capacity * 2)
        capacity = (size_t)sequence->capacity * 2;
    if (capacity > UINT32_MAX)
        return machine_fail(machine, "the container has more than 2^32 - 1 elements");
    struct pickle_value **items = machine_allocate(machine, capacity * sizeof *items);
    if (items == NULL)
        return false;
    if (sequence->count != 0)
        memcpy(items, sequence->items, sequence->count * sizeof *items);
    sequence->items = items;
    sequence->capacity = (uint32_t)capacity;
    return true;
}

/* The nesting depth of a value, as far as it is complete: a sanity check, not needed for safety. */
static uint16_t nesting(const struct pickle_value *value)
{
    return value->kind == PICKLE_DIGEST ? 0 : value->tag;
}

static bool note_nesting(struct pickle_machine *machine, struct pickle_value *outer,
                         const struct pickle_value *inner)
{
    uint16_t depth = nesting(inner);
    if (depth < outer->tag)
        return true;
    if (depth >= machine->nesting_max)
        return machine->nesting_max == UINT16_MAX ||
               machine_fail(machine, "values are nested more than %u deep", machine->nesting_max);
    outer->tag = (uint16_t)(depth + 1);
    return true;
}

static bool extend(struct pickle_machine *machine, struct pickle_value *owner,
                   struct pickle_sequence *sequence, const struct pickle_slot *slots, size_t count)
{
    if (count > sequence->capacity - sequence->count && !grow_sequence(machine, sequence, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        sequence->items[sequence->count++] = slots[i].value;
        if (!note_nesting(machine, owner, slots[i].value))
            return false;
    }
    note_change(machine, owner);
    return true;
}

/* Pushes a tuple or frozenset of slots that were just taken off the stack. Its items are stored
 * right behind it, as they never change. */
static bool push_sequence(struct pickle_machine *machine, enum pickle_kind kind,
                          const struct pickle_slot *slots, size_t count)
{
    uintptr_t start = count != 0 ? slots[0].at.start : (uintptr_t)machine->bump;
    struct pickle_value *value;
    if (count > UINT32_MAX)
        return machine_fail(machine, "the container has more than 2^32 - 1 elements");
    value = machine_value(machine, kind,
                          sizeof value->as.sequence + count * sizeof *value->as.sequence.items);
    if (value == NULL)
        return false;
    struct pickle_sequence *sequence = &value->as.sequence;
    *sequence = (struct pickle_sequence){.items = (struct pickle_value **)(sequence + 1),
                                         .count = (uint32_t)count,
                                         .capacity = (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        sequence->items[i] = slots[i].value;
        value->flags |= slots[i].value->flags & VALUE_UNHASHABLE;
        if (!note_nesting(machine, value, slots[i].value))
            return false;
    }
    return machine_push(machine, value, start);
}

bool machine_tuple(struct pickle_machine *machine, size_t count)
{
    struct pickle_slot *slots = machine_top(machine, count);
    if (slots == NULL)
        return false;
    machine->count -= count;
    return push_sequence(machine, PICKLE_TUPLE, slots, count);
}

bool machine_tuple_to_mark(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    return machine_pop_mark(machine, &slots, &count) &&
           push_sequence(machine, PICKLE_TUPLE, slots, count);
}

static bool check_hashable(struct pickle_machine *machine, const struct pickle_slot *slots,
                           size_t count, size_t step, const char *what)
{
    for (size_t i = 0; i < count; i += step)
        if (!is_hashable(slots[i].value))
            return machine_fail(machine, "%s cannot be hashed, so it cannot be %s",
                                pickle_kind_name(slots[i].value), what);
    return true;
}

bool machine_frozenset(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    return machine_pop_mark(machine, &slots, &count) &&
           check_hashable(machine, slots, count, 1, "an element of a frozenset") &&
           push_sequence(machine, PICKLE_FROZENSET, slots, count);
}

/* The sequence of a container that slots go into, or of a call or object that plays one. */
static struct pickle_sequence *target_sequence(struct pickle_machine *machine,
                                               struct pickle_value *target, enum pickle_kind kind)
{
    if (target->kind == kind)
        return &target->as.sequence;
    if (target->kind == PICKLE_CALL || target->kind == PICKLE_OBJECT)
        return kind == PICKLE_DICT ? &target->as.call->pairs : &target->as.call->items;
    machine_fail(machine, "on %s", pickle_kind_name(target));
    return NULL;
}

/* Puts slots that were just taken off the stack into the container that is now on top. */
static bool extend_top(struct pickle_machine *machine, enum pickle_kind kind,
                       const struct pickle_slot *slots, size_t count)
{
    struct pickle_slot *top = machine_top(machine, 1);
    if (top == NULL)
        return false;
    struct pickle_sequence *sequence = target_sequence(machine, top->value, kind);
    return sequence != NULL && extend(machine, top->value, sequence, slots, count);
}

bool machine_append(struct pickle_machine *machine)
{
    struct pickle_slot *slots = machine_top(machine, 2);
    if (slots == NULL)
        return false;
    machine->count--;
    return extend_top(machine, PICKLE_LIST, slots + 1, 1);
}

bool machine_append_many(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    return machine_pop_mark(machine, &slots, &count) &&
           extend_top(machine, PICKLE_LIST, slots, count);
}

bool machine_set_item(struct pickle_machine *machine)
{
    struct pickle_slot *slots = machine_top(machine, 3);
    if (slots == NULL)
        return false;
    machine->count -= 2;
    return check_hashable(machine, slots + 1, 1, 1, "a key of a dict") &&
           extend_top(machine, PICKLE_DICT, slots + 1, 2);
}

bool machine_set_items(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    if (!machine_pop_mark(machine, &slots, &count))
        return false;
    if (count % 2 != 0)
        return machine_fail(machine, "%zu values above the mark, expected pairs of key and value",
                            count);
    return check_hashable(machine, slots, count, 2, "a key of a dict") &&
           extend_top(machine, PICKLE_DICT, slots, count);
}

bool machine_add_items(struct pickle_machine *machine)
{
    struct pickle_slot *slots;
    size_t count;
    return machine_pop_mark(machine, &slots, &count) &&
           check_hashable(machine, slots, count, 1, "an element of a set") &&
           extend_top(machine, PICKLE_SET, slots, count);
}

bool machine_stack_global(struct pickle_machine *machine)
{
    struct pickle_slot *slots = machine_top(machine, 2);
    if (slots == NULL)
        return false;
    const struct pickle_value *module = slots[0].value;
    const struct pickle_value *name = slots[1].value;
    if (module->kind != PICKLE_STRING || name->kind != PICKLE_STRING)
        return machine_fail(machine, "needs a module and a name, found %s and %s",
                            pickle_kind_name(module), pickle_kind_name(name));
    machine->count -= 2;
    struct pickle_value *global = machine_value(machine, PICKLE_GLOBAL, sizeof global->as.global);
    if (global == NULL)
        return false;
    global->as.global.module = module->as.text.bytes;
    global->as.global.module_length = (uint32_t)module->as.text.length;
    global->as.global.name = name->as.text.bytes;
    global->as.global.name_length = (uint32_t)name->as.text.length;
    return machine_push(machine, global, slots[0].at.start);
}

/* Offers the value on top to the digester, and frees its parts if it is taken. */
static bool digest_top(struct pickle_machine *machine)
{
    if (machine->digester == NULL)
        return true;
    struct pickle_slot *top = &machine->slots[machine->count - 1];
    struct pickle_value *value = top->value;
    uint16_t tag = 0;
    const void *digest = NULL;
    bool taken = false;
    machine->status =
        machine->digester->digest(machine->digester->context, value, &tag, &digest, &taken);
    if (machine->status != DCP_OK || !taken)
        return machine->status == DCP_OK;
    if (top->at.start >= machine->floor && top->at.start <= (uintptr_t)machine->bump) {
        machine->bump -= (uintptr_t)machine->bump - top->at.start;
        value = machine_value(machine, PICKLE_DIGEST, sizeof value->as.digest);
        if (value == NULL)
            return false;
        top->value = value;
    }
    value->kind = PICKLE_DIGEST;
    value->tag = tag;
    value->as.digest = digest;
    return true;
}

/* A call or object of the callable in slots[0] with the arguments in slots[1]. */
static bool push_call(struct pickle_machine *machine, enum pickle_kind kind,
                      const struct pickle_slot *slots)
{
    struct pickle_value *callable = slots[0].value;
    struct pickle_value *arguments = slots[1].value;
    if (callable->kind != PICKLE_GLOBAL && callable->kind != PICKLE_CALL)
        return machine_fail(machine, "of %s", pickle_kind_name(callable));
    if (arguments->kind != PICKLE_TUPLE)
        return machine_fail(machine, "the arguments are %s, expected a tuple",
                            pickle_kind_name(arguments));
    struct pickle_value *value =
        machine_value(machine, kind, sizeof value->as.call + sizeof(struct pickle_call));
    if (value == NULL)
        return false;
    value->as.call = (struct pickle_call *)(&value->as.call + 1);
    *value->as.call = (struct pickle_call){.callable = callable, .arguments = arguments};
    return note_nesting(machine, value, arguments) &&
           machine_push(machine, value, slots[0].at.start);
}

bool machine_reduce(struct pickle_machine *machine)
{
    struct pickle_slot *slots = machine_top(machine, 2);
    if (slots == NULL)
        return false;
    machine->count -= 2;
    return push_call(machine, PICKLE_CALL, slots) && digest_top(machine);
}

bool machine_new_object(struct pickle_machine *machine, bool keywords)
{
    size_t count = keywords ? 3 : 2;
    struct pickle_slot *slots = machine_top(machine, count);
    if (slots == NULL)
        return false;
    if (keywords && (slots[2].value->kind != PICKLE_DICT || slots[2].value->as.sequence.count != 0))
        return machine_fail(machine, "keyword arguments are not supported");
    machine->count -= count;
    return push_call(machine, PICKLE_OBJECT, slots);
}

bool machine_build(struct pickle_machine *machine)
{
    struct pickle_slot *slots = machine_top(machine, 2);
    if (slots == NULL)
        return false;
    struct pickle_value *target = slots[0].value;
    if (target->kind != PICKLE_CALL && target->kind != PICKLE_OBJECT)
        return machine_fail(machine, "on %s", pickle_kind_name(target));
    if (target->as.call->state != NULL)
        return machine_fail(machine, "the object has been built before");
    target->as.call->state = slots[1].value;
    if (!note_nesting(machine, target, slots[1].value))
        return false;
    machine->count--;
    note_change(machine, target);
    return digest_top(machine);
}

bool machine_persistent(struct pickle_machine *machine)
{
    if (!machine->persistent_ids)
        return machine_fail(machine, "persistent ids are not allowed in this pickle");
    struct pickle_slot *slot = machine_top(machine, 1);
    if (slot == NULL)
        return false;
    struct pickle_value *value = machine_value(machine, PICKLE_PERSISTENT, sizeof value->as.id);
    if (value == NULL)
        return false;
    value->as.id = slot->value;
    slot->value = value;
    return true;
}
