/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves into storages of the caller's own: in memory, as files of its own beside our .metadata; and
 * storages that fail, or say what cannot be. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { ROWS = 12, COLUMNS = 5, BLOBS = 64 };

/* A storage in memory, of keys and bytes, which all ranks share. */
struct blob {
    char key[128];
    unsigned char *bytes;
    size_t size;
};

struct store {
    dcp_storage_writer writer;
    dcp_save_options options;
    const char *directory; /* files instead */
    pthread_mutex_t mutex;
    struct blob blobs[BLOBS];
    size_t count;
    int resets, set_ups, abandoned, resolved;
    size_t results;
    bool mischief; /* the last rank differs */
};

static void store_clear(struct store *store)
{
    for (size_t i = 0; i < store->count; i++)
        free(store->blobs[i].bytes);
    store->count = 0;
}

static dcp_status append(void *context, const void *bytes, size_t size)
{
    struct blob *blob = context;
    unsigned char *grown = realloc(blob->bytes, blob->size + size);
    if (!grown)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a blob");
    memcpy(grown + blob->size, bytes, size);
    blob->bytes = grown;
    blob->size += size;
    return DCP_OK;
}

static struct blob *new_blob(struct store *store, const char *key)
{
    pthread_mutex_lock(&store->mutex);
    struct blob *blob = &store->blobs[store->count++];
    pthread_mutex_unlock(&store->mutex);
    *blob = (struct blob){0};
    snprintf(blob->key, sizeof blob->key, "%s", key);
    return blob;
}

static void count_up(struct store *store, int *count)
{
    pthread_mutex_lock(&store->mutex);
    ++*count;
    pthread_mutex_unlock(&store->mutex);
}

static bool validate(void *context, const char *checkpoint_id)
{
    (void)context;
    return strncmp(checkpoint_id, "store:", 6) == 0;
}

static dcp_status reset(void *context, const char *checkpoint_id)
{
    struct store *store = context;
    assert_string_equal(checkpoint_id, "store:first");
    count_up(store, &store->resets);
    return DCP_OK;
}

static dcp_status meta(void *context, dcp_storage_meta *storage_meta)
{
    (void)context;
    storage_meta->checkpoint_id = "first";
    storage_meta->save_id = "of the store";
    return DCP_OK;
}

static dcp_status set_up(void *context, dcp_saving *saving, bool is_coordinator)
{
    struct store *store = context;
    (void)saving;
    (void)is_coordinator;
    count_up(store, &store->set_ups);
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
        must(dcp_state_as_int(dcp_state_get(data, "items"), &items));
        assert_int_equal(items, 2);
        snprintf(prefix, sizeof prefix, "rank%d", rank);
        must(dcp_state_string(data, "prefix", prefix));
    }
    return DCP_OK;
}

static dcp_status write_item(struct store *store, dcp_saving *saving, const dcp_save_plan *plan,
                             size_t i, const char *prefix)
{
    dcp_write_item item;
    char key[128];
    must(dcp_save_plan_item(plan, i, &item));
    snprintf(key, sizeof key, "%s/%s.%zu", prefix, item.index.name, i);
    struct blob *blob = new_blob(store, key);
    dcp_status status = dcp_saving_stream(saving, i, append, blob);
    dcp_storage_location location = {.path = key, .length = blob->size};
    return status == DCP_OK ? dcp_saving_set_location(saving, i, &location) : status;
}

static dcp_status write_all(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    const char *prefix = "items";
    size_t length;
    dcp_status status = DCP_OK;
    const dcp_state *data = dcp_save_plan_storage_data((dcp_save_plan *)plan);
    if (dcp_state_get(data, "prefix"))
        must(dcp_state_as_text(dcp_state_get(data, "prefix"), &prefix, &length));
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++)
        status = write_item(context, saving, plan, i, prefix);
    return status;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    struct store *store = context;
    (void)saving;
    for (size_t i = 0; i < result_count; i++) {
        size_t entry;
        must(dcp_entry_find(metadata, results[i].index.name, &entry));
        assert_non_null(strstr(results[i].location.path, results[i].index.name));
        if (strncmp(results[i].location.path, "rank", 4) == 0)
            assert_int_equal(results[i].rank, results[i].location.path[4] - '0');
    }
    store->results = result_count;
    return dcp_checkpoint_encode(metadata, append, new_blob(store, ".metadata"));
}

