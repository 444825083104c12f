/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/checked_source.h"
#include "storage/shard/shard_request.h"

struct shard_parts {
    struct box whole;
    struct shard_part_sum *sum; /* NULL: they are all of the record */
    size_t count;
    atomic_size_t left; /* parts whose checksum is not known yet */
    struct {
        uint32_t crc;
        uint64_t size;
    } sums[];
};

dcp_status shard_parts_new(struct box region, size_t count, struct shard_part_sum *sum,
                           struct shard_parts **made)
{
    struct shard_parts *parts = memory_allocate(sizeof *parts + count * sizeof *parts->sums);
    if (!parts)
        return error_no_memory(count * sizeof *parts->sums, "parts of a region");
    parts->whole = region;
    parts->sum = sum;
    parts->count = count;
    atomic_init(&parts->left, count);
    *made = parts;
    return DCP_OK;
}

uint64_t shard_parts_memory(uint64_t count)
{
    const struct shard_parts *parts = NULL;
    return sizeof *parts + count * sizeof *parts->sums + 64;
}

void shard_parts_free(struct shard_parts *parts)
{
    memory_release(parts);
}

struct box shard_parts_whole(const struct shard_parts *parts)
{
    return parts->whole;
}

size_t shard_parts_count(const struct shard_parts *parts)
{
    return parts->count;
}

int32_t shard_parts_dim(struct box region)
{
    for (int32_t i = 0; i < region.ndim; i++) {
        if (region.sizes[i] > 1)
            return i;
    }
    return -1;
}

struct box shard_parts_region(const struct shard_parts *parts, size_t part, struct box region,
                              struct box_storage *slab)
{
    int32_t dim = shard_parts_dim(region);
    size_t size = (size_t)region.ndim * sizeof *slab->sizes;
    memcpy(slab->offsets, region.offsets, size);
    memcpy(slab->sizes, region.sizes, size);
    int64_t count = (int64_t)parts->count, index = (int64_t)part;
    int64_t step = region.sizes[dim] / count, longer = region.sizes[dim] % count;
    slab->offsets[dim] += index * step + (index < longer ? index : longer);
    slab->sizes[dim] = step + (index < longer);
    return box_of(region.ndim, slab);
}

dcp_status shard_parts_add(struct shard_parts *parts, size_t part, uint32_t crc, uint64_t size,
                           uint64_t place, uint32_t expected)
{
    parts->sums[part].crc = crc;
    parts->sums[part].size = size;
    if (atomic_fetch_sub_explicit(&parts->left, 1, memory_order_acq_rel) > 1)
        return DCP_OK;
    uint32_t joined = 0;
    uint64_t whole = 0;
    for (size_t i = 0; i < parts->count; i++) {
        joined = crc32_join(joined, parts->sums[i].crc, parts->sums[i].size);
        whole += parts->sums[i].size;
    }
    if (parts->sum) {
        *parts->sum = (struct shard_part_sum){
            .known = true, .crc = joined, .size = whole, .expected = expected, .place = place};
        return DCP_OK;
    }
    return joined == expected ? DCP_OK : checked_crc_error(place, expected, joined);
}

dcp_status shard_join_sums(const struct shard_reader *reader, const struct metadata_entry *entry,
                           const struct metadata_piece *piece, const struct shard_part_sum *sums,
                           size_t count)
{
    dcp_status status = DCP_OK;
    uint32_t joined = 0;
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        if (sums[i].known != sums[0].known || sums[i].expected != sums[0].expected)
            status =
                dcp_error_set(DCP_ERR_CHECKSUM, "ranks that read parts of it see different files");
        joined = crc32_join(joined, sums[i].crc, sums[i].size);
    }
    if (status == DCP_OK && count > 0 && sums[0].known && joined != sums[0].expected)
        status = checked_crc_error(sums[0].place, sums[0].expected, joined);
    return shard_reader_blame(reader, entry, piece, status);
}
