/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

struct start {
    struct rank *rank;
    rank_body body;
};

static _Thread_local bool is_apart;
static _Thread_local int host; /* 0: the one that this is */

/* Two functions in place of the C library's. */
ssize_t readlink(const char *path, char *text, size_t room)
{
    if (host == 0 || strcmp(path, "/proc/self/ns/net") != 0)
        return syscall(SYS_readlinkat, AT_FDCWD, path, text, room);
    return snprintf(text, room, "net:[host %d]", host);
}

int memfd_create(const char *name, unsigned flags)
{
    if (!is_apart)
        return (int)syscall(SYS_memfd_create, name, flags);
    errno = ENOSYS;
    return -1;
}

void rank_set_apart(bool apart)
{
    is_apart = apart;
}

void rank_set_host(int number)
{
    host = number;
}

static void *run_rank(void *argument)
{
    struct start *start = argument;
    struct rank *rank = start->rank;
    const char *apart = getenv("RANKS_APART");
    rank_set_apart(apart && strtol(apart, NULL, 0) >> rank->rank & 1);
    rank->status = start->body(rank);
    snprintf(rank->message, sizeof rank->message, "%s", dcp_error_message());
    return NULL;
}

dcp_status ranks_try(struct rank ranks[RANKS_MAX], int size, const char *path, rank_body body,
                     void *context)
{
    dcp_group *groups[RANKS_MAX] = {NULL};
    struct start starts[RANKS_MAX];
    pthread_t threads[RANKS_MAX];

    assert_true(size >= 1 && size <= RANKS_MAX);
    dcp_status status = dcp_group_new_threads(size, groups);
    if (status != DCP_OK)
        return status;
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){groups[r], r, size, path, context, DCP_OK, ""};
        starts[r] = (struct start){&ranks[r], body};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &starts[r]), 0);
    }
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < size; r++)
        dcp_group_free(groups[r]);
    return DCP_OK;
}

void ranks_run(struct rank ranks[RANKS_MAX], int size, const char *path, rank_body body,
               void *context)
{
    must(ranks_try(ranks, size, path, body, context));
}

void ranks_must(int size, const char *path, rank_body body, void *context)
{
    struct rank ranks[RANKS_MAX] = {{.rank = 0}};
    ranks_run(ranks, size, path, body, context);
    for (int r = 0; r < size; r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("rank %d of %d: %s: %s", r, size, dcp_status_string(ranks[r].status),
                     ranks[r].message);
}

int directory_setup(void **state)
{
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/dcp-test-XXXXXX", base && *base ? base : "/tmp");
    *state = mkdtemp(path) ? strdup(path) : NULL;
    return *state ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *information, int type, struct FTW *walk)
{
    (void)information;
    (void)type;
    (void)walk;
    return remove(path);
}

int directory_teardown(void **state)
{
    int failed = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return failed;
}

const char *path_in(void *const *state, const char *name)
{
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", (const char *)*state, name);
    return path;
}

void needs_files(void)
{
    if (getenv("DCP_TEST_STORAGE"))
        skip();
}

void must_succeed(dcp_status status, const char *call, const char *file, int line)
{
    if (status != DCP_OK) {
        print_error("%s: %s: %s\n", call, dcp_status_string(status), dcp_error_message());
        _fail(file, line);
    }
}

void must_end(dcp_status status, dcp_status expected, const char *text, const char *call,
              const char *file, int line)
{
    if (status != expected || !strstr(dcp_error_message(), text)) {
        print_error("%s: %s (expected %s): %s (expected \"%s\")\n", call, dcp_status_string(status),
                    dcp_status_string(expected), dcp_error_message(), text);
        _fail(file, line);
    }
}
