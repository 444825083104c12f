/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes as JSON text. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/memory.h"
#include "state/node.h"
#include "state/number_text.h"

#define LIMIT_DEFAULT ((size_t)64 << 20)

enum { NODE_OPEN = 1 };

/* A container that is being written. */
struct open_node {
    dcp_state *node;
    size_t next;
    bool pairs; /* a dict as a list of pairs, not empty; next counts keys and values then */
    const char *closing;
};

struct json_writer {
    struct buffer out;
    struct open_node *stack;
    size_t depth;
    size_t capacity;
    uint32_t walk;
};

static void put(struct json_writer *writer, const char *text)
{
    buffer_append(&writer->out, text, strlen(text));
}

/* Length of the valid UTF-8 character at text (of at most `left` bytes), 0 if it is not one. */
static size_t character_length(const unsigned char *text, size_t left)
{
    size_t length = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    return length <= left && utf8_is_valid((const char *)text, length) ? length : 0;
}

/* Python strings may hold lone surrogates; other bytes that are no UTF-8 become U+FFFD. Returns the
 * bytes used up. */
static size_t put_invalid(struct json_writer *writer, const unsigned char *text, size_t left)
{
    if (left >= 3 && text[0] == 0xed && text[1] >= 0xa0 && text[1] <= 0xbf &&
        (text[2] & 0xc0) == 0x80) {
        unsigned surrogate = 0xd000u | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
        buffer_append_format(&writer->out, "\\u%04x", surrogate);
        return 3;
    }
    put(writer, "\\ufffd");
    return 1;
}

static void put_string(struct json_writer *writer, const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    put(writer, "\"");
    for (size_t i = 0; i < length;) {
        size_t plain = 0;
        while (i + plain < length && bytes[i + plain] >= 0x20 && bytes[i + plain] < 0x80 &&
               bytes[i + plain] != '"' && bytes[i + plain] != '\\')
            plain++;
        buffer_append(&writer->out, bytes + i, plain);
        i += plain;
        if (i == length)
            break;
        if (bytes[i] == '"' || bytes[i] == '\\') {
            buffer_append_format(&writer->out, "\\%c", bytes[i++]);
        } else if (bytes[i] < 0x20) {
            buffer_append_format(&writer->out, "\\u%04x", bytes[i++]);
        } else {
            size_t character = character_length(bytes + i, length - i);
            buffer_append(&writer->out, bytes + i, character);
            i += character ? character : put_invalid(writer, bytes + i, length - i);
        }
    }
    put(writer, "\"");
}

static void put_number(struct json_writer *writer, double value)
{
    char text[NUMBER_TEXT_MAX];
    number_text(value, text);
    buffer_append_format(&writer->out, isfinite(value) ? "%s" : "{\"$float\": \"%s\"}", text);
}

static void put_hex(struct json_writer *writer, const char *key, const dcp_state *node)
{
    static const char digits[] = "0123456789abcdef";
    size_t length = node->as.text.length;
    buffer_append_format(&writer->out, "{\"%s\": \"", key);
    if (buffer_reserve(&writer->out, 2 * length) != DCP_OK)
        return;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)node->as.text.bytes[i];
        char pair[2] = {digits[byte >> 4], digits[byte & 15]};
        buffer_append(&writer->out, pair, 2);
    }
    put(writer, "\"}");
}

static void put_tensor(struct json_writer *writer, const struct state_tensor *tensor)
{
    buffer_append_format(&writer->out, "{\"$tensor\": {\"dtype\": \"%s\", \"shape\": [",
                         dcp_dtype_name(tensor->dtype));
    for (int32_t i = 0; i < tensor->ndim; i++)
        buffer_append_format(&writer->out, "%s%" PRId64, i > 0 ? ", " : "",
                             tensor->global_shape[i]);
    put(writer, "]}}");
}

static dcp_status put_leaf(struct json_writer *writer, const dcp_state *node)
{
    const char *digits;
    switch (node->kind) {
    case DCP_KIND_BOOL:
        put(writer, node->as.boolean ? "true" : "false");
        break;
    case DCP_KIND_INT:
        digits = dcp_state_int_digits(node);
        if (!digits)
            return DCP_ERR_NO_MEMORY;
        put(writer, digits);
        break;
    case DCP_KIND_FLOAT:
        put_number(writer, node->as.number);
        break;
    case DCP_KIND_COMPLEX:
        put(writer, "{\"$complex\": [");
        put_number(writer, node->as.complex.real);
        put(writer, ", ");
        put_number(writer, node->as.complex.imaginary);
        put(writer, "]}");
        break;
    case DCP_KIND_STRING:
        put_string(writer, node->as.text.bytes, node->as.text.length);
        break;
    case DCP_KIND_BYTES:
        put_hex(writer, "$bytes", node);
        break;
    case DCP_KIND_BYTEARRAY:
        put_hex(writer, "$bytearray", node);
        break;
    case DCP_KIND_STREAM:
        buffer_append_format(&writer->out, "{\"$stream\": %zu}", node->as.text.length);
        break;
    case DCP_KIND_DTYPE:
        buffer_append_format(&writer->out, "{\"$dtype\": \"%s\"}", dcp_dtype_name(node->as.dtype));
        break;
    case DCP_KIND_DEVICE:
        put(writer, "{\"$device\": ");
        put_string(writer, node->as.text.bytes, node->as.text.length);
        put(writer, "}");
        break;
    case DCP_KIND_TENSOR:
        put_tensor(writer, node->as.tensor);
        break;
    case DCP_KIND_STATEFUL:
        put(writer, "{\"$stateful\": true}");
        break;
    default:
        put(writer, "null");
        break;
    }
    return DCP_OK;
}

