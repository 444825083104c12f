/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for another rank of the host: it comes, late or never; it leaves; its process ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dcp/environment.h"
#include "fault/real_syscall.h"
#include "group/host_board.h"

static const dcp_collective call = {"testing", 10};
static bool without_futexes;
static char line[256];

/* In place of the C library's. */
long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    const struct syscall_arguments arguments = syscall_arguments(list);
    va_end(list);
    if (number == SYS_futex && without_futexes) {
        errno = ENOSYS;
        return -1;
    }
    return real_syscall(number, &arguments);
}

/* A board that processes share: mapped a second time, as the others do, to be read only. */
struct shared {
    struct host_board *own;
    const struct host_board *theirs;
};

static struct shared make_board(void)
{
    struct shared shared = {NULL, NULL};
    int file = memfd_create("board", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, 4096), 0);
    shared.own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared.theirs = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    assert_true(shared.own != MAP_FAILED && shared.theirs != MAP_FAILED);
    close(file);
    return shared;
}

static void unmap(struct shared *shared)
{
    munmap(shared->own, 4096);
    munmap((void *)(uintptr_t)shared->theirs, 4096);
}

/* What a process does after a moment. */
enum deed { COMES, LEAVES, ENDS, STAYS };

static pid_t start_process(const struct shared *shared, enum deed deed)
{
    pid_t process = fork();
    if (process != 0)
        return process;
    clock_sleep_ns(50000000);
    if (deed == COMES)
        host_board_begin(shared->own, 1, 77);
    if (deed == LEAVES)
        host_board_leave(shared->own);
    if (deed != ENDS)
        clock_sleep_ns((int64_t)60000000000);
    _exit(0);
}

/* Waits for round 1 of a process. */
static dcp_status wait_for(enum deed deed, double seconds, uint64_t *note)
{
    struct shared shared = make_board();
    pid_t process = start_process(&shared, deed);
    const dcp_collective mine = {"testing", seconds};
    struct host_rank other = {3, (int)syscall(SYS_pidfd_open, process, 0), shared.theirs};
    assert_true(process > 0 && other.process >= 0);
    dcp_status status = host_board_wait(&other, 1, 0, &mine, deadline_after(seconds));
    *note = host_board_note(shared.theirs, 1);
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    close(other.process);
    unmap(&shared);
    return status;
}

static void what_other_processes_do_is_noticed(void **state)
{
    uint64_t note;
    (void)state;
    for (int without = 0; without < 2; without++) {
        without_futexes = without;
        assert_int_equal(wait_for(COMES, 10, &note), DCP_OK);
        assert_int_equal(note, 77);
        assert_int_equal(wait_for(LEAVES, 10, &note), DCP_ERR_GROUP);
        assert_string_equal(dcp_error_message(), "rank 3 has failed and takes no more part");
        assert_int_equal(wait_for(ENDS, 10, &note), DCP_ERR_GROUP);
        assert_string_equal(dcp_error_message(), "the process of rank 3 has ended");
        assert_int_equal(wait_for(STAYS, 0.3, &note), DCP_ERR_TIMEOUT);
        assert_string_equal(dcp_error_message(), "rank 3 did not come within 0.3 s");
    }
    without_futexes = false;
}

/* Two processes in turn: each sleeps until the other one wakes it, which takes no tenth of a
 * second. */
