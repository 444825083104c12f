/* SPDX-License-Identifier: BSD-3-Clause */
/* One point of `growth`: saves and loads a state, and says what that took.
 *
 *   bench_growth state TENSORS CHUNKS BYTES DIR   by one rank; so many chunks of each tensor
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
#include <sys/resource.h>
#include <time.h>

#include "memory_use.h"

enum { ROWS = 4 };

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

/* When a measurement began. */
struct start {
    double user, kernel, wall;
    unsigned long long memory;
};

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static struct start read_now(void)
{
    struct rusage usage;
    struct timespec time;

    getrusage(RUSAGE_SELF, &usage);
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (struct start){.user = seconds_of(usage.ru_utime),
                          .kernel = seconds_of(usage.ru_stime),
                          .wall = (double)time.tv_sec + (double)time.tv_nsec * 1e-9};
}

static struct start start_measuring(void)
{
    unsigned long long memory = memory_restart();
    struct start start = read_now();

    start.memory = memory;
    return start;
}

/* ranks: by how many it is divided; 0: there is one, which has the time to itself. */
static void report(const char *what, const struct start *start, int ranks)
{
    unsigned long long memory = memory_peak();
    struct start now = read_now();
    int shares = ranks > 0 ? ranks : 1;

    printf("%s-user %.9g s\n", what, (now.user - start->user) / shares);
    printf("%s-kernel %.9g s\n", what, (now.kernel - start->kernel) / shares);
    if (ranks == 0)
        printf("%s-wall %.9g s\n", what, now.wall - start->wall);
    printf("%s-memory %.0f bytes\n", what, (double)(memory - start->memory) / shares);
}

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
                check(dcp_state_add_chunk(node, &tensor));
        }
    }
    check(dcp_state_status(root));
    return root;
}

static void measure_state(long tensors, long chunks, long long bytes, const char *path)
{
    long long wanted = bytes / (long long)sizeof(float) / tensors / chunks;
    long columns = wanted > 1 ? (long)wanted : 1;
    size_t size = (size_t)tensors * (size_t)chunks * (size_t)columns * sizeof(float);
    void *data;

    check(dcp_memory_allocate(size, &data));
    memset(data, 1, size);
    dcp_state *root = make_state(tensors, chunks, columns, data);
    struct start start = start_measuring();
    check(dcp_save(root, path, NULL));
    report("save", &start, 0);
    start = start_measuring();
    check(dcp_load(root, path, NULL, NULL));
    report("load", &start, 0);
    dcp_state_free(root);
    dcp_memory_free(data);
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
    float data[ROWS];
};

/* Every rank has a row of each tensor. */
static void make_rank_state(struct rank *rank)
{
    const struct scene *scene = rank->scene;
    dcp_mesh mesh = {.ndim = 1, .shape = {scene->ranks}, .rank = rank->rank};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {scene->ranks, ROWS},
                         .offsets = {rank->rank, 0},
                         .sizes = {1, ROWS},
                         .data = rank->data};
    char name[40];

    if (scene->mesh)
        check(dcp_mesh_shard(&mesh, &tensor, &rows));
    rank->root = dcp_state_new();
    for (long t = 0; t < scene->tensors; t++) {
        snprintf(name, sizeof name, "layer.%07ld", t);
        dcp_state_tensor(rank->root, name, &tensor);
    }
    check(dcp_state_status(rank->root));
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    dcp_save_options save = {.group = rank->group, .storage = rank->scene->storage};
    dcp_load_options load = {.group = rank->group, .storage = rank->scene->storage};

    check(rank->scene->loads ? dcp_load(rank->root, "growth", &load, NULL)
                             : dcp_save(rank->root, "growth", &save));
    return NULL;
}

static void run_all(struct scene *scene, struct rank *ranks, bool loads)
{
    struct start start = start_measuring();

    scene->loads = loads;
    for (int r = 0; r < scene->ranks; r++)
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0)
            errx(1, "cannot make as many threads as there are ranks");
    for (int r = 0; r < scene->ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    report(loads ? "load" : "save", &start, scene->ranks);
}

static void measure_ranks(struct scene *scene)
{
    dcp_group **groups = calloc((size_t)scene->ranks, sizeof *groups);
    struct rank *ranks = calloc((size_t)scene->ranks, sizeof *ranks);

    if (!groups || !ranks)
        err(1, "no memory");
    check(dcp_storage_memory_new(&scene->storage));
    check(dcp_group_new_threads(scene->ranks, groups));
    for (int r = 0; r < scene->ranks; r++) {
        ranks[r] = (struct rank){.scene = scene, .rank = r, .group = groups[r]};
        make_rank_state(&ranks[r]);
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
    } else if (valid && argc == 5 && strcmp(argv[1], "ranks") == 0) {
        struct scene scene = {
            .ranks = (int)numbers[0], .tensors = numbers[1], .mesh = strcmp(argv[4], "mesh") == 0};
        measure_ranks(&scene);
    } else {
        errx(2, "usage: bench_growth state TENSORS CHUNKS BYTES DIR | ranks RANKS TENSORS "
                "mesh|plans");
    }
    return 0;
}
