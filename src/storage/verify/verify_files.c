/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a checkpoint in jobs: runs of neighbouring pieces with the blocks that they lie in,
 * so that all of a job is read once, or again while it is in the page cache. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/stream.h"
#include "storage/verify/verification.h"

/* Of a job: no further piece is added from so many bytes or pieces on. */
#define JOB_BYTES  ((uint64_t)16 << 20)
#define JOB_PIECES ((size_t)256)
/* Less than that is not worth threads. */
#define THREADED_BYTES ((uint64_t)64 << 20)
/* Of threads: also where there are fewer processors, as they wait for disks. */
#define THREADS_LEAST ((size_t)4)
#define THREADS_MOST  ((size_t)8)

struct file_job {
    uint32_t file;
    bool first;         /* of its file */
    uint64_t from, end; /* bytes of the file whose blocks are its own; end UINT64_MAX: all */
    size_t piece, count;
    uint64_t bytes; /* of these */
    /* What was found. */
    uint64_t faults, unchecked;
    bool some_footers;
};

/* What the first job of a file found out, for the others. */
struct file_state {
    bool known, usable;
};

struct file_check {
    struct verification *verification;
    struct placed_piece *placed;
    size_t placed_count;
    struct file_job *jobs;
    size_t count;
    struct file_state *files;
};

/* ---- dividing ---- */

static int compare_placed(const void *left, const void *right)
{
    const struct metadata_piece *a = ((const struct placed_piece *)left)->piece;
    const struct metadata_piece *b = ((const struct placed_piece *)right)->piece;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static dcp_status place_pieces(struct file_check *check)
{
    const struct metadata *metadata = check->verification->metadata;
    size_t total = 0, next = 0;
    for (size_t i = 0; i < metadata->count; i++)
        total += metadata->entries[i].piece_count;
    check->placed = memory_allocate_array(total, sizeof *check->placed);
    check->jobs = memory_allocate_zeroed(total + metadata->file_count, sizeof *check->jobs);
    check->files = memory_allocate_zeroed(metadata->file_count, sizeof *check->files);
    check->verification->bare = memory_allocate_zeroed(metadata->file_count, sizeof(bool));
    if (!check->placed || !check->jobs || !check->files || !check->verification->bare)
        return error_no_memory(total * sizeof *check->placed, "a list of pieces");
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t p = 0; p < entry->piece_count; p++)
            check->placed[next++] = (struct placed_piece){entry, &entry->pieces[p]};
    }
    check->placed_count = total;
    if (total > 1)
        qsort(check->placed, total, sizeof *check->placed, compare_placed);
    return DCP_OK;
}

/* Of a piece in its file; views of one storage have its parts. */
static uint64_t stored_bytes(const struct placed_piece *placed)
{
    uint64_t bytes;
    const struct metadata_piece *piece = placed->piece;
    return piece->encoding == PIECE_VIEW && placed->entry->is_tensor &&
                   shape_bytes(placed->entry->ndim, piece->sizes, placed->entry->dtype, &bytes) &&
                   bytes < piece->length
               ? bytes
               : piece->length;
}

/* Objects of a .pt file may share what they refer to: it is one job. */
static bool is_full(const struct file_job *job, enum storage_form form)
{
    return form != STORAGE_PT && (job->bytes >= JOB_BYTES || job->count >= JOB_PIECES);
}

/* Takes pieces that are all of the file, from `*next` on. */
static void divide_file(struct file_check *check, uint32_t file, size_t *next)
{
    enum storage_form form = check->verification->reader->form;
    struct file_job *job = &check->jobs[check->count++];
    *job = (struct file_job){.file = file, .first = true, .end = UINT64_MAX, .piece = *next};
    for (; *next < check->placed_count; (*next)++) {
        const struct metadata_piece *piece = check->placed[*next].piece;
        if (piece->file != file)
            return;
        if (is_full(job, form)) {
            job->end = piece->offset;
            job = &check->jobs[check->count++];
            *job = (struct file_job){
                .file = file, .from = piece->offset, .end = UINT64_MAX, .piece = *next};
        }
        job->count++;
        uint64_t bytes = stored_bytes(&check->placed[*next]);
        job->bytes += bytes < (UINT64_MAX >> 2) - job->bytes ? bytes : 0;
    }
}

static dcp_status divide(struct file_check *check)
{
    RETURN_IF_ERROR(place_pieces(check));
    size_t next = 0;
    for (uint32_t file = 0; file < check->verification->metadata->file_count; file++)
        divide_file(check, file, &next);
    return DCP_OK;
}

/* ---- a job ---- */

