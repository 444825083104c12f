/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/verify/verify_runs.h"

#include "base/error.h"
#include "format/metadata/metadata_codec.h"

/* Of small pieces that are read at once: stays in a core's cache while it is looked at. More where
 * requests cost time, and a single piece may be larger. */
#define TOGETHER_LEAST ((uint64_t)512 << 10)
#define TOGETHER_MOST  ((uint64_t)8 << 20)
/* From here on they are worth reading around the page cache. */
#define BATCHED_LEAST ((uint64_t)128 << 10)

/* ---- dividing ---- */

static bool is_small(const struct metadata_piece *piece)
{
    return metadata_is_in_stream(piece) && piece->length < SHARD_LARGE &&
           piece->offset <= INT64_MAX;
}

static const struct metadata_piece *piece_at(const struct verify_runs *runs, size_t index)
{
    return runs->placed[index].piece;
}

static uint64_t end_of(const struct metadata_piece *piece)
{
    return piece->offset + piece->length;
}

/* Small neighbours that are read at once, from a piece on. */
static size_t count_together(const struct verify_runs *runs, size_t first, uint64_t from)
{
    size_t i = first;
    while (i < runs->count && is_small(piece_at(runs, i)) &&
           (i == first || end_of(piece_at(runs, i)) <= from + runs->together))
        i++;
    return i - first;
}

/* Others, among which are a few small ones. */
static size_t count_apart(const struct verify_runs *runs, size_t first)
{
    size_t small = first; /* from here on all are small */
    for (size_t i = first; i < runs->count; i++) {
        const struct metadata_piece *piece = piece_at(runs, i);
        if (!is_small(piece))
            small = i + 1;
        else if (end_of(piece) - piece_at(runs, small)->offset >= runs->together)
            return small - first;
    }
    return runs->count - first;
}

static struct verify_run run_at(const struct verify_runs *runs, size_t first, uint64_t from)
{
    struct verify_run run = {.first = first, .from = from, .end = runs->end};
    run.count = count_together(runs, first, from);
    run.together = run.count > 0;
    if (!run.together)
        run.count = count_apart(runs, first);
    if (first + run.count < runs->count) {
        uint64_t next = piece_at(runs, first + run.count)->offset;
        run.end = next > from ? next : from;
    }
    return run;
}

/* ---- reading ---- */

/* What a run's pieces and blocks lie in; false: they are not near each other. */
static bool find_window(const struct verify_runs *runs, const struct verify_run *run,
                        uint64_t *start, uint64_t *end)
{
    *start = run->from;
    *end = verify_blocks_end(runs->file, run->end);
    return run->together && *start < *end && *end - *start < runs->together + SHARD_LARGE;
}

/* Announces what is read at its turn: a small run from beginning to end. */
static dcp_status expect_runs(const struct verify_runs *runs, const struct verify_run *run,
                              const struct runs_ahead *ahead)
{
    if (!run->together)
        return verify_expect(runs->verification, runs->placed + run->first, run->count, run->from,
                             run->end);
    shard_file_expect_group(runs->file, run->from, ahead->reached);
    return DCP_OK;
}

/* Has small runs from one on read around the page cache. */
static dcp_status begin_ahead(const struct verify_runs *runs, const struct verify_run *first,
                              struct runs_ahead *ahead)
{
    struct batch_plan plan = {0};
    struct verify_run run = *first;
    uint64_t start, end;
    *ahead = (struct runs_ahead){.end = run.first + run.count, .reached = run.end};
    while (find_window(runs, &run, &start, &end) &&
           batch_plan_add(&plan, runs->file->index, start, end - start)) {
        ahead->end = run.first + run.count;
        ahead->reached = run.end;
        if (ahead->end == runs->count)
            break;
        run = run_at(runs, ahead->end, ahead->reached);
    }
    if (plan.bytes >= BATCHED_LEAST)
        ahead->batch = read_batch_begin(runs->verification->reader, &plan, DCP_VERIFY_NONE);
    return ahead->batch ? DCP_OK : expect_runs(runs, first, ahead);
}

/* The current run's batch, and the one behind it. */
static dcp_status look_ahead(struct verify_runs *runs)
{
    struct runs_ahead *current = &runs->ahead[0], *next = &runs->ahead[1];
    if (runs->run.first >= current->end) {
        read_batch_end(current->batch);
        *current = *next;
        *next = (struct runs_ahead){0};
    }
    if (current->end == 0)
        RETURN_IF_ERROR(begin_ahead(runs, &runs->run, current));
    if (next->end > 0 || current->end == runs->count)
        return DCP_OK;
    const struct verify_run following = run_at(runs, current->end, current->reached);
    return begin_ahead(runs, &following, next);
}

static void close_window(struct verify_runs *runs)
{
    if (runs->verification->window)
        read_window_close(&runs->window);
    runs->verification->window = NULL;
}

/* What cannot be read at once is read again where it is looked at. */
static dcp_status open_window(struct verify_runs *runs)
{
    struct verification *verification = runs->verification;
    uint64_t start, end;
    if (!find_window(runs, &runs->run, &start, &end))
        return DCP_OK;
    dcp_status status = read_window_open(&runs->window, verification->reader, runs->file->index,
                                         start, end, DCP_VERIFY_NONE, runs->ahead[0].batch);
    if (status != DCP_OK)
        return verification_judge(verification, status, runs->file->name, start, "");
    verification->window = &runs->window;
    return DCP_OK;
}

dcp_status verify_runs_begin(struct verify_runs *runs, struct verification *verification,
                             const struct placed_piece *placed, const struct file_job *job)
{
    *runs = (struct verify_runs){
        .verification = verification, .placed = placed, .count = job->count, .end = job->end};
    runs->run.end = job->from;
    RETURN_IF_ERROR(
        shard_file_acquire(verification->reader, job->file, DCP_VERIFY_NONE, &runs->file));
    uint64_t request = runs->file->file.directory->traits.request_size;
    request = request > TOGETHER_LEAST ? request : TOGETHER_LEAST;
    runs->together = request < TOGETHER_MOST ? request : TOGETHER_MOST;
    return DCP_OK;
}

bool verify_runs_next(struct verify_runs *runs, dcp_status *status)
{
    size_t first = runs->run.first + runs->run.count;
    if (*status != DCP_OK || (runs->begun && first == runs->count))
        return false;
    close_window(runs);
    runs->begun = true;
    runs->run = run_at(runs, first, runs->run.end);
    if (runs->count > 0)
        *status = look_ahead(runs);
    if (*status == DCP_OK)
        *status = open_window(runs);
    return *status == DCP_OK;
}

void verify_runs_end(struct verify_runs *runs)
{
    close_window(runs);
    for (size_t i = 0; i < sizeof runs->ahead / sizeof runs->ahead[0]; i++)
        read_batch_end(runs->ahead[i].batch);
    if (runs->file)
        shard_file_release(runs->verification->reader, runs->file);
}
