/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/late_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PENDING_MAX = 1000 };

struct late_copy {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
};

static struct {
    pthread_mutex_t mutex;
    struct late_copy copies[PENDING_MAX];
    long count;
    int failing;
} late = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void copy_rows(const struct late_copy *copy)
{
    for (size_t row = 0; row < copy->height; row++)
        memcpy(copy->to + row * copy->to_pitch, copy->from + row * copy->from_pitch, copy->width);
}

static dcp_status start(struct late_copy copy)
{
    pthread_mutex_lock(&late.mutex);
    if (late.count == PENDING_MAX)
        abort();
    late.copies[late.count++] = copy;
    pthread_mutex_unlock(&late.mutex);
    return DCP_OK;
}

static struct late_copy to_host(void *host, const void *memory, size_t pitch, size_t width,
                                size_t height)
{
    return (struct late_copy){host, memory, width, pitch, width, height};
}

static struct late_copy from_host(void *memory, size_t pitch, const void *host, size_t width,
                                  size_t height)
{
    return (struct late_copy){memory, host, pitch, width, width, height};
}

static dcp_status late_copy_to_host(const dcp_device *device, void *host, const void *memory,
                                    size_t pitch, size_t width, size_t height)
{
    struct late_copy copy = to_host(host, memory, pitch, width, height);
    (void)device;
    copy_rows(&copy);
    return DCP_OK;
}

static dcp_status late_copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                                      const void *host, size_t width, size_t height)
{
    struct late_copy copy = from_host(memory, pitch, host, width, height);
    (void)device;
    copy_rows(&copy);
    return DCP_OK;
}

static dcp_status late_start_to_host(const dcp_device *device, void *host, const void *memory,
                                     size_t pitch, size_t width, size_t height)
{
    (void)device;
    return start(to_host(host, memory, pitch, width, height));
}

static dcp_status late_start_from_host(const dcp_device *device, void *memory, size_t pitch,
                                       const void *host, size_t width, size_t height)
{
    (void)device;
    return start(from_host(memory, pitch, host, width, height));
}

static dcp_status late_allocate(const dcp_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = malloc(bytes);
    return *memory ? DCP_OK : dcp_error_set(DCP_ERR_NO_MEMORY, "no memory on the late device");
}

static void late_release(const dcp_device *device, void *memory)
{
    (void)device;
    free(memory);
}

static dcp_status late_page_lock(const dcp_device *device, void *host, size_t bytes)
{
    (void)device, (void)host, (void)bytes;
    return DCP_OK;
}

static void late_page_unlock(const dcp_device *device, void *host)
{
    (void)device, (void)host;
}

/* Queues and events: all of them are the one list. */
static dcp_status late_open(const dcp_device *device, void **made)
{
    (void)device;
    *made = &late;
    return DCP_OK;
}

static void late_close(const dcp_device *device, void *made)
{
    (void)device, (void)made;
}

static dcp_status late_mark(const dcp_device *device, void *event)
{
    (void)device, (void)event;
    return DCP_OK;
}

static dcp_status late_wait(const dcp_device *device, void *event)
{
    dcp_status status = DCP_OK;
    (void)device, (void)event;
    pthread_mutex_lock(&late.mutex);
    if (late.failing > 0) {
        late.failing--;
        status = dcp_error_set(DCP_ERR_DEVICE, "the late device fails on purpose");
    }
    for (; status == DCP_OK && late.count > 0; late.count--)
        copy_rows(&late.copies[late.count - 1]);
    pthread_mutex_unlock(&late.mutex);
    return status;
}

static dcp_status late_reached(const dcp_device *device, void *event, bool *reached)
{
    (void)device, (void)event;
    *reached = late_device_pending() == 0;
    return DCP_OK;
}

dcp_device late_device(void)
{
    static const dcp_device_operations operations = {
        .size_of = sizeof operations,
        .name = "late",
        .allocate = late_allocate,
        .release = late_release,
        .copy_to_host = late_copy_to_host,
        .copy_from_host = late_copy_from_host,
        .page_lock = late_page_lock,
        .page_unlock = late_page_unlock,
        .queue_open = late_open,
        .queue_close = late_close,
        .event_open = late_open,
        .event_close = late_close,
        .event_record = late_mark,
        .event_follow = late_mark,
        .event_wait = late_wait,
        .event_reached = late_reached,
        .start_copy_to_host = late_start_to_host,
        .start_copy_from_host = late_start_from_host,
    };
    return (dcp_device){.operations = &operations};
}

long late_device_pending(void)
{
    pthread_mutex_lock(&late.mutex);
    long count = late.count;
    pthread_mutex_unlock(&late.mutex);
    return count;
}

void late_device_forget(void)
{
    pthread_mutex_lock(&late.mutex);
    late.count = 0;
    pthread_mutex_unlock(&late.mutex);
}

void late_device_fail_waits(int count)
{
    pthread_mutex_lock(&late.mutex);
    late.failing = count;
    pthread_mutex_unlock(&late.mutex);
}
