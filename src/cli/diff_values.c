/* SPDX-License-Identifier: BSD-3-Clause */
/* Comparing the values of tensors, block by block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "element.h"
#include "parallel.h"

/* Of what a thread reads of a side at once, as it is compared. */
#define BLOCK_BYTES ((int64_t)4 << 20)

struct comparison {
    struct diff *diff;
    size_t *first;        /* by pair: its first piece; one more behind the last */
    unsigned char **data; /* by thread: two blocks */
    size_t block_bytes;
    pthread_mutex_t mutex;
};

dcp_dtype diff_dtype(const struct pair *pair)
{
    dcp_dtype a = element_dtype(pair->side[0]->entry.dtype);
    dcp_dtype b = element_dtype(pair->side[1]->entry.dtype);
    if (pair->side[0]->entry.dtype == pair->side[1]->entry.dtype)
        return a;
    bool convertible = a != DCP_DTYPE_NONE && b != DCP_DTYPE_NONE && !element_is_complex(a) &&
                       !element_is_complex(b) && a != DCP_F4_E2M1FN_X2 && b != DCP_F4_E2M1FN_X2;
    if (!convertible)
        return DCP_DTYPE_NONE;
    return a == b ? a : DCP_F64;
}

/* What was found in a block. */
struct found {
    uint64_t different;
    long double largest;
    int64_t index; /* of it, in numbers; -1: no difference that is a number */
    long double a[2], b[2];
};

static bool same_number(long double a, long double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Whether numbers are within the tolerance, as numpy.isclose() has it, NaN being equal to NaN. */
static bool is_close(const struct diff_options *options, const long double a[2],
                     const long double b[2], long double *distance)
{
    *distance = -1; /* no number */
    if (same_number(a[0], b[0]) && same_number(a[1], b[1])) {
        *distance = 0;
        return true;
    }
    if (!isfinite(a[0]) || !isfinite(a[1]) || !isfinite(b[0]) || !isfinite(b[1]))
        return false;
    bool real = a[1] == 0 && b[1] == 0;
    *distance = real ? fabsl(a[0] - b[0]) : hypotl(a[0] - b[0], a[1] - b[1]);
    return *distance <=
           (long double)options->absolute +
               (long double)options->relative * (real ? fabsl(b[0]) : hypotl(b[0], b[1]));
}

/* Counts numbers that are not close, and finds the largest difference. */
static void compare_numbers(const struct diff_options *options, dcp_dtype dtype, const void *left,
                            const void *right, int64_t count, struct found *found)
{
    for (int64_t i = 0; i < count * element_numbers(dtype); i++) {
        long double a[2], b[2], distance;
        a[0] = element_value(dtype, left, i, &a[1]);
        b[0] = element_value(dtype, right, i, &b[1]);
        bool close = is_close(options, a, b, &distance);
        found->different += !close;
        bool first = !close && found->index < 0;
        if (close || (!first && !(distance > found->largest)))
            continue;
        found->largest = distance > 0 ? distance : 0;
        found->index = i;
        memcpy(found->a, a, sizeof a);
        memcpy(found->b, b, sizeof b);
    }
}

static uint64_t count_different(const unsigned char *left, const unsigned char *right,
                                int64_t count, size_t size)
{
    uint64_t different = 0;
    for (int64_t i = 0; i < count; i++)
        different += memcmp(left + (size_t)i * size, right + (size_t)i * size, size) != 0;
    return different;
}

/* Whether the position comes first, so that the result does not depend on threads. */
static bool is_before(const int64_t *at, const int64_t *other, int32_t ndim)
{
    int32_t d = 0;
    while (d < ndim && at[d] == other[d])
        d++;
    return d < ndim && at[d] < other[d];
}

static void take(struct pair *pair, const dcp_tensor *block, dcp_dtype dtype,
                 const struct found *found)
{
    int64_t at[DCP_MAX_DIMS];
    pair->different += found->different;
    if (found->different > 0)
        pair->kind = DIFF_VALUES;
    if (found->index < 0)
        return;
    walk_position(block, found->index / element_numbers(dtype), at);
    bool same = pair->placed && !(found->largest > pair->largest);
    if (same && (found->largest < pair->largest || !is_before(at, pair->at, block->ndim)))
        return;
    pair->placed = true;
    pair->largest = found->largest;
    memcpy(pair->at, at, sizeof at);
    memcpy(pair->a, found->a, sizeof pair->a);
    memcpy(pair->b, found->b, sizeof pair->b);
}

static dcp_status read_side(const struct comparison *comparison, const struct pair *pair, int side,
                            dcp_tensor block, dcp_dtype dtype, unsigned char *data)
{
    const dcp_read_options options = {.convert = true};
    block.dtype = dtype;
    block.data = data;
    return dcp_checkpoint_read_tensor(comparison->diff->checkpoints[side], pair->side[side]->index,
                                      &block, &options);
}

static dcp_status read_both(const struct comparison *comparison, const struct pair *pair,
                            const dcp_tensor *block, dcp_dtype dtype, unsigned char *data)
{
    dcp_status status = read_side(comparison, pair, 0, *block, dtype, data);
    if (status == DCP_OK)
        status = read_side(comparison, pair, 1, *block, dtype, data + comparison->block_bytes);
    return status;
}

/* Bytes first, which is fast; only where they differ are elements looked at as numbers. */
static dcp_status compare_block(const struct comparison *comparison, const struct pair *pair,
                                const dcp_tensor *block, unsigned char *data, struct found *found)
{
    const struct diff_options *options = comparison->diff->options;
    dcp_dtype stored = pair->side[0]->entry.dtype, dtype = diff_dtype(pair);
    const unsigned char *other = data + comparison->block_bytes;
    int64_t count = walk_elements(block);
    if (stored == pair->side[1]->entry.dtype) {
        size_t size = dcp_dtype_size(stored);
        dcp_status status = read_both(comparison, pair, block, stored, data);
        if (status != DCP_OK || memcmp(data, other, (size_t)count * size) == 0)
            return status;
        found->different = count_different(data, other, count, size);
        if (dtype == DCP_DTYPE_NONE)
            return DCP_OK;
        if (element_is_readable(stored))
            dtype = stored;
    }
    uint64_t bytes_differ = found->different;
    dcp_status status = bytes_differ > 0 && dtype == stored
                            ? DCP_OK
                            : read_both(comparison, pair, block, dtype, data);
    if (status != DCP_OK)
        return status;
    found->different = 0;
    compare_numbers(options, dtype, data, other, count, found);
    if (options->absolute == 0 && options->relative == 0 && bytes_differ > found->different)
        found->different = bytes_differ; /* as zeros of different signs do */
    return DCP_OK;
}

/* The last pair that begins at or before the piece. */
static size_t pair_of(const struct comparison *comparison, size_t index)
{
    size_t low = 0, high = comparison->diff->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(comparison->first[middle] <= index ? &low : &high) = middle;
    }
    return low;
}

