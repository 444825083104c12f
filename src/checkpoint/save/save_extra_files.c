/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_extra_files.h"

#include <string.h>

#include "base/checked.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/name_table.h"
#include "base/sized.h"
#include "storage/commit/save_extra.h"

/* ---- what this rank was given ---- */

static dcp_status take_file(const dcp_save_options *options, size_t index,
                            struct save_extra_file *file)
{
    size_t stride = options->extra_files->size_of;
    const dcp_extra_file *theirs =
        (const dcp_extra_file *)((const char *)options->extra_files + index * stride);
    dcp_extra_file ours;
    if (theirs->size_of != stride)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra_files: file %zu has size_of %zu, the first one %zu", index,
                             theirs->size_of, stride);
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, theirs, stride, "dcp_extra_file"));
    if (!ours.name || (!ours.bytes && ours.size > 0))
        return dcp_error_set(DCP_ERR_ARGUMENT, "extra_files: file %zu has no %s", index,
                             ours.name ? "bytes" : "name");
    const char *fault = extra_name_fault(ours.name, strlen(ours.name));
    if (fault)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra_files: \"%.80s\" cannot be the name of an extra file: %s",
                             ours.name, fault);
    *file =
        (struct save_extra_file){ours.name, ours.bytes, ours.size,
                                 ours.size > 0 ? xxh3_64(ours.bytes, ours.size) : xxh3_64("", 0)};
    return DCP_OK;
}

static dcp_status take_files(const dcp_save_options *options, struct save_extra_files *extra,
                             struct name_table *names)
{
    if (options->extra_files->size_of < sizeof options->extra_files->size_of)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra_files has size_of %zu, expected sizeof(dcp_extra_file)",
                             options->extra_files->size_of);
    extra->files = memory_allocate_zeroed(options->extra_file_count, sizeof *extra->files);
    if (!extra->files)
        return error_no_memory(options->extra_file_count * sizeof *extra->files, "extra files");
    for (; extra->count < options->extra_file_count; extra->count++) {
        struct save_extra_file *file = &extra->files[extra->count];
        uint64_t value = 0;
        bool existing;
        RETURN_IF_ERROR(take_file(options, extra->count, file));
        RETURN_IF_ERROR(name_table_add(names, file->name, strlen(file->name), &value, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE, "extra_files: \"%s\" is given twice",
                                 file->name);
    }
    return DCP_OK;
}

dcp_status save_extra_files_take(struct save_extra_files *extra, const dcp_save_options *options)
{
    struct name_table names;
    *extra = (struct save_extra_files){0};
    if (options->extra_file_count == 0)
        return DCP_OK;
    if (!options->extra_files)
        return dcp_error_set(DCP_ERR_ARGUMENT, "extra_files is NULL, extra_file_count is %zu",
                             options->extra_file_count);
    struct memory_account *account = memory_account_enter(NULL);
    name_table_init(&names);
    dcp_status status = take_files(options, extra, &names);
    name_table_free(&names);
    if (status != DCP_OK)
        save_extra_files_free(extra);
    memory_account_enter(account);
    return status;
}

static dcp_status copy_file(struct save_extra_file *copy, const struct save_extra_file *file)
{
    *copy = *file;
    copy->name = memory_copy_text(file->name);
    void *bytes = copy->name ? memory_allocate((size_t)file->size + 1) : NULL;
    if (!bytes) {
        memory_release((void *)(uintptr_t)copy->name);
        return error_no_memory((size_t)file->size, "a copy of an extra file");
    }
    if (file->size > 0)
        memcpy(bytes, file->bytes, (size_t)file->size);
    copy->bytes = bytes;
    return DCP_OK;
}

