/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on open files. */
#include <stdlib.h>
#include <string.h>

#include "fault/simulated_node.h"

/* How much of a transfer happens. */
static size_t transfer_size(const struct simulated_file_system *fs, size_t size)
{
    const struct simulated_fault *fault = &fs->fault;
    bool now =
        fault->operation != 0 && (fs->operations == fault->operation ||
                                  (fault->from_then_on && fs->operations > fault->operation));
    if (!now || size <= 1)
        return size;
    if (fault->kind == SIMULATED_SHORT_ONE)
        return 1;
    return fault->kind == SIMULATED_SHORT_BY_ONE ? size - 1 : size;
}

static int descriptor_new(struct simulated_file_system *fs, struct open_file file)
{
    size_t free_one = 0;
    while (free_one < fs->open_capacity && fs->open_files[free_one].node != NULL)
        free_one++;
    if (free_one == fs->open_capacity)
        fs->open_files =
            simulated_allocate(fs->open_files, ++fs->open_capacity, sizeof *fs->open_files);
    fs->open_files[free_one] = file;
    return (int)free_one;
}

int simulated_files_open(void *context, int directory, const char *name, unsigned flags,
                         int *descriptor)
{
    struct simulated_file_system *fs = context;
    bool create = flags & FILE_CREATE_NEW;
    struct node *base, *node = NULL;
    const char *what = create ? "create" : flags & FILE_AS_DIRECTORY ? "open_directory" : "open";
    int error = operation_begin_name(fs, what, directory, name, &base);
    if (error == 0)
        error =
            create ? names_add(fs, base, name, FILE_REGULAR, &node) : names_find(base, name, &node);
    if (error == 0 && flags & FILE_AS_DIRECTORY && node->kind != FILE_DIRECTORY)
        error = ENOTDIR;
    if (error == 0)
        *descriptor =
            descriptor_new(fs, (struct open_file){.node = node,
                                                  .writable = create || flags & FILE_WRITE,
                                                  .direct = flags & FILE_DIRECT});
    return operation_end(fs, error);
}

int simulated_files_close(void *context, int descriptor)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "close", descriptor, &file);
    if (file == NULL)
        return operation_end(fs, EBADF);
    file->node = NULL;
    return operation_end(fs, error);
}

/* What the file system refuses of direct transfers. */
static bool is_refused(const struct simulated_file_system *fs, const struct open_file *file,
                       const void *bytes, size_t size, uint64_t offset)
{
    bool aligned = (((uintptr_t)bytes | size | offset) & (MEMORY_PAGE - 1)) == 0;
    return file->direct && (fs->refuse_direct || !aligned);
}

int simulated_files_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                          size_t *done)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "pread", descriptor, &file);
    if (error == 0 && (file == NULL || file->writable))
        error = EBADF;
    if (error == 0 && file->node->kind != FILE_REGULAR)
        error = EISDIR;
    if (error == 0 && is_refused(fs, file, bytes, size, offset))
        error = EINVAL;
    if (error != 0)
        return operation_end(fs, error);
    const struct content *content = &file->node->seen.content;
    size_t left = offset < content->size ? content->size - (size_t)offset : 0;
    *done = transfer_size(fs, size < left ? size : left);
    if (*done != 0)
        memcpy(bytes, content->bytes + offset, *done);
    return operation_end(fs, 0);
}

/* Bytes that all files may still grow by; UINT64_MAX: any. */
static uint64_t space_left(const struct simulated_file_system *fs)
{
    if (fs->capacity == 0)
        return UINT64_MAX;
    uint64_t used = 0;
    for (const struct node *node = fs->nodes; node != NULL; node = node->next)
        used += node->seen.content.size;
    return used < fs->capacity ? fs->capacity - used : 0;
}

int simulated_files_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                           uint64_t offset, size_t *done)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "pwrite", descriptor, &file);
    if (error == 0 && (file == NULL || !file->writable))
        error = EBADF;
    if (error == 0 && is_refused(fs, file, bytes, size, offset))
        error = EINVAL;
    if (error != 0)
        return operation_end(fs, error);
    *done = size = transfer_size(fs, size);
    if (size == 0)
        return operation_end(fs, 0);
    uint64_t before = file->node->seen.content.size;
    uint64_t space = space_left(fs);
    if (offset + size > before && offset + size - before > space)
        size = offset < before + space ? (size_t)(before + space - offset) : 0;
    *done = size;
    if (size == 0)
        return operation_end(fs, ENOSPC);
    struct change change = {.kind = CHANGE_WRITE,
                            .node = file->node,
                            .offset = (size_t)offset,
                            .bytes = simulated_allocate(NULL, size, 1),
                            .length = size,
                            .size = offset + size > before ? (size_t)offset + size : 0};
    memcpy(change.bytes, bytes, size);
    change_make(fs, change);
    return operation_end(fs, 0);
}

int simulated_files_free_space(void *context, int directory, uint64_t *bytes)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "free_space", directory, &file);
    if (error == 0)
        error = fs->hide_free_space ? ENOSYS : file == NULL ? EBADF : 0;
    *bytes = error == 0 ? space_left(fs) : 0;
    return operation_end(fs, error);
}

