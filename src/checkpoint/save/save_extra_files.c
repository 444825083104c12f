/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_extra_files.h"

#include <string.h>

#include "base/checked.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "base/sized.h"
#include "checkpoint/save/saving.h"
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

static dcp_status refuse_twice(const char *name, int rank, int other)
{
    if (rank == other)
        return dcp_error_set(DCP_ERR_DUPLICATE, "extra_files: \"%s\" is given twice", name);
    return dcp_error_set(DCP_ERR_DUPLICATE,
                         "extra_files: \"%s\" is given by rank %d and by rank %d: each file by one "
                         "rank, under a name of its own",
                         name, rank < other ? rank : other, rank < other ? other : rank);
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
            return refuse_twice(file->name, 0, 0);
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

/* ---- what all ranks were given ---- */

static dcp_status encode(const struct save_extra_files *extra, struct buffer *message)
{
    for (size_t i = 0; i < extra->count; i++) {
        const struct save_extra_file *file = &extra->files[i];
        buffer_append_text(message, file->name, strlen(file->name));
        buffer_append_u64(message, file->size);
        buffer_append_u64(message, file->digest);
    }
    return buffer_status(message);
}

/* On their way into the coordinator's metadata. */
struct taking {
    struct save_coordinator *coordinator;
    struct extra_file *files;
    struct name_table names; /* and the rank of each */
    uint32_t generation;
    int first_rank; /* in the names of files */
};

static dcp_status take_one(struct taking *taking, int rank, struct reader *reader)
{
    struct save_coordinator *coordinator = taking->coordinator;
    struct extra_file *file = &taking->files[coordinator->metadata.extra_file_count];
    uint64_t other = (uint64_t)rank;
    bool existing;
    size_t length = 0;
    char stored[EXTRA_FILE_MAX];
    const char *text = reader_text(reader, &length);
    *file = (struct extra_file){.size = reader_u64(reader)};
    file->digest = reader_u64(reader);
    if (reader->failed || extra_name_fault(text, length))
        return dcp_error_set(DCP_ERR_GROUP, "what rank %d says of its extra files is cut short",
                             rank);
    file->name = arena_copy_text(&coordinator->extra_names, text, length);
    if (!file->name)
        return error_no_memory(length, "an extra file");
    RETURN_IF_ERROR(name_table_add(&taking->names, file->name, length, &other, &existing));
    if (existing)
        return refuse_twice(file->name, rank, (int)other);
    extra_file_name(stored, taking->first_rank + rank, taking->generation, file->name);
    file->file = arena_copy_text(&coordinator->extra_names, stored, strlen(stored));
    if (!file->file)
        return error_no_memory(sizeof stored, "an extra file");
    coordinator->metadata.extra_file_count++;
    if (!checked_add_u64(coordinator->content, file->size, &coordinator->content))
        coordinator->content = UINT64_MAX;
    return DCP_OK;
}

/* Of a file the least that travels: the length of its name, a letter, size and digest. */
enum { LEAST = 18 };

static dcp_status take_messages(struct taking *taking, const struct group_messages *messages)
{
    struct save_coordinator *coordinator = taking->coordinator;
    size_t most = messages->offsets[messages->count] / LEAST;
    taking->files = arena_allocate_array(&coordinator->extra_names, most, sizeof *taking->files);
    if (!taking->files)
        return error_no_memory(most * sizeof *taking->files, "extra files of all ranks");
    coordinator->metadata.extra_files = taking->files;
    for (int rank = 0; rank < messages->count; rank++) {
        struct reader reader;
        size_t begin = messages->offsets[rank];
        reader_init(&reader, messages->bytes + begin, messages->offsets[rank + 1] - begin);
        while (reader_left(&reader) > 0)
            RETURN_IF_ERROR(take_one(taking, rank, &reader));
    }
    return DCP_OK;
}

static dcp_status take_all(dcp_saving *saving, const struct group_messages *messages)
{
    struct taking taking = {.coordinator = &saving->coordinator,
                            .generation = saving->session.generation,
                            .first_rank = saving->file_rank - saving->rank};
    arena_init(&saving->coordinator.extra_names, 0);
    name_table_init(&taking.names);
    dcp_status status = take_messages(&taking, messages);
    name_table_free(&taking.names);
    return status == DCP_OK ? save_coordinator_check_space(saving) : status;
}

dcp_status save_extra_files_gather(dcp_saving *saving, dcp_status status)
{
    const dcp_save_options *options = &saving->options;
    struct dcp_collective call = {"gathering extra files", options->timeout_seconds};
    struct group_messages messages = {0};
    struct buffer message;
    buffer_init(&message, 0);
    if (status == DCP_OK)
        status = encode(&saving->extra_files, &message);
    status = group_gather(options->group, &call, options->coordinator, status, message.data,
                          message.size, &messages);
    buffer_free(&message);
    if (saving->coordinates && status == DCP_OK)
        status = take_all(saving, &messages);
    group_messages_free(&messages);
    return saving_agree(saving, "comparing extra files", status);
}

/* ---- writing ---- */

static void name_file(const dcp_saving *saving, size_t index, char file[EXTRA_FILE_MAX])
{
    extra_file_name(file, saving->file_rank, saving->session.generation,
                    saving->extra_files.files[index].name);
}

dcp_status save_extra_files_write(dcp_saving *saving)
{
    struct save_extra_files *extra = &saving->extra_files;
    char file[EXTRA_FILE_MAX];
    extra->written = 0;
    if (extra->count == 0)
        return DCP_OK;
    if (!save_session_is_open(&saving->session))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra_files have no place: the storage writer has no directory");
    for (; extra->written < extra->count; extra->written++) {
        const struct save_extra_file *given = &extra->files[extra->written];
        name_file(saving, extra->written, file);
        RETURN_IF_ERROR(
            save_extra_write(&saving->session, file, given->bytes, (size_t)given->size));
    }
    return saving->session.sync ? storage_directory_sync(&saving->session.directory) : DCP_OK;
}

void save_extra_files_discard(dcp_saving *saving)
{
    struct save_extra_files *extra = &saving->extra_files;
    struct error_story story;
    char file[EXTRA_FILE_MAX];
    error_save(&story);
    while (extra->written > 0) {
        name_file(saving, --extra->written, file);
        storage_directory_remove(&saving->session.directory, file);
    }
    error_restore(&story);
}
