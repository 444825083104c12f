/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that ranks of one host read of each other, and rounds in which they do; hosts on which
 * that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fault/failing_allocator.h"
#include "fault/real_syscall.h"
#include "group/group.h"
#include "group/host_memory.h"
#include "group/thread_ranks.h"

static const dcp_collective call = {"testing", 5};

/* What goes wrong; each is a mask of ranks. */
struct hosts {
    unsigned apart;  /* there is no such memory */
    unsigned full;   /* nor room for it */
    unsigned grown;  /* it is not of the size that was said */
    unsigned narrow; /* it cannot be mapped */
    unsigned blind;  /* nor that of others */
    unsigned failed; /* before it begins */
    unsigned old;    /* the system knows one flag alone */
    unsigned dim;    /* nor does it tell when a process ends */
};

static _Thread_local struct hosts own;

/* These are called in place of the C library's. */
int memfd_create(const char *name, unsigned flags)
{
    errno = own.old ? EINVAL : ENOSYS;
    if (own.apart || (own.old && flags != MFD_CLOEXEC))
        return -1;
    return (int)syscall(SYS_memfd_create, name, flags);
}

int fallocate(int file, int mode, off_t offset, off_t length)
{
    if (own.full) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, file, mode, offset, length);
}

int ftruncate(int file, off_t length)
{
    return (int)syscall(SYS_ftruncate, file, own.grown ? length + 4096 : length);
}

/* NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    if (protection & PROT_WRITE ? own.narrow : own.blind) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(address, size, protection, flags, file, offset);
}
/* NOLINTEND(bugprone-reserved-identifier) */

long syscall(long number, ...)
{
    va_list list;
    va_start(list, number);
    const struct syscall_arguments arguments = syscall_arguments(list);
    va_end(list);
    if (own.dim && number == SYS_pidfd_open) {
        errno = ENOSYS;
        return -1;
    }
    return real_syscall(number, &arguments);
}

/* Bytes for what comes from other hosts. */
enum { BETWEEN = 5000 };

static size_t size_of(int rank)
{
    return 3000 * (size_t)rank;
}

/* Whether two ranks should read each other's memory. */
static bool should_reach(const struct thread_rank *self, int other)
{
    const struct hosts *hosts = self->context;
    bool derived = !group_can_pass(self->group);
    if (other == self->rank || hosts->full || hosts->grown || hosts->narrow || hosts->blind)
        return false;
    return derived ? !hosts->apart : !((hosts->apart >> other | hosts->apart >> self->rank) & 1);
}

/* Whether ranks of a host have bytes for what comes from others, behind theirs: where there are
 * others. */
static dcp_status check_between(const struct thread_rank *self, const struct host_memory *memory)
{
    unsigned char *own_bytes = host_memory_own(memory), *between = host_memory_between(memory);
    bool expected = own_bytes && !host_memory_is_whole(memory);
    if ((between != NULL) != expected || (uintptr_t)between % 16 != 0)
        return dcp_error_set(DCP_ERR_INTERNAL, "rank %d: bytes for other hosts: %d", self->rank,
                             between != NULL);
    for (int rank = 0; rank < self->size && expected; rank++) {
        size_t place = (size_of(rank) + 15) / 16 * 16;
        const unsigned char *bytes = host_memory_of(memory, rank, place, BETWEEN);
        if (host_memory_reaches(memory, rank) &&
            (!bytes || bytes[0] != 101 + rank || bytes[BETWEEN - 1] != 101 + rank))
            return dcp_error_set(DCP_ERR_INTERNAL, "rank %d has not what rank %d has between",
                                 self->rank, rank);
    }
    return DCP_OK;
}

static dcp_status check_peers(const struct thread_rank *self, const struct host_memory *memory)
{
    const int *with;
    size_t count = host_memory_with(memory, self->rank, &with), found = 0;
    for (int rank = 0; rank < self->size; rank++) {
        const unsigned char *bytes = host_memory_of(memory, rank, 0, size_of(rank));
        bool reach = should_reach(self, rank);
        if (host_memory_reaches(memory, rank) != reach || (bytes != NULL) != reach)
            return dcp_error_set(DCP_ERR_INTERNAL, "rank %d: reached: %d", rank, !reach);
        if ((reach || rank == self->rank) && (found == count || with[found++] != rank))
            return dcp_error_set(DCP_ERR_INTERNAL, "rank %d is not among those of the host", rank);
        for (size_t i = 0; reach && i < size_of(rank); i++)
            if (bytes[i] != 1 + rank)
                return dcp_error_set(DCP_ERR_INTERNAL, "rank %d: byte %zu is %d", rank, i,
                                     bytes[i]);
        if (host_memory_of(memory, rank, 0, 100000) || host_memory_of(memory, rank, 100000, 0) ||
            host_memory_of(memory, rank, UINT64_MAX, 2))
            return dcp_error_set(DCP_ERR_INTERNAL, "rank %d: bytes behind the end", rank);
    }
    if (host_memory_is_whole(memory) != (count == (size_t)self->size))
        return dcp_error_set(DCP_ERR_INTERNAL, "%zu ranks are not all", count);
    if (found != count || (host_memory_own(memory) != NULL) != (count > 1))
        return dcp_error_set(DCP_ERR_INTERNAL, "%zu ranks instead of %zu", count, found);
    return check_between(self, memory);
}

