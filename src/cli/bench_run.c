/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "command.h"

#define PAGE ((size_t)4096)

/* Threads wait here until all of them have started, or one could not be started. */
struct start {
    pthread_mutex_t mutex;
    bool complete;
};

/* One rank, with its part of every tensor, or all of each, in memory that is kept. */
struct bench_rank {
    struct start *start;
    const struct bench_options *options;
    const char *checkpoint;
    bool loads;
    dcp_group *group;
    pthread_t thread;
    int part; /* of each tensor */
    unsigned char *memory;
    int64_t elements; /* of each tensor, on this rank */
    size_t stride;    /* bytes from tensor to tensor */
    dcp_figures figures;
    dcp_status status;
    char message[1024];
};

static bool goes_on(void *context, const dcp_progress *progress)
{
    (void)context, (void)progress;
    return !command_interrupted();
}

/* The number of different parts of a tensor. */
static int parts_of(const struct bench_options *options)
{
    return options->replicated ? 1 : options->rank_count;
}

/* Of one part of a tensor. */
static int64_t elements_of(const struct bench_options *options)
{
    uint64_t parts = (uint64_t)options->tensor_count * (uint64_t)parts_of(options);
    uint64_t elements = options->bytes / sizeof(float) / parts;
    return elements > 0 ? (int64_t)elements : 1;
}

uint64_t bench_bytes(const struct bench_options *options)
{
    return (uint64_t)elements_of(options) * sizeof(float) * (uint64_t)options->tensor_count *
           (uint64_t)parts_of(options);
}

/* Numbers like weights: small, of either sign, different in each part. */
static float element(int part, int64_t tensor, int64_t index)
{
    uint64_t mixed = ((uint64_t)index + 1) * 0x9e3779b97f4a7c15u ^
                     ((uint64_t)tensor * 257 + (uint64_t)part) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 31)) * 0x94d049bb133111ebu;
    return (float)((int32_t)(mixed >> 40) - (1 << 23)) * 0x1p-28f;
}

static float *tensor_at(const struct bench_rank *rank, int64_t tensor)
{
    return (float *)(void *)(rank->memory + (size_t)tensor * rank->stride);
}

static bool rank_prepare(struct bench_rank *rank)
{
    const struct bench_options *options = rank->options;
    rank->elements = elements_of(options);
    size_t bytes = (size_t)rank->elements * sizeof(float);
    size_t alignment = bytes >= 16 * PAGE ? PAGE : 64;
    rank->stride = (bytes + alignment - 1) / alignment * alignment;
    size_t total = rank->stride * (size_t)options->tensor_count;
    void *memory;
    if (dcp_memory_allocate(total, &memory) != DCP_OK)
        return false;
    rank->memory = memory;
    for (int64_t t = 0; t < options->tensor_count; t++)
        for (int64_t i = 0; i < rank->elements; i++)
            tensor_at(rank, t)[i] = element(rank->part, t, i);
    return true;
}

static void rank_clear(struct bench_rank *rank)
{
    memset(rank->memory, 0, rank->stride * (size_t)rank->options->tensor_count);
}

static bool rank_is_right(const struct bench_rank *rank)
{
    for (int64_t t = 0; t < rank->options->tensor_count; t++)
        for (int64_t i = 0; i < rank->elements; i++)
            if (tensor_at(rank, t)[i] != element(rank->part, t, i))
                return false;
    return true;
}

static dcp_state *rank_state(const struct bench_rank *rank)
{
    dcp_state *root = dcp_state_new();
    dcp_state *model = root ? dcp_state_dict(root, "model") : NULL;
    for (int64_t t = 0; model && t < rank->options->tensor_count; t++) {
        char name[32];
        dcp_tensor tensor = {.dtype = DCP_F32,
                             .ndim = 1,
                             .sharded = !rank->options->replicated,
                             .global_shape = {rank->elements * parts_of(rank->options)},
                             .offsets = {rank->elements * rank->part},
                             .sizes = {rank->elements},
                             .data = tensor_at(rank, t)};
        snprintf(name, sizeof name, "tensor_%06lld", (long long)t);
        dcp_state_tensor(model, name, &tensor);
    }
    return root;
}

