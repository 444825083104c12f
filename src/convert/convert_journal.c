/* SPDX-License-Identifier: BSD-3-Clause */
/* A journal begins with a line of text and the fingerprint; then come records: bytes and blocks
 * that are done by then, how many blocks are new, their numbers, and a hash of the record. What
 * is behind the last whole record was being written when the conversion ended. */
#include "convert/convert_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"

enum { HEAD_SIZE = sizeof CONVERT_JOURNAL_HEAD - 1 + 8, RECORD_HEAD = 24, RECORD_SUM = 8 };

static dcp_status fail(const char *path, const char *what)
{
    int number = errno;
    return dcp_error_set(number == ENOSPC || number == EDQUOT   ? DCP_ERR_NO_SPACE
                         : number == EMFILE || number == ENFILE ? DCP_ERR_FILE_LIMIT
                                                                : DCP_ERR_IO,
                         "%s: %s: %s", path, what, strerror(number));
}

static char *join(struct arena *arena, const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 1;
    char *text = arena_allocate(arena, size);
    if (text)
        snprintf(text, size, "%s%s", a, b);
    return text;
}

static bool read_at(const struct convert_journal *journal, void *bytes, size_t size,
                    uint64_t offset)
{
    ssize_t got;
    do
        got = pread(journal->file, bytes, size, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)size;
}