static dcp_status share_memory(struct thread_rank *self)
{
    const struct hosts *hosts = self->context;
    struct host_memory *memory;
    own.apart = hosts->apart >> self->rank & 1;
    own.full = hosts->full >> self->rank & 1;
    own.grown = hosts->grown >> self->rank & 1;
    own.narrow = hosts->narrow >> self->rank & 1;
    own.blind = hosts->blind >> self->rank & 1;
    own.old = hosts->old >> self->rank & 1;
    own.dim = hosts->dim >> self->rank & 1;
    dcp_status status = DCP_OK;
    if (hosts->failed >> self->rank & 1)
        status = dcp_error_set(DCP_ERR_IO, "it failed before");
    status = host_memory_open(self->group, &call, status, size_of(self->rank), BETWEEN, &memory);
    if (status == DCP_OK && host_memory_own(memory))
        memset(host_memory_own(memory), 1 + self->rank, size_of(self->rank));
    if (status == DCP_OK && host_memory_between(memory))
        memset(host_memory_between(memory), 101 + self->rank, BETWEEN);
    if (status == DCP_OK)
        status = group_agree(self->group, &call, DCP_OK);
    if (status == DCP_OK)
        status = check_peers(self, memory);
    host_memory_close(memory);
    return status;
}

static void must_share(int size, struct hosts hosts)
{
    struct thread_rank ranks[RANKS_MAX];
    for (int derived = 0; derived < 2; derived++) {
        thread_ranks_run(size, derived, share_memory, &hosts, ranks);
        for (int rank = 0; rank < size; rank++)
            if (ranks[rank].status != DCP_OK)
                fail_msg("rank %d of %d: %s", rank, size, ranks[rank].message);
    }
}

static void ranks_of_a_host_read_each_other(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++)
        for (unsigned old = 0; old < 4; old++)
            must_share(size, (struct hosts){.old = old, .dim = ~old});
}

static void those_of_another_host_do_not(void **state)
{
    (void)state;
    for (unsigned apart = 1; apart < 1 << 4; apart++)
        must_share(4, (struct hosts){.apart = apart});
}

static void if_one_cannot_none_of_its_host_does(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        must_share(3, (struct hosts){.full = 1U << rank});
        must_share(3, (struct hosts){.grown = 1U << rank});
        must_share(3, (struct hosts){.narrow = 1U << rank});
        must_share(3, (struct hosts){.blind = 1U << rank});
    }
}

static void a_failure_of_one_is_that_of_all(void **state)
{
    struct hosts hosts = {.failed = 1U << 2};
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    thread_ranks_run(3, false, share_memory, &hosts, ranks);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_IO);
        assert_string_equal(ranks[rank].message, "rank 2: it failed before");
    }
}

static dcp_status open_only(struct thread_rank *self)
{
    const long *failing = self->context;
    struct host_memory *memory;
    own = (struct hosts){0};
    if (self->rank == 0)
        failing_allocator_install(*failing, false);
    RETURN_IF_ERROR(group_agree(self->group, &call, DCP_OK));
    dcp_status status =
        host_memory_open(self->group, &call, DCP_OK, size_of(self->rank), 0, &memory);
    host_memory_close(memory);
    return group_agree(self->group, &call, status);
}

/* Where there is none for the bytes, ranks do without. */
static void without_memory_all_fail_alike(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    bool reached = true;
    long failed = 0;
    (void)state;
    for (long n = 1; reached; n++) {
        thread_ranks_run(2, false, open_only, &n, ranks);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_int_equal(ranks[0].status, ranks[1].status);
        assert_true(ranks[0].status == DCP_OK || (reached && ranks[0].status == DCP_ERR_NO_MEMORY));
        failed += ranks[0].status != DCP_OK;
    }
    assert_true(failed >= 6);
}

/* ---- rounds ---- */

enum { ROUNDS = 40, BYTES = 3000 };

