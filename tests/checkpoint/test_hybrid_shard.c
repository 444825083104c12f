/* SPDX-License-Identifier: BSD-3-Clause */
/* Replicas across ranks, as HYBRID_SHARD and data parallelism make them: all ranks save, each byte
 * is written once, and replicas share the writing and the reading evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

enum { TENSORS_MOST = 8 };

/* Tensors of the same number of columns over a mesh, of which the first dimension replicates. */
struct job {
    dcp_mesh mesh;
    int tensor_count;
    int64_t rows[TENSORS_MOST];
    int64_t columns;
    bool
        by_coordinates; /* chunks are told by offsets alone, as from other frameworks' own shards */
    bool tensor_parallel; /* the mesh replicates in its second dimension instead */
    bool loads;
    dcp_reading reading;
    int32_t *values[TENSORS_MOST]; /* of the whole tensors: compared by runs, as each access by
                                      itself takes long under ThreadSanitizer */
    dcp_figures figures[RANKS_MAX];
};

static void make_values(struct job *job)
{
    for (int t = 0; t < job->tensor_count; t++) {
        int64_t count = job->rows[t] * job->columns;
        job->values[t] = malloc((size_t)count * sizeof(int32_t));
        assert_non_null(job->values[t]);
        for (int64_t i = 0; i < count; i++)
            job->values[t][i] = (int32_t)(i * 31 + t);
    }
}

static void free_values(struct job *job)
{
    for (int t = 0; t < job->tensor_count; t++)
        free(job->values[t]);
}

static void place(const struct job *job, int rank, int at, dcp_tensor *tensor)
{
    const dcp_placement hybrid[] = {dcp_replicate(), dcp_shard(0)};
    const dcp_placement parallel[] = {dcp_shard(0), dcp_replicate()};
    dcp_mesh mesh = job->mesh;
    mesh.rank = rank;
    *tensor =
        (dcp_tensor){.dtype = DCP_I32, .ndim = 2, .global_shape = {job->rows[at], job->columns}};
    if (!job->by_coordinates) {
        must(dcp_mesh_shard(&mesh, tensor, job->tensor_parallel ? parallel : hybrid));
        return;
    }
    int64_t of = mesh.shape[1], part = rank % of;
    tensor->sharded = true;
    tensor->offsets[0] = job->rows[at] * part / of;
    tensor->sizes[0] = job->rows[at] * (part + 1) / of - tensor->offsets[0];
    tensor->sizes[1] = job->columns;
}

static dcp_status run_rank(struct rank *self)
{
    struct job *job = self->context;
    int32_t *data[TENSORS_MOST];
    dcp_tensor tensors[TENSORS_MOST];
    dcp_figures *figures = &job->figures[self->rank];
    dcp_state *root = dcp_state_new();
    *figures = (dcp_figures){.size_of = sizeof *figures};
    for (int t = 0; t < job->tensor_count; t++) {
        char name[16];
        place(job, self->rank, t, &tensors[t]);
        size_t size = (size_t)(tensors[t].sizes[0] * tensors[t].sizes[1]) * sizeof **data;
        data[t] = calloc(1, size + 1);
        if (!job->loads)
            memcpy(data[t], job->values[t] + tensors[t].offsets[0] * job->columns, size);
        tensors[t].data = data[t];
        snprintf(name, sizeof name, "t%d", t);
        dcp_state_tensor(root, name, &tensors[t]);
    }
    const dcp_save_options save = {.group = self->group, .figures = figures};
    const dcp_load_options load = {
        .group = self->group, .figures = figures, .reading = job->reading};
    dcp_status status =
        job->loads ? dcp_load(root, self->path, &load, NULL) : dcp_save(root, self->path, &save);
    for (int t = 0; t < job->tensor_count; t++) {
        const int32_t *values = job->values[t] + tensors[t].offsets[0] * job->columns;
        size_t size = (size_t)(tensors[t].sizes[0] * tensors[t].sizes[1]) * sizeof **data;
        if (status == DCP_OK && memcmp(data[t], values, size) != 0)
            status = dcp_error_set(DCP_ERR_INTERNAL, "t%d: some element is wrong", t);
        free(data[t]);
    }
    dcp_state_free(root);
    return status;
}

