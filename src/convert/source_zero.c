/* SPDX-License-Identifier: BSD-3-Clause */
/* ZeRO-1 to 3: fp32 weights and optimizer's state, flat and cut among the ranks.
 *
 * Stages 1 and 2: the parameters of a group lie one behind the other, in the order of param_shapes,
 * and the whole is cut into one piece for each rank. Stage 3: each parameter is cut into equal
 * pieces, and each rank has its pieces one behind the other, over all groups.
 *
 * param_slice_mappings, which claims to say where parameters lie, is not used: with
 * round_robin_gradients it is wrong. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "convert/source_deepspeed.h"

static const char state_key[] = "optimizer_state_dict";

/* What a rank has of a group. */
struct zero_segment {
    size_t entry;
    int64_t elements; /* -1: nothing is there */
    bool is_vector;   /* else one value for all of the group */
    dcp_dtype dtype;
};

/* One of the kinds of data: the fp32 weights, exp_avg and so on. */
struct zero_series {
    const char *key;
    struct zero_segment *segments; /* of rank r and group g at [r * groups + g] */
};

enum { SERIES_MAX = 32 };

struct zero {
    size_t groups;                         /* of the optimizer's data */
    bool is_cut;                           /* stage 3 */
    struct zero_series series[SERIES_MAX]; /* first the weights */
    size_t series_count;
    dcp_state *paddings; /* param_alignment_paddings; NULL: none */
};

static struct zero_segment *segment_of(const struct zero *zero, const struct zero_series *series,
                                       size_t rank, size_t group)
{
    return &series->segments[rank * zero->groups + group];
}

static dcp_status find_series(struct deepspeed *from, const char *key, struct zero_series **found)
{
    struct zero *zero = from->state;
    size_t count = from->ranks * zero->groups;
    for (size_t i = 0; i < zero->series_count; i++)
        if (strcmp(zero->series[i].key, key) == 0) {
            *found = &zero->series[i];
            return DCP_OK;
        }
    if (zero->series_count == SERIES_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "an optimizer with more than %d kinds of state",
                             SERIES_MAX);
    *found = &zero->series[zero->series_count];
    (*found)->key = arena_copy_text(from->arena, key, strlen(key));
    (*found)->segments = arena_allocate_array(from->arena, count, sizeof *(*found)->segments);
    if (!(*found)->key || !(*found)->segments)
        return error_no_memory(count * sizeof *(*found)->segments, "pieces of an optimizer");
    for (size_t i = 0; i < count; i++)
        (*found)->segments[i] = (struct zero_segment){.elements = -1};
    zero->series_count++;
    return DCP_OK;
}

/* The number of a group: a position, or a key that is an int. */
static bool read_group(const dcp_path_part *part, size_t *group)
{
    char *end;
    if (!part->key) {
        *group = (size_t)part->position;
        return true;
    }
    *group = strtoul(part->key, &end, 10);
    return *part->key >= '0' && *part->key <= '9' && *end == '\0';
}

static bool part_is(const dcp_path_part *part, const char *key)
{
    return part->key && strcmp(part->key, key) == 0;
}

/* Whether an entry is data of a group: of the weights (*key NULL), or state. */
static bool match(const struct zero *zero, const dcp_entry *entry, size_t *group, const char **key)
{
    const dcp_path_part *path = entry->path;
    const char *masters = zero->is_cut ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    const char *optimizer = zero->is_cut ? state_key : "base_optimizer_state";
    *key = NULL;
    if (entry->path_length < 3 || !part_is(&path[0], state_key))
        return false;
    if (part_is(&path[1], masters))
        return entry->path_length == 3 && read_group(&path[2], group);
    if (!part_is(&path[1], optimizer))
        return false;
    bool named = part_is(&path[2], "state");
    /* With elastic_checkpoint: true the groups are a list, without what is around them. */
    size_t at = named ? 3 : 2;
    if ((!named && path[2].key) || entry->path_length != at + 2)
        return false;
    *key = path[at + 1].key;
    return *key && read_group(&path[at], group);
}