/* A trial of rounds. */
struct meetings {
    int slow;          /* a rank that takes a while to read */
    int fails;         /* a rank that leaves after some rounds; -1: none */
    bool stays_silent; /* it begins no more rounds, but has not left */
    unsigned dim;      /* as of hosts */
};

/* Whether two ranks have something for each other in a round; each has what all others read. */
static bool should_meet(int a, int b, int round)
{
    return a != b && ((a + b) * 7 + round) % 3 != 0;
}

/* A round in which each rank's memory has its number and the round's: nobody reads what is
 * overwritten later. */
static dcp_status meet_once(const struct thread_rank *self, struct host_memory *memory, int round,
                            double seconds)
{
    const struct meetings *meetings = self->context;
    const dcp_collective patient = {"testing", seconds};
    bool with[RANKS_MAX] = {false};
    uint64_t notes[RANKS_MAX];
    size_t place = (size_t)(round % 2) * BYTES;
    for (int rank = 0; rank < self->size; rank++)
        with[rank] = should_meet(self->rank, rank, round);
    memset(host_memory_own(memory) + place, self->rank + 16 * (round % 16), BYTES);
    RETURN_IF_ERROR(host_memory_meet(memory, &patient, with, place + 1, notes));
    if (meetings->slow == self->rank)
        clock_sleep_ns(2000000);
    for (int rank = 0; rank < self->size; rank++) {
        if (!with[rank])
            continue;
        const unsigned char *theirs = host_memory_of(memory, rank, notes[rank] - 1, BYTES);
        for (size_t i = 0; i < BYTES; i++)
            if (notes[rank] != place + 1 || theirs[i] != rank + 16 * (round % 16))
                return dcp_error_set(DCP_ERR_INTERNAL, "round %d: rank %d: byte %zu, note %d",
                                     round, rank, i, (int)notes[rank]);
    }
    return DCP_OK;
}

/* What is in the memory for a round may be overwritten in the next but one: by then the ranks of
 * `with` have read it. */
static dcp_status meet_often(struct thread_rank *self)
{
    const struct meetings *meetings = self->context;
    struct host_memory *memory;
    own = (struct hosts){.dim = meetings->dim >> self->rank & 1};
    dcp_status status = host_memory_open(self->group, &call, DCP_OK, 2 * BYTES, 0, &memory);
    bool ends = meetings->fails == self->rank;
    for (int round = 0; status == DCP_OK && round < (ends ? ROUNDS / 2 : ROUNDS); round++)
        status = meet_once(self, memory, round, meetings->stays_silent ? 1 : 20);
    if (ends && meetings->stays_silent)
        clock_sleep_ns(2200000000);
    if (status == DCP_OK && meetings->fails < 0)
        status = group_agree(self->group, &call, DCP_OK);
    host_memory_close(memory);
    return status;
}

static void ranks_of_a_host_meet(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++)
        for (int slow = 0; slow < size; slow++) {
            struct meetings meetings = {slow, -1, false, 1U << slow};
            thread_ranks_run(size, true, meet_often, &meetings, ranks);
            for (int rank = 0; rank < size; rank++)
                if (ranks[rank].status != DCP_OK)
                    fail_msg("rank %d of %d: %s", rank, size, ranks[rank].message);
        }
}

/* Also those that do not wait for it: they wait for one that does. */
static void a_rank_that_leaves_ends_it_for_all(void **state)
{
    struct thread_rank ranks[RANKS_MAX];
    (void)state;
    for (int silent = 0; silent < 2; silent++)
        for (int fails = 0; fails < 4; fails++) {
            struct meetings meetings = {-1, fails, silent, 0xa};
            thread_ranks_run(4, false, meet_often, &meetings, ranks);
            bool named = false;
            for (int rank = 0; rank < 4; rank++) {
                dcp_status status = ranks[rank].status;
                bool timeout = strstr(ranks[rank].message, "within 1 s");
                named = named || (rank != fails && status == DCP_ERR_TIMEOUT && timeout);
                assert_true(rank == fails || status == DCP_ERR_GROUP ||
                            (silent && status == DCP_ERR_TIMEOUT));
                assert_int_equal(ranks[fails].status, DCP_OK);
                assert_true(rank == fails || strstr(ranks[rank].message, "testing: rank "));
            }
            assert_int_equal(named, silent);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_host_read_each_other),
        cmocka_unit_test(those_of_another_host_do_not),
        cmocka_unit_test(if_one_cannot_none_of_its_host_does),
        cmocka_unit_test(a_failure_of_one_is_that_of_all),
        cmocka_unit_test(without_memory_all_fail_alike),
        cmocka_unit_test(ranks_of_a_host_meet),
        cmocka_unit_test(a_rank_that_leaves_ends_it_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
