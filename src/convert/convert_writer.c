/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

/* Smaller writes wait for their neighbours. */
enum { EARLY_BYTES = 64 << 10 };
/* On their way to the disk. */
#define WRITEBACK_BYTES ((uint64_t)16 << 20)
/* From here on a block is worth its own way. */
#define DIRECT_BYTES ((size_t)1 << 20)

void convert_writer_init(struct convert_writer *writer, const struct convert_output *output)
{
    *writer = (struct convert_writer){.output = output, .direct = -1};
}

static void close_direct(struct convert_writer *writer)
{
    if (writer->direct >= 0)
        close(writer->direct);
    writer->direct = -1;
}

void convert_writer_close(struct convert_writer *writer)
{
    close_direct(writer);
}

/* ---- through the page cache ---- */

/* A file system that cannot do it is no failure: then all of it is written at the end. */
static void start_or_await(const struct convert_writer *writer, struct convert_span span,
                           unsigned int how)
{
    sync_file_range(writer->output->files[span.file], (off_t)span.offset, (off_t)span.size, how);
}

/* Adds what was just written, and waits for the disk to have what was written long before. */
static void write_back(struct convert_writer *writer, struct convert_span written)
{
    const size_t most = sizeof writer->spans / sizeof *writer->spans;
    if (writer->output->skip_sync || written.size < EARLY_BYTES)
        return;
    start_or_await(writer, written, SYNC_FILE_RANGE_WRITE);
    writer->spans[(writer->first + writer->count++) % most] = written;
    writer->bytes += written.size;
    while (writer->bytes > WRITEBACK_BYTES || writer->count == most) {
        struct convert_span oldest = writer->spans[writer->first];
        start_or_await(writer, oldest,
                       SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                           SYNC_FILE_RANGE_WAIT_AFTER);
        writer->first = (writer->first + 1) % most;
        writer->count--;
        writer->bytes -= oldest.size;
    }
}

static dcp_status write_buffered(struct convert_writer *writer, const void *bytes,
                                 struct convert_span span)
{
    RETURN_IF_ERROR(convert_output_write(writer->output, span.file, bytes, span.size, span.offset));
    write_back(writer, span);
    return DCP_OK;
}

/* ---- around it ---- */

static bool open_direct(struct convert_writer *writer, size_t file)
{
    if (writer->buffered)
        return false;
    if (writer->direct >= 0 && writer->file == file)
        return true;
    close_direct(writer);
    writer->direct =
        open(writer->output->names[file], O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
    writer->file = file;
    writer->buffered = writer->direct < 0;
    return !writer->buffered;
}

/* Whole pages. Returns the bytes that were taken: what is not is written through the page cache,
 * which knows why. */
static size_t write_pages(struct convert_writer *writer, const unsigned char *bytes, size_t size,
                          uint64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t written = pwrite(writer->direct, bytes + done, size - done, (off_t)(offset + done));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < (ssize_t)MEMORY_PAGE) {
            writer->buffered = written < 0 && errno == EINVAL;
            break;
        }
        done += (size_t)written & ~(MEMORY_PAGE - 1);
    }
    return done;
}

/* The pages that the block begins and ends in are its neighbours' as well. */
static dcp_status write_direct(struct convert_writer *writer, const unsigned char *bytes,
                               struct convert_span span)
{
    size_t head = (size_t)((0 - span.offset) % MEMORY_PAGE);
    size_t pages = (span.size - head) & ~(MEMORY_PAGE - 1);
    size_t end = head + write_pages(writer, bytes + head, pages, span.offset + head);
    RETURN_IF_ERROR(
        write_buffered(writer, bytes, (struct convert_span){span.file, head, span.offset}));
    return write_buffered(writer, bytes + end,
                          (struct convert_span){span.file, span.size - end, span.offset + end});
}

dcp_status convert_writer_write(struct convert_writer *writer, size_t file, const void *bytes,
                                size_t size, uint64_t offset)
{
    const struct convert_span span = {file, size, offset};
    bool fits = size >= DIRECT_BYTES && ((uintptr_t)bytes - offset) % MEMORY_PAGE == 0;
    return fits && !writer->output->skip_sync && open_direct(writer, file)
               ? write_direct(writer, bytes, span)
               : write_buffered(writer, bytes, span);
}
