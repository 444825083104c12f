/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between ranks that are not what was sent, as from a rank that runs another version of
 * the library: whatever they say, no rank touches memory that is not its own, and none hangs. Each
 * message that a rank receives is damaged in turn; a save or load after it succeeds. Elements of
 * tensors are left alone.
 *
 * usage: test_checkpoint_damaged_messages [ROUNDS [SEED [statuses]]]
 * "statuses": also what ranks agree by, after which they may wait for each other in vain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "checkpoint/wanted_parts.h"
#include "group/collective.h"
#include "storage/scratch.h"

enum { RANKS = 4, ROWS = 600, STEP = 1 + TRIAL_STEP / 8 };

/* The allocators of sanitizers refuse damaged sizes, as any other does, and go on. */
#define SANITIZER_OPTIONS __attribute__((visibility("default"))) const char *
SANITIZER_OPTIONS __asan_default_options(void);
SANITIZER_OPTIONS __tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static int rounds = 1;
static uint64_t first_seed = 1;
static bool damages_statuses;

/* ---- a group whose messages are damaged ---- */

struct damager {
    dcp_group *inner;
    bool damages;  /* on this rank */
    long wanted;   /* number of the message to damage, from 1 on */
    long received; /* so far */
    uint64_t seed;
    const char *closed; /* instead: clears what follows this text in the first message with it */
};

/* Some bits, a number, or all from somewhere on. */
static void damage(struct damager *damager, unsigned char *bytes, size_t size)
{
    static const uint64_t numbers[] = {0, 1, 7, UINT32_MAX, INT64_MAX, UINT64_MAX, 1 << 20};
    uint64_t *seed = &damager->seed, number = numbers[scratch_below(seed, 7)];
    size_t place = (size_t)scratch_below(seed, (int64_t)size);
    size_t width = (size_t)1 << scratch_below(seed, 4);
    if (scratch_below(seed, 2) == 0)
        place -= place % width;
    if (width > size - place)
        width = size - place;
    switch (scratch_below(seed, 4)) {
    case 0:
        memset(bytes + place, (int)scratch_below(seed, 256), size - place);
        break;
    case 1:
        bytes[place] ^= (unsigned char)(1 + scratch_below(seed, 255));
        break;
    default:
        memcpy(bytes + place, &number, width);
    }
}

static void close_path(struct damager *damager, unsigned char *bytes, size_t size)
{
    size_t length = strlen(damager->closed);
    for (size_t i = 0; i + length < size; i++)
        if (memcmp(bytes + i, damager->closed, length) == 0) {
            bytes[i + length] = 0;
            damager->closed = NULL;
            return;
        }
}

static void receive(struct damager *damager, void *bytes, size_t size)
{
    if (damager->closed && damager->damages)
        close_path(damager, bytes, size);
    if (size != 0 && ++damager->received == damager->wanted && damager->damages)
        damage(damager, bytes, size);
}

static dcp_status all_gather(void *context, const dcp_collective *call, const void *send,
                             size_t bytes, void *received)
{
    struct damager *damager = context;
    dcp_group *inner = damager->inner;
    dcp_status status = inner->operations.all_gather(inner->context, call, send, bytes, received);
    if (status == DCP_OK && damages_statuses)
        receive(damager, received, bytes * (size_t)inner->size);
    return status;
}

static dcp_status broadcast(void *context, const dcp_collective *call, int root, void *data,
                            size_t bytes)
{
    struct damager *damager = context;
    dcp_group *inner = damager->inner;
    dcp_status status = inner->operations.broadcast(inner->context, call, root, data, bytes);
    if (status == DCP_OK && root != inner->rank)
        receive(damager, data, bytes);
    return status;
}

static dcp_status gather(void *context, const dcp_collective *call, int root, const void *send,
                         size_t bytes, void *received, const size_t *sizes)
{
    struct damager *damager = context;
    dcp_group *inner = damager->inner;
    dcp_status status =
        inner->operations.gather(inner->context, call, root, send, bytes, received, sizes);
    size_t all = 0;
    for (int r = 0; root == inner->rank && r < inner->size; r++)
        all += sizes[r];
    if (status == DCP_OK)
        receive(damager, received, all);
    return status;
}

