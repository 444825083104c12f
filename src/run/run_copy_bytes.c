/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of one file that is copied or compared: parts of it, several at a time. */
#include "run/run_copy_bytes.h"

#include <stdatomic.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

enum { PART_MOST = 1 << 20, PART_LEAST = 1 << 10 };

dcp_status copy_lanes_new(struct copy_lanes *lanes, uint64_t bytes_per_second)
{
    uint64_t part = bytes_per_second / 8;
    lanes->part_size = part == 0 || part > PART_MOST ? PART_MOST
                       : part < PART_LEAST           ? PART_LEAST
                                                     : (size_t)part;
    lanes->memory = memory_allocate_large(COPY_LANES * lanes->part_size);
    if (!lanes->memory)
        return error_no_memory(COPY_LANES * lanes->part_size, "copying a checkpoint");
    for (size_t i = 0; i < COPY_LANES; i++)
        atomic_flag_clear(&lanes->taken[i]);
    return DCP_OK;
}

void copy_lanes_free(struct copy_lanes *lanes)
{
    memory_release_aligned(lanes->memory);
}

/* There are as many as threads, so that one is free. */
static size_t take_lane(struct copy_lanes *lanes)
{
    size_t lane = 0;
    while (atomic_flag_test_and_set(&lanes->taken[lane]))
        lane = (lane + 1) % COPY_LANES;
    return lane;
}

struct passing {
    struct copying *copying;
    struct run_file *from;
    const struct run_place *to; /* NULL: nothing is written */
    dcp_storage_file *file;
    bool limited;
    pthread_t caller;
    _Atomic uint64_t sum;
};

/* The caller's function is called by its own thread alone. */
static dcp_status ask(const struct passing *passing)
{
    const dcp_copy_options *options = &passing->copying->options;
    return options->stopped && pthread_equal(passing->caller, pthread_self()) &&
                   options->stopped(options->stopped_context)
               ? dcp_error_set(DCP_ERR_CANCELLED, "copying %s was stopped",
                               passing->copying->from.root)
               : DCP_OK;
}

static dcp_status write_part(const struct passing *passing, const void *bytes, size_t size,
                             uint64_t at)
{
    const dcp_storage *table = passing->to->table;
    error_clear();
    return error_checked(table->write(table->context, passing->file, bytes, size, at),
                         "the storage's write");
}

static dcp_status pass_part(void *context, size_t index)
{
    struct passing *passing = context;
    struct copy_lanes *lanes = &passing->copying->lanes;
    uint64_t at = (uint64_t)index * lanes->part_size, left = passing->from->file.size - at;
    size_t size = left < lanes->part_size ? (size_t)left : lanes->part_size;
    RETURN_IF_ERROR(ask(passing));
    if (passing->limited)
        rate_take(&passing->copying->rate, size);
    size_t lane = take_lane(lanes);
    unsigned char *bytes = lanes->memory + lane * lanes->part_size;
    dcp_status status = run_file_read(passing->from, bytes, size, at);
    if (status == DCP_OK) {
        /* Parts come in any order: each counts with its place. */
        const uint64_t part[] = {at, xxh3_64(bytes, size)};
        atomic_fetch_add(&passing->sum, xxh3_64(part, sizeof part));
        if (passing->to)
            status = write_part(passing, bytes, size, at);
    }
    atomic_flag_clear(&lanes->taken[lane]);
    return status == DCP_OK ? progress_add(&passing->copying->progress, size) : status;
}

dcp_status run_copy_bytes(struct copying *copying, struct run_file *from,
                          const struct run_place *to, dcp_storage_file *file, bool limited,
                          uint64_t *sum)
{
    struct passing passing = {.copying = copying,
                              .from = from,
                              .to = to,
                              .file = file,
                              .limited = limited,
                              .caller = pthread_self()};
    uint64_t part = copying->lanes.part_size, size = from->file.size;
    dcp_status status =
        thread_run((size_t)(size / part + (size % part != 0)), COPY_LANES, pass_part, &passing);
    *sum = atomic_load(&passing.sum);
    return status;
}
