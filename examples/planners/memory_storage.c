/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage of one's own, in memory: a writer and a reader, which dcp_save() and dcp_load() find by
 * the checkpoint's id, "memory://" and a name, among all that the program has. What is in it are
 * the same streams and the same .metadata that a directory would hold.
 */
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOBS = 32 };

/* Something under a key. */
struct blob {
    char key[64];
    unsigned char *bytes;
    size_t size;
};

struct memory {
    struct blob blobs[BLOBS];
    int count;
    const dcp_checkpoint *metadata; /* of the load in progress */
};

static struct blob *find(struct memory *memory, const char *key)
{
    for (int i = 0; i < memory->count; i++)
        if (strcmp(memory->blobs[i].key, key) == 0)
            return &memory->blobs[i];
    return NULL;
}

static struct blob *add(struct memory *memory, const char *key)
{
    if (memory->count == BLOBS)
        return NULL;
    struct blob *blob = &memory->blobs[memory->count++];
    snprintf(blob->key, sizeof blob->key, "%s", key);
    return blob;
}

static dcp_status append(void *context, const void *bytes, size_t size)
{
    struct blob *blob = context;
    unsigned char *grown = realloc(blob->bytes, blob->size + size);
    if (!grown)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s", blob->key);
    memcpy(grown + blob->size, bytes, size);
    blob->bytes = grown;
    blob->size += size;
    return DCP_OK;
}

static bool takes(void *context, const char *id)
{
    (void)context;
    return strncmp(id, "memory://", strlen("memory://")) == 0;
}

/* ---- the writer ---- */

static dcp_status set_up_writer(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context, (void)saving, (void)is_coordinator; /* no directory is needed */
    return DCP_OK;
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        char key[32];
        snprintf(key, sizeof key, "item%zu", i);
        struct blob *blob = add(context, key);
        if (!blob)
            return dcp_error_set(DCP_ERR_NO_SPACE, "the memory is full");
        status = dcp_saving_stream(saving, i, append, blob);
        const dcp_storage_location location = {key, 0, blob->size};
        if (status == DCP_OK)
            status = dcp_saving_set_location(saving, i, &location);
    }
    return status;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    (void)saving, (void)results, (void)result_count;
    struct blob *blob = add(context, ".metadata");
    return blob ? dcp_checkpoint_encode(metadata, append, blob)
                : dcp_error_set(DCP_ERR_NO_SPACE, "the memory is full");
}

/* ---- the reader ---- */

static dcp_status read_metadata(void *context, const void **bytes, size_t *size)
{
    const struct blob *blob = find(context, ".metadata");
    if (!blob)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "nothing has been saved in memory");
    *bytes = blob->bytes;
    *size = blob->size;
    return DCP_OK;
}

static dcp_status set_up_reader(void *context, dcp_loading *loading, const dcp_checkpoint *metadata,
                                bool is_coordinator)
{
    struct memory *memory = context;
    (void)loading, (void)is_coordinator;
    memory->metadata = metadata;
    return DCP_OK;
}

static dcp_status read_data(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    struct memory *memory = context;
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_load_plan_count(plan) && status == DCP_OK; i++) {
        dcp_read_item item;
        dcp_storage_location location = {NULL, 0, 0};
        status = dcp_load_plan_item(plan, i, &item);
        if (status == DCP_OK)
            status = dcp_checkpoint_locate(memory->metadata, &item.stored, &location);
        if (status != DCP_OK)
            return status;
        const struct blob *blob = find(memory, location.path);
        status = blob ? dcp_loading_stream(loading, i, blob->bytes, blob->size)
                      : dcp_error_set(DCP_ERR_NOT_FOUND, "no %s in memory", location.path);
    }
    return status;
}

/* ---- a program that uses it ---- */

static dcp_status save(const dcp_storage_writer *writer)
{
    float weight[] = {1, 2, 3, 4};
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = weight, .global_shape = {4}};
    const dcp_save_options options = {.storage_writers = &writer, .storage_writer_count = 1};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "weight", &tensor);
    dcp_state_int(state, "step", 1000);
    dcp_status status = dcp_save(state, "memory://step_1000", &options);
    dcp_state_free(state);
    return status;
}

static dcp_status load(const dcp_storage_reader *reader, const char *id)
{
    float half[2] = {0};
    const dcp_tensor tensor = {.dtype = DCP_F32,
                               .ndim = 1,
                               .sharded = true,
                               .data = half,
                               .global_shape = {4},
                               .offsets = {2},
                               .sizes = {2}};
    const dcp_load_options options = {.storage_readers = &reader, .storage_reader_count = 1};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "weight", &tensor);
    dcp_status status = dcp_load(state, id, &options, NULL);
    dcp_state_free(state);
    if (status == DCP_OK && (half[0] != 3 || half[1] != 4))
        return dcp_error_set(DCP_ERR_INTERNAL, "the second half is %g, %g", (double)half[0],
                             (double)half[1]);
    return status;
}

int main(void)
{
    struct memory memory = {.count = 0};
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .context = &memory,
                                       .validate_checkpoint_id = takes,
                                       .set_up_storage_writer = set_up_writer,
                                       .write_data = write_data,
                                       .finish = finish};
    const dcp_storage_reader reader = {.size_of = sizeof reader,
                                       .context = &memory,
                                       .validate_checkpoint_id = takes,
                                       .read_metadata = read_metadata,
                                       .set_up_storage_reader = set_up_reader,
                                       .read_data = read_data};
    bool right = save(&writer) == DCP_OK && load(&reader, "memory://step_1000") == DCP_OK;
    if (!right)
        fprintf(stderr, "%s\n", dcp_error_message());
    /* Nobody takes this one. */
    right = right && load(&reader, "s3://bucket/step_1000") == DCP_ERR_UNSUPPORTED;
    if (right)
        printf("saved to and loaded from memory; %s\n", dcp_error_message());
    for (int i = 0; i < memory.count; i++)
        free(memory.blobs[i].bytes);
    return right ? 0 : 1;
}
