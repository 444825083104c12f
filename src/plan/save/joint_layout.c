/* SPDX-License-Identifier: BSD-3-Clause */
/* Derives what all ranks hold from the meshes and placements of one rank's tensors. */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "dcp/mesh.h"
#include "dcp/version.h"
#include "plan/save/joint_plan.h"
#include "plan/wire_names.h"
#include "state/flatten.h"

/* Tensors of the same shape and layout: most models have only few of these. */
struct division {
    struct joint_entry entry; /* only its runs are used; filled in by joint_plan_add_all() */
    const int64_t *offsets;   /* of this rank's box */
    const int64_t *sizes;
};

struct divisions {
    struct name_table table; /* shape and layout -> division */
    struct arena arena;
    struct buffer key;     /* of the last one that was found */
    struct division *last; /* that one; neighbours are often alike */
};

static void divisions_init(struct divisions *divisions)
{
    *divisions = (struct divisions){0};
    name_table_init(&divisions->table);
    arena_init(&divisions->arena, 0);
    buffer_init(&divisions->key, 0);
}

static void divisions_free(struct divisions *divisions)
{
    buffer_free(&divisions->key);
    arena_free(&divisions->arena);
    name_table_free(&divisions->table);
}

static void append_layout(struct buffer *out, const struct write_item *item)
{
    enum { PLACEMENT = 24 };
    const dcp_layout *layout = item->layout;
    unsigned char bytes[4 + PLACEMENT * DCP_MAX_MESH_DIMS], *at = bytes + 4;
    int32_t ndim = layout != NULL ? layout->mesh.ndim : 0;
    buffer_append(out, item->global_shape, (size_t)item->ndim * sizeof *item->global_shape);
    store_u32(bytes, (uint32_t)ndim);
    for (int32_t i = 0; i < ndim; i++, at += PLACEMENT) {
        store_u64(at, (uint64_t)layout->mesh.shape[i]);
        store_u32(at + 8, (uint32_t)layout->placements[i].kind);
        store_u32(at + 12, (uint32_t)layout->placements[i].dim);
        store_u64(at + 16, (uint64_t)layout->placements[i].split_factor);
    }
    buffer_append(out, bytes, (size_t)(at - bytes));
}

/* The box of one rank. The layout was accepted before, so this cannot fail. */
static dcp_status shard(const struct write_item *item, int64_t rank, dcp_tensor *tensor)
{
    dcp_mesh mesh = item->layout->mesh;
    mesh.rank = rank;
    tensor->dtype = item->dtype;
    tensor->ndim = item->ndim;
    if (item->ndim != 0)
        memcpy(tensor->global_shape, item->global_shape,
               (size_t)item->ndim * sizeof *item->global_shape);
    return dcp_mesh_shard(&mesh, tensor, item->layout->placements);
}

static dcp_status add_division(struct divisions *divisions, const struct write_item *item,
                               const void *key, size_t key_size, struct division **division)
{
    dcp_tensor tensor = {0};
    RETURN_IF_ERROR(shard(item, item->layout->mesh.rank, &tensor));
    size_t bytes = (size_t)item->ndim * sizeof(int64_t);
    struct division *made = arena_allocate(&divisions->arena, sizeof *made);
    const char *name = arena_copy(&divisions->arena, key, key_size);
    int64_t *offsets = arena_copy(&divisions->arena, tensor.offsets, bytes);
    int64_t *sizes = arena_copy(&divisions->arena, tensor.sizes, bytes);
    if (made == NULL || name == NULL || offsets == NULL || sizes == NULL)
        return error_no_memory(sizeof *made, "divisions of tensors");
    *made = (struct division){.offsets = offsets, .sizes = sizes};
    made->entry.is_tensor = true;
    made->entry.ndim = item->ndim;
    uint64_t value = (uintptr_t)made;
    bool existing;
    *division = made;
    return name_table_add(&divisions->table, name, key_size, &value, &existing);
}

