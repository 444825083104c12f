/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/node_key.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* What a form in KEY_SCALAR begins with; ints are digits alone. */
enum { SCALAR_NONE = 'N', SCALAR_FLOAT = 'f', SCALAR_COMPLEX = 'c', SCALAR_DTYPE = 'd' };
enum { SCALAR_OBJECT = 'o' }; /* the same as itself alone */

bool key_is_hashable(const dcp_state *node)
{
    switch (node->kind) {
    case DCP_KIND_LIST:
    case DCP_KIND_SET:
    case DCP_KIND_DICT:
    case DCP_KIND_ORDERED_DICT:
    case DCP_KIND_BYTEARRAY:
    case DCP_KIND_STATEFUL:
    case DCP_KIND_STREAM:
    case DCP_KIND_PAIR:
        return false;
    default:
        return true;
    }
}

bool key_is_compound(const dcp_state *key)
{
    return key->kind == DCP_KIND_TUPLE || key->kind == DCP_KIND_FROZENSET ||
           key->kind == DCP_KIND_SIZE;
}

static void form_borrow(struct key_form *form, enum key_class class, const char *bytes,
                        size_t length)
{
    form->class = class;
    form->bytes = bytes;
    form->length = length;
    form->is_made = false;
}

/* The bytes are in `inside`. */
static void form_own(struct key_form *form, const char *bytes, size_t length)
{
    form_borrow(form, KEY_SCALAR, bytes, length);
    form->is_made = true;
}

/* A letter and bytes behind it. */
static void form_make(struct key_form *form, char letter, const void *bytes, size_t length)
{
    form->inside[0] = letter;
    memcpy(form->inside + 1, bytes, length);
    form_own(form, form->inside, length + 1);
}

static void form_object(struct key_form *form, const dcp_state *key)
{
    form_make(form, SCALAR_OBJECT, &key, sizeof key);
}

