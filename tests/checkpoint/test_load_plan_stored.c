/* SPDX-License-Identifier: BSD-3-Clause */
/* What kinds of checkpoints plans of loads are kept for, and what becomes of them when what is
 * stored is damaged, foreign or gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/load_scene.h"
#include "checkpoint/ranks.h"
#include "dcp/load_planner.h"
#include "fault/failing_allocator.h"
#include "fault/over_files.h"
#include "fault/simulated_file_system.h"

enum { LENGTH = 6 };

/* A tree of tensors of int32, and a cache. */
struct reading {
    dcp_state *root;
    int32_t tied[LENGTH], first[LENGTH], last[LENGTH];
};

static void add(dcp_state *root, const char *name, int32_t *data)
{
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {LENGTH}, .data = data};
    dcp_state_tensor(root, name, &tensor);
}

static void reading_new(struct reading *reading)
{
    *reading = (struct reading){.root = dcp_state_new()};
    add(reading->root, "tied", reading->tied);
    add(reading->root, "first", reading->first);
    add(reading->root, "last", reading->last);
    dcp_state_int(reading->root, "step", -1);
    must(dcp_state_status(reading->root));
}

static void save_stage(const struct file_ops *ops, const char *path, bool last, int32_t value)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    int32_t tied[LENGTH] = {1, 2, 3, 4, 5, 6}, own[LENGTH] = {value, value + 1};
    dcp_state *root = dcp_state_new();
    add(root, "tied", tied);
    add(root, last ? "last" : "first", own);
    if (!last)
        dcp_state_int(root, "step", value);
    must(save_over(ops, root, path, &options));
    dcp_state_free(root);
}

static void save_stages(const struct file_ops *ops, const char *path, int32_t first, int32_t last)
{
    char stage[1100];
    snprintf(stage, sizeof stage, "%s/pp0", path);
    save_stage(ops, stage, false, first);
    snprintf(stage, sizeof stage, "%s/pp1", path);
    save_stage(ops, stage, true, last);
}

/* One directory with all of it. */
static void save_plain(const struct file_ops *ops, const char *path, int32_t first, int32_t last)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    int32_t tied[LENGTH] = {1, 2, 3, 4, 5, 6};
    int32_t firsts[LENGTH] = {first, first + 1}, lasts[LENGTH] = {last, last + 1};
    dcp_state *root = dcp_state_new();
    add(root, "tied", tied);
    add(root, "first", firsts);
    add(root, "last", lasts);
    dcp_state_int(root, "step", first);
    must(save_over(ops, root, path, &options));
    dcp_state_free(root);
}

static bool holds(const struct reading *reading, int32_t first, int32_t last)
{
    int64_t step = -1;
    must(dcp_state_as_int(dcp_state_find(reading->root, "step"), &step));
    return reading->tied[5] == 6 && reading->first[0] == first && reading->first[1] == first + 1 &&
           reading->last[0] == last && reading->last[1] == last + 1 && step == first;
}

static dcp_status load(const struct file_ops *ops, const char *path, dcp_load_plan_cache *cache,
                       struct reading *reading, bool *reused)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {.plan_cache = cache, .figures = &figures};
    reading_new(reading);
    dcp_status status = load_over(ops, reading->root, path, &options, NULL);
    *reused = figures.plan_reused;
    return status;
}

static void expect(const struct file_ops *ops, const char *path, dcp_load_plan_cache *cache,
                   int32_t first, int32_t last, bool reuses)
{
    struct reading reading;
    bool reused;
    must(load(ops, path, cache, &reading, &reused));
    assert_true(holds(&reading, first, last));
    assert_int_equal(reused, reuses);
    dcp_state_free(reading.root);
}

static void expect_failure(const char *path, dcp_load_plan_cache *cache, dcp_status status,
                           const char *text)
{
    struct reading reading;
    bool reused;
    must_fail(load(&file_ops_system, path, cache, &reading, &reused), status, text);
    dcp_state_free(reading.root);
}

static void shell(const char *command)
{
    assert_int_equal(system(command), 0);
}

/* ---- unions ---- */

static void stages_are_one_checkpoint(void **state)
{
    const struct file_ops *ops = &file_ops_system;
    const char *path = path_in(state, "c");
    char stage[1100];
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    save_stages(ops, path, 10, 20);
    expect(ops, path, cache, 10, 20, false);
    expect(ops, path, cache, 10, 20, true);
    snprintf(stage, sizeof stage, "%s/pp1", path);
    save_stage(ops, stage, true, 30);
    expect(ops, path, cache, 10, 30, true);
    const char *other = path_in(state, "d");
    save_stages(ops, other, 40, 50);
    expect(ops, other, cache, 40, 50, true);
    /* The same as one directory. */
    const char *plain = path_in(state, "plain");
    save_plain(ops, plain, 60, 70);
    expect(ops, plain, cache, 60, 70, false);
    expect(ops, plain, cache, 60, 70, true);
    expect(ops, other, cache, 40, 50, false);
    dcp_load_plan_cache_free(cache);
}

