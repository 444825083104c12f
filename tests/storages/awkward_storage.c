/* SPDX-License-Identifier: BSD-3-Clause */
#include "storages/awkward_storage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Alignment of what is being published, which makes no difference, and tells it from other files.
 */
#define PUBLISHED 1

/* Nobody may look at it. */
#define RUBBISH ((void *)(uintptr_t)0x5a5)

static const char *const names[AWKWARD_CALLS] = {"",
                                                 "open",
                                                 "free_space",
                                                 "list",
                                                 "remove",
                                                 "open_file",
                                                 "read",
                                                 "create",
                                                 "write",
                                                 "seal",
                                                 "sync",
                                                 "prepare",
                                                 "publish",
                                                 "identify",
                                                 "queue_open",
                                                 "map",
                                                 "remove_directory"};

/* ---- faults ---- */

static bool is_struck(const struct awkward_fault *fault, enum awkward_call call, long counted)
{
    if (fault->n == 0 || (fault->call != AWKWARD_ANY && fault->call != call))
        return false;
    return fault->from_then_on ? counted >= fault->n : counted == fault->n;
}

dcp_status awkward_storage_strike(struct awkward_storage *storage, enum awkward_call call)
{
    pthread_mutex_lock(&storage->mutex);
    struct awkward_fault fault = storage->fault;
    storage->calls[call]++;
    if (fault.call == AWKWARD_ANY || fault.call == call)
        storage->counted++;
    bool struck = is_struck(&fault, call, storage->counted);
    if (struck && storage->struck == AWKWARD_ANY)
        storage->struck = call;
    pthread_mutex_unlock(&storage->mutex);
    if (!struck)
        return DCP_OK;
    if (!fault.silent)
        dcp_error_set(DCP_ERR_IO, "%s is made to fail", names[call]);
    return (dcp_status)fault.status;
}

void awkward_storage_count_open(struct awkward_storage *storage, long change)
{
    pthread_mutex_lock(&storage->mutex);
    storage->open += change;
    pthread_mutex_unlock(&storage->mutex);
}

void awkward_storage_dawdle(struct awkward_storage *storage)
{
    unsigned most = storage->manner.microseconds;
    if (most == 0)
        return;
    pthread_mutex_lock(&storage->mutex);
    storage->random = storage->random * 1103515245u + 12345u;
    unsigned taken = (storage->random >> 8) % most;
    pthread_mutex_unlock(&storage->mutex);
    nanosleep(&(struct timespec){.tv_nsec = (long)taken * 1000}, NULL);
}

/* Handles that one got, counted. */
static dcp_status opened(struct awkward_storage *storage, dcp_status status, void **handle)
{
    if (status == DCP_OK)
        awkward_storage_count_open(storage, 1);
    else
        *handle = RUBBISH;
    return status;
}

/* ---- directories ---- */

/* Where the storage below has none to be opened, its id. */
static dcp_status open_below(const dcp_storage *below, const char *id, uint32_t flags,
                             void **directory, bool *created)
{
    if (below->open)
        return below->open(below->context, id, flags, directory, created);
    *directory = strdup(id);
    *created = flags & DCP_OPEN_CREATE;
    return *directory ? DCP_OK : dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", id);
}

static dcp_status open_directory(void *context, const char *id, uint32_t flags, void **directory,
                                 bool *created)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_OPEN);
    if (status == DCP_OK)
        status = open_below(storage->below, id, flags, directory, created);
    else
        *created = true;
    return opened(storage, status, directory);
}

static void close_directory(void *context, void *directory)
{
    struct awkward_storage *storage = context;
    if (storage->below->close)
        storage->below->close(storage->below->context, directory);
    else
        free(directory);
    awkward_storage_count_open(storage, -1);
}

static dcp_status remove_directory(void *context, void *directory)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_REMOVE_DIRECTORY);
    return status == DCP_OK && storage->below->remove_directory
               ? storage->below->remove_directory(storage->below->context, directory)
               : status;
}

static void describe_directory(void *context, void *directory, dcp_storage_traits *traits)
{
    const struct awkward_storage *storage = context;
    (void)directory;
    size_t size_of = traits->size_of;
    *traits = storage->manner.traits;
    traits->size_of = size_of;
}

static dcp_status find_space(void *context, void *directory, uint64_t *bytes)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_FREE_SPACE);
    if (status == DCP_OK && storage->below->free_space)
        return storage->below->free_space(storage->below->context, directory, bytes);
    *bytes = status == DCP_OK ? UINT64_MAX : 0;
    return status;
}

static dcp_status list_directory(void *context, void *directory, dcp_storage_visitor visitor,
                                 void *visitor_context)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_LIST);
    return status == DCP_OK
               ? storage->below->list(storage->below->context, directory, visitor, visitor_context)
               : status;
}

