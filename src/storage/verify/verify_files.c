/* SPDX-License-Identifier: BSD-3-Clause */
/* Doing the jobs of a check, on several threads if there is much. */
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/metadata/metadata_codec.h"
#include "storage/verify/verification.h"
#include "storage/verify/verify_runs.h"

/* Less than that is not worth threads. */
#define THREADED_BYTES ((uint64_t)64 << 20)
/* Of threads: also where there are fewer processors, as they wait for disks. */
#define THREADS_LEAST ((size_t)4)
#define THREADS_MOST  ((size_t)8)

/* What the first job of a file found out, for the others. */
struct file_state {
    bool known, usable;
};

struct file_check {
    struct verification *verification;
    struct file_jobs jobs;
    struct file_state *files;
};

/* ---- a job ---- */

/* Checks all records of a .pt file, as no single piece covers them. */
static dcp_status verify_pt(struct verification *verification, uint32_t index)
{
    struct shard_file *file;
    bool has_records, sound = true;
    RETURN_IF_ERROR(shard_file_acquire(verification->reader, index, DCP_VERIFY_NONE, &file));
    dcp_status status = pt_has_records(shard_file_source(file), &has_records);
    if (status == DCP_OK && has_records)
        status = verify_pt_records(verification, file, &sound);
    else if (status == DCP_OK)
        verification->unchecked += shard_file_size(file);
    verification->damaged = !sound;
    shard_file_release(verification->reader, file);
    return status;
}

static dcp_status check_file(const struct file_check *check, struct verification *own,
                             const struct file_job *job)
{
    const struct placed_piece *placed = check->jobs.placed + job->piece;
    enum storage_form form = own->reader->form;
    size_t count = verify_file_pieces(&check->jobs, job);
    if (verify_is_pt(form, placed, count))
        return verify_pt(own, job->file);
    return form == STORAGE_DCP ? verify_account(own, job->file, placed, count) : DCP_OK;
}

/* Joins the checksums of parts of the same data. They become those of the job. False: the check
 * ends. */
static bool join_parts(const struct file_check *check, const struct file_job *job,
                       struct verification *own)
{
    const struct verify_span *all = check->jobs.spans;
    struct verify_span *spans = check->jobs.spans + (job - job->parts)->first_span;
    size_t count = 0;
    for (const struct file_job *part = job - job->parts; part < job; part++) {
        if (!verify_job_await(own->job, &part->taken))
            return false;
        for (size_t i = 0; i < part->span_count; i++) {
            struct verify_span *last = count > 0 ? &spans[count - 1] : NULL;
            const struct verify_span next = all[part->first_span + i];
            if (last && last->offset + last->length == next.offset && last->taken == last->length &&
                next.taken == next.length) {
                last->crc = crc32_join(last->crc, next.crc, next.length);
                last->length = last->taken += next.length;
            } else {
                spans[count++] = next;
            }
        }
    }
    own->spans = spans;
    own->span_count = count;
    return true;
}

/* Where the data of pieces is expected to be. */
static dcp_status find_spans(const struct placed_piece *placed, size_t count,
                             struct verify_span **spans)
{
    *spans = memory_allocate_zeroed(count, sizeof **spans);
    if (!*spans)
        return error_no_memory(count * sizeof **spans, "places of tensors");
    for (size_t i = 0; i < count; i++)
        if (metadata_is_in_stream(placed[i].piece)) /* records of a .pt file have been checked */
            verify_expect_data(&placed[i], &(*spans)[i]);
    return DCP_OK;
}

/* The blocks of a run, then its pieces. divided: the checksums of the first one's data are those
 * that the job's parts have joined, which are the verification's. */
static dcp_status check_run(struct verification *own, uint32_t file,
                            const struct placed_piece *placed, const struct verify_run *run,
                            struct verify_span *spans, bool divided)
{
    const struct verify_span *joined = own->spans;
    size_t joined_count = own->span_count;
    RETURN_IF_ERROR(verify_blocks(own, file, run->from, run->end, spans, run->count));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < run->count && status == DCP_OK; i++) {
        bool is_divided = divided && i == 0;
        own->spans = is_divided ? joined : &spans[i];
        own->span_count = is_divided ? joined_count : 1;
        status = verify_piece(own, &placed[i]);
    }
    own->spans = joined;
    own->span_count = joined_count;
    return status;
}

