/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_builder.h"
#include "format/streams/item.h"
#include "state/node_key.h"
#include "state/node_unique.h"

enum { FRAMES_FIRST = 16, PAGE_SIZE = 256 };

/* Keys may share their parts, so that comparing them takes more than reading: their bytes are this
 * many for each of the pickle at most. */
#define KEY_BYTES_BASE  (UINT64_C(1) << 20)
#define KEY_BYTES_TIMES 64

/* A deflated pickle may be larger than the stream that holds it, but not by any amount. */
#define PICKLE_BYTES_BASE (UINT64_C(64) << 20)

dcp_status builder_made(const dcp_state *node)
{
    return node != NULL ? DCP_OK : error_status();
}

dcp_status builder_charge(struct builder *builder, uint64_t amount)
{
    if (amount > builder->allowance)
        return dcp_error_set(DCP_ERR_FORMAT, "an object that repeats its values without end");
    builder->allowance -= amount;
    return DCP_OK;
}

static dcp_status push_frame(struct builder *builder, struct builder_frame frame)
{
    if (builder->depth == builder->capacity) {
        size_t capacity = builder->capacity == 0 ? FRAMES_FIRST : builder->capacity * 2;
        struct builder_frame *grown =
            memory_reallocate_array(builder->frames, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "the nesting of an object");
        builder->frames = grown;
        builder->capacity = capacity;
    }
    builder->frames[builder->depth++] = frame;
    return DCP_OK;
}

dcp_status builder_fill(struct builder *builder, dcp_state *node, struct pickle_sequence children)
{
    if (children.count == 0)
        return DCP_OK;
    return push_frame(builder, (struct builder_frame){.node = node, .children = children});
}

dcp_status builder_fill_opaque(struct builder *builder, dcp_state *node,
                               const struct pickle_call *call)
{
    return push_frame(builder, (struct builder_frame){.node = node, .call = call});
}

dcp_status builder_container(struct builder *builder, dcp_kind kind,
                             struct pickle_sequence children, dcp_state **node)
{
    *node = node_new(builder->pool, kind);
    RETURN_IF_ERROR(builder_made(*node));
    return builder_fill(builder, *node, children);
}

dcp_status builder_make_dict(struct builder *builder, dcp_state *dict,
                             const struct pickle_call *call)
{
    struct pickle_call *without_pairs =
        arena_copy(&builder->page_arena, call, sizeof *without_pairs);
    dcp_state *making = node_new(builder->pool, DCP_KIND_OPAQUE);
    RETURN_IF_ERROR(builder_made(making));
    if (without_pairs == NULL)
        return error_no_memory(sizeof *without_pairs, "an object's values");
    without_pairs->pairs = (struct pickle_sequence){0};
    RETURN_IF_ERROR(builder_name_opaque(builder, without_pairs, false, making));
    dict->as.children.making = making;
    return builder_fill_opaque(builder, making, without_pairs);
}

/* Where the node of a value is kept. Of a large document an object may be a small part. */
static dcp_status find_place(struct builder *builder, uint32_t serial, dcp_state ***place)
{
    dcp_state ***page = &builder->pages[serial / PAGE_SIZE];
    if (*page == NULL) {
        *page = arena_allocate_array(&builder->page_arena, PAGE_SIZE, sizeof **page);
        if (*page == NULL)
            return error_no_memory(PAGE_SIZE * sizeof **page, "an object's values");
        memset(*page, 0, PAGE_SIZE * sizeof **page);
    }
    *place = &(*page)[serial % PAGE_SIZE];
    return DCP_OK;
}

dcp_status builder_value(struct builder *builder, const struct pickle_value *value,
                         dcp_state **node)
{
    dcp_state **place;
    RETURN_IF_ERROR(find_place(builder, value->serial, &place));
    if (*place == NULL)
        RETURN_IF_ERROR(builder_new(builder, value, place));
    *node = *place;
    return DCP_OK;
}

/* Notes a container for settle_all(), for the parts of its keys may still be missing. */
static dcp_status note_unsettled(struct builder *builder, struct builder_frame *frame)
{
    struct builder_unsettled *unsettled = arena_allocate(&builder->page_arena, sizeof *unsettled);
    if (unsettled == NULL)
        return error_no_memory(sizeof *unsettled, "an object's values");
    *unsettled = (struct builder_unsettled){frame->node, builder->unsettled};
    builder->unsettled = unsettled;
    frame->is_unsettled = true;
    return DCP_OK;
}

static dcp_status settle_all(const struct builder *builder, size_t pickle_size)
{
    uint64_t allowance = KEY_BYTES_BASE + KEY_BYTES_TIMES * (uint64_t)pickle_size;
    for (const struct builder_unsettled *u = builder->unsettled; u != NULL; u = u->next)
        RETURN_IF_ERROR(node_settle(builder->pool, u->container, &allowance));
    return DCP_OK;
}

