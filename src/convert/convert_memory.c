/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_memory.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "convert/convert_copy.h"
#include "convert/convert_windows.h"

/* Addresses are never touched; they only have to be none that mean something. */
#define FIRST_ADDRESS ((uint64_t)1 << 20)
#define GAP           ((uint64_t)4096)

static dcp_status no_memory_here(const dcp_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = NULL;
    return error_no_memory(bytes, "a conversion's source, which is only read");
}

static void release_nothing(const dcp_device *device, void *memory)
{
    (void)device, (void)memory;
}

static dcp_status never_written(const dcp_device *device, void *memory, size_t pitch,
                                const void *host, size_t width, size_t height)
{
    (void)device, (void)memory, (void)pitch, (void)host, (void)width, (void)height;
    return dcp_error_set(DCP_ERR_DEVICE, "a conversion's source is only read");
}

static size_t find_item(const struct convert_memory *memory, uintptr_t address)
{
    size_t low = 0, high = memory->source->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (memory->begins[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static dcp_status read_row(const struct convert_memory *memory, void *host, uintptr_t address,
                           size_t width)
{
    size_t index = find_item(memory, address);
    const struct convert_item *item = &memory->source->items[index];
    uint64_t begin = address - memory->begins[index];
    size_t element = dcp_dtype_size(item->dtype);
    if (!item->is_tensor || begin > item->bytes || width > item->bytes - begin ||
        begin % element != 0 || width % element != 0)
        return dcp_error_set(DCP_ERR_DEVICE, "%s: %zu bytes are not its elements", item->name,
                             width);
    int64_t first = (int64_t)(begin / element), count = (int64_t)(width / element);
    return memory->windows ? convert_windows_read(memory->windows, item, first, count, host)
                           : convert_read(memory->source, item, first, count, host);
}

/* What reading takes is no part of the limit of the save, which cannot know it. */
static dcp_status copy_to_host(const dcp_device *device, void *host, const void *address,
                               size_t pitch, size_t width, size_t height)
{
    const struct convert_memory *memory = device->queue;
    struct memory_account *account = memory_account_enter(NULL);
    dcp_status status = DCP_OK;
    if (pitch == width) {
        width *= height;
        height = 1;
    }
    for (size_t row = 0; row < height && status == DCP_OK; row++)
        status =
            read_row(memory, (char *)host + row * width, (uintptr_t)address + row * pitch, width);
    memory_account_enter(account);
    return status;
}

dcp_status convert_memory_open(struct convert_memory *memory, const struct convert_source *source)
{
    uint64_t next = FIRST_ADDRESS;
    *memory = (struct convert_memory){.source = source};
    memory->operations = (dcp_device_operations){
        .size_of = sizeof memory->operations,
        .name = "source",
        .allocate = no_memory_here,
        .release = release_nothing,
        .copy_to_host = copy_to_host,
        .copy_from_host = never_written,
    };
    memory->begins = memory_allocate_array(source->count + 1, sizeof *memory->begins);
    if (!memory->begins)
        return error_no_memory((source->count + 1) * sizeof *memory->begins, "tensors to read");
    for (size_t i = 0; i < source->count; i++) {
        memory->begins[i] = (uintptr_t)next;
        uint64_t bytes = source->items[i].is_tensor ? source->items[i].bytes : 0;
        if (!checked_add_u64(next, bytes, &next) ||
            !checked_add_u64(next, GAP - next % GAP, &next) || next > INT64_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "tensors of more than 2^63 bytes together");
    }
    memory->begins[source->count] = (uintptr_t)next;
    return DCP_OK;
}

dcp_status convert_memory_use_windows(struct convert_memory *memory)
{
    bool ahead = convert_thread_count(memory->source->options) > 1;
    return convert_windows_new(memory->source, ahead, &memory->windows);
}

void convert_memory_stop_ahead(struct convert_memory *memory)
{
    if (memory->windows)
        convert_windows_stop_ahead(memory->windows);
}

void convert_memory_close(struct convert_memory *memory)
{
    convert_windows_free(memory->windows);
    memory->windows = NULL;
    memory_release(memory->begins);
    memory->begins = NULL;
}

void convert_memory_tensor(struct convert_memory *memory, const struct convert_item *item,
                           dcp_tensor *tensor)
{
    size_t index = (size_t)(item - memory->source->items);
    memset(tensor, 0, sizeof *tensor);
    tensor->dtype = item->dtype;
    tensor->ndim = item->ndim;
    tensor->requires_grad = item->requires_grad;
    tensor->device = (dcp_device){.operations = &memory->operations, .queue = memory};
    /* No pointer to anything: the address that the device knows the elements by. */
    tensor->data = (void *)memory->begins[index]; /* NOLINT(performance-no-int-to-ptr) */
    if (item->ndim > 0)
        memcpy(tensor->global_shape, item->shape, (size_t)item->ndim * sizeof *item->shape);
}

const struct convert_item *convert_memory_item(const struct convert_memory *memory,
                                               const void *address)
{
    return &memory->source->items[find_item(memory, (uintptr_t)address)];
}