static dcp_status scatter(void *context, const dcp_collective *call, int root, const void *send,
                          const size_t *sizes, void *received, size_t bytes)
{
    struct damager *damager = context;
    dcp_group *inner = damager->inner;
    dcp_status status =
        inner->operations.scatter(inner->context, call, root, send, sizes, received, bytes);
    if (status == DCP_OK)
        receive(damager, received, bytes);
    return status;
}

static dcp_status all_to_all(void *context, const dcp_collective *call, const void *send,
                             const size_t *send_sizes, const size_t *send_offsets, void *received,
                             const size_t *receive_sizes, const size_t *receive_offsets)
{
    struct damager *damager = context;
    dcp_group *inner = damager->inner;
    return inner->operations.all_to_all(inner->context, call, send, send_sizes, send_offsets,
                                        received, receive_sizes, receive_offsets);
}

static dcp_group *group_over(struct damager *damager)
{
    static const dcp_group_operations operations = {.size_of = sizeof operations,
                                                    .all_gather = all_gather,
                                                    .broadcast = broadcast,
                                                    .gather = gather,
                                                    .scatter = scatter,
                                                    .all_to_all = all_to_all};
    dcp_group *group;
    must(dcp_group_new(&operations, damager, damager->inner->rank, damager->inner->size, &group));
    return group;
}

/* ---- what ranks do ---- */

struct trial;
typedef dcp_status (*trial_work)(const struct trial *trial, struct wanted_parts *parts,
                                 dcp_group *group, const char *path);

struct trial {
    trial_work work;
    enum want want;
    bool filled; /* what they hold at the beginning is right */
    const char *source;
    dcp_reading reading;
    bool twice;  /* with the plan of the first time */
    bool behind; /* asynchronously */
    bool extras; /* an extra file of each rank, and a comparison of replicas */

    bool closes; /* the victim hears that the coordinator has no directory */
    int victim;
    long message;
    uint64_t seed;
    bool reached[RANKS];
};

static double timeout_seconds = 20;

static dcp_status save_behind(struct wanted_parts *parts, const char *path,
                              dcp_save_options options)
{
    const dcp_save_chain_options how = {.group = options.group, .timeout_seconds = timeout_seconds};
    dcp_future *future = NULL;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    if (status != DCP_OK)
        return status;
    status = dcp_save_async(parts->root, path, &options, &future);
    if (status == DCP_OK)
        status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    return status;
}

static dcp_status save(const struct trial *trial, struct wanted_parts *parts, dcp_group *group,
                       const char *path)
{
    char name[] = "of_rank_0";
    const dcp_extra_file extra = {sizeof extra, name, "twelve bytes", 12};
    dcp_save_plan_cache *cache = NULL;
    dcp_save_options options = {.group = group,
                                .coordinator = RANKS - 1,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true,
                                .timeout_seconds = timeout_seconds};
    name[strlen(name) - 1] = (char)('0' + dcp_group_rank(group));
    if (trial->extras) {
        options.extra_files = &extra;
        options.extra_file_count = 1;
        options.check_replicas = DCP_REPLICA_CHECK_ALL;
    }
    if (trial->behind)
        return save_behind(parts, path, options);
    if (trial->twice)
        must(dcp_save_plan_cache_new(&cache));
    options.plan_cache = cache;
    dcp_status status = dcp_save(parts->root, path, &options);
    if (trial->twice && status == DCP_OK)
        status = dcp_save(parts->root, path, &options);
    dcp_save_plan_cache_free(cache);
    return status;
}

