/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/shard_footer.h"
#include "storage/verify/verification.h"

/* What is read at a time stays in a processor's cache while its checksums are taken. */
#define STEP_BYTES ((size_t)512 << 10)
/* And the most, where each request costs time. */
#define STEP_MOST ((size_t)8 << 20)

static void verify_block(struct verification *verification, const struct shard_file *file,
                         uint64_t index, const unsigned char *bytes, size_t size, uint64_t sum)
{
    uint64_t computed = xxh3_64(bytes, size);
    if (computed != sum)
        verification_fault(verification, file->name, index * file->block_size, "",
                           "block %" PRIu64 " of %zu bytes has XXH3 %016" PRIx64
                           ", expected %016" PRIx64,
                           index, size, computed, sum);
}

/* Bytes of the file at an offset that belong to spans. Those are taken in order, and one of which a
 * part was missed stays incomplete. */
static void take_spans(struct verify_span *spans, size_t count, size_t *next,
                       const unsigned char *bytes, size_t size, uint64_t offset)
{
    for (size_t i = *next; i < count && spans[i].offset < offset + size; i++) {
        struct verify_span *span = &spans[i];
        uint64_t at = span->offset + span->taken, end = span->offset + span->length;
        if (end <= offset) {
            *next += i == *next;
        } else if (at >= offset) {
            uint64_t stop = end < offset + size ? end : offset + size;
            span->crc = crc32_update(span->crc, bytes + (at - offset), (size_t)(stop - at));
            span->taken += stop - at;
        }
    }
}

/* Checks the blocks of bytes that were read. */
static dcp_status verify_step(struct verification *verification, struct shard_file *file,
                              uint64_t offset, size_t size, struct shard_sums_window *window,
                              unsigned char *bytes)
{
    for (size_t at = 0; at < size; at += file->block_size) {
        uint64_t index = (offset + at) / file->block_size, sum;
        size_t taken = size - at < file->block_size ? size - at : file->block_size;
        RETURN_IF_ERROR(shard_sums_find(file, window, index, index + 1, &sum));
        verify_block(verification, file, index, bytes + at, taken, sum);
    }
    return DCP_OK;
}

/* The first block that begins at `offset` or behind it, or the end of the contents. */
static uint64_t block_from(const struct shard_file *file, uint64_t offset)
{
    uint64_t blocks = offset / file->block_size + (offset % file->block_size != 0);
    return blocks < file->block_count ? blocks * file->block_size : file->content_length;
}

/* A multiple of the size of blocks, where there are some. */
static size_t step_bytes(const struct shard_file *file)
{
    size_t step = file->file.directory->traits.request_size;
    size_t block = file->footer == FOOTER_GOOD ? file->block_size : 1;
    step = step < STEP_BYTES ? STEP_BYTES : step;
    step = step > STEP_MOST ? STEP_MOST : step;
    return step < block ? block : step - step % block;
}

/* Bytes from `from` on whose blocks begin before it: only the spans need them. */
static dcp_status take_head(struct shard_file *file, uint64_t from, struct verify_span *spans,
                            size_t span_count, unsigned char *bytes)
{
    size_t next = 0;
    if (span_count == 0 || from >= file->content_length)
        return DCP_OK;
    size_t size = (size_t)(block_from(file, from) - from);
    if (spans[0].offset < from || spans[0].offset - from >= size)
        return DCP_OK;
    RETURN_IF_ERROR(shard_file_read(file, bytes, size, from));
    take_spans(spans, span_count, &next, bytes, size, from);
    return DCP_OK;
}

static dcp_status verify_range(struct verification *verification, struct shard_file *file,
                               uint64_t from, uint64_t end, struct verify_span *spans,
                               size_t span_count)
{
    struct shard_sums_window window = {0};
    size_t step = step_bytes(file), next = 0;
    unsigned char *bytes = memory_allocate(step);
    if (!bytes)
        return error_no_memory(step, "blocks of a file");
    /* What cannot be read here will be found by the block or the record that it lies in. */
    dcp_status status = take_head(file, from, spans, span_count, bytes);
    end = block_from(file, end);
    status = verification_is_own(status) ? status : DCP_OK;
    for (uint64_t offset = block_from(file, from); offset < end && status == DCP_OK;
         offset += step) {
        size_t size = end - offset < step ? (size_t)(end - offset) : step;
        status = shard_file_read(file, bytes, size, offset);
        if (status == DCP_OK) {
            status = verify_step(verification, file, offset, size, &window, bytes);
            take_spans(spans, span_count, &next, bytes, size, offset);
        }
        status = verification_judge(verification, status, file->name, offset, "");
        if (status == DCP_OK)
            status = verification_advance(verification, size);
    }
    shard_sums_close(&window);
    memory_release(bytes);
    return status;
}

dcp_status verify_blocks(struct verification *verification, uint32_t index, uint64_t from,
                         uint64_t end, struct verify_span *spans, size_t span_count)
{
    struct shard_file *file;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = DCP_OK;
    if (file->footer == FOOTER_GOOD)
        status = verify_range(verification, file, from, end, spans, span_count);
    shard_file_release(verification->reader, file);
    return status;
}

/* The checksum alone, of a file whose blocks have none. */
static dcp_status take_span(struct verification *verification, struct shard_file *file,
                            struct verify_span *span)
{
    size_t step = step_bytes(file), next = 0;
    unsigned char *bytes = memory_allocate(step);
    dcp_status status = DCP_OK;
    if (!bytes)
        return error_no_memory(step, "a part of a tensor");
    while (span->taken < span->length && status == DCP_OK) {
        uint64_t offset = span->offset + span->taken, left = span->length - span->taken;
        size_t size = left < step ? (size_t)left : step;
        status = shard_file_read(file, bytes, size, offset);
        if (status != DCP_OK)
            break;
        take_spans(span, 1, &next, bytes, size, offset);
        status = verification_advance(verification, size);
    }
    memory_release(bytes);
    return status;
}

