/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects as protocol-2 pickles, byte for byte as Python's pickler writes them, so that what was
 * read from PyTorch goes back unchanged.
 *
 * Only empty bytes are written differently from Python: as an encoded empty text, which
 * weights_only allows. weights_only allows no form of frozenset, so it is written as Python does:
 * PyTorch loads the objects of a checkpoint without weights_only. */
#include <stdio.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_encoder.h"
#include "format/streams/item.h"

enum { BATCH = 1000, FRAMES_FIRST = 16 };

/* Whether the batch that begins with child number first has no mark. Python's pickler omits the
 * mark for a single child; for the last child of an exact list or dict, only if it is the only one.
 */
static bool batch_is_single(const dcp_state *node, size_t first)
{
    return node->as.children.count - first == 1 &&
           (first == 0 || node->kind == DCP_KIND_ORDERED_DICT);
}

static void end_last_batch(struct encoder *encoder, const dcp_state *node)
{
    size_t count = node->as.children.count;
    if (count == 0)
        return;
    bool single = batch_is_single(node, (count - 1) / BATCH * BATCH);
    if (!node_is_dict(node)) {
        pickle_put_op(encoder->out, single ? OP_APPEND : OP_APPENDS);
        return;
    }
    pickle_put_op(encoder->out, single ? OP_SETITEM : OP_SETITEMS);
    /* Python's pickler finds out that an exact dict has ended by an empty batch. */
    if (node->kind == DCP_KIND_DICT && count % BATCH == 0) {
        pickle_put_op(encoder->out, OP_MARK);
        pickle_put_op(encoder->out, OP_SETITEMS);
    }
}

/* What stands in front of child number index. */
static void begin_child(struct encoder *encoder, const dcp_state *node, size_t index)
{
    if (node->kind == DCP_KIND_TUPLE || index % BATCH != 0)
        return;
    if (index > 0)
        pickle_put_op(encoder->out, node_is_dict(node) ? OP_SETITEMS : OP_APPENDS);
    if (!batch_is_single(node, index))
        pickle_put_op(encoder->out, OP_MARK);
}

dcp_status encoder_push_frame(struct encoder *encoder, struct encoder_frame frame)
{
    if (encoder->depth == encoder->frame_capacity) {
        size_t capacity = encoder->frame_capacity == 0 ? FRAMES_FIRST : encoder->frame_capacity * 2;
        struct encoder_frame *grown =
            memory_reallocate_array(encoder->frames, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "the nesting of an object");
        encoder->frames = grown;
        encoder->frame_capacity = capacity;
    }
    encoder->frames[encoder->depth++] = frame;
    return DCP_OK;
}

/* Sets are calls with a list, which takes a place in the memo but is not to be found there. */
static dcp_status open_container(struct encoder *encoder, const dcp_state *node,
                                 struct encoder_slot *slot)
{
    struct buffer *out = encoder->out;
    if (node->kind == DCP_KIND_OPAQUE || (node_is_dict(node) && node->as.children.making)) {
        const dcp_state *how = node->kind == DCP_KIND_OPAQUE ? node : node->as.children.making;
        slot->open = true;
        return encoder_push_frame(encoder, (struct encoder_frame){.node = how, .made = node});
    }
    switch (node->kind) {
    case DCP_KIND_LIST:
    case DCP_KIND_DICT:
        pickle_put_op(out, node->kind == DCP_KIND_DICT ? OP_EMPTY_DICT : OP_EMPTY_LIST);
        slot->index = encoder_put_memo(encoder);
        break;
    case DCP_KIND_ORDERED_DICT:
        encoder_put_global(encoder, GLOBAL_ORDERED_DICT);
        encoder_put_reduce(encoder, 0);
        slot->index = encoder_put_memo(encoder);
        break;
    case DCP_KIND_TUPLE:
        if (node->as.children.count > 3)
            pickle_put_op(out, OP_MARK);
        break;
    default:
        encoder_put_global(encoder, node->kind == DCP_KIND_SET ? GLOBAL_SET : GLOBAL_FROZENSET);
        pickle_put_op(out, OP_EMPTY_LIST);
        encoder_put_memo(encoder);
        break;
    }
    slot->open = true;
    return encoder_push_frame(encoder, (struct encoder_frame){.node = node});
}

static void close_container(struct encoder *encoder)
{
    const struct encoder_frame *frame = &encoder->frames[--encoder->depth];
    const dcp_state *node = frame->node;
    if (frame->given) {
        end_last_batch(encoder, node);
        return;
    }
    struct encoder_slot *slot = encoder_find_slot(encoder, node);
    slot->open = false;
    if (node->kind == DCP_KIND_TUPLE) {
        encoder_put_tuple(encoder, node->as.children.count);
        slot->index = encoder_put_memo(encoder);
        return;
    }
    end_last_batch(encoder, node);
    if (node->kind == DCP_KIND_SET || node->kind == DCP_KIND_FROZENSET) {
        encoder_put_reduce(encoder, 1);
        slot->index = encoder_put_memo(encoder);
    }
}

/* Where the walk is: "['a'][3]", as far as there is room. */
static const char *describe_place(const struct encoder *encoder, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < encoder->depth && used < size; i++) {
        const struct encoder_frame *frame = &encoder->frames[i];
        if (frame->node->kind == DCP_KIND_OPAQUE)
            continue;
        bool is_dict = node_is_dict(frame->node);
        size_t index = is_dict ? (frame->position - 1) / 2 : frame->position - 1;
        const dcp_state *key = frame->node->as.children.items[index].key;
        int length = is_dict && key->kind == DCP_KIND_STRING
                         ? snprintf(text + used, size - used, "['%s']", key->as.text.bytes)
                         : snprintf(text + used, size - used, "[%zu]", index);
        used += length > 0 ? (size_t)length : 0;
    }
    return text;
}

