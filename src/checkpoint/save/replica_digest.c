/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/replica_digest.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/dtype.h"
#include "storage/shard/shard_elements.h"

/* Sizes of sampled blocks, in large and in small chunks, and of the buffer. */
enum { LARGE_BLOCK = 16 * 1024, SMALL_BLOCK = 4 * 1024, SPACE = 256 * 1024 };

static int64_t element_size(const struct write_item *item)
{
    return item->is_tensor ? (int64_t)dcp_dtype_size(item->dtype) : 1;
}

uint64_t replica_key(const struct write_item *item)
{
    int64_t numbers[4 + 2 * DCP_MAX_DIMS];
    size_t count = 0;
    if (item->is_tensor && box_volume(item->box) == 0)
        return 0;
    uint64_t name = xxh3_64(item->name, strlen(item->name));
    memcpy(&numbers[count++], &name, sizeof name);
    numbers[count++] = item->is_tensor;
    numbers[count++] = item->is_tensor ? (int64_t)item->dtype : 0;
    numbers[count++] = item->is_tensor ? item->box.ndim : 0;
    for (int32_t i = 0; item->is_tensor && i < item->box.ndim; i++) {
        numbers[count++] = item->box.offsets[i];
        numbers[count++] = item->box.sizes[i];
    }
    uint64_t key = xxh3_64(numbers, count * sizeof *numbers) >> 1 << 1;
    int64_t block = SMALL_BLOCK / element_size(item);
    return (key != 0 ? key : 2) + (replica_elements(item) / block >= DCP_REPLICA_PARTS);
}

dcp_status replica_digester_init(struct replica_digester *digester)
{
    digester->stream = xxh3_stream_new();
    digester->space = memory_allocate(SPACE);
    return digester->stream && digester->space ? DCP_OK
                                               : error_no_memory(SPACE, "digests of replicas");
}

void replica_digester_free(struct replica_digester *digester)
{
    if (digester->stream)
        xxh3_stream_free(digester->stream);
    memory_release(digester->space);
}

int64_t replica_elements(const struct write_item *item)
{
    return item->is_tensor ? box_volume(item->box) : (int64_t)item->object_length;
}

int64_t replica_segment_elements(int64_t elements)
{
    return elements / REPLICA_SEGMENTS_MAX + (elements % REPLICA_SEGMENTS_MAX != 0);
}

static dcp_status add_box(struct replica_digester *digester, const struct shard_source *source,
                          struct box box)
{
    struct shard_elements elements;
    const void *data;
    RETURN_IF_ERROR(shard_elements_dense(source, box, &data));
    if (data) {
        xxh3_stream_update(digester->stream, data,
                           (size_t)box_volume(box) * dcp_dtype_size(source->item->dtype));
        return DCP_OK;
    }
    dcp_status status = shard_elements_start(&elements, source, box, SPACE, NULL);
    while (status == DCP_OK && shard_elements_next(&elements)) {
        status = shard_elements_gather(&elements, digester->space);
        if (status == DCP_OK)
            xxh3_stream_update(digester->stream, digester->space, elements.size);
    }
    shard_elements_end(&elements);
    return status;
}

/* Digests a range of elements, row-major. */
static dcp_status add_range(struct replica_digester *digester, const struct shard_source *source,
                            int64_t from, int64_t end)
{
    const struct write_item *item = source->item;
    struct box_storage part;
    if (!item->is_tensor) {
        xxh3_stream_update(digester->stream, (const unsigned char *)source->stream + from,
                           (size_t)(end - from));
        return DCP_OK;
    }
    if (from == 0 && end == box_volume(item->box))
        return add_box(digester, source, item->box);
    while (from < end) {
        from += box_next(item->box, from, end, &part);
        RETURN_IF_ERROR(add_box(digester, source, box_of(item->box.ndim, &part)));
    }
    return DCP_OK;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* If there are fewer blocks than parts, they are spread evenly over the parts. */
static dcp_status add_sample(struct replica_digester *digester, const struct shard_source *source,
                             int64_t elements, uint32_t part)
{
    int64_t size = element_size(source->item);
    bool large = elements > DCP_REPLICA_PARTS * (LARGE_BLOCK / size);
    int64_t length = (large ? LARGE_BLOCK : SMALL_BLOCK) / size;
    int64_t blocks = elements / length + (elements % length != 0);
    int64_t block = blocks > DCP_REPLICA_PARTS ? part : part * blocks / DCP_REPLICA_PARTS;
    do {
        int64_t from = block * length;
        RETURN_IF_ERROR(add_range(digester, source, from, from + smaller(length, elements - from)));
        block += DCP_REPLICA_PARTS;
    } while (block < blocks);
    return DCP_OK;
}

/* Opens data that is in memory, to be read in place. */
static dcp_status open_source(struct shard_opened *opened, const struct shard_source *source)
{
    if (!source->item->is_tensor) {
        opened->source = *source;
        opened->resolved.release = NULL;
        return DCP_OK;
    }
    RETURN_IF_ERROR(shard_source_open(opened, source, source->item->box));
    opened->source.resolver = NULL;
    return DCP_OK;
}

dcp_status replica_digest(struct replica_digester *digester, const struct shard_source *source,
                          uint64_t key, struct replica_sample sample, uint64_t *digest)
{
    int64_t elements = replica_elements(source->item);
    uint32_t part = (uint32_t)((key + sample.part) % DCP_REPLICA_PARTS);
    struct shard_opened opened;
    RETURN_IF_ERROR(open_source(&opened, source));
    xxh3_stream_reset(digester->stream);
    xxh3_stream_update(digester->stream, &elements, sizeof elements);
    dcp_status status = DCP_OK;
    if (sample.all)
        status = add_range(digester, &opened.source, 0, elements);
    else if (elements > 0)
        status = add_sample(digester, &opened.source, elements, part);
    *digest = xxh3_stream_digest(digester->stream);
    shard_source_close(&opened);
    return status;
}

dcp_status replica_digest_segments(struct replica_digester *digester,
                                   const struct shard_source *source, uint64_t *digests,
                                   size_t *count)
{
    int64_t elements = replica_elements(source->item);
    int64_t length = replica_segment_elements(elements);
    struct shard_opened opened;
    *count = 0;
    RETURN_IF_ERROR(open_source(&opened, source));
    dcp_status status = DCP_OK;
    for (int64_t from = 0; from < elements && status == DCP_OK; from += length) {
        xxh3_stream_reset(digester->stream);
        status = add_range(digester, &opened.source, from, from + smaller(length, elements - from));
        digests[(*count)++] = xxh3_stream_digest(digester->stream);
    }
    shard_source_close(&opened);
    return status;
}
