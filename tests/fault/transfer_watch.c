/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/transfer_watch.h"

#include <pthread.h>
#include <string.h>

#define DESCRIPTORS 1024
#define RINGS       64

static struct {
    pthread_mutex_t mutex;
    const struct file_ops *below;
    struct file_ops ops;
    bool direct[DESCRIPTORS];
    bool used[DESCRIPTORS];   /* announced, or read, since it was opened */
    size_t file[DESCRIPTORS]; /* in the order in which files were opened */
    size_t files;
    size_t begun[DESCRIPTORS]; /* by file: in the order in which direct transfers began; 0: none */
    size_t last_begun;
    uintptr_t memory;
    size_t size;
    struct transfer_count counts[2];
    uint64_t announced;
    struct {
        const void *queue;
        long under_way;
    } rings[RINGS];
    long under_way; /* in all of them */
    long at_once;
    long pauses;
    long idle;
    uint64_t farthest; /* end of direct transfers in the file in which they began last */
    long overtaken;
    long foreseen;
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The mutex is held. */
static void note_place(int descriptor, bool direct, uint64_t start, uint64_t end)
{
    if (descriptor >= DESCRIPTORS || watch.file[descriptor] >= DESCRIPTORS)
        return;
    size_t *begun = &watch.begun[watch.file[descriptor]];
    watch.used[descriptor] = true;
    if (direct && *begun == 0) {
        *begun = ++watch.last_begun;
        watch.farthest = 0;
    }
    if (*begun == 0)
        return;
    if (!direct)
        watch.overtaken += *begun < watch.last_begun || start < watch.farthest;
    else if (*begun == watch.last_begun && end > watch.farthest)
        watch.farthest = end;
}

static void note(int descriptor, const void *bytes, size_t size, uint64_t offset)
{
    uintptr_t address = (uintptr_t)bytes;
    pthread_mutex_lock(&watch.mutex);
    bool direct = descriptor < DESCRIPTORS && watch.direct[descriptor];
    struct transfer_count *count = &watch.counts[direct];
    count->lowest = count->count == 0 || address < count->lowest ? address : count->lowest;
    count->count++;
    count->callers += address < watch.memory + watch.size && address + size > watch.memory;
    count->largest = size > count->largest ? size : count->largest;
    count->addresses |= address;
    note_place(descriptor, direct, offset, offset + size);
    pthread_mutex_unlock(&watch.mutex);
}

static int watched_open(void *context, int within, const char *path, unsigned flags,
                        int *descriptor)
{
    int result = watch.below->open(context, within, path, flags, descriptor);
    pthread_mutex_lock(&watch.mutex);
    if (result == 0 && *descriptor < DESCRIPTORS) {
        watch.direct[*descriptor] = flags & FILE_DIRECT;
        watch.used[*descriptor] = false;
        watch.files += !(flags & FILE_DIRECT); /* which follows, of the same file */
        watch.file[*descriptor] = watch.files;
    }
    pthread_mutex_unlock(&watch.mutex);
    return result;
}

static int watched_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                         size_t *done)
{
    note(descriptor, bytes, size, offset);
    return watch.below->pread(context, descriptor, bytes, size, offset, done);
}

static int watched_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                          uint64_t offset, size_t *done)
{
    note(descriptor, bytes, size, offset);
    return watch.below->pwrite(context, descriptor, bytes, size, offset, done);
}

/* Transfers that were begun, or have ended. */
static void note_ring(const void *queue, long transfers)
{
    size_t i = 0;
    pthread_mutex_lock(&watch.mutex);
    while (i < RINGS - 1 && watch.rings[i].queue && watch.rings[i].queue != queue)
        i++;
    watch.rings[i].queue = queue;
    watch.rings[i].under_way += transfers;
    if (watch.rings[i].under_way > watch.at_once)
        watch.at_once = watch.rings[i].under_way;
    watch.under_way += transfers;
    watch.pauses += transfers < 0 && watch.rings[i].under_way == 0;
    watch.idle += transfers < 0 && watch.under_way == 0;
    pthread_mutex_unlock(&watch.mutex);
}

