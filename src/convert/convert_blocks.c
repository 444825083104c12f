/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_blocks.h"

#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_order.h"

/* What lies between them is written along with them. */
#define GROUPED_GAP ((uint64_t)MEMORY_PAGE)

static size_t block_count(const struct convert_run *run)
{
    return (size_t)(run->size / CONVERT_BLOCK + (run->size % CONVERT_BLOCK != 0));
}

size_t convert_find_last(const size_t *numbers, size_t count, size_t number)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (numbers[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct convert_block convert_block_at(const struct convert_blocks *blocks, size_t block)
{
    size_t run = convert_find_last(blocks->first, blocks->run_count, block);
    struct convert_block found = {.run = blocks->runs[run]};
    found.begin = (uint64_t)(block - blocks->first[run]) * CONVERT_BLOCK;
    uint64_t left = found.run->size - found.begin;
    found.size = left < CONVERT_BLOCK ? (size_t)left : CONVERT_BLOCK;
    return found;
}

size_t convert_blocks_group(const struct convert_blocks *blocks, size_t block)
{
    return convert_find_last(blocks->groups, blocks->group_count, block);
}

/* ---- groups ---- */

static bool is_small(const struct convert_source *source, const struct convert_run *run)
{
    return run->size < CONVERT_GROUPED_SIZE && !run->storage &&
           (!run->item || convert_is_plain(source, run->item));
}

/* Whether a small run is copied with those from `first` to `last`. What lies between two runs is
 * known to belong there if they are neighbours in the caller's list, too. */
static bool joins(const struct convert_run *first, const struct convert_run *last,
                  const struct convert_run *run)
{
    uint64_t end = last->offset + last->size;
    if (run->file != first->file || run->offset < end ||
        run->offset + run->size - first->offset > CONVERT_BLOCK ||
        (run->item && (run->offset - first->offset) % CONVERT_ALIGNMENT != 0))
        return false;
    return run->offset == end || (run == last + 1 && run->offset - end < GROUPED_GAP);
}

static void make_groups(const struct convert_source *source, struct convert_blocks *blocks)
{
    const struct convert_run *first = NULL, *last = NULL; /* of the group, if all are small */
    size_t in_group = 0;
    for (size_t i = 0; i < blocks->run_count; i++) {
        const struct convert_run *run = blocks->runs[i];
        bool small = is_small(source, run);
        if (run->size == 0)
            continue;
        if (small && first && in_group < CONVERT_GROUP_MOST && joins(first, last, run)) {
            last = run;
            in_group++;
            continue;
        }
        for (size_t block = blocks->first[i]; block < blocks->first[i + 1]; block++)
            blocks->groups[blocks->group_count++] = block;
        first = last = small ? run : NULL;
        in_group = 1;
    }
    blocks->groups[blocks->group_count] = blocks->count;
}

/* ---- all of them ---- */

dcp_status convert_blocks_make(const struct convert_source *source, struct convert_run *runs,
                               size_t count, struct convert_blocks *blocks)
{
    *blocks = (struct convert_blocks){.run_count = count};
    blocks->runs = memory_allocate_array(count, sizeof *blocks->runs);
    blocks->first = memory_allocate_array(count + 1, sizeof *blocks->first);
    if (!blocks->runs || !blocks->first)
        return error_no_memory(2 * count * sizeof(size_t), "the parts of a conversion");
    RETURN_IF_ERROR(convert_order(source, runs, count, blocks->runs));
    for (size_t i = 0; i < count; i++) {
        blocks->first[i] = blocks->count;
        blocks->count += block_count(blocks->runs[i]);
    }
    blocks->first[count] = blocks->count;
    blocks->groups = memory_allocate_array(blocks->count + 1, sizeof *blocks->groups);
    if (!blocks->groups)
        return error_no_memory(blocks->count * sizeof(size_t), "the blocks of a conversion");
    make_groups(source, blocks);
    return DCP_OK;
}

void convert_blocks_free(struct convert_blocks *blocks)
{
    memory_release((void *)blocks->runs);
    memory_release(blocks->first);
    memory_release(blocks->groups);
}
