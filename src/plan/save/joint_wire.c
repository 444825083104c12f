/* SPDX-License-Identifier: BSD-3-Clause */
/* The message that carries the plans of several ranks:
 *
 *   tag, number of names, then per name: the name with its path, flags, then
 *     object: lowest rank, its item, length of the stream
 *     tensor: shape, number of runs, per run: count, rank, item, first box within the shape, and if
 *             there are more: step of rank, of item, whether boxes move, and how far in each
 *             dimension
 *
 * All numbers are varints. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "plan/save/joint_plan.h"
#include "plan/wire.h"
#include "plan/wire_names.h"

enum { FLAG_TENSOR = 1, FLAG_REQUIRES_GRAD = 2 };

static const char message[] = "joint save plan";

static void append_run(struct buffer *out, const struct joint_entry *entry,
                       const struct joint_run *run)
{
    struct box whole = box_whole(entry->ndim, entry->global_shape);
    buffer_append_varint(out, run->count);
    buffer_append_varint(out, run->rank);
    buffer_append_varint(out, run->item);
    wire_append_box(out, whole, (struct box){entry->ndim, run->offsets, run->sizes});
    if (run->count == 1)
        return;
    buffer_append_varint(out, run->rank_step);
    wire_append_signed(out, run->item_step);
    buffer_append_u8(out, run->steps != NULL);
    for (int32_t i = 0; run->steps != NULL && i < entry->ndim; i++)
        wire_append_signed(out, run->steps[i]);
}

dcp_status joint_plan_encode(const struct joint_plan *joint, struct buffer *out)
{
    const char *previous = "";
    buffer_append_u8(out, WIRE_JOINT_PLAN);
    buffer_append_varint(out, joint->count);
    for (size_t i = 0; i < joint->count; i++) {
        const struct joint_entry *entry = &joint->entries[i];
        struct wire_name name = {entry->name, entry->path, entry->path_length};
        RETURN_IF_ERROR(wire_append_name(out, &name, previous));
        previous = entry->name;
        buffer_append_u8(out, (uint8_t)((entry->is_tensor ? FLAG_TENSOR : 0) |
                                        (entry->requires_grad ? FLAG_REQUIRES_GRAD : 0)));
        if (!entry->is_tensor) {
            buffer_append_varint(out, entry->runs->rank);
            buffer_append_varint(out, entry->runs->item);
            buffer_append_varint(out, entry->object_length);
            continue;
        }
        struct wire_shape shape = {entry->dtype, entry->ndim, entry->global_shape};
        wire_append_shape(out, &shape);
        buffer_append_varint(out, entry->run_count);
        for (size_t k = 0; k < entry->run_count; k++)
            append_run(out, entry, &entry->runs[k]);
    }
    return buffer_status(out);
}

struct joint_reader {
    struct reader reader;
    struct joint_plan *joint;
};

static dcp_status fault(const struct joint_reader *in, const char *what)
{
    return wire_fault(&in->reader, message, what);
}

/* Whether the last of a run, and so each, has a valid rank and item, and a box inside the shape, as
 * the first one has. */
static bool run_is_possible(const struct joint_plan *joint, const struct joint_entry *entry,
                            const struct joint_run *run)
{
    int64_t last = (int64_t)run->count - 1;
    int64_t item = run->item + last * run->item_step;
    if (run->rank >= joint->rank_count || item < 0 || item >= UINT32_MAX ||
        (uint64_t)last * run->rank_step >= joint->rank_count - run->rank)
        return false;
    for (int32_t i = 0; run->steps != NULL && i < entry->ndim; i++) {
        int64_t offset;
        if (!checked_multiply_i64(run->steps[i], last, &offset) ||
            !checked_add_i64(offset, run->offsets[i], &offset) || offset < 0 ||
            offset > entry->global_shape[i] - run->sizes[i])
            return false;
    }
    return true;
}

static dcp_status read_steps(struct joint_reader *in, const struct joint_entry *entry,
                             struct joint_run *run)
{
    run->rank_step = wire_u32(&in->reader);
    int64_t item_step = wire_signed(&in->reader);
    if (item_step < INT32_MIN || item_step > INT32_MAX)
        return fault(in, "a run has invalid item numbers");
    run->item_step = (int32_t)item_step;
    uint8_t moves = reader_u8(&in->reader);
    if (moves > 1)
        return fault(in, "unknown flags");
    if (moves == 0)
        return DCP_OK;
    int64_t *steps = arena_allocate_array(&in->joint->arena, (size_t)entry->ndim, sizeof *steps);
    if (steps == NULL)
        return error_no_memory((size_t)entry->ndim * sizeof *steps, message);
    for (int32_t i = 0; i < entry->ndim; i++)
        steps[i] = wire_signed(&in->reader);
    run->steps = steps;
    return DCP_OK;
}