static dcp_status take_segment(struct deepspeed *from, size_t rank, size_t index,
                               const dcp_entry *entry)
{
    struct zero *zero = from->state;
    struct zero_series *series = &zero->series[0];
    const char *key;
    size_t group;
    if (!match(zero, entry, &group, &key))
        return DCP_OK;
    if (group >= zero->groups)
        return dcp_error_set(DCP_ERR_FORMAT, "\"%s\": there are %zu groups", entry->name,
                             zero->groups);
    if (key)
        RETURN_IF_ERROR(find_series(from, key, &series));
    bool vector = entry->is_tensor && entry->ndim == 1;
    if ((!key && !vector) || (entry->is_tensor && entry->ndim > 1))
        return dcp_error_set(DCP_ERR_SHAPE, "\"%s\" has %d dimensions, expected 1: a flat group",
                             entry->name, entry->is_tensor ? (int)entry->ndim : 0);
    *segment_of(zero, series, rank, group) =
        (struct zero_segment){.entry = index,
                              .elements = vector ? entry->global_shape[0] : 0,
                              .is_vector = vector,
                              .dtype = entry->dtype};
    return DCP_OK;
}

static dcp_status read_rank(struct deepspeed *from, size_t rank)
{
    size_t file = from->optimizers + rank, index;
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    int64_t count = (int64_t)from->ranks;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
    dcp_status status = DCP_OK;
    if (source_entry_find(checkpoint, "optimizer_state_dict.partition_count", &index))
        status = source_value_integer(checkpoint, index, 0, &count);
    if (status == DCP_OK && count != (int64_t)from->ranks)
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "\"optimizer_state_dict.partition_count\" is %" PRId64
                               ", expected %zu, as there are files",
                               count, from->ranks);
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status == DCP_OK)
            status = take_segment(from, rank, i, &entry);
    }
    source_files_give(&from->parts->files, file);
    return status == DCP_OK ? DCP_OK
                            : error_prefix(status, "%s", from->parts->files.files[file].path);
}

/* What rank 0's file tells of all: the stage, the groups, the gaps behind parameters. */
static dcp_status look_at_first(struct deepspeed *from)
{
    struct zero *zero = from->state;
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index, group;
    const char *key;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, from->optimizers, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status == DCP_OK && entry.path_length > 2 && part_is(&entry.path[0], state_key) &&
            part_is(&entry.path[1], "ds_zero_partition_groups"))
            status = dcp_error_set(DCP_ERR_UNSUPPORTED,
                                   "%s: a DeepSpeed checkpoint whose experts are divided among "
                                   "other ranks than the rest (AutoEP), which cannot be converted",
                                   from->source->training);
        if (status != DCP_OK || !match(zero, &entry, &group, &key) || key)
            continue;
        if (group >= dcp_checkpoint_count(checkpoint))
            status = dcp_error_set(DCP_ERR_FORMAT, "%s: \"%s\" has the number of no group",
                                   from->parts->files.files[from->optimizers].path, entry.name);
        else if (group >= zero->groups)
            zero->groups = group + 1;
    }
    if (status == DCP_OK && zero->groups == 0)
        status = dcp_error_set(
            DCP_ERR_FORMAT, "%s: has no \"%s.%s\"", from->parts->files.files[from->optimizers].path,
            state_key, zero->is_cut ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    if (status == DCP_OK && !zero->is_cut &&
        source_entry_find(checkpoint, "optimizer_state_dict.param_alignment_paddings", &index)) {
        zero->paddings = dcp_state_new();
        status = zero->paddings
                     ? dcp_checkpoint_read_object(checkpoint, index, zero->paddings, "value", NULL)
                     : error_no_memory(1, "paddings");
    }
    source_files_give(&from->parts->files, from->optimizers);
    return status;
}

/* Elements that nothing uses behind a parameter. */
static int64_t padding_behind(const struct zero *zero, size_t group, size_t position)
{
    int64_t padding = 0;
    const dcp_state *groups = zero->paddings ? dcp_state_find(zero->paddings, "value") : NULL;
    const dcp_state *list = groups ? dcp_state_at(groups, group) : NULL;
    const dcp_state *value = list ? dcp_state_at(list, position) : NULL;
    return value && dcp_state_as_int(value, &padding) == DCP_OK && padding > 0 ? padding : 0;
}

