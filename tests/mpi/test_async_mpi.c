/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves of real MPI ranks: test_async_mpi multiple|funneled|single|late
 *
 * With MPI_THREAD_MULTIPLE commits run beside the caller's own collectives; with less, when all
 * ranks wait or poll. MPI_Finalize() waits for what is under way, but not for ever (late). */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dcp.h"
#include "dcp/mpi.h"
#include "fault/over_files.h"
#include "mpi/check.h"

enum { ELEMENTS = 200000, WAIT = 60 };

int world_rank, world_size;

static char directory[256];
static bool background;

/* ---- a vector that ranks share, at some step of its training ---- */

struct vector {
    dcp_group *group;
    dcp_tensor tensor;
    int32_t *data;
};

static void vector_set(const struct vector *vector, int32_t step)
{
    for (int64_t i = 0; i < vector->tensor.sizes[0]; i++)
        vector->data[i] = (int32_t)(vector->tensor.offsets[0] + i) * 3 + step * 1000003;
}

static void vector_init(struct vector *vector, dcp_group *group)
{
    dcp_mesh mesh = {1, {world_size}, world_rank};
    dcp_placement placement = dcp_shard(0);
    *vector = (struct vector){
        .group = group,
        .tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}},
    };
    CHECK_STATUS(dcp_mesh_shard(&mesh, &vector->tensor, &placement), DCP_OK);
    vector->data = calloc((size_t)vector->tensor.sizes[0] + 1, sizeof *vector->data);
    vector->tensor.data = vector->data;
}

static dcp_status vector_begin(struct vector *vector, const struct file_ops *ops, const char *path,
                               const dcp_save_options *options, int32_t step, dcp_future **future)
{
    dcp_state *root = dcp_state_new();
    vector_set(vector, step);
    dcp_state_tensor(root, "v", &vector->tensor);
    dcp_status status = save_async_over(ops, root, path, options, future);
    dcp_state_free(root);
    if (status == DCP_OK)
        CHECK_STATUS(dcp_future_wait_staged(*future, WAIT), DCP_OK);
    vector_set(vector, -1);
    return status;
}

/* Each rank for itself, as groups may be broken. */
static void vector_check(const char *path, int32_t step)
{
    int32_t *data = calloc(ELEMENTS, sizeof *data);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}, .data = data};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "v", &tensor);
    CHECK_STATUS(dcp_load(root, path, NULL, NULL), DCP_OK);
    for (int32_t i = 0; i < ELEMENTS; i++)
        CHECK(data[i] == i * 3 + step * 1000003);
    dcp_state_free(root);
    free(data);
}

static bool is_there(const char *path)
{
    char name[600];
    snprintf(name, sizeof name, "%s/.metadata", path);
    return access(name, F_OK) == 0;
}

static const char *path_of(const char *name, int number)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s-%d", directory, name, number);
    return path;
}

static dcp_group *new_group(void)
{
    dcp_group *group;
    CHECK_STATUS(dcp_group_new_mpi(MPI_COMM_WORLD, &group), DCP_OK);
    return group;
}

static dcp_save_chain *new_chain(dcp_save_chain_options options)
{
    dcp_save_chain *chain;
    CHECK_STATUS(dcp_save_chain_new(&options, &chain), DCP_OK);
    CHECK(dcp_save_chain_in_background(chain) == background);
    return chain;
}

