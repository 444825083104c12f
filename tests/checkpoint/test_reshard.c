/* SPDX-License-Identifier: BSD-3-Clause */
/* Several ranks: every placement loads as every other, and each element is checked against a
 * formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

/* How a tensor lies over a mesh. */
struct layout {
    const char *name;
    dcp_mesh mesh;
    dcp_placement placements[2];
};

static const struct layout layouts[] = {
    {"1 rank", {1, {1}, 0}, {{DCP_REPLICATE, 0, 0}}},
    {"S0 over 2", {1, {2}, 0}, {{DCP_SHARD, 0, 0}}},
    {"S1 over 3", {1, {3}, 0}, {{DCP_SHARD, 1, 0}}},
    {"S0 over 4", {1, {4}, 0}, {{DCP_SHARD, 0, 0}}},
    {"S0 over 5", {1, {5}, 0}, {{DCP_SHARD, 0, 0}}},
    {"R over 3", {1, {3}, 0}, {{DCP_REPLICATE, 0, 0}}},
    {"S0 S1 over 2x2", {2, {2, 2}, 0}, {{DCP_SHARD, 0, 0}, {DCP_SHARD, 1, 0}}},
    {"R S0 over 2x2", {2, {2, 2}, 0}, {{DCP_REPLICATE, 0, 0}, {DCP_SHARD, 0, 0}}},
    {"S1 S1 over 2x3", {2, {2, 3}, 0}, {{DCP_SHARD, 1, 0}, {DCP_SHARD, 1, 0}}},
    {"strided S0 over 2x2", {2, {2, 2}, 0}, {{DCP_STRIDED_SHARD, 0, 2}, {DCP_SHARD, 0, 0}}},
};

#define LAYOUT_COUNT (sizeof layouts / sizeof *layouts)

/* The second one has a dimension smaller than some meshes, so that ranks hold nothing. */
static const int64_t shapes[][3] = {{13, 7, 2}, {3, 9, 1}};

#define SHAPE_COUNT (sizeof shapes / sizeof *shapes)

struct job {
    const struct layout *layout;
    dcp_save_options save;
    dcp_reading reading;
    dcp_tensor tensors[RANKS_MAX][SHAPE_COUNT];
    int32_t *data[RANKS_MAX][SHAPE_COUNT];
};

static int layout_size(const struct layout *layout)
{
    int size = 1;
    for (int i = 0; i < layout->mesh.ndim; i++)
        size *= (int)layout->mesh.shape[i];
    return size;
}

static int64_t chunk_volume(const dcp_tensor *tensor)
{
    return tensor->sizes[0] * tensor->sizes[1] * tensor->sizes[2];
}

/* The value of element index of the chunk: its position in the whole tensor, so that a wrong
 * element is always seen. */
static int32_t formula(const dcp_tensor *tensor, int64_t index, size_t shape)
{
    int64_t position = 0, left = index, place[3];
    for (int d = 2; d >= 0; d--) {
        place[d] = tensor->offsets[d] + left % tensor->sizes[d];
        left /= tensor->sizes[d];
    }
    for (int d = 0; d < 3; d++)
        position = position * tensor->global_shape[d] + place[d];
    return (int32_t)(position * 10 + (int64_t)shape + 1);
}

static dcp_status make_state(struct rank *self, dcp_state *root, bool filled)
{
    struct job *job = self->context;
    dcp_mesh mesh = job->layout->mesh;
    char name[16];

    mesh.rank = self->rank;
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        dcp_tensor *tensor = &job->tensors[self->rank][s];
        *tensor = (dcp_tensor){.dtype = DCP_I32, .ndim = 3};
        memcpy(tensor->global_shape, shapes[s], sizeof shapes[s]);
        dcp_status status = dcp_mesh_shard(&mesh, tensor, job->layout->placements);
        if (status != DCP_OK)
            return status;
        int64_t volume = chunk_volume(tensor);
        int32_t *data = calloc((size_t)volume + 1, sizeof *data);
        job->data[self->rank][s] = data;
        for (int64_t i = 0; filled && i < volume; i++)
            data[i] = formula(tensor, i, s);
        tensor->data = data;
        snprintf(name, sizeof name, "t%zu", s);
        dcp_state_tensor(root, name, tensor);
    }
    dcp_state_int(root, "step", filled ? 17 : 0);
    return dcp_state_status(root);
}

static void free_data(struct rank *self)
{
    struct job *job = self->context;
    for (size_t s = 0; s < SHAPE_COUNT; s++)
        free(job->data[self->rank][s]);
}

static dcp_status save_body(struct rank *self)
{
    const struct job *job = self->context;
    dcp_save_options options = job->save;
    dcp_state *root = dcp_state_new();
    options.group = self->group;
    options.timeout_seconds = 30;
    dcp_status status = make_state(self, root, true);
    if (status == DCP_OK)
        status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    free_data(self);
    return status;
}

