/* SPDX-License-Identifier: BSD-3-Clause */
/* Files: whether they are there, and whether those of torch.save are whole, by the end of their zip
 * archive. What is pickled in them is not looked at. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "run/run_check.h"

/* The records of a zip archive, by APPNOTE.TXT 4.3. */
enum {
    LOCAL_SIGNATURE = 0x04034b50,
    CENTRAL_SIGNATURE = 0x02014b50,
    END_SIGNATURE = 0x06054b50,
    LOCATOR_SIGNATURE = 0x07064b50,
    END64_SIGNATURE = 0x06064b50,
    END_SIZE = 22,
    LOCATOR_SIZE = 20,
    END64_SIZE = 56,
    COMMENT_MAX = 65535
};

struct archive {
    struct run_file *file;
    uint64_t directory; /* offset of the central directory */
    uint64_t length;    /* of it */
    uint64_t end;       /* where its end record begins */
};

static dcp_status read_end64(struct archive *archive, const unsigned char *locator, bool *good)
{
    unsigned char record[END64_SIZE];
    uint64_t offset = load_u64(locator + 8);
    *good = false;
    if (offset > archive->end || archive->end - offset < sizeof record)
        return DCP_OK;
    RETURN_IF_ERROR(run_file_read(archive->file, record, sizeof record, offset));
    archive->length = load_u64(record + 40);
    archive->directory = load_u64(record + 48);
    archive->end = offset;
    *good = load_u32(record) == END64_SIGNATURE;
    return DCP_OK;
}

/* *good: there is an end record, and the directory lies before it. tail: the last bytes. */
static dcp_status find_end(struct archive *archive, const unsigned char *tail, size_t size,
                           bool *good)
{
    uint64_t whole = archive->file->file.size;
    *good = false;
    for (size_t at = size - END_SIZE + 1; at-- > 0;) {
        const unsigned char *end = tail + at;
        if (load_u32(end) != END_SIGNATURE || load_u16(end + 20) != size - at - END_SIZE)
            continue;
        archive->end = whole - size + at;
        archive->length = load_u32(end + 12);
        archive->directory = load_u32(end + 16);
        *good = true;
        if (at >= LOCATOR_SIZE && load_u32(end - LOCATOR_SIZE) == LOCATOR_SIGNATURE)
            RETURN_IF_ERROR(read_end64(archive, end - LOCATOR_SIZE, good));
        *good = *good && archive->directory <= archive->end &&
                archive->length <= archive->end - archive->directory && archive->length > 0;
        return DCP_OK;
    }
    return DCP_OK;
}

static dcp_status check_directory(const struct archive *archive, bool *good)
{
    unsigned char signature[4];
    RETURN_IF_ERROR(run_file_read(archive->file, signature, 4, archive->directory));
    *good = load_u32(signature) == CENTRAL_SIGNATURE;
    return DCP_OK;
}

static dcp_status check_archive(struct run_file *file, bool *good)
{
    struct archive archive = {.file = file};
    uint64_t whole = file->file.size;
    *good = false;
    if (whole < END_SIZE)
        return DCP_OK;
    size_t size = whole < END_SIZE + COMMENT_MAX + LOCATOR_SIZE
                      ? (size_t)whole
                      : (size_t)END_SIZE + COMMENT_MAX + LOCATOR_SIZE;
    unsigned char *tail = memory_allocate(size);
    if (!tail)
        return error_no_memory(size, "the end of a file");
    dcp_status status = run_file_read(file, tail, size, whole - size);
    if (status == DCP_OK)
        status = find_end(&archive, tail, size, good);
    if (status == DCP_OK && *good)
        status = check_directory(&archive, good);
    memory_release(tail);
    return status;
}

static dcp_status check_open(struct run_check *check, struct run_file *file, const char *shown)
{
    unsigned char start[4] = {0};
    size_t size = file->file.size < sizeof start ? (size_t)file->file.size : sizeof start;
    bool good;
    RETURN_IF_ERROR(run_file_read(file, start, size, 0));
    if (start[0] == 0x80) /* a pickle, as torch.save wrote before 1.6 */
        return DCP_OK;
    if (load_u32(start) != LOCAL_SIGNATURE)
        return run_check_fault(check, "%s is no file of torch.save", shown);
    RETURN_IF_ERROR(check_archive(file, &good));
    return good ? DCP_OK : run_check_fault(check, "%s is cut short: its archive has no end", shown);
}

dcp_status run_check_torch(struct run_check *check, const char *path)
{
    struct run_file file;
    const char *shown = run_check_shown(check, path);
    dcp_status status = run_file_open(&file, check->place, path);
    if (status == DCP_ERR_NOT_FOUND)
        return run_check_fault(check, "%s is missing", shown);
    if (status != DCP_OK)
        return run_check_judge(check, status);
    check->bytes += file.file.size;
    status = run_check_judge(check, check_open(check, &file, shown));
    run_file_close(&file);
    return status;
}

dcp_status run_check_file(struct run_check *check, const char *path)
{
    uint64_t size;
    bool found;
    RETURN_IF_ERROR(run_place_size(check->place, path, &size, &found));
    check->bytes += size;
    if (!found)
        return run_check_fault(check, "%s is missing", run_check_shown(check, path));
    if (size == 0)
        return run_check_fault(check, "%s is empty", run_check_shown(check, path));
    return DCP_OK;
}
