/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/verify/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "storage/open/storage_open.h"
#include "storage/verify/verification.h"

void verification_fault(struct verification *verification, const char *file, uint64_t offset,
                        const char *name, const char *format, ...)
{
    char text[ERROR_TEXT_MAX], path[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    verification->faults++;
    if (verification->member) {
        snprintf(path, sizeof path, "%s%s%s", verification->member, *file ? "/" : "", file);
        file = path;
    }
    if (verification->report)
        verification->report(verification->context, file, offset, name, text);
}

bool verification_is_own(dcp_status status)
{
    return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT || status == DCP_ERR_BUSY ||
           status == DCP_ERR_CANCELLED;
}

dcp_status verification_advance(struct verification *verification, uint64_t bytes)
{
    const struct verify_watch *watch = &verification->watch;
    dcp_progress *told = &verification->told;
    int64_t interval = 10000000; /* a hundred times a second */
    if (!watch->progress)
        return DCP_OK;
    uint64_t left = verification->file_end - told->bytes_done;
    told->bytes_done += bytes < left ? bytes : left;
    int64_t now = clock_monotonic_ns();
    if (now - verification->told_at < interval && told->bytes_done < told->bytes_total)
        return DCP_OK;
    verification->told_at = now;
    return watch->progress(watch->context, told)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_CANCELLED,
                               "the check was cancelled by its progress function");
}

dcp_status verification_judge(struct verification *verification, dcp_status status,
                              const char *file, uint64_t offset, const char *name)
{
    if (status == DCP_OK || verification_is_own(status))
        return status;
    verification_fault(verification, file, offset, name, "%s", dcp_error_message());
    return DCP_OK;
}

static int compare_placed(const void *left, const void *right)
{
    const struct metadata_piece *a = ((const struct placed_piece *)left)->piece;
    const struct metadata_piece *b = ((const struct placed_piece *)right)->piece;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static dcp_status place_pieces(const struct metadata *metadata, struct placed_piece **placed,
                               size_t *count)
{
    size_t total = 0, next = 0;
    for (size_t i = 0; i < metadata->count; i++)
        total += metadata->entries[i].piece_count;
    *count = total;
    *placed = memory_allocate_array(total, sizeof **placed);
    if (!*placed)
        return error_no_memory(total * sizeof **placed, "a list of pieces");
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t p = 0; p < entry->piece_count; p++)
            (*placed)[next++] = (struct placed_piece){entry, &entry->pieces[p]};
    }
    if (total > 1)
        qsort(*placed, total, sizeof **placed, compare_placed);
    return DCP_OK;
}

/* Checks all records of a .pt file, as no single piece covers them. */
static dcp_status verify_pt(struct verification *verification, uint32_t index)
{
    struct shard_file *file;
    bool sound;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status =
        verify_records(verification, shard_file_source(file), NULL, file->name, 0, "", &sound);
    verification->damaged = !sound;
    shard_file_release(verification->reader, file);
    return status;
}

/* Of a training checkpoint: whether a file is a .pt file, as its pieces say. */
static bool is_pt(const struct placed_piece *placed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (placed[i].piece->encoding == PIECE_VIEW && placed[i].piece->view->has_crc)
            return true;
    return false;
}

/* Streams are read twice: with their file's blocks, and by themselves. */
static uint64_t bytes_to_read(const struct placed_piece *placed, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += placed[i].piece->length < (UINT64_MAX >> 2) - bytes ? placed[i].piece->length : 0;
    return 2 * bytes;
}

static dcp_status verify_one_file(struct verification *verification, uint32_t index,
                                  const struct placed_piece *placed, size_t count)
{
    bool usable;
    verification->file_end = verification->told.bytes_done + bytes_to_read(placed, count);
    RETURN_IF_ERROR(verify_file(verification, index, &usable));
    enum storage_form form = verification->reader->form;
    if (usable && (form == STORAGE_PT || (form == STORAGE_TRAINING && is_pt(placed, count))))
        RETURN_IF_ERROR(verify_pt(verification, index));
    if (usable && form == STORAGE_DCP)
        RETURN_IF_ERROR(verify_account(verification, index, placed, count));
    for (size_t i = 0; i < count && usable; i++) {
        RETURN_IF_ERROR(verify_piece(verification, &placed[i]));
        RETURN_IF_ERROR(verification_advance(verification, placed[i].piece->length));
    }
    return verification_advance(verification, UINT64_MAX);
}

