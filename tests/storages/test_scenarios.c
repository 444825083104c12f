/* SPDX-License-Identifier: BSD-3-Clause */
/* What a checkpoint goes through, in any storage: overwritten safely, by fewer files and by more,
 * after saves that were interrupted; saved in the background, again and elsewhere after failures;
 * damaged, and verified. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "storage/storage.h"
#include "storages/awkward_storage.h"
#include "storages/every_storage.h"
#include "storages/stored_versions.h"

static const dcp_storage *storage_here(void)
{
    return every_storage() ? every_storage() : dcp_storage_files();
}

static struct stored_versions versions_at(const char *path, int ranks, int64_t rows)
{
    return (struct stored_versions){
        .storage = storage_here(), .path = path, .ranks = ranks, .rows = rows};
}

static uint64_t faults_in(const char *path)
{
    const dcp_open_options options = {.storage = storage_here()};
    uint64_t faults = 0;
    must(dcp_verify(path, &options, NULL, NULL, &faults));
    return faults;
}

static void test_overwriting(void **state)
{
    static const struct {
        int ranks, threads;
        dcp_file_layout layout;
        dcp_compression compression;
        int shards; /* 0: as many as there are items with data */
    } saves[] = {
        {2, 3, DCP_FILES_PER_RANK, DCP_COMPRESSION_NONE, 6},
        {3, 1, DCP_FILES_PER_RANK, DCP_COMPRESSION_ZSTD, 3},
        {1, 1, DCP_FILE_PER_ITEM, DCP_COMPRESSION_NONE, 4},
        {4, 2, DCP_FILES_PER_RANK, DCP_COMPRESSION_NONE, 8},
        {1, 1, DCP_FILES_PER_RANK, DCP_COMPRESSION_NONE, 1},
    };
    const char *path = path_in(state, "c");
    for (size_t i = 0; i < sizeof saves / sizeof *saves; i++) {
        if (saves[i].compression && !DCP_HAVE_ZSTD)
            continue;
        struct stored_versions versions = versions_at(path, saves[i].ranks, 24);
        versions.saving.thread_count = saves[i].threads;
        versions.saving.files = saves[i].layout;
        versions.saving.compression = saves[i].compression;
        dcp_status status = stored_version_save(&versions, 1 + (int)i);
        assert_int_equal(status, i == 0 ? DCP_OK : DCP_ERR_EXISTS);
        assert_int_equal(stored_version_find(&versions), i == 0 ? 1 : i);
        versions.saving.overwrite = DCP_OVERWRITE_REPLACE;
        assert_int_equal(stored_version_save(&versions, 1 + (int)i), DCP_OK);
        assert_int_equal(stored_version_find(&versions), 1 + i);
        assert_int_equal(stored_version_count_files(&versions, ".distcp"), saves[i].shards);
        assert_int_equal(stored_version_count_files(&versions, ".tmp"), 0);
        assert_int_equal(faults_in(path), 0);
    }
}

/* Puts a file into a directory, which is made if it is not there. */
static void put_file(const char *path, const char *name, const void *bytes, size_t size)
{
    const dcp_storage_access access = {.size_of = sizeof access, .size = size};
    struct storage_directory directory;
    struct storage_publication publication;
    struct storage_file file;
    bool visible;
    must(storage_directory_open(&directory, storage_here(), path, DCP_OPEN_CREATE, NULL));
    if (strcmp(name, ".metadata") == 0) {
        must(storage_publication_prepare(&publication, &directory, name, bytes, size, false));
        must(storage_publication_publish(&publication, DCP_PUBLISH_ALWAYS, &visible));
    } else {
        must(storage_file_create(&file, &directory, name, &access));
        must(storage_file_write(&file, bytes, size, 0));
        must(storage_file_seal(&file, size));
    }
    storage_directory_close(&directory);
}

static void test_what_was_interrupted(void **state)
{
    struct stored_versions versions = versions_at(path_in(state, "c"), 2, 24);
    int version;
    put_file(versions.path, "__0_0.distcp", "no footer", 9);
    put_file(versions.path, "__7_0.distcp", "no footer", 9);
    assert_int_equal(stored_version_load(&versions, &version), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(versions.message, "a save was interrupted here: 2 shard files"));
    assert_int_equal(stored_version_save(&versions, 1), DCP_OK);
    assert_int_equal(stored_version_find(&versions), 1);
    assert_int_equal(stored_version_count_files(&versions, ".distcp"), 2);
}