static dcp_status load(const struct trial *trial, struct wanted_parts *parts, dcp_group *group,
                       const char *path)
{
    dcp_load_plan_cache *cache = NULL;
    dcp_load_options options = {.group = group,
                                .coordinator = RANKS - 1,
                                .reading = trial->reading,
                                .timeout_seconds = timeout_seconds};
    if (trial->twice)
        must(dcp_load_plan_cache_new(&cache));
    options.plan_cache = cache;
    dcp_status status = dcp_load(parts->root, path, &options, NULL);
    if (trial->twice && status == DCP_OK)
        status = dcp_load(parts->root, path, &options, NULL);
    dcp_load_plan_cache_free(cache);
    return status;
}

static dcp_status get(const struct trial *trial, struct wanted_parts *parts, dcp_group *group,
                      const char *path)
{
    const dcp_gather_state_options options = {
        .group = group, .timeout_seconds = timeout_seconds, .full_state_dict = true};
    dcp_state *into = dcp_state_new();
    (void)trial;
    (void)path;
    dcp_status status = dcp_gather_state(parts->root, &options, into);
    dcp_state_free(into);
    return status;
}

static dcp_status set(const struct trial *trial, struct wanted_parts *parts, dcp_group *group,
                      const char *path)
{
    const dcp_distribute_state_options options = {
        .group = group, .timeout_seconds = timeout_seconds, .broadcast_from_rank0 = true};
    bool has = dcp_group_rank(group) == 0;
    struct wanted_parts whole;
    (void)trial;
    (void)path;
    wanted_parts_init(&whole, ROWS, WANT_ALL, 0, 1, false, true);
    dcp_status status = dcp_distribute_state(parts->root, has ? whole.root : NULL, &options, NULL);
    wanted_parts_free(&whole);
    return status;
}

static dcp_status run(const struct trial *trial, struct wanted_parts *parts, dcp_group *group,
                      const char *path)
{
    const dcp_save_options saving = {.skip_sync = true, .timeout_seconds = timeout_seconds};
    const dcp_load_options loading = {.timeout_seconds = timeout_seconds};
    const dcp_run_options options = {.group = group,
                                     .state = parts->root,
                                     .every_steps = 1,
                                     .last_step = 2,
                                     .visible_seconds = 0.01,
                                     .save = &saving,
                                     .load = &loading};
    dcp_run_resumed resumed = {.step = 0};
    dcp_run *of;
    (void)trial;
    dcp_status status = dcp_run_open(path, &options, &of);
    if (status != DCP_OK)
        return status;
    status = dcp_run_resume(of, &resumed);
    for (int64_t step = 1; step <= 2 && status == DCP_OK; step++)
        status = dcp_run_step(of, step);
    dcp_status closed = dcp_run_close(of);
    return status == DCP_OK ? closed : status;
}

static dcp_status work(struct rank *self)
{
    struct trial *trial = self->context;
    struct damager damager = {.inner = self->group,
                              .damages = self->rank == trial->victim,
                              .wanted = trial->message,
                              .seed = trial->seed,
                              .closed = trial->closes ? self->path : NULL};
    dcp_group *group = group_over(&damager);
    struct wanted_parts parts;
    wanted_parts_init(&parts, ROWS, trial->want, self->rank, self->size, false, trial->filled);
    dcp_status status = trial->work(trial, &parts, group, self->path);
    trial->reached[self->rank] = damager.received >= trial->message;
    if (status == DCP_OK && trial->message == 0)
        status = wanted_parts_check(&parts);
    wanted_parts_free(&parts);
    dcp_group_free(group);
    return status;
}

/* ---- trials ---- */

/* Where there is nothing yet, or the source. Returns whether it succeeded on all ranks. */
static bool run_trial(void *const *state, struct trial *trial)
{
    struct rank ranks[RANKS_MAX];
    void *fresh;
    bool succeeded = true;
    assert_int_equal(directory_setup(&fresh), 0);
    ranks_run(ranks, RANKS, trial->source ? path_in(state, trial->source) : path_in(&fresh, "new"),
              work, trial);
    assert_int_equal(directory_teardown(&fresh), 0);
    for (int r = 0; r < RANKS; r++) {
        succeeded = succeeded && ranks[r].status == DCP_OK;
        if ((ranks[r].status == DCP_ERR_TIMEOUT && !damages_statuses) ||
            (trial->message == 0 && !succeeded))
            fail_msg("seed %llu: message %ld of rank %d: rank %d: %s",
                     (unsigned long long)trial->seed, trial->message, trial->victim, r,
                     ranks[r].message);
    }
    return succeeded;
}

