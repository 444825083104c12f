/* SPDX-License-Identifier: BSD-3-Clause */
/* Load planners of the caller's own: when hooks are called, and what they can change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/load_hooks.h"

static void hooks_are_called_in_pytorch_s_sequence(void **state)
{
    load_must(state, noting);
}

static void without_hooks_all_is_as_always(void **state)
{
    load_must(state, (struct test){.no_memory = false});
}

/* Each by itself, and the rest as always. */
static void one_hook_alone_is_enough(void **state)
{
    const dcp_load_planner *all = &noting.planner;
    load_must(state, (struct test){.planner = {.set_up_planner = all->set_up_planner}});
    load_must(state, (struct test){.planner = {.create_local_plan = all->create_local_plan}});
    load_must(state, (struct test){.planner = {.create_global_plan = all->create_global_plan}});
    load_must(state, (struct test){.planner = {.finish_plan = all->finish_plan}});
    load_must(state, (struct test){.planner = {.load_bytes = all->load_bytes}});
    load_must(state, (struct test){.planner = {.resolve_bytes = all->resolve_bytes}});
    load_must(state, (struct test){.planner = {.resolve_tensor = all->resolve_tensor}});
    load_must(state, (struct test){.planner = {.commit_tensor = all->commit_tensor}});
    load_must(state, (struct test){.planner = {.lookup_tensor = all->lookup_tensor}});
    load_must(state, (struct test){.planner = {.transform_tensor = all->transform_tensor}});
    load_must(state, (struct test){.reader = {.read_data = noting.reader.read_data}});
    load_must(state,
              (struct test){.reader = {.prepare_global_plan = noting.reader.prepare_global_plan}});
}

/* ---- what hooks can change ---- */

static dcp_status own_memory(void *context, dcp_loading *loading, const dcp_read_item *item,
                             dcp_tensor *chunk)
{
    struct job *job = context;
    RETURN_UNLESS_OK(dcp_load_default_lookup_tensor(loading, item, chunk));
    if (chunk->data)
        return dcp_error_set(DCP_ERR_INTERNAL, "there is memory already");
    chunk->data = strcmp(item->destination.name, "w") == 0 ? job->scene->w : job->scene->b;
    return DCP_OK;
}

static void tensors_are_materialized_by_look_up(void **state)
{
    load_must(state, (struct test){.planner = {.lookup_tensor = own_memory}, .no_memory = true});
}

/* A hook that was compiled with an earlier dcp_tensor, and one with a later one. */
static dcp_status of_other_versions(void *context, dcp_loading *loading, const dcp_read_item *item,
                                    dcp_tensor *tensor)
{
    struct {
        dcp_tensor known;
        size_t later;
    } longer = {.later = 7};
    dcp_tensor shorter = {.layout.mesh.rank = 4711};
    size_t earlier = offsetof(dcp_tensor, layout);
    (void)context;
    RETURN_UNLESS_OK(
        dcp_load_default_lookup_tensor_sized(loading, item, &longer.known, sizeof longer));
    bool good = longer.later == 0;
    longer.later = 7;
    good = good && dcp_load_default_transform_tensor_sized(loading, item, &longer.known,
                                                           sizeof longer) == DCP_ERR_ARGUMENT;
    RETURN_UNLESS_OK(dcp_load_default_resolve_tensor_sized(loading, item, &shorter, earlier));
    RETURN_UNLESS_OK(dcp_load_default_lookup_tensor_sized(loading, item, &shorter, earlier));
    RETURN_UNLESS_OK(dcp_load_default_transform_tensor_sized(loading, item, &shorter, earlier));
    if (!good || shorter.layout.mesh.rank != 4711)
        return dcp_error_set(DCP_ERR_INTERNAL, "a tensor of another version is misread");
    *tensor = shorter;
    memset(&tensor->layout, 0, sizeof tensor->layout);
    return DCP_OK;
}

static void hooks_may_be_of_other_versions(void **state)
{
    load_must(state, (struct test){.planner = {.resolve_tensor = of_other_versions}});
}

static dcp_status check_allocated(struct job *job)
{
    dcp_tensor chunk;
    const struct scene *scene = job->scene;
    dcp_status status = dcp_state_chunk(dcp_state_find(scene->root, "w"), 0, &chunk);
    if (status != DCP_OK || !chunk.data)
        return dcp_error_set(DCP_ERR_INTERNAL, "w has no memory");
    memcpy(job->scene->w, chunk.data, (size_t)(SCENE_ROWS * scene->columns) * sizeof *scene->w);
    return scene_check_w(scene);
}