static size_t run_length(void *context, size_t index)
{
    const struct comparison *comparison = context;
    size_t pair = pair_of(comparison, index);
    return (size_t)walk_run(&comparison->diff->pairs[pair].walk,
                            (int64_t)(index - comparison->first[pair]));
}

static dcp_status compare(void *context, int thread, size_t index, uint64_t *bytes)
{
    struct comparison *comparison = context;
    struct diff *diff = comparison->diff;
    struct found found = {.index = -1};
    size_t low = pair_of(comparison, index);
    struct pair *pair = &diff->pairs[low];
    dcp_tensor block;
    walk_block(&pair->walk, (int64_t)(index - comparison->first[low]), &block);
    dcp_status status = compare_block(comparison, pair, &block, comparison->data[thread], &found);
    *bytes = (uint64_t)walk_elements(&block) * dcp_dtype_size(pair->side[0]->entry.dtype);
    pthread_mutex_lock(&comparison->mutex);
    if (status == DCP_OK)
        take(pair, &block, diff_dtype(pair), &found);
    pthread_mutex_unlock(&comparison->mutex);
    return status;
}

/* Divides the tensors into pieces. */
static bool plan(struct comparison *comparison, struct parallel *parallel)
{
    struct diff *diff = comparison->diff;
    comparison->first = calloc(diff->count + 1, sizeof *comparison->first);
    comparison->block_bytes = 1;
    for (size_t i = 0; comparison->first && i < diff->count; i++) {
        struct pair *pair = &diff->pairs[i];
        comparison->first[i] = parallel->count;
        if (pair->walk.count == 0)
            continue;
        for (int side = 0; side < 2; side++)
            walk_group(&pair->walk, diff->checkpoints[side], pair->side[side]->index);
        parallel->count += (size_t)pair->walk.count;
        parallel->bytes_total += pair->side[0]->entry.bytes;
        if (pair->walk.bytes > comparison->block_bytes)
            comparison->block_bytes = pair->walk.bytes;
    }
    parallel->thread_count = parallel_threads(diff->options->threads, parallel->count);
    comparison->data = calloc((size_t)parallel->thread_count, sizeof *comparison->data);
    bool good = comparison->first && comparison->data;
    for (int i = 0; good && i < parallel->thread_count; i++)
        good = (comparison->data[i] = malloc(2 * comparison->block_bytes)) != NULL;
    return good;
}

dcp_status diff_values(struct diff *diff)
{
    struct comparison comparison = {.diff = diff};
    struct parallel parallel = {.work = compare, .run_length = run_length, .context = &comparison};
    dcp_status status = DCP_ERR_NO_MEMORY;
    pthread_mutex_init(&comparison.mutex, NULL);
    if (plan(&comparison, &parallel))
        status = parallel_run(&parallel);
    else
        dcp_error_set(status, "not enough memory to compare blocks of %zu bytes",
                      comparison.block_bytes);
    for (int i = 0; comparison.data && i < parallel.thread_count; i++)
        free(comparison.data[i]);
    free((void *)comparison.data);
    free(comparison.first);
    pthread_mutex_destroy(&comparison.mutex);
    return status;
}
