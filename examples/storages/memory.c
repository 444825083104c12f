/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints in memory, kept as an object store keeps them: under an id and a name. It shows the
 * least that a storage must have. There are no directories, so that any id can be opened: it is the
 * directory's handle. An object is put under its name when it is whole, and never changes from then
 * on: it is read without a lock. It takes any id; tar.c looks at ids. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storages.h"

/* Of the functions of a table. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct object {
    char id[256], name[256];
    unsigned char *bytes;
    size_t size;
    int users; /* the list, and whoever has it open */
    struct object *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects; /* that can be found */

/* The link to an object; to NULL: there is none. */
static struct object **find(const char *id, const char *name)
{
    struct object **link = &objects;
    while (*link && (strcmp((*link)->id, id) != 0 || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    return link;
}

static void release(struct object *object)
{
    if (--object->users == 0) {
        free(object->bytes);
        free(object);
    }
}

static bool take_out(struct object **link)
{
    struct object *object = *link;
    if (object) {
        *link = object->next;
        release(object);
    }
    return object != NULL;
}

static dcp_status open_id(void *context, const char *id, uint32_t flags, void **directory,
                          bool *created)
{
    *directory = strlen(id) < sizeof objects->id ? strdup(id) : NULL;
    return *directory ? DCP_OK : dcp_error_set(DCP_ERR_NO_MEMORY, "no room for %s", id);
}

static void close_id(void *context, void *directory)
{
    free(directory);
}

static dcp_status list(void *context, void *directory, dcp_storage_visitor visitor, void *visiting)
{
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&mutex);
    for (struct object *object = objects; object && status == DCP_OK; object = object->next)
        if (strcmp(object->id, directory) == 0)
            status = visitor(visiting, object->name);
    pthread_mutex_unlock(&mutex);
    return status;
}

static dcp_status remove_object(void *context, void *directory, const char *name)
{
    pthread_mutex_lock(&mutex);
    bool found = take_out(find(directory, name));
    pthread_mutex_unlock(&mutex);
    return found ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}

static dcp_status open_object(void *context, void *directory, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *file)
{
    pthread_mutex_lock(&mutex);
    struct object *object = *find(directory, name);
    if (object) {
        object->users++;
        file->handle = object;
        file->size = object->size;
    }
    pthread_mutex_unlock(&mutex);
    return object ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}

static dcp_status read_object(void *context, dcp_storage_file *file, void *bytes, size_t size,
                              uint64_t offset)
{
    const struct object *object = file->handle;
    memcpy(bytes, object->bytes + offset, size);
    return DCP_OK;
}

/* Of a file that is read, and of one that is given up: nobody else has that. */
static void let_go(void *context, dcp_storage_file *file)
{
    pthread_mutex_lock(&mutex);
    release(file->handle);
    pthread_mutex_unlock(&mutex);
}

static dcp_status create(void *context, void *directory, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file)
{
    struct object *object = file->handle = calloc(1, sizeof *object);
    if (!object)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    object->users = 1;
    snprintf(object->id, sizeof object->id, "%s", (const char *)directory);
    snprintf(object->name, sizeof object->name, "%s", name);
    return DCP_OK;
}

static dcp_status write_object(void *context, dcp_storage_file *file, const void *bytes,
                               size_t size, uint64_t offset)
{
    struct object *object = file->handle;
    size_t end = (size_t)offset + size;
    pthread_mutex_lock(&mutex);
    unsigned char *grown = end > object->size ? realloc(object->bytes, end) : object->bytes;
    if (grown) {
        memcpy(grown + offset, bytes, size);
        object->bytes = grown;
        object->size = end > object->size ? end : object->size;
    }
    pthread_mutex_unlock(&mutex);
    return grown ? DCP_OK : dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", object->name);
}

/* Lets an object be found. */
static dcp_status enter(struct object *object, bool replace)
{
    pthread_mutex_lock(&mutex);
    struct object **link = find(object->id, object->name);
    bool refused = *link && !replace;
    if (refused) {
        release(object);
    } else {
        take_out(link);
        object->next = objects;
        objects = object;
    }
    pthread_mutex_unlock(&mutex);
    return refused ? dcp_error_set(DCP_ERR_EXISTS, "there is such an object already") : DCP_OK;
}

static dcp_status seal(void *context, dcp_storage_file *file, uint64_t size)
{
    return enter(file->handle, false);
}

/* A publication is an object that has been written. */
static dcp_status prepare(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, bool durable, void **publication)
{
    dcp_storage_file file;
    dcp_status status = create(context, directory, name, NULL, &file);
    if (status != DCP_OK)
        return status;
    *publication = file.handle;
    if (size > 0)
        status = write_object(context, &file, bytes, size, 0);
    if (status != DCP_OK)
        let_go(context, &file);
    return status;
}

static dcp_status publish(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible)
{
    dcp_status status = enter(publication, condition == DCP_PUBLISH_ALWAYS);
    *visible = status == DCP_OK;
    return status;
}

static void retract(void *context, void *publication)
{
    let_go(context, &(dcp_storage_file){.handle = publication});
}

const dcp_storage memory_storage = {.size_of = sizeof(dcp_storage),
                                    .open = open_id,
                                    .close = close_id,
                                    .list = list,
                                    .remove = remove_object,
                                    .open_file = open_object,
                                    .read = read_object,
                                    .close_file = let_go,
                                    .create = create,
                                    .write = write_object,
                                    .seal = seal,
                                    .abandon = let_go,
                                    .prepare = prepare,
                                    .publish = publish,
                                    .retract = retract};