static void memory_that_nobody_gives_is_the_state_s(void **state)
{
    load_must(state, (struct test){.planner = {.resolve_tensor = noting.planner.resolve_tensor},
                                   .no_memory = true,
                                   .check = check_allocated});
}

/* Each part into double memory of its own, strided; then into the chunk, negated. */
static dcp_status wide_resolve(void *context, dcp_loading *loading, const dcp_read_item *item,
                               dcp_tensor *tensor)
{
    struct job *job = context;
    (void)loading;
    tensor->dtype = DCP_F64;
    tensor->ndim = item->destination.ndim;
    tensor->strided = true;
    int64_t stride = 2;
    for (int32_t i = tensor->ndim; i-- > 0; stride *= item->lengths[i]) {
        tensor->global_shape[i] = item->lengths[i];
        tensor->strides[i] = stride;
    }
    tensor->data = job->memory[job->used++] = calloc((size_t)stride, sizeof(double));
    return DCP_OK;
}

static dcp_status wide_commit(void *context, dcp_loading *loading, const dcp_read_item *item,
                              const dcp_tensor *tensor)
{
    dcp_tensor own;
    (void)context;
    dcp_status status = dcp_load_default_resolve_tensor(loading, item, &own);
    int64_t columns = own.ndim == 2 ? item->lengths[1] : item->lengths[0];
    int64_t rows = own.ndim == 2 ? item->lengths[0] : 1;
    for (int64_t r = 0; status == DCP_OK && r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            ((float *)own.data)[(own.ndim == 2 ? r * own.strides[0] : 0) + c] =
                (float)((const double *)tensor->data)[2 * (r * columns + c)];
    return status;
}

static void parts_are_loaded_as_another_dtype_and_committed(void **state)
{
    load_must(state, (struct test){.planner = {.resolve_tensor = wide_resolve,
                                               .commit_tensor = wide_commit}});
}

static dcp_status rename_set_up(void *context, dcp_loading *loading, dcp_state *tree,
                                const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)context;
    (void)metadata;
    (void)is_coordinator;
    dcp_state_int(tree, "the.step", 0);
    dcp_status status = dcp_load_default_set_up_planner(loading, tree);
    if (status == DCP_OK && dcp_loading_name_count(loading) != 5)
        return dcp_error_set(DCP_ERR_INTERNAL, "the state has not 5 names");
    return status == DCP_OK ? dcp_loading_rename(loading, dcp_loading_name(loading, 4), "step")
                            : status;
}

static dcp_status check_renamed(struct job *job)
{
    int64_t step = 0;
    dcp_state_as_int(dcp_state_find(job->scene->root, "the.step"), &step);
    return step == 1000 ? scene_check(job->scene)
                        : dcp_error_set(DCP_ERR_INTERNAL, "the.step is %d", (int)step);
}

static void names_are_looked_for_under_other_ones(void **state)
{
    load_must(state,
              (struct test){.planner = {.set_up_planner = rename_set_up}, .check = check_renamed});
}

/* Another tree, over the same memory. */
static dcp_status other_tree(void *context, dcp_loading *loading, dcp_state *tree,
                             const dcp_checkpoint *metadata, bool is_coordinator)
{
    struct job *job = context;
    (void)metadata;
    (void)is_coordinator;
    job->choice = dcp_state_new();
    dcp_state_copy((dcp_state *)job->choice, "w", dcp_state_find(tree, "w"));
    return dcp_load_default_set_up_planner(loading, (dcp_state *)job->choice);
}

static dcp_status check_other(struct job *job)
{
    dcp_state_free((dcp_state *)job->choice);
    dcp_status status = scene_check_w(job->scene);
    return status == DCP_OK && job->scene->b[0] != -1
               ? dcp_error_set(DCP_ERR_INTERNAL, "b has been touched")
               : status;
}

static void another_tree_is_filled(void **state)
{
    load_must(state,
              (struct test){.planner = {.set_up_planner = other_tree}, .check = check_other});
}

