/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/machine.h"

/* The pid namespace outside of all containers: its number is fixed in Linux. */
#define OUTERMOST_SPACE "pid:[4026531836]"

/* The beginning of a small file, up to the end of a line; "" if it cannot be read. */
static void read_line(const char *path, char *text, size_t size)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = descriptor < 0 ? -1 : read(descriptor, text, size - 1);
    if (descriptor >= 0)
        close(descriptor);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

struct process_state {
    char letter;
    uint64_t threads;
    uint64_t started;
};

/* /proc/PID/stat: the name is in parentheses and may contain anything; behind it are the state
 * (field 3), the number of threads (20) and the start time (22). */
static bool read_state(uint64_t pid, struct process_state *state)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    read_line(path, text, sizeof text);
    const char *field = strrchr(text, ')');
    *state = (struct process_state){0};
    for (int number = 3; field && number <= 22; number++) {
        field = strchr(field + 1, ' ');
        if (field && number == 3)
            state->letter = field[1];
        if (field && number == 20)
            state->threads = strtoull(field + 1, NULL, 10);
        if (field && number == 22)
            state->started = strtoull(field + 1, NULL, 10);
    }
    return field != NULL;
}

static void find_host(char host[SAVE_PROCESS_TEXT])
{
    if (gethostname(host, SAVE_PROCESS_TEXT) != 0)
        host[0] = '\0';
    host[SAVE_PROCESS_TEXT - 1] = '\0';
}

void save_process_find(struct save_process *self)
{
    static const char here = 0;
    const void *const address = &here;
    struct process_state state;
    *self = (struct save_process){.pid = (uint64_t)getpid(),
                                  .library = xxh3_64(&address, sizeof address)};
    find_host(self->host);
    machine_boot(self->boot);
    machine_namespace("pid", self->space);
    if (read_state(self->pid, &state))
        self->started = state.started;
}

/* A zombie has ended, unless only its first thread has. */
static bool has_ended(const struct process_state *state)
{
    return (state->letter == 'Z' || state->letter == 'X') && state->threads <= 1;
}

/* Looks for a process on this machine, in the pid namespace of this process. */
static enum save_process_fate look_here(const struct save_process *process,
                                        const struct save_process *self)
{
    struct process_state state;
    if (process->pid == 0 || process->pid > INT_MAX)
        return SAVE_PROCESS_ELSEWHERE;
    if (process->pid == self->pid && process->started == self->started &&
        process->library == self->library)
        return SAVE_PROCESS_THIS;
    if (kill((pid_t)process->pid, 0) != 0 && errno == ESRCH)
        return SAVE_PROCESS_GONE;
    if (!read_state(process->pid, &state))
        return SAVE_PROCESS_RUNS;
    bool another = process->started != 0 && process->started != state.started;
    return another || has_ended(&state) ? SAVE_PROCESS_GONE : SAVE_PROCESS_RUNS;
}

enum save_process_fate save_process_look(const struct save_process *process)
{
    struct save_process self;
    save_process_find(&self);
    if (!*self.boot || !*process->boot)
        return SAVE_PROCESS_ELSEWHERE;
    if (strcmp(process->boot, self.boot) == 0)
        return strcmp(process->space, self.space) == 0 ? look_here(process, &self)
                                                       : SAVE_PROCESS_ELSEWHERE;
    /* A container with this host name may have run on another machine. */
    bool restarted = strcmp(process->host, self.host) == 0 &&
                     strcmp(process->space, OUTERMOST_SPACE) == 0 &&
                     strcmp(self.space, OUTERMOST_SPACE) == 0;
    return restarted ? SAVE_PROCESS_GONE : SAVE_PROCESS_ELSEWHERE;
}