static dcp_status verify_files(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    struct placed_piece *placed;
    size_t count, next = 0;
    RETURN_IF_ERROR(place_pieces(metadata, &placed, &count));
    verification->bare = memory_allocate_zeroed(metadata->file_count, sizeof(bool));
    dcp_status status =
        verification->bare ? DCP_OK : error_no_memory(metadata->file_count, "a list of files");
    verification->told.bytes_total += bytes_to_read(placed, count);
    for (uint32_t file = 0; file < metadata->file_count && status == DCP_OK; file++) {
        size_t first = next;
        while (next < count && placed[next].piece->file == file)
            next++;
        status = verify_one_file(verification, file, placed + first, next - first);
    }
    if (status == DCP_OK)
        verify_bare_files(verification);
    memory_release(verification->bare);
    memory_release(placed);
    return status;
}

static dcp_status verify_contents(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    RETURN_IF_ERROR(verify_files(verification));
    RETURN_IF_ERROR(verify_extra_files(verification));
    /* A member of a union may hold a part of a tensor. */
    for (size_t i = 0; i < metadata->count && !verification->member; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        if (entry->is_tensor)
            RETURN_IF_ERROR(
                verification_judge(verification, metadata_check_entry(entry), "", 0, entry->name));
    }
    return DCP_OK;
}

/* Without metadata, files with footers can still be checked by themselves. Closes the directory. */
static dcp_status verify_loose_files(struct verification *verification,
                                     struct storage_directory *of)
{
    struct directory directory;
    struct metadata names;
    RETURN_IF_ERROR(directory_read(of, &directory));
    size_t count = directory_count(&directory, DIRECTORY_SHARD);
    metadata_init(&names);
    names.files = arena_allocate_array(&names.arena, count, sizeof *names.files);
    names.save_id = "";
    dcp_status status = DCP_OK;
    if (!names.files)
        status = error_no_memory(count * sizeof *names.files, "names of files");
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        names.files[names.file_count++] =
            directory.names[directory.first[DIRECTORY_SHARD] + i].name;
    if (status == DCP_OK)
        status = shard_reader_new(of->table, of->id, STORAGE_DCP, &verification->reader);
    if (status == DCP_OK) {
        shard_reader_take_directory(verification->reader, of);
        status = shard_reader_bind(verification->reader, &names);
    }
    bool usable;
    for (uint32_t i = 0; i < count && status == DCP_OK; i++)
        status = verify_file(verification, i, &usable);
    shard_reader_free(verification->reader);
    verification->reader = NULL;
    metadata_free(&names);
    directory_free(&directory);
    return status;
}

/* Metadata could not be read: checks each of its parts by itself. If none has a fault, the parts do
 * not fit together. */
static dcp_status verify_parts(struct verification *verification, struct storage_place *place,
                               const struct saved_error *error)
{
    uint64_t before = verification->faults;
    for (size_t i = 0; i < place->part_count && place->form != STORAGE_PT; i++) {
        struct metadata part;
        metadata_init(&part);
        dcp_status status = storage_decode_part(place, place->parts[i], &part);
        metadata_free(&part);
        RETURN_IF_ERROR(verification_judge(verification, status, place->parts[i], 0, ""));
    }
    if (verification->faults == before)
        verification_fault(verification, place->part_count == 1 ? place->parts[0] : "", 0, "", "%s",
                           error->text);
    return place->form == STORAGE_DCP ? verify_loose_files(verification, &place->directory)
                                      : DCP_OK;
}

/* There is no metadata. If a save was interrupted there, that is the fault; otherwise there is
 * nothing to check. */
static dcp_status verify_nothing(struct verification *verification, const dcp_storage *storage,
                                 const char *path)
{
    struct saved_error error;
    struct storage_directory of;
    struct directory directory;
    error_save(&error);
    bool shards = false;
    dcp_status status = storage_directory_open(&of, storage, path, 0, NULL);
    if (status == DCP_OK)
        status = directory_read(&of, &directory);
    if (status == DCP_OK) {
        shards = directory_count(&directory, DIRECTORY_SHARD) > 0;
        directory_free(&directory);
    }
    if (!verification_is_own(status))
        status = error_restore(&error);
    if (shards) {
        verification_fault(verification, METADATA_NAME, 0, "", "%s", error.text);
        status = verify_loose_files(verification, &of);
    }
    storage_directory_close(&of);
    return status;
}

