/* SPDX-License-Identifier: BSD-3-Clause */
/* One point of `growth`: saves and loads a state, and says what that took.
 *
 *   bench_growth state TENSORS CHUNKS BYTES DIR   by one rank; so many chunks of each tensor
 *   bench_growth run CHECKPOINTS DIR              a run of so many small checkpoints: listing and
 *                                                 checking all of them, and finding the latest one
 *   bench_growth ranks RANKS TENSORS mesh|plans   by ranks that are threads, into memory; each rank
 *                                                 plans alone, as tensors say their mesh, or plans
 *                                                 are gathered; figures are of a rank, on average
 *
 * One line per figure goes out: its name, seconds or bytes, and the unit. Seconds are those that
 * the process computed, as it and as the kernel for it: they grow as the work does, whoever else
 * uses the machine. "wall" is the time that went by, of which ranks that share processors tell
 * nothing. Bytes are the growth of the memory in use. */
#include <dcp.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "growth_point.h"

static dcp_state *make_state(long tensors, long chunks, long columns, float *data)
{
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = chunks > 1,
                         .global_shape = {chunks, columns},
                         .sizes = {1, columns}};
    char name[40];

    for (long t = 0; t < tensors; t++) {
        snprintf(name, sizeof name, "layer.%07ld", t);
        dcp_state *node = NULL;
        for (long c = 0; c < chunks; c++, data += columns) {
            tensor.offsets[0] = c;
            tensor.data = data;
            if (c == 0)
                node = dcp_state_tensor(model, name, &tensor);
            else
                growth_check(dcp_state_add_chunk(node, &tensor));
        }
    }
    growth_check(dcp_state_status(root));
    return root;
}

static void measure_state(long tensors, long chunks, long long bytes, const char *path)
{
    long long wanted = bytes / (long long)sizeof(float) / tensors / chunks;
    long columns = wanted > 1 ? (long)wanted : 1;
    size_t size = (size_t)tensors * (size_t)chunks * (size_t)columns * sizeof(float);
    void *data;

    growth_check(dcp_memory_allocate(size, &data));
    memset(data, 1, size);
    dcp_state *root = make_state(tensors, chunks, columns, data);
    struct growth_point start = growth_start();
    growth_check(dcp_save(root, path, NULL));
    struct growth_point taken = growth_since(&start);
    growth_report("save", &taken, 0);
    start = growth_start();
    growth_check(dcp_load(root, path, NULL, NULL));
    taken = growth_since(&start);
    growth_report("load", &taken, 0);
    dcp_state_free(root);
    dcp_memory_free(data);
}

static void measure_list(const char *path, const char *what, bool latest_only, long checkpoints)
{
    const dcp_run_list_options options = {.latest_only = latest_only};
    dcp_run_list *list;

    struct growth_point start = growth_start();
    growth_check(dcp_run_list_read(path, &options, &list));
    struct growth_point taken = growth_since(&start);
    if (dcp_run_list_count(list) != (size_t)checkpoints)
        errx(1, "%zu of %ld checkpoints were found", dcp_run_list_count(list), checkpoints);
    growth_report(what, &taken, 0);
    dcp_run_list_free(list);
}

static void measure_run(long checkpoints, const char *path)
{
    const dcp_save_options options = {.skip_sync = true};
    char place[4200];
    float data[GROWTH_COLUMNS] = {0};

    dcp_state *root = make_state(1, 1, GROWTH_COLUMNS, data);
    for (long step = 1; step <= checkpoints; step++) {
        snprintf(place, sizeof place, "%s/step-%ld", path, step);
        growth_check(dcp_save(root, place, &options));
    }
    dcp_state_free(root);
    measure_list(path, "list", false, checkpoints);
    measure_list(path, "latest", true, checkpoints);
}

struct scene {
    int ranks;
    long tensors;
    bool mesh;
    bool loads;
    dcp_storage *storage;
};

struct rank {
    const struct scene *scene;
    int rank;
    dcp_group *group;
    pthread_t thread;
    dcp_state *root;
    float data[GROWTH_COLUMNS];
};

static void *run_rank(void *context)
{
    struct rank *rank = context;
    dcp_save_options save = {.group = rank->group, .storage = rank->scene->storage};
    dcp_load_options load = {.group = rank->group, .storage = rank->scene->storage};

    growth_check(rank->scene->loads ? dcp_load(rank->root, "growth", &load, NULL)
                                    : dcp_save(rank->root, "growth", &save));
    return NULL;
}

static void run_all(struct scene *scene, struct rank *ranks, bool loads)
{
    struct growth_point start = growth_start();

    scene->loads = loads;
    for (int r = 0; r < scene->ranks; r++)
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0)
            errx(1, "cannot make as many threads as there are ranks");
    for (int r = 0; r < scene->ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    struct growth_point taken = growth_since(&start);
    growth_report(loads ? "load" : "save", &taken, scene->ranks);
}

static void measure_ranks(struct scene *scene)
{
    dcp_group **groups = calloc((size_t)scene->ranks, sizeof *groups);
    struct rank *ranks = calloc((size_t)scene->ranks, sizeof *ranks);

    if (!groups || !ranks)
        err(1, "no memory");
    growth_check(dcp_storage_memory_new(&scene->storage));
    growth_check(dcp_group_new_threads(scene->ranks, groups));
    for (int r = 0; r < scene->ranks; r++) {
        ranks[r] = (struct rank){.scene = scene, .rank = r, .group = groups[r]};
        ranks[r].root =
            growth_rank_state(scene->ranks, r, scene->tensors, scene->mesh, ranks[r].data);
    }
    run_all(scene, ranks, false);
    run_all(scene, ranks, true);
    for (int r = 0; r < scene->ranks; r++) {
        dcp_state_free(ranks[r].root);
        dcp_group_free(groups[r]);
    }
    dcp_storage_memory_free(scene->storage);
    free(ranks);
    free(groups);
}

int main(int argc, char **argv)
{
    long numbers[3] = {0};

    for (int i = 2; i < argc && i < 5; i++)
        numbers[i - 2] = strtol(argv[i], NULL, 10);
    bool valid = argc > 3 && numbers[0] > 0 && numbers[1] > 0;
    if (valid && argc == 6 && numbers[2] > 0 && strcmp(argv[1], "state") == 0) {
        measure_state(numbers[0], numbers[1], numbers[2], argv[5]);
    } else if (argc == 4 && numbers[0] > 0 && strcmp(argv[1], "run") == 0) {
        measure_run(numbers[0], argv[3]);
    } else if (valid && argc == 5 && strcmp(argv[1], "ranks") == 0) {
        struct scene scene = {
            .ranks = (int)numbers[0], .tensors = numbers[1], .mesh = strcmp(argv[4], "mesh") == 0};
        measure_ranks(&scene);
    } else {
        errx(2, "usage: bench_growth state TENSORS CHUNKS BYTES DIR | run CHECKPOINTS DIR | "
                "ranks RANKS TENSORS mesh|plans");
    }
    return 0;
}
