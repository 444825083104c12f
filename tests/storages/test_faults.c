/* SPDX-License-Identifier: BSD-3-Clause */
/* Each call of a storage fails in turn, once and from then on, while a checkpoint is saved,
 * overwritten, loaded and verified: all ranks say the same, nothing stays open, the checkpoint
 * before stays, and saving again works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "storages/awkward_storage.h"
#include "storages/stored_versions.h"

/* Is none of dcp_status. */
#define NO_STATUS 12345

static const struct awkward_fault ways[] = {
    {.status = DCP_ERR_IO},
    {.status = DCP_ERR_IO, .from_then_on = true},
    {.status = NO_STATUS},
    {.status = DCP_ERR_NO_SPACE, .silent = true},
    {.status = DCP_ERR_IO, .afterwards = true},
};
#define WAYS (sizeof ways / sizeof *ways)

static long stride = 1;

/* An awkward storage over files or memory, and what is saved there. */
struct scene {
    struct awkward_storage storage;
    dcp_storage *memory;
    struct stored_versions versions;
    void **directory;
};

static void scene_init(struct scene *scene, void **directory, const struct stored_versions *how)
{
    const char *name = getenv("DCP_TEST_STORAGE");
    struct awkward_manner manner = {.alignment = 4096};
    bool files = name && strcmp(name, "files") == 0;
    scene->memory = NULL;
    manner.bare = name && strcmp(name, "bare") == 0;
    if (name && strcmp(name, "awkward") == 0)
        manner.microseconds = 100;
    if (!files)
        must(dcp_storage_memory_new(&scene->memory));
    awkward_storage_init(&scene->storage, files ? dcp_storage_files() : scene->memory, &manner);
    scene->versions = *how;
    scene->versions.storage = &scene->storage.table;
    scene->versions.path = path_in(directory, "c");
    scene->versions.saving.overwrite = DCP_OVERWRITE_REPLACE;
    scene->directory = directory;
}

static void scene_free(struct scene *scene)
{
    assert_int_equal(awkward_storage_open_count(&scene->storage), 0);
    awkward_storage_destroy(&scene->storage);
    dcp_storage_memory_free(scene->memory);
}

static void fail_at(const struct awkward_fault *fault, const struct scene *scene, const char *what,
                    dcp_status status, int found)
{
    fail_msg("call %ld (kind %d) fails with %d%s: %s; ended with %s: %s; found %d", fault->n,
             (int)scene->storage.struck, fault->status, fault->from_then_on ? " from then on" : "",
             what, dcp_status_string(status), scene->versions.message, found);
}

/* Calls that a save can do without: what is tidied up, and, over an older checkpoint,
 * metadata.json, which comes after the commit then. A mark that is there is there, whatever
 * publishing it has returned. */
static bool is_harmless(const struct awkward_fault *fault, enum awkward_call call, int old)
{
    return (call == AWKWARD_PUBLISH && fault->afterwards) || call == AWKWARD_LIST ||
           call == AWKWARD_REMOVE || call == AWKWARD_READ || call == AWKWARD_OPEN_FILE ||
           (old && (call == AWKWARD_PUBLISH || call == AWKWARD_SYNC));
}

static dcp_status expected_status(const struct awkward_fault *fault)
{
    return fault->status == NO_STATUS ? DCP_ERR_CALLBACK : (dcp_status)fault->status;
}

/* After a failed publication or sync the new one may be there, and must be whole then. */
static bool may_be_new(enum awkward_call call)
{
    return call == AWKWARD_PUBLISH || call == AWKWARD_SYNC;
}

/* A commit that is there, but is not known to be durable, is unconfirmed. */
static bool is_expected(const struct awkward_fault *fault, enum awkward_call call,
                        dcp_status status)
{
    return status == expected_status(fault) || (may_be_new(call) && status == DCP_ERR_UNCONFIRMED);
}

