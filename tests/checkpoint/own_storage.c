/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/own_storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counts a call, which may be the one that fails. */
static dcp_status enter(struct own_storage *own, const char *function, const char *what)
{
    if (own->fails_in && strcmp(own->fails_in, function) != 0)
        return DCP_OK;
    if (atomic_fetch_add(&own->calls, 1) + 1 != own->fails_at)
        return DCP_OK;
    if (!own->fails_silently)
        dcp_error_set(DCP_ERR_IO, "the store is away, %s of %s with it", function, what);
    return (dcp_status)own->fails_with;
}

/* ---- directories ---- */

static bool takes(void *context, const char *id)
{
    (void)context;
    return strncmp(id, "store://", strlen("store://")) == 0;
}

static dcp_status open_directory(void *context, const char *id, uint32_t flags, void **directory,
                                 bool *created)
{
    struct own_storage *own = context;
    char path[1024];
    dcp_status status = enter(own, "open", id);
    snprintf(path, sizeof path, "%s/%s", own->root, id + strlen("store://"));
    if (status == DCP_OK)
        status = own->kept->open(own->kept->context, path, flags, directory, created);
    own->open += status == DCP_OK;
    return status;
}

static void close_directory(void *context, void *directory)
{
    struct own_storage *own = context;
    own->open--;
    own->kept->close(own->kept->context, directory);
}

static dcp_status remove_directory(void *context, void *directory)
{
    const struct own_storage *own = context;
    return own->kept->remove_directory(own->kept->context, directory);
}

static void describe(void *context, void *directory, dcp_storage_traits *traits)
{
    const struct own_storage *own = context;
    (void)directory;
    traits->request_size = own->request_size;
}

struct twice {
    dcp_storage_visitor visitor;
    void *context;
};

/* A directory has no dot in its name; what is in it is listed whole, as by an object store. */
static dcp_status visit_twice(void *context, const char *name)
{
    const struct twice *twice = context;
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", name, strchr(name, '.') ? "" : "/__0_0.distcp");
    dcp_status status = twice->visitor(twice->context, whole);
    return status == DCP_OK ? twice->visitor(twice->context, whole) : status;
}

static dcp_status list(void *context, void *directory, dcp_storage_visitor visitor, void *visiting)
{
    struct own_storage *own = context;
    struct twice twice = {visitor, visiting};
    dcp_status status = enter(own, "list", "a directory");
    if (status != DCP_OK)
        return status;
    return own->repeats ? own->kept->list(own->kept->context, directory, visit_twice, &twice)
                        : own->kept->list(own->kept->context, directory, visitor, visiting);
}

static dcp_status remove_file(void *context, void *directory, const char *name)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "remove", name);
    return status == DCP_OK ? own->kept->remove(own->kept->context, directory, name) : status;
}

static dcp_status sync_directory(void *context, void *directory)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "sync", "a directory");
    return status == DCP_OK ? own->kept->sync(own->kept->context, directory) : status;
}

/* ---- files ---- */

struct own_file {
    dcp_storage_file kept;
    char name[128];
};

/* Which of open_file() and create() it is. */
typedef dcp_status (*opener)(void *context, void *directory, const char *name,
                             const dcp_storage_access *access, dcp_storage_file *file);

static dcp_status open_by(opener open, struct own_storage *own, void *directory, const char *name,
                          const dcp_storage_access *access, dcp_storage_file *file)
{
    struct own_file *made = calloc(1, sizeof *made);
    if (!made)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    snprintf(made->name, sizeof made->name, "%s", name);
    dcp_status status = open(own->kept->context, directory, name, access, &made->kept);
    if (status != DCP_OK) {
        free(made);
        return status;
    }
    own->open++;
    *file = (dcp_storage_file){.handle = made, .size = made->kept.size + own->adds};
    return DCP_OK;
}

static dcp_status open_file(void *context, void *directory, const char *name,
                            const dcp_storage_access *access, dcp_storage_file *file)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "open_file", name);
    if (status == DCP_OK && own->missing && strcmp(own->missing, name) == 0)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "the store has no %s", name);
    return status == DCP_OK ? open_by(own->kept->open_file, own, directory, name, access, file)
                            : status;
}

static dcp_status create(void *context, void *directory, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "create", name);
    return status == DCP_OK ? open_by(own->kept->create, own, directory, name, access, file)
                            : status;
}

/* A read takes a while, in which others may come. */
static void stay(struct own_storage *own)
{
    int inside = atomic_fetch_add(&own->inside, 1) + 1, most = own->most_inside;
    while (inside > most && !atomic_compare_exchange_weak(&own->most_inside, &most, inside))
        ;
    if (own->slow > 0)
        usleep(own->slow);
    atomic_fetch_sub(&own->inside, 1);
}

static dcp_status read_file(void *context, dcp_storage_file *file, void *bytes, size_t size,
                            uint64_t offset)
{
    struct own_storage *own = context;
    struct own_file *opened = file->handle;
    dcp_status status = enter(own, "read", opened->name);
    if (status != DCP_OK)
        return status;
    if (size == 0 || offset > file->size || size > file->size - offset)
        return dcp_error_set(DCP_ERR_INTERNAL, "%zu bytes at %zu of %s", size, (size_t)offset,
                             opened->name);
    stay(own);
    status = own->kept->read(own->kept->context, &opened->kept, bytes, size, offset);
    if (own->damaged && strcmp(own->damaged, opened->name) == 0 && own->damaged_at >= offset &&
        own->damaged_at - offset < size)
        ((unsigned char *)bytes)[own->damaged_at - offset] ^= 0x40;
    if (!strstr(opened->name, ".metadata"))
        atomic_fetch_add(&own->data, size);
    return status;
}

