/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/transform_shape.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "convert/transform_recipe.h"
#include "state/copy.h"

static dcp_status wrong(const struct transform_rule *rule, const struct convert_item *item,
                        const char *what)
{
    return dcp_error_set(DCP_ERR_SHAPE, "rule %zu of the transform, at \"%s\": %s", rule->number,
                         item->name, what);
}

/* 0 for too much: then another dimension is 0, as all elements together are not too many. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t both;
    return checked_multiply_i64(a, b, &both) ? both : 0;
}

static int64_t product(const int64_t *sizes, int32_t begin, int32_t end)
{
    int64_t count = 1;
    for (int32_t d = begin; d < end; d++)
        count = times(count, sizes[d]);
    return count;
}

/* Gives an item a shape of its own, and the bytes of it. */
static dcp_status set_shape(struct arena *arena, int32_t ndim, const int64_t *shape,
                            struct convert_item *item)
{
    uint64_t bytes = dcp_dtype_size(item->dtype);
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] > 0 && bytes > INT64_MAX / (uint64_t)shape[d])
            return dcp_error_set(DCP_ERR_SHAPE, "%s: more than 2^63 bytes", item->name);
        bytes *= (uint64_t)shape[d];
    }
    item->ndim = ndim;
    item->bytes = bytes;
    item->shape = arena_copy(arena, shape, (size_t)ndim * sizeof *shape);
    return item->shape || ndim == 0 ? DCP_OK : error_no_memory(sizeof *shape, item->name);
}

static dcp_status check_dim(const struct transform_rule *rule, const struct convert_item *item,
                            uint64_t dim, int32_t *checked)
{
    *checked = (int32_t)dim;
    return dim < (uint64_t)item->ndim ? DCP_OK : wrong(rule, item, "it has no such dimension");
}

/* ---- one of one ---- */

static dcp_status transpose(const struct transform_rule *rule, struct arena *arena,
                            const struct convert_item *input, struct convert_item *item)
{
    uint64_t low = rule->dims[0] < rule->dims[1] ? rule->dims[0] : rule->dims[1];
    uint64_t high = rule->dims[0] + rule->dims[1] - low;
    int64_t shape[DCP_MAX_DIMS];
    int32_t dim;
    RETURN_IF_ERROR(check_dim(rule, input, high, &dim));
    if (high - low != 1)
        return wrong(rule, input, "only neighbouring dimensions are exchanged");
    memcpy(shape, input->shape, (size_t)input->ndim * sizeof *shape);
    shape[dim - 1] = input->shape[dim];
    shape[dim] = input->shape[dim - 1];
    RETURN_IF_ERROR(set_shape(arena, input->ndim, shape, item));
    return transform_swap(arena, input, input->shape[dim - 1], input->shape[dim],
                          product(input->shape, dim + 1, input->ndim), item);
}

/* Rows of a head as (2, half) become (half, 2), or the other way. */
static dcp_status permute(const struct transform_rule *rule, struct arena *arena,
                          const struct convert_item *input, struct convert_item *item)
{
    if (input->ndim < 1 || input->shape[0] % (int64_t)(2 * rule->heads) != 0)
        return wrong(rule, input, "its rows are not those of so many heads of an even size");
    int64_t half = input->shape[0] / (int64_t)(2 * rule->heads);
    bool to_pairs = rule->kind == TRANSFORM_PERMUTE;
    return transform_swap(arena, input, to_pairs ? 2 : half, to_pairs ? half : 2,
                          product(input->shape, 1, input->ndim), item);
}

static dcp_status cast(const struct transform_rule *rule, struct arena *arena,
                       const struct convert_item *input, struct convert_item *item)
{
    if (rule->stored != DCP_DTYPE_NONE && input->dtype != rule->stored)
        return wrong(rule, input, "its dtype is not the one that is cast");
    if (!copy_can_convert(input->dtype, rule->dtype))
        return wrong(rule, input, "its dtype cannot be converted");
    RETURN_IF_ERROR(transform_cast(arena, input, rule->dtype, item));
    return set_shape(arena, input->ndim, input->shape, item);
}