/* One save over version `old` with one fault. Returns whether it was reached. */
static bool save_with_fault(struct scene *scene, int old, const struct awkward_fault *fault)
{
    struct stored_versions *versions = &scene->versions;
    awkward_storage_fail(&scene->storage, NULL);
    if (old)
        must(stored_version_save(versions, old));
    awkward_storage_fail(&scene->storage, fault);
    dcp_status status = stored_version_save(versions, 2);
    enum awkward_call struck = awkward_storage_struck(&scene->storage);
    awkward_storage_fail(&scene->storage, NULL);
    scene->storage.struck = struck;
    if (struck != AWKWARD_ANY && status == DCP_OK && !is_harmless(fault, struck, old))
        fail_at(fault, scene, "the save succeeded", status, 0);
    if (status != DCP_OK && !is_expected(fault, struck, status))
        fail_at(fault, scene, "another status", status, 0);
    if (status != DCP_OK && !*versions->message)
        fail_at(fault, scene, "no message", status, 0);
    if (awkward_storage_open_count(&scene->storage) != 0)
        fail_at(fault, scene, "something stays open", status, 0);
    int found = stored_version_find(versions);
    if (status == DCP_ERR_UNCONFIRMED && found != 2)
        fail_at(fault, scene, "what was committed is not there", status, found);
    if (found != (status == DCP_OK ? 2 : old) && !(found == 2 && may_be_new(struck)))
        fail_at(fault, scene, "not what should be there", status, found);
    if (stored_version_save(versions, 3) != DCP_OK || stored_version_find(versions) != 3)
        fail_at(fault, scene, "saving again fails", status, found);
    if (stored_version_count_files(versions, ".distcp") != versions->ranks)
        fail_at(fault, scene, "files were left", status, found);
    return struck != AWKWARD_ANY;
}

static void loop_over_saves(void **state, const struct stored_versions *how, bool fresh,
                            size_t way_count)
{
    for (size_t w = 0; w < way_count; w++) {
        struct awkward_fault fault = ways[w];
        struct scene scene;
        bool reached = true;
        scene_init(&scene, state, how);
        /* Each save in a directory of its own, if none may be there. */
        for (fault.n = 1 + (long)w % stride; reached; fault.n += stride) {
            char path[64];
            static int number;
            snprintf(path, sizeof path, "c%d", number++);
            if (fresh)
                scene.versions.path = path_in(state, path);
            reached = save_with_fault(&scene, fresh ? STORED_NOTHING : 1, &fault);
        }
        assert_true(fault.n > 10);
        scene_free(&scene);
    }
}

static void test_fresh_saves(void **state)
{
    loop_over_saves(state, &(struct stored_versions){.ranks = 1, .rows = 2}, true, WAYS);
    loop_over_saves(state, &(struct stored_versions){.ranks = 3, .rows = 6}, true, WAYS);
}

static void test_overwriting(void **state)
{
    loop_over_saves(state, &(struct stored_versions){.ranks = 1, .rows = 2}, false, WAYS);
    loop_over_saves(state, &(struct stored_versions){.ranks = 3, .rows = 6}, false, WAYS);
}

/* Large enough for queues, and for the library's pool where there are none. */
static void test_large_saves(void **state)
{
    struct stored_versions how = {.ranks = 1, .rows = 1 << 11, .saving.skip_sync = true};
    loop_over_saves(state, &how, false, 3);
    how.saving.io = DCP_IO_POOL;
    how.rows = 300;
    loop_over_saves(state, &how, false, 1);
}

static void test_compressed_saves(void **state)
{
    if (!DCP_HAVE_ZSTD)
        skip();
    struct stored_versions how = {
        .ranks = 2, .rows = 300, .saving.compression = DCP_COMPRESSION_ZSTD};
    loop_over_saves(state, &how, false, 3);
}

static void test_asynchronous_saves(void **state)
{
    struct stored_versions how = {.ranks = 1, .rows = 2, .asynchronous = true};
    loop_over_saves(state, &how, false, WAYS);
    how.ranks = 3;
    how.rows = 6;
    loop_over_saves(state, &how, false, 3);
}

/* One load of version 1 with one fault; the checkpoint stays as it is. */
static bool load_with_fault(struct scene *scene, const struct awkward_fault *fault)
{
    struct stored_versions *versions = &scene->versions;
    int found;
    awkward_storage_fail(&scene->storage, fault);
    dcp_status status = stored_version_load(versions, &found);
    enum awkward_call struck = awkward_storage_struck(&scene->storage);
    awkward_storage_fail(&scene->storage, NULL);
    scene->storage.struck = struck;
    if (status == DCP_OK && found != 1)
        fail_at(fault, scene, "the load succeeded with something else", status, found);
    /* Whether a file has checksums of blocks is asked before ranks share the reading: not knowing
     * it only changes how they do. */
    bool asked = versions->loading.reading == DCP_READING_COOPERATIVE;
    if (status == DCP_OK && !asked && (struck == AWKWARD_READ || struck == AWKWARD_OPEN_FILE))
        fail_at(fault, scene, "the load succeeded", status, found);
    if (status != DCP_OK && status != expected_status(fault))
        fail_at(fault, scene, "another status", status, found);
    if (awkward_storage_open_count(&scene->storage) != 0)
        fail_at(fault, scene, "something stays open", status, found);
    return struck != AWKWARD_ANY;
}

