/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the bytes of a file past their checksums: those of its blocks, and those of the records
 * that lie in them. */
#include <inttypes.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/verify/verification.h"

/* What is read at a time stays in a processor's cache while its checksums are taken. */
#define STEP_BYTES ((size_t)512 << 10)
/* What is in memory already, so that it stays in a core's own cache for the second checksum. */
#define HELD_STEP ((size_t)64 << 10)
/* And the most, where each request costs time. */
#define STEP_MOST ((size_t)8 << 20)
/* Streams of that size on average are read around the page cache, and only their ends, which are
 * looked at twice, through it: that is little more to read. */
#define ENDS_APART ((uint64_t)128 << 10)

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
                              const unsigned char *bytes)
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

uint64_t verify_blocks_end(const struct shard_file *file, uint64_t end)
{
    if (file->footer == FOOTER_GOOD)
        return block_from(file, end);
    return end < file->content_length ? end : file->content_length;
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

/* Bytes of a file on their way past the checks. */
struct pass {
    struct verification *verification;
    struct shard_file *file;
    struct shard_sums_window window;
    bool has_blocks; /* what passes is whole blocks, which are checked */
    struct verify_span *spans;
    size_t span_count, next;
    uint64_t reached; /* in the file */
};

static dcp_status check_bytes(void *context, uint64_t position, const unsigned char *bytes,
                              size_t size)
{
    struct pass *pass = context;
    if (pass->has_blocks)
        RETURN_IF_ERROR(
            verify_step(pass->verification, pass->file, position, size, &pass->window, bytes));
    take_spans(pass->spans, pass->span_count, &pass->next, bytes, size, position);
    pass->reached = position + size;
    return verification_advance(pass->verification, size);
}

/* What the window has of a file from an offset to an end; NULL: not all of it. */
static const unsigned char *find_held(const struct verification *verification,
                                      const struct shard_file *file, uint64_t offset, uint64_t end)
{
    const struct read_window *window = verification->window;
    if (!window || window->file != file || offset < window->start || end < offset ||
        end - window->start > window->size)
        return NULL;
    return window->bytes + (offset - window->start);
}

/* Bytes in memory, up to `end`. */
static dcp_status pass_held(struct pass *pass, const unsigned char *bytes, uint64_t end)
{
    while (pass->reached < end) {
        uint64_t left = end - pass->reached;
        size_t step = left < HELD_STEP ? (size_t)left : HELD_STEP;
        RETURN_IF_ERROR(check_bytes(pass, pass->reached, bytes, step));
        bytes += step;
    }
    return DCP_OK;
}

/* Up to `end`, or to what could not be read or checked. Requests that cost time are large, and go
 * into one place; others are small, and several are under way at a time. */
static dcp_status pass_bytes(struct pass *pass, uint64_t end)
{
    const unsigned char *held = find_held(pass->verification, pass->file, pass->reached, end);
    if (held)
        return pass_held(pass, held, end);
    size_t step = step_bytes(pass->file);
    unsigned char *bytes = step > STEP_BYTES ? memory_allocate(step) : NULL;
    dcp_status status = DCP_OK;
    if (step > STEP_BYTES && !bytes)
        return error_no_memory(step, "a part of a file");
    while (pass->reached < end && status == DCP_OK) {
        uint64_t left = end - pass->reached;
        size_t size = !bytes || left < step ? (size_t)left : step;
        status =
            shard_file_read_ahead(pass->file, bytes, size, pass->reached, check_bytes, pass, NULL);
    }
    memory_release(bytes);
    return status;
}

/* Bytes from `from` on whose blocks begin before it: only the spans need them. */
static dcp_status take_head(struct pass *pass, uint64_t from)
{
    const struct verify_span *first = pass->spans;
    uint64_t end = from < pass->file->content_length ? block_from(pass->file, from) : from;
    if (pass->span_count == 0 || first->offset < from || first->offset >= end)
        return DCP_OK;
    pass->reached = from;
    return pass_bytes(pass, end);
}

static dcp_status verify_range(struct verification *verification, struct shard_file *file,
                               uint64_t from, uint64_t end, struct verify_span *spans,
                               size_t span_count)
{
    struct pass pass = {
        .verification = verification, .file = file, .spans = spans, .span_count = span_count};
    /* What cannot be read here will be found by the block or the record that it lies in. */
    dcp_status status = take_head(&pass, from);
    status = verification_is_own(status) ? status : DCP_OK;
    end = block_from(file, end);
    pass.has_blocks = true;
    pass.next = 0;
    pass.reached = block_from(file, from);
    while (pass.reached < end && status == DCP_OK) {
        status = pass_bytes(&pass, end);
        if (status == DCP_OK)
            break;
        status = verification_judge(verification, status, file->name, pass.reached, "");
        pass.reached += step_bytes(file);
    }
    shard_sums_close(&pass.window);
    return status;
}

/* The checksums of spans alone, of a file whose blocks have none. */
static dcp_status pass_spans(struct verification *verification, struct shard_file *file,
                             struct verify_span *spans, size_t count)
{
    const struct verify_span *last = &spans[count - 1];
    struct pass pass = {.verification = verification,
                        .file = file,
                        .spans = spans,
                        .span_count = count,
                        .reached = spans->offset};
    return pass_bytes(&pass, last->offset + last->length);
}

/* The same of records from `from` on that are worth reading around the page cache, or are in the
 * window; others, and what cannot be read here, are read with their piece. */
static dcp_status take_worthwhile(struct verification *verification, struct shard_file *file,
                                  uint64_t from, struct verify_span *spans, size_t count)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < count && !verification_is_own(status); i++) {
        uint64_t offset = spans[i].offset, length = spans[i].length;
        if (offset >= from && length > 0 &&
            (length >= SHARD_LARGE || find_held(verification, file, offset, offset + length)))
            status = pass_spans(verification, file, &spans[i], 1);
    }
    return verification_is_own(status) ? status : DCP_OK;
}

