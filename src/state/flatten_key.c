/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/flatten_key.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "state/number_text.h"

/* Keys are hashable, so that nesting means tuples in tuples; real keys are not nested deeper. */
#define NESTING_MAX 16

/* A string or bytes in quotes, as repr() writes it. */
static void append_quoted(struct buffer *out, const dcp_state *node)
{
    const char *text = node->as.text.bytes;
    size_t length = node->as.text.length;
    bool is_bytes = node->kind == DCP_KIND_BYTES;
    char quote = memchr(text, '\'', length) && !memchr(text, '"', length) ? '"' : '\'';
    buffer_append_format(out, "%s%c", is_bytes ? "b" : "", quote);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        const char *short_escape = byte ? strchr("\nn\rr\tt", byte) : NULL;
        if (byte == '\\' || byte == (unsigned char)quote)
            buffer_append_format(out, "\\%c", byte);
        else if (byte < 0x20 && short_escape)
            buffer_append_format(out, "\\%c", short_escape[1]);
        else if (byte < 0x20 || byte == 0x7f || (is_bytes && byte > 0x7f))
            buffer_append_format(out, "\\x%02x", byte);
        else
            buffer_append_u8(out, byte);
    }
    buffer_append_u8(out, (uint8_t)quote);
}

static void append_part_of_complex(struct buffer *out, double value, bool with_sign)
{
    char text[NUMBER_TEXT_MAX];
    size_t length = strlen(number_text(value, text));
    if (length > 2 && strcmp(text + length - 2, ".0") == 0)
        text[length - 2] = '\0';
    buffer_append_format(out, "%s%s", with_sign && text[0] != '-' ? "+" : "", text);
}

static void append_complex(struct buffer *out, const dcp_state *node)
{
    double real = node->as.complex.real;
    if (real == 0 && !signbit(real)) {
        append_part_of_complex(out, node->as.complex.imaginary, false);
        buffer_append_format(out, "j");
        return;
    }
    buffer_append_format(out, "(");
    append_part_of_complex(out, real, false);
    append_part_of_complex(out, node->as.complex.imaginary, true);
    buffer_append_format(out, "j)");
}

/* Keys that are no tuples; strings as repr() has them inside tuples. */
static dcp_status append_plain(struct buffer *out, const dcp_state *key)
{
    char text[NUMBER_TEXT_MAX];
    const char *digits;
    switch (key->kind) {
    case DCP_KIND_NONE:
        buffer_append_format(out, "None");
        return DCP_OK;
    case DCP_KIND_BOOL:
        buffer_append_format(out, "%s", key->as.boolean ? "True" : "False");
        return DCP_OK;
    case DCP_KIND_INT:
        digits = dcp_state_int_digits(key);
        if (!digits)
            return DCP_ERR_NO_MEMORY;
        buffer_append_format(out, "%s", digits);
        return DCP_OK;
    case DCP_KIND_FLOAT:
        buffer_append_format(out, "%s", number_text(key->as.number, text));
        return DCP_OK;
    case DCP_KIND_COMPLEX:
        append_complex(out, key);
        return DCP_OK;
    case DCP_KIND_STRING:
    case DCP_KIND_BYTES:
        append_quoted(out, key);
        return DCP_OK;
    case DCP_KIND_DTYPE:
        buffer_append_format(out, "torch.%s", dcp_dtype_name(key->as.dtype));
        return DCP_OK;
    case DCP_KIND_DEVICE:
        buffer_append(out, key->as.text.bytes, key->as.text.length);
        return DCP_OK;
    default:
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a dict has a key of kind %s",
                             node_kind_name(key->kind));
    }
}

static dcp_status append_tuple(struct buffer *out, const dcp_state *tuple)
{
    struct {
        const dcp_state *tuple;
        size_t next;
    } stack[NESTING_MAX] = {{tuple, 0}};
    size_t depth = 1;
    buffer_append_u8(out, '(');
    while (depth > 0) {
        const struct state_children *children = &stack[depth - 1].tuple->as.children;
        size_t next = stack[depth - 1].next++;
        if (next == children->count) {
            buffer_append_format(out, "%s)", children->count == 1 ? "," : "");
            depth--;
            continue;
        }
        const dcp_state *element = children->items[next].value;
        buffer_append_format(out, "%s", next > 0 ? ", " : "");
        if (element->kind != DCP_KIND_TUPLE) {
            RETURN_IF_ERROR(append_plain(out, element));
            continue;
        }
        if (depth == NESTING_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "a dict has a key of tuples nested more than %d deep",
                                 NESTING_MAX);
        buffer_append_u8(out, '(');
        stack[depth].tuple = element;
        stack[depth++].next = 0;
    }
    return DCP_OK;
}

dcp_status key_append(struct buffer *out, const dcp_state *key)
{
    if (key->kind == DCP_KIND_STRING)
        buffer_append(out, key->as.text.bytes, key->as.text.length);
    else if (key->kind == DCP_KIND_TUPLE)
        RETURN_IF_ERROR(append_tuple(out, key));
    else
        RETURN_IF_ERROR(append_plain(out, key));
    return buffer_status(out);
}
