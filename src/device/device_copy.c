/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device_copy.h"

#include "base/error.h"
#include "base/memory.h"
#include "state/copy.h"
#include "state/copy_walk.h"
#include "state/device_memory.h"

/* A box as the device's copies see it. Strides count bytes; those on the device are positive.
 * Dimensions are ordered by falling stride on the device, except that the dimension across a copy's
 * rows comes right before those within a row. */
struct transfer {
    const dcp_device *device;
    unsigned char *memory; /* first byte, on the device: the host must not access it */
    unsigned char *host;   /* the counterpart of that element on the host */
    size_t element_size;
    int32_t ndim;
    int64_t sizes[DCP_MAX_DIMS];
    int64_t strides[DCP_MAX_DIMS];
    int64_t host_strides[DCP_MAX_DIMS];
    int64_t packed_strides[DCP_MAX_DIMS]; /* in the order of the device, without gaps */
    int32_t outer;                        /* outer dimensions: one copy for each of their indices */
    size_t packed_bytes;
    size_t width, height, pitch; /* of each copy */
    bool packed;                 /* the host's elements are in the order of the device */
    bool start;                  /* do not wait for copies */
};

/* Dimensions with stride 0 on the host have their elements once on the device; they come last. */
static int32_t count_moved(const struct transfer *transfer)
{
    int32_t moved = transfer->ndim;
    while (moved > 0 && transfer->strides[moved - 1] == 0)
        moved--;
    return moved;
}

static void make_strides_positive(struct transfer *transfer)
{
    for (int32_t i = 0; i < transfer->ndim; i++) {
        int64_t last = transfer->sizes[i] - 1;
        if (transfer->strides[i] >= 0)
            continue;
        transfer->memory += last * transfer->strides[i];
        transfer->host += last * transfer->host_strides[i];
        transfer->strides[i] = -transfer->strides[i];
        transfer->host_strides[i] = -transfer->host_strides[i];
    }
}

static void move_dimension(struct transfer *transfer, int32_t from, int32_t to)
{
    int64_t size = transfer->sizes[from];
    int64_t stride = transfer->strides[from];
    int64_t host_stride = transfer->host_strides[from];
    for (int32_t i = from; i < to; i++) {
        transfer->sizes[i] = transfer->sizes[i + 1];
        transfer->strides[i] = transfer->strides[i + 1];
        transfer->host_strides[i] = transfer->host_strides[i + 1];
    }
    transfer->sizes[to] = size;
    transfer->strides[to] = stride;
    transfer->host_strides[to] = host_stride;
}

/* Finds the longest rows, and then the most of them that one copy can take. */
static void choose_copies(struct transfer *transfer, int32_t moved)
{
    int32_t inner = moved;
    int32_t most = -1;
    transfer->width = transfer->element_size;
    while (inner > 0 && (size_t)transfer->strides[inner - 1] == transfer->width)
        transfer->width *= (size_t)transfer->sizes[--inner];
    for (int32_t i = 0; i < inner; i++)
        if ((size_t)transfer->strides[i] >= transfer->width &&
            (most < 0 || transfer->sizes[i] >= transfer->sizes[most]))
            most = i;
    transfer->outer = inner;
    transfer->height = 1;
    transfer->pitch = transfer->width;
    if (most < 0)
        return;
    transfer->outer = inner - 1;
    move_dimension(transfer, most, inner - 1);
    transfer->height = (size_t)transfer->sizes[inner - 1];
    transfer->pitch = (size_t)transfer->strides[inner - 1];
}

static void pack(struct transfer *transfer, int32_t moved)
{
    int64_t bytes = (int64_t)transfer->element_size;
    transfer->packed = moved == transfer->ndim;
    for (int32_t i = transfer->ndim - 1; i >= 0; i--) {
        transfer->packed_strides[i] = i < moved ? bytes : 0;
        bytes *= i < moved ? transfer->sizes[i] : 1;
        transfer->packed =
            transfer->packed && transfer->packed_strides[i] == transfer->host_strides[i];
    }
    transfer->packed_bytes = (size_t)bytes;
}

/* False if there is nothing to move. The host's memory is changed only if it is the destination. */
static bool transfer_plan(struct transfer *transfer, const dcp_device *device, int32_t ndim,
                          const int64_t *sizes, size_t element_size, const void *memory,
                          const int64_t *strides, const void *host, const int64_t *host_strides)
{
    struct copy_walk walk;
    if (!copy_walk_make(&walk, ndim, sizes, element_size, host_strides, element_size, strides))
        return false;
    *transfer = (struct transfer){
        .device = device,
        .memory = (unsigned char *)memory,
        .host = (unsigned char *)host,
        .element_size = element_size,
        .ndim = walk.ndim,
    };
    for (int32_t i = 0; i < walk.ndim; i++) {
        transfer->sizes[i] = walk.sizes[i];
        transfer->strides[i] = walk.destination_strides[i];
        transfer->host_strides[i] = walk.source_strides[i];
    }
    make_strides_positive(transfer);
    int32_t moved = count_moved(transfer);
    choose_copies(transfer, moved);
    pack(transfer, moved);
    return true;
}

