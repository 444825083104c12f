/* SPDX-License-Identifier: BSD-3-Clause */
/* Random states, saved in random ways and forms, and loaded, converted and read from an open
 * checkpoint by random ranks with random options: every element is right. With a byte of a file
 * changed, too, unless it fails, on all ranks, or a load says that it has not checked everything.
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
#include "reshard/random_views.h"
#include "storage/scratch.h"

/* Most ranks; loads and damages of each checkpoint. */
enum { RANKS = 5, LOADS = 5, DAMAGES = 4 };

static double seconds = 10;
static uint64_t first_seed = 1;

/* What a checkpoint is loaded from. */
enum form { OURS, FILES, STAGES, COMPRESSED, AS_PYTORCH, PT, VIEWS, SAFETENSORS, HF, FORMS };

struct trial {
    uint64_t number;
    uint64_t seed; /* of what comes next */
    struct random_state state;
    struct random_division division;
    enum form form;
    bool transposed;
    bool behind; /* saved asynchronously */
    dcp_save_chain_options chain;
    dcp_save_options saving;
    dcp_load_options loading;
    dcp_checkpoint *opened; /* what ranks read from; NULL: they load */
    dcp_figures figures[RANKS_MAX];
    char wrong[RANKS_MAX][80]; /* what is, after a load that succeeded */
};

/* How often each outcome came. */
static struct {
    long loaded, refused, found;
} counts;

static struct random_tree tree_of(const struct trial *trial, int rank)
{
    return (struct random_tree){.state = &trial->state,
                                .division = &trial->division,
                                .rank = rank,
                                .transposed = trial->transposed};
}

/* Tensors change as soon as they may. */
static dcp_status save_behind(const struct trial *trial, const struct random_tree *tree,
                              const char *path, dcp_save_options options)
{
    dcp_save_chain_options how = trial->chain;
    dcp_future *future = NULL;
    how.group = options.group;
    dcp_status status = dcp_save_chain_new(&how, &options.chain);
    if (status != DCP_OK)
        return status;
    status = dcp_save_async(tree->root, path, &options, &future);
    if (status == DCP_OK)
        status = dcp_future_wait_staged(future, -1);
    if (status == DCP_OK) {
        random_tree_fill(tree, false);
        status = dcp_future_wait(future, -1);
    }
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    return status;
}

static dcp_status save_rank(struct rank *self)
{
    struct trial *trial = self->context;
    dcp_save_options options = trial->saving;
    struct random_tree tree = tree_of(trial, self->rank);
    dcp_status status = DCP_ERR_STATE;
    options.group = self->group;
    if (random_tree_make(&tree)) {
        random_tree_fill(&tree, true);
        status = trial->behind ? save_behind(trial, &tree, self->path, options)
                               : dcp_save(tree.root, self->path, &options);
    }
    random_tree_free(&tree);
    return status;
}

/* All chunks of a tree, one by one. */
static dcp_status read_chunks(const struct trial *trial, const dcp_state *root)
{
    const dcp_read_options options = {.verification = trial->loading.verification};
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_state_count(root); i++) {
        const dcp_state *node = dcp_state_at(root, i);
        const char *name;
        size_t entry, length;
        dcp_tensor chunk;
        dcp_state_as_text(dcp_state_key_at(root, i), &name, &length);
        status = dcp_checkpoint_find(trial->opened, name, &entry);
        for (size_t c = 0; status == DCP_OK && c < dcp_state_chunk_count(node); c++) {
            dcp_state_chunk(node, c, &chunk);
            status = dcp_checkpoint_read_tensor(trial->opened, entry, &chunk, &options);
        }
        if (status != DCP_OK)
            return status;
    }
    return status;
}