static dcp_status find_division(struct divisions *divisions, const struct write_item *item,
                                struct division **division)
{
    struct buffer *keys = &divisions->key; /* the last one, and behind it this one */
    size_t last_size = keys->size;
    uint64_t value;
    append_layout(keys, item);
    RETURN_IF_ERROR(buffer_status(keys));
    const unsigned char *key = keys->data + last_size;
    size_t key_size = keys->size - last_size;
    bool alike = key_size == last_size && memcmp(keys->data, key, key_size) == 0;
    if (alike)
        *division = divisions->last;
    else if (name_table_find(&divisions->table, (const char *)key, key_size, &value))
        *division = (struct division *)(uintptr_t)value;
    else
        RETURN_IF_ERROR(add_division(divisions, item, key, key_size, division));
    memmove(keys->data, key, key_size);
    keys->size = key_size;
    divisions->last = *division;
    return DCP_OK;
}

/* Whether the mesh consists of all ranks of the group, in order. */
static bool mesh_is_group(const dcp_mesh *mesh, uint32_t rank, uint32_t rank_count)
{
    int64_t ranks = 1;
    if (mesh->rank != (int64_t)rank || mesh->ndim < 1 || mesh->ndim > DCP_MAX_MESH_DIMS)
        return false;
    for (int32_t i = 0; i < mesh->ndim; i++)
        if (mesh->shape[i] < 1 || __builtin_mul_overflow(ranks, mesh->shape[i], &ranks))
            return false;
    return ranks == (int64_t)rank_count;
}

/* Whether an item implies what the other ranks hold under its name. */
static dcp_status item_implies_all(struct divisions *divisions, const struct write_item *item,
                                   uint32_t rank, uint32_t rank_count, bool *implies)
{
    struct division *division;
    *implies =
        !item->is_tensor ||
        (item->layout == NULL && box_equal(item->box, box_whole(item->ndim, item->global_shape)));
    if (*implies || item->layout == NULL || !mesh_is_group(&item->layout->mesh, rank, rank_count))
        return DCP_OK;
    RETURN_IF_ERROR(find_division(divisions, item, &division));
    struct box box = {item->ndim, division->offsets, division->sizes};
    *implies = box_equal(item->box, box);
    return DCP_OK;
}

static dcp_status append_item(struct buffer *out, const struct write_item *item,
                              const char *previous)
{
    struct wire_name name = {item->name, item->path, item->path_length};
    RETURN_IF_ERROR(wire_append_name(out, &name, previous));
    buffer_append_u8(out, item->is_tensor);
    if (!item->is_tensor)
        return DCP_OK;
    buffer_append_u8(out, item->requires_grad);
    buffer_append_u8(out, (uint8_t)item->dtype);
    buffer_append_u32(out, (uint32_t)item->ndim);
    append_layout(out, item);
    return DCP_OK;
}

static dcp_status describe_all(const struct save_plan *plan, uint32_t rank, uint32_t rank_count,
                               struct divisions *divisions, struct buffer *structure,
                               struct buffer *lengths, bool *implies)
{
    const char *previous = "";
    buffer_append_text(structure, DCP_VERSION_STRING, strlen(DCP_VERSION_STRING));
    buffer_append_u32(structure, rank_count);
    *implies = true;
    for (size_t i = 0; i < plan->count; i++) {
        const struct write_item *item = &plan->items[i];
        RETURN_IF_ERROR(item_implies_all(divisions, item, rank, rank_count, implies));
        if (!*implies)
            return DCP_OK; /* what was described is not used, so that its buffer may have failed */
        RETURN_IF_ERROR(append_item(structure, item, previous));
        previous = item->name;
        if (!item->is_tensor)
            buffer_append_varint(lengths, item->object_length);
    }
    RETURN_IF_ERROR(buffer_status(structure));
    return buffer_status(lengths);
}

