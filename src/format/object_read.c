/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/item.h"
#include "format/object_builder.h"
#include "format/object_integer.h"

enum { FRAMES_FIRST = 16, PAGE_SIZE = 256 };

/* A deflated pickle may be larger than the stream that holds it, but not by any amount. */
#define PICKLE_BYTES_BASE (UINT64_C(64) << 20)

dcp_status builder_made(const dcp_state *node)
{
    if (node != NULL)
        return DCP_OK;
    struct error_story story;
    error_save(&story);
    return story.status;
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

/* ---- values without calls ---- */

/* A value of Python that has no form here: its name, and its bytes as the only child. */
static dcp_status build_foreign_text(struct builder *builder, const char *name,
                                     const struct pickle_value *value, dcp_state **node)
{
    dcp_state *bytes =
        node_text(builder->pool, DCP_KIND_BYTES, value->as.text.bytes, value->as.text.length);
    *node = node_text(builder->pool, DCP_KIND_OPAQUE, name, strlen(name));
    RETURN_IF_ERROR(builder_made(bytes));
    RETURN_IF_ERROR(builder_made(*node));
    return node_append(builder->pool, *node, NULL, bytes);
}

static dcp_status build_text(struct builder *builder, dcp_kind kind,
                             const struct pickle_value *value, dcp_state **node)
{
    /* Python lets lone surrogates through. */
    if (kind == DCP_KIND_STRING && !utf8_is_valid(value->as.text.bytes, value->as.text.length))
        return build_foreign_text(builder, "builtins.str", value, node);
    *node = node_text(builder->pool, kind, value->as.text.bytes, value->as.text.length);
    return builder_made(*node);
}

static dcp_status build_long(struct builder *builder, const struct pickle_value *value,
                             dcp_state **node)
{
    char *digits;
    if (value->as.text.length > INTEGER_BYTES_MAX)
        return build_foreign_text(builder, "builtins.int", value, node);
    RETURN_IF_ERROR(integer_to_digits(value->as.text.bytes, value->as.text.length, &digits));
    *node = node_digits(builder->pool, digits);
    memory_release(digits);
    return builder_made(*node);
}

static dcp_status build_scalar(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    if (value->kind == PICKLE_INT) {
        *node = node_int(builder->pool, value->as.integer);
        return builder_made(*node);
    }
    dcp_kind kind = value->kind == PICKLE_NONE   ? DCP_KIND_NONE
                    : value->kind == PICKLE_BOOL ? DCP_KIND_BOOL
                                                 : DCP_KIND_FLOAT;
    *node = node_new(builder->pool, kind);
    RETURN_IF_ERROR(builder_made(*node));
    if (kind == DCP_KIND_BOOL)
        (*node)->as.boolean = value->as.boolean;
    if (kind == DCP_KIND_FLOAT)
        (*node)->as.number = value->as.number;
    return DCP_OK;
}

/* "torch.float32" is a dtype; everything else is a name. */
static dcp_status build_global(struct builder *builder, const struct pickle_value *value,
                               dcp_state **node)
{
    size_t module_length = value->as.global.module_length;
    size_t name_length = value->as.global.name_length, length = module_length + 1 + name_length;
    char *text = memory_allocate(length + 1);
    if (text == NULL)
        return error_no_memory(length, "a name");
    memcpy(text, value->as.global.module, module_length);
    text[module_length] = '.';
    memcpy(text + module_length + 1, value->as.global.name, name_length);
    text[length] = '\0';

    dcp_dtype dtype = DCP_DTYPE_NONE;
    if (pickle_is_global(value, "torch", text + module_length + 1))
        dtype = dcp_dtype_from_name(text + module_length + 1);
    if (memchr(text, '\0', length) != NULL || !utf8_is_valid(text, length)) {
        memory_release(text);
        return dcp_error_set(DCP_ERR_FORMAT, "an object of a class whose name is no text");
    }
    *node = dtype != DCP_DTYPE_NONE ? node_new(builder->pool, DCP_KIND_DTYPE)
                                    : node_text(builder->pool, DCP_KIND_OPAQUE, text, length);
    memory_release(text);
    RETURN_IF_ERROR(builder_made(*node));
    if (dtype != DCP_DTYPE_NONE)
        (*node)->as.dtype = dtype;
    return DCP_OK;
}

/* A storage by itself: ('storage', class, key, location, elements) */
static dcp_status build_persistent(struct builder *builder, struct pickle_value *const *id,
                                   dcp_state **node)
{
    static const char name[] = "torch.storage.TypedStorage";
    *node = node_text(builder->pool, DCP_KIND_OPAQUE, name, sizeof name - 1);
    RETURN_IF_ERROR(builder_made(*node));
    struct pickle_sequence children = {.items = (struct pickle_value **)id, .count = 1};
    return builder_fill(builder, *node, children);
}

static dcp_status build_new(struct builder *builder, const struct pickle_value *value,
                            dcp_state **node)
{
    switch ((enum pickle_kind)value->kind) {
    case PICKLE_NONE:
    case PICKLE_BOOL:
    case PICKLE_INT:
    case PICKLE_FLOAT:
        return build_scalar(builder, value, node);
    case PICKLE_LONG:
        return build_long(builder, value, node);
    case PICKLE_STRING:
        return build_text(builder, DCP_KIND_STRING, value, node);
    case PICKLE_BYTES:
        return build_text(builder, DCP_KIND_BYTES, value, node);
    case PICKLE_BYTEARRAY:
        return build_text(builder, DCP_KIND_BYTEARRAY, value, node);
    case PICKLE_TUPLE:
        return builder_container(builder, DCP_KIND_TUPLE, value->as.sequence, node);
    case PICKLE_LIST:
        return builder_container(builder, DCP_KIND_LIST, value->as.sequence, node);
    case PICKLE_DICT:
        return builder_container(builder, DCP_KIND_DICT, value->as.sequence, node);
    case PICKLE_SET:
        return builder_container(builder, DCP_KIND_SET, value->as.sequence, node);
    case PICKLE_FROZENSET:
        return builder_container(builder, DCP_KIND_FROZENSET, value->as.sequence, node);
    case PICKLE_GLOBAL:
        return build_global(builder, value, node);
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        return builder_call(builder, value, node);
    case PICKLE_PERSISTENT:
        return build_persistent(builder, &value->as.id, node);
    case PICKLE_DIGEST:
        break;
    }
    return dcp_error_set(DCP_ERR_INTERNAL, "a digest where none is made");
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
        RETURN_IF_ERROR(build_new(builder, value, place));
    *node = *place;
    return DCP_OK;
}

/* ---- the walk ---- */

static bool is_hashable(const dcp_state *node)
{
    return node->kind != DCP_KIND_LIST && node->kind != DCP_KIND_SET &&
           node->kind != DCP_KIND_BYTEARRAY && !node_is_dict(node);
}

static dcp_status attach(struct builder *builder, struct builder_frame *frame, dcp_state *child)
{
    bool is_dict = node_is_dict(frame->node);
    bool is_key = is_dict && frame->key == NULL;
    bool is_set = frame->node->kind == DCP_KIND_SET || frame->node->kind == DCP_KIND_FROZENSET;
    if ((is_key || is_set) && !is_hashable(child))
        return dcp_error_set(DCP_ERR_FORMAT, "a %s, which has no hash, %s",
                             node_kind_name(child->kind), is_key ? "as key of a dict" : "in a set");
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
    void *bytes = NULL;
    struct pickle_document document = {0};
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    if (record == NULL)
        status = dcp_error_set(DCP_ERR_FORMAT, "zip archive has no record \"data.pkl\"");
    if (status == DCP_OK)
        status = zip_read(&archive, record, stream.size + PICKLE_BYTES_BASE, &bytes);
    if (status == DCP_OK)
        status = pickle_read(bytes, (size_t)record->size, true, &document);
    if (status == DCP_OK)
        status =
            object_build(document.root, &document, (size_t)record->size, &archive, pool, object);
    pickle_free(&document);
    memory_release(bytes);
    zip_close(&archive);
    return status;
}