static dcp_status remove_file(void *context, void *directory, const char *name)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_REMOVE);
    return status == DCP_OK ? storage->below->remove(storage->below->context, directory, name)
                            : status;
}

static dcp_status sync_directory(void *context, void *directory)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_SYNC);
    return status == DCP_OK && storage->below->sync
               ? storage->below->sync(storage->below->context, directory)
               : status;
}

/* ---- files ---- */

static dcp_status open_file(void *context, void *directory, const char *name,
                            const dcp_storage_access *access, dcp_storage_file *file)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_OPEN_FILE);
    if (status == DCP_OK)
        status = storage->below->open_file(storage->below->context, directory, name, access, file);
    file->alignment = storage->manner.alignment;
    return opened(storage, status, &file->handle);
}

dcp_status awkward_read(void *context, dcp_storage_file *file, void *bytes, size_t size,
                        uint64_t offset)
{
    struct awkward_storage *storage = context;
    awkward_storage_dawdle(storage);
    dcp_status status = awkward_storage_strike(storage, AWKWARD_READ);
    if (status == DCP_OK)
        return storage->below->read(storage->below->context, file, bytes, size, offset);
    memset(bytes, 0x5a, size);
    return status;
}

static void close_file(void *context, dcp_storage_file *file)
{
    struct awkward_storage *storage = context;
    storage->below->close_file(storage->below->context, file);
    awkward_storage_count_open(storage, -1);
}

static dcp_status create_file(void *context, void *directory, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *file)
{
    struct awkward_storage *storage = context;
    dcp_status status =
        awkward_storage_strike(storage, access->published ? AWKWARD_PREPARE : AWKWARD_CREATE);
    if (status == DCP_OK)
        status = storage->below->create(storage->below->context, directory, name, access, file);
    file->alignment = access->published ? PUBLISHED : storage->manner.alignment;
    return opened(storage, status, &file->handle);
}

dcp_status awkward_write(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                         uint64_t offset)
{
    struct awkward_storage *storage = context;
    awkward_storage_dawdle(storage);
    dcp_status status = awkward_storage_strike(
        storage, file->alignment == PUBLISHED ? AWKWARD_PREPARE : AWKWARD_WRITE);
    return status == DCP_OK
               ? storage->below->write(storage->below->context, file, bytes, size, offset)
               : status;
}

static void abandon_file(void *context, dcp_storage_file *file)
{
    struct awkward_storage *storage = context;
    const dcp_storage *below = storage->below;
    (below->abandon ? below->abandon : below->close_file)(below->context, file);
    awkward_storage_count_open(storage, -1);
}

static dcp_status seal_file(void *context, dcp_storage_file *file, uint64_t size,
                            dcp_storage_condition condition, const char *identity)
{
    struct awkward_storage *storage = context;
    bool published = file->alignment == PUBLISHED;
    dcp_status struck = awkward_storage_strike(storage, published ? AWKWARD_PUBLISH : AWKWARD_SEAL);
    if (struck != DCP_OK && !(published && storage->fault.afterwards)) {
        abandon_file(storage, file);
        return struck;
    }
    dcp_status status =
        storage->below->seal(storage->below->context, file, size, condition, identity);
    awkward_storage_count_open(storage, -1);
    return status == DCP_OK ? struck : status;
}

/* ---- publications, where the storage below prepares them ---- */

static dcp_status prepare(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, const dcp_storage_access *access, void **publication)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_PREPARE);
    if (status == DCP_OK)
        status = storage->below->prepare(storage->below->context, directory, name, bytes, size,
                                         access, publication);
    return opened(storage, status, publication);
}

static void retract(void *context, void *publication)
{
    struct awkward_storage *storage = context;
    storage->below->retract(storage->below->context, publication);
    awkward_storage_count_open(storage, -1);
}

static dcp_status publish(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible)
{
    struct awkward_storage *storage = context;
    dcp_status struck = awkward_storage_strike(storage, AWKWARD_PUBLISH);
    if (struck != DCP_OK && !storage->fault.afterwards) {
        *visible = false;
        retract(storage, publication);
        return struck;
    }
    dcp_status status =
        storage->below->publish(storage->below->context, publication, condition, visible);
    awkward_storage_count_open(storage, -1);
    return status == DCP_OK ? struck : status;
}

static dcp_status identify(void *context, void *directory, const char *name,
                           char identity[DCP_STORAGE_IDENTITY])
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_IDENTIFY);
    if (status == DCP_OK)
        return storage->below->identify(storage->below->context, directory, name, identity);
    memset(identity, 'x', DCP_STORAGE_IDENTITY);
    return status;
}