static dcp_status finish_with_data(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    const char *data = "no";
    (void)loading;
    note(context, "finish");
    dcp_state_as_text(dcp_state_find(dcp_load_plan_planner_data(plan), "sent"), &data, NULL);
    return strcmp(data, "yes") == 0 ? DCP_OK : dcp_error_set(DCP_ERR_INTERNAL, "no data was sent");
}

static void plans_travel_with_what_planners_say(void **state)
{
    load_must(state, (struct test){.planner = {.create_local_plan = tagging_local,
                                               .create_global_plan = reversing_global,
                                               .finish_plan = finish_with_data}});
}

/* Rows 0 to 3 of the wanted w come from rows 4 to 7 that are stored, and the other way round. */
static dcp_status crossing_local(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context;
    RETURN_UNLESS_OK(dcp_load_default_create_local_plan(loading, plan));
    for (size_t i = 0; i < dcp_load_plan_count(plan); i++) {
        dcp_read_item item;
        RETURN_UNLESS_OK(dcp_load_plan_item(plan, i, &item));
        if (strcmp(item.stored.name, "w") != 0)
            continue;
        int64_t other[2] = {SCENE_ROWS / 2 - item.stored.offsets[0], 0};
        item.stored.offsets = other;
        RETURN_UNLESS_OK(dcp_load_plan_set_item(plan, i, &item));
    }
    return DCP_OK;
}

static dcp_status check_crossed(struct job *job)
{
    float half[SCENE_ROWS * SCENE_COLUMNS / 2];
    size_t count = (size_t)(SCENE_ROWS / 2 * job->scene->columns);
    float *w = job->scene->w;
    memcpy(half, w, count * sizeof *w);
    memcpy(w, w + count, count * sizeof *w);
    memcpy(w + count, half, count * sizeof *w);
    return scene_check(job->scene);
}

static void parts_may_come_from_elsewhere(void **state)
{
    load_must(state, (struct test){.planner = {.create_local_plan = crossing_local},
                                   .check = check_crossed});
}

static dcp_status check_untouched(struct job *job)
{
    return scene_check_untouched(job->scene);
}

static void names_may_be_left_out_where_missing_is_no_error(void **state)
{
    load_must(state, (struct test){.planner = {.create_local_plan = forgetful_local},
                                   .options = {.strictness = DCP_STRICT_PARTIAL},
                                   .check = check_untouched});
}

static dcp_status decoding_load_bytes(void *context, dcp_loading *loading,
                                      const dcp_read_item *item, const void *bytes, size_t size)
{
    struct job *job = context;
    (void)loading;
    dcp_state *own = dcp_state_new();
    dcp_status status = dcp_object_decode(bytes, size, own, "value", NULL);
    int64_t value = 0;
    if (status == DCP_OK && strcmp(item->destination.name, "step") == 0) {
        dcp_state_as_int(dcp_state_find(own, "value"), &value);
        note(job, value == 1000 ? "1000" : "other");
    }
    dcp_state_free(own);
    return status;
}

static dcp_status check_decoded(struct job *job)
{
    if (strcmp(job->calls, "1000 ") != 0)
        return dcp_error_set(DCP_ERR_INTERNAL, "calls were: %s", job->calls);
    return scene_check_w(job->scene);
}

static void objects_are_taken_as_bytes(void **state)
{
    load_must(state, (struct test){.planner = {.load_bytes = decoding_load_bytes},
                                   .check = check_decoded});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_called_in_pytorch_s_sequence),
        cmocka_unit_test(without_hooks_all_is_as_always),
        cmocka_unit_test(one_hook_alone_is_enough),
        cmocka_unit_test(tensors_are_materialized_by_look_up),
        cmocka_unit_test(hooks_may_be_of_other_versions),
        cmocka_unit_test(memory_that_nobody_gives_is_the_state_s),
        cmocka_unit_test(parts_are_loaded_as_another_dtype_and_committed),
        cmocka_unit_test(names_are_looked_for_under_other_ones),
        cmocka_unit_test(another_tree_is_filled),
        cmocka_unit_test(plans_travel_with_what_planners_say),
        cmocka_unit_test(parts_may_come_from_elsewhere),
        cmocka_unit_test(names_may_be_left_out_where_missing_is_no_error),
        cmocka_unit_test(objects_are_taken_as_bytes),
    };
    return cmocka_run_group_tests(tests, scene_setup, directory_teardown);
}
