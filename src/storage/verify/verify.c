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
    if (verification->report && verification->job)
        verify_job_fault(verification->job, file, offset, name, text);
    else if (verification->report)
        verification->report(verification->context, file, offset, name, text);
}

bool verification_is_own(dcp_status status)
{
    return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT || status == DCP_ERR_BUSY ||
           status == DCP_ERR_CANCELLED;
}

bool verification_tell(struct verify_progress *progress)
{
    const struct verify_watch *watch = &progress->watch;
    int64_t interval = 10000000; /* a hundred times a second */
    dcp_progress told = {.phase = DCP_PHASE_READING,
                         .bytes_done = atomic_load(&progress->done),
                         .bytes_total = progress->total};
    if (!watch->progress)
        return true;
    int64_t now = clock_monotonic_ns();
    if (now - progress->told_at < interval && told.bytes_done < told.bytes_total)
        return true;
    progress->told_at = now;
    return watch->progress(watch->context, &told);
}

dcp_status verification_advance(struct verification *verification, uint64_t bytes)
{
    struct verify_job *job = verification->job;
    bytes = bytes < verification->left ? bytes : verification->left;
    verification->left -= bytes;
    atomic_fetch_add(&verification->progress->done, bytes);
    bool goes_on = job && verify_job_is_threaded(job) ? verify_job_goes_on(job)
                                                      : verification_tell(verification->progress);
    return goes_on ? DCP_OK
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

static dcp_status verify_contents(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    RETURN_IF_ERROR(verify_files(verification));
    RETURN_IF_ERROR(verify_extra_files(verification));
    RETURN_IF_ERROR(verify_json(verification));
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
    for (uint32_t i = 0; i < count && status == DCP_OK; i++) {
        bool usable;
        status = verify_file(verification, i, &usable);
        if (status == DCP_OK && usable)
            status = verify_blocks(verification, i, 0, UINT64_MAX, NULL, 0);
    }
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

/* That what PyTorch reads says the same as what this library reads. */
static dcp_status verify_forms(struct verification *verification, const struct storage_place *place)
{
    bool pickles = place->form == STORAGE_DCP || place->form == STORAGE_RANK_LOCAL;
    for (size_t i = 0; pickles && i < place->part_count; i++)
        RETURN_IF_ERROR(verification_judge(
            verification,
            storage_compare_forms(&verification->reader->directory, place->id, place->parts[i]),
            place->parts[i], 0, ""));
    return DCP_OK;
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
    status = verify_forms(verification, place);
    if (status == DCP_OK)
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
    struct verify_progress progress = {.watch = watch ? *watch : (struct verify_watch){0}};
    struct verification verification = {
        .report = report, .context = context, .progress = &progress};
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
