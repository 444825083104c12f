/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a pickle: arguments, simple values, and the loop over opcodes. */
#include "format/pickle/pickle.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/pickle/pickle_machine.h"
#include "format/pickle/pickle_opcodes.h"

/* UTF-8 that may contain lone surrogates, as Python's strings can. */
static bool is_python_text(const unsigned char *text, size_t length)
{
    const unsigned char *end = text + length;
    const unsigned char *from = text;
    if (utf8_is_valid((const char *)text, length))
        return true;
    for (const unsigned char *at = text; end - at >= 3; at++) {
        if (at[0] == 0xed && (at[1] & 0xe0) == 0xa0 && (at[2] & 0xc0) == 0x80) {
            if (!utf8_is_valid((const char *)from, (size_t)(at - from)))
                return false;
            from = at + 3;
            at += 2;
        }
    }
    return utf8_is_valid((const char *)from, (size_t)(end - from));
}

static bool fail_end(struct pickle_machine *machine, size_t needed)
{
    return machine_fail(machine, "needs %zu bytes more, but the input ends after %zu", needed,
                        (size_t)(machine->end - machine->next));
}

static bool fail_length(struct pickle_machine *machine)
{
    if ((*machine->opcode == OP_LONG4 || *machine->opcode == OP_BINSTRING) &&
        machine->number > INT32_MAX)
        return machine_fail(machine, "the length is negative");
    return machine_fail(machine, "claims %llu bytes, but the input ends after %zu",
                        (unsigned long long)machine->number,
                        (size_t)(machine->end - machine->next));
}

/* Reads the argument of the current opcode into number and text. */
static bool read_argument(struct pickle_machine *machine, const struct pickle_opcode_form *form)
{
    size_t size = form->size != 0 ? (size_t)form->size - 1 : form->prefix;
    if (size > (size_t)(machine->end - machine->next))
        return fail_end(machine, size);
    if (size == 0) /* lines of text, or an unknown opcode */
        return true;
    machine->number = pickle_number(machine->next, size);
    machine->next += size;
    if (form->prefix == 0)
        return true;
    if (machine->number > (size_t)(machine->end - machine->next))
        return fail_length(machine);
    machine->text = machine->next;
    machine->next += machine->number;
    return true;
}

static bool push_bool(struct pickle_machine *machine, bool boolean)
{
    struct pickle_value *value;
    if (!machine_push_new(machine, PICKLE_BOOL, sizeof value->as.boolean, &value))
        return false;
    value->as.boolean = boolean;
    return true;
}

static bool push_int(struct pickle_machine *machine, int64_t integer)
{
    struct pickle_value *value;
    if (!machine_push_new(machine, PICKLE_INT, sizeof value->as.integer, &value))
        return false;
    value->as.integer = integer;
    return true;
}

static bool push_none(struct pickle_machine *machine)
{
    struct pickle_value *value;
    return machine_push_new(machine, PICKLE_NONE, 0, &value);
}

static bool push_float(struct pickle_machine *machine)
{
    struct pickle_value *value;
    if (!machine_push_new(machine, PICKLE_FLOAT, sizeof value->as.number, &value))
        return false;
    uint64_t bits = __builtin_bswap64(machine->number); /* the one big-endian argument */
    memcpy(&value->as.number, &bits, sizeof bits);
    return true;
}

static bool push_text(struct pickle_machine *machine, enum pickle_kind kind)
{
    struct pickle_value *value;
    if (!machine_push_new(machine, kind, sizeof value->as.text, &value))
        return false;
    value->as.text.bytes = (const char *)machine->text;
    value->as.text.length = (size_t)machine->number;
    return true;
}

static bool push_string(struct pickle_machine *machine)
{
    if (!is_python_text(machine->text, (size_t)machine->number))
        return machine_fail(machine, "the text is not UTF-8");
    return push_text(machine, PICKLE_STRING);
}

/* Python 2's strings were bytes, and mostly text. */
static bool push_old_string(struct pickle_machine *machine)
{
    bool is_text = is_python_text(machine->text, (size_t)machine->number);
    return push_text(machine, is_text ? PICKLE_STRING : PICKLE_BYTES);
}

static bool push_bytearray(struct pickle_machine *machine)
{
    if (!push_text(machine, PICKLE_BYTEARRAY))
        return false;
    machine->slots[machine->count - 1].value->flags |= VALUE_UNHASHABLE;
    return true;
}

