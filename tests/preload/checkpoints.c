/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/checkpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t element_of(int version, size_t index)
{
    return (int32_t)((uint32_t)version * 40503u + (uint32_t)index * 2654435761u);
}

static void fill(struct contents *contents, int version)
{
    for (size_t i = 0; i < LARGE_COUNT; i++)
        contents->large[i] = element_of(version, i);
    for (size_t i = 0; i < SMALL_COUNT; i++)
        contents->small[i] = element_of(version, LARGE_COUNT + i);
}

static bool is_filled(const struct contents *contents, int version)
{
    for (size_t i = 0; i < LARGE_COUNT; i++)
        if (contents->large[i] != element_of(version, i))
            return false;
    for (size_t i = 0; i < SMALL_COUNT; i++)
        if (contents->small[i] != element_of(version, LARGE_COUNT + i))
            return false;
    return true;
}

static dcp_tensor tensor_of(int32_t *data, int64_t count)
{
    return (dcp_tensor){.dtype = DCP_I32, .ndim = 1, .global_shape = {count}, .data = data};
}

static dcp_state *state_of(struct contents *contents, int version)
{
    const dcp_tensor large = tensor_of(contents->large, LARGE_COUNT);
    const dcp_tensor small = tensor_of(contents->small, SMALL_COUNT);
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "large", &large);
    dcp_state_tensor(state, "small", &small);
    dcp_state_int(state, "version", version);
    return state;
}

static void note(struct outcome *outcome, dcp_status status, const char *message)
{
    outcome->status = status;
    snprintf(outcome->message, sizeof outcome->message, "%s", status != DCP_OK ? message : "");
}

static void compare(struct outcome *outcome, bool right)
{
    if (outcome->status == DCP_OK && !right)
        note(outcome, DCP_ERR_STATE, "what was read is not what is stored");
}

static void save(const struct operation *operation, const char *path, int version,
                 struct contents *contents, struct outcome *outcome)
{
    fill(contents, version);
    dcp_state *state = state_of(contents, version);
    note(outcome, dcp_save(state, path, &operation->save), dcp_error_message());
    dcp_state_free(state);
}

/* Over a checkpoint: that must never succeed. */
static void save_refused(const struct operation *operation, const char *path, int version,
                         struct contents *contents, struct outcome *outcome)
{
    save(operation, path, version, contents, outcome);
    if (outcome->status == DCP_OK)
        note(outcome, DCP_ERR_STATE, "a checkpoint was overwritten");
    else if (outcome->status == DCP_ERR_EXISTS)
        note(outcome, DCP_OK, "");
}

static void save_in_background(const struct operation *operation, const char *path, int version,
                               struct contents *contents, struct outcome *outcome)
{
    dcp_future *future = NULL;
    fill(contents, version);
    dcp_state *state = state_of(contents, version);
    dcp_status status = dcp_save_async(state, path, &operation->save, &future);
    note(outcome, status, dcp_error_message());
    if (status == DCP_OK) {
        status = dcp_future_wait(future, 60);
        note(outcome, status, dcp_future_message(future));
    }
    dcp_future_free(future);
    dcp_state_free(state);
}

static bool has_version(const dcp_state *state, int version)
{
    int64_t value = 0;
    const dcp_state *found = dcp_state_find(state, "version");
    return found && dcp_state_as_int(found, &value) == DCP_OK && value == version;
}

static void load(const struct operation *operation, const char *path, int version,
                 struct contents *contents, struct outcome *outcome)
{
    dcp_load_report *report = NULL;
    memset(contents, 0xee, sizeof *contents);
    dcp_state *state = state_of(contents, -1);
    note(outcome, dcp_load(state, path, &operation->load, &report), dcp_error_message());
    compare(outcome, is_filled(contents, version) && has_version(state, version));
    dcp_load_report_free(report);
    dcp_state_free(state);
}

static void keep_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *message)
{
    struct outcome *outcome = context;
    size_t length = strlen(outcome->message);
    (void)offset, (void)name;
    snprintf(outcome->message + length, sizeof outcome->message - length, "%s: %s; ", file,
             message);
}