static dcp_status copy_once(const struct transfer *transfer, bool to_host, unsigned char *memory,
                            unsigned char *packed)
{
    const dcp_device *device = transfer->device;
    const dcp_device_operations *operations = device->operations;
    dcp_status status;
    if (!to_host && transfer->start)
        status = operations->start_copy_from_host(device, memory, transfer->pitch, packed,
                                                  transfer->width, transfer->height);
    else if (!to_host)
        status = operations->copy_from_host(device, memory, transfer->pitch, packed,
                                            transfer->width, transfer->height);
    else if (transfer->start)
        status = operations->start_copy_to_host(device, packed, memory, transfer->pitch,
                                                transfer->width, transfer->height);
    else
        status = operations->copy_to_host(device, packed, memory, transfer->pitch, transfer->width,
                                          transfer->height);
    return device_end(device, status);
}

/* Between the device and packed host memory. */
static dcp_status move(const struct transfer *transfer, bool to_host, unsigned char *packed)
{
    int64_t position[DCP_MAX_DIMS] = {0};
    unsigned char *memory = transfer->memory;
    for (;;) {
        RETURN_IF_ERROR(copy_once(transfer, to_host, memory, packed));
        packed += transfer->width * transfer->height;
        int32_t i = transfer->outer - 1;
        for (; i >= 0 && ++position[i] == transfer->sizes[i]; i--) {
            position[i] = 0;
            memory -= (transfer->sizes[i] - 1) * transfer->strides[i];
        }
        if (i < 0)
            return DCP_OK;
        memory += transfer->strides[i];
    }
}

/* Between packed host memory and where the elements are on the host. */
static void arrange(const struct transfer *transfer, bool to_host, unsigned char *packed)
{
    int64_t host[DCP_MAX_DIMS], dense[DCP_MAX_DIMS];
    int64_t element_size = (int64_t)transfer->element_size;
    for (int32_t i = 0; i < transfer->ndim; i++) {
        host[i] = transfer->host_strides[i] / element_size;
        dense[i] = transfer->packed_strides[i] / element_size;
    }
    if (to_host)
        copy_strided(transfer->ndim, transfer->sizes, transfer->element_size, packed, dense,
                     transfer->host, host);
    else
        copy_strided(transfer->ndim, transfer->sizes, transfer->element_size, transfer->host, host,
                     packed, dense);
}

static dcp_status transfer_run(const struct transfer *transfer, bool to_host)
{
    if (transfer->packed)
        return move(transfer, to_host, transfer->host);
    unsigned char *packed = memory_allocate(transfer->packed_bytes);
    if (!packed)
        return error_no_memory(transfer->packed_bytes, "a buffer for copying to or from a device");
    if (!to_host)
        arrange(transfer, to_host, packed);
    dcp_status status = move(transfer, to_host, packed);
    if (to_host && status == DCP_OK)
        arrange(transfer, to_host, packed);
    memory_release(packed);
    return status;
}

/* start: do not wait, if possible. */
static dcp_status copy_box(const dcp_device *device, bool to_host, bool start, int32_t ndim,
                           const int64_t *sizes, size_t element_size, const void *memory,
                           const int64_t *strides, const void *host, const int64_t *host_strides)
{
    struct transfer transfer;
    if (!transfer_plan(&transfer, device, ndim, sizes, element_size, memory, strides, host,
                       host_strides))
        return DCP_OK;
    transfer.start = start && transfer.packed && device_overlaps(device);
    return transfer_run(&transfer, to_host);
}

dcp_status device_copy_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                               size_t element_size, const void *memory, const int64_t *strides,
                               void *host, const int64_t *host_strides)
{
    return copy_box(device, true, false, ndim, sizes, element_size, memory, strides, host,
                    host_strides);
}

dcp_status device_start_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                size_t element_size, const void *memory, const int64_t *strides,
                                void *host, const int64_t *host_strides)
{
    return copy_box(device, true, true, ndim, sizes, element_size, memory, strides, host,
                    host_strides);
}

dcp_status device_copy_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                 size_t element_size, const void *host, const int64_t *host_strides,
                                 void *memory, const int64_t *strides)
{
    return copy_box(device, false, false, ndim, sizes, element_size, memory, strides, host,
                    host_strides);
}

dcp_status device_start_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                  size_t element_size, const void *host,
                                  const int64_t *host_strides, void *memory, const int64_t *strides)
{
    return copy_box(device, false, true, ndim, sizes, element_size, memory, strides, host,
                    host_strides);
}
