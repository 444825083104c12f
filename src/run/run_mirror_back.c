/* SPDX-License-Identifier: BSD-3-Clause */
/* A run gets back from its mirrors what it has lost. Rank 0 copies, by a thread if there are
 * others, who hear from it meanwhile and so do not give up. */
#include "run/run_mirror_back.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dcp/checkpoint_copy.h"
#include "run/run_side.h"
#include "run/run_tell.h"

enum { SLICE_NS = 50000000, SLICES = 20 }; /* a second between signs of life */

struct fetching {
    dcp_run *run;
    const struct run_choice *damaged; /* NULL: something newer is looked for */
    int64_t step;                     /* the one that the reference names; -1: the newest */
    bool has_local;                   /* the run has one to resume from */
    bool fetched;
    struct saved_error unasked; /* of a mirror that could not be asked, or did not give it */
    char told[400];             /* what was done; "" if nothing */
    dcp_status status;
    struct saved_error error;
    /* Of the thread. */
    pthread_mutex_t mutex;
    bool ended;
};

static void place_of(const dcp_run_mirror *mirror, struct run_place *place)
{
    run_place_init(place, mirror->storage, mirror->path);
}

dcp_status run_mirror_identity(const dcp_run_options *options, struct run_own *own, bool *found)
{
    struct saved_error first = {.status = DCP_OK};
    *found = false;
    for (size_t i = 0; i < options->mirror_count && !*found; i++) {
        dcp_run_mirror mirror;
        struct run_place place;
        RETURN_IF_ERROR(run_mirrors_read(options, i, &mirror));
        place_of(&mirror, &place);
        if (run_mirror_own(&place, own, found) != DCP_OK)
            error_save(&first);
    }
    return *found || first.status == DCP_OK ? DCP_OK : error_restore(&first);
}

/* ---- one mirror ---- */

static dcp_status copy_back(struct fetching *fetching, const struct run_place *from,
                            const char *name, dcp_copied *copied)
{
    const dcp_run *run = fetching->run;
    enum run_owner owner;
    RETURN_IF_ERROR(run_own_owner(&run->place, name, run->own.identity, &owner));
    const dcp_copy_options options = {.source = from->storage,
                                      .destination = run->options.storage,
                                      .replace = owner != RUN_OWNER_OTHER,
                                      .trust_source = true,
                                      .compare_all = fetching->damaged != NULL};
    char *source = run_place_id(from, name), *destination = run_place_id(&run->place, name);
    dcp_status status = source && destination
                            ? dcp_checkpoint_copy(source, destination, &options, copied)
                            : DCP_ERR_NO_MEMORY;
    memory_release(source);
    memory_release(destination);
    return status;
}

static const struct run_whole *find_step(const struct run_wholes *wholes, int64_t step)
{
    for (size_t i = wholes->count; i > 0; i--)
        if (wholes->items[i - 1].verdict == DCP_RUN_KEPT && wholes->items[i - 1].step == step)
            return &wholes->items[i - 1];
    return NULL;
}

/* Whether a mirror's checkpoint is newer than the run's newest, or a later save of the same. */
static dcp_status is_fresher(const struct fetching *fetching, const struct run_place *from,
                             const struct run_whole *theirs, const struct run_whole *ours,
                             bool *fresher)
{
    struct run_made there, here;
    *fresher = !ours || theirs->step > ours->step;
    if (*fresher || theirs->step < ours->step)
        return DCP_OK;
    RETURN_IF_ERROR(run_mirror_made(from, theirs->name, &there));
    RETURN_IF_ERROR(run_mirror_made(&fetching->run->place, ours->name, &here));
    *fresher = strcmp(there.save_id, here.save_id) != 0 && there.unix_time > here.unix_time;
    return DCP_OK;
}