static dcp_status publish_over(void *context, void *publication, const char *identity,
                               bool *visible)
{
    struct awkward_storage *storage = context;
    dcp_status struck = awkward_storage_strike(storage, AWKWARD_PUBLISH);
    if (struck != DCP_OK && !storage->fault.afterwards) {
        *visible = false;
        retract(storage, publication);
        return struck;
    }
    dcp_status status =
        storage->below->publish_over(storage->below->context, publication, identity, visible);
    awkward_storage_count_open(storage, -1);
    return status == DCP_OK ? struck : status;
}

/* ---- what makes reading faster ---- */

/* Every other kilobyte. */
static bool is_cached(void *context, dcp_storage_file *file, uint64_t offset, size_t size)
{
    (void)context, (void)file, (void)size;
    return (offset >> 10) % 2 == 0;
}

static void expect(void *context, dcp_storage_file *file, uint64_t offset, size_t size)
{
    const struct awkward_storage *storage = context;
    if (storage->below->expect)
        storage->below->expect(storage->below->context, file, offset, size);
}

static dcp_status map_file(void *context, dcp_storage_file *file, uint64_t offset, size_t size,
                           const void **bytes, void **mapping)
{
    struct awkward_storage *storage = context;
    dcp_status status = awkward_storage_strike(storage, AWKWARD_MAP);
    if (status == DCP_OK)
        status = storage->below->map(storage->below->context, file, offset, size, bytes, mapping);
    else
        *bytes = RUBBISH;
    return opened(storage, status, mapping);
}

static void unmap_file(void *context, void *mapping, const void *bytes, size_t size)
{
    struct awkward_storage *storage = context;
    storage->below->unmap(storage->below->context, mapping, bytes, size);
    awkward_storage_count_open(storage, -1);
}

/* ---- the storage ---- */

static void add_what_is_optional(dcp_storage *table)
{
    table->remove_directory = remove_directory;
    table->describe = describe_directory;
    table->free_space = find_space;
    table->sync = sync_directory;
    table->queue_open = awkward_queue_open;
    table->queue_start = awkward_queue_start;
    table->queue_finish = awkward_queue_finish;
    table->queue_close = awkward_queue_close;
    table->is_cached = is_cached;
    table->expect = expect;
    table->map = map_file;
    table->unmap = unmap_file;
}

/* What it cannot make up for a storage that lacks it. */
static void add_what_is_below(dcp_storage *table, const dcp_storage *below)
{
    table->identify = below->identify ? identify : NULL;
    table->publish_over = below->publish_over ? publish_over : NULL;
}

static void add_publications(dcp_storage *table)
{
    table->prepare = prepare;
    table->publish = publish;
    table->retract = retract;
}

void awkward_storage_init(struct awkward_storage *storage, const dcp_storage *below,
                          const struct awkward_manner *manner)
{
    *storage = (struct awkward_storage){.below = below, .random = 1};
    if (manner)
        storage->manner = *manner;
    storage->table = (dcp_storage){.size_of = sizeof storage->table,
                                   .context = storage,
                                   .open = open_directory,
                                   .close = close_directory,
                                   .list = list_directory,
                                   .remove = remove_file,
                                   .open_file = open_file,
                                   .read = awkward_read,
                                   .close_file = close_file,
                                   .create = create_file,
                                   .write = awkward_write,
                                   .seal = seal_file,
                                   .abandon = abandon_file};
    if (below->prepare)
        add_publications(&storage->table);
    if (!storage->manner.bare)
        add_what_is_optional(&storage->table);
    if (!storage->manner.bare)
        add_what_is_below(&storage->table, below);
    pthread_mutex_init(&storage->mutex, NULL);
}

void awkward_storage_destroy(struct awkward_storage *storage)
{
    pthread_mutex_destroy(&storage->mutex);
}

void awkward_storage_fail(struct awkward_storage *storage, const struct awkward_fault *fault)
{
    pthread_mutex_lock(&storage->mutex);
    storage->fault = fault ? *fault : (struct awkward_fault){0};
    storage->counted = 0;
    storage->struck = AWKWARD_ANY;
    memset(storage->calls, 0, sizeof storage->calls);
    pthread_mutex_unlock(&storage->mutex);
}

enum awkward_call awkward_storage_struck(struct awkward_storage *storage)
{
    pthread_mutex_lock(&storage->mutex);
    enum awkward_call struck = storage->struck;
    pthread_mutex_unlock(&storage->mutex);
    return struck;
}

long awkward_storage_calls(struct awkward_storage *storage, enum awkward_call call)
{
    pthread_mutex_lock(&storage->mutex);
    long calls = storage->calls[call];
    pthread_mutex_unlock(&storage->mutex);
    return calls;
}

long awkward_storage_open_count(struct awkward_storage *storage)
{
    pthread_mutex_lock(&storage->mutex);
    long open = storage->open;
    pthread_mutex_unlock(&storage->mutex);
    return open;
}