static dcp_status verify_place(struct verification *verification, struct storage_place *place,
                               bool *readable)
{
    struct metadata metadata;
    dcp_status status = storage_open_place(place, true, &metadata, &verification->reader);
    *readable = status == DCP_OK;
    if (verification_is_own(status))
        return status;
    if (status != DCP_OK) {
        struct saved_error error;
        error_save(&error);
        return verify_parts(verification, place, &error);
    }
    verification->metadata = &metadata;
    status = verify_contents(verification);
    shard_reader_free(verification->reader);
    metadata_free(&metadata);
    verification->reader = NULL;
    verification->metadata = NULL;
    return status;
}

/* Checks a member by itself, but not that its chunks cover their tensors. */
static dcp_status verify_member(struct verification *verification,
                                const struct storage_place *whole, const char *name, bool *readable)
{
    struct storage_place place;
    verification->member = name;
    *readable = false;
    dcp_status status =
        storage_place_member(whole->storage, whole->id, name, whole->chosen, &place);
    if (status == DCP_OK) {
        status = verify_place(verification, &place, readable);
        storage_place_free(&place);
    } else {
        status = verification_judge(verification, status, "", 0, "");
    }
    verification->member = NULL;
    return status;
}

/* Checks the union of the members: conflicts, and missing parts. */
static dcp_status verify_together(struct verification *verification, struct storage_place *place)
{
    struct metadata metadata;
    struct shard_reader *reader;
    dcp_status status = storage_open_place(place, false, &metadata, &reader);
    if (status != DCP_OK)
        return verification_judge(verification, status, "", 0, "");
    for (size_t i = 0; i < metadata.replica_count && status == DCP_OK; i++) {
        const struct metadata_replica *replica = &metadata.replicas[i];
        status = verification_judge(verification, storage_check_replica(reader, replica),
                                    metadata.files[replica->piece.file], replica->piece.offset,
                                    metadata.entries[replica->entry].name);
    }
    shard_reader_free(reader);
    metadata_free(&metadata);
    return status;
}

static dcp_status verify_union(struct verification *verification, struct storage_place *place)
{
    bool all_readable = true;
    for (size_t i = 0; i < place->part_count; i++) {
        bool readable;
        RETURN_IF_ERROR(verify_member(verification, place, place->parts[i], &readable));
        all_readable = all_readable && readable;
    }
    return all_readable ? verify_together(verification, place) : DCP_OK;
}

/* Logs what could not be checked because it has no checksums. */
static void log_unchecked(const struct verification *verification, enum storage_form form,
                          const char *path)
{
    if (form == STORAGE_SAFETENSORS)
        log_line(DCP_LOG_INFO,
                 "%s: safetensors files have no checksums: only lengths and names were checked",
                 path);
    else if (verification->unchecked > 0)
        log_line(DCP_LOG_INFO,
                 "%s: %" PRIu64 " bytes have no checksum: only their lengths were checked", path,
                 verification->unchecked);
}

dcp_status storage_verify(const dcp_storage *storage, struct storage_location location,
                          dcp_fault_function report, void *context,
                          const struct verify_watch *watch, uint64_t *faults)
{
    struct verification verification = {.report = report,
                                        .context = context,
                                        .watch = watch ? *watch : (struct verify_watch){0},
                                        .told = {.phase = DCP_PHASE_READING}};
    struct storage_place place;
    bool readable;
    dcp_status status = storage_place_find(storage, location, &place);
    place.take = location.take;
    if (status == DCP_OK) {
        status = place.form == STORAGE_UNION ? verify_union(&verification, &place)
                                             : verify_place(&verification, &place, &readable);
        if (status == DCP_OK)
            log_unchecked(&verification, place.form, location.path);
        storage_place_free(&place);
    } else if (status == DCP_ERR_NOT_FOUND) {
        status = verify_nothing(&verification, storage, location.path);
    } else if (status == DCP_ERR_FORMAT || status == DCP_ERR_DUPLICATE) {
        status = verification_judge(&verification, status, SAFETENSORS_INDEX_NAME, 0, "");
    }
    *faults = verification.faults;
    return status;
}
