/* SPDX-License-Identifier: BSD-3-Clause */
/* What is saved under one parallelism loads under every other. Each element's value is a formula of
 * its name and place in the whole tensor, so that a wrong element is always seen; memory is filled
 * with something else before, and padding must keep that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "reshard/topology.h"

static const struct topology topologies[] = {
    {.name = "one rank"},
    {.name = "DDP 3", .replicate = 3},
    {.name = "FSDP 4", .shard = 4},
    {.name = "FSDP 3", .shard = 3},
    {.name = "FSDP 8", .shard = 8},
    {.name = "HSDP 2x2", .replicate = 2, .shard = 2},
    {.name = "TP 4", .tensor = 4},
    {.name = "FSDP 2 x TP 2", .shard = 2, .tensor = 2},
    {.name = "HSDP 2x2 x TP 2", .replicate = 2, .shard = 2, .tensor = 2},
    {.name = "CP 2 x FSDP 2", .context = 2, .shard = 2},
    {.name = "EP 2 x FSDP 3", .shard = 6, .expert = 2},
    {.name = "EP 3", .shard = 3, .expert = 3},
    {.name = "EP 4 of TP 2 x FSDP 2", .shard = 2, .tensor = 2, .expert = 4},
    {.name = "PP 2", .pipeline = 2},
    {.name = "PP 3 x FSDP 2", .pipeline = 3, .shard = 2},
    {.name = "PP 2 interleaved 2 x TP 2", .pipeline = 2, .virtual_stages = 2, .tensor = 2},
    {.name = "PP 5", .pipeline = 5},
    {.name = "PP 2 x CP 2 x EP 2", .pipeline = 2, .context = 2, .expert = 2},
    {.name = "PP 2 x FSDP 2 x TP 2, EP 2", .pipeline = 2, .shard = 2, .tensor = 2, .expert = 2},
};

enum { TOPOLOGIES = sizeof topologies / sizeof *topologies, UNTOUCHED = -77 };

struct job {
    const struct topology *topology;
    int first_rank; /* what rank 0 of the group is */
    dcp_save_options save;
    dcp_load_options load;
};

static uint32_t hash(const char *name)
{
    uint32_t value = 2166136261U;
    for (const char *c = name; *c; c++)
        value = (value ^ (unsigned char)*c) * 16777619U;
    return value;
}

static int64_t volume(const dcp_tensor *tensor, int64_t rows)
{
    int64_t elements = 1;
    const int64_t *sizes = tensor->sharded ? tensor->sizes : tensor->global_shape;
    for (int32_t d = 0; d < tensor->ndim; d++)
        elements *= d == 0 && rows >= 0 ? rows : sizes[d];
    return elements;
}

/* Of element index of the chunk. */
static int32_t formula(const struct placed *placed, int64_t index)
{
    const dcp_tensor *tensor = &placed->tensor;
    int64_t place[DCP_MAX_DIMS], position = 0;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        place[d] = tensor->offsets[d] + index % tensor->sizes[d];
        index /= tensor->sizes[d];
    }
    for (int32_t d = 0; d < tensor->ndim; d++)
        position = position * tensor->global_shape[d] + place[d];
    return (int32_t)((hash(placed->name) + (uint32_t)position * 2654435761U) & 0x7fffffffU);
}

static dcp_status build(dcp_state *root, struct holdings *holdings, bool filled)
{
    for (int i = 0; i < holdings->count; i++) {
        struct placed *placed = &holdings->items[i];
        int64_t elements = volume(&placed->tensor, placed->rows);
        int32_t *data = malloc((size_t)(elements + 1) * sizeof *data);
        for (int64_t e = 0; e <= elements; e++)
            data[e] = UNTOUCHED;
        for (int64_t e = 0; filled && e < volume(&placed->tensor, -1); e++)
            data[e] = formula(placed, e);
        placed->tensor.data = data;
        dcp_state_tensor(root, placed->name, &placed->tensor);
    }
    dcp_state_float(root, "lr", filled ? 0.125 : 0);
    return dcp_state_status(root);
}

static dcp_status check(const dcp_state *root, const struct holdings *holdings)
{
    double rate = 0;
    for (int i = 0; i < holdings->count; i++) {
        const struct placed *placed = &holdings->items[i];
        const int32_t *data = placed->tensor.data;
        int64_t elements = volume(&placed->tensor, -1);
        for (int64_t e = 0; e <= volume(&placed->tensor, placed->rows); e++) {
            int32_t expected = e < elements ? formula(placed, e) : UNTOUCHED;
            if (data[e] != expected)
                return dcp_error_set(DCP_ERR_INTERNAL, "%s: element %d is %d, expected %d",
                                     placed->name, (int)e, data[e], expected);
        }
    }
    dcp_status status = dcp_state_as_float(dcp_state_find(root, "lr"), &rate);
    return status == DCP_OK && rate != 0.125 ? dcp_error_set(DCP_ERR_INTERNAL, "lr is wrong")
                                             : status;
}