/* Checks all records of a .pt file, as no single piece covers them. */
static dcp_status verify_pt(struct verification *verification, uint32_t index)
{
    struct shard_file *file;
    bool has_records, sound = true;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = pt_has_records(shard_file_source(file), &has_records);
    if (status == DCP_OK && has_records)
        status =
            verify_records(verification, shard_file_source(file), NULL, file->name, 0, "", &sound);
    else if (status == DCP_OK)
        verification->unchecked += shard_file_size(file);
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

/* The pieces of a file: those of its first job, which are the first ones, and those that follow. */
static size_t pieces_of_file(const struct file_check *check, const struct file_job *job)
{
    size_t end = job->piece;
    while (end < check->placed_count && check->placed[end].piece->file == job->file)
        end++;
    return end - job->piece;
}

static dcp_status check_file(const struct file_check *check, struct verification *own,
                             const struct file_job *job, bool *usable)
{
    const struct placed_piece *placed = check->placed + job->piece;
    enum storage_form form = own->reader->form;
    RETURN_IF_ERROR(verify_file(own, job->file, usable));
    if (!*usable)
        return DCP_OK;
    size_t count = pieces_of_file(check, job);
    if (form == STORAGE_PT || (form == STORAGE_TRAINING && is_pt(placed, count)))
        return verify_pt(own, job->file);
    return form == STORAGE_DCP ? verify_account(own, job->file, placed, count) : DCP_OK;
}

/* Where the data of a tensor lies if our writer has laid it out. */
static void expect_data(const struct placed_piece *placed, struct verify_span *span)
{
    const struct metadata_entry *entry = placed->entry;
    const struct metadata_piece *piece = placed->piece;
    struct stream_layout layout;
    *span = (struct verify_span){0};
    if (!entry->is_tensor || piece->encoding != PIECE_STREAM || piece->zstd ||
        stream_tensor_layout(entry->dtype, entry->ndim, piece->sizes, &layout) != DCP_OK ||
        layout.length != piece->length || piece->offset > UINT64_MAX - piece->length)
        return;
    span->offset = piece->offset + layout.data_offset;
    span->length = layout.data_length;
}

static dcp_status check_pieces(const struct file_check *check, struct verification *own,
                               const struct file_job *job)
{
    const struct placed_piece *placed = check->placed + job->piece;
    struct verify_span *spans = memory_allocate_array(job->count, sizeof *spans);
    uint64_t passed = 0; /* bytes of pieces, which may have been read with their blocks */
    if (!spans)
        return error_no_memory(job->count * sizeof *spans, "places of tensors");
    for (size_t i = 0; i < job->count; i++)
        expect_data(&placed[i], &spans[i]);
    dcp_status status = verify_blocks(own, job->file, job->from, job->end, spans, job->count);
    for (size_t i = 0; i < job->count && status == DCP_OK; i++) {
        uint64_t done = job->bytes - own->left;
        own->span = &spans[i];
        status = verify_piece(own, &placed[i]);
        passed += stored_bytes(&placed[i]);
        if (status == DCP_OK)
            status = verification_advance(own, passed > done ? passed - done : 0);
    }
    own->span = NULL;
    memory_release(spans);
    return status;
}

static dcp_status do_job(void *context, struct verify_job *running, size_t index)
{
    const struct file_check *check = context;
    struct file_job *job = &check->jobs[index];
    struct file_state *state = &check->files[job->file];
    struct verification own = *check->verification;
    own.faults = own.unchecked = 0;
    own.job = running;
    own.left = job->bytes;
    dcp_status status = DCP_OK;
    if (job->first) {
        status = check_file(check, &own, job, &state->usable);
        verify_job_set(running, &state->known);
    } else if (!verify_job_await(running, &state->known)) {
        return DCP_OK; /* the check ends */
    }
    if (status == DCP_OK && state->usable)
        status = check_pieces(check, &own, job);
    if (status == DCP_OK)
        status = verification_advance(&own, UINT64_MAX);
    job->faults = own.faults;
    job->unchecked = own.unchecked;
    job->some_footers = own.some_footers;
    return status;
}

/* ---- all of them ---- */

static bool tell(void *context)
{
    const struct file_check *check = context;
    return verification_tell(check->verification->progress);
}

static size_t threads_for(const struct file_check *check, uint64_t bytes)
{
    size_t threads = thread_processor_count();
    if (bytes < THREADED_BYTES)
        return 1;
    threads = threads < THREADS_LEAST ? THREADS_LEAST : threads;
    threads = threads > THREADS_MOST ? THREADS_MOST : threads;
    return threads < check->count ? threads : check->count;
}

dcp_status verify_files(struct verification *verification)
{
    struct file_check check = {.verification = verification};
    const struct verify_crew crew = {.work = do_job,
                                     .tell = tell,
                                     .report = verification->report,
                                     .context = &check,
                                     .report_context = verification->context};
    uint64_t bytes = 0;
    dcp_status status = divide(&check);
    for (size_t i = 0; i < check.count; i++)
        bytes += check.jobs[i].bytes < (UINT64_MAX >> 2) - bytes ? check.jobs[i].bytes : 0;
    verification->progress->total += bytes;
    if (status == DCP_OK)
        status = verify_crew_run(&crew, check.count, threads_for(&check, bytes));
    for (size_t i = 0; i < check.count; i++) {
        verification->faults += check.jobs[i].faults;
        verification->unchecked += check.jobs[i].unchecked;
        verification->some_footers = verification->some_footers || check.jobs[i].some_footers;
    }
    if (status == DCP_OK)
        verify_bare_files(verification);
    memory_release(verification->bare);
    verification->bare = NULL;
    memory_release(check.files);
    memory_release(check.jobs);
    memory_release(check.placed);
    return status;
}