static void ranks_wake_each_other(void **state)
{
    enum { TURNS = 40 };
    struct shared mine = make_board(), theirs = make_board();
    const struct host_rank parent = {0, -1, mine.theirs}, child = {1, -1, theirs.theirs};
    (void)state;
    int64_t before = clock_monotonic_ns();
    pid_t process = fork();
    for (uint32_t step = 1; process == 0 && step <= TURNS; step++) {
        if (host_board_wait(&parent, step, 0, &call, deadline_after(10)) != DCP_OK)
            _exit(1);
        clock_sleep_ns(1000000); /* so that the other one sleeps by now */
        host_board_begin(theirs.own, step, 0);
    }
    if (process == 0)
        _exit(0);
    for (uint32_t step = 1; step <= TURNS; step++) {
        clock_sleep_ns(1000000);
        host_board_begin(mine.own, step, 0);
        assert_int_equal(host_board_wait(&child, step, 0, &call, deadline_after(10)), DCP_OK);
    }
    assert_in_range(clock_monotonic_ns() - before, 0, (int64_t)TURNS * 50000000);
    waitpid(process, NULL, 0);
    unmap(&mine);
    unmap(&theirs);
}

static void rounds_and_notes_follow_each_other(void **state)
{
    struct shared shared = make_board();
    const struct host_rank other = {0, -1, shared.theirs};
    (void)state;
    for (uint32_t round = 1; round < 9; round++) {
        host_board_begin(shared.own, round, 100 + round);
        assert_int_equal(host_board_wait(&other, round, 0, &call, deadline_after(0)), DCP_OK);
        assert_int_equal(host_board_note(shared.theirs, round), 100 + round);
        if (round > 1)
            assert_int_equal(host_board_note(shared.theirs, round - 1), 99 + round);
        assert_int_equal(host_board_wait(&other, round + 1, 0, &call, deadline_after(0)),
                         DCP_ERR_TIMEOUT);
    }
    host_board_leave(shared.own);
    assert_int_equal(host_board_wait(&other, 8, 0, &call, deadline_after(0)), DCP_OK);
    assert_int_equal(host_board_wait(&other, 9, 0, &call, deadline_after(0)), DCP_ERR_GROUP);
    unmap(&shared);
}

/* Who is in an agreement waits for this rank, too: in a later round it never comes. One that this
 * rank has been in has not been left by the other, yet. */
static void a_rank_in_another_step_is_not_waited_for(void **state)
{
    struct shared shared = make_board();
    const struct host_rank other = {2, -1, shared.theirs};
    (void)state;
    host_board_begin(shared.own, 1, 0);
    host_board_agree(shared.own, 2);
    assert_int_equal(host_board_wait(&other, 1, 0, &call, deadline_after(0)), DCP_OK);
    for (uint32_t step = 2; step < 4; step++) {
        dcp_status status = host_board_wait(&other, step, 0, &call, deadline_after(0));
        assert_int_equal(status, DCP_ERR_GROUP);
        assert_non_null(strstr(dcp_error_message(), "rank 2 has had 2 steps"));
    }
    assert_int_equal(host_board_wait(&other, 3, 2, &call, deadline_after(0)), DCP_ERR_TIMEOUT);
    host_board_begin(shared.own, 3, 0);
    assert_int_equal(host_board_wait(&other, 3, 2, &call, deadline_after(0)), DCP_OK);
    unmap(&shared);
}

static void hear(void *context, dcp_log_level level, const char *text)
{
    (void)context, (void)level;
    snprintf(line, sizeof line, "%s", text);
}

static void a_long_wait_is_logged(void **state)
{
    struct shared shared = make_board();
    const struct host_rank other = {5, -1, shared.theirs};
    const dcp_collective short_call = {"testing", 0.5};
    (void)state;
    dcp_set_log(hear, NULL, DCP_LOG_WARNING);
    dcp_set_log_waits(0.1);
    assert_int_equal(host_board_wait(&other, 1, 0, &short_call, deadline_after(0.5)),
                     DCP_ERR_TIMEOUT);
    dcp_set_log_waits(10);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    assert_non_null(strstr(line, "testing: waiting for rank 5 for "));
    unmap(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_other_processes_do_is_noticed),
        cmocka_unit_test(ranks_wake_each_other),
        cmocka_unit_test(rounds_and_notes_follow_each_other),
        cmocka_unit_test(a_rank_in_another_step_is_not_waited_for),
        cmocka_unit_test(a_long_wait_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