static dcp_status attach(struct builder *builder, struct builder_frame *frame, dcp_state *child)
{
    bool is_dict = node_is_dict(frame->node);
    bool is_key = is_dict && frame->key == NULL;
    bool is_set = node_is_set(frame->node);
    if ((is_key || is_set) && !key_is_hashable(child))
        return dcp_error_set(DCP_ERR_FORMAT, "a %s, which cannot be hashed, %s",
                             node_kind_name(child->kind), is_key ? "as key of a dict" : "in a set");
    if ((is_key || is_set) && key_is_compound(child) && !frame->is_unsettled)
        RETURN_IF_ERROR(note_unsettled(builder, frame));
    if (is_key) {
        frame->key = child;
        return DCP_OK;
    }
    RETURN_IF_ERROR(builder_charge(builder, 1));
    RETURN_IF_ERROR(node_append(builder->pool, frame->node, frame->key, child));
    frame->key = NULL;
    return DCP_OK;
}

/* Child number position of an opaque node: the callable if it is no global, an argument, the state,
 * a list of what was appended, a dict of what was set. *child is NULL behind the last one. */
static dcp_status opaque_child(struct builder *builder, const struct pickle_call *call,
                               uint32_t position, dcp_state **child)
{
    const struct pickle_sequence *arguments = &call->arguments->as.sequence;
    *child = NULL;
    if (call->callable->kind != PICKLE_GLOBAL && position-- == 0)
        return builder_value(builder, call->callable, child);
    if (position < arguments->count)
        return builder_value(builder, arguments->items[position], child);
    position -= arguments->count;
    if (call->state != NULL && position-- == 0)
        return builder_value(builder, call->state, child);
    if (call->items.count > 0 && position-- == 0)
        return builder_container(builder, DCP_KIND_LIST, call->items, child);
    if (call->pairs.count > 0 && position == 0)
        return builder_container(builder, DCP_KIND_DICT, call->pairs, child);
    return DCP_OK;
}

/* Fills what waits to be filled; making a child may add to that, and moves the frames. */
static dcp_status fill_all(struct builder *builder)
{
    while (builder->depth > 0) {
        size_t top = builder->depth - 1;
        struct builder_frame *frame = &builder->frames[top];
        uint32_t position = frame->position++;
        dcp_state *child = NULL;
        if (frame->call != NULL)
            RETURN_IF_ERROR(opaque_child(builder, frame->call, position, &child));
        else if (position < frame->children.count)
            RETURN_IF_ERROR(builder_value(builder, frame->children.items[position], &child));
        if (child == NULL)
            builder->depth--;
        else
            RETURN_IF_ERROR(attach(builder, &builder->frames[top], child));
    }
    return DCP_OK;
}

dcp_status object_build(const struct pickle_value *root, const struct pickle_document *document,
                        size_t pickle_size, const struct zip_archive *archive,
                        struct state_pool *pool, dcp_state **object)
{
    /* Every child takes at least an opcode to put it in place. */
    struct builder builder = {.pool = pool, .allowance = 2 * (uint64_t)pickle_size};
    size_t page_count = (size_t)document->value_count / PAGE_SIZE + 1;
    builder.pages = memory_allocate_zeroed(page_count, sizeof *builder.pages);
    if (builder.pages == NULL)
        return error_no_memory(page_count * sizeof *builder.pages, "an object's values");
    arena_init(&builder.page_arena, 0);
    object_tensors_init(&builder.tensors, archive);
    dcp_status status = builder_value(&builder, root, object);
    if (status == DCP_OK)
        status = fill_all(&builder);
    if (status == DCP_OK)
        status = settle_all(&builder, pickle_size);
    object_tensors_free(&builder.tensors);
    memory_release(builder.frames);
    arena_free(&builder.page_arena);
    memory_release(builder.pages);
    return status;
}

dcp_status item_read_object(struct byte_source stream, struct state_pool *pool, dcp_state **object)
{
    struct zip_archive archive;
    RETURN_IF_ERROR(zip_open(stream, &archive));

    dcp_status status = DCP_OK;
    const void *bytes = NULL;
    void *memory = NULL;
    struct pickle_document document = {0};
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    if (record == NULL)
        status = dcp_error_set(DCP_ERR_FORMAT, "zip archive has no record \"data.pkl\"");
    if (status == DCP_OK)
        status = zip_look(&archive, record, stream.size + PICKLE_BYTES_BASE, &bytes, &memory);
    if (status == DCP_OK)
        status = pickle_read(bytes, (size_t)record->size, true, &document);
    if (status == DCP_OK)
        status =
            object_build(document.root, &document, (size_t)record->size, &archive, pool, object);
    pickle_free(&document);
    memory_release(memory);
    zip_close(&archive);
    return status;
}
