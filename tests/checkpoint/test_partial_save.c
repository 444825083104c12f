/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of less than all: partial ones, and those of ranks that do not talk to each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

enum { ROWS = 12, COLUMNS = 3, LOG_SIZE = 4096 };

static char logged[LOG_SIZE];

static void keep_line(void *context, dcp_log_level level, const char *line)
{
    (void)context;
    (void)level;
    size_t length = strlen(logged);
    snprintf(logged + length, sizeof logged - length, "%s\n", line);
}

static void keep_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    (void)context;
    (void)file;
    (void)offset;
    size_t length = strlen(logged);
    snprintf(logged + length, sizeof logged - length, "%s: %s\n", name, fault);
}

/* What one rank of several holds: rows of "w", divided in order, and two replicas. */
struct part {
    int rank, ranks;
    float first;
    float rows[ROWS * COLUMNS], same[2];
    dcp_state *root;
};

static void part_init(struct part *part, int rank, int ranks, float first)
{
    int64_t count = ROWS / ranks;
    *part = (struct part){.rank = rank, .ranks = ranks, .first = first, .same = {first, 7}};
    for (int i = 0; i < count * COLUMNS; i++)
        part->rows[i] = first + (float)(rank * count * COLUMNS + i);
    part->root = dcp_state_new();
    const dcp_tensor rows = {.dtype = DCP_F32,
                             .ndim = 2,
                             .sharded = true,
                             .data = part->rows,
                             .global_shape = {ROWS, COLUMNS},
                             .offsets = {rank * count, 0},
                             .sizes = {count, COLUMNS}};
    const dcp_tensor same = {.dtype = DCP_F32, .ndim = 1, .data = part->same, .global_shape = {2}};
    dcp_state_tensor(part->root, "w", &rows);
    dcp_state_tensor(part->root, "same", &same);
    dcp_state_int(part->root, "step", 5);
}

static dcp_status part_save(int rank, int ranks, float first, const char *path,
                            const dcp_save_options *options)
{
    struct part part;
    part_init(&part, rank, ranks, first);
    dcp_status status = dcp_save(part.root, path, options);
    dcp_state_free(part.root);
    return status;
}

static dcp_status load_whole(const char *path, const char *const *members, size_t count,
                             float first)
{
    struct part whole;
    part_init(&whole, 0, 1, -1000);
    dcp_load_options options = {.members = members, .member_count = count};
    dcp_status status = dcp_load(whole.root, path, &options, NULL);
    for (int i = 0; i < ROWS * COLUMNS && status == DCP_OK; i++)
        assert_true(whole.rows[i] == first + (float)i);
    if (status == DCP_OK)
        assert_true(whole.same[0] == first && whole.same[1] == 7);
    dcp_state_free(whole.root);
    return status;
}

