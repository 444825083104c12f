/* SPDX-License-Identifier: BSD-3-Clause */
/* What a storage says of a save (storage_meta):
 *
 *   storage_meta write PATH files|own
 *       saved by a storage writer that says something; with the library's files, or one of its own
 *   storage_meta read PATH
 *       prints what the storage said of a save, a line for each
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

static void must(dcp_status status, const char *what)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

static dcp_status describe(void *context, dcp_storage_meta *meta)
{
    static const char *const modules[] = {"model", "optimizer \xc3\xbc"};
    (void)context;
    *meta = (dcp_storage_meta){.checkpoint_id = "s3://bucket/run 7",
                               .save_id = "the 12th",
                               .load_id = "none yet",
                               .modules = modules,
                               .module_count = 2};
    return DCP_OK;
}

/* The planner is told as well. */
static dcp_status look(void *context, dcp_saving *saving, dcp_state *state,
                       const dcp_storage_meta *meta, bool is_coordinator)
{
    (void)context, (void)is_coordinator;
    if (strcmp(meta->checkpoint_id, "s3://bucket/run 7") != 0 || meta->module_count != 2)
        return dcp_error_set(DCP_ERR_INTERNAL, "the planner hears of %s", meta->checkpoint_id);
    return dcp_save_default_set_up_planner(saving, state);
}

/* ---- a directory of one's own: .metadata, and a file for everything else ---- */

static dcp_status write_bytes(void *context, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, context) == size ? DCP_OK
                                                   : dcp_error_set(DCP_ERR_IO, "cannot write");
}

static FILE *open_in(const char *directory, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return fopen(path, "wb");
}

static dcp_status set_up(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context, (void)saving, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    FILE *file = open_in(context, "data");
    dcp_status status = file ? DCP_OK : dcp_error_set(DCP_ERR_IO, "cannot open a file");
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_storage_location location = {"data", (uint64_t)ftell(file), 0};
        status = dcp_saving_stream(saving, i, write_bytes, file);
        location.length = (uint64_t)ftell(file) - location.offset;
        if (status == DCP_OK)
            status = dcp_saving_set_location(saving, i, &location);
    }
    if (file)
        fclose(file);
    return status;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    (void)saving, (void)results, (void)result_count;
    FILE *file = open_in(context, ".metadata");
    if (!file)
        return dcp_error_set(DCP_ERR_IO, "cannot open a file");
    dcp_status status = dcp_checkpoint_encode(metadata, write_bytes, file);
    fclose(file);
    return status;
}

static void save(char *path, bool own)
{
    float values[] = {1, 2, 3};
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = values, .global_shape = {3}};
    const dcp_save_planner planner = {.size_of = sizeof planner, .set_up_planner = look};
    dcp_storage_writer writer = {
        .size_of = sizeof writer, .context = path, .storage_meta = describe};
    const dcp_save_options options = {.planner = &planner, .storage_writer = &writer};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    dcp_state_int(root, "step", 7);
    if (own) {
        writer.set_up_storage_writer = set_up;
        writer.write_data = write_data;
        writer.finish = finish;
    }
    must(dcp_save(root, path, &options), "saving");
    dcp_state_free(root);
}

static void show(const char *path)
{
    dcp_checkpoint *checkpoint;
    dcp_storage_meta meta;
    must(dcp_checkpoint_open(path, NULL, &checkpoint), "opening");
    must(dcp_checkpoint_storage_meta(checkpoint, &meta), "describing");
    const char *const ids[] = {meta.checkpoint_id, meta.save_id, meta.load_id};
    for (size_t i = 0; i < 3; i++)
        printf("%s\n", ids[i] ? ids[i] : "(none)");
    for (size_t i = 0; i < meta.module_count; i++)
        printf("%s\n", meta.modules[i]);
    dcp_checkpoint_close(checkpoint);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        save(argv[2], strcmp(argv[3], "own") == 0);
    else if (argc == 3 && strcmp(argv[1], "read") == 0)
        show(argv[2]);
    else
        return 2;
    return 0;
}