dcp_status verify_part(struct verification *verification, uint32_t index, uint64_t from,
                       uint64_t end, struct verify_span *span)
{
    struct shard_file *file;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = file->footer == FOOTER_GOOD
                            ? verify_range(verification, file, from, end, span, 1)
                            : take_span(verification, file, span);
    shard_file_release(verification->reader, file);
    return verification_is_own(status) ? status : DCP_OK; /* the record will have the fault */
}

dcp_status verify_file(struct verification *verification, uint32_t index, bool *usable)
{
    const char *name = verification->reader->metadata->files[index];
    struct shard_file *file;
    *usable = false;
    dcp_status status = shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file);
    if (status != DCP_OK)
        return verification_judge(verification, status, name, 0, "");
    *usable = true;
    if (file->footer == FOOTER_DAMAGED)
        status = verification_judge(verification, shard_footer_blame(file), name,
                                    file->content_length, "");
    shard_file_release(verification->reader, file);
    return status;
}

static bool piece_equal(const struct metadata_piece *a, const struct metadata_piece *b,
                        int32_t ndim)
{
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    return a->offset == b->offset && a->length == b->length &&
           (bytes == 0 ||
            (memcmp(a->offsets, b->offsets, bytes) == 0 && memcmp(a->sizes, b->sizes, bytes) == 0));
}

static bool entry_equal(const struct metadata_entry *a, const struct metadata_entry *b)
{
    if (a->is_tensor != b->is_tensor)
        return false;
    return !a->is_tensor ||
           (a->dtype == b->dtype && a->ndim == b->ndim &&
            (a->ndim == 0 || memcmp(a->global_shape, b->global_shape,
                                    (size_t)a->ndim * sizeof *a->global_shape) == 0));
}

/* Both usually list the pieces of a file in the same order: *next is where the search begins. */
static bool entry_has_piece(const struct metadata_entry *entry, uint32_t file,
                            const struct metadata_piece *piece, size_t *next)
{
    for (size_t i = 0; i < entry->piece_count; i++) {
        size_t place = (*next + i) % entry->piece_count;
        const struct metadata_piece *candidate = &entry->pieces[place];
        if (candidate->file != file ||
            !piece_equal(candidate, piece, entry->is_tensor ? entry->ndim : 0))
            continue;
        *next = place + 1;
        return true;
    }
    return false;
}

static void verify_contents(struct verification *verification, const struct shard_file *file,
                            uint32_t index, const struct footer *footer, size_t piece_count)
{
    size_t listed = 0;
    for (size_t i = 0; i < footer->contents.count; i++) {
        const struct metadata_entry *recorded = &footer->contents.entries[i];
        const struct metadata_entry *entry = metadata_find(verification->metadata, recorded->name);
        listed += recorded->piece_count;
        if (!entry || !entry_equal(recorded, entry)) {
            verification_fault(
                verification, file->name, footer->content_length, recorded->name,
                entry ? "the kind, dtype or shape in the footer differs from the metadata"
                      : "in the footer, but not in the metadata");
            continue;
        }
        for (size_t p = 0, next = 0; p < recorded->piece_count; p++) {
            if (!entry_has_piece(entry, index, &recorded->pieces[p], &next))
                verification_fault(
                    verification, file->name, recorded->pieces[p].offset, recorded->name,
                    "a piece of %" PRIu64 " bytes is in the footer, but not in the metadata",
                    recorded->pieces[p].length);
        }
    }
    if (listed != piece_count)
        verification_fault(verification, file->name, footer->content_length, "",
                           "the metadata has %zu pieces in this file, but its footer has %zu",
                           piece_count, listed);
}

/* Bytes behind the last piece that are not a footer are the rest of a damaged one; but some
 * compressors leave a few bytes. */
static void verify_end(struct verification *verification, const struct shard_file *file,
                       const struct placed_piece *placed, size_t count)
{
    uint64_t end = 0;
    bool compressed = false;
    for (size_t i = 0; i < count; i++) {
        const struct metadata_piece *piece = placed[i].piece;
        compressed |= piece->zstd;
        if (piece->offset > shard_file_size(file) ||
            piece->length > shard_file_size(file) - piece->offset)
            return; /* the file is truncated: pieces outside it will be reported */
        if (piece->offset + piece->length > end)
            end = piece->offset + piece->length;
    }
    if (end < shard_file_size(file) && !compressed)
        verification_fault(verification, file->name, end, "",
                           "%" PRIu64 " bytes behind the last piece are not a footer",
                           shard_file_size(file) - end);
}

dcp_status verify_account(struct verification *verification, uint32_t index,
                          const struct placed_piece *placed, size_t count)
{
    struct shard_file *file;
    struct footer footer;
    bool found = false;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = DCP_OK;
    if (file->footer == FOOTER_GOOD) {
        verification->some_footers = true;
        status = footer_decode(shard_file_source(file), &footer, &found);
        if (status == DCP_OK && found) {
            verify_contents(verification, file, index, &footer, count);
            footer_free(&footer);
        }
    } else if (file->footer == FOOTER_NONE) {
        verification->bare[index] = true;
        verify_end(verification, file, placed, count);
    }
    status = verification_judge(verification, status, file->name, 0, "");
    shard_file_release(verification->reader, file);
    return status;
}

void verify_bare_files(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    for (size_t i = 0; i < metadata->file_count && verification->some_footers; i++) {
        if (verification->bare[i])
            verification_fault(verification, metadata->files[i], 0, "",
                               "no footer, although other files of the checkpoint have one");
    }
}