static dcp_status load_rank(struct rank *self)
{
    struct trial *trial = self->context;
    dcp_load_options options = trial->loading;
    struct random_tree tree = tree_of(trial, self->rank);
    dcp_status status = DCP_ERR_STATE;
    options.group = self->group;
    options.figures = &trial->figures[self->rank];
    *options.figures = (dcp_figures){.size_of = sizeof *options.figures};
    trial->wrong[self->rank][0] = '\0';
    if (random_tree_make(&tree))
        status = trial->opened ? read_chunks(trial, tree.root)
                               : dcp_load(tree.root, self->path, &options, NULL);
    if (status == DCP_OK)
        random_tree_check(&tree, trial->wrong[self->rank], sizeof trial->wrong[0]);
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

static void choose_save(struct trial *trial)
{
    static const uint64_t limits[] = {0, 0, (uint64_t)256 << 10, (uint64_t)5 << 20};
    uint64_t *seed = &trial->seed;
    trial->form = (enum form)scratch_below(seed, FORMS);
    trial->transposed = scratch_below(seed, 5) == 0;
    trial->behind = scratch_below(seed, 3) == 0;
    trial->chain = (dcp_save_chain_options){.staging = (dcp_staging_kind)scratch_below(seed, 3),
                                            .staging_limit = limits[scratch_below(seed, 4)],
                                            .staging_threads = (int32_t)scratch_below(seed, 3)};
    trial->saving = (dcp_save_options){
        .skip_sync = true,
        .thread_count = (int32_t)scratch_below(seed, 3),
        .replicas = (dcp_replicas)scratch_below(seed, 3),
        .files = trial->form == FILES ? DCP_FILE_PER_ITEM : 0,
        .compression = trial->form == COMPRESSED && DCP_HAVE_ZSTD ? DCP_COMPRESSION_ZSTD : 0,
    };
}

/* By two stages of a pipeline, each of which has every second tensor. */
static void save_stages(struct trial *trial, const char *path)
{
    const struct random_division all = trial->division;
    assert_int_equal(mkdir(path, 0700), 0);
    for (int stage = 0; stage < 2; stage++) {
        char *of_stage = scratch_path(path, stage == 0 ? "pp0" : "pp1");
        trial->division = all;
        random_division_halve(&trial->division, &trial->state, stage);
        ranks_must(all.ranks, of_stage, save_rank, trial);
        free(of_stage);
    }
}

/* Saves the state, and makes another form of it; returns which of the two paths is loaded. */
static const char *save(struct trial *trial, void *const *state)
{
    const char *path = path_in(state, "saved"), *other = path_in(state, "other");
    int ranks = 1 + (int)scratch_below(&trial->seed, RANKS);
    random_state_make(&trial->state, &trial->seed);
    random_divide_all(&trial->division, &trial->state, ranks, &trial->seed);
    choose_save(trial);
    if (trial->form == VIEWS) {
        random_views_write(&trial->state, &trial->seed, *state, "other");
        return other;
    }
    if (trial->form == STAGES) {
        save_stages(trial, path);
        return path;
    }
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

/* Ranks read all elements of an open checkpoint together, contiguous ones if these are checked
 * together. */
static void choose_reads(struct trial *trial)
{
    choose_load(trial);
    if (trial->form < AS_PYTORCH)
        random_divide_all(&trial->division, &trial->state, trial->division.ranks, &trial->seed);
    else
        random_divide_rows(&trial->division, &trial->state, trial->division.ranks, &trial->seed);
}

/* ---- trials ---- */

struct outcome {
    struct rank ranks[RANKS_MAX];
    dcp_status status; /* of the first rank that fails; of a load the same on all */
    bool right;        /* nothing is wrong on any rank that succeeded */
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
    outcome->status = DCP_OK;
    outcome->right = true;
    outcome->unchecked = false;
    for (int r = 0; r < trial->division.ranks; r++) {
        outcome->right = outcome->right && trial->wrong[r][0] == '\0';
        outcome->unchecked = outcome->unchecked || trial->figures[r].bytes_unchecked != 0;
        if (outcome->status == DCP_OK)
            outcome->status = outcome->ranks[r].status;
        if (!trial->opened && outcome->ranks[r].status != outcome->status)
            fail_trial(trial, outcome);
    }
}

/* The same, from an open checkpoint; it may be impossible to open a damaged one. */
static void read_opened(struct trial *trial, const char *path, struct outcome *outcome)
{
    *outcome = (struct outcome){.status = dcp_checkpoint_open(path, NULL, &trial->opened)};
    if (outcome->status != DCP_OK) {
        trial->opened = NULL;
        return;
    }
    load(trial, path, outcome);
    dcp_checkpoint_close(trial->opened);
    trial->opened = NULL;
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

static void read_undamaged(struct trial *trial, const char *path)
{
    struct outcome outcome;
    choose_reads(trial);
    read_opened(trial, path, &outcome);
    counts.loaded++;
    if (outcome.status != DCP_OK || !outcome.right)
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
    bool ours = trial->form < AS_PYTORCH;
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
    bool expected = ours || (trial->form < SAFETENSORS && fails_for_damage(trial, &outcome));
    if (verified != DCP_OK || (expected && faults == 0))
        fail_trial(trial, &outcome);
    counts.found += fails_for_damage(trial, &outcome);
    if (outcome.status == DCP_OK && !outcome.right && (ours || !outcome.unchecked))
        fail_trial(trial, &outcome);
}

/* All elements are read, and so everything is checked that has checksums and belongs to a tensor;
 * elements of several tensors, and of none, are not. */
static void read_damaged(struct trial *trial, const char *path)
{
    struct damage damage;
    struct outcome outcome;
    if (!damage_choose(path, &trial->seed, &damage))
        return;
    choose_reads(trial);
    trial->loading.verification = DCP_VERIFY_ALL;
    damage_turn(path, &damage);
    read_opened(trial, path, &outcome);
    damage_turn(path, &damage);
    counts.found += outcome.status != DCP_OK;
    if (outcome.status == DCP_OK && !outcome.right && trial->form < VIEWS)
        fail_trial(trial, &outcome);
}

static dcp_status convert(struct trial *trial, const char *path, const char *again)
{
    static const dcp_form forms[] = {DCP_FORM_DCP, DCP_FORM_PT, DCP_FORM_HF};
    dcp_form form = forms[scratch_below(&trial->seed, 3)];
    const dcp_convert_options options = {
        .form = form,
        .thread_count = (int32_t)scratch_below(&trial->seed, 3),
        .ranks = form == DCP_FORM_DCP ? (int32_t)scratch_below(&trial->seed, RANKS) : 0,
        .skip_sync = true};
    return dcp_convert(path, again, &options, NULL);
}

static void convert_undamaged(struct trial *trial, const char *path, const char *again)
{
    if (convert(trial, path, again) != DCP_OK)
        fail_msg("seed %llu, form %d: %s", (unsigned long long)trial->number, trial->form,
                 dcp_error_message());
    load_undamaged(trial, again);
}

/* What has checksums is checked when it is converted, too. */
static void convert_damaged(struct trial *trial, const char *path, const char *again)
{
    struct damage damage;
    struct outcome outcome;
    if (trial->form >= SAFETENSORS || !damage_choose(path, &trial->seed, &damage))
        return;
    damage_turn(path, &damage);
    dcp_status status = convert(trial, path, again);
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
        const char *path = save(trial, state);
        for (int i = 0; i < LOADS; i++)
            load_undamaged(trial, path);
        read_undamaged(trial, path);
        convert_undamaged(trial, path, path_in(state, "converted"));
        for (int i = 0; i < DAMAGES; i++)
            load_damaged(trial, path);
        read_damaged(trial, path);
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
