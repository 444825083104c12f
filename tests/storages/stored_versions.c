/* SPDX-License-Identifier: BSD-3-Clause */
#include "storages/stored_versions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

#define COLUMNS ((int64_t)1024)

/* One rank's part: rows of a matrix, a vector that all have, objects. */
struct content {
    float *matrix;
    float vector[8];
    int64_t rows, first;
    dcp_state *root;
};

/* One call, by all ranks. */
struct course {
    struct stored_versions *versions;
    int version;
    int found[RANKS_MAX];
};

static float element(int version, int64_t index)
{
    return (float)(version * 1000 + index % 997);
}

static void content_init(struct content *content, const struct stored_versions *versions,
                         int version, int rank)
{
    content->rows = versions->rows / versions->ranks;
    content->first = content->rows * rank;
    content->matrix = calloc((size_t)(content->rows * COLUMNS) + 1, sizeof(float));
    for (int64_t i = 0; version && i < content->rows * COLUMNS; i++)
        content->matrix[i] = element(version, content->first * COLUMNS + i);
    for (int64_t i = 0; i < 8; i++)
        content->vector[i] = version ? element(version, i) : 0;
    dcp_tensor matrix = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {versions->rows, COLUMNS},
                         .offsets = {content->first, 0},
                         .sizes = {content->rows, COLUMNS},
                         .data = content->matrix};
    dcp_tensor vector = {.dtype = DCP_F32, .ndim = 1, .global_shape = {8}, .data = content->vector};
    content->root = dcp_state_new();
    dcp_state_tensor(content->root, "matrix", &matrix);
    dcp_state_tensor(content->root, "vector", &vector);
    dcp_state_int(content->root, "version", version);
    dcp_state_string(content->root, "name", "a name of some length");
}

static void content_free(struct content *content)
{
    dcp_state_free(content->root);
    free(content->matrix);
}

static int version_of(const struct content *content)
{
    int64_t version = STORED_CORRUPT;
    dcp_state_as_int(dcp_state_find(content->root, "version"), &version);
    for (int64_t i = 0; i < content->rows * COLUMNS; i++)
        if (content->matrix[i] != element((int)version, content->first * COLUMNS + i))
            return STORED_CORRUPT;
    for (int64_t i = 0; i < 8; i++)
        if (content->vector[i] != element((int)version, i))
            return STORED_CORRUPT;
    return (int)version;
}

/* What is saved changes as soon as it may. */
static dcp_status save_asynchronously(const struct rank *self, struct content *content,
                                      dcp_save_options *options)
{
    const struct course *course = self->context;
    dcp_save_chain_options chain = course->versions->chain;
    dcp_future *future = NULL;
    chain.group = self->group;
    dcp_status status = dcp_save_chain_new(&chain, &options->chain);
    if (status != DCP_OK)
        return status;
    status = dcp_save_async(content->root, self->path, options, &future);
    if (status == DCP_OK) {
        memset(content->matrix, 0xff, (size_t)(content->rows * COLUMNS) * sizeof(float));
        status = dcp_future_wait(future, 60);
    }
    dcp_future_free(future);
    dcp_save_chain_free(options->chain);
    return status;
}

static dcp_status save(struct rank *self)
{
    const struct course *course = self->context;
    const struct stored_versions *versions = course->versions;
    struct content content;
    dcp_save_options options = versions->saving;
    options.group = self->group;
    options.storage = versions->storage;
    options.timeout_seconds = 30;
    content_init(&content, versions, course->version, self->rank);
    dcp_status status = versions->asynchronous ? save_asynchronously(self, &content, &options)
                                               : dcp_save(content.root, self->path, &options);
    content_free(&content);
    return status;
}

static dcp_status load(struct rank *self)
{
    struct course *course = self->context;
    const struct stored_versions *versions = course->versions;
    struct content content;
    dcp_load_options options = versions->loading;
    options.group = self->group;
    options.storage = versions->storage;
    options.timeout_seconds = 30;
    content_init(&content, versions, 0, self->rank);
    dcp_status status = dcp_load(content.root, self->path, &options, NULL);
    course->found[self->rank] = status == DCP_OK ? version_of(&content) : STORED_CORRUPT;
    content_free(&content);
    return status;
}

static dcp_status run(struct stored_versions *versions, rank_body body, struct course *course)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, versions->ranks, versions->path, body, course);
    for (int r = 1; r < versions->ranks; r++) {
        if (ranks[r].status != ranks[0].status ||
            (ranks[0].status != DCP_OK && strcmp(ranks[r].message, ranks[0].message) != 0))
            fail_msg("rank 0 ended with %s: %s, rank %d with %s: %s",
                     dcp_status_string(ranks[0].status), ranks[0].message, r,
                     dcp_status_string(ranks[r].status), ranks[r].message);
        assert_int_equal(course->found[r], course->found[0]);
    }
    snprintf(versions->message, sizeof versions->message, "%s",
             ranks[0].status == DCP_OK ? "" : ranks[0].message);
    return ranks[0].status;
}

dcp_status stored_version_save(struct stored_versions *versions, int version)
{
    struct course course = {.versions = versions, .version = version};
    return run(versions, save, &course);
}

dcp_status stored_version_load(struct stored_versions *versions, int *version)
{
    struct course course = {.versions = versions};
    dcp_status status = run(versions, load, &course);
    *version = course.found[0];
    return status;
}

int stored_version_find(struct stored_versions *versions)
{
    int version;
    dcp_status status = stored_version_load(versions, &version);
    if (status == DCP_ERR_NOT_FOUND)
        return STORED_NOTHING;
    if (status != DCP_OK)
        print_error("found: %s: %s\n", dcp_status_string(status), versions->message);
    return version;
}

struct counting {
    const char *end;
    int count;
};

static dcp_status count_one(void *context, const char *name)
{
    struct counting *counting = context;
    size_t length = strlen(name), end = strlen(counting->end);
    counting->count += length >= end && strcmp(name + length - end, counting->end) == 0;
    return DCP_OK;
}

int stored_version_count_files(const struct stored_versions *versions, const char *end)
{
    struct counting counting = {end, 0};
    dcp_status status = dcp_storage_list(versions->storage, versions->path, count_one, &counting);
    if (status != DCP_ERR_NOT_FOUND)
        must(status);
    return counting.count;
}