/* What members hold alike is compared each time. */
static void conflicts_are_seen_each_time(void **state)
{
    needs_files();
    const struct file_ops *ops = &file_ops_system;
    const char *path = path_in(state, "c");
    char stage[1100];
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    save_stages(ops, path, 10, 20);
    expect(ops, path, cache, 10, 20, false);
    snprintf(stage, sizeof stage, "%s/pp1", path);
    int32_t tied[LENGTH] = {7}, own[LENGTH] = {20, 21};
    dcp_state *root = dcp_state_new();
    add(root, "tied", tied);
    add(root, "last", own);
    must(dcp_save(root, stage, &(dcp_save_options){.overwrite = DCP_OVERWRITE_REPLACE}));
    dcp_state_free(root);
    expect_failure(path, cache, DCP_ERR_DUPLICATE, "tied");
    save_stages(ops, path, 30, 40);
    expect(ops, path, cache, 30, 40, false);
    expect(ops, path, cache, 30, 40, true);
    dcp_load_plan_cache_free(cache);
}

/* Members that the caller names may be elsewhere than those that are found. */
static void chosen_members_are_distinguished(void **state)
{
    needs_files();
    const struct file_ops *ops = &file_ops_system;
    const char *path = path_in(state, "c");
    const char *const members[] = {"pp0", "pp1"};
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    save_stages(ops, path, 10, 20);
    for (int i = 0; i < 4; i++) {
        dcp_figures figures = {.size_of = sizeof figures};
        dcp_load_options options = {.plan_cache = cache,
                                    .figures = &figures,
                                    .members = i < 2 ? NULL : members,
                                    .member_count = i < 2 ? 0 : 2};
        struct reading reading;
        reading_new(&reading);
        must(dcp_load(reading.root, path, &options, NULL));
        assert_true(holds(&reading, 10, 20));
        assert_int_equal(figures.plan_reused, i % 2);
        dcp_state_free(reading.root);
    }
    dcp_load_plan_cache_free(cache);
}

/* ---- what others wrote ---- */

/* A tree for all that a checkpoint holds, tensors with memory of zeros. */
static dcp_state *tree_of(const char *path, void **memory, size_t *size)
{
    dcp_checkpoint *checkpoint;
    dcp_state *root = dcp_state_new();
    dcp_entry entry;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    *size = 0;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        *size += entry.is_tensor ? (entry.bytes + 63) / 64 * 64 : 0;
    }
    *memory = calloc(1, *size + 1);
    char *place = *memory;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        if (!entry.is_tensor) {
            dcp_state_int(root, entry.name, 0);
            continue;
        }
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim, .data = place};
        memcpy(tensor.global_shape, entry.global_shape,
               (size_t)entry.ndim * sizeof *entry.global_shape);
        dcp_state_tensor(root, entry.name, &tensor);
        place += (entry.bytes + 63) / 64 * 64;
    }
    must(dcp_state_status(root));
    dcp_checkpoint_close(checkpoint);
    return root;
}

static void load_fixture(const char *name, bool reuses)
{
    char path[1000];
    void *first = NULL;
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    snprintf(path, sizeof path, "%s/%s", FIXTURES, name);
    for (int i = 0; i < 3; i++) {
        dcp_figures figures = {.size_of = sizeof figures};
        dcp_load_options options = {.plan_cache = cache, .figures = &figures};
        void *memory;
        size_t size;
        dcp_state *root = tree_of(path, &memory, &size);
        must(dcp_load(root, path, &options, NULL));
        assert_int_equal(figures.plan_reused, reuses && i > 0);
        if (first)
            assert_memory_equal(first, memory, size);
        dcp_state_free(root);
        if (i > 0)
            free(memory);
        else
            first = memory;
    }
    free(first);
    dcp_load_plan_cache_free(cache);
}

static void kept_where_there_is_metadata(void **state)
{
    (void)state;
    load_fixture("fsdp2_adam_w2/ckpt", true);
    load_fixture("fsdp2_tp_w4/ckpt", true);
    load_fixture("objects/ckpt", true);
    load_fixture("meta_protocol2/ckpt", true);
    load_fixture("rank_local_w2/ckpt", false);
    load_fixture("hf_single/ckpt", false);
    load_fixture("pt_state_dict/ckpt.pt", false);
}

