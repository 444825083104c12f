/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/memory_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void store_clear(struct store *store)
{
    for (size_t i = 0; i < store->count; i++)
        free(store->blobs[i].bytes);
    store->count = 0;
}

dcp_status store_append(void *context, const void *bytes, size_t size)
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

struct blob *store_blob(struct store *store, const char *key)
{
    pthread_mutex_lock(&store->mutex);
    struct blob *blob = &store->blobs[store->count++];
    pthread_mutex_unlock(&store->mutex);
    *blob = (struct blob){0};
    snprintf(blob->key, sizeof blob->key, "%s", key);
    return blob;
}

void store_count(struct store *store, int *count)
{
    pthread_mutex_lock(&store->mutex);
    ++*count;
    pthread_mutex_unlock(&store->mutex);
}

bool store_takes(void *context, const char *checkpoint_id)
{
    (void)context;
    return strncmp(checkpoint_id, "store:", 6) == 0;
}

dcp_status store_set_up(void *context, dcp_saving *saving, bool is_coordinator)
{
    struct store *store = context;
    (void)saving;
    (void)is_coordinator;
    store_count(store, &store->set_ups);
    return DCP_OK;
}

static dcp_status write_item(struct store *store, dcp_saving *saving, const dcp_save_plan *plan,
                             size_t i, const char *prefix)
{
    dcp_write_item item;
    char key[128];
    must(dcp_save_plan_item(plan, i, &item));
    snprintf(key, sizeof key, "%s/%s.%zu", prefix, item.index.name, i);
    struct blob *blob = store_blob(store, key);
    dcp_status status = dcp_saving_stream(saving, i, store_append, blob);
    dcp_storage_location location = {.path = key, .length = blob->size};
    return status == DCP_OK ? dcp_saving_set_location(saving, i, &location) : status;
}

dcp_status store_write(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    const char *prefix = "items";
    size_t length;
    dcp_status status = DCP_OK;
    const dcp_state *data = dcp_save_plan_storage_data((dcp_save_plan *)plan);
    if (dcp_state_find(data, "prefix"))
        must(dcp_state_as_text(dcp_state_find(data, "prefix"), &prefix, &length));
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++)
        status = write_item(context, saving, plan, i, prefix);
    return status;
}

dcp_status store_finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                        const dcp_write_result *results, size_t result_count)
{
    struct store *store = context;
    (void)saving;
    for (size_t i = 0; i < result_count; i++) {
        size_t entry;
        must(dcp_checkpoint_find(metadata, results[i].index.name, &entry));
        assert_non_null(strstr(results[i].location.path, results[i].index.name));
        if (strncmp(results[i].location.path, "rank", 4) == 0)
            assert_int_equal(results[i].rank, results[i].location.path[4] - '0');
    }
    store->results = result_count;
    return dcp_checkpoint_encode(metadata, store_append, store_blob(store, ".metadata"));
}

void store_abandon(void *context, dcp_saving *saving)
{
    struct store *store = context;
    (void)saving;
    store_count(store, &store->abandoned);
}

dcp_status store_save(struct rank *self)
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

void store_init(struct store *store)
{
    *store = (struct store){.writer.size_of = sizeof store->writer};
    store->writer.context = store;
    pthread_mutex_init(&store->mutex, NULL);
}
