/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulated file system as a whole: its table of operations, faults and counters. */
#include "fault/simulated_file_system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/simulated_node.h"
#include "storage/files/files.h"

static const struct file_ops operations = {
    .open = simulated_files_open,
    .close = simulated_files_close,
    .pread = simulated_files_pread,
    .pwrite = simulated_files_pwrite,
    .allocate = simulated_files_allocate,
    .cached = simulated_files_cached,
    .map = simulated_files_map,
    .unmap = simulated_files_unmap,
    .will_need = simulated_files_will_need,
    .write_back = simulated_files_write_back,
    .sync = simulated_files_sync,
    .sync_directory = names_sync_directory,
    .information = names_information,
    .descriptor_information = simulated_files_descriptor_information,
    .rename = names_rename,
    .rename_new = names_rename_new,
    .unlink = names_unlink,
    .make_directory = names_make_directory,
    .remove_directory = names_remove_directory,
    .free_space = simulated_files_free_space,
    .list = names_list,
    .queue_open = simulated_files_queue_open,
    .queue_submit = simulated_files_queue_submit,
    .queue_take = simulated_files_queue_take,
    .queue_close = simulated_files_queue_close,
};

struct simulated_file_system *simulated_new(void)
{
    struct simulated_file_system *fs = simulated_allocate(NULL, 1, sizeof *fs);
    *fs = (struct simulated_file_system){.ops = operations};
    fs->ops.context = fs;
    fs->storage = files_storage(&fs->ops);
    pthread_mutex_init(&fs->mutex, NULL);
    fs->root = simulated_node_new(fs, FILE_DIRECTORY, "/");
    return fs;
}

const struct file_ops *simulated_ops(struct simulated_file_system *fs)
{
    return &fs->ops;
}

const dcp_storage *simulated_storage(struct simulated_file_system *fs)
{
    return &fs->storage;
}

static void forget_operations(struct simulated_file_system *fs)
{
    for (long i = 0; i < fs->operations; i++)
        free(fs->operation_names[i]);
    free(fs->operation_names);
    fs->operation_names = NULL;
    fs->operations = 0;
}

void simulated_set_fault(struct simulated_file_system *fs, const struct simulated_fault *fault)
{
    fs->fault = fault != NULL ? *fault : (struct simulated_fault){0};
    fs->reached = false;
    forget_operations(fs);
}

bool simulated_fault_reached(const struct simulated_file_system *fs)
{
    return fs->reached;
}

long simulated_operation_count(const struct simulated_file_system *fs)
{
    return fs->operations;
}

const char *simulated_operation_name(const struct simulated_file_system *fs, long n)
{
    return n >= 1 && n <= fs->operations ? fs->operation_names[n - 1] : "";
}

int simulated_open_descriptors(const struct simulated_file_system *fs)
{
    int count = 0;
    for (size_t i = 0; i < fs->open_capacity; i++)
        count += fs->open_files[i].node != NULL;
    return count + fs->open_queues + fs->open_mappings;
}

void simulated_refuse_direct(struct simulated_file_system *fs)
{
    fs->refuse_direct = true;
}

void simulated_hide_free_space(struct simulated_file_system *fs)
{
    fs->hide_free_space = true;
}

void simulated_set_capacity(struct simulated_file_system *fs, uint64_t bytes)
{
    fs->capacity = bytes;
}

void simulated_allow_early_commits(struct simulated_file_system *fs)
{
    fs->allow_early_commits = true;
}

const char *simulated_early_commit(const struct simulated_file_system *fs)
{
    return fs->early_commit;
}

/* Counts an operation; returns what it shall fail with, or 0. */
int operation_count(struct simulated_file_system *fs, const char *what, const char *path)
{
    size_t size = strlen(what) + strlen(path) + 2;
    char *name = simulated_allocate(NULL, size, 1);
    snprintf(name, size, "%s %s", what, path);
    /* Full at each power of two. */
    if ((fs->operations & (fs->operations - 1)) == 0)
        fs->operation_names = simulated_allocate(
            fs->operation_names, (size_t)fs->operations * 2 + 1, sizeof *fs->operation_names);
    fs->operation_names[fs->operations++] = name;

    const struct simulated_fault *fault = &fs->fault;
    if (fault->operation == 0 || fs->operations < fault->operation)
        return 0;
    fs->reached = true;
    if (fs->operations == fault->operation && fault->kind == SIMULATED_SHRINK)
        simulated_nodes_shrink(fs);
    if (fs->operations == fault->operation && fault->kind == SIMULATED_VANISH)
        names_vanish(fs);
    if (fault->kind == SIMULATED_CRASH)
        return fs->operations > fault->operation ? SIMULATED_CRASHED : 0;
    bool now = fs->operations == fault->operation || fault->from_then_on;
    return now && fault->kind == SIMULATED_ERROR ? fault->error_number : 0;
}

void simulated_set_watcher(struct simulated_file_system *fs, void (*watcher)(void *context),
                           void *context)
{
    fs->watcher = watcher;
    fs->watching = context;
}

static void watch(const struct simulated_file_system *fs)
{
    if (fs->watcher)
        fs->watcher(fs->watching);
}

int operation_begin(struct simulated_file_system *fs, const char *what, const char *path)
{
    watch(fs);
    pthread_mutex_lock(&fs->mutex);
    return operation_count(fs, what, path);
}

int operation_begin_file(struct simulated_file_system *fs, const char *what, int descriptor,
                         struct open_file **file)
{
    watch(fs);
    pthread_mutex_lock(&fs->mutex);
    bool open = descriptor >= 0 && (size_t)descriptor < fs->open_capacity &&
                fs->open_files[descriptor].node != NULL;
    *file = open ? &fs->open_files[descriptor] : NULL;
    return operation_count(fs, what, open ? (*file)->node->path : "a closed file");
}

int operation_end(struct simulated_file_system *fs, int result)
{
    pthread_mutex_unlock(&fs->mutex);
    return result;
}

void simulated_free(struct simulated_file_system *fs)
{
    if (fs == NULL)
        return;
    nodes_free(fs);
    forget_operations(fs);
    free(fs->open_files);
    free(fs->early_commit);
    pthread_mutex_destroy(&fs->mutex);
    free(fs);
}