static void rank_work(struct bench_rank *rank)
{
    dcp_save_options save = rank->options->save;
    dcp_load_options load = rank->options->load;
    dcp_state *root = rank_state(rank);

    rank->figures = (dcp_figures){.size_of = sizeof rank->figures};
    save.group = load.group = rank->group;
    save.storage = load.storage = command_storage();
    save.figures = load.figures = &rank->figures;
    save.progress = load.progress = goes_on;
    if (!root)
        rank->status = DCP_ERR_NO_MEMORY;
    else
        rank->status = rank->loads ? dcp_load(root, rank->checkpoint, &load, NULL)
                                   : dcp_save(root, rank->checkpoint, &save);
    snprintf(rank->message, sizeof rank->message, "%s", dcp_error_message());
    dcp_state_free(root);
}

static void *rank_run(void *context)
{
    struct bench_rank *rank = context;
    pthread_mutex_lock(&rank->start->mutex);
    bool complete = rank->start->complete;
    pthread_mutex_unlock(&rank->start->mutex);
    if (complete)
        rank_work(rank);
    return NULL;
}

static int fail(const char *message)
{
    fputs("dcp bench: ", stderr);
    print_plain(stderr, message);
    fputc('\n', stderr);
    return EXIT_FAULT;
}

/* One save or load by all ranks. */
static int run_ranks(struct bench_rank *ranks, int count, bool loads)
{
    dcp_group *groups[BENCH_RANKS_MAX];
    struct start start = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    int started = 0;
    if (dcp_group_new_threads(count, groups) != DCP_OK)
        return command_fail("bench");
    for (int r = 0; r < count; r++) {
        ranks[r].loads = loads;
        ranks[r].group = groups[r];
        ranks[r].start = &start;
    }
    pthread_mutex_lock(&start.mutex);
    while (started < count &&
           pthread_create(&ranks[started].thread, NULL, rank_run, &ranks[started]) == 0)
        started++;
    start.complete = started == count;
    pthread_mutex_unlock(&start.mutex);
    for (int r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < count; r++)
        dcp_group_free(groups[r]);
    if (started < count)
        return fail("cannot start a thread for each rank");
    if (ranks[0].status == DCP_OK)
        return EXIT_FINE;
    fail(command_interrupted() ? "interrupted" : ranks[0].message);
    return command_interrupted() ? EXIT_INTERRUPTED : EXIT_FAULT;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

static struct bench_figures sum_up(const struct bench_rank *ranks, int count)
{
    struct bench_figures sum = {.most = ranks[0].figures};
    dcp_figures *most = &sum.most;
    for (int r = 0; r < count; r++) {
        const dcp_figures *one = &ranks[r].figures;
        most->total_seconds = greater(most->total_seconds, one->total_seconds);
        most->planning_seconds = greater(most->planning_seconds, one->planning_seconds);
        most->staging_seconds = greater(most->staging_seconds, one->staging_seconds);
        most->writing_seconds = greater(most->writing_seconds, one->writing_seconds);
        most->reading_seconds = greater(most->reading_seconds, one->reading_seconds);
        most->syncing_seconds = greater(most->syncing_seconds, one->syncing_seconds);
        most->replica_check_seconds =
            greater(most->replica_check_seconds, one->replica_check_seconds);
        most->commit_seconds = greater(most->commit_seconds, one->commit_seconds);
        if (one->peak_memory > most->peak_memory)
            most->peak_memory = one->peak_memory;
        most->direct |= one->direct;
        most->ring |= one->ring;
        sum.bytes_moved += one->bytes_moved;
        sum.bytes_read += one->bytes_read;
        sum.files += one->files;
    }
    return sum;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

/* Whether it is a storage's, and not the file system's. */
static bool is_stored(const char *id)
{
    const dcp_storage *storage = command_storage();
    return storage && (!storage->takes || storage->takes(storage->context, id));
}

/* Of a save that failed there may be nothing. */
static bool remove_checkpoint(const char *id)
{
    const dcp_remove_options options = {.storage = command_storage()};
    dcp_status status = dcp_checkpoint_remove(id, &options, NULL);
    return status == DCP_OK || status == DCP_ERR_NOT_FOUND;
}

static bool remove_tree(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

static int run_once(struct bench_rank *ranks, const struct bench_options *options,
                    const char *checkpoint, struct bench_figures *save, struct bench_figures *load)
{
    int count = options->rank_count;
    int status = run_ranks(ranks, count, false);
    if (status != EXIT_FINE)
        return status;
    *save = sum_up(ranks, count);
    for (int r = 0; r < count; r++)
        rank_clear(&ranks[r]);
    status = run_ranks(ranks, count, true);
    if (status != EXIT_FINE)
        return status;
    *load = sum_up(ranks, count);
    for (int r = 0; r < count; r++)
        if (!rank_is_right(&ranks[r]))
            return fail("the loaded state differs from the saved one");
    bool removed = is_stored(checkpoint) ? remove_checkpoint(checkpoint) : remove_tree(checkpoint);
    return removed ? EXIT_FINE : fail("cannot remove the saved checkpoint");
}

static int run_all(struct bench_rank *ranks, const struct bench_options *options,
                   const char *checkpoint, struct bench_figures *saves, struct bench_figures *loads)
{
    int status = EXIT_FINE;
    for (int r = 0; r < options->rank_count; r++) {
        ranks[r] = (struct bench_rank){
            .options = options, .checkpoint = checkpoint, .part = options->replicated ? 0 : r};
        if (!rank_prepare(&ranks[r]))
            status = EXIT_FAULT;
    }
    if (status != EXIT_FINE)
        fail("not enough memory for the state");
    for (int i = 0; i < options->repeat && status == EXIT_FINE; i++)
        status = run_once(ranks, options, checkpoint, &saves[i], &loads[i]);
    for (int r = 0; r < options->rank_count; r++)
        dcp_memory_free(ranks[r].memory);
    return status;
}

/* In a new directory, in which nothing else is. */
static int run_in_directory(struct bench_rank *ranks, const struct bench_options *options,
                            char *name, size_t size, struct bench_figures *saves,
                            struct bench_figures *loads)
{
    snprintf(name, size, "%s/dcp-bench.XXXXXX", options->directory);
    if (!mkdtemp(name)) {
        fprintf(stderr, "dcp bench: cannot make a directory in ");
        print_plain(stderr, options->directory);
        fprintf(stderr, ": %s\n", strerror(errno));
        return EXIT_FAULT;
    }
    size_t length = strlen(name);
    snprintf(name + length, size - length, "/checkpoint");
    int status = run_all(ranks, options, name, saves, loads);
    name[length] = '\0';
    return remove_tree(name) ? status : fail("cannot remove the saved checkpoint");
}

/* Under an id that nobody else has. */
static int run_in_storage(struct bench_rank *ranks, const struct bench_options *options, char *name,
                          size_t size, struct bench_figures *saves, struct bench_figures *loads)
{
    unsigned char random[8];
    size_t length = (size_t)snprintf(name, size, "%s/dcp-bench.", options->directory);
    if (getentropy(random, sizeof random) != 0)
        return fail("there are no random numbers for a name");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(name + length + 2 * i, size - length - 2 * i, "%02x", random[i]);
    int status = run_all(ranks, options, name, saves, loads);
    return remove_checkpoint(name) ? status : fail("cannot remove the saved checkpoint");
}

int bench_run(const struct bench_options *options, struct bench_figures *saves,
              struct bench_figures *loads)
{
    size_t size = strlen(options->directory) + 64;
    char *name = malloc(size);
    struct bench_rank *ranks = calloc((size_t)options->rank_count, sizeof *ranks);
    int status = EXIT_FAULT;

    if (name && ranks) {
        command_catch_signals(true);
        status = (is_stored(options->directory) ? run_in_storage : run_in_directory)(
            ranks, options, name, size, saves, loads);
    } else {
        fail("not enough memory");
    }
    free(ranks);
    free(name);
    return status;
}