static dcp_status take_from(struct fetching *fetching, const struct run_place *from,
                            const struct run_wholes *there, const struct run_wholes *here)
{
    const dcp_run *run = fetching->run;
    bool named = fetching->step >= 0, fresher;
    const struct run_whole *theirs =
        named ? find_step(there, fetching->step) : run_wholes_newest(there);
    const struct run_whole *ours =
        named ? find_step(here, fetching->step) : run_wholes_newest(here);
    dcp_copied copied;
    if (!theirs)
        return DCP_OK;
    RETURN_IF_ERROR(is_fresher(fetching, from, theirs, ours, &fresher));
    if (!fresher)
        return DCP_OK;
    RETURN_IF_ERROR(copy_back(fetching, from, theirs->name, &copied));
    fetching->fetched = true;
    snprintf(fetching->told, sizeof fetching->told,
             "%s was copied from the mirror %.200s: %" PRIu64 " bytes, and %" PRIu64
             " were here already",
             theirs->name, from->root, copied.bytes, copied.kept_bytes);
    return named ? DCP_OK : run_side_mark(&run->place, &run->own, theirs->name, theirs->step);
}

static dcp_status fetch_newer(struct fetching *fetching, const struct run_place *from)
{
    const dcp_run *run = fetching->run;
    struct run_wholes there = {.count = 0}, here = {.count = 0};
    dcp_status status = run_mirror_look(from, run->own.identity, NULL, &there);
    if (status == DCP_OK)
        status = run_mirror_look(&run->place, run->own.identity, NULL, &here);
    fetching->has_local = fetching->has_local || run_wholes_newest(&here);
    if (status == DCP_OK)
        status = take_from(fetching, from, &there, &here);
    run_wholes_free(&there);
    run_wholes_free(&here);
    return status;
}

static dcp_status fetch_same(struct fetching *fetching, const struct run_place *from)
{
    const struct run_choice *damaged = fetching->damaged;
    struct run_made made;
    dcp_copied copied;
    dcp_status status = run_mirror_made(from, damaged->name, &made);
    if (status == DCP_ERR_NOT_FOUND)
        return DCP_OK;
    if (status != DCP_OK || strcmp(made.save_id, damaged->save_id) != 0)
        return status;
    RETURN_IF_ERROR(copy_back(fetching, from, damaged->name, &copied));
    fetching->fetched = copied.files > 0;
    if (fetching->fetched)
        snprintf(fetching->told, sizeof fetching->told,
                 "%s was damaged, and is repaired from the mirror %.200s: %" PRIu64 " bytes",
                 damaged->name, from->root, copied.bytes);
    return DCP_OK;
}

/* ---- all of them ---- */

static void ask(struct fetching *fetching, const dcp_run_mirror *mirror)
{
    struct run_place from;
    struct run_own own;
    bool found;
    place_of(mirror, &from);
    dcp_status status = run_mirror_own(&from, &own, &found);
    if (status == DCP_OK && (!found || strcmp(own.identity, fetching->run->own.identity) != 0))
        return;
    if (status == DCP_OK)
        status = fetching->damaged ? fetch_same(fetching, &from) : fetch_newer(fetching, &from);
    if (status == DCP_OK)
        return;
    error_save(&fetching->unasked);
    fetching->unasked.status = status;
    log_line(DCP_LOG_ERROR, "%s: the mirror %s could not give what it may have: %s",
             fetching->run->root, mirror->path, fetching->unasked.text);
}

static dcp_status fetch(struct fetching *fetching)
{
    const dcp_run *run = fetching->run;
    struct run_wholes here;
    if (!fetching->damaged) {
        RETURN_IF_ERROR(run_mirror_look(&run->place, run->own.identity, NULL, &here));
        fetching->has_local = run_wholes_newest(&here) != NULL;
        run_wholes_free(&here);
    }
    for (size_t i = 0; i < run->mirrors.count && !(fetching->damaged && fetching->fetched); i++)
        ask(fetching, &run->mirrors.workers[i].mirror);
    if (fetching->damaged || fetching->has_local || fetching->fetched ||
        fetching->unasked.status == DCP_OK)
        return DCP_OK;
    return dcp_error_set(fetching->unasked.status,
                         "%.300s has nothing to resume from, and a mirror that may have failed: "
                         "%.500s; to begin anew, open the run as fresh",
                         run->root, fetching->unasked.text);
}

