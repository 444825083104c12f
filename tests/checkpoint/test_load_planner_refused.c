/* SPDX-License-Identifier: BSD-3-Clause */
/* Load planners of the caller's own that fail, ask for nonsense, or differ among ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/load_hooks.h"
#include "fault/failing_allocator.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- hooks that fail ---- */

static dcp_status failing(struct job *job)
{
    return job->self->rank == 1 ? dcp_error_set(DCP_ERR_DEVICE, "it rains") : DCP_OK;
}

static dcp_status failing_set_up(void *context, dcp_loading *loading, dcp_state *tree,
                                 const dcp_checkpoint *metadata, bool is_coordinator)
{
    RETURN_UNLESS_OK(failing(context));
    (void)metadata, (void)is_coordinator;
    return dcp_load_default_set_up_planner(loading, tree);
}

static dcp_status failing_local(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_create_local_plan(loading, plan);
}

static dcp_status failing_plan(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    RETURN_UNLESS_OK(failing(context));
    (void)loading, (void)plan;
    return DCP_OK;
}

static dcp_status failing_load_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                                     const void *bytes, size_t size)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_load_bytes(loading, item, bytes, size);
}

static dcp_status failing_resolve_bytes(void *context, dcp_loading *loading,
                                        const dcp_read_item *item, size_t size, void **bytes)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_resolve_bytes(loading, item, size, bytes);
}

static dcp_status failing_resolve(void *context, dcp_loading *loading, const dcp_read_item *item,
                                  dcp_tensor *tensor)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_resolve_tensor(loading, item, tensor);
}

static dcp_status failing_lookup(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 dcp_tensor *tensor)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_lookup_tensor(loading, item, tensor);
}

static dcp_status failing_transform(void *context, dcp_loading *loading, const dcp_read_item *item,
                                    dcp_tensor *tensor)
{
    RETURN_UNLESS_OK(failing(context));
    return dcp_load_default_transform_tensor(loading, item, tensor);
}

static dcp_status failing_commit(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 const dcp_tensor *tensor)
{
    RETURN_UNLESS_OK(failing(context));
    (void)loading, (void)item, (void)tensor;
    return DCP_OK;
}

static dcp_status failing_reset(void *context, const char *id)
{
    RETURN_UNLESS_OK(failing(context));
    (void)id;
    return DCP_OK;
}

