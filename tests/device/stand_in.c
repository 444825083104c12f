/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/stand_in.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct block {
    unsigned char *address; /* mapped without access */
    unsigned char *bytes;
    size_t size;
    int32_t index;
    struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static struct stand_in_figures figures;
static long failing_copy, failing_allocation;

/* What a test cannot go on from. */
static void die(const char *why)
{
    fprintf(stderr, "stand-in device: %s\n", why);
    abort();
}

static struct block *find(const void *memory)
{
    uintptr_t at = (uintptr_t)memory;
    for (struct block *block = blocks; block; block = block->next)
        if (at >= (uintptr_t)block->address && at - (uintptr_t)block->address < block->size)
            return block;
    die("an address that is in no block");
    return NULL;
}

void *stand_in_new(int32_t index, const void *bytes, size_t size)
{
    struct block *block = malloc(sizeof *block);
    void *address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *place = calloc(size, 1);
    if (!block || address == MAP_FAILED || !place)
        die("no memory");
    if (bytes)
        memcpy(place, bytes, size);
    pthread_mutex_lock(&lock);
    *block = (struct block){address, place, size, index, blocks};
    blocks = block;
    figures.blocks++;
    pthread_mutex_unlock(&lock);
    return address;
}

void stand_in_free(void *memory)
{
    pthread_mutex_lock(&lock);
    struct block *block = find(memory), **link = &blocks;
    if (block->address != memory)
        die("freed in the middle of a block");
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    figures.blocks--;
    pthread_mutex_unlock(&lock);
    munmap(block->address, block->size);
    free(block->bytes);
    free(block);
}

unsigned char *stand_in_bytes(void *memory)
{
    pthread_mutex_lock(&lock);
    struct block *block = find(memory);
    unsigned char *bytes = block->bytes + ((unsigned char *)memory - block->address);
    pthread_mutex_unlock(&lock);
    return bytes;
}

void *stand_in_block(const void *memory)
{
    pthread_mutex_lock(&lock);
    void *address = find(memory)->address;
    pthread_mutex_unlock(&lock);
    return address;
}

struct stand_in_figures stand_in_figures(void)
{
    pthread_mutex_lock(&lock);
    struct stand_in_figures now = figures;
    pthread_mutex_unlock(&lock);
    return now;
}

void stand_in_reset(long copy, long allocation)
{
    pthread_mutex_lock(&lock);
    figures = (struct stand_in_figures){.blocks = figures.blocks};
    failing_copy = copy;
    failing_allocation = allocation;
    pthread_mutex_unlock(&lock);
}

/* Checks a copy and counts it; *bytes is where its device side really lies. */
static dcp_status begin(const dcp_device *device, const void *memory, size_t pitch, size_t width,
                        size_t height, unsigned char **bytes)
{
    if (width == 0 || height == 0 || pitch < width)
        die("a copy of impossible measures");
    pthread_mutex_lock(&lock);
    struct block *block = find(memory);
    size_t first = (size_t)((const unsigned char *)memory - block->address);
    if (block->index != device->index)
        die("a block of another device");
    if ((height - 1) * pitch + width > block->size - first)
        die("a copy beyond the end of its block");
    *bytes = block->bytes + first;
    figures.copies++;
    figures.rows += (long)height;
    if (width * height > figures.largest)
        figures.largest = width * height;
    bool fails = failing_copy > 0 && --failing_copy == 0;
    pthread_mutex_unlock(&lock);
    return fails ? dcp_error_set(DCP_ERR_DEVICE, "the copy failed on purpose") : DCP_OK;
}

static dcp_status copy_to_host(const dcp_device *device, void *host, const void *memory,
                               size_t pitch, size_t width, size_t height)
{
    unsigned char *bytes;
    dcp_status status = begin(device, memory, pitch, width, height, &bytes);
    for (size_t row = 0; status == DCP_OK && row < height; row++)
        memcpy((unsigned char *)host + row * width, bytes + row * pitch, width);
    return status;
}

static dcp_status copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                                 const void *host, size_t width, size_t height)
{
    unsigned char *bytes;
    dcp_status status = begin(device, memory, pitch, width, height, &bytes);
    for (size_t row = 0; status == DCP_OK && row < height; row++)
        memcpy(bytes + row * pitch, (const unsigned char *)host + row * width, width);
    return status;
}

static dcp_status allocate(const dcp_device *device, size_t bytes, void **memory)
{
    pthread_mutex_lock(&lock);
    bool fails = failing_allocation > 0 && --failing_allocation == 0;
    pthread_mutex_unlock(&lock);
    if (fails)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "the device is full on purpose");
    *memory = stand_in_new(device->index, NULL, bytes);
    return DCP_OK;
}

static dcp_status holds(const dcp_device *device, const void *memory, bool *held)
{
    uintptr_t at = (uintptr_t)memory;
    *held = false;
    pthread_mutex_lock(&lock);
    for (struct block *block = blocks; block; block = block->next)
        if (at >= (uintptr_t)block->address && at - (uintptr_t)block->address < block->size)
            *held = block->index == device->index;
    pthread_mutex_unlock(&lock);
    return DCP_OK;
}

static void release(const dcp_device *device, void *memory)
{
    (void)device;
    stand_in_free(memory);
}

dcp_device stand_in(int32_t index)
{
    static const dcp_device_operations operations = {
        .size_of = sizeof operations,
        .name = "stand-in",
        .allocate = allocate,
        .release = release,
        .copy_to_host = copy_to_host,
        .copy_from_host = copy_from_host,
        .holds = holds,
    };
    return (dcp_device){.operations = &operations, .index = index};
}
