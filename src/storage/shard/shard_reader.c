/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader of an open checkpoint: its directories, how it reads, and what it has read. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "storage/open/directory.h"
#include "storage/open/storage_open.h"
#include "storage/shard/shard_file.h"

#define OPEN_FILES 128
/* Of one request, where each of them costs time. */
#define BUFFER_BYTES ((size_t)2 << 20)

struct shard_read_how shard_read_how_usual(void)
{
    return (struct shard_read_how){
        .thread_count = 1, .buffer_bytes = BUFFER_BYTES, .open_files = OPEN_FILES};
}

dcp_status shard_reader_new(const dcp_storage *storage, const char *id, enum storage_form form,
                            struct shard_reader **made)
{
    struct shard_reader *reader = memory_allocate_zeroed(1, sizeof *reader);
    if (!reader)
        return error_no_memory(sizeof *reader, "a reader");
    dcp_status status = storage_keep_id(storage, id, &reader->id);
    if (status != DCP_OK) {
        memory_release(reader);
        return status;
    }
    reader->storage = storage;
    reader->form = form;
    reader->how = shard_read_how_usual();
    reader->rank_count = 1;
    pthread_mutex_init(&reader->mutex, NULL);
    /* Under a limit they come last: see shard_reader_allow_device_lanes(). */
    device_lanes_init(&reader->device_lanes,
                      memory_account_is_limited(memory_account_current()) ? 0 : SIZE_MAX);
    *made = reader;
    return DCP_OK;
}

void shard_reader_set_io(struct shard_reader *reader, uint32_t io, dcp_io_priority priority,
                         struct progress *progress)
{
    reader->progress = progress;
    reader->io = io;
    reader->manners.priority = priority;
}

void shard_reader_set_rank_count(struct shard_reader *reader, size_t rank_count)
{
    reader->rank_count = rank_count;
}

/* The directory that a file is in, open, and the file's name there. Members that the caller chose
 * may be anywhere. */
static dcp_status find_directory(struct shard_reader *reader, const char **name,
                                 const struct metadata_member *member,
                                 const struct storage_directory **found)
{
    struct storage_directory *directory = &reader->directory;
    char *own = NULL;
    if (member && member->chosen) {
        directory = &reader->members[member - reader->metadata->members];
        *name += strlen(member->name) + 1;
    }
    *found = directory;
    if (directory->table)
        return DCP_OK;
    if (directory == &reader->directory && reader->refused)
        return error_restore(reader->refused);
    if (member && member->chosen) {
        own = storage_member_id(reader->id, member->name);
        if (!own)
            return error_no_memory(strlen(reader->id) + strlen(member->name) + 2, "a path");
    }
    dcp_status status =
        storage_directory_open(directory, reader->storage, own ? own : reader->id, 0, NULL);
    memory_release(own);
    return status;
}

/* Names in .metadata are not trusted, so links are not followed; names of safetensors and .pt files
 * come from the caller's own directory, where download caches keep links. */
dcp_status shard_reader_open_name(struct shard_reader *reader, const char *name,
                                  const struct metadata_member *member, struct storage_file *file)
{
    const dcp_storage_access access = {
        .size_of = sizeof access,
        .io = reader->io,
        .priority = reader->manners.priority,
        .trusted = reader->form == STORAGE_SAFETENSORS || reader->form == STORAGE_PT ||
                   reader->form == STORAGE_TRAINING,
    };
    const struct storage_directory *directory;
    RETURN_IF_ERROR(find_directory(reader, &name, member, &directory));
    return storage_file_open(file, directory, name, &access);
}

void shard_reader_take_directory(struct shard_reader *reader, struct storage_directory *opened)
{
    if (!opened->table || reader->directory.table)
        return;
    reader->directory = *opened;
    *opened = (struct storage_directory){0};
}

void shard_reader_open_directory(struct shard_reader *reader)
{
    const struct storage_directory *directory;
    const char *name = "";
    struct saved_error error;
    error_save(&error);
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = find_directory(reader, &name, NULL, &directory);
    if (status != DCP_OK && !reader->refused)
        reader->refused = memory_allocate(sizeof *reader->refused);
    if (status != DCP_OK && reader->refused) {
        error_save(reader->refused);
        reader->refused->status = status;
    }
    pthread_mutex_unlock(&reader->mutex);
    error_restore(&error);
}

dcp_status shard_reader_read_beside(struct shard_reader *reader, const char *name, uint64_t limit,
                                    struct buffer *bytes)
{
    const struct storage_directory *directory = NULL;
    if (reader->form != STORAGE_DCP)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s has no %s of its own", reader->id, name);
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = find_directory(reader, &name, NULL, &directory);
    pthread_mutex_unlock(&reader->mutex);
    RETURN_IF_ERROR(status);
    return storage_read_whole(directory, name, limit, bytes);
}

dcp_status shard_reader_open_extra(struct shard_reader *reader, const struct extra_file *extra,
                                   struct storage_file *file)
{
    const struct metadata *metadata = reader->metadata;
    const struct metadata_member *member =
        metadata->member_count != 0 ? &metadata->members[extra->member] : NULL;
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = shard_reader_open_name(reader, extra->file, member, file);
    pthread_mutex_unlock(&reader->mutex);
    return shard_file_explain_missing(reader, member, member ? member->save_id : metadata->save_id,
                                      status);
}

bool shard_reader_is_far(struct shard_reader *reader)
{
    const struct storage_directory *directory = NULL;
    const char *name = "";
    struct saved_error error;
    if (!reader)
        return false;
    error_save(&error);
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = find_directory(reader, &name, NULL, &directory);
    pthread_mutex_unlock(&reader->mutex);
    error_restore(&error);
    return status == DCP_OK && directory->traits.far;
}

static void add(atomic_uint_fast64_t *figure, uint64_t bytes)
{
    if (bytes != 0)
        atomic_fetch_add_explicit(figure, bytes, memory_order_relaxed);
}

void shard_reader_count(struct shard_reader *reader, const struct shard_tally *tally)
{
    add(&reader->bytes_checked, tally->checked);
    add(&reader->bytes_unchecked, tally->unchecked);
    add(&reader->bytes_bare, tally->bare);
}

void shard_reader_figures(const struct shard_reader *reader, struct shard_read_figures *figures)
{
    *figures = (struct shard_read_figures){
        .bytes_read = atomic_load_explicit(&reader->bytes_read, memory_order_relaxed),
        .bytes_checked = atomic_load_explicit(&reader->bytes_checked, memory_order_relaxed),
        .bytes_unchecked = atomic_load_explicit(&reader->bytes_unchecked, memory_order_relaxed),
        .bytes_bare = atomic_load_explicit(&reader->bytes_bare, memory_order_relaxed),
        .files_opened = atomic_load_explicit(&reader->files_opened, memory_order_relaxed),
        .direct = atomic_load_explicit(&reader->direct, memory_order_relaxed),
        .ring = atomic_load_explicit(&reader->ring, memory_order_relaxed),
    };
}

dcp_status shard_reader_blame(const struct shard_reader *reader, const struct metadata_entry *entry,
                              const struct metadata_piece *piece, dcp_status status)
{
    if (status == DCP_OK)
        return DCP_OK;
    const char *file =
        piece->file < reader->file_count ? reader->metadata->files[piece->file] : "no file";
    return error_prefix(status, "%s (%s:%" PRIu64 ")", entry->name, file, piece->offset);
}
