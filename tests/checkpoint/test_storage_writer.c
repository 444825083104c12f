/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves into storages of the caller's own: in memory, as files of its own beside our .metadata, or
 * by what the library does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/memory_store.h"

static dcp_status reset(void *context, const char *checkpoint_id)
{
    struct store *store = context;
    assert_string_equal(checkpoint_id, "store:first");
    store_count(store, &store->resets);
    return DCP_OK;
}

static dcp_status meta(void *context, dcp_storage_meta *storage_meta)
{
    (void)context;
    storage_meta->checkpoint_id = "first";
    storage_meta->save_id = "of the store";
    return DCP_OK;
}

/* Each rank's number travels to prepare_global_plan, and a common name comes back. */
static dcp_status prepare_local(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    return dcp_state_int(dcp_save_plan_storage_data(plan), "items",
                         (int64_t)dcp_save_plan_count(plan));
}

static dcp_status prepare_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                 int plan_count)
{
    (void)context;
    (void)saving;
    for (int rank = 0; rank < plan_count; rank++) {
        char prefix[32];
        int64_t items = 0;
        dcp_state *data = dcp_save_plan_storage_data(plans[rank]);
        must(dcp_state_as_int(dcp_state_find(data, "items"), &items));
        assert_int_equal(items, 2);
        snprintf(prefix, sizeof prefix, "rank%d", rank);
        must(dcp_state_string(data, "prefix", prefix));
    }
    return DCP_OK;
}

static void check_loads(const char *path, dcp_verification verification)
{
    float read[ROWS][COLUMNS];
    int64_t step = 0;
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .data = read, .global_shape = {ROWS, COLUMNS}};
    dcp_state_tensor(root, "w", &tensor);
    dcp_state_none(root, "step");
    must(dcp_load(root, path, &(dcp_load_options){.verification = verification}, NULL));
    must(dcp_state_as_int(dcp_state_find(root, "step"), &step));
    assert_int_equal(step, 7);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_true(read[i][j] == (float)(i * 100 + j));
    dcp_state_free(root);
}

/* What is in the store, as files of a directory, is a checkpoint. */
static void write_out(const struct store *store, const char *directory)
{
    char path[1024];
    assert_int_equal(mkdir(directory, 0777), 0);
    for (size_t i = 0; i < store->count; i++) {
        const char *slash = strchr(store->blobs[i].key, '/');
        if (slash) {
            snprintf(path, sizeof path, "%s/%.*s", directory, (int)(slash - store->blobs[i].key),
                     store->blobs[i].key);
            mkdir(path, 0777);
        }
        snprintf(path, sizeof path, "%s/%s", directory, store->blobs[i].key);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(store->blobs[i].bytes, 1, store->blobs[i].size, file),
                         store->blobs[i].size);
        fclose(file);
    }
}

static void saves_into_memory(void **state)
{
    struct store store;
    store_init(&store);
    store.writer = (dcp_storage_writer){
        .size_of = sizeof store.writer,
        .context = &store,
        .validate_checkpoint_id = store_takes,
        .reset = reset,
        .storage_meta = meta,
        .set_up_storage_writer = store_set_up,
        .prepare_local_plan = prepare_local,
        .prepare_global_plan = prepare_global,
        .write_data = store_write,
        .finish = store_finish,
        .abandon = store_abandon,
    };
    ranks_must(2, "store:first", store_save, &store);
    assert_int_equal(store.resets, 2);
    assert_int_equal(store.set_ups, 2);
    assert_int_equal(store.abandoned, 0);
    assert_int_equal(store.results, 3);
    assert_int_equal(store.count, 4);
    assert_int_not_equal(access("store:first", F_OK), 0);
    write_out(&store, path_in(state, "out"));
    check_loads(path_in(state, "out"), DCP_VERIFY_ALL);

    const struct blob *metadata = &store.blobs[3];
    assert_string_equal(metadata->key, ".metadata");
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_decode(metadata->bytes, metadata->size, NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 2);
    must_fail(dcp_checkpoint_read_object(checkpoint, 1, NULL, "x", NULL), DCP_ERR_STATE, "");
    dcp_checkpoint_close(checkpoint);
    must_fail(dcp_checkpoint_decode(metadata->bytes, metadata->size / 2, NULL, &checkpoint),
              DCP_ERR_FORMAT, "metadata");
    must_fail(dcp_checkpoint_decode(NULL, 0, NULL, &checkpoint), DCP_ERR_ARGUMENT, "");
    must_fail(dcp_checkpoint_encode(NULL, store_append, NULL), DCP_ERR_ARGUMENT, "");

    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, "elsewhere", store_save, &store);
    must_fail(ranks[1].status, DCP_ERR_ARGUMENT, "");
    assert_non_null(strstr(ranks[1].message, "does not accept the id \"elsewhere\""));
    store_clear(&store);
}

