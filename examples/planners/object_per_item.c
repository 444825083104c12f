/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage of one's own: every tensor chunk and object becomes one object of a store (here files
 * of a directory stand for it), and the metadata another one, which comes last. The library makes
 * no file. */
#include "four_ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct store {
    const char *directory; /* the checkpoint's id, which is the path that was given to the save */
    int rank;
};

/* An object on its way into the store. */
struct put {
    FILE *file;
    uint64_t size;
};

static dcp_status put_bytes(void *context, const void *bytes, size_t size)
{
    struct put *put = context;
    put->size += size;
    return fwrite(bytes, 1, size, put->file) == size ? DCP_OK
                                                     : dcp_error_set(DCP_ERR_IO, "writing failed");
}

static dcp_status put_begin(const struct store *store, const char *key, struct put *put)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", store->directory, key);
    *put = (struct put){.file = fopen(path, "wb")};
    return put->file ? DCP_OK : dcp_error_set(DCP_ERR_IO, "%s: %s", path, strerror(errno));
}

static dcp_status put_end(struct put *put, dcp_status status)
{
    if (fclose(put->file) != 0 && status == DCP_OK)
        status = dcp_error_set(DCP_ERR_IO, "closing failed");
    return status;
}

static dcp_status set_up(void *context, dcp_saving *saving, bool is_coordinator)
{
    const struct store *store = context;
    (void)saving;
    (void)is_coordinator;
    if (mkdir(store->directory, 0777) != 0 && errno != EEXIST)
        return dcp_error_set(DCP_ERR_IO, "%s: %s", store->directory, strerror(errno));
    return DCP_OK;
}

static dcp_status write_item(const struct store *store, dcp_saving *saving, size_t index)
{
    char key[64];
    struct put put;
    snprintf(key, sizeof key, "item-%d-%zu", store->rank, index);
    dcp_status status = put_begin(store, key, &put);
    if (status != DCP_OK)
        return status;
    status = put_end(&put, dcp_saving_stream(saving, index, put_bytes, &put));
    dcp_storage_location location = {.path = key, .length = put.size};
    return status == DCP_OK ? dcp_saving_set_location(saving, index, &location) : status;
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++)
        status = write_item(context, saving, i);
    return status;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    struct put put;
    (void)saving;
    (void)results;
    dcp_status status = put_begin(context, ".metadata", &put);
    if (status != DCP_OK)
        return status;
    status = put_end(&put, dcp_checkpoint_encode(metadata, put_bytes, &put));
    if (status == DCP_OK)
        printf("%zu objects\n", result_count);
    return status;
}

static dcp_status save(struct trainer *trainer)
{
    struct store store = {trainer->path, trainer->rank};
    dcp_storage_writer writer = {.size_of = sizeof writer,
                                 .context = &store,
                                 .set_up_storage_writer = set_up,
                                 .write_data = write_data,
                                 .finish = finish};
    return save_state(trainer, (dcp_save_options){.storage_writer = &writer});
}

int main(int argc, char **argv)
{
    return run_ranks(argc, argv, save, "");
}