static void loop_over_loads(void **state, const struct stored_versions *how)
{
    struct scene scene;
    scene_init(&scene, state, how);
    must(stored_version_save(&scene.versions, 1));
    for (size_t w = 0; w < WAYS; w++) {
        struct awkward_fault fault = ways[w];
        for (fault.n = 1 + (long)w % stride; load_with_fault(&scene, &fault); fault.n += stride)
            ;
        assert_true(fault.n > 5);
    }
    assert_int_equal(stored_version_find(&scene.versions), 1);
    scene_free(&scene);
}

static void test_loads(void **state)
{
    loop_over_loads(state, &(struct stored_versions){.ranks = 1, .rows = 2});
    loop_over_loads(state, &(struct stored_versions){.ranks = 3, .rows = 6});
    loop_over_loads(state, &(struct stored_versions){.ranks = 1, .rows = 1 << 11});
    loop_over_loads(
        state, &(struct stored_versions){
                   .ranks = 1, .rows = 600, .loading = {.thread_count = 4, .io = DCP_IO_POOL}});
}

static void test_cooperative_loads(void **state)
{
    loop_over_loads(state, &(struct stored_versions){.ranks = 3,
                                                     .rows = 300,
                                                     .loading.reading = DCP_READING_COOPERATIVE});
}

static void test_verifying(void **state)
{
    struct scene scene;
    const struct stored_versions how = {.ranks = 2, .rows = 300};
    scene_init(&scene, state, &how);
    must(stored_version_save(&scene.versions, 1));
    for (size_t w = 0; w < WAYS; w++) {
        struct awkward_fault fault = ways[w];
        bool reached = true;
        for (fault.n = 1 + (long)w % stride; reached; fault.n += stride) {
            const dcp_open_options options = {.storage = &scene.storage.table};
            uint64_t faults = 0;
            awkward_storage_fail(&scene.storage, &fault);
            dcp_status status = dcp_verify(scene.versions.path, &options, NULL, NULL, &faults);
            reached = awkward_storage_struck(&scene.storage) != AWKWARD_ANY;
            if (reached ? status == DCP_OK && faults == 0 : status != DCP_OK || faults != 0)
                fail_at(&fault, &scene, "verified", status, (int)faults);
            if (awkward_storage_open_count(&scene.storage) != 0)
                fail_at(&fault, &scene, "something stays open", status, 0);
        }
        assert_true(fault.n > 5);
    }
    awkward_storage_fail(&scene.storage, NULL);
    scene_free(&scene);
}

static void test_opening_and_mapping(void **state)
{
    struct scene scene;
    const struct stored_versions how = {.ranks = 2, .rows = 300};
    scene_init(&scene, state, &how);
    must(stored_version_save(&scene.versions, 1));
    for (size_t w = 0; w < WAYS; w++) {
        struct awkward_fault fault = ways[w];
        bool reached = true;
        for (fault.n = 1 + (long)w % stride; reached; fault.n += stride) {
            const dcp_open_options options = {.storage = &scene.storage.table};
            dcp_checkpoint *checkpoint = NULL;
            dcp_mapping *mapping = NULL;
            dcp_mapped_chunk chunk;
            size_t index = 0;
            awkward_storage_fail(&scene.storage, &fault);
            dcp_status status = dcp_checkpoint_open(scene.versions.path, &options, &checkpoint);
            if (status == DCP_OK)
                status = dcp_checkpoint_find(checkpoint, "matrix", &index);
            if (status == DCP_OK)
                status = dcp_checkpoint_map_chunk(checkpoint, index, 0, NULL, &mapping, &chunk);
            reached = awkward_storage_struck(&scene.storage) != AWKWARD_ANY;
            if (!scene.storage.table.map && !reached)
                assert_int_equal(status, DCP_ERR_UNSUPPORTED);
            else if ((status != DCP_OK) != reached)
                fail_at(&fault, &scene, "mapped", status, 0);
            dcp_mapping_free(mapping);
            dcp_checkpoint_close(checkpoint);
            if (awkward_storage_open_count(&scene.storage) != 0)
                fail_at(&fault, &scene, "something stays open", status, 0);
        }
    }
    awkward_storage_fail(&scene.storage, NULL);
    scene_free(&scene);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(int argc, char **argv)
{
    if (argc > 1)
        stride = strtol(argv[1], NULL, 10);
    if (stride < 1)
        return 2;
    const struct CMUnitTest tests[] = {
        TEST(test_fresh_saves),       TEST(test_overwriting),        TEST(test_large_saves),
        TEST(test_compressed_saves),  TEST(test_asynchronous_saves), TEST(test_loads),
        TEST(test_cooperative_loads), TEST(test_verifying),          TEST(test_opening_and_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