static dcp_status resize(const struct transform_rule *rule, struct arena *arena,
                         const struct convert_item *input, struct convert_item *item)
{
    int64_t shape[DCP_MAX_DIMS], multiple = (int64_t)rule->multiple, size = (int64_t)rule->size;
    int32_t dim;
    RETURN_IF_ERROR(check_dim(rule, input, rule->dims[0], &dim));
    int64_t stored = input->shape[dim], inner = product(input->shape, dim + 1, input->ndim);
    memcpy(shape, input->shape, (size_t)input->ndim * sizeof *shape);
    if (rule->kind == TRANSFORM_CUT) {
        if (stored < size)
            return wrong(rule, input, "it is smaller than what it would be cut to");
        shape[dim] = size;
        RETURN_IF_ERROR(set_shape(arena, input->ndim, shape, item));
        return transform_slice(arena, input, times(stored, inner), 0, times(size, inner), item);
    }
    if (size > 0 && stored != size)
        return wrong(rule, input, "it has not the size that is padded");
    if (stored > INT64_MAX - multiple)
        return wrong(rule, input, "it is too large");
    shape[dim] = (stored + multiple - 1) / multiple * multiple;
    RETURN_IF_ERROR(set_shape(arena, input->ndim, shape, item));
    const struct convert_item inputs[2] = {*input, {.name = NULL}};
    const int64_t lengths[2] = {times(stored, inner), times(shape[dim] - stored, inner)};
    return transform_interleave(arena, inputs, lengths, 2, item);
}

dcp_status transform_turn(const struct transform_rule *rule, struct arena *arena,
                          const struct convert_item *input, struct convert_item *item)
{
    switch (rule->kind) {
    case TRANSFORM_TRANSPOSE:
        return transpose(rule, arena, input, item);
    case TRANSFORM_PERMUTE:
    case TRANSFORM_UNPERMUTE:
        return permute(rule, arena, input, item);
    case TRANSFORM_CAST:
        return cast(rule, arena, input, item);
    default:
        return resize(rule, arena, input, item);
    }
}

/* ---- one of several ---- */

static bool same_but(const struct convert_item *a, const struct convert_item *b, int32_t dim)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (int32_t d = 0; d < a->ndim; d++)
        if (d != dim && a->shape[d] != b->shape[d])
            return false;
    return true;
}

/* The part that a joined tensor has of the sum of parts. */
static uint64_t part_of(const struct transform_rule *rule, size_t part)
{
    return rule->parts ? rule->parts[part] : 1;
}

static uint64_t part_sum(const struct transform_rule *rule, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += part_of(rule, i);
    return sum > 0 ? sum : 1;
}

static dcp_status join(const struct transform_rule *rule, struct arena *arena,
                       const struct convert_item *inputs, size_t count, struct convert_item *item)
{
    int64_t shape[DCP_MAX_DIMS], groups = (int64_t)rule->groups, unit;
    int64_t *lengths = arena_allocate_array(arena, count, sizeof *lengths);
    int32_t dim;
    if (!lengths)
        return error_no_memory(count * sizeof *lengths, item->name);
    RETURN_IF_ERROR(check_dim(rule, inputs, rule->dims[0], &dim));
    memcpy(shape, inputs->shape, (size_t)inputs->ndim * sizeof *shape);
    unit = inputs->shape[dim] / (int64_t)part_of(rule, 0);
    shape[dim] = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t size = inputs[i].ndim > dim ? inputs[i].shape[dim] : 0;
        if (!same_but(&inputs[i], inputs, dim) || size % groups != 0 ||
            size / (int64_t)part_of(rule, i) != unit || size % (int64_t)part_of(rule, i) != 0)
            return wrong(rule, &inputs[i],
                         "its dtype or shape does not go with the others', "
                         "\"parts\" and \"groups\"");
        if (size > INT64_MAX - shape[dim])
            return wrong(rule, &inputs[i], "together they are too large");
        shape[dim] += size;
        lengths[i] = times(size / groups, product(inputs->shape, dim + 1, inputs->ndim));
    }
    RETURN_IF_ERROR(set_shape(arena, inputs->ndim, shape, item));
    return transform_interleave(arena, inputs, lengths, count, item);
}