static dcp_status check_filled(struct rank *self, dcp_state *root)
{
    struct job *job = self->context;
    int64_t step = 0;
    for (size_t s = 0; s < SHAPE_COUNT; s++) {
        const dcp_tensor *tensor = &job->tensors[self->rank][s];
        for (int64_t i = 0; i < chunk_volume(tensor); i++)
            if (job->data[self->rank][s][i] != formula(tensor, i, s))
                return dcp_error_set(DCP_ERR_INTERNAL,
                                     "t%zu: element %d of the chunk is %d, expected %d", s, (int)i,
                                     job->data[self->rank][s][i], formula(tensor, i, s));
    }
    dcp_status status = dcp_state_as_int(dcp_state_find(root, "step"), &step);
    return status == DCP_OK && step != 17 ? dcp_error_set(DCP_ERR_INTERNAL, "step is wrong")
                                          : status;
}

static dcp_status load_body(struct rank *self)
{
    const struct job *job = self->context;
    dcp_load_options options = {
        .group = self->group, .timeout_seconds = 30, .reading = job->reading};
    dcp_state *root = dcp_state_new();
    dcp_status status = make_state(self, root, false);
    if (status == DCP_OK)
        status = dcp_load(root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = check_filled(self, root);
    dcp_state_free(root);
    free_data(self);
    return status;
}

static void save_as(const struct layout *layout, const char *path, const dcp_save_options *options)
{
    struct job job = {.layout = layout};
    uint64_t faults = 1;
    if (options)
        job.save = *options;
    ranks_must(layout_size(layout), path, save_body, &job);
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

/* Each rank for itself, and for each other. */
static void load_as(const struct layout *layout, const char *path)
{
    struct job job = {.layout = layout};
    ranks_must(layout_size(layout), path, load_body, &job);
    job.reading = DCP_READING_COOPERATIVE;
    ranks_must(layout_size(layout), path, load_body, &job);
}

static void test_all_pairs(void **state)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "from-%zu", i);
        const char *path = path_in(state, name);
        save_as(&layouts[i], path, NULL);
        for (size_t j = 0; j < LAYOUT_COUNT; j++)
            load_as(&layouts[j], path);
    }
}

static void test_every_way_of_writing(void **state)
{
    const struct layout *replicated = &layouts[5], *hybrid = &layouts[7];
    for (int replicas = DCP_REPLICAS_SLICE; replicas <= DCP_REPLICAS_LOWEST; replicas++)
        for (int files = DCP_FILES_PER_RANK; files <= DCP_FILE_PER_ITEM; files++)
            for (int threads = 1; threads <= 3; threads += 2) {
                dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                            .replicas = (dcp_replicas)replicas,
                                            .files = (dcp_file_layout)files,
                                            .thread_count = threads,
                                            .skip_sync = threads == 3};
                save_as(replicated, path_in(state, "c"), &options);
                load_as(&layouts[6], path_in(state, "c"));
                save_as(hybrid, path_in(state, "c"), &options);
                load_as(&layouts[3], path_in(state, "c"));
            }
}

static void test_other_coordinator(void **state)
{
    dcp_save_options options = {.coordinator = 2};
    save_as(&layouts[3], path_in(state, "c"), &options);
    load_as(&layouts[1], path_in(state, "c"));
}

/* Ranks that hold a flat range each, as optimizers do that shard flattened parameters. */
static dcp_status flat_body(struct rank *self)
{
    dcp_tensor whole = {.dtype = DCP_I32, .ndim = 3, .global_shape = {13, 7, 2}};
    const int64_t volume = 13 * 7 * 2;
    int64_t start = volume * self->rank / self->size, end = volume * (self->rank + 1) / self->size;
    int32_t *data = calloc((size_t)(end - start), sizeof *data);
    bool saves = self->context == NULL;
    dcp_state *root = dcp_state_new();
    dcp_save_options save = {.group = self->group, .timeout_seconds = 30};
    dcp_load_options load = {.group = self->group, .timeout_seconds = 30};

    for (int64_t i = start; saves && i < end; i++)
        data[i - start] = (int32_t)(i * 10 + 1);
    dcp_state_flat_range(root, "t0", &whole, start, end - start, data);
    dcp_status status =
        saves ? dcp_save(root, self->path, &save) : dcp_load(root, self->path, &load, NULL);
    for (int64_t i = start; status == DCP_OK && i < end; i++)
        if (data[i - start] != (int32_t)(i * 10 + 1))
            status = dcp_error_set(DCP_ERR_INTERNAL, "element %d is wrong", (int)i);
    dcp_state_free(root);
    free(data);
    return status;
}

static void test_flat_ranges(void **state)
{
    ranks_must(4, path_in(state, "c"), flat_body, NULL);
    ranks_must(3, path_in(state, "c"), flat_body, state);
    save_as(&layouts[6], path_in(state, "d"), NULL);
    ranks_must(5, path_in(state, "d"), flat_body, state);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(test_all_pairs),
        directory_test(test_every_way_of_writing),
        directory_test(test_other_coordinator),
        directory_test(test_flat_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