/* All ranks' elements of a group; of stage 3 a rank's of all groups. */
static bool sum_segments(const struct deepspeed *from, size_t number, int64_t *sum)
{
    const struct zero *zero = from->state;
    size_t count = zero->is_cut ? zero->groups : from->ranks;
    *sum = 0;
    for (size_t i = 0; i < count; i++) {
        const struct zero_segment *segment = segment_of(
            zero, &zero->series[0], zero->is_cut ? number : i, zero->is_cut ? i : number);
        if (segment->elements > 0 && !checked_add_i64(*sum, segment->elements, sum))
            return false;
    }
    return true;
}

static dcp_status check_sum(const struct deepspeed *from, size_t number, int64_t expected)
{
    const struct zero *zero = from->state;
    int64_t sum, more = zero->is_cut ? 0 : 2 * (int64_t)from->ranks - 1;
    if (sum_segments(from, number, &sum) && sum >= expected && sum - expected <= more)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_COVERAGE,
                         "%s: the pieces of %s %zu in the optimizer's files have %" PRId64
                         " elements, the parameters of param_shapes %" PRId64,
                         from->source->training, zero->is_cut ? "rank" : "group", number, sum,
                         expected);
}

/* Says where each parameter starts. */
static dcp_status place_params(struct deepspeed *from)
{
    const struct zero *zero = from->state;
    int64_t at = 0;
    size_t position = 0, group = 0;
    for (size_t i = 0; i < from->param_count; i++) {
        struct deepspeed_param *param = &from->params[i];
        if (param->frozen)
            continue;
        if (!zero->is_cut && param->group != group) {
            RETURN_IF_ERROR(check_sum(from, group, at));
            group = param->group;
            at = 0;
            position = 0;
        }
        if (!zero->is_cut && group >= zero->groups)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: \"%s\" is of group %zu, but the optimizer's files have %zu",
                                 from->source->training, param->name, group, zero->groups);
        int64_t taken = zero->is_cut ? deepspeed_piece(from, param) : param->elements;
        param->start = at;
        if (!checked_add_i64(at, taken, &at) ||
            !checked_add_i64(at, padding_behind(zero, group, position), &at))
            return dcp_error_set(DCP_ERR_FORMAT, "%s: shapes that exceed 2^63 elements",
                                 from->source->training);
        position++;
    }
    if (!zero->is_cut)
        return check_sum(from, group, at);
    for (size_t rank = 0; rank < from->ranks; rank++)
        RETURN_IF_ERROR(check_sum(from, rank, at));
    return DCP_OK;
}

/* Moments may be longer than the weights, by padding, but never shorter. */
static dcp_status check_segment(const struct deepspeed *from, const struct zero_series *series,
                                const struct zero_segment *segment, size_t rank, size_t group)
{
    const struct zero *zero = from->state;
    int64_t expected = segment_of(zero, &zero->series[0], rank, group)->elements;
    if (segment->elements >= expected && segment->is_vector)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_SHAPE,
                         "%s: \"%s\" of group %zu has %" PRId64 " elements, expected %" PRId64,
                         from->parts->files.files[from->optimizers + rank].path, series->key, group,
                         segment->elements, expected);
}

/* Elements first to end - 1 of a flat group, or of what a rank has: of one rank and group the next,
 * until all are added. */
static dcp_status add_range(struct deepspeed *from, const struct zero_series *series, size_t rank,
                            size_t group, int64_t first, int64_t end)
{
    const struct zero *zero = from->state;
    int64_t begin = 0;
    while (begin < end && rank < from->ranks && group < zero->groups) {
        int64_t length = segment_of(zero, &zero->series[0], rank, group)->elements;
        const struct zero_segment *segment = segment_of(zero, series, rank, group);
        length = length < 0 ? 0 : length;
        int64_t low = first > begin ? first : begin;
        int64_t high = end < begin + length ? end : begin + length;
        if (low < high) {
            RETURN_IF_ERROR(check_segment(from, series, segment, rank, group));
            RETURN_IF_ERROR(source_parts_add(from->parts, from->optimizers + rank, segment->entry,
                                             low - begin, high - low));
        }
        begin += length;
        rank += zero->is_cut ? 0 : 1;
        group += zero->is_cut ? 1 : 0;
    }
    return DCP_OK;
}