dcp_status verify_blocks(struct verification *verification, uint32_t index, uint64_t from,
                         uint64_t end, struct verify_span *spans, size_t span_count)
{
    struct shard_file *file;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = file->footer == FOOTER_GOOD
                            ? verify_range(verification, file, from, end, spans, span_count)
                            : take_worthwhile(verification, file, from, spans, span_count);
    shard_file_release(verification->reader, file);
    return status;
}

dcp_status verify_part(struct verification *verification, uint32_t index, uint64_t from,
                       uint64_t end, struct verify_span *spans, size_t span_count)
{
    struct shard_file *file;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = file->footer == FOOTER_GOOD
                            ? verify_range(verification, file, from, end, spans, span_count)
                            : pass_spans(verification, file, spans, span_count);
    shard_file_release(verification->reader, file);
    return verification_is_own(status) ? status : DCP_OK; /* the record will have the fault */
}

/* Whether the streams of a job are read around the page cache: all of them, with their blocks; else
 * those that are large, if they are most of it. */
static bool are_apart(const struct placed_piece *placed, size_t count, bool has_blocks)
{
    uint64_t all = 0, large = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t length = placed[i].piece->zstd ? 0 : placed[i].piece->length / count;
        all += length;
        large += placed[i].piece->length >= SHARD_LARGE ? length : 0;
    }
    return has_blocks ? all >= ENDS_APART : large > all / 2;
}

/* Whether some of a job will be read: not what only its file accounts for. */
static bool is_read(const struct placed_piece *placed, size_t count, bool has_blocks)
{
    bool read = has_blocks;
    for (size_t i = 0; i < count && !read; i++)
        read = metadata_is_in_stream(placed[i].piece);
    return read;
}

dcp_status verify_expect(struct verification *verification, const struct placed_piece *placed,
                         size_t count, uint64_t from, uint64_t end)
{
    struct shard_file *file;
    RETURN_IF_ERROR(
        shard_file_acquire(verification->reader, placed->piece->file, DCP_VERIFY_NONE, &file));
    bool has_blocks = file->footer == FOOTER_GOOD, apart = are_apart(placed, count, has_blocks);
    bool read = is_read(placed, count, has_blocks);
    if (read && !apart)
        shard_file_expect_group(file, from, end);
    for (size_t i = 0; read && apart && i < count; i++) {
        const struct metadata_piece *piece = placed[i].piece;
        if (has_blocks || piece->length >= SHARD_LARGE)
            shard_file_expect_stream(file, piece->offset, piece->length);
        else
            shard_file_expect_group(file, piece->offset, piece->offset + piece->length);
    }
    shard_file_release(verification->reader, file);
    return DCP_OK;
}