/* ---- in the background ---- */

static void test_asynchronous_saves(void **state)
{
    struct stored_versions versions = versions_at(path_in(state, "c"), 3, 3000);
    versions.asynchronous = true;
    versions.saving.overwrite = DCP_OVERWRITE_REPLACE;
    for (int version = 1; version <= 4; version++) {
        versions.chain.staging_limit = version % 2 ? 0 : 1 << 20;
        versions.chain.staging = version > 2 ? DCP_STAGING_OVERLAPPED : DCP_STAGING_BLOCKING;
        /* What changes too early is another matter. */
        if (versions.chain.staging == DCP_STAGING_OVERLAPPED)
            versions.asynchronous = false;
        assert_int_equal(stored_version_save(&versions, version), DCP_OK);
        assert_int_equal(stored_version_find(&versions), version);
    }
}

/* Over the storage, with calls that fail. */
static void with_failures(void **state, const struct awkward_fault *fault,
                          const dcp_save_chain_options *chain, const char *path,
                          dcp_status expected, int found)
{
    static const struct awkward_manner late = {.microseconds = 500};
    struct awkward_storage storage;
    struct stored_versions versions = versions_at(path, 2, 300);
    (void)state;
    awkward_storage_init(&storage, storage_here(), &late);
    storage.table.takes = storage_here()->takes;
    awkward_storage_fail(&storage, fault);
    versions.storage = &storage.table;
    versions.asynchronous = true;
    versions.chain = *chain;
    assert_int_equal(stored_version_save(&versions, 1), expected);
    awkward_storage_fail(&storage, NULL);
    assert_int_equal(stored_version_find(&versions), found);
    assert_int_equal(awkward_storage_open_count(&storage), 0);
    awkward_storage_destroy(&storage);
}

static void test_retries(void **state)
{
    static const dcp_save_chain_options chain = {.retries = 2, .retry_seconds = 0.001};
    static const enum awkward_call calls[] = {AWKWARD_CREATE, AWKWARD_WRITE, AWKWARD_SEAL,
                                              AWKWARD_PREPARE, AWKWARD_PUBLISH};
    char name[32];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        /* The first publication is the directory's mark, before there is a copy to try again with.
         */
        bool publishes = calls[i] == AWKWARD_PREPARE || calls[i] == AWKWARD_PUBLISH;
        struct awkward_fault fault = {
            .call = calls[i], .n = publishes ? 2 : 1, .status = DCP_ERR_IO};
        snprintf(name, sizeof name, "once %zu", i);
        with_failures(state, &fault, &chain, path_in(state, name), DCP_OK, 1);
        fault.from_then_on = true;
        snprintf(name, sizeof name, "always %zu", i);
        with_failures(state, &fault, &chain, path_in(state, name), DCP_ERR_IO, STORED_NOTHING);
    }
}

static void test_fallback(void **state)
{
    const dcp_save_chain_options chain = {.fallback_path = path_in(state, "elsewhere")};
    const struct awkward_fault fault = {.call = AWKWARD_CREATE, .n = 1, .status = DCP_ERR_IO};
    with_failures(state, &fault, &chain, path_in(state, "c"), DCP_OK, STORED_NOTHING);
    struct stored_versions versions = versions_at(path_in(state, "elsewhere/c"), 2, 300);
    assert_int_equal(stored_version_find(&versions), 1);
}

/* ---- damage ---- */

static void read_whole(const char *path, const char *name, struct buffer *bytes)
{
    struct storage_directory directory;
    buffer_init(bytes, 0);
    must(storage_directory_open(&directory, storage_here(), path, 0, NULL));
    must(storage_read_whole(&directory, name, UINT64_MAX, bytes));
    storage_directory_close(&directory);
}

/* A copy of a checkpoint of two ranks, in which one file has another byte, or is shorter. */
static void copy_damaged(const char *from, const char *to, const char *damaged, size_t offset,
                         size_t cut)
{
    static const char *const names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    for (size_t i = 0; i < 3; i++) {
        struct buffer bytes;
        read_whole(from, names[i], &bytes);
        bool ours = strcmp(names[i], damaged) == 0;
        if (ours && cut == 0)
            bytes.data[offset % bytes.size] ^= 0x40;
        if (ours)
            bytes.size -= cut < bytes.size ? cut : bytes.size;
        if (bytes.size > 0)
            put_file(to, names[i], bytes.data, bytes.size);
        buffer_free(&bytes);
    }
}

