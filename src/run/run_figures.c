/* SPDX-License-Identifier: BSD-3-Clause */
/* Figures of saves, a line of JSON for each. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_manager.h"

#define FIGURES_FILE "dcp_saves.jsonl"

static const char *mode_name(dcp_run_mode mode)
{
    return mode == DCP_RUN_BLOCKING           ? "blocking"
           : mode == DCP_RUN_ASYNC_PINNED     ? "async pinned"
           : mode == DCP_RUN_ASYNC_OVERLAPPED ? "async overlapped"
                                              : "async";
}

static dcp_state *make_line(const dcp_run *run, dcp_status status, const char *message,
                            const dcp_figures *figures)
{
    dcp_state *line = dcp_state_new();
    dcp_state_int(line, "unix_time", clock_wall_ns() / 1000000000);
    dcp_state_string(line, "run", run->own.identity);
    dcp_state_int(line, "step", run->saving_step);
    dcp_state_string(line, "path", run->saving_name);
    dcp_state_string(line, "mode", mode_name(run->options.mode));
    dcp_state_int(line, "ranks", run->size);
    dcp_state_bool(line, "saved", status == DCP_OK);
    if (status != DCP_OK)
        dcp_state_string(line, "failure", message);
    dcp_state_float(line, "stall_seconds", run->stall);
    dcp_state_float(line, "seconds", run_now() - run->saving_begun);
    dcp_state_float(line, "planning_seconds", figures->planning_seconds);
    dcp_state_float(line, "staging_seconds", figures->staging_seconds);
    dcp_state_float(line, "writing_seconds", figures->writing_seconds);
    dcp_state_float(line, "syncing_seconds", figures->syncing_seconds);
    dcp_state_float(line, "commit_seconds", figures->commit_seconds);
    dcp_state_uint(line, "bytes", figures->bytes_moved);
    dcp_state_uint(line, "files", figures->files);
    dcp_state_uint(line, "peak_memory", figures->peak_memory);
    dcp_state_bool(line, "plan_reused", figures->plan_reused);
    return line;
}

/* In one write, so that lines of two jobs do not mix. */
static bool append_text(const char *path, char *text)
{
    size_t length = strlen(text);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    text[length] = '\n'; /* in the place of the NUL */
    bool good = write(file, text, length + 1) == (ssize_t)(length + 1);
    int code = errno;
    close(file);
    errno = code;
    return good;
}

/* Frees the line. */
static void append_line(const dcp_run *run, dcp_state *line)
{
    const char *given = run->options.figures_file;
    char *text = NULL;
    char *path = given ? memory_copy_text(given) : run_place_id(&run->place, FIGURES_FILE);
    if (!path || dcp_state_to_json(line, 0, &text) != DCP_OK || !append_text(path, text))
        log_line(DCP_LOG_WARNING, "%s: figures of a save were not written: %s",
                 path ? path : run->root, text ? strerror(errno) : dcp_error_message());
    dcp_text_free(text);
    dcp_state_free(line);
    memory_release(path);
}

static bool has_file(const dcp_run *run)
{
    return run->options.figures_file || run->place.table == dcp_storage_files();
}

void run_figures_append(const dcp_run *run, dcp_status status, const char *message,
                        const dcp_figures *figures)
{
    struct saved_error error;
    if (!has_file(run))
        return;
    error_save(&error);
    append_line(run, make_line(run, status, message, figures));
    error_restore(&error);
}

void run_figures_mirror(const dcp_run *run, const char *mirror, const dcp_run_copied *copied)
{
    struct saved_error error;
    if (!has_file(run))
        return;
    error_save(&error);
    dcp_state *line = dcp_state_new();
    dcp_state_int(line, "unix_time", clock_wall_ns() / 1000000000);
    dcp_state_string(line, "run", run->own.identity);
    dcp_state_int(line, "step", copied->step);
    dcp_state_string(line, "path", copied->name);
    dcp_state_string(line, "mirror", mirror);
    dcp_state_bool(line, "mirrored", copied->verdict != DCP_RUN_COPY_FAILED);
    if (copied->verdict == DCP_RUN_COPY_FAILED)
        dcp_state_string(line, "failure", copied->why);
    dcp_state_float(line, "seconds", copied->seconds);
    dcp_state_uint(line, "bytes", copied->bytes);
    dcp_state_uint(line, "kept_bytes", copied->kept_bytes);
    append_line(run, line);
    error_restore(&error);
}