static bool push_long(struct pickle_machine *machine)
{
    const unsigned char *bytes = machine->text;
    size_t length = (size_t)machine->number;
    unsigned char sign = length != 0 && bytes[length - 1] >= 0x80 ? 0xff : 0;
    while (length > 1 && bytes[length - 1] == sign && (bytes[length - 2] ^ sign) < 0x80)
        length--;
    if (length > 8) {
        machine->number = length;
        return push_text(machine, PICKLE_LONG);
    }
    uint64_t bits = sign != 0 ? UINT64_MAX : 0;
    for (size_t i = length; i-- > 0;)
        bits = bits << 8 | bytes[i];
    return push_int(machine, (int64_t)bits);
}

static bool push_container(struct pickle_machine *machine, enum pickle_kind kind)
{
    struct pickle_value *value;
    if (!machine_push_new(machine, kind, sizeof value->as.sequence, &value))
        return false;
    value->as.sequence = (struct pickle_sequence){0};
    value->flags = VALUE_UNHASHABLE;
    return true;
}

/* A line without its newline, from the input. */
static bool read_line(struct pickle_machine *machine, const char **text, uint32_t *length)
{
    size_t left = (size_t)(machine->end - machine->next);
    const unsigned char *newline = left != 0 ? memchr(machine->next, '\n', left) : NULL;
    if (newline == NULL)
        return machine_fail(machine, "the input ends within a line");
    *text = (const char *)machine->next;
    *length = (uint32_t)(newline - machine->next);
    machine->next = newline + 1;
    return is_python_text((const unsigned char *)*text, *length) ||
           machine_fail(machine, "the text is not UTF-8");
}

static bool push_global(struct pickle_machine *machine)
{
    struct pickle_value *value;
    return machine_push_new(machine, PICKLE_GLOBAL, sizeof value->as.global, &value) &&
           read_line(machine, &value->as.global.module, &value->as.global.module_length) &&
           read_line(machine, &value->as.global.name, &value->as.global.name_length);
}

static bool check_protocol(struct pickle_machine *machine)
{
    if (machine->number < 2 || machine->number > 5)
        return machine_fail(machine, "protocol %u is not supported, expected 2 to 5",
                            (unsigned)machine->number);
    return true;
}

static bool check_frame(struct pickle_machine *machine)
{
    size_t left = (size_t)(machine->end - machine->next);
    if (machine->number > left)
        return machine_fail(machine, "the frame claims %llu bytes, but the input ends after %zu",
                            (unsigned long long)machine->number, left);
    return true;
}

static bool memoize(struct pickle_machine *machine)
{
    if (machine->memo.has_gaps)
        return machine_fail(machine, "memo numbers before have gaps, which is not supported");
    return machine_memo_put(machine, machine->memo.end);
}

/* Opcodes with an argument. */
static bool execute_with_argument(struct pickle_machine *machine)
{
    switch (*machine->opcode) {
    case OP_PROTO:
        return check_protocol(machine);
    case OP_FRAME:
        return check_frame(machine);
    case OP_BININT:
        return push_int(machine, (int32_t)machine->number);
    case OP_BININT1:
    case OP_BININT2:
        return push_int(machine, (int64_t)machine->number);
    case OP_LONG1:
    case OP_LONG4:
        return push_long(machine);
    case OP_BINFLOAT:
        return push_float(machine);
    case OP_BINUNICODE:
    case OP_SHORT_BINUNICODE:
    case OP_BINUNICODE8:
        return push_string(machine);
    case OP_BINSTRING:
    case OP_SHORT_BINSTRING:
        return push_old_string(machine);
    case OP_BINBYTES:
    case OP_SHORT_BINBYTES:
    case OP_BINBYTES8:
        return push_text(machine, PICKLE_BYTES);
    case OP_BYTEARRAY8:
        return push_bytearray(machine);
    case OP_BINPUT:
    case OP_LONG_BINPUT:
        return machine_memo_put(machine, machine->number);
    case OP_BINGET:
    case OP_LONG_BINGET:
        return machine_memo_get(machine, machine->number);
    case OP_GLOBAL:
        return push_global(machine);
    default:
        return machine_fail(machine, "unknown opcode");
    }
}