static dcp_status failing_storage(void *context, dcp_loading *loading,
                                  const dcp_checkpoint *metadata, bool is_coordinator)
{
    RETURN_UNLESS_OK(failing(context));
    (void)loading, (void)metadata, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status failing_read(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    RETURN_UNLESS_OK(failing(context));
    (void)plan;
    return dcp_load_default_read_data(loading);
}

static void every_rank_hears_of_a_hook_that_fails(void **state)
{
    static const struct {
        struct test test;
        const char *message;
    } cases[] = {
        {{.planner.set_up_planner = failing_set_up}, "rank 1: hook set_up_planner: it rains"},
        {{.planner.create_local_plan = failing_local}, "rank 1: hook create_local_plan: it rains"},
        {{.planner.finish_plan = failing_plan}, "rank 1: hook finish_plan: it rains"},
        {{.planner.load_bytes = failing_load_bytes}, "hook load_bytes: it rains"},
        {{.planner.resolve_bytes = failing_resolve_bytes}, "hook resolve_bytes: it rains"},
        {{.planner.resolve_tensor = failing_resolve}, "tensors may be partly filled: rank 1: "},
        {{.planner.lookup_tensor = failing_lookup}, "hook lookup_tensor: it rains"},
        {{.planner.transform_tensor = failing_transform}, "hook transform_tensor: it rains"},
        {{.planner.commit_tensor = failing_commit}, "hook commit_tensor: it rains"},
        {{.reader.reset = failing_reset}, "rank 1: hook reset: it rains"},
        {{.reader.set_up_storage_reader = failing_storage},
         "rank 1: hook set_up_storage_reader: it rains"},
        {{.reader.prepare_local_plan = failing_plan}, "rank 1: hook prepare_local_plan: it rains"},
        {{.reader.read_data = failing_read}, "rank 1: hook read_data: it rains"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        load_must_fail(state, &cases[i].test, DCP_ERR_DEVICE, cases[i].message);
}

static dcp_status no_status(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context, (void)loading, (void)plan;
    return (dcp_status)12345;
}

static dcp_status silent(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context, (void)loading, (void)plan;
    return DCP_ERR_NOT_FOUND;
}

static dcp_status idle_set_up(void *context, dcp_loading *loading, dcp_state *tree,
                              const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)context, (void)loading, (void)tree, (void)metadata, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status failing_global(void *context, dcp_loading *loading, dcp_load_plan *const *plans,
                                 int count)
{
    (void)context, (void)loading, (void)plans, (void)count;
    return dcp_error_set(DCP_ERR_DEVICE, "it snows");
}

static void failures_without_a_message_get_one(void **state)
{
    load_must_fail(state, &(struct test){.planner.finish_plan = no_status}, DCP_ERR_CALLBACK,
                   "hook finish_plan returned 12345, which is not a dcp_status");
    load_must_fail(state, &(struct test){.planner.finish_plan = silent}, DCP_ERR_NOT_FOUND,
                   "hook finish_plan failed without an error message");
    load_must_fail(state, &(struct test){.planner.set_up_planner = idle_set_up}, DCP_ERR_CALLBACK,
                   "must call dcp_load_default_set_up_planner()");
    load_must_fail(state, &(struct test){.planner.create_global_plan = failing_global},
                   DCP_ERR_DEVICE, "rank 0: hook create_global_plan: it snows");
    load_must_fail(state, &(struct test){.reader.prepare_global_plan = failing_global},
                   DCP_ERR_DEVICE, "hook prepare_global_plan: it snows");
}

static dcp_status load_another(void *context, dcp_loading *loading, dcp_state *state,
                               const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)state, (void)metadata, (void)is_coordinator;
    return dcp_load_default_set_up_planner(loading, context);
}

static void states_that_were_not_built_as_a_whole_are_refused(void **state)
{
    dcp_state *broken = dcp_state_new(), *other = dcp_state_new();
    const dcp_load_planner planner = {
        .size_of = sizeof planner, .context = other, .set_up_planner = load_another};
    const dcp_load_options options = {.planner = &planner};
    must(dcp_state_int(broken, "step", 1));
    must_fail(dcp_state_int(broken, "step", 2), DCP_ERR_DUPLICATE, "step");
    must_fail(dcp_load(broken, path_in(state, "c"), &options, NULL), DCP_ERR_DUPLICATE,
              "the key \"step\" is in the dict already");
    dcp_state_free(broken);
    dcp_state_free(other);
}

/* ---- plans that make no sense ---- */

/* What a hook does to the item that is about w, or to the plan around it. */
struct nonsense {
    void (*change)(dcp_read_item *item, int64_t numbers[2]);
    bool add; /* to the plan, instead of in the place of the item */
    dcp_status status;
    const char *message;
};

static dcp_status nonsense_finish(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    struct job *job = context;
    const struct nonsense *nonsense = job->choice;
    (void)loading;
    for (size_t i = 0; i < dcp_load_plan_count(plan); i++) {
        int64_t numbers[2] = {0, 0};
        dcp_read_item item;
        RETURN_UNLESS_OK(dcp_load_plan_item(plan, i, &item));
        if (strcmp(item.stored.name, "w") != 0)
            continue;
        nonsense->change(&item, numbers);
        return nonsense->add ? dcp_load_plan_add(plan, &item)
                             : dcp_load_plan_set_item(plan, i, &item);
    }
    return DCP_OK;
}

static void unknown_name(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->destination.name = "x";
}

static void unknown_stored(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->stored.name = "x";
}

static void unknown_chunk(dcp_read_item *item, int64_t numbers[2])
{
    numbers[0] = 1;
    item->destination.offsets = numbers;
}

static void unknown_piece(dcp_read_item *item, int64_t numbers[2])
{
    numbers[1] = 1;
    item->stored.offsets = numbers;
}

static void beyond_the_chunk(dcp_read_item *item, int64_t numbers[2])
{
    numbers[0] = SCENE_ROWS - 1;
    item->destination_offsets = numbers;
}

static void beyond_the_piece(dcp_read_item *item, int64_t numbers[2])
{
    numbers[0] = INT64_MAX;
    item->stored_offsets = numbers;
}

static void shorter(dcp_read_item *item, int64_t numbers[2])
{
    numbers[0] = item->lengths[0] - 1;
    numbers[1] = item->lengths[1];
    item->lengths = numbers;
}

static void negative(dcp_read_item *item, int64_t numbers[2])
{
    numbers[0] = -1;
    item->lengths = numbers;
}

static void without_lengths(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->lengths = NULL;
}

static void as_object(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->is_tensor = false;
}

static void of_an_object(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->stored.name = "step";
}

static void flat(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->stored.ndim = 1;
}

static void dimensionless(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->stored.ndim = item->destination.ndim = 1000;
}

static void nameless(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->stored.name = NULL;
}

static void not_text(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    item->destination.name = "\xff";
}

static void again(dcp_read_item *item, int64_t numbers[2])
{
    (void)item, (void)numbers;
}

static void again_as_object(dcp_read_item *item, int64_t numbers[2])
{
    (void)numbers;
    *item = (dcp_read_item){.destination.name = "step", .stored.name = "step"};
}

static void plans_that_make_no_sense_are_refused(void **state)
{
    static const struct nonsense all[] = {
        {unknown_name, false, DCP_ERR_ARGUMENT, "the state has no such name"},
        {unknown_stored, false, DCP_ERR_MISSING_KEY, "the checkpoint has no \"x\""},
        {unknown_chunk, false, DCP_ERR_ARGUMENT, "the state has no chunk of \"w\" at [1, 0]"},
        {unknown_piece, false, DCP_ERR_ARGUMENT, "the checkpoint has no chunk of \"w\" at [0, 1]"},
        {beyond_the_chunk, false, DCP_ERR_ARGUMENT, "is not inside the wanted chunk"},
        {beyond_the_piece, false, DCP_ERR_ARGUMENT, "is not inside the stored chunk"},
        {shorter, false, DCP_ERR_COVERAGE, "\"w\": the load plan does not read "},
        {negative, false, DCP_ERR_ARGUMENT, "NULL or negative"},
        {without_lengths, false, DCP_ERR_ARGUMENT, "NULL or negative"},
        {as_object, false, DCP_ERR_KIND, "the item is an object"},
        {of_an_object, false, DCP_ERR_KIND, "\"step\" is an object"},
        {flat, false, DCP_ERR_ARGUMENT, "has 1 dimensions in the checkpoint, but 2 in the state"},
        {dimensionless, false, DCP_ERR_ARGUMENT,
         "has 1000 dimensions in the checkpoint, but 1000 in the state"},
        {nameless, false, DCP_ERR_ARGUMENT, "is not valid UTF-8"},
        {not_text, false, DCP_ERR_ARGUMENT, "is not valid UTF-8"},
        {again, true, DCP_ERR_OVERLAP, "\"w\": the load plan reads "},
        {again_as_object, true, DCP_ERR_OVERLAP, "\"step\": the load plan reads it 2 times"},
    };
    for (size_t i = 0; i < COUNT(all); i++)
        load_must_fail(state,
                       &(struct test){.planner.finish_plan = nonsense_finish, .choice = &all[i]},
                       all[i].status, all[i].message);
    load_must_fail(state, &(struct test){.planner.create_local_plan = forgetful_local},
                   DCP_ERR_COVERAGE, "the load plan does not read it");
}

static void plans_say_what_is_wrong_with_a_call(void **state)
{
    dcp_read_item item = {0};
    (void)state;
    must_fail(dcp_load_plan_item(NULL, 0, &item), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_load_plan_add(NULL, &item), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_load_plan_set_item(NULL, 0, &item), DCP_ERR_ARGUMENT, "NULL");
    assert_int_equal(dcp_load_plan_count(NULL), 0);
    assert_null(dcp_load_plan_planner_data(NULL));
    assert_null(dcp_load_plan_storage_data(NULL));
    dcp_load_plan_clear(NULL);
    assert_null(dcp_loading_name(NULL, 0));
    must_fail(dcp_load_default_set_up_planner(NULL, NULL), DCP_ERR_STATE, "called twice");
    must_fail(dcp_load_default_read_data(NULL), DCP_ERR_STATE, "no load plan");
    must_fail(dcp_object_decode(NULL, 0, NULL, NULL, NULL), DCP_ERR_ARGUMENT,
              "the bytes or the parent");
}

/* ---- destinations that make no sense ---- */

struct bad_tensor {
    void (*change)(dcp_tensor *tensor);
    dcp_status status;
    const char *message;
};

static dcp_status bad_resolve(void *context, dcp_loading *loading, const dcp_read_item *item,
                              dcp_tensor *tensor)
{
    const struct job *job = context;
    const struct bad_tensor *bad = job->choice;
    RETURN_UNLESS_OK(dcp_load_default_resolve_tensor(loading, item, tensor));
    bad->change(tensor);
    return DCP_OK;
}

static void too_large(dcp_tensor *tensor)
{
    tensor->sizes[0]++;
}

static void negative_size(dcp_tensor *tensor)
{
    tensor->sizes[0] = -1;
}

static void other_ndim(dcp_tensor *tensor)
{
    tensor->ndim++;
}

static void no_ndim(dcp_tensor *tensor)
{
    tensor->ndim = -1;
}

static void no_dtype(dcp_tensor *tensor)
{
    tensor->dtype = (dcp_dtype)999;
}

static void complex_dtype(dcp_tensor *tensor)
{
    tensor->dtype = DCP_C64;
}

static void folded(dcp_tensor *tensor)
{
    tensor->strides[0] = 0;
}

static void no_memory(dcp_tensor *tensor)
{
    tensor->data = NULL;
}

static void destinations_that_make_no_sense_are_refused(void **state)
{
    static const struct bad_tensor all[] = {
        {too_large, DCP_ERR_SHAPE, "resolve_tensor gave ["},
        {negative_size, DCP_ERR_ARGUMENT, "negative size"},
        {other_ndim, DCP_ERR_SHAPE, "resolve_tensor gave ["},
        {no_ndim, DCP_ERR_ARGUMENT, "-1 dimensions"},
        {no_dtype, DCP_ERR_ARGUMENT, "dtype 999"},
        {complex_dtype, DCP_ERR_DTYPE, "gave complex64, but the checkpoint has float32"},
        {folded, DCP_ERR_ARGUMENT, "overlaps itself in memory"},
        {no_memory, DCP_ERR_ARGUMENT, "gave a tensor without memory"},
    };
    for (size_t i = 0; i < COUNT(all); i++)
        load_must_fail(state,
                       &(struct test){.planner.resolve_tensor = bad_resolve, .choice = &all[i]},
                       all[i].status, all[i].message);
}

static dcp_status small_lookup(void *context, dcp_loading *loading, const dcp_read_item *item,
                               dcp_tensor *chunk)
{
    (void)context;
    RETURN_UNLESS_OK(dcp_load_default_lookup_tensor(loading, item, chunk));
    chunk->sizes[0] = 1;
    return DCP_OK;
}

static dcp_status no_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                           size_t size, void **bytes)
{
    (void)context, (void)loading, (void)item, (void)size, (void)bytes;
    return DCP_OK;
}

static dcp_status stray_item(void *context, dcp_loading *loading, const dcp_read_item *item,
                             dcp_tensor *tensor)
{
    dcp_read_item copy = *item;
    (void)context;
    return dcp_load_default_lookup_tensor(loading, &copy, tensor);
}

static void chunks_and_memory_that_will_not_do_are_refused(void **state)
{
    load_must_fail(state, &(struct test){.planner.lookup_tensor = small_lookup}, DCP_ERR_ARGUMENT,
                   "the chunk is too small for its part");
    load_must_fail(state, &(struct test){.planner.resolve_bytes = no_bytes}, DCP_ERR_CALLBACK,
                   "hook resolve_bytes succeeded, but gave no memory");
    load_must_fail(state, &(struct test){.planner.resolve_tensor = stray_item}, DCP_ERR_ARGUMENT,
                   "the item is not in the final load plan");
}

/* ---- ranks that differ ---- */

static dcp_status differing_body(struct rank *self)
{
    struct scene scene;
    const bool *reader_differs = self->context;
    struct job job = {.self = self, .scene = &scene};
    dcp_load_planner planner = {.size_of = sizeof planner, .context = &job};
    dcp_storage_reader reader = {.size_of = sizeof reader, .context = &job};
    dcp_load_options options = {.group = self->group, .planner = &planner};
    if (self->rank == 1 && *reader_differs)
        options.storage_reader = &reader;
    else if (self->rank == 1)
        planner.finish_plan = noting.planner.finish_plan;
    scene_init(&scene, self, false);
    dcp_status status = dcp_load(scene.root, self->path, &options, NULL);
    scene_free(&scene);
    return status;
}

static void ranks_that_differ_in_hooks_are_reported(void **state)
{
    static const char *const messages[] = {
        "rank 1: the planner's set of hooks differs from the coordinator's",
        "rank 1: the storage reader for "};
    for (int i = 0; i < 2; i++) {
        struct rank ranks[RANKS_MAX];
        bool reader_differs = i == 1;
        ranks_run(ranks, 2, path_in(state, "c"), differing_body, &reader_differs);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
            assert_non_null(strstr(ranks[r].message, messages[i]));
        }
    }
}