static char *read_text(const char *path)
{
    static char text[8192];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static bool exists(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* ---- partial saves ---- */

static void test_a_partial_save_is_refused_unless_allowed(void **state)
{
    dcp_save_options options = {.no_dist = true};
    must_fail(part_save(0, 3, 0, path_in(state, "c"), &options), DCP_ERR_COVERAGE,
              "options.allow_partial");
}

static void test_a_partial_save_says_what_is_missing(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options options = {.no_dist = true, .allow_partial = true, .figures = &figures};
    logged[0] = '\0';
    dcp_set_log(keep_line, NULL, DCP_LOG_WARNING);
    must(part_save(1, 3, 0, path, &options));
    dcp_set_log(NULL, NULL, DCP_LOG_WARNING);
    assert_int_equal(figures.missing_tensors, 1);
    assert_int_equal(figures.missing_elements, 24);
    assert_non_null(strstr(logged, "no rank holds [0:4, 0:3], [8:12, 0:3] of \"w\""));
    assert_non_null(strstr(logged, "1 tensor lacks 24 elements in all"));
    char *json = read_text(path_in(state, "c/metadata.json"));
    char *missing = strstr(json, "\"missing\"");
    assert_non_null(missing);
    assert_non_null(strstr(missing, "1"));
    assert_non_null(strstr(missing, "24"));
    must_fail(load_whole(path, NULL, 0, 0), DCP_ERR_COVERAGE,
              "c/.metadata: \"w\": no chunk holds [0:4, 0:3], [8:12, 0:3]; 24 elements");
    uint64_t faults = 0;
    logged[0] = '\0';
    must(dcp_verify(path, NULL, keep_fault, NULL, &faults));
    assert_int_equal(faults, 1);
    assert_non_null(strstr(logged, "w: \"w\": no chunk holds [0:4, 0:3], [8:12, 0:3]"));
}

static void test_a_whole_save_has_nothing_missing(void **state)
{
    needs_files();
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_save_options options = {.allow_partial = true, .figures = &figures};
    must(part_save(0, 1, 0, path_in(state, "c"), &options));
    assert_int_equal(figures.missing_tensors + figures.missing_elements, 0);
    assert_null(strstr(read_text(path_in(state, "c/metadata.json")), "missing"));
    must(load_whole(path_in(state, "c"), NULL, 0, 0));
}

static void test_partial_saves_unite(void **state)
{
    static const char *const members[] = {"0", "1", "2"};
    dcp_save_options options = {.no_dist = true, .allow_partial = true};
    for (int rank = 0; rank < 3; rank++) {
        char name[16];
        snprintf(name, sizeof name, "c/%d", rank);
        must(part_save(rank, 3, 0, path_in(state, name), &options));
    }
    must(load_whole(path_in(state, "c"), members, 3, 0));
    must_fail(load_whole(path_in(state, "c"), members, 2, 0), DCP_ERR_COVERAGE,
              "\"w\": no chunk holds [8:12, 0:3]; 12 elements");
}

/* The ranks that are left of four. */
static dcp_status save_survivor(struct rank *self)
{
    dcp_save_options options = {.group = self->group, .allow_partial = true, .timeout_seconds = 30};
    return part_save(self->rank, 4, 0, self->path, &options);
}

static void test_a_group_saves_what_it_has(void **state)
{
    static const char *const members[] = {"three", "one"};
    dcp_save_options options = {.no_dist = true, .allow_partial = true};
    ranks_must(3, path_in(state, "u/three"), save_survivor, NULL);
    must_fail(load_whole(path_in(state, "u/three"), NULL, 0, 0), DCP_ERR_COVERAGE, "[9:12, 0:3]");
    must(part_save(3, 4, 0, path_in(state, "u/one"), &options));
    must(load_whole(path_in(state, "u"), members, 2, 0));
}

static dcp_status save_disagreeing(struct rank *self)
{
    dcp_save_options options = {
        .group = self->group, .allow_partial = self->rank == 1, .timeout_seconds = 30};
    return part_save(self->rank, 2, 0, self->path, &options);
}

static void test_ranks_must_agree(void **state)
{
    struct rank ranks[RANKS_MAX];
    ranks_run(ranks, 2, path_in(state, "c"), save_disagreeing, NULL);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ranks[rank].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[rank].message, "allow_partial"));
    }
}

static void test_a_tensor_on_a_larger_mesh_is_saved_in_part(void **state)
{
    static const char *const members[] = {"0", "1"};
    float data[8] = {0, 1, 2, 3, 4, 5, 6, 7}, loaded[8] = {0};
    dcp_placement rows = dcp_shard(0);
    for (int rank = 0; rank < 2; rank++) {
        dcp_mesh mesh = {.ndim = 1, .shape = {2}, .rank = rank};
        dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {8}};
        dcp_save_options options = {.no_dist = true, .allow_partial = true};
        dcp_state *root = dcp_state_new();
        must(dcp_mesh_shard(&mesh, &tensor, &rows));
        tensor.data = data + tensor.offsets[0];
        dcp_state_tensor(root, "t", &tensor);
        must(dcp_save(root, path_in(state, rank ? "c/1" : "c/0"), &options));
        dcp_state_free(root);
    }
    dcp_state *root = dcp_state_new();
    const dcp_tensor whole = {.dtype = DCP_F32, .ndim = 1, .data = loaded, .global_shape = {8}};
    dcp_state_tensor(root, "t", &whole);
    dcp_load_options options = {.members = members, .member_count = 2};
    must(dcp_load(root, path_in(state, "c"), &options, NULL));
    dcp_state_free(root);
    assert_memory_equal(data, loaded, sizeof data);
}

/* ---- metadata of each rank ---- */

static void save_ranks(const char *path, int ranks, float first, dcp_overwrite overwrite)
{
    for (int rank = ranks; rank-- > 0;) {
        dcp_save_options options = {
            .without_collectives = true, .rank = rank, .overwrite = overwrite};
        must(part_save(rank, ranks, first, path, &options));
    }
}

static void test_ranks_save_side_by_side(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    save_ranks(path, 3, 0, DCP_OVERWRITE_REFUSE);
    assert_true(exists(path, "__0.metadata") && exists(path, "__2.metadata"));
    assert_true(exists(path, "__0_0.distcp") && exists(path, "__2_0.distcp"));
    assert_false(exists(path, ".metadata") || exists(path, "metadata.json") ||
                 exists(path, ".dcp_owner.0"));
    must(load_whole(path, NULL, 0, 0));
    unlink(path_in(state, "c/__1.metadata"));
    must_fail(load_whole(path, NULL, 0, 0), DCP_ERR_COVERAGE, "\"w\": no chunk holds [4:8, 0:3]");
}