static void abandon(void *context, dcp_saving *saving)
{
    struct store *store = context;
    (void)saving;
    count_up(store, &store->abandoned);
}

static dcp_status body(struct rank *self)
{
    struct store *store = self->context;
    dcp_save_options options = store->options;
    float data[ROWS / 2][COLUMNS];
    dcp_state *root = dcp_state_new();
    int64_t first = self->rank * (ROWS / 2);
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .data = data,
                         .global_shape = {ROWS, COLUMNS},
                         .offsets = {first, 0},
                         .sizes = {ROWS / 2, COLUMNS}};
    for (int64_t i = 0; i < ROWS / 2; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            data[i][j] = (float)((first + i) * 100 + j);
    dcp_state_tensor(root, "w", &tensor);
    dcp_state_int(root, "step", 7);
    options.group = self->group;
    options.timeout_seconds = 20;
    options.storage_writer = &store->writer;
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static void store_init(struct store *store)
{
    *store = (struct store){.writer.size_of = sizeof store->writer};
    store->writer.context = store;
    pthread_mutex_init(&store->mutex, NULL);
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
    must(dcp_state_as_int(dcp_state_get(root, "step"), &step));
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
        .validate_checkpoint_id = validate,
        .reset = reset,
        .storage_meta = meta,
        .set_up_storage_writer = set_up,
        .prepare_local_plan = prepare_local,
        .prepare_global_plan = prepare_global,
        .write_data = write_all,
        .finish = finish,
        .abandon = abandon,
    };
    ranks_must(2, "store:first", body, &store);
    assert_int_equal(store.resets, 2);
    assert_int_equal(store.set_ups, 2);
    assert_int_equal(store.abandoned, 0);
    assert_int_equal(store.results, 3);
    assert_int_equal(store.count, 4);
    assert_int_not_equal(access("store:first", F_OK), 0);
    write_out(&store, path_in(state, "out"));
    check_loads(path_in(state, "out"), DCP_VERIFY_READ);

    const struct blob *metadata = &store.blobs[3];
    assert_string_equal(metadata->key, ".metadata");
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_decode(metadata->bytes, metadata->size, &checkpoint));
    assert_int_equal(dcp_entry_count(checkpoint), 2);
    must_fail(dcp_read_object(checkpoint, 1, NULL, "x"), DCP_ERR_STATE, "");
    dcp_close(checkpoint);
    must_fail(dcp_checkpoint_decode(metadata->bytes, metadata->size / 2, &checkpoint),
              DCP_ERR_FORMAT, "metadata");
    must_fail(dcp_checkpoint_decode(NULL, 0, &checkpoint), DCP_ERR_ARGUMENT, "");
    must_fail(dcp_checkpoint_encode(NULL, append, NULL), DCP_ERR_ARGUMENT, "");

    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, "elsewhere", body, &store);
    must_fail(ranks[1].status, DCP_ERR_ARGUMENT, "");
    assert_non_null(strstr(ranks[1].message, "does not take \"elsewhere\" for an id"));
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
        must(dcp_saving_stream(saving, i, append, &blob));
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
    ranks_must(2, store.directory, body, &store);
    check_loads(store.directory, DCP_VERIFY_READ);
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
    return dcp_default_set_up_storage_writer(saving);
}

static dcp_status write_default(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_default_write_data(saving);
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
    assert_int_equal(dcp_entry_count(metadata), 2);
    return dcp_default_finish(saving);
}

static void does_as_the_library_does(void **state)
{
    struct store store;
    store_init(&store);
    store.writer.set_up_storage_writer = set_up_default;
    store.writer.write_data = write_default;
    store.writer.finish = finish_default;
    ranks_must(2, path_in(state, "a"), body, &store);
    assert_int_equal(store.results, 3);
    check_loads(path_in(state, "a"), DCP_VERIFY_WIDEN);
    store.writer.set_up_storage_writer = NULL;
    store.writer.write_data = NULL;
    ranks_must(2, path_in(state, "b"), body, &store);
    check_loads(path_in(state, "b"), DCP_VERIFY_WIDEN);
#if DCP_HAVE_ZSTD
    store.options.compression = DCP_COMPRESSION_ZSTD;
    store.writer.write_data = write_default;
    ranks_must(2, path_in(state, "c"), body, &store);
    check_loads(path_in(state, "c"), DCP_VERIFY_WIDEN);
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
            assert_int_equal(data.tensor.dtype, DCP_F32);
            assert_true(*(const float *)data.tensor.data == (float)item.index.offsets[0] * 100);
            count_up(store, &store->resolved);
        } else {
            assert_int_equal(data.size, item.object_length);
        }
        if (data.release)
            data.release(data.owner);
    }
    must_fail(dcp_saving_resolve(saving, 99, &(dcp_write_data){0}), DCP_ERR_ARGUMENT, "item 99");
    must_fail(dcp_saving_stream(saving, 0, NULL, NULL), DCP_ERR_ARGUMENT, "");
    return dcp_default_write_data(saving);
}

