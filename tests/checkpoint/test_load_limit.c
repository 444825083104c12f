/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on a load's memory is kept; one that is too small is refused, with the smallest that
 * would do, before a destination is touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/limit_states.h"
#include "checkpoint/limit_trial.h"
#include "dcp/storage_reader.h"
#include "fault/failing_allocator.h"

/* Of what each rank's tensors share, at the beginning. */
#define LOOKED_AT ((size_t)4 << 10)
#define UNTOUCHED 0xee

struct trial {
    struct limit_trial limits;
    int kind;
    const char *fixture; /* NULL: a state of the kind */
    dcp_save_options saving;
    dcp_load_options options;
};

static void fill(struct limit_state *made)
{
    for (size_t i = 0; i < LOOKED_AT; i++)
        ((unsigned char *)made->data)[i] = (unsigned char)(i * 7 % 251);
}

static dcp_status save(struct rank *self)
{
    const struct trial *trial = self->context;
    struct limit_state state;
    dcp_save_options options = trial->saving;
    limit_state_make(&state, trial->kind, self->rank, self->size);
    fill(&state);
    options.group = self->group;
    dcp_status status = dcp_save(state.root, self->path, &options);
    limit_state_free(&state);
    return status;
}

/* A state that wants all that a checkpoint holds. */
static void want_all(struct limit_state *made, const char *path)
{
    dcp_checkpoint *checkpoint;
    made->root = dcp_state_new();
    made->data = NULL;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        for (int32_t d = 0; d < entry.ndim; d++)
            tensor.global_shape[d] = tensor.sizes[d] = entry.global_shape[d];
        if (entry.is_tensor)
            dcp_state_tensor(made->root, entry.name, &tensor);
        else
            dcp_state_int(made->root, entry.name, -77);
    }
    dcp_checkpoint_close(checkpoint);
    must(dcp_state_status(made->root));
}

static void expect_values(const struct limit_state *state, int kind)
{
    struct limit_state expected = {.data = calloc(1, LOOKED_AT)};
    fill(&expected);
    if (kind >= 2 && kind < STATE_KINDS)
        assert_memory_equal(state->data, expected.data, LOOKED_AT);
    free(expected.data);
}

static dcp_status load(struct rank *self)
{
    struct trial *trial = self->context;
    struct limit_state state;
    dcp_load_options options = trial->options;
    dcp_figures figures = {.size_of = sizeof figures};
    if (trial->fixture)
        want_all(&state, self->path);
    else
        limit_state_make(&state, trial->kind, self->rank, self->size);
    if (state.data)
        memset(state.data, UNTOUCHED, LOOKED_AT);
    options.group = self->group;
    options.figures = &figures;
    options.memory_limit = trial->limits.limit;
    dcp_status status = dcp_load(state.root, self->path, &options, NULL);
    limit_trial_judge(&trial->limits, self, status, &figures);
    for (size_t i = 0; trial->limits.too_small && state.data && i < LOOKED_AT; i++)
        assert_int_equal(((unsigned char *)state.data)[i], UNTOUCHED);
    if (!trial->limits.too_small && !trial->fixture)
        expect_values(&state, trial->kind);
    limit_state_free(&state);
    return DCP_OK;
}

/* Loads with the smallest limit, with one byte less, and with some more. */
static void look_for_smallest(const char *path, struct trial trial, int size)
{
    trial.limits = (struct limit_trial){.body = load, .context = &trial};
    /* Hooks may ask for what no plan of the library's reads. */
    if (trial.options.planner || trial.options.storage_readers)
        trial.limits.unused = (uint64_t)11 << 20;
    limit_trial_refuse(&trial.limits, size, path);
    limit_trial_accept(&trial.limits, size, path, (uint64_t)80 << 20);
}

static void save_and_look(void **state, struct trial trial, int size)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "c%d", number++);
    const char *path = path_in(state, name);
    trial.saving.skip_sync = true;
    ranks_must(size, path, save, &trial);
    look_for_smallest(path, trial, size);
}

static void test_every_state(void **state)
{
    for (int kind = 0; kind < STATE_KINDS; kind++)
        for (int size = 1; size <= 3; size++)
            save_and_look(state, (struct trial){.kind = kind}, size);
}

