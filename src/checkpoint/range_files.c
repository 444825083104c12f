/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/range_files.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks.h"

/* A request costs as much time as the bytes of some megabytes. */
#define READ_SIZE ((size_t)8 << 20)

struct range_file {
    char *location;
    uint64_t size;
};

struct range_files {
    struct file_ops ops;
    dcp_storage_reader reader;
    char *id;
    pthread_mutex_t mutex;    /* over the table */
    struct range_file **open; /* by descriptor; NULL: that is free */
    size_t capacity;
};

/* What the caller's storage calls it: without the id. */
static const char *location_of(const struct range_files *files, const char *path)
{
    size_t length = strlen(files->id);
    if (strncmp(path, files->id, length) != 0)
        return path;
    const char *name = path + length;
    while (*name == '/')
        name++;
    return name;
}

static dcp_status ask_size(const struct range_files *files, const char *location, uint64_t *size)
{
    *size = 0;
    error_clear();
    return hook_status(files->reader.stored_size(files->reader.context, location, size),
                       "stored_size");
}

/* A free descriptor, reserved by file. */
static int enter(struct range_files *files, struct range_file *file, int *descriptor)
{
    size_t at = 0;
    pthread_mutex_lock(&files->mutex);
    while (at < files->capacity && files->open[at])
        at++;
    int result = 0;
    if (at == files->capacity) {
        size_t capacity = at ? 2 * at : 16;
        struct range_file **grown =
            memory_reallocate_array(files->open, capacity, sizeof(struct range_file *));
        if (grown) {
            memset(grown + at, 0, (capacity - at) * sizeof(struct range_file *));
            files->open = grown;
            files->capacity = capacity;
        } else {
            result = ENOMEM;
        }
    }
    if (result == 0) {
        files->open[at] = file;
        *descriptor = (int)at;
    }
    pthread_mutex_unlock(&files->mutex);
    return result;
}

static struct range_file *file_of(struct range_files *files, int descriptor)
{
    pthread_mutex_lock(&files->mutex);
    struct range_file *file = files->open[descriptor];
    pthread_mutex_unlock(&files->mutex);
    return file;
}

static void range_file_free(struct range_file *file)
{
    memory_release(file->location);
    memory_release(file);
}

static int open_range(void *context, const char *path, unsigned flags, int *descriptor)
{
    struct range_files *files = context;
    if (flags & FILE_DIRECT)
        return EINVAL;
    struct range_file *file = memory_allocate_zeroed(1, sizeof *file);
    if (!file)
        return ENOMEM;
    file->location = memory_copy_text(location_of(files, path));
    int result = file->location ? 0 : ENOMEM;
    if (result == 0 && ask_size(files, file->location, &file->size) != DCP_OK)
        result = FILE_TOLD;
    if (result == 0)
        result = enter(files, file, descriptor);
    if (result != 0)
        range_file_free(file);
    return result;
}

static int close_range(void *context, int descriptor)
{
    struct range_files *files = context;
    pthread_mutex_lock(&files->mutex);
    struct range_file *file = files->open[descriptor];
    files->open[descriptor] = NULL;
    pthread_mutex_unlock(&files->mutex);
    range_file_free(file);
    return 0;
}

/* Beyond the size that was told nothing is asked for. */
static int read_range(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                      size_t *done)
{
    struct range_files *files = context;
    const struct range_file *file = file_of(files, descriptor);
    *done = 0;
    if (offset >= file->size)
        return 0;
    if (size > file->size - offset)
        size = (size_t)(file->size - offset);
    error_clear();
    if (hook_status(files->reader.read_range(files->reader.context, file->location, offset, size,
                                             bytes, done),
                    "read_range") != DCP_OK)
        return FILE_TOLD;
    if (*done <= size)
        return 0;
    dcp_error_set(DCP_ERR_CALLBACK, "hook read_range gave %zu bytes, %zu were asked for", *done,
                  size);
    return FILE_TOLD;
}

static int describe_open(void *context, int descriptor, struct file_information *information)
{
    *information = (struct file_information){FILE_REGULAR, file_of(context, descriptor)->size};
    return 0;
}

/* What is not stored may be the beginning of the names of what is, as a directory's path would. */
static int describe(void *context, const char *path, struct file_information *information)
{
    const struct range_files *files = context;
    const char *location = location_of(files, path);
    dcp_status status =
        *location ? ask_size(files, location, &information->size) : DCP_ERR_NOT_FOUND;
    if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
        return FILE_TOLD;
    information->kind = status == DCP_OK ? FILE_REGULAR : FILE_DIRECTORY;
    return 0;
}

static bool is_remote(void *context, const char *path)
{
    (void)context, (void)path;
    return true;
}

dcp_status range_files_new(const dcp_storage_reader *reader, const char *id,
                           struct range_files **made)
{
    struct range_files *files = *made = memory_allocate_zeroed(1, sizeof *files);
    if (!files)
        return error_no_memory(sizeof *files, "a storage's files");
    files->reader = *reader;
    files->ops = (struct file_ops){
        .context = files,
        .read_size = READ_SIZE,
        .open = open_range,
        .close = close_range,
        .pread = read_range,
        .information = describe,
        .descriptor_information = describe_open,
        .remote = is_remote,
    };
    pthread_mutex_init(&files->mutex, NULL);
    files->id = memory_copy_text(id);
    if (files->id)
        return DCP_OK;
    range_files_free(files);
    *made = NULL;
    return error_no_memory(strlen(id) + 1, "a checkpoint's id");
}

const struct file_ops *range_files_ops(const struct range_files *files)
{
    return &files->ops;
}

void range_files_free(struct range_files *files)
{
    if (!files)
        return;
    pthread_mutex_destroy(&files->mutex);
    memory_release(files->open);
    memory_release(files->id);
    memory_release(files);
}