static void resolves_items(void **state)
{
    struct store store;
    store_init(&store);
    store.writer.write_data = resolve_all;
    ranks_must(2, path_in(state, "a"), body, &store);
    assert_int_equal(store.resolved, 2);
    check_loads(path_in(state, "a"), DCP_VERIFY_READ);
}

/* ---- the choice by the id ---- */

static dcp_status set_nowhere(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return DCP_OK;
}

static bool take_other(void *context, const char *checkpoint_id)
{
    (void)context;
    return strncmp(checkpoint_id, "other:", 6) == 0;
}

static dcp_status choose_body(struct rank *self)
{
    struct store *store = self->context;
    const dcp_storage_writer other = {
        .size_of = sizeof other, .validate_checkpoint_id = take_other, .write_data = set_nowhere};
    const dcp_storage_writer *writers[] = {&other, &store->writer};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 20,
                                .storage_writers = writers,
                                .storage_writer_count = 2};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "rank", self->rank);
    if (store->mischief && self->rank == 1)
        options.storage_writer_count = 1;
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    return status;
}

static void chooses_by_the_id(void **state)
{
    struct store store;
    struct rank ranks[RANKS_MAX];
    store_init(&store);
    store.writer.validate_checkpoint_id = validate;
    store.writer.set_up_storage_writer = set_up;
    store.writer.write_data = write_all;
    store.writer.finish = finish;
    ranks_must(2, "store:first", choose_body, &store);
    assert_int_equal(store.count, 2);
    store_clear(&store);
    ranks_must(2, path_in(state, "a"), choose_body, &store);
    assert_int_equal(store.count, 0);
    assert_int_equal(access(path_in(state, "a"), F_OK), 0);

    ranks_run(ranks, 2, "other:id", choose_body, &store);
    assert_int_equal(ranks[1].status, DCP_ERR_ARGUMENT);
    assert_non_null(strstr(ranks[1].message, "write_data did not say where"));
    ranks_run(ranks, 2, "s3://bucket/key", choose_body, &store);
    assert_int_equal(ranks[1].status, DCP_ERR_UNSUPPORTED);
    assert_non_null(strstr(ranks[1].message, "no storage takes \"s3://bucket/key\""));
    store.mischief = true;
    ranks_run(ranks, 2, "store:first", choose_body, &store);
    assert_int_equal(ranks[0].status, DCP_ERR_ARGUMENT);
    assert_string_equal(ranks[0].message, ranks[1].message);
    store_clear(&store);
}

/* ---- what cannot be ---- */

static dcp_status locate(dcp_saving *saving, const dcp_save_plan *plan, const char *path,
                         uint64_t offset, uint64_t length)
{
    dcp_storage_location location = {path, offset, length};
    if (dcp_save_plan_count(plan) == 0)
        return DCP_OK;
    return dcp_saving_set_location(saving, 0, &location);
}

#define LOCATION(name, path, offset, length)                                                       \
    static dcp_status name(void *context, dcp_saving *saving, const dcp_save_plan *plan)           \
    {                                                                                              \
        (void)context;                                                                             \
        return locate(saving, plan, path, offset, length);                                         \
    }
LOCATION(leads_out, "items/../../../etc/passwd", 0, 10)
LOCATION(absolute, "/etc/passwd", 0, 10)
LOCATION(no_path, NULL, 0, 10)
LOCATION(no_bytes, "a", 0, 0)
LOCATION(too_far, "a", INT64_MAX, 10)

static dcp_status twice(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    dcp_status status = leads_out(context, saving, plan);
    status = locate(saving, plan, "a", 0, 10);
    return status == DCP_OK ? locate(saving, plan, "a", 0, 10) : status;
}

static dcp_status fail_write(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return dcp_error_set(DCP_ERR_IO, "the wire is cut");
}