static dcp_status add_series(struct deepspeed *from, const struct deepspeed_param *param,
                             const struct zero_series *series)
{
    const struct zero *zero = from->state;
    if (!zero->is_cut)
        return add_range(from, series, 0, param->group, param->start,
                         param->start + param->elements);
    int64_t left = param->elements, piece = deepspeed_piece(from, param);
    for (size_t rank = 0; rank < from->ranks && left > 0; rank++) {
        int64_t taken = left < piece ? left : piece;
        RETURN_IF_ERROR(add_range(from, series, rank, 0, param->start, param->start + taken));
        left -= taken;
    }
    return DCP_OK;
}

static dcp_status add_master(struct deepspeed *from, const struct deepspeed_param *param)
{
    const struct zero *zero = from->state;
    return add_series(from, param, &zero->series[0]);
}

static dcp_status add_state(struct deepspeed *from, const struct deepspeed_param *param)
{
    const struct zero *zero = from->state;
    dcp_path_part path[3];
    for (size_t i = 1; i < zero->series_count; i++) {
        const struct zero_series *series = &zero->series[i];
        const struct zero_segment *first =
            param->group < zero->groups ? segment_of(zero, series, 0, param->group) : NULL;
        if (!first || first->elements < 0)
            continue; /* an optimizer that has never run */
        deepspeed_path(param, series->key, path);
        if (!first->is_vector) {
            RETURN_IF_ERROR(source_parts_copy(from->parts, path, 3, from->optimizers, first->entry,
                                              DCP_DTYPE_NONE));
            continue;
        }
        RETURN_IF_ERROR(
            source_parts_tensor(from->parts, path, 3, first->dtype, param->ndim, param->shape));
        RETURN_IF_ERROR(add_series(from, param, series));
        RETURN_IF_ERROR(source_parts_end(from->parts));
    }
    return DCP_OK;
}

/* param_groups: learning rates and so on. */
static dcp_status add_rest(struct deepspeed *from)
{
    const struct zero *zero = from->state;
    const char *optimizer = zero->is_cut ? state_key : "base_optimizer_state";
    dcp_checkpoint *checkpoint;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, from->optimizers, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        dcp_entry entry;
        dcp_path_part path[8] = {{.key = "optim"}};
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status != DCP_OK || entry.path_length < 4 || entry.path_length > 8 ||
            !part_is(&entry.path[0], state_key) || !part_is(&entry.path[1], optimizer) ||
            !part_is(&entry.path[2], "param_groups"))
            continue;
        memcpy(&path[1], &entry.path[2], (entry.path_length - 2) * sizeof *path);
        status = source_parts_copy(from->parts, path, entry.path_length - 1, from->optimizers, i,
                                   DCP_DTYPE_NONE);
    }
    source_files_give(&from->parts->files, from->optimizers);
    return status;
}

static const struct deepspeed_stage stage = {add_master, add_state, add_rest};

dcp_status zero_begin(struct deepspeed *from)
{
    struct zero *zero = arena_allocate(from->arena, sizeof *zero);
    struct zero_series *masters;
    size_t ranks = from->files.counts[DEEPSPEED_OPTIMIZER];
    if (!zero)
        return error_no_memory(sizeof *zero, "an optimizer's state");
    *zero = (struct zero){.is_cut = from->is_cut};
    from->state = zero;
    from->stage = &stage;
    if (from->is_cut && ranks != from->ranks)
        return dcp_error_set(DCP_ERR_NOT_FOUND,
                             "%s: there are model's files of %zu ranks and optimizer's of %zu",
                             from->source->training, from->ranks, ranks);
    from->ranks = ranks;
    RETURN_IF_ERROR(deepspeed_add_files(from, DEEPSPEED_OPTIMIZER, ranks, &from->optimizers));
    dcp_status status = look_at_first(from);
    if (status == DCP_OK)
        status = find_series(from, "fp32", &masters);
    for (size_t rank = 0; rank < from->ranks && status == DCP_OK; rank++)
        status = read_rank(from, rank);
    if (status == DCP_OK)
        status = place_params(from);
    dcp_state_free(zero->paddings);
    return status;
}