/* Dicts with keys that JSON lacks, or that look like our marks, are lists of pairs. */
static bool needs_pairs(const dcp_state *dict)
{
    for (size_t i = 0; i < dict->as.children.count; i++) {
        const dcp_state *key = dict->as.children.items[i].key;
        if (key->kind != DCP_KIND_STRING || key->as.text.bytes[0] == '$')
            return true;
    }
    return false;
}

static dcp_status push(struct json_writer *writer, dcp_state *node, bool pairs, const char *closing)
{
    if (writer->depth == writer->capacity) {
        size_t capacity = writer->capacity * 2 + 32;
        struct open_node *stack = memory_reallocate_array(writer->stack, capacity, sizeof *stack);
        if (!stack)
            return error_no_memory(capacity * sizeof *stack, "nested values");
        writer->stack = stack;
        writer->capacity = capacity;
    }
    writer->stack[writer->depth++] = (struct open_node){node, 0, pairs, closing};
    node_set_mark(node, writer->walk, NODE_OPEN);
    return DCP_OK;
}

static dcp_status open_container(struct json_writer *writer, dcp_state *node)
{
    bool pairs = node_is_dict(node) && needs_pairs(node);
    const char *opening = "[";
    const char *closing = "]";
    if (pairs) {
        opening = "{\"$dict\": [";
        closing = "]]}";
    } else if (node_is_dict(node)) {
        opening = "{";
        closing = "}";
    } else if (node->kind == DCP_KIND_SET || node->kind == DCP_KIND_FROZENSET) {
        opening = node->kind == DCP_KIND_SET ? "{\"$set\": [" : "{\"$frozenset\": [";
        closing = "]}";
    } else if (node->kind == DCP_KIND_SIZE) {
        opening = "{\"$size\": [";
        closing = "]}";
    } else if (node->kind == DCP_KIND_OPAQUE) {
        bool bare = node->as.opaque->children.count == 0;
        put(writer, "{\"$opaque\": ");
        put_string(writer, node->as.opaque->name, strlen(node->as.opaque->name));
        opening = bare ? "" : ", \"children\": [";
        closing = bare ? "}" : "]}";
    }
    put(writer, opening);
    return push(writer, node, pairs, closing);
}

static dcp_status put_node(struct json_writer *writer, dcp_state *node)
{
    if (!node_children(node))
        return put_leaf(writer, node);
    if (node_mark(node, writer->walk) == NODE_OPEN) {
        put(writer, "{\"$cycle\": true}");
        return DCP_OK;
    }
    return open_container(writer, node);
}

/* Writes what comes next of the innermost open container. */
static dcp_status step(struct json_writer *writer)
{
    struct open_node *top = &writer->stack[writer->depth - 1];
    const struct state_children *children = node_children(top->node);
    if (top->next == (top->pairs ? 2 * children->count : children->count)) {
        put(writer, top->closing);
        node_set_mark(top->node, writer->walk, 0);
        writer->depth--;
        return DCP_OK;
    }
    size_t next = top->next++;
    if (top->pairs) {
        const struct state_child *pair = &children->items[next / 2];
        put(writer, next % 2 == 1 ? ", " : next > 0 ? "], [" : "[");
        return put_node(writer, next % 2 == 0 ? pair->key : pair->value);
    }
    put(writer, next > 0 ? ", " : "");
    if (node_is_dict(top->node)) {
        const dcp_state *key = children->items[next].key;
        put_string(writer, key->as.text.bytes, key->as.text.length);
        put(writer, ": ");
    }
    return put_node(writer, children->items[next].value);
}

dcp_status dcp_state_to_json(const dcp_state *node, size_t limit, char **text)
{
    if (!node || !text)
        return dcp_error_set(DCP_ERR_ARGUMENT, "JSON of a node: the %s is NULL",
                             node ? "result" : "node");
    *text = NULL;
    /* the walk leaves marks in the nodes, which are the tree's to change */
    dcp_state *start = (dcp_state *)node;
    struct json_writer writer = {.walk = node_walk_begin(start)};
    if (limit == 0)
        limit = LIMIT_DEFAULT;
    buffer_init(&writer.out, limit < SIZE_MAX ? limit + 1 : limit);
    dcp_status status = put_node(&writer, start);
    while (status == DCP_OK && writer.depth > 0 && writer.out.status == DCP_OK)
        status = step(&writer);
    buffer_append_u8(&writer.out, '\0');
    if (status == DCP_OK && writer.out.status == DCP_ERR_UNSUPPORTED)
        status = dcp_error_set(DCP_ERR_UNSUPPORTED, "the JSON text has more than %zu bytes", limit);
    else if (status == DCP_OK)
        status = buffer_status(&writer.out);
    memory_release(writer.stack);
    if (status != DCP_OK) {
        buffer_free(&writer.out);
        return status;
    }
    *text = (char *)writer.out.data;
    return DCP_OK;
}

void dcp_text_free(char *text)
{
    memory_release(text);
}