static int watched_submit(void *context, void *queue, const struct file_transfer *transfer)
{
    note(transfer->descriptor, transfer->bytes, transfer->size, transfer->offset);
    int result = watch.below->queue_submit(context, queue, transfer);
    note_ring(queue, result == 0);
    return result;
}

static size_t watched_take(void *context, void *queue, struct file_completion *completions,
                           size_t room, bool wait)
{
    size_t count = watch.below->queue_take(context, queue, completions, room, wait);
    note_ring(queue, -(long)count);
    return count;
}

static int watched_will_need(void *context, int descriptor, uint64_t offset, uint64_t size)
{
    pthread_mutex_lock(&watch.mutex);
    watch.announced = size > watch.announced ? size : watch.announced;
    if (descriptor < DESCRIPTORS) {
        watch.foreseen += !watch.used[descriptor];
        watch.used[descriptor] = true;
    }
    pthread_mutex_unlock(&watch.mutex);
    return watch.below->will_need(context, descriptor, offset, size);
}

const struct file_ops *transfer_watch(const struct file_ops *below)
{
    watch.below = below;
    watch.ops = *below;
    watch.ops.open = watched_open;
    watch.ops.pread = watched_pread;
    watch.ops.pwrite = watched_pwrite;
    watch.ops.queue_submit = watched_submit;
    watch.ops.queue_take = watched_take;
    watch.ops.will_need = below->will_need ? watched_will_need : NULL;
    watch.announced = 0;
    watch.under_way = watch.at_once = watch.pauses = watch.idle = watch.overtaken = watch.foreseen =
        0;
    watch.files = watch.last_begun = 0;
    memset(watch.begun, 0, sizeof watch.begun);
    watch.farthest = 0;
    memset(watch.rings, 0, sizeof watch.rings);
    watch.counts[0] = watch.counts[1] = (struct transfer_count){0};
    return &watch.ops;
}

void transfer_watch_memory(const void *memory, size_t size)
{
    watch.memory = (uintptr_t)memory;
    watch.size = size;
}

struct transfer_count transfer_watch_count(bool direct)
{
    pthread_mutex_lock(&watch.mutex);
    struct transfer_count count = watch.counts[direct];
    pthread_mutex_unlock(&watch.mutex);
    return count;
}

long transfer_watch_at_once(void)
{
    pthread_mutex_lock(&watch.mutex);
    long at_once = watch.at_once;
    pthread_mutex_unlock(&watch.mutex);
    return at_once;
}

int transfer_watch_rings(void)
{
    int count = 0;
    pthread_mutex_lock(&watch.mutex);
    while (count < RINGS && watch.rings[count].queue)
        count++;
    pthread_mutex_unlock(&watch.mutex);
    return count;
}

long transfer_watch_idle(void)
{
    pthread_mutex_lock(&watch.mutex);
    long idle = watch.idle;
    pthread_mutex_unlock(&watch.mutex);
    return idle;
}

long transfer_watch_pauses(void)
{
    pthread_mutex_lock(&watch.mutex);
    long pauses = watch.pauses;
    pthread_mutex_unlock(&watch.mutex);
    return pauses;
}

long transfer_watch_overtaken(void)
{
    pthread_mutex_lock(&watch.mutex);
    long overtaken = watch.overtaken;
    pthread_mutex_unlock(&watch.mutex);
    return overtaken;
}

long transfer_watch_foreseen(void)
{
    pthread_mutex_lock(&watch.mutex);
    long foreseen = watch.foreseen;
    pthread_mutex_unlock(&watch.mutex);
    return foreseen;
}

uint64_t transfer_watch_announced(void)
{
    pthread_mutex_lock(&watch.mutex);
    uint64_t announced = watch.announced;
    pthread_mutex_unlock(&watch.mutex);
    return announced;
}