static dcp_status save_at_once(struct rank *self)
{
    dcp_save_options options = {.group = self->group, .without_collectives = true};
    return part_save(self->rank, self->size, 0, self->path, &options);
}

static void test_ranks_of_a_group_save_at_once(void **state)
{
    ranks_must(6, path_in(state, "c"), save_at_once, NULL);
    must(load_whole(path_in(state, "c"), NULL, 0, 0));
}

static dcp_status save_one_alone(struct rank *self)
{
    return self->rank == 1 ? save_at_once(self) : DCP_OK;
}

static void test_nobody_is_waited_for(void **state)
{
    ranks_must(2, path_in(state, "c"), save_one_alone, NULL);
    must_fail(load_whole(path_in(state, "c"), NULL, 0, 0), DCP_ERR_COVERAGE, "[0:6, 0:3]");
}

static void test_overwriting_is_about_the_own_part(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_save_options options = {.without_collectives = true, .rank = 1};
    save_ranks(path, 3, 0, DCP_OVERWRITE_REFUSE);
    must_fail(part_save(1, 3, 0, path, &options), DCP_ERR_EXISTS, "__1.metadata");
    options.overwrite = DCP_OVERWRITE_REPLACE;
    must(part_save(1, 3, 0, path, &options));
    assert_false(exists(path, "__1_0.distcp"));
    assert_true(exists(path, "__0_0.distcp") && exists(path, "__2_0.distcp"));
    must(load_whole(path, NULL, 0, 0));
    save_ranks(path, 3, 100, DCP_OVERWRITE_REPLACE);
    must(load_whole(path, NULL, 0, 100));
}

static void test_a_checkpoint_of_all_ranks_stays(void **state)
{
    const char *path = path_in(state, "c");
    dcp_save_options options = {.without_collectives = true, .overwrite = DCP_OVERWRITE_REPLACE};
    must(part_save(0, 1, 0, path, NULL));
    must_fail(part_save(0, 2, 50, path, &options), DCP_ERR_EXISTS, ".metadata");
    must(load_whole(path, NULL, 0, 0));
}

static void test_a_save_of_all_replaces_parts(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    save_ranks(path, 2, 0, DCP_OVERWRITE_REFUSE);
    must_fail(part_save(0, 1, 100, path, NULL), DCP_ERR_EXISTS, "__0.metadata");
    must(part_save(0, 1, 100, path, &options));
    assert_false(exists(path, "__0.metadata") || exists(path, "__1_0.distcp"));
    must(load_whole(path, NULL, 0, 100));
}

/* Saves into the same directory from within a save there, when its mark is in place. */
struct nested {
    const char *path;
    dcp_save_options options;
    dcp_status status;
    bool tried;
    char message[512];
};

static bool save_meanwhile(void *context, const dcp_progress *progress)
{
    struct nested *nested = context;
    if (nested->tried || progress->phase != DCP_PHASE_WRITING)
        return true;
    nested->tried = true;
    nested->status = part_save(0, 2, 0, nested->path, &nested->options);
    snprintf(nested->message, sizeof nested->message, "%s", dcp_error_message());
    return true;
}

static void save_while_saving(const char *path, dcp_save_options outer, struct nested *nested)
{
    nested->path = path;
    outer.progress = save_meanwhile;
    outer.progress_context = nested;
    must(part_save(1, 2, 0, path, &outer));
    assert_true(nested->tried);
}

static void test_the_same_rank_collides(void **state)
{
    struct nested nested = {.options = {.without_collectives = true, .rank = 1}};
    dcp_save_options outer = {.without_collectives = true, .rank = 1};
    save_while_saving(path_in(state, "c"), outer, &nested);
    assert_int_equal(nested.status, DCP_ERR_BUSY);
    assert_non_null(strstr(nested.message, ".dcp_owner.1"));
    nested = (struct nested){.options = {.without_collectives = true, .rank = 0}};
    save_while_saving(path_in(state, "d"), outer, &nested);
    assert_int_equal(nested.status, DCP_OK);
    must(load_whole(path_in(state, "d"), NULL, 0, 0));
}

static void test_all_ranks_and_one_exclude_each_other(void **state)
{
    dcp_save_options one = {.without_collectives = true, .rank = 1}, all = {.allow_partial = true};
    struct nested nested = {.options = all};
    save_while_saving(path_in(state, "c"), one, &nested);
    assert_int_equal(nested.status, DCP_ERR_BUSY);
    assert_non_null(strstr(nested.message, ".dcp_owner.1"));
    nested = (struct nested){.options = one};
    save_while_saving(path_in(state, "d"), all, &nested);
    assert_int_equal(nested.status, DCP_ERR_BUSY);
    assert_non_null(strstr(nested.message, "/.dcp_owner)"));
}

