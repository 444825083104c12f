/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/limit_trial.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

uint64_t limit_named(void)
{
    static const char before[] = "the smallest sufficient limit is ";
    const char *text = strstr(dcp_error_message(), before);
    return text ? strtoull(text + strlen(before), NULL, 10) : 0;
}

void limit_trial_judge(struct limit_trial *trial, const struct rank *self, dcp_status status,
                       const dcp_figures *figures)
{
    if (!trial->too_small) {
        must(status);
        assert_in_range(figures->peak_memory, 1, trial->limit);
        uint64_t used = trial->used;
        while (used < figures->peak_memory &&
               !atomic_compare_exchange_weak(&trial->used, &used, figures->peak_memory))
            ;
        return;
    }
    assert_int_equal(status, DCP_ERR_NO_MEMORY);
    assert_true(limit_named() > trial->limit);
    if (trial->smallest != 0)
        assert_int_equal(limit_named(), trial->smallest);
    if (self->rank == 0)
        trial->smallest = limit_named();
    assert_int_equal(figures->bytes_moved, 0);
}

static void try(struct limit_trial *trial, int size, const char *path, uint64_t limit)
{
    trial->limit = limit;
    ranks_must(size, path, trial->body, trial->context);
}

void limit_trial_refuse(struct limit_trial *trial, int size, const char *path)
{
    trial->too_small = true;
    try(trial, size, path, 1);
    try(trial, size, path, trial->smallest - 1);
    try(trial, size, path, trial->smallest / 2);
}

void limit_trial_accept(struct limit_trial *trial, int size, const char *path, uint64_t most_more)
{
    trial->too_small = false;
    trial->used = 0;
    try(trial, size, path, trial->smallest);
    assert_in_range(trial->smallest, trial->used,
                    trial->used / 10 * 12 + LIMIT_FIXED_PART + trial->unused);
    for (uint64_t more = 300000; more < most_more; more = more * 6 + 300000)
        try(trial, size, path, trial->smallest + more);
}

uint64_t limit_step(uint64_t more)
{
    return more * 4 + 1000000;
}

bool limit_space_is_ours(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return true;
#endif
}

/* What malloc takes more than it is asked for. */
#define MALLOC_WASTE ((uint64_t)1 << 20)

/* Bytes of this process's address space. */
static uint64_t address_space(void)
{
    char pages[64] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(pages, sizeof pages, file))
        return 0;
    fclose(file);
    return strtoull(pages, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int work_in(uint64_t room, bool (*work)(void *context), void *context)
{
    /* Of another arena, glibc takes 64 MiB or more for a moment, which others lack meanwhile. */
    mallopt(M_ARENA_MAX, 1);
    uint64_t most = address_space() + room + MALLOC_WASTE;
    struct rlimit space = {most, most};
    if (setrlimit(RLIMIT_AS, &space) != 0)
        return 2;
    if (work(context))
        return 0;
    fprintf(stderr, "%s\n", dcp_error_message());
    return 1;
}

void limit_in_little_space(uint64_t room, bool (*work)(void *context), void *context)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(work_in(room, work, context));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}