static void doze(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* ---- a disk that is slow to take its first bytes ---- */

static double slowness;

/* It is written before the data is copied. */
static bool is_mark(const void *bytes, size_t size)
{
    return size > 8 && memcmp(bytes, "dcp save", 8) == 0;
}

static int write_slowly(void *context, int descriptor, const void *bytes, size_t size,
                        uint64_t offset, size_t *done)
{
    if (!is_mark(bytes, size)) {
        doze(slowness);
        slowness = 0;
    }
    return file_ops_system.pwrite(context, descriptor, bytes, size, offset, done);
}

/* The last rank's. */
static struct file_ops slow_ops(double seconds)
{
    struct file_ops ops = file_ops_system;
    slowness = seconds;
    if (world_rank == world_size - 1)
        ops.pwrite = write_slowly;
    return ops;
}

/* ---- */

/* The caller's collectives and ours go on at the same time, over the same ranks. */
static void saves_and_collectives_go_on_together(void)
{
    struct vector vector;
    dcp_group *group = new_group();
    dcp_save_options options = {.chain = new_chain((dcp_save_chain_options){
                                    .group = group, .staging = DCP_STAGING_OVERLAPPED})};
    vector_init(&vector, group);
    for (int32_t step = 1; step <= 4; step++) {
        dcp_future *future;
        const char *path = path_of("together", step);
        int over = 0;
        CHECK_STATUS(vector_begin(&vector, &file_ops_system, path, &options, step, &future),
                     DCP_OK);
        for (int round = 1; !over; round++) {
            int sum = 0;
            dcp_future_state state = dcp_future_poll(future);
            CHECK(state != DCP_FUTURE_FAILED);
            over = state == DCP_FUTURE_DONE;
            MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            CHECK(sum == round * world_size);
            MPI_Allreduce(MPI_IN_PLACE, &over, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        }
        CHECK_STATUS(dcp_future_wait(future, 0), DCP_OK);
        vector_check(path, step);
        dcp_future_free(future);
    }
    dcp_save_chain_free(options.chain);
    dcp_group_free(group);
    free(vector.data);
}

/* Nobody waits for any but the last. */
static void saves_back_to_back(void)
{
    enum { STEPS = 10 };
    struct vector vector;
    dcp_group *group = new_group();
    dcp_save_options options = {.chain = new_chain((dcp_save_chain_options){.group = group})};
    dcp_future *futures[STEPS];
    vector_init(&vector, group);
    for (int32_t step = 0; step < STEPS; step++)
        CHECK_STATUS(vector_begin(&vector, &file_ops_system, path_of("row", step), &options, step,
                                  &futures[step]),
                     DCP_OK);
    CHECK_STATUS(dcp_future_wait(futures[STEPS - 1], WAIT), DCP_OK);
    for (int32_t step = 0; step < STEPS; step++) {
        CHECK(dcp_future_poll(futures[step]) == DCP_FUTURE_DONE);
        vector_check(path_of("row", step), step);
        dcp_future_free(futures[step]);
    }
    dcp_save_chain_free(options.chain);
    dcp_group_free(group);
    free(vector.data);
}

/* But for the directory's mark. */
static int refuse_to_write(void *context, int descriptor, const void *bytes, size_t size,
                           uint64_t offset, size_t *done)
{
    if (is_mark(bytes, size))
        return file_ops_system.pwrite(context, descriptor, bytes, size, offset, done);
    return ENOSPC;
}

/* It is everyone's failure, names the rank, and the chain goes on. */
static void a_rank_that_cannot_write(void)
{
    struct vector vector;
    struct file_ops full = file_ops_system;
    dcp_group *group = new_group();
    dcp_save_options options = {.chain = new_chain((dcp_save_chain_options){.group = group})};
    full.pwrite = refuse_to_write;
    vector_init(&vector, group);
    for (int odd = 0; odd < world_size; odd++) {
        dcp_future *future;
        const char *path = path_of("full", odd);
        const struct file_ops *ops = world_rank == odd ? &full : &file_ops_system;
        CHECK_STATUS(vector_begin(&vector, ops, path, &options, 1, &future), DCP_OK);
        CHECK_STATUS(dcp_future_wait(future, WAIT), DCP_ERR_NO_SPACE);
        CHECK(dcp_future_poll(future) == DCP_FUTURE_FAILED);
        CHECK(strstr(dcp_future_message(future), "No space left") != NULL);
        dcp_future_free(future);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(!is_there(path));
    }
    dcp_future *future;
    CHECK_STATUS(vector_begin(&vector, &file_ops_system, path_of("full", 99), &options, 9, &future),
                 DCP_OK);
    CHECK_STATUS(dcp_future_wait(future, WAIT), DCP_OK);
    vector_check(path_of("full", 99), 9);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    dcp_group_free(group);
    free(vector.data);
}

/* In the background nobody misses it; else the others' waits end in time, and name it. */
static void a_rank_that_never_waits(void)
{
    for (int absent = 0; absent < world_size; absent++) {
        struct vector vector;
        char name[40];
        dcp_future *future;
        dcp_group *group = new_group();
        const char *path = path_of("absent", absent);
        dcp_save_options options = {
            .timeout_seconds = 0.5,
            .chain = new_chain((dcp_save_chain_options){.group = group, .exit_seconds = 0.5})};
        vector_init(&vector, group);
        CHECK_STATUS(vector_begin(&vector, &file_ops_system, path, &options, 3, &future), DCP_OK);
        double start = MPI_Wtime();
        if (world_rank != absent && background)
            CHECK_STATUS(dcp_future_wait(future, WAIT), DCP_OK);
        if (world_rank != absent && !background) {
            CHECK_STATUS(dcp_future_wait(future, WAIT), DCP_ERR_TIMEOUT);
            CHECK(dcp_future_poll(future) == DCP_FUTURE_FAILED);
            snprintf(name, sizeof name, "rank %d did not make this call", absent);
            CHECK(world_size == 1 || strstr(dcp_error_message(), name) != NULL);
            CHECK(MPI_Wtime() - start < 5);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
        CHECK(is_there(path) == (background || world_size == 1));
        MPI_Barrier(MPI_COMM_WORLD);
        dcp_group_free(group);
        free(vector.data);
    }
}

/* A wait ends when it says, and can be repeated. */
static void a_rank_that_is_slow(void)
{
    struct vector vector;
    struct file_ops ops = slow_ops(0.6);
    dcp_future *future;
    dcp_group *group = new_group();
    dcp_save_options options = {.chain = new_chain((dcp_save_chain_options){.group = group})};
    vector_init(&vector, group);
    CHECK_STATUS(vector_begin(&vector, &ops, path_of("slow", 0), &options, 4, &future), DCP_OK);
    CHECK_STATUS(dcp_future_wait(future, 0.1), DCP_ERR_TIMEOUT);
    CHECK(dcp_future_poll(future) < DCP_FUTURE_DONE);
    CHECK_STATUS(dcp_future_wait(future, WAIT), DCP_OK);
    vector_check(path_of("slow", 0), 4);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    dcp_group_free(group);
    free(vector.data);
}

/* Whoever could commit has given up: what was written stays without a commit. In the background it
 * goes on by itself. */
static void a_save_that_nobody_waits_for(void)
{
    struct vector vector;
    struct file_ops ops = slow_ops(0.6);
    dcp_future *future;
    dcp_group *group = new_group();
    const char *path = path_of("forgotten", 0);
    dcp_save_options options = {
        .chain = new_chain((dcp_save_chain_options){.group = group, .exit_seconds = 0.1})};
    vector_init(&vector, group);
    CHECK_STATUS(vector_begin(&vector, &ops, path, &options, 5, &future), DCP_OK);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    doze(1);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(is_there(path) == background);
    MPI_Barrier(MPI_COMM_WORLD);
    dcp_finish_saves();
    dcp_group_free(group);
    free(vector.data);
}

/* What MPI_Finalize() finds under way. */
static struct pending {
    struct vector vector;
    struct file_ops ops;
    dcp_future *future;
    char path[512];
} pending;

static void leave_pending(double seconds, double exit_seconds)
{
    dcp_group *group = new_group();
    dcp_save_options options = {
        .chain = new_chain((dcp_save_chain_options){.group = group, .exit_seconds = exit_seconds})};
    pending.ops = slow_ops(seconds);
    snprintf(pending.path, sizeof pending.path, "%s", path_of("pending", 0));
    vector_init(&pending.vector, group);
    CHECK_STATUS(
        vector_begin(&pending.vector, &pending.ops, pending.path, &options, 6, &pending.future),
        DCP_OK);
}

/* MPI is over: what fails here cannot tell the others. */
static bool ended_in_time(void)
{
    dcp_status status = dcp_future_wait(pending.future, 0);
    return status == DCP_OK && (world_rank != 0 || is_there(pending.path));
}

/* A single rank needs nobody. */
static bool ended_late(void)
{
    bool was_there = is_there(pending.path);
    dcp_status status = dcp_future_wait(pending.future, WAIT);
    return !was_there && (world_size == 1 ? status == DCP_OK : status == DCP_ERR_STATE);
}

static void run_tests(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"saves_and_collectives_go_on_together", saves_and_collectives_go_on_together},
        {"saves_back_to_back", saves_back_to_back},
        {"a_rank_that_cannot_write", a_rank_that_cannot_write},
        {"a_rank_that_is_slow", a_rank_that_is_slow},
        {"a_rank_that_never_waits", a_rank_that_never_waits},
        {"a_save_that_nobody_waits_for", a_save_that_nobody_waits_for},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        double before = MPI_Wtime();
        tests[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank == 0)
            printf("ok %s (%.2f s)\n", tests[i].name, MPI_Wtime() - before);
    }
}

static void start(int *count, char ***arguments, int wanted)
{
    int level;
    MPI_Init_thread(count, arguments, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    background = level == MPI_THREAD_MULTIPLE;
    CHECK(background == (wanted == MPI_THREAD_MULTIPLE));
    if (world_rank == 0) {
        const char *base = getenv("TMPDIR");
        snprintf(directory, sizeof directory, "%s/dcp-mpi-XXXXXX", base ? base : "/tmp");
        CHECK(mkdtemp(directory) != NULL);
    }
    MPI_Bcast(directory, sizeof directory, MPI_CHAR, 0, MPI_COMM_WORLD);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "multiple";
    bool late = strcmp(name, "late") == 0;
    int wanted = strcmp(name, "single") == 0     ? MPI_THREAD_SINGLE
                 : strcmp(name, "funneled") == 0 ? MPI_THREAD_FUNNELED
                                                 : MPI_THREAD_MULTIPLE;
    start(&count, &arguments, wanted);
    if (!late)
        run_tests();
    leave_pending(late ? 2 : 0.5, late ? 0.3 : 30);
    MPI_Finalize();
    bool good = late ? ended_late() : ended_in_time();
    if (!good)
        fprintf(stderr, "rank %d: the pending save had another end than wanted: %s\n", world_rank,
                dcp_future_message(pending.future));
    dcp_future_free(pending.future);
    free(pending.vector.data);
    if (world_rank == (late ? world_size - 1 : 0)) { /* who is the last to need it */
        char command[300];
        snprintf(command, sizeof command, "rm -rf '%s'", directory);
        good = system(command) == 0 && good;
    }
    return good ? 0 : 1;
}
