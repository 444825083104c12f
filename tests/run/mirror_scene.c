/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/mirror_scene.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

void far_wait_held(void)
{
    pthread_mutex_lock(&far.mutex);
    while (far.waiting == 0)
        pthread_cond_wait(&far.changed, &far.mutex);
    pthread_mutex_unlock(&far.mutex);
}