/* Bytes of pieces, which may have been read with their blocks. */
static uint64_t run_bytes(const struct placed_piece *placed, const struct verify_run *run,
                          bool divided)
{
    uint64_t bytes = 0;
    for (size_t i = divided ? 1 : 0; i < run->count; i++)
        bytes += verify_piece_bytes(&placed[i]);
    return bytes;
}

static dcp_status check_pieces(const struct file_check *check, struct verification *own,
                               const struct file_job *job)
{
    const struct placed_piece *placed = check->jobs.placed + job->piece;
    struct verify_span *spans = NULL;
    struct verify_runs runs;
    uint64_t passed = 0;
    dcp_status status = verify_runs_begin(&runs, own, placed, job);
    if (status == DCP_OK)
        status = find_spans(placed, job->count, &spans);
    while (verify_runs_next(&runs, &status)) {
        size_t first = runs.run.first;
        bool divided = first == 0 && own->span_count > 0;
        status = check_run(own, job->file, placed + first, &runs.run, spans + first, divided);
        passed += run_bytes(placed + first, &runs.run, divided);
        uint64_t done = job->bytes - own->left;
        if (status == DCP_OK)
            status = verification_advance(own, passed > done ? passed - done : 0);
    }
    verify_runs_end(&runs);
    memory_release(spans);
    return status;
}

static dcp_status check_whole(const struct file_check *check, struct verification *own,
                              const struct file_job *job)
{
    dcp_status status = DCP_OK;
    if (job->parts > 0 && !join_parts(check, job, own))
        return DCP_OK;
    if (job->accounts)
        status = check_file(check, own, job);
    return status == DCP_OK ? check_pieces(check, own, job) : status;
}

static dcp_status do_job(void *context, struct verify_job *running, size_t index)
{
    const struct file_check *check = context;
    struct file_job *job = &check->jobs.list[index];
    struct file_state *state = &check->files[job->file];
    struct verification own = *check->verification;
    own.faults = own.unchecked = 0;
    own.job = running;
    own.left = job->bytes;
    dcp_status status = DCP_OK;
    if (job->first) {
        status = verify_file(&own, job->file, &state->usable);
        verify_job_set(running, &state->known);
    } else if (!verify_job_await(running, &state->known)) {
        return DCP_OK; /* the check ends */
    }
    if (status == DCP_OK && state->usable)
        status = job->is_part ? verify_part(&own, job->file, job->from, job->end,
                                            check->jobs.spans + job->first_span, job->span_count)
                              : check_whole(check, &own, job);
    if (job->is_part)
        verify_job_set(running, &job->taken);
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
    return threads < check->jobs.count ? threads : check->jobs.count;
}

/* Adds up what the jobs have found. */
static void collect(const struct file_check *check, struct verification *verification)
{
    for (size_t i = 0; i < check->jobs.count; i++) {
        const struct file_job *job = &check->jobs.list[i];
        verification->faults += job->faults;
        verification->unchecked += job->unchecked;
        verification->some_footers = verification->some_footers || job->some_footers;
    }
}

static dcp_status run_jobs(struct file_check *check)
{
    struct verification *verification = check->verification;
    const struct verify_crew crew = {.work = do_job,
                                     .tell = tell,
                                     .report = verification->report,
                                     .context = check,
                                     .report_context = verification->context};
    uint64_t bytes = 0;
    for (size_t i = 0; i < check->jobs.count; i++) {
        uint64_t more = check->jobs.list[i].bytes;
        bytes += more < (UINT64_MAX >> 2) - bytes ? more : 0;
    }
    verification->progress->total += bytes;
    dcp_status status = verify_crew_run(&crew, check->jobs.count, threads_for(check, bytes));
    read_window_free_rooms(verification->reader);
    collect(check, verification);
    return status;
}

dcp_status verify_files(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    struct file_check check = {.verification = verification};
    dcp_status status = verify_jobs_make(metadata, verification->reader->form, &check.jobs);
    check.files = memory_allocate_zeroed(metadata->file_count, sizeof *check.files);
    verification->bare = memory_allocate_zeroed(metadata->file_count, sizeof(bool));
    verification->some_footers = false; /* the member before may have had some */
    if (status == DCP_OK && (!check.files || !verification->bare))
        status = error_no_memory(metadata->file_count * sizeof *check.files, "a list of files");
    if (status == DCP_OK)
        status = run_jobs(&check);
    if (status == DCP_OK)
        verify_bare_files(verification);
    memory_release(verification->bare);
    verification->bare = NULL;
    memory_release(check.files);
    verify_jobs_free(&check.jobs);
    return status;
}
