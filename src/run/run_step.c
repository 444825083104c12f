/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens at each step: ranks agree now and then on whether to save, whether to stop, and
 * whether the save behind training has ended. */
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "run/run_emergency.h"
#include "run/run_manager.h"
#include "run/run_signal.h"
#include "run/run_tell.h"

/* Seconds between exchanges where steps are shorter: while a save is under way, and otherwise. */
#define LOOK_SAVING 0.25
#define LOOK        1.0
/* Few, as the calls that follow may take far longer than those before. */
enum { CALLS_MAX = 16 };

/* ---- what a rank sees ---- */

static enum run_stop see_stop(const dcp_run *run, double now)
{
    const dcp_run_options *options = &run->options;
    double margin = options->stop_margin_seconds > 0 ? options->stop_margin_seconds : 30;
    if (run->watches_signals && run_signal_seen() != 0)
        return RUN_STOP_SIGNAL;
    if (run->rank != 0)
        return RUN_STOP_NONE;
    if (options->halt_file && access(options->halt_file, F_OK) == 0)
        return RUN_STOP_HALT_FILE;
    if (now >= run->stop_at - margin - 1.5 * run->longest_save)
        return RUN_STOP_DEADLINE;
    return RUN_STOP_NONE;
}

/* Calls until the next exchange, as fast as they have come since the last one. */
static uint32_t calls_until_look(const dcp_run *run, double now)
{
    double seconds = run->saving ? LOOK_SAVING : LOOK;
    double each = (now - run->last_look) / (run->calls_since > 0 ? run->calls_since : 1);
    double until = run_schedule_until(&run->schedule, now);
    if (until > 0)
        seconds = until < seconds ? until : seconds;
    double calls = each > 0 && run->size > 1 ? seconds / each : 1;
    return calls < 1 ? 1 : calls > CALLS_MAX ? CALLS_MAX : (uint32_t)calls;
}

static struct run_look see(const dcp_run *run)
{
    double now = run_now();
    struct run_look look = {.stop = (uint8_t)see_stop(run, now),
                            .saving =
                                run->saving && dcp_future_poll(run->saving) < DCP_FUTURE_DONE};
    if (run->rank == 0) {
        look.due = run_schedule_is_due(&run->schedule, now);
        look.calls = calls_until_look(run, now);
    }
    return look;
}

/* ---- what ranks agree on ---- */

static void take_stop(dcp_run *run, enum run_stop stop)
{
    if (run->stop != RUN_STOP_NONE || stop == RUN_STOP_NONE)
        return;
    run->stop = stop;
    if (run->rank == 0)
        log_line(DCP_LOG_INFO, "%s: training is to end: %s", run->root, dcp_run_stop_reason(run));
}

static dcp_status exchange(dcp_run *run, bool *ended)
{
    const struct run_look mine = see(run);
    bool saving = false;
    run->looks[0] = mine;
    if (run->size > 1)
        RETURN_IF_ERROR(run_gather(run, &mine, sizeof mine, run->looks));
    for (int i = 0; i < run->size; i++) {
        take_stop(run, (enum run_stop)run->looks[i].stop);
        saving = saving || run->looks[i].saving;
    }
    run->due = run->due || run->looks[0].due;
    run->calls_left = run->looks[0].calls;
    run->calls_since = 0;
    run->last_look = run_now();
    *ended = run->saving && !saving;
    return DCP_OK;
}

/* Whether there is anything that a step's number does not tell. */
static bool has_questions(const dcp_run *run)
{
    const dcp_run_options *options = &run->options;
    return run->saving || run_schedule_is_timed(&run->schedule) || options->stop_on_signals ||
           options->halt_file || options->stop_at_unix_time > 0;
}

/* *ended: the save that was under way has, on all ranks. */
static dcp_status call(dcp_run *run, bool now, bool *ended)
{
    *ended = false;
    if (!has_questions(run))
        return DCP_OK;
    run->calls_since++;
    if (run->calls_left > 0)
        run->calls_left--;
    return now || run->calls_left == 0 ? exchange(run, ended) : DCP_OK;
}

/* ---- the calls ---- */

/* Once for each step: a call that only asks has the exchange that the step would have. */
static dcp_status ask(dcp_run *run, int64_t step)
{
    bool ended;
    if (run->asked && run->asked_step == step)
        return DCP_OK;
    bool wants = run_schedule_wants_step(&run->schedule, step);
    bool judged =
        wants && run->schedule.overhead_percent > 0 && !run_schedule_is_last(&run->schedule, step);
    run->schedule.wanted = run->schedule.wanted || judged;
    RETURN_IF_ERROR(call(run, judged, &ended));
    run->asked = true;
    run->asked_step = step;
    run->asked_wants = wants && !judged;
    run->save_ended = run->save_ended || ended;
    return DCP_OK;
}

static bool is_to_save(const dcp_run *run)
{
    return run->asked_wants || run->due || (run->stop != RUN_STOP_NONE && !run->stop_saved);
}

bool dcp_run_should_save(dcp_run *run, int64_t step)
{
    if (!run || step < 0)
        return false;
    if (ask(run, step) == DCP_OK)
        return is_to_save(run) && step != run->saved_step;
    log_line(DCP_LOG_ERROR, "%s: ranks could not agree on whether to save: %s", run->root,
             dcp_error_message());
    return false;
}

dcp_status dcp_run_step(dcp_run *run, int64_t step)
{
    if (!run || step < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a step needs its run, and is not negative");
    run->step = step;
    run_emergency_watch(run);
    RETURN_IF_ERROR(ask(run, step));
    run->asked = false;
    dcp_status settled = run->save_ended ? run_settle(run) : DCP_OK;
    if (!is_to_save(run))
        return settled;
    run->stop_saved = run->stop != RUN_STOP_NONE;
    if (run->stop == RUN_STOP_SIGNAL)
        run_emergency_stop(run);
    struct saved_error error;
    error_save(&error);
    dcp_status status = run_save_begin(run, step);
    return status == DCP_OK && settled != DCP_OK ? error_restore(&error) : status;
}

bool dcp_run_should_stop(dcp_run *run)
{
    bool ended;
    if (!run)
        return false;
    run_emergency_watch(run);
    if (call(run, false, &ended) != DCP_OK)
        log_line(DCP_LOG_ERROR, "%s: ranks could not agree on whether to stop: %s", run->root,
                 dcp_error_message());
    /* The next exchange, at once, tells a step how the save has ended. */
    if (ended)
        run->calls_left = 1;
    return run->stop != RUN_STOP_NONE;
}

const char *dcp_run_stop_reason(const dcp_run *run)
{
    static const char *const reasons[] = {"", "a signal asks for it", "the halt file is there",
                                          "its time is almost over"};
    if (!run)
        return "";
    /* A rank that runs another version may have others. */
    return run->stop < sizeof reasons / sizeof *reasons ? reasons[run->stop]
                                                        : "another rank asks for it";
}

void dcp_run_wait_staged(dcp_run *run)
{
    if (!run || !run->saving || run->options.mode != DCP_RUN_ASYNC_OVERLAPPED)
        return;
    double begun = run_now();
    dcp_future_wait_staged(run->saving, -1);
    run->stall += run_now() - begun;
}

int64_t dcp_run_saved_step(const dcp_run *run)
{
    return run ? run->saved_step : -1;
}