static void verify(const struct operation *operation, const char *path, int version,
                   struct contents *contents, struct outcome *outcome)
{
    (void)operation, (void)version, (void)contents;
    outcome->message[0] = '\0';
    dcp_status status = dcp_verify(path, NULL, keep_fault, outcome, &outcome->faults);
    if (status != DCP_OK)
        note(outcome, status, dcp_error_message());
}

static bool is_mapped(const dcp_mapped_chunk *mapped, int version)
{
    for (size_t i = 0; i < LARGE_COUNT; i++)
        if (((const int32_t *)mapped->data)[i] != element_of(version, i))
            return false;
    return true;
}

/* Maps the large tensor, if it is not stored compressed. */
static dcp_status map_large(dcp_checkpoint *checkpoint, int version, bool *right)
{
    size_t index = 0;
    dcp_mapping *mapping = NULL;
    dcp_mapped_chunk mapped = {0};
    dcp_status status = dcp_checkpoint_find(checkpoint, "large", &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_map_chunk(checkpoint, index, 0, NULL, &mapping, &mapped);
    *right = status != DCP_OK || is_mapped(&mapped, version);
    dcp_mapping_free(mapping);
    return status == DCP_ERR_UNSUPPORTED ? DCP_OK : status;
}

static void view(const struct operation *operation, const char *path, int version,
                 struct contents *contents, struct outcome *outcome)
{
    dcp_checkpoint *checkpoint = NULL;
    const dcp_tensor small = tensor_of(contents->small, SMALL_COUNT);
    size_t index = 0;
    bool right = false;
    (void)operation;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status == DCP_OK)
        status = dcp_checkpoint_find(checkpoint, "small", &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_read_tensor(checkpoint, index, &small, NULL);
    if (status == DCP_OK)
        status = map_large(checkpoint, version, &right);
    note(outcome, status, dcp_error_message());
    compare(outcome, right && contents->small[7] == element_of(version, LARGE_COUNT + 7));
    dcp_checkpoint_close(checkpoint);
}

#define REPLACE .saves = true, .save.overwrite = DCP_OVERWRITE_REPLACE, .save.has_step = true

const struct operation operations[] = {
    {.name = "save", .run = save, REPLACE},
    {.name = "save by a ring around the page cache",
     .run = save,
     REPLACE,
     .save.io = DCP_IO_RING | DCP_IO_DIRECT},
    {.name = "save by a pool around the page cache",
     .run = save,
     REPLACE,
     .save.io = DCP_IO_POOL | DCP_IO_DIRECT},
#if DCP_HAVE_ZSTD
    {.name = "save compressed", .run = save, REPLACE, .save.compression = DCP_COMPRESSION_ZSTD},
#endif
    {.name = "save two files", .run = save, REPLACE, .save.thread_count = 2},
    {.name = "save for the first time", .run = save, .saves = true, .fresh = true},
    {.name = "save in the background", .run = save_in_background, REPLACE},
    {.name = "save where that is refused", .run = save_refused},
    {.name = "load", .run = load},
    {.name = "load by a ring around the page cache",
     .run = load,
     .load.io = DCP_IO_RING | DCP_IO_DIRECT},
    {.name = "load by a pool",
     .run = load,
     .load.io = DCP_IO_POOL | DCP_IO_DIRECT,
     .load.thread_count = 3},
    {.name = "verify", .run = verify},
    {.name = "read and map", .run = view},
};
const size_t operation_count = sizeof operations / sizeof *operations;

int checkpoint_version(const char *path, struct contents *contents, struct outcome *outcome)
{
    static const dcp_load_options options = {0};
    dcp_load_report *report = NULL;
    int64_t version = -1;
    memset(contents, 0xee, sizeof *contents);
    dcp_state *state = state_of(contents, -1);
    dcp_status status = dcp_load(state, path, &options, &report);
    note(outcome, status, dcp_error_message());
    const dcp_state *found = dcp_state_find(state, "version");
    if (status == DCP_ERR_NOT_FOUND)
        version = 0;
    else if (status != DCP_OK || !found || dcp_state_as_int(found, &version) != DCP_OK ||
             !is_filled(contents, (int)version))
        version = -1;
    dcp_load_report_free(report);
    dcp_state_free(state);
    return (int)version;
}