dcp_status save_plan_implies_all(const struct save_plan *plan, uint32_t rank, uint32_t rank_count,
                                 bool *implies, uint64_t *digest, uint64_t *lengths)
{
    struct divisions divisions;
    struct buffer structure, object_lengths;
    divisions_init(&divisions);
    buffer_init(&structure, 0);
    buffer_init(&object_lengths, 0);
    dcp_status status =
        describe_all(plan, rank, rank_count, &divisions, &structure, &object_lengths, implies);
    *digest = xxh3_64(structure.data, structure.size);
    *lengths = xxh3_64(object_lengths.data, object_lengths.size);
    buffer_free(&object_lengths);
    buffer_free(&structure);
    divisions_free(&divisions);
    return status;
}

static const int64_t *copy_numbers(struct joint_plan *joint, const int64_t *numbers, int32_t ndim)
{
    return arena_copy(&joint->arena, numbers, (size_t)ndim * sizeof *numbers);
}

/* The runs of a division, of item 0. */
static dcp_status find_runs(struct joint_plan *joint, const struct write_item *item,
                            struct division *division)
{
    const int64_t *sizes = NULL;
    for (uint32_t rank = 0; rank < joint->rank_count; rank++) {
        dcp_tensor tensor = {0};
        RETURN_IF_ERROR(shard(item, rank, &tensor));
        if (sizes == NULL ||
            !box_equal(box_whole(item->ndim, sizes), box_whole(item->ndim, tensor.sizes)))
            sizes = copy_numbers(joint, tensor.sizes, item->ndim);
        const int64_t *offsets = copy_numbers(joint, tensor.offsets, item->ndim);
        if (offsets == NULL || sizes == NULL)
            return error_no_memory((size_t)item->ndim * sizeof *sizes, "boxes of all ranks");
        struct joint_run run = {.count = 1, .rank = rank, .offsets = offsets, .sizes = sizes};
        RETURN_IF_ERROR(joint_entry_add_run(joint, &division->entry, &run));
    }
    return DCP_OK;
}

static dcp_status add_divided(struct joint_plan *joint, struct divisions *divisions,
                              const struct write_item *item, uint32_t index, size_t *place)
{
    struct division *division;
    RETURN_IF_ERROR(find_division(divisions, item, &division));
    if (division->entry.run_count == 0)
        RETURN_IF_ERROR(find_runs(joint, item, division));
    for (size_t i = 0; i < division->entry.run_count; i++)
        division->entry.runs[i].item = index;
    return joint_plan_add_runs(joint, item, division->entry.runs, division->entry.run_count, place);
}

static dcp_status add_item(struct joint_plan *joint, struct divisions *divisions,
                           const struct write_item *item, uint32_t index, size_t *place)
{
    struct joint_run run = {
        .count = 1, .item = index, .offsets = item->box.offsets, .sizes = item->box.sizes};
    if (item->is_tensor && item->layout != NULL)
        return add_divided(joint, divisions, item, index, place);
    if (item->is_tensor && joint->rank_count > 1) {
        run.count = joint->rank_count;
        run.rank_step = 1;
    }
    return joint_plan_add_runs(joint, item, &run, 1, place);
}

dcp_status joint_plan_add_all(struct joint_plan *joint, const struct save_plan *plan)
{
    struct divisions divisions;
    size_t place = SIZE_MAX;
    dcp_status status = joint_plan_reserve(joint, plan->count);
    joint->is_local = plan->is_local;
    divisions_init(&divisions);
    for (size_t i = 0; i < plan->count && status == DCP_OK; i++)
        status = add_item(joint, &divisions, &plan->items[i], (uint32_t)i, &place);
    divisions_free(&divisions);
    return status;
}

dcp_status save_plan_name_mesh(const struct save_plan *plan, uint32_t rank_count, dcp_status status)
{
    int64_t largest = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const dcp_layout *layout = plan->items[i].layout;
        int64_t size = layout != NULL ? mesh_size(&layout->mesh) : 0;
        largest = size > largest ? size : largest;
    }
    if (status != DCP_ERR_COVERAGE || largest == 0)
        return status;
    return error_prefix(status, "on a mesh of %" PRId64 " ranks in a group of %" PRIu32, largest,
                        rank_count);
}