/* One file per item, in a folder of the checkpoint, and our own .metadata. */
static dcp_status write_files(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    struct store *store = context;
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        dcp_write_item item;
        struct blob blob = {0};
        char path[1024], name[128];
        must(dcp_save_plan_item(plan, i, &item));
        snprintf(name, sizeof name, "items/%s.%d", item.index.name,
                 item.is_tensor ? (int)item.index.offsets[0] : 0);
        snprintf(path, sizeof path, "%s/items", store->directory);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/%s", store->directory, name);
        must(dcp_saving_stream(saving, i, store_append, &blob));
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs("front", file);
        fwrite(blob.bytes, 1, blob.size, file);
        fclose(file);
        dcp_storage_location location = {.path = name, .offset = 5, .length = blob.size};
        free(blob.bytes);
        must(dcp_saving_set_location(saving, i, &location));
    }
    return DCP_OK;
}

static void puts_files_of_its_own_beside_our_metadata(void **state)
{
    struct store store;
    store_init(&store);
    store.writer.write_data = write_files;
    store.directory = path_in(state, "a");
    ranks_must(2, store.directory, store_save, &store);
    check_loads(store.directory, DCP_VERIFY_ALL);
    char path[1024];
    snprintf(path, sizeof path, "%s/__0_0.distcp", store.directory);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/items/w.6", store.directory);
    assert_int_equal(access(path, F_OK), 0);
}

/* ---- our own ways, called from hooks ---- */

static dcp_status set_up_default(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context;
    (void)is_coordinator;
    return dcp_save_default_set_up_storage_writer(saving);
}

static dcp_status write_default(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_save_default_write_data(saving);
}

static dcp_status finish_default(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                                 const dcp_write_result *results, size_t result_count)
{
    struct store *store = context;
    for (size_t i = 0; i < result_count; i++) {
        char file[32];
        snprintf(file, sizeof file, "__%d_0.distcp", results[i].rank);
        assert_string_equal(results[i].location.path, file);
        assert_true(results[i].location.length > 0);
    }
    store->results = result_count;
    assert_int_equal(dcp_checkpoint_count(metadata), 2);
    return dcp_save_default_finish(saving);
}

static void does_as_the_library_does(void **state)
{
    struct store store;
    store_init(&store);
    store.writer.set_up_storage_writer = set_up_default;
    store.writer.write_data = write_default;
    store.writer.finish = finish_default;
    ranks_must(2, path_in(state, "a"), store_save, &store);
    assert_int_equal(store.results, 3);
    check_loads(path_in(state, "a"), DCP_VERIFY_RECORDS);
    store.writer.set_up_storage_writer = NULL;
    store.writer.write_data = NULL;
    ranks_must(2, path_in(state, "b"), store_save, &store);
    check_loads(path_in(state, "b"), DCP_VERIFY_RECORDS);
#if DCP_HAVE_ZSTD
    store.options.compression = DCP_COMPRESSION_ZSTD;
    store.writer.write_data = write_default;
    ranks_must(2, path_in(state, "c"), store_save, &store);
    check_loads(path_in(state, "c"), DCP_VERIFY_RECORDS);
#endif
}

/* The data of an item in place of its stream. */
static dcp_status resolve_all(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    struct store *store = context;
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        dcp_write_item item;
        dcp_write_data data;
        must(dcp_save_plan_item(plan, i, &item));
        must(dcp_saving_resolve(saving, i, &data));
        if (item.is_tensor) {
            assert_int_equal(data.dtype, DCP_F32);
            assert_true(*(const float *)data.data == (float)item.index.offsets[0] * 100);
            store_count(store, &store->resolved);
        } else {
            assert_int_equal(data.size, item.object_length);
        }
        if (data.release)
            data.release(data.owner);
    }
    must_fail(dcp_saving_resolve(saving, 99, &(dcp_write_data){0}), DCP_ERR_ARGUMENT, "item 99");
    must_fail(dcp_saving_stream(saving, 0, NULL, NULL), DCP_ERR_ARGUMENT, "");
    return dcp_save_default_write_data(saving);
}

static void resolves_items(void **state)
{
    struct store store;
    store_init(&store);
    store.writer.write_data = resolve_all;
    ranks_must(2, path_in(state, "a"), store_save, &store);
    assert_int_equal(store.resolved, 2);
    check_loads(path_in(state, "a"), DCP_VERIFY_ALL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(saves_into_memory),
        TEST(puts_files_of_its_own_beside_our_metadata),
        TEST(does_as_the_library_does),
        TEST(resolves_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
