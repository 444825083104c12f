/* SPDX-License-Identifier: BSD-3-Clause */
#include "storages/every_storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storages/awkward_storage.h"
#include "storages/storages.h"

static dcp_storage *in_memory;
static dcp_storage table_of_tests;
static struct awkward_storage awkward;
static const dcp_storage *chosen;

static void end(void)
{
    long open = every_storage_open_count();
    dcp_storage_memory_free(in_memory);
    if (open != 0) {
        fprintf(stderr, "%ld things were left open in the storage\n", open);
        _Exit(1);
    }
}

/* directory_setup() names them so. */
static bool takes(void *context, const char *id)
{
    (void)context;
    return strstr(id, "/dcp-test-") != NULL;
}

/* The archive's ids begin with "tar://". */
static dcp_status open_archive(void *context, const char *id, uint32_t flags, void **directory,
                               bool *created)
{
    char *text = malloc(strlen("tar://") + strlen(id) + 1);
    (void)context;
    *created = flags & DCP_OPEN_CREATE;
    *directory = text;
    if (!text)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", id);
    sprintf(text, "tar://%s", id);
    for (size_t length = strlen(text); text[length - 1] == '/'; length--)
        text[length - 1] = '\0';
    return DCP_OK;
}

static void close_archive(void *context, void *directory)
{
    (void)context;
    free(directory);
}

/* Those of examples/storages. */
static bool choose_example(const char *name)
{
    if (strcmp(name, "objects") == 0)
        table_of_tests = memory_storage;
    else if (strcmp(name, "tar") == 0)
        table_of_tests = tar_storage;
    else
        return false;
    if (strcmp(name, "tar") == 0) {
        table_of_tests.open = open_archive;
        table_of_tests.close = close_archive;
    }
    table_of_tests.takes = takes;
    chosen = &table_of_tests;
    return true;
}

static void choose(void)
{
    const char *name = getenv("DCP_TEST_STORAGE");
    struct awkward_manner manner = {
        .microseconds = 50, .alignment = 4096, .traits = {.request_size = 1 << 20, .far = true}};
    if (!name || strcmp(name, "files") == 0 || choose_example(name))
        return;
    if (dcp_storage_memory_new(&in_memory) != DCP_OK)
        abort();
    manner.bare = strcmp(name, "bare") == 0;
    if (manner.bare)
        manner.alignment = 0;
    if (strcmp(name, "memory") == 0) {
        table_of_tests = *in_memory;
        table_of_tests.takes = takes;
        chosen = &table_of_tests;
    } else if (manner.bare || strcmp(name, "awkward") == 0) {
        awkward_storage_init(&awkward, in_memory, &manner);
        awkward.table.takes = takes;
        chosen = &awkward.table;
    } else {
        fprintf(stderr, "DCP_TEST_STORAGE=%s is no storage\n", name);
        abort();
    }
    atexit(end);
}