static dcp_status refuse(const struct encoder *encoder, const dcp_state *node)
{
    char place[256];
    describe_place(encoder, place, sizeof place);
    if (node->kind == DCP_KIND_OPAQUE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "object%s is a %s, and only its name is known: it cannot be saved",
                             place, dcp_state_opaque_name(node));
    if (node->kind == DCP_KIND_TENSOR)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "object%s is a tensor of %s: tensors inside of objects cannot be "
                             "saved, only those in dicts and lists that lead to them",
                             place, dcp_dtype_name(node->as.tensor->dtype));
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "object%s is a %s, which is not an object", place,
                         node_kind_name(node->kind));
}

/* A value with an identity: either the memo has it, or it is written now. */
static dcp_status put_shareable(struct encoder *encoder, const dcp_state *node)
{
    struct encoder_slot *slot;
    bool existing, known;
    char place[256];
    RETURN_IF_ERROR(encoder_take_slot(encoder, node, &slot, &existing));
    if (existing && slot->open)
        return dcp_error_set(DCP_ERR_ARGUMENT, "object%s contains itself",
                             describe_place(encoder, place, sizeof place));
    if (existing) {
        pickle_get_memo(encoder->out, slot->index);
        return DCP_OK;
    }
    RETURN_IF_ERROR(encoder_put_leaf(encoder, node, &known));
    if (node->kind == DCP_KIND_OPAQUE)
        RETURN_IF_ERROR(encoder_put_opaque_leaf(encoder, node, &known));
    if (!known && node->kind == DCP_KIND_TENSOR && encoder->takes_tensors) {
        dcp_status status = encoder_put_tensor(encoder, node);
        if (status != DCP_OK)
            return error_prefix(status, "object%s", describe_place(encoder, place, sizeof place));
        slot = encoder_find_slot(encoder, node); /* blocks take slots, too */
        known = true;
    }
    if (known) {
        slot->index = encoder_put_memo(encoder);
        return DCP_OK;
    }
    if (node_children(node) == NULL ||
        (node->kind == DCP_KIND_OPAQUE && node->as.opaque->form == OPAQUE_LOST))
        return refuse(encoder, node);
    return open_container(encoder, node, slot);
}

dcp_status encoder_put_value(struct encoder *encoder, const dcp_state *node)
{
    switch (node->kind) {
    case DCP_KIND_NONE:
        pickle_put_none(encoder->out);
        return DCP_OK;
    case DCP_KIND_BOOL:
        pickle_put_bool(encoder->out, node->as.boolean);
        return DCP_OK;
    case DCP_KIND_INT:
        return encoder_put_integer(encoder, node);
    case DCP_KIND_FLOAT:
        pickle_put_float(encoder->out, node->as.number);
        return DCP_OK;
    case DCP_KIND_DTYPE:
        encoder_put_dtype(encoder, node->as.dtype);
        return DCP_OK;
    case DCP_KIND_TUPLE:
        if (node->as.children.count > 0)
            return put_shareable(encoder, node);
        encoder_put_tuple(encoder, 0);
        return DCP_OK;
    case DCP_KIND_OPAQUE:
        return node->as.opaque->form == OPAQUE_NAME
                   ? encoder_put_opaque_name(encoder, node->as.opaque)
                   : put_shareable(encoder, node);
    default:
        return put_shareable(encoder, node);
    }
}

static dcp_status put_children(struct encoder *encoder)
{
    while (encoder->depth > 0) {
        struct encoder_frame *frame = &encoder->frames[encoder->depth - 1];
        if (frame->node->kind == DCP_KIND_OPAQUE) {
            RETURN_IF_ERROR(encoder_step_call(encoder));
            continue;
        }
        const struct state_children *children = &frame->node->as.children;
        bool is_dict = node_is_dict(frame->node);
        bool is_key = is_dict && frame->position % 2 == 0;
        size_t index = is_dict ? frame->position / 2 : frame->position;
        if (index == children->count) {
            close_container(encoder);
            continue;
        }
        if (is_key || !is_dict)
            begin_child(encoder, frame->node, index);
        frame->position++;
        const struct state_child *child = &children->items[index];
        RETURN_IF_ERROR(encoder_put_value(encoder, is_key ? child->key : child->value));
    }
    return DCP_OK;
}

dcp_status encoder_walk(struct encoder *encoder, const dcp_state *object)
{
    name_table_init(&encoder->names);
    RETURN_IF_ERROR(encoder_put_value(encoder, object));
    return put_children(encoder);
}

void encoder_free(struct encoder *encoder)
{
    memory_release(encoder->slots);
    memory_release(encoder->frames);
    memory_release(encoder->storages);
    name_table_free(&encoder->names);
}

dcp_status item_encode_object(const dcp_state *object, struct buffer *pickle)
{
    struct encoder encoder = {.out = pickle};
    pickle_put_protocol(pickle, 2);
    dcp_status status = encoder_walk(&encoder, object);
    pickle_put_op(pickle, OP_STOP);
    encoder_free(&encoder);
    return status == DCP_OK ? buffer_status(pickle) : status;
}

dcp_status item_put_object(const dcp_state *object, uint32_t *memo_count, struct buffer *pickle)
{
    struct encoder encoder = {.out = pickle, .modern = true, .memo_count = *memo_count};
    dcp_status status = encoder_walk(&encoder, object);
    *memo_count = encoder.memo_count;
    encoder_free(&encoder);
    return status == DCP_OK ? buffer_status(pickle) : status;
}