static void test_ways_of_reading(void **state)
{
    static const dcp_load_options ways[] = {
        {.thread_count = 4, .io = DCP_IO_POOL},
        {.thread_count = 3, .io = DCP_IO_DIRECT | DCP_IO_POOL},
        {.io = DCP_IO_BUFFERED, .coordinator = 1},
        {.verification = DCP_VERIFY_RECORDS, .thread_count = 2},
        {.verification = DCP_VERIFY_NONE, .reading = DCP_READING_DIRECT},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        save_and_look(state, (struct trial){.kind = 3, .options = ways[i]}, 2);
}

static void test_cooperative(void **state)
{
    struct trial trial = {.kind = 4, .options.reading = DCP_READING_COOPERATIVE};
    save_and_look(state, trial, 2);
    save_and_look(state, trial, 3);
}

static void test_many_files(void **state)
{
    struct trial trial = {.kind = 1, .saving.files = DCP_FILE_PER_ITEM};
    save_and_look(state, trial, 1);
}

#if DCP_HAVE_ZSTD
static void test_compressed(void **state)
{
    struct trial trial = {.kind = 3, .saving.compression = DCP_COMPRESSION_ZSTD};
    save_and_look(state, trial, 1);
    save_and_look(state, trial, 2);
    trial.options.thread_count = 4;
    trial.options.reading = DCP_READING_COOPERATIVE;
    save_and_look(state, trial, 2);
}
#endif

static bool takes_all(void *context, const char *id)
{
    (void)context, (void)id;
    return true;
}

static dcp_status keep_plan(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context, (void)loading, (void)plan;
    return DCP_OK;
}

static dcp_status read_data(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context, (void)plan;
    return dcp_load_default_read_data(loading);
}

static dcp_status load_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                             const void *bytes, size_t size)
{
    (void)context;
    return dcp_load_default_load_bytes(loading, item, bytes, size);
}

static const dcp_load_planner planners[] = {
    {.size_of = sizeof *planners},
    {.size_of = sizeof *planners, .load_bytes = load_bytes},
};
static const dcp_storage_reader hooked_readers[] = {
    {.size_of = sizeof *hooked_readers,
     .validate_checkpoint_id = takes_all,
     .prepare_local_plan = keep_plan},
    {.size_of = sizeof *hooked_readers,
     .validate_checkpoint_id = takes_all,
     .read_data = read_data},
};
static const dcp_storage_reader *const reader_lists[][1] = {{&hooked_readers[0]},
                                                            {&hooked_readers[1]}};

/* way: 0 to 7, of which each has a hook. */
static dcp_load_options hooked(int way)
{
    dcp_load_options options = {.planner = way % 3 != 0 ? &planners[way % 3 - 1] : NULL};
    if (way / 3 % 3 != 0 || !options.planner) {
        options.storage_readers = reader_lists[way / 3 % 3 == 2];
        options.storage_reader_count = 1;
    }
    return options;
}

static void test_fixtures(void **state)
{
    static const char *const names[] = {
        "basic/ckpt",
        "objects/ckpt",
        "file_per_item_w2/ckpt",
        "fsdp2_adam_w2/ckpt",
        "layouts/ckpt",
        "hf_sharded_w2/ckpt",
        "rank_local_w2/ckpt",
        "nesting/ckpt",
        "hf_consolidated_w2/ckpt",
#if DCP_HAVE_ZSTD
        "many_items/ckpt",
        "zstd/ckpt",
        "zstd_w2/ckpt",
        "zstd_extra_frame/ckpt",
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", FIXTURES, names[i]);
        look_for_smallest(path, (struct trial){.fixture = names[i]}, 1);
        look_for_smallest(path, (struct trial){.fixture = names[i]}, 2);
        look_for_smallest(path, (struct trial){.fixture = names[i], .options = hooked(7)}, 1);
    }
}

static dcp_status load_with_own_limit(struct rank *self)
{
    struct limit_state state;
    dcp_load_options options = {.group = self->group,
                                .memory_limit = self->rank == 0 ? 0 : (uint64_t)1 << 30};
    limit_state_make(&state, 0, self->rank, self->size);
    must_fail(dcp_load(state.root, self->path, &options, NULL), DCP_ERR_ARGUMENT,
              "memory_limit is 1073741824, but the coordinator's is 0");
    options.memory_limit = self->rank == 0 ? 0 : 1;
    dcp_status status = dcp_load(state.root, self->path, &options, NULL);
    assert_true(status == DCP_ERR_NO_MEMORY || status == DCP_ERR_ARGUMENT);
    limit_state_free(&state);
    return DCP_OK;
}