static void tables_without_a_size_are_refused(void **state)
{
    struct scene scene;
    const struct rank alone = {.size = 1};
    const dcp_load_planner planner = {.size_of = 0};
    const dcp_load_options options = {.planner = &planner};
    scene_init(&scene, &alone, false);
    must_fail(dcp_load(scene.root, path_in(state, "c"), &options, NULL), DCP_ERR_ARGUMENT,
              "size_of is 0, expected sizeof(dcp_load_planner)");
    scene_free(&scene);
}

static void every_failed_allocation_is_reported(void **state)
{
    const struct rank alone = {.size = 1};
    for (long n = 1;; n++) {
        struct scene scene;
        struct job job = {.self = (struct rank *)&alone, .scene = &scene};
        dcp_load_planner planner = noting.planner;
        dcp_storage_reader reader = noting.reader;
        const dcp_load_options options = {.planner = &planner, .storage_reader = &reader};
        planner.size_of = sizeof planner;
        reader.size_of = sizeof reader;
        planner.context = reader.context = &job;
        planner.create_local_plan = tagging_local;
        planner.create_global_plan = reversing_global;
        scene_init(&scene, &alone, false);
        failing_allocator_install(n, false);
        dcp_status status = dcp_load(scene.root, path_in(state, "c"), &options, NULL);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        if (status == DCP_OK)
            must(scene_check(&scene));
        scene_free(&scene);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_hears_of_a_hook_that_fails),
        cmocka_unit_test(failures_without_a_message_get_one),
        cmocka_unit_test(states_that_were_not_built_as_a_whole_are_refused),
        cmocka_unit_test(plans_that_make_no_sense_are_refused),
        cmocka_unit_test(plans_say_what_is_wrong_with_a_call),
        cmocka_unit_test(destinations_that_make_no_sense_are_refused),
        cmocka_unit_test(chunks_and_memory_that_will_not_do_are_refused),
        cmocka_unit_test(ranks_that_differ_in_hooks_are_reported),
        cmocka_unit_test(tables_without_a_size_are_refused),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, scene_setup, directory_teardown);
}
