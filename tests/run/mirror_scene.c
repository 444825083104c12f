/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/mirror_scene.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "run/run_scene.h"

/* ---- the far place ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct far_manner manner;
    long writes, waiting;
    dcp_storage table;
} far = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static dcp_status far_open(void *context, const char *id, uint32_t flags, void **directory,
                           bool *created)
{
    pthread_mutex_lock(&far.mutex);
    bool unreachable = far.manner.unreachable;
    pthread_mutex_unlock(&far.mutex);
    if (unreachable)
        return dcp_error_set(DCP_ERR_IO, "%s: no route to host", id);
    return dcp_storage_files()->open(context, id, flags, directory, created);
}

/* The number of this write, from 1. */
static long enter_write(struct far_manner *manner)
{
    pthread_mutex_lock(&far.mutex);
    long n = ++far.writes;
    far.waiting++;
    pthread_cond_broadcast(&far.changed);
    while (far.manner.held)
        pthread_cond_wait(&far.changed, &far.mutex);
    far.waiting--;
    *manner = far.manner;
    pthread_mutex_unlock(&far.mutex);
    return n;
}

static dcp_status far_write(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                            uint64_t offset)
{
    struct far_manner manner;
    long n = enter_write(&manner);
    if (manner.exit_write == n)
        _exit(0);
    if (manner.fail_write > 0 && n >= manner.fail_write)
        return dcp_error_set(manner.fail_status, "the far place does not take it");
    if (manner.flip_write != n || size == 0)
        return dcp_storage_files()->write(context, file, bytes, size, offset);
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    copy[size / 2] ^= 4;
    dcp_status status = dcp_storage_files()->write(context, file, copy, size, offset);
    free(copy);
    return status;
}

/* Once, as others read it. */
static void make_table(void)
{
    far.table = *dcp_storage_files();
    far.table.open = far_open;
    far.table.write = far_write;
}

const dcp_storage *far_storage(const struct far_manner *manner)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    pthread_mutex_lock(&far.mutex);
    far.manner = manner ? *manner : (struct far_manner){0};
    far.writes = 0;
    pthread_cond_broadcast(&far.changed);
    pthread_mutex_unlock(&far.mutex);
    return &far.table;
}

void far_release(void)
{
    pthread_mutex_lock(&far.mutex);
    far.manner.held = false;
    pthread_cond_broadcast(&far.changed);
    pthread_mutex_unlock(&far.mutex);
}

long far_writes(void)
{
    pthread_mutex_lock(&far.mutex);
    long writes = far.writes;
    pthread_mutex_unlock(&far.mutex);
    return writes;
}

void far_wait_held(long count)
{
    pthread_mutex_lock(&far.mutex);
    while (far.waiting < count)
        pthread_cond_wait(&far.changed, &far.mutex);
    pthread_mutex_unlock(&far.mutex);
}

/* ---- runs ---- */

const char *mirror_run(void **state)
{
    return path_in(state, "run");
}

dcp_run_mirror mirror_at(const char *path, const dcp_storage *storage)
{
    return (dcp_run_mirror){.size_of = sizeof(dcp_run_mirror), .path = path, .storage = storage};
}

dcp_run_options mirror_options(const dcp_run_mirror *mirrors, size_t count,
                               const dcp_run_keep *keep)
{
    return (dcp_run_options){
        .mode = DCP_RUN_BLOCKING, .mirrors = mirrors, .mirror_count = count, .keep = keep};
}

bool mirror_has(const char *run, const char *name)
{
    return access(scene_in(scene_in(run, name), ".metadata"), F_OK) == 0;
}

/* Whether all of a checkpoint is right. */
void mirror_expect_whole(const char *run, const char *name)
{
    uint64_t faults = 0;
    assert_true(mirror_has(run, name));
    must(dcp_verify(scene_in(run, name), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

void mirror_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

void mirror_wait_gone(const char *run, const char *name)
{
    for (int i = 0; i < 500 && mirror_has(run, name); i++)
        mirror_pause();
    assert_false(mirror_has(run, name));
}

void mirror_wait_there(const char *run, const char *name)
{
    for (int i = 0; i < 500 && !mirror_has(run, name); i++)
        mirror_pause();
    assert_true(mirror_has(run, name));
}