static void test_ranks_that_disagree(void **state)
{
    struct trial trial = {.kind = 0};
    ranks_must(2, path_in(state, "c"), save, &trial);
    ranks_must(2, path_in(state, "c"), load_with_own_limit, NULL);
}

static void test_with_hooks(void **state)
{
    save_and_look(state, (struct trial){.kind = 1, .options = hooked(1)}, 1);
    save_and_look(state, (struct trial){.kind = 3, .options = hooked(2)}, 1);
    for (int way = 1; way < 8; way += 2) {
        struct trial trial = {.kind = 3, .options = hooked(way)};
        if (DCP_HAVE_ZSTD)
            trial.saving.compression = DCP_COMPRESSION_ZSTD;
        save_and_look(state, trial, 1 + way / 2 % 2);
    }
}

/* Every allocation fails in turn, once and from then on: an error, and nothing leaks. */
static void expect_failures(const char *path, uint64_t limit, dcp_status expected)
{
    struct limit_state made;
    dcp_load_options options = {.memory_limit = limit};
    limit_state_make(&made, 3, 0, 1);
    /* So that what the tree takes for good is there. */
    must(dcp_load(made.root, path, &(dcp_load_options){0}, NULL));
    for (int from_then_on = 0; from_then_on < 2; from_then_on++) {
        long step = 1;
        for (long n = 1;; n += step) {
            dcp_load_report *report = NULL;
            failing_allocator_install(n, from_then_on != 0);
            dcp_status status = dcp_load(made.root, path, &options, &report);
            bool reached = failing_allocator_reached();
            dcp_load_report_free(report);
            failing_allocator_remove();
            assert_true(status == expected || (reached && status == DCP_ERR_NO_MEMORY));
            if (!reached)
                break;
            step = n / 60 + 1;
        }
    }
    limit_state_free(&made);
}

static void test_failing_allocations(void **state)
{
    struct trial trial = {.kind = 3};
    ranks_must(1, path_in(state, "c"), save, &trial);
    expect_failures(path_in(state, "c"), 16 << 20, DCP_OK);
    expect_failures(path_in(state, "c"), 1, DCP_ERR_NO_MEMORY);
}

/* What the tree gets: an object of 3 MiB, in a block that it grows into. */
#define LOADED ((uint64_t)8 << 20)

struct little_space {
    const struct limit_state *made;
    const char *path;
    dcp_load_options options;
};

static bool load_in_little_space(void *context)
{
    const struct little_space *little = context;
    return dcp_load(little->made->root, little->path, &little->options, NULL) == DCP_OK;
}

static void load_with_little_space(void **state, struct trial trial)
{
    struct limit_state made;
    char name[32];
    snprintf(name, sizeof name, "c%d.%d", trial.kind, (int)trial.saving.compression);
    struct little_space little = {.made = &made,
                                  .path = path_in(state, name),
                                  .options = {.memory_limit = 1, .thread_count = 4}};
    ranks_must(1, little.path, save, &trial);
    limit_state_make(&made, trial.kind, 0, 1);
    must_fail(dcp_load(made.root, little.path, &little.options, NULL), DCP_ERR_NO_MEMORY,
              "the smallest sufficient limit");
    uint64_t smallest = limit_named();
    for (uint64_t more = 0; more < 30000000; more = limit_step(more)) {
        little.options.memory_limit = smallest + more;
        limit_in_little_space(smallest + more + LOADED, load_in_little_space, &little);
    }
    limit_state_free(&made);
}

static void test_in_little_address_space(void **state)
{
    if (!limit_space_is_ours())
        skip();
    for (int kind = 0; kind < STATE_KINDS; kind++) {
        load_with_little_space(state, (struct trial){.kind = kind});
        if (DCP_HAVE_ZSTD)
            load_with_little_space(
                state, (struct trial){.kind = kind, .saving.compression = DCP_COMPRESSION_ZSTD});
    }
}

#define LIMIT_TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(test_every_state),
        LIMIT_TEST(test_ways_of_reading),
        LIMIT_TEST(test_cooperative),
        LIMIT_TEST(test_many_files),
#if DCP_HAVE_ZSTD
        LIMIT_TEST(test_compressed),
#endif
        LIMIT_TEST(test_fixtures),
        LIMIT_TEST(test_ranks_that_disagree),
        LIMIT_TEST(test_with_hooks),
        LIMIT_TEST(test_failing_allocations),
        LIMIT_TEST(test_in_little_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
