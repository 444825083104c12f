/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints in memory, kept as an object store keeps them: under keys. It shows the least that a
 * storage must have. There are no directories: the id itself is passed for one. An object is found
 * when it is whole, and never changes from then on: it is read without a lock. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "storages.h"

struct object {
    unsigned char *bytes;
    size_t size;
    int users; /* the list, and whoever has it open */
    struct object *next;
    char *name; /* in the key */
    char key[]; /* "ID/NAME"; before it is sealed, two texts */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects; /* that can be found */

/* The name of a key in a directory, maybe with slashes; "": it is not in there. */
static const char *name_in(const char *id, const char *key)
{
    size_t length = strlen(id);
    return strncmp(key, id, length) == 0 && key[length] == '/' ? key + length + 1 : "";
}

/* Locks the mutex. The link to an object; to NULL: there is none. */
static struct object **lock_and_find(const char *id, const char *name)
{
    struct object **link = &objects;
    pthread_mutex_lock(&mutex);
    while (*link && strcmp(name_in(id, (*link)->key), name) != 0)
        link = &(*link)->next;
    return link;
}

static void release(struct object *object)
{
    if (object && --object->users == 0) {
        free(object->bytes);
        free(object);
    }
}

static dcp_status list(void *context, void *id, dcp_storage_visitor visitor, void *visiting)
{
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&mutex);
    for (struct object *object = objects; object && status == DCP_OK; object = object->next)
        if (*name_in(id, object->key))
            status = visitor(visiting, name_in(id, object->key));
    pthread_mutex_unlock(&mutex);
    return status;
}

static dcp_status remove_object(void *context, void *id, const char *name)
{
    struct object **link = lock_and_find(id, name), *object = *link;
    bool found = object != NULL;
    *link = found ? object->next : NULL;
    release(object);
    pthread_mutex_unlock(&mutex);
    return found ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}

static dcp_status open_object(void *context, void *id, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *file)
{
    struct object *object = *lock_and_find(id, name);
    if (object) {
        object->users++;
        *file = (dcp_storage_file){.handle = object, .size = object->size};
    }
    pthread_mutex_unlock(&mutex);
    return object ? DCP_OK : dcp_error_set(DCP_ERR_NOT_FOUND, "there is no %s", name);
}

static dcp_status read_object(void *context, dcp_storage_file *file, void *bytes, size_t size,
                              uint64_t offset)
{
    memcpy(bytes, ((const struct object *)file->handle)->bytes + offset, size);
    return DCP_OK;
}

/* Of an object that is read, and of one that is given up: nobody else has that. */
static void close_object(void *context, dcp_storage_file *file)
{
    pthread_mutex_lock(&mutex);
    release(file->handle);
    pthread_mutex_unlock(&mutex);
}

static dcp_status create(void *context, void *id, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file)
{
    struct object *object = calloc(1, sizeof *object + strlen(id) + strlen(name) + 2);
    if (!object)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", name);
    object->users = 1;
    object->name = strcpy(stpcpy(object->key, id) + 1, name);
    file->handle = object;
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

/* The object comes to the place of the one before, unless that is to stay. */
static dcp_status seal(void *context, dcp_storage_file *file, uint64_t size,
                       dcp_storage_condition condition, const char *identity)
{
    struct object *object = file->handle;
    struct object **link = lock_and_find(object->key, object->name), *before = *link;
    bool refused = before && condition == DCP_PUBLISH_IF_ABSENT;
    if (!refused) {
        object->name[-1] = '/';
        object->next = before ? before->next : NULL;
        *link = object;
    }
    release(refused ? object : before);
    pthread_mutex_unlock(&mutex);
    return refused ? dcp_error_set(DCP_ERR_EXISTS, "there is such an object already") : DCP_OK;
}

const dcp_storage memory_storage = {.size_of = sizeof(dcp_storage),
                                    .list = list,
                                    .remove = remove_object,
                                    .open_file = open_object,
                                    .read = read_object,
                                    .close_file = close_object,
                                    .create = create,
                                    .write = write_object,
                                    .seal = seal};
