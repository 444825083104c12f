/* SPDX-License-Identifier: BSD-3-Clause */
/* What has no kind here, as the pickle had it that it was read from: names, and calls of them with
 * what they were given. */
#include <string.h>

#include "base/error.h"
#include "format/objects/object_encoder.h"

struct name_part {
    const char *text; /* not NUL-terminated */
    size_t length;
};

/* Up to protocol 2, Python's pickler says what Python 2 called it. */
static void rename_back(struct name_part *module, struct name_part *name)
{
    static const struct {
        const char *module, *name, *old_module, *old_name;
    } renamed[] = {
        {"builtins", "range", "__builtin__", "xrange"},
        {"builtins", "int", "__builtin__", "long"},
        {"builtins", "str", "__builtin__", "unicode"},
        {"builtins", NULL, "__builtin__", NULL},
        {"copyreg", NULL, "copy_reg", NULL},
    };
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (module->length != strlen(renamed[i].module) ||
            memcmp(module->text, renamed[i].module, module->length) != 0)
            continue;
        const char *other = renamed[i].name;
        if (other != NULL &&
            (name->length != strlen(other) || memcmp(name->text, other, name->length) != 0))
            continue;
        *module = (struct name_part){renamed[i].old_module, strlen(renamed[i].old_module)};
        if (renamed[i].old_name != NULL)
            *name = (struct name_part){renamed[i].old_name, strlen(renamed[i].old_name)};
        return;
    }
}

static void put_lines(struct buffer *out, struct name_part module, struct name_part name)
{
    pickle_put_op(out, OP_GLOBAL);
    buffer_append(out, module.text, module.length);
    buffer_append_u8(out, '\n');
    buffer_append(out, name.text, name.length);
    buffer_append_u8(out, '\n');
}

/* What is inside of a class, "Outer.Inner", is got from it part by part, as GLOBAL takes no dots
 * before protocol 4. */
static void put_parts(struct encoder *encoder, struct name_part module, struct name_part name)
{
    const char *end = name.text + name.length, *begin = name.text;
    size_t depth = 0;
    for (size_t i = 0; i < name.length; i++)
        depth += name.text[i] == '.';
    for (size_t i = 0; i < depth; i++)
        encoder_put_global(encoder, GLOBAL_GETATTR);
    for (size_t i = 0; i <= depth; i++) {
        const char *dot = memchr(begin, '.', (size_t)(end - begin));
        struct name_part part = {begin, (size_t)((dot != NULL ? dot : end) - begin)};
        if (i == 0) {
            put_lines(encoder->out, module, part);
            encoder_put_memo(encoder);
        } else {
            pickle_put_string(encoder->out, part.text, part.length);
            encoder_put_memo(encoder);
            encoder_put_reduce(encoder, 2);
            if (i < depth)
                encoder_put_memo(encoder);
        }
        begin = dot != NULL ? dot + 1 : end;
    }
}

dcp_status encoder_put_opaque_name(struct encoder *encoder, const struct state_opaque *opaque)
{
    size_t length = strlen(opaque->name);
    struct name_part module = {opaque->name, opaque->module_length};
    struct name_part name = {opaque->name + opaque->module_length + 1,
                             length - opaque->module_length - 1};
    uint64_t memo;
    if (memchr(opaque->name, '\n', length) != NULL)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "an object of a class whose name has several lines");
    if (name_table_find(&encoder->names, opaque->name, length, &memo)) {
        pickle_get_memo(encoder->out, (uint32_t)memo);
        return DCP_OK;
    }
    if (!encoder->modern)
        rename_back(&module, &name);
    if (memchr(name.text, '.', name.length) != NULL)
        put_parts(encoder, module, name);
    else
        put_lines(encoder->out, module, name);
    bool existing;
    memo = encoder_put_memo(encoder);
    return name_table_add(&encoder->names, opaque->name, length, &memo, &existing);
}

dcp_status encoder_put_opaque_leaf(struct encoder *encoder, const dcp_state *node, bool *known)
{
    const struct state_opaque *opaque = node->as.opaque;
    *known = opaque->form == OPAQUE_STRING || opaque->form == OPAQUE_INTEGER;
    if (!*known)
        return DCP_OK;
    const dcp_state *bytes = opaque->children.items[0].value;
    size_t length = bytes->as.text.length;
    if (length > (opaque->form == OPAQUE_STRING ? UINT32_MAX : INT32_MAX))
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s of %zu bytes", opaque->name, length);
    if (opaque->form == OPAQUE_STRING)
        pickle_put_string(encoder->out, bytes->as.text.bytes, length);
    else
        pickle_put_long(encoder->out, bytes->as.text.bytes, length);
    return DCP_OK;
}

/* Writes the call after its arguments; from then on it can be referred to. */
static void put_call(struct encoder *encoder, const struct state_opaque *opaque,
                     const dcp_state *made)
{
    encoder_put_tuple(encoder, opaque->argument_count);
    if (opaque->argument_count > 0)
        encoder_put_memo(encoder);
    pickle_put_op(encoder->out, opaque->form == OPAQUE_OBJECT ? OP_NEWOBJ : OP_REDUCE);
    struct encoder_slot *slot = encoder_find_slot(encoder, made);
    slot->index = encoder_put_memo(encoder);
    slot->open = false;
}

static dcp_status put_given(struct encoder *encoder, const dcp_state *parts)
{
    return encoder_push_frame(encoder, (struct encoder_frame){.node = parts, .given = true});
}

/* What comes behind the call: what is appended, set, and the state, in this order. */
static dcp_status put_rest(struct encoder *encoder, const struct encoder_frame *frame, size_t step)
{
    const struct state_opaque *opaque = frame->node->as.opaque;
    const struct state_child *children = opaque->children.items;
    size_t state = (size_t)opaque->has_callable + opaque->argument_count;
    size_t parts = state + opaque->has_state;
    switch (step) {
    case 0:
        return opaque->has_items ? put_given(encoder, children[parts].value) : DCP_OK;
    case 1:
        if (frame->made != frame->node)
            return put_given(encoder, frame->made);
        return opaque->has_pairs ? put_given(encoder, children[parts + opaque->has_items].value)
                                 : DCP_OK;
    case 2:
        return opaque->has_state ? encoder_put_value(encoder, children[state].value) : DCP_OK;
    default:
        if (opaque->has_state)
            pickle_put_op(encoder->out, OP_BUILD);
        encoder->depth--;
        return DCP_OK;
    }
}

dcp_status encoder_step_call(struct encoder *encoder)
{
    struct encoder_frame *top = &encoder->frames[encoder->depth - 1];
    const struct encoder_frame frame = *top; /* writing a child moves the frames */
    const struct state_opaque *opaque = frame.node->as.opaque;
    const struct state_child *children = opaque->children.items;
    size_t step = top->position++, arguments = opaque->argument_count;
    if (step == 0 && opaque->has_callable)
        return encoder_put_value(encoder, children[0].value);
    if (step == 0)
        return encoder_put_opaque_name(encoder, opaque);
    if (step == 1 && arguments > 3)
        pickle_put_op(encoder->out, OP_MARK);
    if (step <= arguments)
        return encoder_put_value(encoder, children[opaque->has_callable + step - 1].value);
    if (step == arguments + 1) {
        put_call(encoder, opaque, frame.made);
        return DCP_OK;
    }
    return put_rest(encoder, &frame, step - arguments - 2);
}