static dcp_status read_run(struct joint_reader *in, const struct joint_entry *entry,
                           struct joint_run *run)
{
    struct box box, whole = box_whole(entry->ndim, entry->global_shape);
    *run = (struct joint_run){.count = wire_u32(&in->reader)};
    run->rank = wire_u32(&in->reader);
    run->item = wire_u32(&in->reader);
    RETURN_IF_ERROR(wire_box(&in->reader, &in->joint->arena, message, whole, &box));
    if (in->reader.failed || run->count == 0 || !box_check(box, entry->global_shape))
        return fault(in, "a chunk is not inside its tensor");
    run->offsets = box.offsets;
    run->sizes = box.sizes;
    if (run->count > 1)
        RETURN_IF_ERROR(read_steps(in, entry, run));
    if (in->reader.failed || !run_is_possible(in->joint, entry, run))
        return fault(in, "a run leaves its tensor or the range of ranks");
    return DCP_OK;
}

static dcp_status read_runs(struct joint_reader *in, struct joint_entry *entry)
{
    size_t count = wire_count(&in->reader);
    if (count == 0)
        return fault(in, "no rank holds a tensor");
    entry->runs = arena_allocate_array(&in->joint->arena, count, sizeof *entry->runs);
    if (entry->runs == NULL)
        return error_no_memory(count * sizeof *entry->runs, message);
    entry->run_count = entry->run_capacity = count;
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(read_run(in, entry, &entry->runs[i]));
    return DCP_OK;
}

static dcp_status read_object(struct joint_reader *in, struct joint_entry *entry)
{
    struct joint_run *run = arena_allocate(&in->joint->arena, sizeof *run);
    if (run == NULL)
        return error_no_memory(sizeof *run, message);
    *run = (struct joint_run){.count = 1, .rank = wire_u32(&in->reader)};
    run->item = wire_u32(&in->reader);
    entry->object_length = reader_varint(&in->reader);
    entry->runs = run;
    entry->run_count = entry->run_capacity = 1;
    if (in->reader.failed || run->rank >= in->joint->rank_count || run->item == UINT32_MAX ||
        entry->object_length > INT64_MAX)
        return fault(in, "an object ends too early or is too long");
    return DCP_OK;
}

static dcp_status read_entry(struct joint_reader *in, struct wire_name *name)
{
    struct joint_plan *joint = in->joint;
    struct joint_entry *entry = &joint->entries[joint->count];
    uint64_t value = joint->count;
    bool existing;
    RETURN_IF_ERROR(wire_name(&in->reader, &joint->arena, message, name));
    RETURN_IF_ERROR(
        name_table_add(&joint->names, name->text, strlen(name->text), &value, &existing));
    uint8_t flags = reader_u8(&in->reader);
    if (in->reader.failed || existing || flags > (FLAG_TENSOR | FLAG_REQUIRES_GRAD))
        return fault(in, "a name occurs twice, or has unknown flags");
    *entry = (struct joint_entry){.name = name->text,
                                  .path = name->path,
                                  .path_length = name->path_length,
                                  .is_tensor = (flags & FLAG_TENSOR) != 0,
                                  .requires_grad = (flags & FLAG_REQUIRES_GRAD) != 0};
    joint->count++;
    if (!entry->is_tensor)
        return read_object(in, entry);
    struct wire_shape shape;
    RETURN_IF_ERROR(wire_shape(&in->reader, &joint->arena, message, &shape));
    entry->dtype = shape.dtype;
    entry->ndim = shape.ndim;
    entry->global_shape = shape.sizes;
    return read_runs(in, entry);
}

dcp_status joint_plan_decode(const void *bytes, size_t size, uint32_t rank_count,
                             struct joint_plan *joint)
{
    struct joint_reader in = {.joint = joint};
    struct wire_name name = {0};
    joint_plan_init(joint, rank_count);
    reader_init(&in.reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&in.reader, WIRE_JOINT_PLAN, message));
    size_t count = wire_count(&in.reader);
    joint->entries = memory_allocate_array(count, sizeof *joint->entries);
    if (joint->entries == NULL)
        return error_no_memory(count * sizeof *joint->entries, message);
    joint->capacity = count;
    while (joint->count < count)
        RETURN_IF_ERROR(read_entry(&in, &name));
    return wire_end(&in.reader, message);
}