const dcp_storage *every_storage(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

long every_storage_open_count(void)
{
    return chosen == &awkward.table ? awkward_storage_open_count(&awkward) : 0;
}

/* ---- the public calls, under the names that the linker's --wrap gives them ---- */

/* NOLINTBEGIN(bugprone-reserved-identifier) */

/* Options as this version of the library has them, with a storage. Of what the library is to
 * refuse, sizes among it, it sees all. */
static const void *with_storage(const void *options, size_t *size, size_t whole, void *ours,
                                size_t storage_offset)
{
    const dcp_storage *storage = every_storage();
    const dcp_storage *theirs = NULL;
    if (options && *size > whole)
        return options;
    memset(ours, 0, whole);
    if (options)
        memcpy(ours, options, *size);
    memcpy(&theirs, (char *)ours + storage_offset, sizeof theirs);
    if (!storage || theirs)
        return options;
    memcpy((char *)ours + storage_offset, &storage, sizeof storage);
    *size = whole;
    return ours;
}

#define WITH_STORAGE(type, options, size)                                                          \
    with_storage((options), &(size), sizeof(type), &(type){0}, offsetof(type, storage))

dcp_status __real_dcp_save_sized(dcp_state *state, const char *path,
                                 const dcp_save_options *options, size_t size);
dcp_status __wrap_dcp_save_sized(dcp_state *state, const char *path,
                                 const dcp_save_options *options, size_t size);
dcp_status __wrap_dcp_save_sized(dcp_state *state, const char *path,
                                 const dcp_save_options *options, size_t size)
{
    options = WITH_STORAGE(dcp_save_options, options, size);
    return __real_dcp_save_sized(state, path, options, size);
}

dcp_status __real_dcp_save_async_sized(dcp_state *state, const char *path,
                                       const dcp_save_options *options, size_t size,
                                       dcp_future **future);
dcp_status __wrap_dcp_save_async_sized(dcp_state *state, const char *path,
                                       const dcp_save_options *options, size_t size,
                                       dcp_future **future);
dcp_status __wrap_dcp_save_async_sized(dcp_state *state, const char *path,
                                       const dcp_save_options *options, size_t size,
                                       dcp_future **future)
{
    options = WITH_STORAGE(dcp_save_options, options, size);
    return __real_dcp_save_async_sized(state, path, options, size, future);
}

dcp_status __real_dcp_save_estimate_sized(dcp_state *state, const char *path,
                                          const dcp_save_options *options, size_t size,
                                          dcp_estimate *estimate);
dcp_status __wrap_dcp_save_estimate_sized(dcp_state *state, const char *path,
                                          const dcp_save_options *options, size_t size,
                                          dcp_estimate *estimate);
dcp_status __wrap_dcp_save_estimate_sized(dcp_state *state, const char *path,
                                          const dcp_save_options *options, size_t size,
                                          dcp_estimate *estimate)
{
    options = WITH_STORAGE(dcp_save_options, options, size);
    return __real_dcp_save_estimate_sized(state, path, options, size, estimate);
}

dcp_status __real_dcp_load_sized(dcp_state *state, const char *path,
                                 const dcp_load_options *options, size_t size,
                                 dcp_load_report **report);
dcp_status __wrap_dcp_load_sized(dcp_state *state, const char *path,
                                 const dcp_load_options *options, size_t size,
                                 dcp_load_report **report);
dcp_status __wrap_dcp_load_sized(dcp_state *state, const char *path,
                                 const dcp_load_options *options, size_t size,
                                 dcp_load_report **report)
{
    options = WITH_STORAGE(dcp_load_options, options, size);
    return __real_dcp_load_sized(state, path, options, size, report);
}

dcp_status __real_dcp_checkpoint_open_sized(const char *path, const dcp_open_options *options,
                                            size_t size, dcp_checkpoint **checkpoint);
dcp_status __wrap_dcp_checkpoint_open_sized(const char *path, const dcp_open_options *options,
                                            size_t size, dcp_checkpoint **checkpoint);
dcp_status __wrap_dcp_checkpoint_open_sized(const char *path, const dcp_open_options *options,
                                            size_t size, dcp_checkpoint **checkpoint)
{
    options = WITH_STORAGE(dcp_open_options, options, size);
    return __real_dcp_checkpoint_open_sized(path, options, size, checkpoint);
}

dcp_status __real_dcp_verify_sized(const char *path, const dcp_open_options *options, size_t size,
                                   dcp_fault_function report, void *context, uint64_t *faults);
dcp_status __wrap_dcp_verify_sized(const char *path, const dcp_open_options *options, size_t size,
                                   dcp_fault_function report, void *context, uint64_t *faults);
dcp_status __wrap_dcp_verify_sized(const char *path, const dcp_open_options *options, size_t size,
                                   dcp_fault_function report, void *context, uint64_t *faults)
{
    options = WITH_STORAGE(dcp_open_options, options, size);
    return __real_dcp_verify_sized(path, options, size, report, context, faults);
}

/* NOLINTEND(bugprone-reserved-identifier) */