int simulated_files_allocate(void *context, int descriptor, uint64_t size)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "allocate", descriptor, &file);
    if (error == 0 && (file == NULL || !file->writable))
        error = EBADF;
    if (error != 0)
        return operation_end(fs, error);
    uint64_t before = file->node->seen.content.size;
    if (size > before && size - before > space_left(fs))
        return operation_end(fs, ENOSPC);
    if (size > before)
        change_make(fs,
                    (struct change){.kind = CHANGE_SIZE, .node = file->node, .size = (size_t)size});
    return operation_end(fs, 0);
}

/* Now this, now that. */
int simulated_files_cached(void *context, int descriptor, uint64_t offset, size_t size,
                           bool *cached)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "cached", descriptor, &file);
    if (error == 0 && file == NULL)
        error = EBADF;
    *cached = (offset + size) / size % 2 == 0;
    return operation_end(fs, error);
}

int simulated_files_map(void *context, int descriptor, uint64_t offset, size_t size,
                        const void **bytes)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "map", descriptor, &file);
    if (error == 0 && (file == NULL || file->writable))
        error = EBADF;
    const struct content *content = error == 0 ? &file->node->seen.content : NULL;
    if (error == 0 && (offset > content->size || size > content->size - offset))
        error = EINVAL;
    if (error == 0) {
        unsigned char *copy = simulated_allocate(NULL, size, 1);
        memcpy(copy, content->bytes + offset, size);
        *bytes = copy;
        fs->open_mappings++;
    }
    return operation_end(fs, error);
}

void simulated_files_unmap(void *context, const void *bytes, size_t size)
{
    struct simulated_file_system *fs = context;
    (void)size;
    operation_begin(fs, "unmap", "");
    fs->open_mappings--;
    operation_end(fs, 0);
    free((void *)bytes);
}

int simulated_files_will_need(void *context, int descriptor, uint64_t offset, size_t size)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "will_need", descriptor, &file);
    (void)offset, (void)size;
    return operation_end(fs, error == 0 && file == NULL ? EBADF : error);
}

/* What reaches the disk early is as good as what a power cut leaves by chance. */
int simulated_files_write_back(void *context, int descriptor, uint64_t offset, size_t size)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "write_back", descriptor, &file);
    (void)offset, (void)size;
    return operation_end(fs, error == 0 && file == NULL ? EBADF : error);
}

int simulated_files_sync(void *context, int descriptor)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "sync", descriptor, &file);
    if (file == NULL)
        return operation_end(fs, EBADF);
    if (error == 0 || (error != EINTR && error != SIMULATED_CRASHED))
        simulated_node_sync(fs, file->node, error != 0);
    return operation_end(fs, error);
}

int simulated_files_descriptor_information(void *context, int descriptor,
                                           struct file_information *information)
{
    struct simulated_file_system *fs = context;
    struct open_file *file;
    int error = operation_begin_file(fs, "descriptor_information", descriptor, &file);
    if (error == 0 && file == NULL)
        error = EBADF;
    if (error == 0)
        *information = simulated_node_information(file->node);
    return operation_end(fs, error);
}

int simulated_files_queue_open(void *context, unsigned depth, void **queue)
{
    struct simulated_file_system *fs = context;
    int error = operation_begin(fs, "queue_open", "");
    if (error == 0) {
        struct simulated_queue *made = simulated_allocate(NULL, 1, sizeof *made);
        *made = (struct simulated_queue){.depth = depth};
        made->under_way = simulated_allocate(NULL, depth, sizeof *made->under_way);
        *queue = made;
        fs->open_queues++;
    }
    return operation_end(fs, error);
}

int simulated_files_queue_submit(void *context, void *queue, const struct file_transfer *transfer)
{
    struct simulated_file_system *fs = context;
    struct simulated_queue *to = queue;
    struct open_file *file;
    int error = operation_begin_file(fs, "queue_submit", transfer->descriptor, &file);
    if (error == 0 && to->count == to->depth)
        error = EAGAIN;
    if (error == 0)
        to->under_way[to->count++] = *transfer;
    return operation_end(fs, error);
}

size_t simulated_files_queue_take(void *context, void *queue, struct file_completion *completions,
                                  size_t room, bool wait)
{
    struct simulated_queue *from = queue;
    if (!wait)
        return 0;
    if (from->count == 0 || room == 0)
        abort(); /* nothing will ever complete */
    const struct file_transfer *transfer = &from->under_way[--from->count];
    *completions = (struct file_completion){.owner = transfer->owner};
    if (transfer->write)
        completions->error =
            simulated_files_pwrite(context, transfer->descriptor, transfer->bytes, transfer->size,
                                   transfer->offset, &completions->done);
    else
        completions->error =
            simulated_files_pread(context, transfer->descriptor, transfer->bytes, transfer->size,
                                  transfer->offset, &completions->done);
    return 1;
}

void simulated_files_queue_close(void *context, void *queue)
{
    struct simulated_file_system *fs = context;
    struct simulated_queue *closed = queue;
    if (closed->count != 0)
        abort(); /* the transfers' memory may be gone by now */
    operation_begin(fs, "queue_close", "");
    fs->open_queues--;
    operation_end(fs, 0);
    free(closed->under_way);
    free(closed);
}