/* ---- beside ranks that wait ---- */

static void *work(void *argument)
{
    struct fetching *fetching = argument;
    fetching->status = fetch(fetching);
    error_save(&fetching->error);
    pthread_mutex_lock(&fetching->mutex);
    fetching->ended = true;
    pthread_mutex_unlock(&fetching->mutex);
    return NULL;
}

static bool wait_a_slice(struct fetching *fetching)
{
    bool ended = false;
    for (int i = 0; i < SLICES && !ended; i++) {
        pthread_mutex_lock(&fetching->mutex);
        ended = fetching->ended;
        pthread_mutex_unlock(&fetching->mutex);
        if (!ended)
            clock_sleep_ns(SLICE_NS);
    }
    return ended;
}

/* Ranks wait for each other in short slices, however long it takes. */
static dcp_status wait_together(struct fetching *fetching, bool *ended)
{
    const dcp_run *run = fetching->run;
    while (!*ended) {
        *ended = run->rank == 0 && wait_a_slice(fetching);
        RETURN_IF_ERROR(run_tell_flag(run, ended));
    }
    return DCP_OK;
}

static dcp_status fetch_together(struct fetching *fetching)
{
    const dcp_run *run = fetching->run;
    struct thread thread;
    bool ended = false;
    if (run->size == 1)
        return fetch(fetching);
    if (pthread_mutex_init(&fetching->mutex, NULL) != 0)
        return error_no_memory(0, "a resume");
    bool started = run->rank == 0 && thread_start(&thread, work, fetching) == 0;
    if (run->rank == 0 && !started)
        work(fetching);
    dcp_status status = wait_together(fetching, &ended);
    if (started)
        thread_join(&thread);
    if (status == DCP_OK && run->rank == 0 && fetching->status != DCP_OK)
        status = error_restore(&fetching->error);
    pthread_mutex_destroy(&fetching->mutex);
    return run_agree(run, status);
}

/* ---- the calls ---- */

/* Which step the reference means; -1: the newest; -2: nothing that mirrors are asked for. */
static int64_t wanted_step(const dcp_run *run)
{
    const char *reference = run->options.reference;
    struct run_own number = {.before = "", .digits = 1};
    int64_t step;
    if (!reference || !*reference || strcmp(reference, "latest") == 0)
        return -1;
    return run_own_step(&run->own, reference, &step) || run_own_step(&number, reference, &step)
               ? step
               : -2;
}

dcp_status run_mirror_back(dcp_run *run, struct run_chooser *chooser)
{
    struct fetching fetching = {.run = run, .step = wanted_step(run)};
    if (run->options.mirror_count == 0 || run->options.fresh || fetching.step == -2)
        return DCP_OK;
    RETURN_IF_ERROR(fetch_together(&fetching));
    if (fetching.fetched)
        run_chooser_pass_over(chooser, "%s", fetching.told);
    else if (fetching.unasked.status != DCP_OK)
        run_chooser_pass_over(chooser, "%s", "a mirror could not be asked for a newer one");
    return DCP_OK;
}

dcp_status run_mirror_repair(dcp_run *run, const struct run_choice *choice, bool *repaired)
{
    struct fetching fetching = {.run = run, .damaged = choice};
    *repaired = false;
    if (run->options.mirror_count == 0 || !choice->own || !*choice->save_id)
        return DCP_OK;
    RETURN_IF_ERROR(fetch_together(&fetching));
    *repaired = fetching.fetched;
    RETURN_IF_ERROR(run_tell_flag(run, repaired));
    if (*repaired && run->rank == 0)
        log_line(DCP_LOG_WARNING, "%s: %s", run->root, fetching.told);
    return DCP_OK;
}
