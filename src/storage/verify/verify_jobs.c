/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/verify/verify_jobs.h"

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"

/* Of a job: no further piece is added from so many bytes or pieces on. A part of a tensor has so
 * many bytes, or more if there would be too many parts. */
#define JOB_BYTES  ((uint64_t)16 << 20)
#define JOB_PIECES ((size_t)256)
#define PARTS_MOST ((uint64_t)16384)
/* Tensors from that size on are divided. */
#define DIVIDED_BYTES (2 * JOB_BYTES)
/* Between records of a .pt file that are read at once, such as headers. */
#define RECORD_GAP ((uint64_t)64 << 10)

struct dividing {
    struct file_jobs *jobs;
    enum storage_form form;
    uint64_t part_bytes;
    size_t next;      /* piece */
    uint64_t reached; /* end of the piece of the file that was divided last */
};

static dcp_status add_job(struct dividing *dividing, const struct file_job *job)
{
    struct file_jobs *jobs = dividing->jobs;
    if (jobs->count == jobs->capacity) {
        size_t capacity = jobs->capacity > 0 ? 2 * jobs->capacity : 64;
        struct file_job *grown = memory_reallocate_array(jobs->list, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "a list of what is checked");
        jobs->list = grown;
        jobs->capacity = capacity;
    }
    jobs->list[jobs->count++] = *job;
    return DCP_OK;
}

static dcp_status add_span(struct dividing *dividing, const struct verify_span *span)
{
    struct file_jobs *jobs = dividing->jobs;
    if (jobs->span_count == jobs->span_capacity) {
        size_t capacity = jobs->span_capacity > 0 ? 2 * jobs->span_capacity : 64;
        struct verify_span *grown = memory_reallocate_array(jobs->spans, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "a list of what is checked");
        jobs->spans = grown;
        jobs->span_capacity = capacity;
    }
    jobs->spans[jobs->span_count++] = *span;
    return DCP_OK;
}

static struct file_job *latest(const struct dividing *dividing)
{
    return &dividing->jobs->list[dividing->jobs->count - 1];
}

/* Parts of the bytes from `from` to `end`, and of the data in them. */
static dcp_status add_parts(struct dividing *dividing, uint32_t file, uint64_t from, uint64_t end,
                            const struct verify_span *data)
{
    uint64_t data_end = data->offset + data->length;
    for (uint64_t stop; from < end; from = stop) {
        stop = end - from > dividing->part_bytes ? from + dividing->part_bytes : end;
        struct file_job part = {.file = file, .from = from, .end = stop, .bytes = stop - from};
        uint64_t last = stop < data_end ? stop : data_end;
        struct verify_span span = {.offset = from > data->offset ? from : data->offset};
        span.length = last > span.offset ? last - span.offset : 0;
        part.is_part = true;
        part.piece = dividing->next;
        part.first_span = dividing->jobs->span_count;
        part.span_count = 1;
        RETURN_IF_ERROR(add_span(dividing, &span));
        RETURN_IF_ERROR(add_job(dividing, &part));
    }
    return DCP_OK;
}

/* Ends the latest job before a piece, whose data is divided if it is large. The next job has the
 * piece. */
static dcp_status begin_job(struct dividing *dividing, const struct metadata_piece *piece,
                            const struct verify_span *data)
{
    struct file_job job = {.file = piece->file, .end = UINT64_MAX, .piece = dividing->next};
    job.from = piece->offset > dividing->reached ? piece->offset : dividing->reached;
    latest(dividing)->end = job.from;
    if (data->length >= DIVIDED_BYTES && piece->offset >= dividing->reached) {
        size_t before = dividing->jobs->count;
        job.from = dividing->reached = piece->offset + piece->length;
        RETURN_IF_ERROR(add_parts(dividing, piece->file, piece->offset, job.from, data));
        job.parts = dividing->jobs->count - before;
    }
    return add_job(dividing, &job);
}

static bool is_full(const struct file_job *job)
{
    return job->bytes >= JOB_BYTES || job->count >= JOB_PIECES;
}

static void add_bytes(struct file_job *job, uint64_t bytes)
{
    job->bytes += bytes < (UINT64_MAX >> 2) - job->bytes ? bytes : 0;
}