/* Its digits, as those of larger ints are known by; printing them takes several times as long. */
static void form_integer(struct key_form *form, uint64_t bits, bool is_unsigned)
{
    bool negative = !is_unsigned && (int64_t)bits < 0;
    uint64_t magnitude = negative ? 0 - bits : bits;
    char *end = form->inside + KEY_INSIDE_MAX, *at = end;
    do {
        *--at = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    if (negative)
        *--at = '-';
    form_own(form, at, (size_t)(end - at));
}

/* Whole floats as the ints that they equal. */
static void form_float(struct key_form *form, const dcp_state *key, double value)
{
    const double beyond = 9223372036854775808.0; /* 2^63: from there on all floats are whole */
    bool fits = value >= -beyond && value < beyond;
    if (isnan(value)) {
        form_object(form, key);
    } else if (isinf(value) || (fits && (double)(int64_t)value != value)) {
        form_make(form, SCALAR_FLOAT, &value, sizeof value);
    } else if (fits) {
        form_integer(form, (uint64_t)(int64_t)value, false);
    } else {
        int length = snprintf(form->inside, KEY_INSIDE_MAX, "%.0f", value);
        form_own(form, form->inside, (size_t)length);
    }
}

/* Adding 0.0 turns -0.0, which is the same, into 0.0. */
static void form_complex(struct key_form *form, const dcp_state *key)
{
    double parts[2] = {key->as.complex.real + 0.0, key->as.complex.imaginary + 0.0};
    if (isnan(parts[0]) || isnan(parts[1]))
        form_object(form, key);
    else if (parts[1] == 0.0)
        form_float(form, key, parts[0]);
    else
        form_make(form, SCALAR_COMPLEX, parts, sizeof parts);
}

static void form_opaque(struct key_form *form, const dcp_state *key)
{
    const struct state_opaque *opaque = key->as.opaque;
    if (opaque->form == OPAQUE_NAME) {
        form_borrow(form, KEY_NAME, opaque->name, strlen(opaque->name));
    } else if (opaque->form == OPAQUE_STRING || opaque->form == OPAQUE_INTEGER) {
        const dcp_state *bytes = opaque->children.items[0].value;
        form_borrow(form, opaque->form == OPAQUE_STRING ? KEY_TEXT : KEY_INTEGER,
                    bytes->as.text.bytes, bytes->as.text.length);
    } else {
        form_object(form, key);
    }
}

void key_form(const dcp_state *key, struct key_form *form)
{
    switch (key->kind) {
    case DCP_KIND_NONE:
        form_make(form, SCALAR_NONE, "", 0);
        return;
    case DCP_KIND_BOOL:
        form_integer(form, key->as.boolean, true);
        return;
    case DCP_KIND_INT:
        if (key->as.integer.is_big)
            form_borrow(form, KEY_SCALAR, key->as.integer.digits, strlen(key->as.integer.digits));
        else
            form_integer(form, key->as.integer.bits, key->as.integer.is_unsigned);
        return;
    case DCP_KIND_FLOAT:
        form_float(form, key, key->as.number);
        return;
    case DCP_KIND_COMPLEX:
        form_complex(form, key);
        return;
    case DCP_KIND_DTYPE:
        form_make(form, SCALAR_DTYPE, &key->as.dtype, sizeof key->as.dtype);
        return;
    case DCP_KIND_STRING:
        form_borrow(form, KEY_TEXT, key->as.text.bytes, key->as.text.length);
        return;
    case DCP_KIND_BYTES:
        form_borrow(form, KEY_BYTES, key->as.text.bytes, key->as.text.length);
        return;
    case DCP_KIND_DEVICE:
        form_borrow(form, KEY_DEVICE, key->as.text.bytes, key->as.text.length);
        return;
    case DCP_KIND_TUPLE:
    case DCP_KIND_FROZENSET:
    case DCP_KIND_SIZE:
        form_borrow(form, KEY_COMPOUND, "", 0);
        return;
    case DCP_KIND_OPAQUE:
        form_opaque(form, key);
        return;
    default:
        form_object(form, key);
        return;
    }
}

bool key_form_equal(const struct key_form *left, const struct key_form *right)
{
    return left->class == right->class && left->length == right->length &&
           memcmp(left->bytes, right->bytes, left->length) == 0;
}

/* ---- tuples and frozensets ---- */

/* A part of a key that is being written: class (tuples and torch.Sizes alike), length, bytes. Those
 * of tuples are their elements, those of frozensets theirs in the order of their bytes. */
struct key_frame {
    const dcp_state *node;
    size_t next;
    size_t begin; /* of the bytes of its elements */
};

struct key_writing {
    struct buffer *out;
    dcp_status no_hash;
    struct key_frame *frames;
    size_t depth, capacity;
};

#define LENGTH_SIZE sizeof(uint64_t)
#define HEAD_SIZE   (1 + LENGTH_SIZE)

/* The class in front distinguishes frozensets from tuples. */
#define CLASS_FROZENSET (KEY_COMPOUND + 1)

struct element {
    const unsigned char *bytes;
    size_t size;
};

static int compare_elements(const void *left, const void *right)
{
    const struct element *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* Puts the elements of a frozenset, which end the buffer, in order, each once. */
static dcp_status sort_elements(struct buffer *out, size_t begin, size_t count)
{
    size_t size = out->size - begin;
    struct element *elements = memory_allocate_array(count, sizeof *elements);
    unsigned char *copy = memory_allocate(size);
    if (!elements || !copy) {
        memory_release(elements);
        memory_release(copy);
        return error_no_memory(size + count * sizeof *elements, "the key of a dict");
    }
    memcpy(copy, out->data + begin, size);
    const unsigned char *at = copy;
    for (size_t i = 0; i < count; i++) {
        elements[i] = (struct element){at, HEAD_SIZE + (size_t)load_u64(at + 1)};
        at += elements[i].size;
    }
    qsort(elements, count, sizeof *elements, compare_elements);
    out->size = begin;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_elements(&elements[i - 1], &elements[i]) != 0)
            buffer_append(out, elements[i].bytes, elements[i].size);
    memory_release(elements);
    memory_release(copy);
    return DCP_OK;
}

static dcp_status open_part(struct key_writing *writing, const dcp_state *node)
{
    if (writing->depth == writing->capacity) {
        size_t capacity = writing->capacity * 2 + 8;
        struct key_frame *frames =
            memory_reallocate_array(writing->frames, capacity, sizeof *frames);
        if (!frames)
            return error_no_memory(capacity * sizeof *frames, "the key of a dict");
        writing->frames = frames;
        writing->capacity = capacity;
    }
    bool is_set = node->kind == DCP_KIND_FROZENSET;
    buffer_append_u8(writing->out, is_set ? CLASS_FROZENSET : KEY_COMPOUND);
    buffer_append_u64(writing->out, 0);
    writing->frames[writing->depth++] = (struct key_frame){node, 0, writing->out->size};
    return DCP_OK;
}

static dcp_status close_part(struct key_writing *writing)
{
    const struct key_frame frame = writing->frames[--writing->depth];
    RETURN_IF_ERROR(buffer_status(writing->out));
    if (frame.node->kind == DCP_KIND_FROZENSET && frame.next > 1)
        RETURN_IF_ERROR(sort_elements(writing->out, frame.begin, frame.next));
    store_u64(writing->out->data + frame.begin - LENGTH_SIZE, writing->out->size - frame.begin);
    return DCP_OK;
}

static dcp_status write_part(struct key_writing *writing, const dcp_state *node)
{
    struct key_form form;
    if (!key_is_hashable(node))
        return dcp_error_set(writing->no_hash, "a %s, which cannot be hashed, in a key or a set",
                             node_kind_name(node->kind));
    if (key_is_compound(node))
        return open_part(writing, node);
    key_form(node, &form);
    buffer_append_u8(writing->out, (uint8_t)form.class);
    buffer_append_u64(writing->out, form.length);
    buffer_append(writing->out, form.bytes, form.length);
    return buffer_status(writing->out);
}

dcp_status key_write(const dcp_state *key, dcp_status no_hash, struct buffer *out)
{
    struct key_writing writing = {.out = out, .no_hash = no_hash};
    dcp_status status = write_part(&writing, key);
    while (status == DCP_OK && writing.depth > 0) {
        struct key_frame *top = &writing.frames[writing.depth - 1];
        const struct state_children *children = &top->node->as.children;
        status = top->next == children->count
                     ? close_part(&writing)
                     : write_part(&writing, children->items[top->next++].value);
    }
    memory_release(writing.frames);
    return status;
}