static dcp_status stack(const struct transform_rule *rule, struct arena *arena,
                        const struct convert_item *inputs, size_t count, struct convert_item *item)
{
    int64_t shape[DCP_MAX_DIMS];
    int64_t *lengths = arena_allocate_array(arena, count, sizeof *lengths);
    int32_t dim = (int32_t)rule->dims[0], ndim = inputs->ndim;
    if (!lengths)
        return error_no_memory(count * sizeof *lengths, item->name);
    if (dim > ndim || ndim == DCP_MAX_DIMS)
        return wrong(rule, inputs, "it has not so many dimensions");
    for (int32_t d = 0; d <= ndim; d++)
        shape[d] = d == dim ? (int64_t)count : inputs->shape[d - (d > dim)];
    for (size_t i = 0; i < count; i++) {
        if (!same_but(&inputs[i], inputs, -1))
            return wrong(rule, &inputs[i], "its dtype or shape is not that of the others");
        lengths[i] = product(inputs->shape, dim, ndim);
    }
    RETURN_IF_ERROR(set_shape(arena, ndim + 1, shape, item));
    return transform_interleave(arena, inputs, lengths, count, item);
}

dcp_status transform_unite(const struct transform_rule *rule, struct arena *arena,
                           const struct convert_item *inputs, size_t count,
                           struct convert_item *item)
{
    return rule->kind == TRANSFORM_JOIN ? join(rule, arena, inputs, count, item)
                                        : stack(rule, arena, inputs, count, item);
}

/* ---- several of one ---- */

/* Tensors that a stack is taken apart into: far more than experts of a model. */
enum { UNSTACKED_MAX = 1 << 16 };

dcp_status transform_divide_count(const struct transform_rule *rule,
                                  const struct convert_item *input, size_t *count)
{
    int32_t dim;
    RETURN_IF_ERROR(check_dim(rule, input, rule->dims[0], &dim));
    *count = rule->to_count;
    if (rule->kind == TRANSFORM_UNSTACK) {
        if (input->shape[dim] > UNSTACKED_MAX)
            return wrong(rule, input, "too many tensors would come of it");
        *count = (size_t)input->shape[dim];
        return DCP_OK;
    }
    uint64_t sum = part_sum(rule, *count), size = (uint64_t)input->shape[dim];
    bool fits = size % sum == 0;
    for (size_t i = 0; i < *count; i++)
        fits &= size / sum * part_of(rule, i) % rule->groups == 0;
    return fits ? DCP_OK
                : wrong(rule, input, "its dimension is not divided by \"parts\" and \"groups\"");
}

dcp_status transform_divide(const struct transform_rule *rule, struct arena *arena,
                            const struct convert_item *input, size_t part,
                            struct convert_item *item)
{
    int64_t shape[DCP_MAX_DIMS] = {0}, offset = 0;
    int32_t dim = (int32_t)rule->dims[0], ndim = input->ndim;
    int64_t inner = product(input->shape, dim + 1, ndim);
    if (rule->kind == TRANSFORM_UNSTACK) {
        for (int32_t d = 0; d + 1 < ndim; d++)
            shape[d] = input->shape[d + (d >= dim)];
        RETURN_IF_ERROR(set_shape(arena, ndim - 1, shape, item));
        return transform_slice(arena, input, times(input->shape[dim], inner),
                               times((int64_t)part, inner), inner, item);
    }
    int64_t groups = (int64_t)rule->groups, group = input->shape[dim] / groups;
    int64_t unit = input->shape[dim] / (int64_t)part_sum(rule, rule->to_count);
    int64_t size = unit * (int64_t)part_of(rule, part) / groups;
    for (size_t i = 0; i < part; i++)
        offset += unit * (int64_t)part_of(rule, i) / groups;
    memcpy(shape, input->shape, (size_t)ndim * sizeof *shape);
    shape[dim] = size * groups;
    RETURN_IF_ERROR(set_shape(arena, ndim, shape, item));
    return transform_slice(arena, input, times(group, inner), times(offset, inner),
                           times(size, inner), item);
}