static dcp_status write_file(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                             uint64_t offset)
{
    struct own_storage *own = context;
    struct own_file *made = file->handle;
    dcp_status status = enter(own, "write", made->name);
    return status == DCP_OK ? own->kept->write(own->kept->context, &made->kept, bytes, size, offset)
                            : status;
}

static void close_file(void *context, dcp_storage_file *file)
{
    struct own_storage *own = context;
    struct own_file *opened = file->handle;
    own->open--;
    own->kept->close_file(own->kept->context, &opened->kept);
    free(opened);
}

static void abandon(void *context, dcp_storage_file *file)
{
    struct own_storage *own = context;
    struct own_file *made = file->handle;
    own->open--;
    own->kept->abandon(own->kept->context, &made->kept);
    free(made);
}

static dcp_status seal(void *context, dcp_storage_file *file, uint64_t size,
                       dcp_storage_condition condition, const char *identity)
{
    struct own_storage *own = context;
    struct own_file *made = file->handle;
    dcp_status status = enter(own, "seal", made->name);
    if (status != DCP_OK) {
        abandon(own, file);
        return status;
    }
    own->open--;
    status = own->kept->seal(own->kept->context, &made->kept, size, condition, identity);
    free(made);
    return status;
}

/* ---- publications ---- */

static dcp_status prepare(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, const dcp_storage_access *access, void **publication)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "prepare", name);
    if (status == DCP_OK)
        status = own->kept->prepare(own->kept->context, directory, name, bytes, size, access,
                                    publication);
    own->open += status == DCP_OK;
    return status;
}

static dcp_status publish(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible)
{
    struct own_storage *own = context;
    dcp_status status = enter(own, "publish", "a file");
    own->open--;
    if (status == DCP_OK)
        return own->kept->publish(own->kept->context, publication, condition, visible);
    own->kept->retract(own->kept->context, publication);
    return status;
}

static void retract(void *context, void *publication)
{
    struct own_storage *own = context;
    own->open--;
    own->kept->retract(own->kept->context, publication);
}

void own_storage_init(struct own_storage *own, const char *root)
{
    memset(own, 0, sizeof *own);
    own->kept = dcp_storage_files();
    own->fails_with = DCP_ERR_IO;
    snprintf(own->root, sizeof own->root, "%s", root);
    own->table = (dcp_storage){.size_of = sizeof own->table,
                               .context = own,
                               .takes = takes,
                               .open = open_directory,
                               .close = close_directory,
                               .remove_directory = remove_directory,
                               .describe = describe,
                               .list = list,
                               .remove = remove_file,
                               .open_file = open_file,
                               .read = read_file,
                               .close_file = close_file,
                               .create = create,
                               .write = write_file,
                               .seal = seal,
                               .abandon = abandon,
                               .sync = sync_directory,
                               .prepare = prepare,
                               .publish = publish,
                               .retract = retract};
}

/* ---- a queue ---- */

struct own_queue {
    unsigned depth, under_way;
};

static dcp_status queue_open(void *context, void *directory, unsigned depth,
                             const dcp_storage_access *access, void **queue)
{
    struct own_storage *own = context;
    struct own_queue *made = calloc(1, sizeof *made);
    dcp_status status = enter(own, "queue_open", "a directory");
    (void)directory, (void)access;
    if (!made || status != DCP_OK) {
        free(made);
        return status == DCP_OK ? dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a queue")
                                : status;
    }
    own->open++;
    made->depth = depth;
    *queue = made;
    return DCP_OK;
}

static void queue_start(void *context, void *queue, dcp_storage_transfer *transfer)
{
    struct own_queue *own = queue;
    (void)context;
    own->under_way++;
    transfer->own = own->under_way <= own->depth ? own : NULL;
}

static dcp_status queue_finish(void *context, void *queue, dcp_storage_transfer *transfer)
{
    struct own_queue *own = queue;
    own->under_way--;
    if (transfer->own != own)
        return dcp_error_set(DCP_ERR_INTERNAL, "more transfers than the queue may have");
    dcp_status status = enter(context, "queue_finish", "a transfer");
    if (status != DCP_OK)
        return status;
    return transfer->write ? write_file(context, transfer->file, transfer->bytes, transfer->size,
                                        transfer->offset)
                           : read_file(context, transfer->file, transfer->bytes, transfer->size,
                                       transfer->offset);
}

static void queue_close(void *context, void *queue)
{
    struct own_storage *own = context;
    own->open--;
    free(queue);
}

/* So that reads go to the queue. */
static bool is_cached(void *context, dcp_storage_file *file, uint64_t offset, size_t size)
{
    (void)context, (void)file, (void)offset, (void)size;
    return false;
}

void own_storage_add_queue(struct own_storage *own)
{
    own->table.queue_open = queue_open;
    own->table.queue_start = queue_start;
    own->table.queue_finish = queue_finish;
    own->table.queue_close = queue_close;
    own->table.is_cached = is_cached;
}
