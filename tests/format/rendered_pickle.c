/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendered_pickle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"

/* Renders a value as text, nested at most a few levels: what a test compares. */
static void render(struct buffer *out, const struct pickle_value *value, int depth);

static void render_sequence(struct buffer *out, const struct pickle_sequence *sequence, int depth)
{
    for (uint32_t i = 0; i < sequence->count; i++) {
        if (i != 0)
            buffer_append_format(out, " ");
        render(out, sequence->items[i], depth + 1);
    }
}

static void render_call(struct buffer *out, const struct pickle_value *value, int depth)
{
    const struct pickle_call *call = value->as.call;
    buffer_append_format(out, value->kind == PICKLE_CALL ? "call(" : "object(");
    render(out, call->callable, depth + 1);
    buffer_append_format(out, " ");
    render(out, call->arguments, depth + 1);
    if (call->state != NULL) {
        buffer_append_format(out, " state=");
        render(out, call->state, depth + 1);
    }
    buffer_append_format(out, call->items.count != 0 ? " items=" : "");
    render_sequence(out, &call->items, depth);
    buffer_append_format(out, call->pairs.count != 0 ? " pairs=" : "");
    render_sequence(out, &call->pairs, depth);
    buffer_append_format(out, ")");
}

static void render_container(struct buffer *out, const struct pickle_value *value, int depth)
{
    static const char *const marks[][2] = {[PICKLE_TUPLE] = {"(", ")"},
                                           [PICKLE_LIST] = {"[", "]"},
                                           [PICKLE_DICT] = {"{", "}"},
                                           [PICKLE_SET] = {"set{", "}"},
                                           [PICKLE_FROZENSET] = {"frozenset{", "}"}};
    buffer_append_format(out, "%s", marks[value->kind][0]);
    render_sequence(out, &value->as.sequence, depth);
    buffer_append_format(out, "%s", marks[value->kind][1]);
}

static void render_text(struct buffer *out, const char *prefix, const struct pickle_value *value)
{
    buffer_append_format(out, "%s'", prefix);
    for (size_t i = 0; i < value->as.text.length; i++) {
        unsigned char byte = (unsigned char)value->as.text.bytes[i];
        buffer_append_format(out, byte >= ' ' && byte < 0x7f ? "%c" : "\\x%02x", byte);
    }
    buffer_append_format(out, "'");
}

static void render(struct buffer *out, const struct pickle_value *value, int depth)
{
    if (depth > 6) {
        buffer_append_format(out, "...");
        return;
    }
    switch ((enum pickle_kind)value->kind) {
    case PICKLE_NONE:
        buffer_append_format(out, "None");
        break;
    case PICKLE_BOOL:
        buffer_append_format(out, value->as.boolean ? "True" : "False");
        break;
    case PICKLE_INT:
        buffer_append_format(out, "%lld", (long long)value->as.integer);
        break;
    case PICKLE_FLOAT:
        buffer_append_format(out, "%a", value->as.number);
        break;
    case PICKLE_LONG:
        render_text(out, "long", value);
        break;
    case PICKLE_STRING:
        render_text(out, "", value);
        break;
    case PICKLE_BYTES:
        render_text(out, "b", value);
        break;
    case PICKLE_BYTEARRAY:
        render_text(out, "bytearray", value);
        break;
    case PICKLE_GLOBAL:
        buffer_append_format(out, "%.*s.%.*s", (int)value->as.global.module_length,
                             value->as.global.module, (int)value->as.global.name_length,
                             value->as.global.name);
        break;
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        render_call(out, value, depth);
        break;
    case PICKLE_PERSISTENT:
        buffer_append_format(out, "persistent ");
        render(out, value->as.id, depth + 1);
        break;
    case PICKLE_DIGEST:
        buffer_append_format(out, "digest %u", value->tag);
        break;
    default:
        render_container(out, value, depth);
        break;
    }
}

void check_rendered(const struct pickle_value *value, const char *script, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 0);
    render(&out, value, 0);
    buffer_append_u8(&out, 0);
    if (strcmp((const char *)out.data, expected) != 0)
        fail_msg("%s gives %s, expected %s", script, (const char *)out.data, expected);
    buffer_free(&out);
}