static dcp_status run_body(struct rank *self, bool saves)
{
    const struct job *job = self->context;
    dcp_save_options save = job->save;
    dcp_load_options load = job->load;
    struct holdings *holdings = malloc(sizeof *holdings);
    dcp_state *root = dcp_state_new();
    save.group = load.group = self->group;
    save.timeout_seconds = load.timeout_seconds = 60;
    topology_place(job->topology, job->first_rank + self->rank, holdings);
    dcp_status status = build(root, holdings, saves);
    if (status == DCP_OK)
        status =
            saves ? dcp_save(root, self->path, &save) : dcp_load(root, self->path, &load, NULL);
    if (status == DCP_OK)
        status = check(root, holdings);
    dcp_state_free(root);
    for (int i = 0; i < holdings->count; i++)
        free(holdings->items[i].tensor.data);
    free(holdings);
    return status;
}

static dcp_status save_body(struct rank *self)
{
    return run_body(self, true);
}

static dcp_status load_body(struct rank *self)
{
    return run_body(self, false);
}

static void run_all(const struct topology *topology, const char *path, rank_body body,
                    const struct job *given)
{
    struct rank ranks[RANKS_MAX];
    struct job job = given ? *given : (struct job){0};
    job.topology = topology;
    ranks_run(ranks, topology_size(topology), path, body, &job);
    for (int r = 0; r < topology_size(topology); r++)
        if (ranks[r].status != DCP_OK)
            fail_msg("%s, rank %d, %s: %s", topology->name, r, path, ranks[r].message);
}

/* Each stage by its own ranks, into pp0, pp1 and so on. */
static void save_stages(const struct topology *topology, const char *path)
{
    for (int stage = 0; stage < topology_stages(topology); stage++) {
        char directory[1100];
        struct job job = {.topology = topology,
                          .first_rank = stage * topology_stage_size(topology)};
        snprintf(directory, sizeof directory, "%s/pp%d", path, stage);
        ranks_must(topology_stage_size(topology), directory, save_body, &job);
    }
}

/* Each rank reading by itself, and ranks reading for each other. */
/* The argument of the program: loads as each so many-th topology alone, another one first each
 * time.
 */
static int stride = 1;

static void load_as_all(const char *path, int from)
{
    static const struct job jobs[] = {{.load = {.reading = DCP_READING_DIRECT}},
                                      {.load = {.reading = DCP_READING_COOPERATIVE}}};
    uint64_t faults = 1;
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    for (int to = from % stride; to < TOPOLOGIES; to += stride)
        for (size_t way = 0; way < sizeof jobs / sizeof *jobs; way++)
            run_all(&topologies[to], path, load_body, &jobs[way]);
}

static void test_every_topology_loads_as_every_other(void **state)
{
    for (int from = 0; from < TOPOLOGIES; from++) {
        const char *path = path_in(state, topologies[from].name);
        run_all(&topologies[from], path, save_body, NULL);
        load_as_all(path, from);
    }
}

static void test_stages_as_directories_load_as_every_topology(void **state)
{
    for (int from = 0; from < TOPOLOGIES; from++) {
        if (topology_stages(&topologies[from]) == 1)
            continue;
        const char *path = path_in(state, topologies[from].name);
        save_stages(&topologies[from], path);
        load_as_all(path, from);
    }
}

static void test_every_way_of_writing(void **state)
{
    static const int some[] = {1, 5, 8, 18};
    for (int replicas = DCP_REPLICAS_SLICE; replicas <= DCP_REPLICAS_LOWEST; replicas++)
        for (int files = DCP_FILES_PER_RANK; files <= DCP_FILE_PER_ITEM; files++)
            for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
                struct job job = {.save = {.replicas = (dcp_replicas)replicas,
                                           .files = (dcp_file_layout)files,
                                           .overwrite = DCP_OVERWRITE_REPLACE,
                                           .thread_count = 2}};
                const char *path = path_in(state, "c");
                run_all(&topologies[some[i]], path, save_body, &job);
                for (size_t to = 0; to < sizeof some / sizeof *some; to++)
                    run_all(&topologies[some[to]], path, load_body, &job);
            }
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(int count, char **arguments)
{
    stride = count > 1 ? atoi(arguments[1]) : 1;
    assert_true(stride > 0);
    const struct CMUnitTest tests[] = {
        directory_test(test_every_topology_loads_as_every_other),
        directory_test(test_stages_as_directories_load_as_every_topology),
        directory_test(test_every_way_of_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
