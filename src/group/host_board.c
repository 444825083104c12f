/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/host_board.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* In the state of a board. */
enum { LEFT = 0x40000000, AGREES = 0x20000000, STEP = AGREES - 1 };

/* How often a rank that waits looks whether the other process still runs. */
#define LOOK_SECONDS 0.1

static void wake_all(struct host_board *board)
{
    syscall(SYS_futex, &board->state, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void begin(struct host_board *board, uint32_t state)
{
    atomic_store_explicit(&board->state, state, memory_order_release);
    wake_all(board);
}

void host_board_begin(struct host_board *board, uint32_t step, uint64_t note)
{
    board->notes[step % 2] = note;
    begin(board, step);
}

void host_board_agree(struct host_board *board, uint32_t step)
{
    begin(board, step | AGREES);
}

uint64_t host_board_note(const struct host_board *board, uint32_t step)
{
    return board->notes[step % 2];
}

void host_board_leave(struct host_board *board)
{
    atomic_fetch_or_explicit(&board->state, LEFT, memory_order_release);
    wake_all(board);
}

/* Sleeps until the state is another one, or so long, at most LOOK_SECONDS; true: something may have
 * changed. */
static bool wait_for_change(const struct host_board *board, uint32_t state, double seconds)
{
    const struct timespec most = {.tv_nsec = (long)(seconds * 1e9)};
    if (syscall(SYS_futex, &board->state, FUTEX_WAIT, state, &most, NULL, 0) == 0 ||
        errno == EAGAIN || errno == EINTR)
        return true;
    if (errno != ETIMEDOUT) /* a system without futexes between processes */
        clock_sleep_ns(1000000);
    return false;
}

static bool has_ended(const struct host_rank *other)
{
    struct pollfd process = {.fd = other->process, .events = POLLIN};
    return poll(&process, 1, 0) > 0;
}

/* Sleeps until the rank may have gone on, or there is something else to be done. */
static dcp_status wait_once(const struct host_rank *other, uint32_t state,
                            const dcp_collective *call, struct deadline deadline, double *next_line)
{
    char name[32];
    double left = deadline_left(deadline), waited = call->timeout_seconds - left;
    double seconds = left < LOOK_SECONDS ? left : LOOK_SECONDS;
    if (deadline_passed(deadline))
        return dcp_error_set(DCP_ERR_TIMEOUT, "rank %d did not come within %g s", other->rank,
                             call->timeout_seconds);
    if (waited >= *next_line) {
        snprintf(name, sizeof name, "rank %d", other->rank);
        *next_line = dcp_collective_log_wait(call, waited, name);
    }
    if (waited + seconds > *next_line)
        seconds = *next_line - waited;
    if (!wait_for_change(other->board, state, seconds) && has_ended(other))
        return dcp_error_set(DCP_ERR_GROUP, "the process of rank %d has ended", other->rank);
    return DCP_OK;
}

dcp_status host_board_wait(const struct host_rank *other, uint32_t step, uint32_t agreed,
                           const dcp_collective *call, struct deadline deadline)
{
    uint32_t state = atomic_load_explicit(&other->board->state, memory_order_acquire);
    double next_line = (state & STEP) < step ? dcp_collective_log_wait(call, 0, NULL) : 0;
    for (;;) {
        if ((state & AGREES) && (state & STEP) > agreed && (state & STEP) <= step)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank %d has had %" PRIu32 " steps, after which all ranks should "
                                 "agree; this rank has had %" PRIu32,
                                 other->rank, state & STEP, step);
        if ((state & STEP) >= step)
            return DCP_OK;
        if (state & LEFT)
            return dcp_error_set(DCP_ERR_GROUP, "rank %d has failed and takes no more part",
                                 other->rank);
        RETURN_IF_ERROR(wait_once(other, state, call, deadline, &next_line));
        state = atomic_load_explicit(&other->board->state, memory_order_acquire);
    }
}