/* ---- damage ---- */

static void what_is_read_is_checked(void **state)
{
    const struct file_ops *ops = &file_ops_system;
    const char *path = path_in(state, "c"), *other = path_in(state, "d");
    char command[4000];
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    save_plain(ops, path, 10, 20);
    save_plain(ops, other, 30, 40);
    expect(ops, path, cache, 10, 20, false);
    snprintf(command, sizeof command, "cp %s/__0_0.distcp %s/kept && cp %s/__0_0.distcp %s/", path,
             path, other, path);
    shell(command);
    expect_failure(path, cache, DCP_ERR_FOREIGN, "belongs to save");
    snprintf(command, sizeof command,
             "cp %s/kept %s/__0_0.distcp && dd if=/dev/zero of=%s/__0_0.distcp bs=1 count=3000 "
             "conv=notrunc 2>/dev/null",
             path, path, path);
    shell(command);
    struct reading reading;
    bool reused;
    dcp_status status = load(ops, path, cache, &reading, &reused);
    assert_true(status == DCP_ERR_FORMAT || status == DCP_ERR_CHECKSUM);
    assert_true(reused);
    dcp_state_free(reading.root);
    snprintf(command, sizeof command, "cp %s/kept %s/__0_0.distcp", path, path);
    shell(command);
    expect(ops, path, cache, 10, 20, true);
    dcp_load_plan_cache_free(cache);
}

static void damaged_metadata_is_an_error_and_forgotten(void **state)
{
    const struct file_ops *ops = &file_ops_system;
    const char *path = path_in(state, "c");
    char command[4000];
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    save_plain(ops, path, 10, 20);
    expect(ops, path, cache, 10, 20, false);
    snprintf(command, sizeof command, "cp %s/.metadata %s/kept && echo x >%s/.metadata", path, path,
             path);
    shell(command);
    expect_failure(path, cache, DCP_ERR_FORMAT, ".metadata");
    snprintf(command, sizeof command, "rm %s/.metadata", path);
    shell(command);
    expect_failure(path, cache, DCP_ERR_NOT_FOUND, "interrupted");
    snprintf(command, sizeof command, "mv %s/kept %s/.metadata", path, path);
    shell(command);
    expect(ops, path, cache, 10, 20, true);
    dcp_load_plan_cache_free(cache);
}

/* Every file operation of the second load fails in turn; the third load is right. */
static void every_file_operation_can_fail(void **state)
{
    (void)state;
    static const struct {
        bool stages;
        const char *second;
    } ways[] = {{false, "/c"}, {false, "/d"}, {true, "/c"}, {true, "/d"}};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        struct simulated_file_system *fs = simulated_new();
        void (*save)(const struct file_ops *, const char *, int32_t, int32_t) =
            ways[way].stages ? save_stages : save_plain;
        save(simulated_ops(fs), "/c", 10, 20);
        save(simulated_ops(fs), "/d", 30, 40);
        bool reached = true;
        for (long n = 1; reached; n++) {
            struct simulated_file_system *copy = simulated_copy(fs);
            struct simulated_fault fault = {
                .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO};
            dcp_load_plan_cache *cache;
            struct reading reading;
            bool reused;
            must(dcp_load_plan_cache_new(&cache));
            expect(simulated_ops(copy), "/c", cache, 10, 20, false);
            simulated_set_fault(copy, &fault);
            dcp_status status =
                load(simulated_ops(copy), ways[way].second, cache, &reading, &reused);
            reached = simulated_fault_reached(copy);
            if (!reached || status != DCP_ERR_IO)
                must(status);
            dcp_state_free(reading.root);
            simulated_set_fault(copy, NULL);
            must(load(simulated_ops(copy), "/d", cache, &reading, &reused));
            assert_true(holds(&reading, 30, 40));
            dcp_state_free(reading.root);
            assert_int_equal(simulated_open_descriptors(copy), 0);
            dcp_load_plan_cache_free(cache);
            simulated_free(copy);
        }
        simulated_free(fs);
    }
}

static void every_allocation_can_fail(void **state)
{
    needs_files();
    const struct file_ops *ops = &file_ops_system;
    const char *paths[2] = {path_in(state, "c"), path_in(state, "d")};
    save_stages(ops, paths[0], 10, 20);
    save_stages(ops, paths[1], 30, 40);
    bool reached = true;
    for (long n = 1; reached; n++) {
        struct reading readings[2];
        dcp_load_plan_cache *cache = NULL;
        reading_new(&readings[0]);
        reading_new(&readings[1]);
        failing_allocator_install(n, false);
        dcp_status status = dcp_load_plan_cache_new(&cache);
        for (int i = 0; i < 2 && status == DCP_OK; i++)
            status = dcp_load(readings[i].root, paths[i], &(dcp_load_options){.plan_cache = cache},
                              NULL);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        dcp_load_plan_cache_free(cache);
        dcp_state_free(readings[0].root);
        dcp_state_free(readings[1].root);
        if (!reached || status != DCP_ERR_NO_MEMORY)
            must(status);
    }
}

