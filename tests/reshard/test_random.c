/* SPDX-License-Identifier: BSD-3-Clause */
/* Random states, saved in random ways and forms, and loaded by random ranks with random options:
 * every element is right. With a byte of a file changed, too, unless the load fails, on all ranks,
 * or says that it has not checked everything.
 *
 * usage: test_reshard_random [SECONDS [SEED]] */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "checkpoint/wanted_parts.h"
#include "reshard/damage.h"
#include "reshard/random_state.h"
#include "storage/scratch.h"

/* Most ranks; loads and damages of each checkpoint. */
enum { RANKS = 5, LOADS = 5, DAMAGES = 4 };

static double seconds = 10;
static uint64_t first_seed = 1;

/* What a checkpoint is loaded from. */
enum form { OURS, FILES, AS_PYTORCH, COMPRESSED, PT, SAFETENSORS, HF, FORMS };

struct trial {
    uint64_t number;
    uint64_t seed; /* of what comes next */
    struct random_state state;
    struct random_division division;
    enum form form;
    bool transposed;
    dcp_save_options saving;
    dcp_load_options loading;
    dcp_figures figures[RANKS_MAX];
    char wrong[RANKS_MAX][80]; /* what is, after a load that succeeded */
};

/* How often each outcome came. */
static struct {
    long loaded, refused, found;
} counts;

static dcp_status save_rank(struct rank *self)
{
    struct trial *trial = self->context;
    dcp_save_options options = trial->saving;
    struct random_tree tree;
    options.group = self->group;
    bool made = random_tree_make(&tree, &trial->state, &trial->division, self->rank,
                                 trial->transposed, true);
    dcp_status status = made ? dcp_save(tree.root, self->path, &options) : DCP_ERR_STATE;
    random_tree_free(&tree);
    return status;
}

static dcp_status load_rank(struct rank *self)
{
    struct trial *trial = self->context;
    dcp_load_options options = trial->loading;
    struct random_tree tree;
    options.group = self->group;
    options.figures = &trial->figures[self->rank];
    *options.figures = (dcp_figures){.size_of = sizeof *options.figures};
    trial->wrong[self->rank][0] = '\0';
    bool made = random_tree_make(&tree, &trial->state, &trial->division, self->rank,
                                 trial->transposed, false);
    dcp_status status = made ? dcp_load(tree.root, self->path, &options, NULL) : DCP_ERR_STATE;
    if (status == DCP_OK)
        random_tree_check(&tree, &trial->state, &trial->division, self->rank, trial->transposed,
                          trial->wrong[self->rank], sizeof trial->wrong[0]);
    random_tree_free(&tree);
    return status;
}

/* ---- what a trial is ---- */

/* A safetensors file is loaded by the directory that it is in. */
static void convert_to(const struct trial *trial, const char *source, const char *target)
{
    static const dcp_form forms[] = {
        [PT] = DCP_FORM_PT, [SAFETENSORS] = DCP_FORM_SAFETENSORS, [HF] = DCP_FORM_HF};
    const dcp_convert_options options = {.form = forms[trial->form],
                                         .shard_size = trial->form == HF ? 3 << 20 : 0,
                                         .skip_sync = true};
    char *file = scratch_path(target, "model.safetensors");
    if (trial->form == SAFETENSORS)
        assert_int_equal(mkdir(target, 0700), 0);
    if (dcp_convert(source, trial->form == SAFETENSORS ? file : target, &options, NULL) != DCP_OK)
        fail_msg("seed %llu, form %d: %s", (unsigned long long)trial->number, trial->form,
                 dcp_error_message());
    free(file);
}

