/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_file.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "format/footer/footer.h"
#include "storage/open/directory.h"
#include "storage/open/storage_open.h"
#include "storage/shard/shard_footer.h"
#include "storage/shard/shard_request.h"

#define OPEN_FILES 128
/* Of one request, where each of them costs time. */
#define BUFFER_BYTES ((size_t)2 << 20)

dcp_status shard_file_read(struct shard_file *file, void *bytes, size_t size, uint64_t offset)
{
    atomic_fetch_add_explicit(&file->reader->bytes_read, size, memory_order_relaxed);
    return storage_file_read(&file->file, bytes, size, offset);
}

static dcp_status read_source(void *context, uint64_t offset, void *bytes, size_t size)
{
    return shard_file_read(context, bytes, size, offset);
}

struct byte_source shard_file_source(struct shard_file *file)
{
    return (struct byte_source){
        .read = read_source, .context = file, .size = shard_file_size(file)};
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
static dcp_status open_name(struct shard_reader *reader, const char *name,
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
    dcp_status status = open_name(reader, extra->file, member, file);
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

static void file_free(struct shard_file *file)
{
    storage_file_close(&file->file);
    shard_sums_free(&file->sums);
    memory_release(file->pieces);
    memory_release(file);
}

static dcp_status file_new(struct shard_reader *reader, const char *name,
                           const struct metadata_member *member, struct shard_file **made)
{
    uint64_t taken = memory_account_taken(memory_account_current());
    struct shard_file *file = memory_allocate_zeroed(1, sizeof *file);
    if (!file)
        return error_no_memory(sizeof *file, "an open file");
    file->name = name;
    file->reader = reader;
    bool of_save = reader->form == STORAGE_DCP || reader->form == STORAGE_UNION;
    const char *save_id = !of_save ? "" : member ? member->save_id : reader->metadata->save_id;
    dcp_status status = shard_file_explain_missing(reader, member, save_id,
                                                   open_name(reader, name, member, &file->file));
    file->content_length = shard_file_size(file);
    if (status == DCP_OK && of_save)
        status = shard_footer_read(file, save_id);
    if (status == DCP_OK) {
        atomic_fetch_add_explicit(&reader->files_opened, 1, memory_order_relaxed);
        file->memory = memory_account_taken(memory_account_current()) - taken;
        *made = file;
    } else {
        file_free(file);
    }
    return status;
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

dcp_status shard_reader_bind(struct shard_reader *reader, const struct metadata *metadata)
{
    reader->files = memory_allocate_zeroed(metadata->file_count, sizeof(struct shard_file *));
    if (!reader->files)
        return error_no_memory(metadata->file_count * sizeof(struct shard_file *), "open files");
    reader->members = memory_allocate_zeroed(metadata->member_count, sizeof *reader->members);
    if (!reader->members)
        return error_no_memory(metadata->member_count * sizeof *reader->members,
                               "the members of a union");
    reader->member_count = metadata->member_count;
    reader->metadata = metadata;
    reader->file_count = metadata->file_count;
    if (reader->pinned)
        reader->pinned->name = metadata->files[0];
    return DCP_OK;
}

dcp_status shard_reader_pin(struct shard_reader *reader, const char *name)
{
    return file_new(reader, name, NULL, &reader->pinned);
}

/* The list of open files; the mutex is held. */
static void list_remove(struct shard_reader *reader, struct shard_file *file)
{
    *(file->newer ? &file->newer->older : &reader->newest) = file->older;
    *(file->older ? &file->older->newer : &reader->oldest) = file->newer;
}

static void list_add(struct shard_reader *reader, struct shard_file *file)
{
    file->newer = NULL;
    file->older = reader->newest;
    *(file->older ? &file->older->newer : &reader->oldest) = file;
    reader->newest = file;
}

/* Closes the file that has been idle longest, if too many are open. */
static bool close_idle(struct shard_reader *reader)
{
    struct shard_file *file = reader->open_count < reader->how.open_files ? NULL : reader->oldest;
    while (file && file->users > 0)
        file = file->newer;
    if (!file)
        return false;
    list_remove(reader, file);
    reader->files[file->index] = NULL;
    reader->open_count--;
    file_free(file);
    return true;
}

struct shard_read_how shard_read_how_usual(void)
{
    return (struct shard_read_how){
        .thread_count = 1, .buffer_bytes = BUFFER_BYTES, .open_files = OPEN_FILES};
}

void shard_reader_set_how(struct shard_reader *reader, const struct shard_read_how *how)
{
    reader->how = *how;
    if (how->plain)
        shard_reader_free_lanes(reader);
    while (reader->open_count > how->open_files && close_idle(reader))
        ;
}

void shard_reader_allow_device_lanes(struct shard_reader *reader, size_t most)
{
    device_lanes_allow(&reader->device_lanes, most);
}

static dcp_status find_open(struct shard_reader *reader, uint32_t index, struct shard_file **found)
{
    struct shard_file *file = reader->files[index];
    if (reader->pinned) {
        *found = reader->pinned;
        return DCP_OK;
    }
    if (file) {
        list_remove(reader, file);
    } else {
        close_idle(reader);
        RETURN_IF_ERROR(file_new(reader, reader->metadata->files[index],
                                 metadata_file_member(reader->metadata, index), &file));
        file->index = index;
        reader->files[index] = file;
        reader->open_count++;
    }
    list_add(reader, file);
    *found = file;
    return DCP_OK;
}

dcp_status shard_file_acquire(struct shard_reader *reader, uint32_t index,
                              dcp_verification verification, struct shard_file **file)
{
    if (index >= reader->file_count)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: file number %u, but the checkpoint has %zu",
                             reader->id, (unsigned)index, reader->file_count);
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = find_open(reader, index, file);
    if (status == DCP_OK)
        (*file)->users++;
    pthread_mutex_unlock(&reader->mutex);
    RETURN_IF_ERROR(status);
    if ((*file)->footer == FOOTER_DAMAGED && verification != DCP_VERIFY_NONE) {
        status = shard_footer_blame(*file);
        shard_file_release(reader, *file);
    }
    return status;
}

void shard_file_release(struct shard_reader *reader, struct shard_file *file)
{
    pthread_mutex_lock(&reader->mutex);
    file->users--;
    pthread_mutex_unlock(&reader->mutex);
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

void shard_reader_free(struct shard_reader *reader)
{
    if (!reader)
        return;
    shard_reader_drop_kept(reader);
    shard_reader_free_lanes(reader);
    for (size_t i = 0; i < reader->file_count; i++) {
        if (reader->files[i])
            file_free(reader->files[i]);
    }
    if (reader->pinned)
        file_free(reader->pinned);
    device_lanes_free(&reader->device_lanes);
    pthread_mutex_destroy(&reader->mutex);
    for (size_t i = 0; i < reader->member_count; i++)
        storage_directory_close(&reader->members[i]);
    storage_directory_close(&reader->directory);
    memory_release(reader->members);
    memory_release(reader->files);
    memory_release(reader->refused);
    memory_release(reader->id);
    memory_release(reader);
}

bool shard_reader_has_blocks(struct shard_reader *reader, uint32_t file)
{
    struct shard_file *opened;
    if (shard_file_acquire(reader, file, DCP_VERIFY_NONE, &opened) != DCP_OK) {
        error_clear();
        return false;
    }
    bool has = opened->footer == FOOTER_GOOD;
    shard_file_release(reader, opened);
    return has;
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
