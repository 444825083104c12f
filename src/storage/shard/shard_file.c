/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_file.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "format/footer/footer.h"
#include "storage/shard/shard_footer.h"
#include "storage/shard/shard_request.h"

void shard_file_count(struct shard_file *file, uint64_t bytes)
{
    atomic_fetch_add_explicit(&file->reader->bytes_read, bytes, memory_order_relaxed);
}

dcp_status shard_file_read(struct shard_file *file, void *bytes, size_t size, uint64_t offset)
{
    shard_file_count(file, size);
    return storage_file_read(&file->file, bytes, size, offset);
}

static dcp_status read_source(void *context, uint64_t offset, void *bytes, size_t size)
{
    return shard_file_read(context, bytes, size, offset);
}

static dcp_status read_ranges(void *context, const struct byte_range *ranges, size_t count,
                              unsigned char *room, byte_range_visitor visit, void *visiting)
{
    return shard_file_read_ranges(context, ranges, count, room, visit, visiting);
}

struct byte_source shard_file_source(struct shard_file *file)
{
    return (struct byte_source){.read = read_source,
                                .read_ranges = read_ranges,
                                .context = file,
                                .size = shard_file_size(file)};
}

/* What the footer said. */
static void forget_footer(struct shard_file *file)
{
    shard_sums_free(&file->sums);
    memory_release(file->pieces);
    file->sums = (struct shard_sums){0};
    file->pieces = NULL;
    file->piece_count = 0;
    file->footer = FOOTER_NONE;
    file->content_length = shard_file_size(file);
}

static void file_free(struct shard_file *file)
{
    forget_footer(file);
    storage_file_close(&file->file);
    pthread_mutex_destroy(&file->reading);
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
    pthread_mutex_init(&file->reading, NULL);
    bool of_save = reader->form == STORAGE_DCP || reader->form == STORAGE_UNION;
    file->save_id = !of_save ? NULL : member ? member->save_id : reader->metadata->save_id;
    dcp_status status =
        shard_file_explain_missing(reader, member, of_save ? file->save_id : "",
                                   shard_reader_open_name(reader, name, member, &file->file));
    file->content_length = shard_file_size(file);
    if (status == DCP_OK) {
        atomic_fetch_add_explicit(&reader->files_opened, 1, memory_order_relaxed);
        file->memory = memory_account_taken(memory_account_current()) - taken;
        *made = file;
    } else {
        file_free(file);
    }
    return status;
}

/* Reads the footer, once, if files of this kind have one. */
static dcp_status find_footer(struct shard_file *file)
{
    dcp_status status = DCP_OK;
    if (!file->save_id || atomic_load_explicit(&file->ready, memory_order_acquire))
        return DCP_OK;
    pthread_mutex_lock(&file->reading);
    if (!atomic_load_explicit(&file->ready, memory_order_relaxed)) {
        uint64_t taken = memory_account_taken(memory_account_current());
        status = shard_footer_read(file, file->save_id);
        if (status == DCP_OK)
            file->memory += memory_account_taken(memory_account_current()) - taken;
        else
            forget_footer(file);
        atomic_store_explicit(&file->ready, status == DCP_OK, memory_order_release);
    }
    pthread_mutex_unlock(&file->reading);
    return status;
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
    if (reader->pinned) {
        *found = reader->pinned;
        return DCP_OK;
    }
    struct shard_file *file = reader->files[index];
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

/* The file, in use; whether it has a footer may not be known yet. */
static dcp_status acquire_open(struct shard_reader *reader, uint32_t index,
                               struct shard_file **file)
{
    bool is_pinned = reader->pinned && index == 0; /* perhaps before it is listed */
    if (!is_pinned && index >= reader->file_count)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: file number %u, but the checkpoint has %zu",
                             reader->id, (unsigned)index, reader->file_count);
    pthread_mutex_lock(&reader->mutex);
    dcp_status status = find_open(reader, index, file);
    if (status == DCP_OK)
        (*file)->users++;
    pthread_mutex_unlock(&reader->mutex);
    return status;
}

dcp_status shard_file_acquire(struct shard_reader *reader, uint32_t index,
                              dcp_verification verification, struct shard_file **file)
{
    RETURN_IF_ERROR(acquire_open(reader, index, file));
    dcp_status status = find_footer(*file);
    if (status == DCP_OK && (*file)->footer == FOOTER_DAMAGED && verification != DCP_VERIFY_NONE)
        status = shard_footer_blame(*file);
    if (status != DCP_OK)
        shard_file_release(reader, *file);
    return status;
}

dcp_status shard_file_foresee(struct shard_reader *reader, uint32_t index)
{
    struct cached_group group = {.start = UINT64_MAX};
    struct shard_file *file;
    RETURN_IF_ERROR(acquire_open(reader, index, &file));
    if (file->save_id && !atomic_load_explicit(&file->ready, memory_order_acquire)) {
        size_t tail = footer_tail(shard_file_size(file));
        shard_file_expect(file, &group, shard_file_size(file) - tail, tail);
    }
    shard_file_release(reader, file);
    return DCP_OK;
}

void shard_file_retain(struct shard_file *file)
{
    pthread_mutex_lock(&file->reader->mutex);
    file->users++;
    pthread_mutex_unlock(&file->reader->mutex);
}

void shard_file_release(struct shard_reader *reader, struct shard_file *file)
{
    pthread_mutex_lock(&reader->mutex);
    file->users--;
    pthread_mutex_unlock(&reader->mutex);
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