static dcp_status refuse_bytes(void *context, const void *bytes, size_t size)
{
    (void)context;
    (void)bytes;
    (void)size;
    return dcp_error_set(DCP_ERR_NO_SPACE, "the store is full");
}

static dcp_status write_into_full_store(void *context, dcp_saving *saving,
                                        const dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_saving_stream(saving, 0, refuse_bytes, NULL);
}

static dcp_status locate_early(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    dcp_storage_location location = {"a", 0, 10};
    return dcp_saving_set_location(saving, 0, &location);
}

static dcp_status write_early(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)plan;
    return dcp_default_write_data(saving);
}

static dcp_status fail_finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                              const dcp_write_result *results, size_t result_count)
{
    (void)context;
    (void)saving;
    (void)metadata;
    (void)results;
    (void)result_count;
    return dcp_error_set(DCP_ERR_IO, "the wire is cut");
}

static dcp_status finish_default_blindly(void *context, dcp_saving *saving,
                                         const dcp_checkpoint *metadata,
                                         const dcp_write_result *results, size_t result_count)
{
    (void)context;
    (void)metadata;
    (void)results;
    (void)result_count;
    return dcp_default_finish(saving);
}

static void tells_every_rank_and_leaves_nothing(void **state)
{
    const struct {
        dcp_storage_writer writer;
        dcp_status status;
        const char *story;
    } cases[] = {
        {{.write_data = set_nowhere}, DCP_ERR_ARGUMENT, "write_data did not say where"},
        {{.write_data = leads_out}, DCP_ERR_ARGUMENT, "could lead out of the checkpoint"},
        {{.write_data = absolute}, DCP_ERR_ARGUMENT, "could lead out of the checkpoint"},
        {{.write_data = no_path}, DCP_ERR_ARGUMENT, "its location has no path"},
        {{.write_data = no_bytes}, DCP_ERR_ARGUMENT, "of no bytes, or of too many"},
        {{.write_data = too_far}, DCP_ERR_ARGUMENT, "of no bytes, or of too many"},
        {{.write_data = twice}, DCP_ERR_ARGUMENT, "where item 0 lies was said before"},
        {{.write_data = fail_write}, DCP_ERR_IO, "rank 0: hook write_data: the wire is cut"},
        {{.write_data = write_into_full_store},
         DCP_ERR_NO_SPACE,
         "hook write_data: the store is full"},
        {{.prepare_local_plan = locate_early}, DCP_ERR_ARGUMENT, "item 0 was asked for"},
        {{.prepare_local_plan = write_early}, DCP_ERR_STATE, "files are written in write_data"},
        {{.finish = fail_finish}, DCP_ERR_IO, "rank 0: hook finish: the wire is cut"},
        {{.set_up_storage_writer = set_up},
         DCP_ERR_STATE,
         "has not called dcp_default_set_up_storage_writer(), and there is no hook write_data"},
        {{.set_up_storage_writer = set_up, .write_data = write_all},
         DCP_ERR_STATE,
         "has not called dcp_default_set_up_storage_writer(), and there is no hook finish"},
        {{.set_up_storage_writer = set_up, .write_data = write_default, .finish = fail_finish},
         DCP_ERR_STATE,
         "there is no directory to write to"},
        {{.set_up_storage_writer = set_up,
          .write_data = write_all,
          .finish = finish_default_blindly},
         DCP_ERR_STATE,
         "there is no directory to finish"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct store store;
        struct rank ranks[RANKS_MAX];
        store_init(&store);
        store.writer = cases[i].writer;
        store.writer.size_of = sizeof store.writer;
        store.writer.context = &store;
        store.writer.abandon = abandon;
        const char *path = path_in(state, "refused");
        ranks_run(ranks, 2, path, body, &store);
        for (int rank = 0; rank < 2; rank++) {
            if (ranks[rank].status != cases[i].status ||
                !strstr(ranks[rank].message, cases[i].story))
                fail_msg("case %zu, rank %d: status %d, \"%s\" does not tell \"%s\"", i, rank,
                         ranks[rank].status, ranks[rank].message, cases[i].story);
            assert_string_equal(ranks[rank].message, ranks[0].message);
        }
        assert_int_equal(store.abandoned, 2);
        assert_int_not_equal(access(path, F_OK), 0);
        store_clear(&store);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(saves_into_memory),        TEST(puts_files_of_its_own_beside_our_metadata),
        TEST(does_as_the_library_does), TEST(resolves_items),
        TEST(chooses_by_the_id),        TEST(tells_every_rank_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
