/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk_ways.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk.h"

enum { SEVERAL = 4, MOST_LANES = 2 * SEVERAL, PATH = 4200 };

struct worker {
    struct disk_ways *ways;
    int number;
    struct disk_lane *lane;
    pthread_t thread;
    bool good;
};

struct disk_ways {
    struct disk_way way;
    size_t size;
    int count;
    struct worker workers[MOST_LANES];
    /* Of the call under way. */
    const char *path;
    int rank, ranks;
};

bool disk_way_from_name(const char *name, struct disk_way *way)
{
    static const char *const memories[] = {[DISK_BUFFERED] = "buffered",
                                           [DISK_ORDINARY] = "direct",
                                           [DISK_LARGE] = "large",
                                           [DISK_COPIED] = "copied"};
    size_t length = strcspn(name, "-");

    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
        if (strncmp(memories[i], name, length) != 0 || memories[i][length] != '\0')
            continue;
        *way = (struct disk_way){.memory = (enum disk_memory)i,
                                 .ring = strncmp(name + length, "-ring", 5) == 0};
        name += length + (way->ring ? 5 : 0);
        way->threads = strcmp(name, "-threads") == 0;
        return way->threads || *name == '\0';
    }
    return false;
}

struct disk_ways *disk_ways_new(const struct disk_way *way, size_t size)
{
    struct disk_ways *ways = calloc(1, sizeof *ways);

    if (!ways)
        err(1, "no memory");
    *ways = (struct disk_ways){.way = *way, .size = size, .count = way->threads ? SEVERAL : 1};
    /* Without a ring a copy is made beside a transfer by two that take turns. */
    if (way->memory == DISK_COPIED && !way->ring)
        ways->count *= 2;
    for (int i = 0; i < ways->count; i++) {
        struct worker *worker = &ways->workers[i];
        worker->ways = ways;
        worker->number = i;
        worker->lane = disk_lane_new(way, size / (size_t)ways->count);
        if (!worker->lane) {
            disk_ways_free(ways);
            return NULL;
        }
    }
    return ways;
}

void disk_ways_free(struct disk_ways *ways)
{
    for (int i = 0; ways && i < ways->count; i++)
        disk_lane_free(ways->workers[i].lane);
    free(ways);
}

/* In threads of their own, but for the first. */
static bool run(struct disk_ways *ways, void *(*work)(void *))
{
    bool good = true;

    for (int i = 1; i < ways->count; i++)
        if (pthread_create(&ways->workers[i].thread, NULL, work, &ways->workers[i]) != 0)
            errx(1, "no thread");
    work(&ways->workers[0]);
    for (int i = 0; i < ways->count; i++) {
        if (i > 0)
            pthread_join(ways->workers[i].thread, NULL);
        good &= ways->workers[i].good;
    }
    return good;
}

static void *write_share(void *context)
{
    struct worker *worker = context;
    const struct disk_ways *ways = worker->ways;
    size_t part = ways->size / (size_t)ways->count / DISK_BLOCK * DISK_BLOCK;
    bool last = worker->number == ways->count - 1;
    size_t size = last ? ways->size - part * (size_t)worker->number : part;
    off_t whole = (off_t)(size / DISK_BLOCK * DISK_BLOCK);
    int direct = ways->way.memory == DISK_BUFFERED ? 0 : O_DIRECT;
    char path[PATH];

    snprintf(path, sizeof path, "%s_%d", ways->path, worker->number);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | direct, 0666);
    worker->good = file >= 0;
    if (file < 0 && (errno != EINVAL || !direct))
        err(1, "%s", path);
    if (file < 0)
        return NULL;
    /* Several transfers at a time do not make a file longer, and it is less work later. */
    (void)fallocate(file, 0, 0, (off_t)size);
    worker->good = disk_lane_write(worker->lane, file, whole);
    if (size > (size_t)whole) {
        (void)fcntl(file, F_SETFL, 0);
        disk_lane_write_rest(worker->lane, file, whole, size - (size_t)whole);
    }
    if (fsync(file) != 0 || close(file) != 0)
        err(1, "%s", path);
    return NULL;
}

bool disk_ways_write(struct disk_ways *ways, const char *path)
{
    ways->path = path;
    return run(ways, write_share);
}

static void read_file(int file, size_t size, void *context)
{
    struct worker *worker = context;
    const struct disk_ways *ways = worker->ways;
    size_t threads = (size_t)ways->count;
    size_t share = (size_t)ways->rank * threads + (size_t)worker->number;
    size_t shares = (size_t)ways->ranks * threads;
    size_t part = size / shares / DISK_BLOCK * DISK_BLOCK;
    size_t end = share == shares - 1 ? size : part * (share + 1);

    if (ways->way.memory != DISK_BUFFERED && fcntl(file, F_SETFL, O_DIRECT) != 0)
        worker->good = false;
    if (worker->good)
        worker->good = disk_lane_read(worker->lane, file, (off_t)(part * share), (off_t)end);
}

static void *read_share(void *context)
{
    struct worker *worker = context;

    worker->good = true;
    disk_visit(worker->ways->path, read_file, worker);
    return NULL;
}

bool disk_ways_read(struct disk_ways *ways, const char *directory, int rank, int ranks)
{
    ways->path = directory;
    ways->rank = rank;
    ways->ranks = ranks;
    return run(ways, read_share);
}

size_t disk_ways_moved(const struct disk_ways *ways)
{
    size_t moved = 0;

    for (int i = 0; i < ways->count; i++)
        moved += disk_lane_moved(ways->workers[i].lane);
    return moved;
}