static dcp_status write_at(const struct convert_journal *journal, const void *bytes, size_t size,
                           uint64_t offset)
{
    const char *next = bytes;
    while (size > 0) {
        ssize_t written = pwrite(journal->file, next, size, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fail(journal->path, "cannot be written");
        next += written;
        offset += (uint64_t)written;
        size -= (size_t)written;
    }
    return DCP_OK;
}

static dcp_status reserve(struct convert_journal *journal, uint64_t blocks)
{
    size_t capacity = 2 * (size_t)blocks + 64;
    if (blocks <= journal->capacity)
        return DCP_OK;
    uint32_t *numbers = memory_reallocate_array(journal->numbers, capacity, sizeof *numbers);
    if (!numbers)
        return error_no_memory(capacity * sizeof *numbers, "blocks of a journal");
    journal->numbers = numbers;
    journal->capacity = capacity;
    return DCP_OK;
}

/* The record at the journal's end, which has so many bytes. *found: there is a whole one. */
static dcp_status read_record(struct convert_journal *journal, uint64_t length,
                              struct buffer *record, bool *found)
{
    unsigned char head[RECORD_HEAD];
    *found = false;
    if (length < journal->end || length - journal->end < RECORD_HEAD + RECORD_SUM ||
        !read_at(journal, head, sizeof head, journal->end))
        return DCP_OK;
    uint64_t most = (length - journal->end - RECORD_HEAD - RECORD_SUM) / 4;
    uint64_t bytes = load_u64(head), blocks = load_u64(head + 8), added = load_u64(head + 16);
    if (added > most || blocks < added || blocks - added != journal->blocks ||
        bytes < journal->bytes || bytes > INT64_MAX)
        return DCP_OK;
    size_t size = RECORD_HEAD + (size_t)added * 4 + RECORD_SUM;
    buffer_clear(record);
    RETURN_IF_ERROR(buffer_reserve(record, size));
    RETURN_IF_ERROR(reserve(journal, blocks));
    if (!read_at(journal, record->data, size, journal->end) ||
        load_u64(record->data + size - RECORD_SUM) != xxh3_64(record->data, size - RECORD_SUM))
        return DCP_OK;
    for (size_t i = 0; i < added; i++)
        journal->numbers[journal->blocks + i] = load_u32(record->data + RECORD_HEAD + 4 * i);
    journal->bytes = bytes;
    journal->blocks = blocks;
    journal->end += size;
    *found = true;
    return DCP_OK;
}

static dcp_status read_records(struct convert_journal *journal)
{
    struct buffer record;
    struct stat about;
    dcp_status status;
    bool found;
    if (fstat(journal->file, &about) != 0)
        return fail(journal->path, "cannot be looked at");
    buffer_init(&record, 0);
    do
        status = read_record(journal, (uint64_t)about.st_size, &record, &found);
    while (status == DCP_OK && found);
    buffer_free(&record);
    return status;
}

static dcp_status begin_or_continue(struct convert_journal *journal, uint64_t fingerprint)
{
    unsigned char head[HEAD_SIZE], found[HEAD_SIZE];
    memcpy(head, CONVERT_JOURNAL_HEAD, sizeof CONVERT_JOURNAL_HEAD - 1);
    store_u64(head + sizeof CONVERT_JOURNAL_HEAD - 1, fingerprint);
    journal->end = HEAD_SIZE;
    if (!read_at(journal, found, sizeof found, 0)) /* it ended before anything was done */
        return write_at(journal, head, sizeof head, 0);
    if (memcmp(head, found, sizeof head) != 0)
        return dcp_error_set(DCP_ERR_EXISTS,
                             "%s: is of another conversion: its source has changed, or options or "
                             "the version differ; remove it to begin anew",
                             journal->directory);
    RETURN_IF_ERROR(read_records(journal));
    /* What was being written, and records behind a damaged one, which do not continue the next. */
    return ftruncate(journal->file, (off_t)journal->end) == 0
               ? DCP_OK
               : fail(journal->path, "cannot be cut");
}

static dcp_status open_files(struct convert_journal *journal, const char *target)
{
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/')
        length--;
    char *path = arena_copy_text(&journal->arena, target, length);
    if (path)
        journal->directory = join(&journal->arena, path, ".partial");
    if (journal->directory)
        journal->path = join(&journal->arena, journal->directory, "/journal");
    if (!journal->directory || !journal->path)
        return error_no_memory(length, "a path");
    if (mkdir(journal->directory, 0777) != 0 && errno != EEXIST)
        return fail(journal->directory, "cannot be made");
    journal->file = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (journal->file < 0)
        return fail(journal->path, "cannot be opened");
    if (flock(journal->file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return dcp_error_set(DCP_ERR_BUSY, "%s: another process writes it", journal->directory);
    return DCP_OK;
}

dcp_status convert_journal_open(struct convert_journal *journal, uint64_t fingerprint,
                                const char *target)
{
    *journal = (struct convert_journal){.file = -1};
    arena_init(&journal->arena, 0);
    dcp_status status = open_files(journal, target);
    if (status == DCP_OK)
        status = begin_or_continue(journal, fingerprint);
    journal->kept = journal->bytes;
    journal->owned = status == DCP_OK;
    return status;
}

dcp_status convert_journal_note(struct convert_journal *journal, uint64_t blocks, uint64_t bytes,
                                const uint32_t *numbers)
{
    struct buffer record;
    uint64_t added = blocks - journal->blocks;
    RETURN_IF_ERROR(reserve(journal, blocks));
    buffer_init(&record, 0);
    buffer_append_u64(&record, journal->bytes + bytes);
    buffer_append_u64(&record, blocks);
    buffer_append_u64(&record, added);
    for (uint64_t i = 0; i < added; i++) {
        journal->numbers[journal->blocks + i] = numbers ? numbers[i] : 0;
        buffer_append_u32(&record, numbers ? numbers[i] : 0);
    }
    buffer_append_u64(&record,
                      buffer_status(&record) == DCP_OK ? xxh3_64(record.data, record.size) : 0);
    dcp_status status = buffer_status(&record);
    if (status == DCP_OK)
        status = write_at(journal, record.data, record.size, journal->end);
    if (status == DCP_OK) {
        journal->end += record.size;
        journal->blocks = blocks;
        journal->bytes += bytes;
    }
    buffer_free(&record);
    return status;
}

bool convert_journal_is_kept(const struct convert_journal *journal)
{
    return journal->blocks > 0 && !journal->committed;
}

void convert_journal_close(struct convert_journal *journal)
{
    if (journal->owned && !convert_journal_is_kept(journal)) {
        unlink(journal->path);
        rmdir(journal->directory);
    }
    if (journal->file >= 0)
        close(journal->file);
    memory_release(journal->numbers);
    arena_free(&journal->arena);
    *journal = (struct convert_journal){.file = -1};
}