/* Saves the state, and makes another form of it; returns which of the two paths is loaded. */
static const char *save(struct trial *trial, const char *path, const char *other)
{
    int ranks = 1 + (int)scratch_below(&trial->seed, RANKS);
    random_state_make(&trial->state, &trial->seed);
    random_divide_all(&trial->division, &trial->state, ranks, &trial->seed);
    trial->form = (enum form)scratch_below(&trial->seed, FORMS);
    trial->transposed = scratch_below(&trial->seed, 5) == 0;
    trial->saving = (dcp_save_options){
        .skip_sync = true,
        .thread_count = (int32_t)scratch_below(&trial->seed, 3),
        .replicas = (dcp_replicas)scratch_below(&trial->seed, 3),
        .files = trial->form == FILES ? DCP_FILE_PER_ITEM : 0,
        .compression = trial->form == COMPRESSED && DCP_HAVE_ZSTD ? DCP_COMPRESSION_ZSTD : 0,
    };
    ranks_must(ranks, path, save_rank, trial);
    if (trial->form == AS_PYTORCH)
        wanted_parts_as_pytorch(path);
    if (trial->form < PT)
        return path;
    convert_to(trial, path, other);
    return other;
}

static void choose_load(struct trial *trial)
{
    static const uint64_t limits[] = {0, 0, 0, (uint64_t)3 << 20, (uint64_t)64 << 20};
    static const dcp_reading readings[] = {DCP_READING_AUTO, DCP_READING_DIRECT,
                                           DCP_READING_COOPERATIVE};
    static const uint32_t ios[] = {DCP_IO_AUTO, DCP_IO_AUTO, DCP_IO_BUFFERED, DCP_IO_DIRECT};
    uint64_t *seed = &trial->seed;
    random_divide_some(&trial->division, &trial->state, 1 + (int)scratch_below(seed, RANKS), seed);
    trial->transposed = scratch_below(seed, 5) == 0;
    trial->loading = (dcp_load_options){
        .reading = readings[scratch_below(seed, 3)],
        .verification = (dcp_verification)scratch_below(seed, 3),
        .thread_count = (int32_t)scratch_below(seed, 4),
        .io = ios[scratch_below(seed, 4)],
        .memory_limit = limits[scratch_below(seed, 5)],
        .coordinator = (int32_t)scratch_below(seed, trial->division.ranks),
        .timeout_seconds = 60,
    };
}

static void want_everything(struct trial *trial)
{
    random_divide_everything(&trial->division, &trial->state);
    trial->transposed = false;
    trial->loading = (dcp_load_options){.verification = DCP_VERIFY_NONE};
}

/* ---- trials ---- */

struct outcome {
    struct rank ranks[RANKS_MAX];
    dcp_status status; /* the same on all ranks */
    bool right;        /* nothing is wrong on any rank */
    bool unchecked;    /* some byte, on some rank */
};

static void fail_trial(const struct trial *trial, const struct outcome *outcome)
{
    const dcp_load_options *how = &trial->loading;
    for (int r = 0; r < trial->division.ranks; r++)
        print_error("rank %d: %s: %s%s\n", r, dcp_status_string(outcome->ranks[r].status),
                    outcome->ranks[r].message, trial->wrong[r]);
    fail_msg("seed %llu, form %d, %d ranks, reading %d, verification %d, threads %d, io %u, "
             "limit %llu, coordinator %d",
             (unsigned long long)trial->number, trial->form, trial->division.ranks, how->reading,
             how->verification, how->thread_count, how->io, (unsigned long long)how->memory_limit,
             how->coordinator);
}

static void load(struct trial *trial, const char *path, struct outcome *outcome)
{
    if (scratch_below(&trial->seed, 2) == 0)
        damage_drop_pages(path);
    ranks_run(outcome->ranks, trial->division.ranks, path, load_rank, trial);
    outcome->status = outcome->ranks[0].status;
    outcome->right = true;
    outcome->unchecked = false;
    for (int r = 0; r < trial->division.ranks; r++) {
        outcome->right = outcome->right && trial->wrong[r][0] == '\0';
        outcome->unchecked = outcome->unchecked || trial->figures[r].bytes_unchecked != 0;
        if (outcome->ranks[r].status != outcome->status)
            fail_trial(trial, outcome);
    }
}

/* Whether a load was refused for what it was asked for, not for what is in the files. */
static bool is_refused(const struct trial *trial, const struct outcome *outcome)
{
    return (outcome->status == DCP_ERR_NO_MEMORY && trial->loading.memory_limit != 0) ||
           (outcome->status == DCP_ERR_UNSUPPORTED && trial->loading.io == DCP_IO_DIRECT);
}