static void test_damage(void **state)
{
    static const struct {
        const char *file;
        size_t offset, cut; /* all of it: the file is missing */
    } damages[] = {
        {"__0_0.distcp", 5000, 0},     {"__1_0.distcp", 100000, 0}, {"__1_0.distcp", 0, 1},
        {"__1_0.distcp", 0, SIZE_MAX}, {"__0_0.distcp", 0, 100000}, {".metadata", 0, 40},
    };
    struct stored_versions whole = versions_at(path_in(state, "whole"), 2, 200);
    assert_int_equal(stored_version_save(&whole, 1), DCP_OK);
    assert_int_equal(faults_in(whole.path), 0);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char name[32];
        int version;
        snprintf(name, sizeof name, "damaged %zu", i);
        struct stored_versions versions = versions_at(path_in(state, name), 2, 200);
        copy_damaged(whole.path, versions.path, damages[i].file, damages[i].offset, damages[i].cut);
        if (faults_in(versions.path) == 0)
            fail_msg("damage %zu is not found", i);
        versions.loading.reading = i % 2 ? DCP_READING_COOPERATIVE : DCP_READING_DIRECT;
        if (stored_version_load(&versions, &version) == DCP_OK)
            fail_msg("damage %zu is loaded", i);
    }
}

/* ---- cooperative loads and limits ---- */

static void test_ways_of_loading(void **state)
{
    struct stored_versions versions = versions_at(path_in(state, "c"), 4, 4000);
    assert_int_equal(stored_version_save(&versions, 5), DCP_OK);
    for (int ranks = 1; ranks <= 5; ranks += 2)
        for (int way = 0; way < 4; way++) {
            versions.ranks = ranks == 3 ? 4 : ranks;
            versions.loading = (dcp_load_options){
                .reading = way == 0 ? DCP_READING_COOPERATIVE : DCP_READING_DIRECT,
                .thread_count = way == 1 ? 3 : 1,
                .memory_limit = way == 2 ? 16 << 20 : 0,
                .io = way == 3 ? DCP_IO_POOL : DCP_IO_AUTO,
            };
            assert_int_equal(stored_version_find(&versions), 5);
        }
}

/* Compressed tensors of a storage that wants large requests: these count as well. */
static void test_limits_and_large_requests(void **state)
{
    static const struct awkward_manner manner = {.traits = {.request_size = 32 << 20}};
    enum { SIZE = 40 << 20 };
    struct awkward_storage storage;
    unsigned char *bytes = malloc(SIZE);
    uint32_t random = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .global_shape = {SIZE}, .data = bytes};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "bytes", &tensor);
    awkward_storage_init(&storage, storage_here(), &manner);
    storage.table.takes = storage_here()->takes;
    dcp_save_options saving = {.storage = &storage.table, .compression = DCP_COMPRESSION_ZSTD};
    if (!DCP_HAVE_ZSTD)
        saving.compression = DCP_COMPRESSION_NONE;
    must(dcp_save(root, path_in(state, "c"), &saving));
    dcp_load_options loading = {.storage = &storage.table, .memory_limit = 1};
    must_fail(dcp_load(root, path_in(state, "c"), &loading, NULL), DCP_ERR_NO_MEMORY,
              "smallest sufficient limit is ");
    static const char before[] = "smallest sufficient limit is ";
    uint64_t smallest = strtoull(strstr(dcp_error_message(), before) + strlen(before), NULL, 10);
    for (uint64_t more = 0; more < 64 << 20; more += 3 << 20) {
        dcp_figures figures = {.size_of = sizeof figures};
        loading.memory_limit = smallest + more;
        loading.figures = &figures;
        must(dcp_load(root, path_in(state, "c"), &loading, NULL));
        assert_in_range(figures.peak_memory, 1, loading.memory_limit);
    }
    dcp_state_free(root);
    free(bytes);
    assert_int_equal(awkward_storage_open_count(&storage), 0);
    awkward_storage_destroy(&storage);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_overwriting),        TEST(test_what_was_interrupted),
        TEST(test_asynchronous_saves), TEST(test_retries),
        TEST(test_fallback),           TEST(test_damage),
        TEST(test_ways_of_loading),    TEST(test_limits_and_large_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
