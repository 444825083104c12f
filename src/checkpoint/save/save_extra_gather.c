/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of all ranks: the coordinator's metadata lists them, and each rank writes its own. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/name_table.h"
#include "checkpoint/save/saving.h"

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

static dcp_status refuse_twice(const char *name, int rank, int other)
{
    return dcp_error_set(DCP_ERR_DUPLICATE,
                         "extra_files: \"%s\" is given by rank %d and by rank %d: names must be "
                         "unique over all ranks",
                         name, rank < other ? rank : other, rank < other ? other : rank);
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
        return dcp_error_set(DCP_ERR_GROUP,
                             "the message of rank %d about its extra files is truncated", rank);
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

dcp_status save_extra_files_write(dcp_saving *saving)
{
    const struct save_session *session = &saving->session;
    if (saving->extra_files.count > 0 && !save_session_is_open(session))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "extra_files have no place: the storage writer has no directory");
    return save_extra_files_make(&saving->extra_files, &session->directory, saving->file_rank,
                                 session->generation, session->sync);
}

void save_extra_files_discard(dcp_saving *saving)
{
    save_extra_files_unmake(&saving->extra_files, &saving->session.directory, saving->file_rank,
                            saving->session.generation);
}
