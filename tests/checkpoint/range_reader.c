/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/range_reader.h"

#include <string.h>
#include <unistd.h>

/* Counts a call, which may be the one that fails. */
static dcp_status enter(struct range_reader *reader, const char *location)
{
    if (atomic_fetch_add(&reader->calls, 1) + 1 == reader->fails_at)
        return dcp_error_set(DCP_ERR_IO, "the store is away, %s with it", location);
    return DCP_OK;
}

static dcp_status find(struct range_reader *reader, const char *location, struct memory_file **file)
{
    *file = memory_reader_find(&reader->memory, location);
    return *file ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "the store has no %s", location);
}

static dcp_status stored_size(void *context, const char *location, uint64_t *size)
{
    struct range_reader *reader = context;
    struct memory_file *file;
    dcp_status status = enter(reader, location);
    if (status == DCP_OK)
        status = find(reader, location, &file);
    if (status == DCP_OK)
        *size = file->size + reader->adds;
    return status;
}

static void stay(struct range_reader *reader)
{
    int inside = atomic_fetch_add(&reader->inside, 1) + 1, most = reader->most_inside;
    while (inside > most && !atomic_compare_exchange_weak(&reader->most_inside, &most, inside))
        ;
    if (reader->slow > 0)
        usleep(reader->slow);
    atomic_fetch_sub(&reader->inside, 1);
}

static dcp_status read_range(void *context, const char *location, uint64_t offset, size_t size,
                             void *bytes, size_t *done)
{
    struct range_reader *reader = context;
    struct memory_file *file;
    dcp_status status = enter(reader, location);
    if (status == DCP_OK)
        status = find(reader, location, &file);
    if (status != DCP_OK)
        return status;
    stay(reader);
    if (size == 0 || offset + size > file->size + reader->adds)
        return dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes at %zu of %s", size, (size_t)offset,
                             location);
    size_t left = offset < file->size ? file->size - (size_t)offset : 0;
    *done = size < left ? size : left;
    if (reader->gives > 0 && *done > reader->gives)
        *done = reader->gives;
    if (reader->gives_nothing)
        *done = 0;
    memcpy(bytes, file->bytes + offset, *done);
    if (!strstr(location, ".metadata"))
        atomic_fetch_add(&reader->data, *done);
    if (reader->gives_too_much)
        *done = size + 1;
    return DCP_OK;
}

void range_reader_init(struct range_reader *reader, const char *directory)
{
    memset(reader, 0, sizeof *reader);
    memory_reader_init(&reader->memory, directory, "");
    reader->table = (dcp_storage_reader){.size_of = sizeof reader->table,
                                         .context = reader,
                                         .stored_size = stored_size,
                                         .read_range = read_range};
}

void range_reader_free(struct range_reader *reader)
{
    memory_reader_free(&reader->memory);
}
