/* SPDX-License-Identifier: BSD-3-Clause */
/* One file of a checkpoint that is copied: written, read back, compared. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_copy_bytes.h"

/* ---- where it is written ---- */

struct target {
    const dcp_storage *table;
    const struct run_place *place;
    char *id; /* of the directory */
    void *directory;
    dcp_storage_file file;
};

static dcp_status open_target(struct copying *copying, const struct copy_file *file,
                              struct target *target)
{
    const dcp_storage_access access = {
        .size_of = sizeof access, .durable = true, .size = file->size};
    char folder[COPY_PATH_MAX];
    const char *name = run_copy_split(file->path, folder);
    *target = (struct target){.table = copying->to.table, .place = &copying->to};
    target->id = run_place_id(&copying->to, folder);
    if (!target->id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_open(&copying->to, target->id, DCP_OPEN_CREATE | DCP_OPEN_DURABLE,
                                       &target->directory);
    if (status == DCP_OK) {
        status = error_checked(target->table->create(target->table->context, target->directory,
                                                     name, &access, &target->file),
                               "the storage's create");
        if (status != DCP_OK)
            run_place_close(&copying->to, target->directory);
    }
    if (status != DCP_OK)
        memory_release(target->id);
    return status;
}

static dcp_status close_target(struct target *target, uint64_t size, dcp_status status)
{
    const dcp_storage *table = target->table;
    struct saved_error error;
    error_save(&error);
    if (status == DCP_OK) {
        error_clear();
        status = error_checked(
            table->seal(table->context, &target->file, size, DCP_PUBLISH_IF_ABSENT, NULL),
            "the storage's seal");
        if (status == DCP_OK && table->sync)
            status =
                error_checked(table->sync(table->context, target->directory), "the storage's sync");
        error_save(&error);
    } else {
        (table->abandon ? table->abandon : table->close_file)(table->context, &target->file);
    }
    run_place_close(target->place, target->directory);
    memory_release(target->id);
    return status == DCP_OK ? DCP_OK : (error_restore(&error), status);
}

/* ---- bytes ---- */

static dcp_status digest(struct copying *copying, const struct run_place *place, const char *path,
                         uint64_t *size, uint64_t *sum)
{
    struct run_file file;
    RETURN_IF_ERROR(run_file_open_plain(&file, place, path));
    *size = file.file.size;
    dcp_status status = run_copy_bytes(copying, &file, NULL, NULL, place == &copying->to, sum);
    run_file_close(&file);
    return status;
}

static dcp_status transfer_to(struct copying *copying, const struct copy_file *file,
                              struct run_file *from, uint64_t *sum)
{
    struct target target;
    if (from->file.size != file->size)
        return dcp_error_set(DCP_ERR_BUSY,
                             "%s/%s has %" PRIu64 " bytes, and had %" PRIu64
                             " when its copy began: it was replaced",
                             copying->from.root, file->path, from->file.size, file->size);
    RETURN_IF_ERROR(open_target(copying, file, &target));
    dcp_status status = run_copy_bytes(copying, from, target.place, &target.file, true, sum);
    return close_target(&target, file->size, status);
}

static dcp_status transfer(struct copying *copying, const struct copy_file *file, uint64_t *sum)
{
    struct run_file from;
    RETURN_IF_ERROR(run_file_open_plain(&from, &copying->from, file->path));
    dcp_status status = transfer_to(copying, file, &from, sum);
    run_file_close(&from);
    return status;
}

/* ---- what is there ---- */

static dcp_status remove_there(const struct copying *copying, const char *path)
{
    char folder[COPY_PATH_MAX];
    const char *name = run_copy_split(path, folder);
    dcp_status status = run_place_remove(&copying->to, folder, name);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

dcp_status run_copy_withdraw(struct copying *copying)
{
    if (copying->withdrawn)
        return DCP_OK;
    for (size_t i = copying->count; i > 0 && copying->files[i - 1].commits; i--)
        RETURN_IF_ERROR(remove_there(copying, copying->files[i - 1].path));
    copying->withdrawn = true;
    return DCP_OK;
}

dcp_status run_copy_is_there(struct copying *copying, const struct copy_file *file, bool *there)
{
    struct buffer bytes;
    uint64_t size;
    if (!file->commits) {
        RETURN_IF_ERROR(run_place_size(&copying->to, file->path, &size, there));
        *there = *there && size == file->size;
        return DCP_OK;
    }
    buffer_init(&bytes, 0);
    dcp_status status = run_place_read(&copying->to, file->path, file->size, &bytes, there);
    *there = status == DCP_OK && *there && bytes.size == file->size &&
             (file->size == 0 || memcmp(bytes.data, file->content.data, bytes.size) == 0);
    buffer_free(&bytes);
    return status;
}

/* *kept: it has the source's bytes. One that has not is removed. */
static dcp_status judge_there(struct copying *copying, const struct copy_file *file, bool *kept)
{
    uint64_t size, sum, source_size, source_sum;
    bool exists;
    *kept = false;
    RETURN_IF_ERROR(run_place_size(&copying->to, file->path, &size, &exists));
    if (!exists)
        return DCP_OK;
    if (size == file->size) {
        RETURN_IF_ERROR(digest(copying, &copying->to, file->path, &size, &sum));
        RETURN_IF_ERROR(digest(copying, &copying->from, file->path, &source_size, &source_sum));
        *kept = size == source_size && sum == source_sum;
    }
    if (*kept || copying->options.dry_run)
        return DCP_OK;
    if (size == file->size) { /* it was read, and will be once more */
        copying->to_move += 2 * size;
        RETURN_IF_ERROR(progress_enter(&copying->progress, DCP_PHASE_WRITING, copying->to_move));
    }
    RETURN_IF_ERROR(run_copy_withdraw(copying));
    return remove_there(copying, file->path);
}

/* ---- one file ---- */

static dcp_status verify_there(struct copying *copying, const struct copy_file *file, uint64_t sum)
{
    uint64_t size = 0, found = 0;
    dcp_status status = digest(copying, &copying->to, file->path, &size, &found);
    if (status != DCP_OK || (size == file->size && found == sum))
        return status;
    dcp_error_set(DCP_ERR_CHECKSUM,
                  "%s/%s is not what was copied: expected %" PRIu64
                  " bytes with checksum %016" PRIx64 ", found %" PRIu64 " with %016" PRIx64,
                  copying->to.root, file->path, file->size, sum, size, found);
    struct saved_error error;
    error_save(&error);
    remove_there(copying, file->path);
    return error_restore(&error);
}

dcp_status run_copy_file(struct copying *copying, const struct copy_file *file)
{
    uint64_t sum = 0;
    bool kept;
    RETURN_IF_ERROR(run_copy_check_owner(copying));
    RETURN_IF_ERROR(judge_there(copying, file, &kept));
    if (kept) {
        copying->done.kept_files++;
        copying->done.kept_bytes += file->size;
        return DCP_OK;
    }
    if (!copying->options.dry_run) {
        RETURN_IF_ERROR(transfer(copying, file, &sum));
        RETURN_IF_ERROR(verify_there(copying, file, sum));
    }
    copying->done.files++;
    copying->done.bytes += file->size;
    return DCP_OK;
}

dcp_status run_copy_publish(struct copying *copying, const struct copy_file *file)
{
    char folder[COPY_PATH_MAX];
    const char *name = run_copy_split(file->path, folder);
    bool good;
    rate_take(&copying->rate, file->size);
    RETURN_IF_ERROR(run_place_publish(&copying->to, folder, name, file->content.data,
                                      file->content.size, DCP_PUBLISH_ALWAYS));
    RETURN_IF_ERROR(run_copy_is_there(copying, file, &good));
    if (!good) {
        remove_there(copying, file->path);
        return dcp_error_set(DCP_ERR_CHECKSUM, "%s/%s is not what was copied, and was removed",
                             copying->to.root, file->path);
    }
    copying->done.files++;
    copying->done.bytes += file->size;
    return DCP_OK;
}