static int ranks_of(const struct job *job)
{
    return (int)(job->mesh.shape[0] * job->mesh.shape[1]);
}

static uint64_t bytes_of(const struct job *job)
{
    uint64_t bytes = 0;
    for (int t = 0; t < job->tensor_count; t++)
        bytes += (uint64_t)(job->rows[t] * job->columns) * sizeof(int32_t);
    return bytes;
}

/* Together the ranks wrote or read what there is, once, and each about the same of it. */
static void check_even(const struct job *job, bool reading, uint64_t tolerance)
{
    int ranks = ranks_of(job);
    uint64_t total = 0, even = bytes_of(job) / (uint64_t)ranks;
    for (int r = 0; r < ranks; r++) {
        uint64_t bytes = reading ? job->figures[r].bytes_read : job->figures[r].bytes_wanted;
        total += bytes;
        if (bytes + tolerance < even || bytes > even + tolerance)
            fail_msg("rank %d of %d: %llu bytes, an even share is %llu", r, ranks,
                     (unsigned long long)bytes, (unsigned long long)even);
    }
    if (!reading)
        assert_int_equal(total, bytes_of(job));
    assert_in_range(total, bytes_of(job), bytes_of(job) + (uint64_t)ranks * (128 << 10));
}

static void save_and_load(const char *path, struct job job, uint64_t tolerance)
{
    uint64_t faults = 1;
    make_values(&job);
    ranks_must(ranks_of(&job), path, run_rank, &job);
    check_even(&job, false, tolerance);
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    job.loads = true;
    job.reading = DCP_READING_COOPERATIVE;
    ranks_must(ranks_of(&job), path, run_rank, &job);
    check_even(&job, true, tolerance + (256 << 10));
    job.reading = DCP_READING_DIRECT;
    ranks_must(ranks_of(&job), path, run_rank, &job);
    free_values(&job);
}

static const dcp_mesh meshes[] = {
    {2, {2, 2}, 0}, {2, {4, 1}, 0}, {2, {2, 4}, 0}, {2, {4, 2}, 0}, {2, {8, 1}, 0}};

#define MESHES (sizeof meshes / sizeof *meshes)

static void replicas_of_shards_share_the_work(void **state)
{
    for (size_t i = 0; i < MESHES * 3; i += TRIAL_STEP) {
        char name[32];
        struct job job = {.mesh = meshes[i / 3],
                          .tensor_count = 8,
                          .rows = {1200, 800, 801, 37, 1600, 5, 900, 1501},
                          .columns = 1021,
                          .by_coordinates = i % 3 == 1,
                          .tensor_parallel = i % 3 == 2};
        snprintf(name, sizeof name, "%zu", i);
        save_and_load(path_in(state, name), job, 512 << 10);
    }
}

/* Slices of it, as there is nothing else to be even with. */
static void a_single_huge_tensor_is_shared_evenly(void **state)
{
    for (size_t i = 0; i < MESHES; i += TRIAL_STEP) {
        char name[32];
        struct job job = {.mesh = meshes[i], .tensor_count = 1, .rows = {16000}, .columns = 1024};
        snprintf(name, sizeof name, "%zu", i);
        save_and_load(path_in(state, name), job, bytes_of(&job) / (uint64_t)ranks_of(&job) / 8);
    }
}

/* A row of which a slice is everything. */
static void a_single_row_is_shared_as_well(void **state)
{
    struct job job = {.mesh = meshes[1], .tensor_count = 1, .rows = {1}, .columns = (4 << 20) + 3};
    save_and_load(path_in(state, "c"), job, 512 << 10);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(replicas_of_shards_share_the_work),
        directory_test(a_single_huge_tensor_is_shared_evenly),
        directory_test(a_single_row_is_shared_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
