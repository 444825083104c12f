/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_emergency.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/random.h"
#include "base/sized.h"
#include "dcp/checkpoint.h"
#include "run/run_signal.h"
#include "run/run_tell.h"

/* Steps that are saved after a signal: ranks may be one apart. */
enum { STEPS_AFTER_SIGNAL = 2 };

/* ---- where ---- */

static dcp_status set_place(dcp_run *run, int index, const dcp_storage *storage, const char *path)
{
    struct run_place *place = &run->emergency.places[index];
    run_place_init(place, storage, path);
    char *absolute = run_place_absolute(place);
    if (!absolute)
        return DCP_ERR_NO_MEMORY;
    char *root = path_join(absolute, run->own.identity);
    memory_release(absolute);
    if (!root)
        return error_no_memory(strlen(path), "where a run saves in an emergency");
    run->emergency.roots[index] = root;
    place->root = root;
    return DCP_OK;
}

/* By itself, before ranks meet. */
static dcp_status set_places(dcp_run *run)
{
    dcp_run_emergency ours;
    const dcp_run_emergency *given = run->options.emergency;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, given, given->size_of, "dcp_run_emergency"));
    if (!ours.path || !*ours.path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "emergency saves of a run need a directory");
    RETURN_IF_ERROR(set_place(run, 0, NULL, ours.path));
    if (ours.copy_path && *ours.copy_path)
        RETURN_IF_ERROR(set_place(run, 1, run->options.storage, ours.copy_path));
    return run->rank == 0
               ? random_bytes(&run->emergency.job, sizeof run->emergency.job, "the number of a job")
               : DCP_OK;
}

dcp_status run_emergency_open(dcp_run *run)
{
    struct run_emergency *emergency = &run->emergency;
    emergency->step = -1;
    emergency->steps_left = STEPS_AFTER_SIGNAL;
    if (!run->options.emergency)
        return DCP_OK;
    RETURN_IF_ERROR(run_agree(run, set_places(run)));
    RETURN_IF_ERROR(run_broadcast(run, &emergency->job, sizeof emergency->job));
    emergency->job >>= 2; /* a number of 63 bits in names */
    return DCP_OK;
}

void run_emergency_free(dcp_run *run)
{
    for (int i = 0; i < RUN_EMERGENCY_PLACES; i++)
        memory_release(run->emergency.roots[i]);
}

/* ---- saving ---- */

static dcp_status save_to(dcp_run *run, int index, const dcp_state *info)
{
    char name[RUN_NAME_MAX];
    const struct run_emergency *emergency = &run->emergency;
    dcp_save_options options = run->save;
    snprintf(name, sizeof name, "emergency_step_%" PRId64 "_%" PRIu64, run->step, emergency->job);
    char *id = run_place_id(&emergency->places[index], name);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    options.group = NULL;
    options.chain = NULL;
    options.storage = emergency->places[index].storage;
    options.without_collectives = true;
    options.rank = run->rank;
    options.overwrite = DCP_OVERWRITE_REPLACE;
    options.has_step = true;
    options.step = run->step;
    options.info = info;
    options.plan_cache = NULL;
    options.extra_files = run->files;
    options.extra_file_count = run->file_count;
    options.metadata = NULL;
    options.figures = NULL;
    options.after_commit = NULL;
    options.check_replicas = DCP_REPLICA_CHECK_OFF;
    double begun = run_now();
    dcp_status status = dcp_save(run->options.state, id, &options);
    if (status == DCP_OK)
        log_line(DCP_LOG_INFO,
                 "rank %d: what it holds of step %" PRId64 " is saved in %s, in %.2f s", run->rank,
                 run->step, id, run_now() - begun);
    memory_release(id);
    return status;
}

static dcp_status save_all(dcp_run *run)
{
    dcp_state *info = run_save_info(run);
    dcp_status status = info ? dcp_state_status(info) : error_no_memory(0, "an emergency save");
    if (status == DCP_OK)
        status = save_to(run, 0, info);
    struct saved_error error;
    error_save(&error);
    if (info && run->emergency.roots[1] && save_to(run, 1, info) != DCP_OK)
        log_line(DCP_LOG_ERROR, "rank %d: step %" PRId64 " was not saved in %s: %s", run->rank,
                 run->step, run->emergency.roots[1], dcp_error_message());
    dcp_state_free(info);
    return status == DCP_OK ? status : error_restore(&error);
}

dcp_status dcp_run_emergency_save(dcp_run *run)
{
    if (!run || !run->emergency.roots[0] || run->step < 0)
        return dcp_error_set(DCP_ERR_STATE,
                             "an emergency save needs a run with dcp_run_emergency, and a step");
    /* Files that the caller has added stay for the next save; those of before_save are added again
     * then. */
    size_t added = run->added_count;
    dcp_status status = run_save_files(run, run->step, true);
    if (status == DCP_OK)
        status = save_all(run);
    run->added_count = run->file_count = added;
    if (status == DCP_OK)
        run->emergency.step = run->step;
    return status;
}

static void save_aloud(dcp_run *run)
{
    if (run->step < 0 || run->emergency.step == run->step || run->saved_step == run->step)
        return;
    if (dcp_run_emergency_save(run) != DCP_OK)
        log_line(DCP_LOG_ERROR, "rank %d: the emergency save of step %" PRId64 " failed: %s",
                 run->rank, run->step, dcp_error_message());
}

void run_emergency_watch(dcp_run *run)
{
    struct run_emergency *emergency = &run->emergency;
    if (!emergency->roots[0] || !run->watches_signals || emergency->steps_left == 0 ||
        emergency->step == run->step || run_signal_seen() == 0)
        return;
    emergency->steps_left--;
    save_aloud(run);
}

void run_emergency_stop(dcp_run *run)
{
    if (run->emergency.roots[0])
        save_aloud(run);
}

/* ---- removing ---- */

static void clean_place(const struct run_place *place, int64_t step)
{
    const dcp_remove_options options = {.storage = place->storage};
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(place, "", &names, &found);
    for (size_t i = 0; status == DCP_OK && i < names.count; i++) {
        int64_t of;
        uint64_t job;
        if (!run_emergency_step(names.names[i], &of, &job) || of > step)
            continue;
        char *id = run_place_id(place, names.names[i]);
        /* Other ranks of the node do the same. */
        dcp_status removed = id ? dcp_checkpoint_remove(id, &options, NULL) : DCP_ERR_NO_MEMORY;
        if (removed != DCP_OK && removed != DCP_ERR_BUSY && removed != DCP_ERR_NOT_FOUND)
            log_line(DCP_LOG_WARNING, "%s/%s was not removed: %s", place->root, names.names[i],
                     dcp_error_message());
        memory_release(id);
    }
    run_names_free(&names);
}

void run_emergency_clean(dcp_run *run, int64_t step)
{
    struct saved_error error;
    error_save(&error);
    for (int i = 0; i < RUN_EMERGENCY_PLACES; i++)
        if (run->emergency.roots[i])
            clean_place(&run->emergency.places[i], step);
    error_restore(&error);
}