dcp_status save_extra_files_keep(struct save_extra_files *extra)
{
    struct save_extra_files copies = {.owned = true};
    if (extra->count == 0)
        return DCP_OK;
    struct memory_account *account = memory_account_enter(NULL);
    copies.files = memory_allocate_zeroed(extra->count, sizeof *copies.files);
    dcp_status status = copies.files ? DCP_OK
                                     : error_no_memory(extra->count * sizeof *copies.files,
                                                       "copies of extra files");
    for (; copies.count < extra->count && status == DCP_OK; copies.count++)
        status = copy_file(&copies.files[copies.count], &extra->files[copies.count]);
    if (status == DCP_OK) {
        save_extra_files_free(extra);
        *extra = copies;
    } else {
        copies.count -= copies.count > 0;
        save_extra_files_free(&copies);
    }
    memory_account_enter(account);
    return status;
}

void save_extra_files_free(struct save_extra_files *extra)
{
    for (size_t i = 0; extra->owned && i < extra->count; i++) {
        memory_release((void *)(uintptr_t)extra->files[i].name);
        memory_release((void *)(uintptr_t)extra->files[i].bytes);
    }
    memory_release(extra->files);
    *extra = (struct save_extra_files){0};
}

uint64_t save_extra_files_size(const struct save_extra_files *extra)
{
    uint64_t size = 0;
    for (size_t i = 0; i < extra->count; i++)
        if (!checked_add_u64(size, extra->files[i].size, &size))
            return UINT64_MAX;
    return size;
}

static dcp_status add_file(const struct save_extra_file *given, const char *stored,
                           struct arena *arena, struct extra_file *file)
{
    *file = (struct extra_file){.size = given->size, .digest = given->digest};
    file->name = arena_copy_text(arena, given->name, strlen(given->name));
    file->file = arena_copy_text(arena, stored, strlen(stored));
    return file->name && file->file ? DCP_OK : error_no_memory(EXTRA_FILE_MAX, "an extra file");
}

dcp_status save_extra_files_add(const struct save_extra_files *extra, int rank, uint32_t generation,
                                struct arena *arena, struct metadata *metadata)
{
    size_t before = metadata->extra_file_count, count = before + extra->count;
    struct extra_file *files = arena_allocate_array(arena, count, sizeof *files);
    if (!files)
        return error_no_memory(count * sizeof *files, "extra files");
    if (before > 0)
        memcpy(files, metadata->extra_files, before * sizeof *files);
    for (size_t i = 0; i < extra->count; i++) {
        char stored[EXTRA_FILE_MAX];
        for (size_t k = 0; k < before; k++)
            if (strcmp(files[k].name, extra->files[i].name) == 0)
                return dcp_error_set(DCP_ERR_DUPLICATE,
                                     "extra_files: the checkpoint has a \"%s\" already",
                                     files[k].name);
        extra_file_name(stored, rank, generation, extra->files[i].name);
        RETURN_IF_ERROR(add_file(&extra->files[i], stored, arena, &files[before + i]));
    }
    metadata->extra_files = files;
    metadata->extra_file_count = count;
    return DCP_OK;
}

/* ---- writing ---- */

dcp_status save_extra_files_make(struct save_extra_files *extra,
                                 const struct storage_directory *directory, int rank,
                                 uint32_t generation, bool durable)
{
    char file[EXTRA_FILE_MAX];
    for (extra->written = 0; extra->written < extra->count; extra->written++) {
        const struct save_extra_file *given = &extra->files[extra->written];
        extra_file_name(file, rank, generation, given->name);
        RETURN_IF_ERROR(
            save_extra_write(directory, file, given->bytes, (size_t)given->size, durable));
    }
    return durable && extra->count > 0 ? storage_directory_sync(directory) : DCP_OK;
}

void save_extra_files_unmake(struct save_extra_files *extra,
                             const struct storage_directory *directory, int rank,
                             uint32_t generation)
{
    struct saved_error error;
    char file[EXTRA_FILE_MAX];
    error_save(&error);
    while (extra->written > 0) {
        extra_file_name(file, rank, generation, extra->files[--extra->written].name);
        storage_directory_remove(directory, file);
    }
    error_restore(&error);
}