/* Pieces up to `end`, which are all of the file. */
static dcp_status divide_pieces(struct dividing *dividing, size_t end)
{
    for (; dividing->next < end; dividing->next++) {
        const struct placed_piece *placed = &dividing->jobs->placed[dividing->next];
        struct verify_span data = {0};
        if (metadata_is_in_stream(placed->piece))
            verify_expect_data(placed, &data);
        if (data.length >= DIVIDED_BYTES || is_full(latest(dividing)))
            RETURN_IF_ERROR(begin_job(dividing, placed->piece, &data));
        struct file_job *job = latest(dividing);
        if (job->count++ > 0 || job->parts == 0)
            add_bytes(job, verify_piece_bytes(placed));
    }
    return DCP_OK;
}

/* A record is added to the latest part, if that is near and not full, or begins one. */
static dcp_status add_record(struct dividing *dividing, uint32_t file,
                             const struct verify_span *data)
{
    struct file_job *part = latest(dividing);
    uint64_t end = data->offset + data->length;
    bool joins = part->is_part && part->end <= data->offset &&
                 data->offset - part->end <= RECORD_GAP && part->bytes < dividing->part_bytes;
    struct file_job made = {.file = file, .from = data->offset, .piece = dividing->next};
    made.is_part = true;
    made.first_span = dividing->jobs->span_count;
    RETURN_IF_ERROR(add_span(dividing, data));
    if (!joins)
        RETURN_IF_ERROR(add_job(dividing, &made));
    part = latest(dividing);
    part->end = end;
    part->bytes += data->length;
    part->span_count++;
    return DCP_OK;
}

/* All pieces of a .pt file are one job, as its objects may share what they refer to, and so are
 * its records, but for the data of tensors. Several pieces may lie in one. */
static dcp_status divide_pt(struct dividing *dividing, size_t end)
{
    struct file_job job = *latest(dividing);
    size_t before = dividing->jobs->count;
    uint64_t reached = 0, bytes = 0;
    job.piece = dividing->next;
    for (; dividing->next < end; dividing->next++, job.count++) {
        const struct placed_piece *placed = &dividing->jobs->placed[dividing->next];
        struct verify_span data;
        verify_expect_data(placed, &data);
        add_bytes(&job, verify_piece_bytes(placed));
        if (data.length == 0 || data.offset < reached)
            continue;
        reached = data.offset + data.length;
        RETURN_IF_ERROR(data.length < DIVIDED_BYTES
                            ? add_record(dividing, job.file, &data)
                            : add_parts(dividing, job.file, data.offset, reached, &data));
        bytes += data.length < UINT64_MAX - bytes ? data.length : 0;
    }
    job.parts = dividing->jobs->count - before;
    if (job.parts == 0) {
        *latest(dividing) = job;
        return DCP_OK;
    }
    job.bytes -= bytes < job.bytes ? bytes : job.bytes;
    job.first = false;
    dividing->jobs->list[before - 1].accounts = false;
    return add_job(dividing, &job);
}

static dcp_status divide_file(struct dividing *dividing, uint32_t file)
{
    const struct file_jobs *jobs = dividing->jobs;
    const struct file_job job = {
        .file = file, .first = true, .accounts = true, .end = UINT64_MAX, .piece = dividing->next};
    size_t count = verify_file_pieces(jobs, &job), end = dividing->next + count;
    dividing->reached = 0;
    RETURN_IF_ERROR(add_job(dividing, &job));
    return verify_is_pt(dividing->form, jobs->placed + dividing->next, count)
               ? divide_pt(dividing, end)
               : divide_pieces(dividing, end);
}

/* So large that there are not too many of them, whatever the pieces claim. */
static uint64_t part_bytes(const struct file_jobs *jobs)
{
    uint64_t total = 0;
    for (size_t i = 0; i < jobs->placed_count; i++) {
        struct verify_span data;
        verify_expect_data(&jobs->placed[i], &data);
        if (data.length > UINT64_MAX - total)
            return UINT64_MAX;
        total += data.length;
    }
    return total / PARTS_MOST > JOB_BYTES ? total / PARTS_MOST : JOB_BYTES;
}

dcp_status verify_jobs_make(const struct metadata *metadata, enum storage_form form,
                            struct file_jobs *jobs)
{
    struct dividing dividing = {.jobs = jobs, .form = form};
    *jobs = (struct file_jobs){0};
    RETURN_IF_ERROR(verify_place_pieces(metadata, jobs));
    dividing.part_bytes = part_bytes(jobs);
    for (uint32_t file = 0; file < metadata->file_count; file++)
        RETURN_IF_ERROR(divide_file(&dividing, file));
    return DCP_OK;
}

void verify_jobs_free(struct file_jobs *jobs)
{
    memory_release(jobs->list);
    memory_release(jobs->spans);
    memory_release(jobs->placed);
    *jobs = (struct file_jobs){0};
}