/* Opcodes without an argument. */
static bool execute_plain(struct pickle_machine *machine)
{
    switch (*machine->opcode) {
    case OP_NONE:
        return push_none(machine);
    case OP_NEWTRUE:
        return push_bool(machine, true);
    case OP_NEWFALSE:
        return push_bool(machine, false);
    case OP_EMPTY_LIST:
        return push_container(machine, PICKLE_LIST);
    case OP_EMPTY_DICT:
        return push_container(machine, PICKLE_DICT);
    case OP_EMPTY_SET:
        return push_container(machine, PICKLE_SET);
    case OP_EMPTY_TUPLE:
        return machine_tuple(machine, 0);
    case OP_TUPLE1:
        return machine_tuple(machine, 1);
    case OP_TUPLE2:
        return machine_tuple(machine, 2);
    case OP_TUPLE3:
        return machine_tuple(machine, 3);
    case OP_TUPLE:
        return machine_tuple_to_mark(machine);
    case OP_FROZENSET:
        return machine_frozenset(machine);
    case OP_APPEND:
        return machine_append(machine);
    case OP_APPENDS:
        return machine_append_many(machine);
    case OP_SETITEM:
        return machine_set_item(machine);
    case OP_SETITEMS:
        return machine_set_items(machine);
    case OP_ADDITEMS:
        return machine_add_items(machine);
    case OP_MARK:
        return machine_push_mark(machine);
    case OP_POP:
        return machine_pop(machine);
    case OP_MEMOIZE:
        return memoize(machine);
    case OP_STACK_GLOBAL:
        return machine_stack_global(machine);
    case OP_REDUCE:
        return machine_reduce(machine);
    case OP_NEWOBJ:
        return machine_new_object(machine, false);
    case OP_NEWOBJ_EX:
        return machine_new_object(machine, true);
    case OP_BUILD:
        return machine_build(machine);
    case OP_BINPERSID:
        return machine_persistent(machine);
    default:
        return machine_fail(machine, "unknown opcode");
    }
}

static bool run(struct pickle_machine *machine)
{
    machine->opcode = machine->next;
    if (machine->next == machine->end || *machine->next != OP_PROTO)
        return machine_fail(machine, "not a pickle of protocol 2 to 5");
    for (;;) {
        machine->opcode = machine->next;
        if (machine->next == machine->end)
            return machine_fail(machine, "the input ends without STOP");
        const struct pickle_opcode_form *form = &pickle_opcode_forms[*machine->next++];
        if (*machine->opcode == OP_STOP)
            break;
        bool done = form->size == 1
                        ? execute_plain(machine)
                        : read_argument(machine, form) && execute_with_argument(machine);
        if (!done)
            return false;
    }
    if (machine->count != 1 || machine->fence != 0)
        return machine_fail(machine, "%zu values and marks on the stack, expected 1",
                            machine->count);
    machine->document->root = machine->slots[0].value;
    return true;
}

static dcp_status read_document(struct pickle_machine *machine)
{
    enum { FIRST_SLOTS = 32, FIRST_CHUNK = 512 };
    size_t size = (size_t)(machine->end - machine->begin);
    if (size > UINT32_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "the pickle has %zu bytes, expected at most 4 GiB",
                             size);
    machine->chunk_size = FIRST_CHUNK;
    machine->capacity = FIRST_SLOTS;
    machine->slots = memory_allocate_array(FIRST_SLOTS, sizeof *machine->slots);
    if (machine->slots == NULL)
        return error_no_memory(FIRST_SLOTS * sizeof *machine->slots, "the stack of a pickle");
    machine->status = pickle_memo_prepare(&machine->memo, machine->begin, size);
    if (machine->status == DCP_OK)
        run(machine);
    pickle_memo_free(&machine->memo);
    memory_release(machine->slots);
    return machine->status;
}

static dcp_status read_with(const void *bytes, size_t size, bool persistent_ids,
                            uint16_t nesting_max, const struct pickle_digester *digester,
                            struct pickle_document *document)
{
    const unsigned char *begin = size != 0 ? bytes : (const void *)""; /* NULL would have no end */
    *document = (struct pickle_document){0};
    arena_init(&document->arena, 0);
    struct pickle_machine machine = {.begin = begin,
                                     .end = begin + size,
                                     .next = begin,
                                     .persistent_ids = persistent_ids,
                                     .nesting_max = nesting_max,
                                     .digester = digester,
                                     .document = document};
    dcp_status status = read_document(&machine);
    document->length = (size_t)(machine.next - begin);
    if (status != DCP_OK)
        pickle_free(document);
    return status;
}

dcp_status pickle_read(const void *bytes, size_t size, bool persistent_ids,
                       struct pickle_document *document)
{
    return read_with(bytes, size, persistent_ids, UINT16_MAX, NULL, document);
}

dcp_status pickle_read_digested(const void *bytes, size_t size,
                                const struct pickle_digester *digester,
                                struct pickle_document *document)
{
    return read_with(bytes, size, false, PICKLE_NESTING_MAX, digester, document);
}

void pickle_free(struct pickle_document *document)
{
    arena_free(&document->arena);
    document->root = NULL;
    document->value_count = 0;
}