/* Returns how many trials failed. */
static long damage_each_message(void *const *state, struct trial trial)
{
    long failed = 0;
    for (trial.victim = 0; trial.victim < RANKS; trial.victim++)
        for (trial.message = 1 + trial.victim % STEP, trial.reached[trial.victim] = true;
             trial.reached[trial.victim]; trial.message += STEP) {
            failed += !run_trial(state, &trial);
            scratch_random(&trial.seed);
        }
    trial.message = 0;
    run_trial(state, &trial);
    return failed;
}

static void damage_all(void *const *state, const struct trial *trials, size_t count)
{
    long failed = 0;
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < count; i++) {
            struct trial trial = trials[i];
            trial.seed = first_seed + (uint64_t)round * count + i;
            failed += damage_each_message(state, trial);
        }
    print_message("%ld trials failed\n", failed);
    assert_true(failed > 0);
}

static void saves_survive(void **state)
{
    static const struct trial trials[] = {
        {save, WANT_ALL, .filled = true},
        {save, WANT_ALL, .filled = true, .behind = true},
        {save, WANT_HYBRID, .filled = true, .extras = true},
        {save, WANT_HYBRID, .filled = true, .twice = true},
    };
    damage_all(state, trials, sizeof trials / sizeof *trials);
}

static void nothing_is_written_without_a_directory(void **state)
{
    struct trial trial = {save, WANT_HYBRID, .filled = true, .closes = true, .victim = 1};
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, RANKS, path_in(state, "new"), work, &trial);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_GROUP);
        assert_non_null(strstr(ranks[r].message, "/new has no directory to write to"));
    }
}

static void loads_survive(void **state)
{
    static const struct trial trials[] = {
        {load, WANT_MIXED, .source = "c", .reading = DCP_READING_DIRECT},
        {load, WANT_MIXED, .source = "c", .reading = DCP_READING_COOPERATIVE},
        {load, WANT_COLUMNS, .source = "c", .reading = DCP_READING_COOPERATIVE},
        {load, WANT_OVERLAPS, .source = "c", .reading = DCP_READING_COOPERATIVE, .twice = true},
        {load, WANT_HYBRID, .source = "p"},
        {load, WANT_ALL, .source = "p", .reading = DCP_READING_COOPERATIVE},
        {load, WANT_MIXED, .source = "p", .reading = DCP_READING_DIRECT, .twice = true},
    };
    const dcp_save_options options = {.skip_sync = true};
    wanted_parts_save(path_in(state, "c"), ROWS, &options);
    wanted_parts_save(path_in(state, "p"), ROWS, &options);
    wanted_parts_as_pytorch(path_in(state, "p"));
    damage_all(state, trials, sizeof trials / sizeof *trials);
}

static void states_survive(void **state)
{
    static const struct trial trials[] = {
        {get, WANT_ALL, .filled = true},
        {get, WANT_HYBRID, .filled = true},
        {set, WANT_MIXED, .filled = false},
        {set, WANT_COLUMNS, .filled = false},
    };
    damage_all(state, trials, sizeof trials / sizeof *trials);
}

static void runs_survive(void **state)
{
    static const struct trial trials[] = {
        {run, WANT_HYBRID, .filled = true},
    };
    if (damages_statuses) /* a run waits as long as waits are by default */
        skip();
    damage_all(state, trials, sizeof trials / sizeof *trials);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(saves_survive), TEST(nothing_is_written_without_a_directory), TEST(loads_survive),
        TEST(states_survive), TEST(runs_survive)};
    rounds = argc > 1 ? atoi(argv[1]) : rounds;
    first_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : first_seed;
    damages_statuses = argc > 3;
    if (damages_statuses)
        timeout_seconds = 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