static void test_a_stale_mark_of_the_other_kind_goes(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    save_ranks(path, 2, 0, DCP_OVERWRITE_REFUSE);
    FILE *file = fopen(path_in(state, "c/.dcp_owner.1"), "w");
    assert_non_null(file);
    fclose(file);
    file = fopen(path_in(state, "c/.dcp_owner"), "w");
    assert_non_null(file);
    fclose(file);
    save_ranks(path, 2, 100, DCP_OVERWRITE_REPLACE);
    assert_false(exists(path, ".dcp_owner") || exists(path, ".dcp_owner.1"));
    must(load_whole(path, NULL, 0, 100));
}

static void test_asynchronous_and_repeated_saves(void **state)
{
    needs_files();
    dcp_save_plan_cache *cache;
    dcp_figures figures = {.size_of = sizeof figures};
    must(dcp_save_plan_cache_new(&cache));
    for (int n = 0; n < 2; n++) {
        dcp_save_options options = {.without_collectives = true,
                                    .rank = 1,
                                    .plan_cache = cache,
                                    .overwrite = DCP_OVERWRITE_REPLACE,
                                    .figures = &figures};
        must(part_save(1, 2, 0, path_in(state, "c"), &options));
        assert_int_equal(figures.plan_reused, n);
        assert_int_equal(figures.missing_elements, 18);
    }
    dcp_save_options options = {.without_collectives = true, .plan_cache = cache};
    must(part_save(1, 2, 0, path_in(state, "other"), &options));
    assert_true(exists(path_in(state, "other"), "__0_0.distcp"));
    dcp_save_plan_cache_free(cache);
    struct part part;
    dcp_future *future;
    options.plan_cache = NULL;
    part_init(&part, 0, 2, 0);
    must(dcp_save_async(part.root, path_in(state, "c"), &options, &future));
    must(dcp_future_wait(future, 30));
    dcp_future_free(future);
    dcp_state_free(part.root);
    must(load_whole(path_in(state, "c"), NULL, 0, 0));
}

static void test_what_cannot_be_is_refused(void **state)
{
    dcp_storage_writer writer = {.size_of = sizeof writer};
    dcp_save_options options = {.without_collectives = true, .rank = -1};
    must_fail(part_save(0, 2, 0, path_in(state, "c"), &options), DCP_ERR_ARGUMENT, "rank is -1");
    options = (dcp_save_options){.without_collectives = true, .storage_writer = &writer};
    must_fail(part_save(0, 2, 0, path_in(state, "c"), &options), DCP_ERR_ARGUMENT,
              "storage writer");
}

static void fail_every_allocation(void **state, bool alone)
{
    char name[32];
    for (long n = 1;; n++) {
        snprintf(name, sizeof name, "%c%ld", alone ? 'a' : 'p', n);
        struct part part;
        part_init(&part, 1, 3, 0);
        dcp_save_options options = {.without_collectives = alone,
                                    .allow_partial = !alone,
                                    .rank = alone ? 1 : 0,
                                    .skip_sync = true};
        failing_allocator_install(n, false);
        dcp_status status = dcp_save(part.root, path_in(state, name), &options);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        dcp_state_free(part.root);
        if (!reached) {
            must(status);
            break;
        }
        if (status != DCP_OK)
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    needs_files();
    dcp_set_log(keep_line, NULL, DCP_LOG_WARNING);
    fail_every_allocation(state, true);
    fail_every_allocation(state, false);
    dcp_set_log(NULL, NULL, DCP_LOG_WARNING);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_partial_save_is_refused_unless_allowed),
        TEST(test_a_partial_save_says_what_is_missing),
        TEST(test_a_whole_save_has_nothing_missing),
        TEST(test_partial_saves_unite),
        TEST(test_a_group_saves_what_it_has),
        TEST(test_ranks_must_agree),
        TEST(test_a_tensor_on_a_larger_mesh_is_saved_in_part),
        TEST(test_ranks_save_side_by_side),
        TEST(test_ranks_of_a_group_save_at_once),
        TEST(test_nobody_is_waited_for),
        TEST(test_overwriting_is_about_the_own_part),
        TEST(test_a_checkpoint_of_all_ranks_stays),
        TEST(test_a_save_of_all_replaces_parts),
        TEST(test_the_same_rank_collides),
        TEST(test_all_ranks_and_one_exclude_each_other),
        TEST(test_a_stale_mark_of_the_other_kind_goes),
        TEST(test_asynchronous_and_repeated_saves),
        TEST(test_what_cannot_be_is_refused),
        TEST(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