static void load_undamaged(struct trial *trial, const char *path)
{
    struct outcome outcome;
    choose_load(trial);
    load(trial, path, &outcome);
    bool refused = is_refused(trial, &outcome);
    counts.refused += refused;
    counts.loaded += !refused;
    if (!refused && (outcome.status != DCP_OK || !outcome.right))
        fail_trial(trial, &outcome);
}

static bool fails_for_damage(const struct trial *trial, const struct outcome *outcome)
{
    return outcome->status != DCP_OK && !is_refused(trial, outcome);
}

/* Our own files have checksums of everything. What a load finds, a check finds, too, but for names
 * in the headers of safetensors files. */
static void load_damaged(struct trial *trial, const char *path)
{
    bool ours = trial->form < PT && trial->form != AS_PYTORCH;
    struct damage damage;
    struct outcome outcome;
    uint64_t faults;
    if (!damage_choose(path, &trial->seed, &damage))
        return;
    choose_load(trial);
    trial->loading.verification = DCP_VERIFY_ALL;
    damage_turn(path, &damage);
    load(trial, path, &outcome);
    dcp_status verified = dcp_verify(path, &(dcp_open_options){0}, NULL, NULL, &faults);
    damage_turn(path, &damage);
    bool expected = ours || (trial->form <= PT && fails_for_damage(trial, &outcome));
    if (verified != DCP_OK || (expected && faults == 0))
        fail_trial(trial, &outcome);
    counts.found += fails_for_damage(trial, &outcome);
    if (outcome.status == DCP_OK && !outcome.right && (ours || !outcome.unchecked))
        fail_trial(trial, &outcome);
}

/* What has checksums is checked when it is converted, too. */
static void convert_damaged(struct trial *trial, const char *path, const char *again)
{
    static const dcp_form forms[] = {DCP_FORM_DCP, DCP_FORM_PT, DCP_FORM_HF};
    const dcp_convert_options options = {.form = forms[scratch_below(&trial->seed, 3)],
                                         .thread_count = (int32_t)scratch_below(&trial->seed, 3),
                                         .skip_sync = true};
    struct damage damage;
    struct outcome outcome;
    if (trial->form == SAFETENSORS || trial->form == HF ||
        !damage_choose(path, &trial->seed, &damage))
        return;
    damage_turn(path, &damage);
    dcp_status status = dcp_convert(path, again, &options, NULL);
    damage_turn(path, &damage);
    counts.found += status != DCP_OK;
    if (status != DCP_OK)
        return;
    want_everything(trial);
    load(trial, again, &outcome);
    if (outcome.status != DCP_OK || !outcome.right)
        fail_trial(trial, &outcome);
}

static void what_is_loaded_is_right_or_refused(void **state)
{
    struct trial *trial = calloc(1, sizeof *trial);
    int64_t end = clock_monotonic_ns() + (int64_t)(seconds * 1e9);
    assert_non_null(trial);
    for (uint64_t number = first_seed; clock_monotonic_ns() < end; number++) {
        trial->number = trial->seed = number;
        const char *path = save(trial, path_in(state, "saved"), path_in(state, "other"));
        for (int i = 0; i < LOADS; i++)
            load_undamaged(trial, path);
        for (int i = 0; i < DAMAGES; i++)
            load_damaged(trial, path);
        convert_damaged(trial, path, path_in(state, "again"));
        assert_int_equal(directory_teardown(state), 0);
        assert_int_equal(directory_setup(state), 0);
    }
    print_message("%ld loads, %ld refused, %ld damages found\n", counts.loaded, counts.refused,
                  counts.found);
    assert_true(counts.loaded > counts.refused && counts.found > 0);
    free(trial);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        what_is_loaded_is_right_or_refused, directory_setup, directory_teardown)};
    seconds = argc > 1 ? atof(argv[1]) : seconds;
    first_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : first_seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
