/* SPDX-License-Identifier: BSD-3-Clause */
/* Emergency saves that a resume may take: whether one is whole is found out by loading it, which
 * names what is missing before anything is read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_emergency.h"

bool run_emergency_step(const char *name, int64_t *step, uint64_t *job)
{
    struct run_numbers numbers;
    if (!run_name_match("emergency_step_#_%", name, &numbers) || !numbers.has_step)
        return false;
    const char *last = strrchr(name, '_');
    *step = numbers.step;
    *job = strtoull(last + 1, NULL, 10);
    return true;
}

/* Saves in the order in which they are tried: later steps first, and of one step and job the local
 * one. */
struct emergency {
    int64_t step;
    uint64_t job;
    size_t place;
};

static bool is_before(const struct emergency *a, const struct emergency *b)
{
    if (a->step != b->step)
        return a->step > b->step;
    return a->job != b->job ? a->job > b->job : a->place < b->place;
}

static struct emergency last_tried(const struct run_chooser *chooser)
{
    return (struct emergency){chooser->emergency_step, chooser->emergency_job,
                              chooser->emergency_place};
}

/* *best: the first one behind those that were tried; a place that cannot be listed has none. */
static dcp_status look_in(const struct run_chooser *chooser, size_t index, int64_t newer_than,
                          struct emergency *best, bool *found)
{
    const struct run_place *place = &chooser->run->emergency.places[index];
    const struct emergency tried = last_tried(chooser);
    struct run_names names;
    bool is_there;
    dcp_status status = run_place_list(place, "", &names, &is_there);
    for (size_t i = 0; status == DCP_OK && i < names.count; i++) {
        struct emergency one = {.place = index};
        if (run_emergency_step(names.names[i], &one.step, &one.job) && one.step > newer_than &&
            is_before(&tried, &one) && (!*found || is_before(&one, best))) {
            *best = one;
            *found = true;
        }
    }
    run_names_free(&names);
    return run_place_gives_up(status) ? status : DCP_OK;
}

static dcp_status judge(struct run_chooser *chooser, const struct emergency *emergency,
                        struct run_choice *choice)
{
    const dcp_run *run = chooser->run;
    const struct run_place *place = &run->emergency.places[emergency->place];
    char name[RUN_NAME_MAX];
    snprintf(name, sizeof name, "emergency_step_%" PRId64 "_%" PRIu64, emergency->step,
             emergency->job);
    *choice = (struct run_choice){
        .kind = DCP_RUN_EMERGENCY, .step = emergency->step, .local = emergency->place == 0};
    char *id = run_place_id(place, name);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    snprintf(choice->path, sizeof choice->path, "%.4000s", id);
    memory_release(id);
    dcp_status status = run_chooser_stamp(chooser, place, name, choice);
    if (status != DCP_OK)
        run_chooser_pass_over(chooser, "%.400s", dcp_error_message());
    else if (!run_chooser_wants(chooser, DCP_RUN_EMERGENCY))
        run_chooser_pass_over(chooser, "%s is of kind emergency", choice->path);
    else if (choice->no_optimizer && !run->options.allow_missing_optimizer &&
             !run->options.skip_optimizer)
        run_chooser_pass_over(chooser, "%s is a model only", choice->path);
    else
        choice->found = true;
    return run_place_gives_up(status) ? status : DCP_OK;
}

dcp_status run_emergency_next(struct run_chooser *chooser, int64_t newer_than,
                              struct run_choice *choice)
{
    const dcp_run *run = chooser->run;
    for (choice->found = false; !choice->found;) {
        struct emergency best = {0};
        bool found = false;
        for (size_t i = 0; i < RUN_EMERGENCY_PLACES; i++)
            if (run->emergency.roots[i])
                RETURN_IF_ERROR(look_in(chooser, i, newer_than, &best, &found));
        if (!found)
            return DCP_OK;
        chooser->emergency_step = best.step;
        chooser->emergency_job = best.job;
        chooser->emergency_place = best.place;
        RETURN_IF_ERROR(judge(chooser, &best, choice));
    }
    run_chooser_explain(chooser, choice, choice->path,
                        chooser->next.found ? "was saved in an emergency, and is newer than the run"
                                            : "was saved in an emergency, and the run has nothing");
    return DCP_OK;
}