/* ---- arguments ---- */

static dcp_status plan_as_usual(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context;
    return dcp_load_default_create_local_plan(loading, plan);
}

static dcp_status load_with_hooks(struct rank *self, dcp_load_plan_cache *cache)
{
    dcp_load_planner planner = {.size_of = sizeof planner, .create_local_plan = plan_as_usual};
    for (int i = 0; i < 4; i++) {
        dcp_figures figures = {.size_of = sizeof figures};
        struct scene scene;
        scene_init(&scene, self, false);
        dcp_load_options options = {.group = self->group,
                                    .plan_cache = cache,
                                    .planner = i == 1 ? &planner : NULL,
                                    .figures = &figures,
                                    .timeout_seconds = 30};
        must(dcp_load(scene.root, self->path, &options, NULL));
        dcp_status status = scene_check(&scene);
        scene_free(&scene);
        if (status == DCP_OK && figures.plan_reused != (i > 1))
            status = dcp_error_set(DCP_ERR_STATE, "load %d reused %d", i, figures.plan_reused);
        if (status != DCP_OK)
            return status;
    }
    return DCP_OK;
}

/* A load with a planner in between does no harm. */
static dcp_status arguments_body(struct rank *self)
{
    struct scene scene;
    dcp_load_plan_cache *cache;
    must(scene_save(self));
    must(dcp_load_plan_cache_new(&cache));
    dcp_status status = load_with_hooks(self, cache);
    scene_init(&scene, self, false);
    dcp_load_options options = {
        .group = self->group, .plan_cache = self->rank == 1 ? cache : NULL, .timeout_seconds = 30};
    if (status == DCP_OK)
        must_fail(dcp_load(scene.root, self->path, &options, NULL), DCP_ERR_ARGUMENT, "plan_cache");
    scene_free(&scene);
    dcp_load_plan_cache_free(cache);
    return status;
}

/* A tree whose tensor may overlap itself in memory. */
static dcp_state *fold(float *memory, bool folded)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {4, 4}, .data = memory};
    tensor.strided = folded;
    tensor.strides[0] = tensor.strides[1] = 1;
    dcp_state_tensor(root, "t", &tensor);
    must(dcp_state_status(root));
    return root;
}

/* What one rank finds wrong with its memory, all hear before a verdict on names. */
static dcp_status folded_body(struct rank *self)
{
    float memory[16] = {0};
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    dcp_state *root = fold(memory, false);
    must(dcp_save(root, self->path, &(dcp_save_options){.group = self->group}));
    dcp_state_free(root);
    for (int i = 0; i < 3; i++) {
        dcp_load_options options = {.group = self->group,
                                    .plan_cache = cache,
                                    .strictness = i == 1 ? DCP_STRICT_MISSING : DCP_STRICT_PARTIAL,
                                    .timeout_seconds = 30};
        root = fold(memory, i == 1 && self->rank == 1);
        dcp_state_int(root, "more", 1);
        dcp_status status = dcp_load(root, self->path, &options, NULL);
        if (i == 1)
            must_fail(status, DCP_ERR_ARGUMENT, "overlaps itself in memory");
        else
            must(status);
        dcp_state_free(root);
    }
    dcp_load_plan_cache_free(cache);
    return DCP_OK;
}

static void destinations_are_checked_each_time(void **state)
{
    ranks_must(2, path_in(state, "c"), folded_body, NULL);
}

static void arguments_are_checked(void **state)
{
    ranks_must(2, path_in(state, "c"), arguments_body, NULL);
    must_fail(dcp_load_plan_cache_new(NULL), DCP_ERR_ARGUMENT, "NULL");
    dcp_load_plan_cache_free(NULL);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(stages_are_one_checkpoint),
        directory_test(conflicts_are_seen_each_time),
        directory_test(chosen_members_are_distinguished),
        cmocka_unit_test(kept_where_there_is_metadata),
        directory_test(what_is_read_is_checked),
        directory_test(damaged_metadata_is_an_error_and_forgotten),
        cmocka_unit_test(every_file_operation_can_fail),
        directory_test(every_allocation_can_fail),
        directory_test(destinations_are_checked_each_time),
        directory_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
