/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves with planners whose hooks fail, differ between ranks, or ask for what cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/planner_trial.h"

static void expect_failure(void **state, const struct trial *given, int size, dcp_status expected,
                           const char *message)
{
    struct trial trial = *given;
    struct rank ranks[RANKS_MAX];
    const char *path = path_in(state, "refused");
    ranks_run(ranks, size, path, body, &trial);
    for (int rank = 0; rank < size; rank++) {
        if (ranks[rank].status != expected || !strstr(ranks[rank].message, message))
            fail_msg("rank %d: status %d, \"%s\" does not contain \"%s\"", rank, ranks[rank].status,
                     ranks[rank].message, message);
        assert_string_equal(ranks[rank].message, ranks[0].message);
    }
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- hooks that fail ---- */

static dcp_status no_plan(const struct trial *trial)
{
    (void)trial;
    return dcp_error_set(DCP_ERR_CALLBACK, "no plan today");
}

static dcp_status fail_set_up(void *context, dcp_saving *saving, dcp_state *state,
                              const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)saving;
    (void)state;
    (void)storage_meta;
    (void)is_coordinator;
    return no_plan(context);
}

static dcp_status fail_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)saving;
    (void)plan;
    return no_plan(context);
}

static dcp_status fail_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                              int plan_count)
{
    (void)saving;
    (void)plans;
    (void)plan_count;
    return no_plan(context);
}

static dcp_status fail_finish(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)saving;
    (void)plan;
    return no_plan(context);
}

static dcp_status fail_resolve(void *context, dcp_saving *saving, const dcp_write_item *item,
                               dcp_write_data *data)
{
    if (!item->is_tensor)
        return dcp_save_default_resolve_data(saving, item, data);
    return no_plan(context);
}

static dcp_status fail_silently(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return DCP_ERR_IO;
}

static dcp_status fail_strangely(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    (void)saving;
    (void)plan;
    return (dcp_status)4711;
}

static dcp_status forget(void *context, dcp_saving *saving, dcp_state *state,
                         const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)context;
    (void)saving;
    (void)state;
    (void)storage_meta;
    (void)is_coordinator;
    return DCP_OK;
}

static void every_rank_gets_the_failure_of_a_hook(void **state)
{
    const struct {
        struct trial trial;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.planner.set_up_planner = fail_set_up},
         DCP_ERR_CALLBACK,
         "rank 0: hook set_up_planner: no plan today"},
        {{.planner.create_local_plan = fail_plan},
         DCP_ERR_CALLBACK,
         "rank 0: hook create_local_plan: no plan today"},
        {{.planner.create_global_plan = fail_global},
         DCP_ERR_CALLBACK,
         "rank 0: hook create_global_plan: no plan today"},
        {{.planner.finish_plan = fail_finish},
         DCP_ERR_CALLBACK,
         "rank 0: hook finish_plan: no plan today"},
        {{.planner.resolve_data = fail_resolve},
         DCP_ERR_CALLBACK,
         "rank 0: hook resolve_data: no plan today"},
        {{.planner.create_local_plan = fail_silently},
         DCP_ERR_IO,
         "hook create_local_plan failed without an error message"},
        {{.planner.create_local_plan = fail_strangely},
         DCP_ERR_CALLBACK,
         "hook create_local_plan returned 4711, which is not a dcp_status"},
        {{.planner.set_up_planner = forget},
         DCP_ERR_STATE,
         "has not called dcp_save_default_set_up_planner()"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_failure(state, &cases[i].trial, 3, cases[i].status, cases[i].message);
}

static dcp_status save_another(void *context, dcp_saving *saving, dcp_state *state,
                               const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    (void)state, (void)storage_meta, (void)is_coordinator;
    return dcp_save_default_set_up_planner(saving, context);
}

/* What could not be added to it is missing in what a planner makes of it, too. */
static void refuses_states_that_were_not_built_as_a_whole(void **state)
{
    dcp_state *broken = dcp_state_new(), *other = dcp_state_new();
    dcp_save_planner planner = {
        .size_of = sizeof planner, .context = other, .set_up_planner = save_another};
    const dcp_save_options options = {.planner = &planner};
    must(dcp_state_int(broken, "step", 1));
    must_fail(dcp_state_int(broken, "step", 2), DCP_ERR_DUPLICATE, "step");
    must_fail(dcp_save(broken, path_in(state, "a"), &options), DCP_ERR_DUPLICATE,
              "the key \"step\" is in the dict already");
    assert_int_not_equal(access(path_in(state, "a"), F_OK), 0);
    dcp_state_free(broken);
    dcp_state_free(other);
}

/* ---- ranks that differ ---- */

static void without_planner(struct trial *trial, int rank)
{
    if (rank == 2)
        trial->options.planner = NULL;
}

static dcp_status plan_as_ever(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    return dcp_save_default_create_local_plan(saving, plan);
}

static dcp_status finish_as_ever(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving, (void)plan;
    return DCP_OK;
}

static void with_another_hook(struct trial *trial, int rank)
{
    if (rank == 1)
        trial->planner.finish_plan = finish_as_ever;
}

static void without_hooks(struct trial *trial, int rank)
{
    if (rank != 1)
        trial->options.planner = NULL;
    memset(&trial->planner, 0, sizeof trial->planner);
    trial->planner.size_of = sizeof trial->planner;
}

static void with_a_wrong_size(struct trial *trial, int rank)
{
    if (rank == 1)
        trial->planner.size_of = 0;
}

static void wants_the_same_hooks_on_all_ranks(void **state)
{
    struct trial trial = {.planner.create_local_plan = plan_as_ever, .change = without_planner};
    expect_failure(state, &trial, 3, DCP_ERR_ARGUMENT,
                   "rank 2 has no save planner or storage writer, unlike rank 0");
    trial.change = with_another_hook;
    expect_failure(state, &trial, 3, DCP_ERR_ARGUMENT,
                   "rank 1 has a hook finish_plan, but rank 0 has none");
    trial.change = without_hooks;
    expect_failure(state, &trial, 3, DCP_ERR_ARGUMENT,
                   "rank 1 has a save planner or storage writer, unlike rank 0");
    trial.change = with_a_wrong_size;
    expect_failure(state, &trial, 3, DCP_ERR_ARGUMENT,
                   "rank 1: size_of is 0, expected sizeof(dcp_save_planner)");
}

/* ---- nonsense ---- */

/* Calls change with each item that the default makes, and says which plan it then goes to. */
static dcp_status with_changed_items(dcp_saving *saving, dcp_save_plan *plan,
                                     void (*change)(dcp_write_item *item))
{
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_write_item item;
        status = dcp_save_plan_item(plan, i, &item);
        change(&item);
        if (status == DCP_OK)
            status = dcp_save_plan_set_item(plan, i, &item);
    }
    return status;
}

#define LOCAL_PLAN(name)                                                                           \
    static dcp_status plan_##name(void *context, dcp_saving *saving, dcp_save_plan *plan)          \
    {                                                                                              \
        (void)context;                                                                             \
        return with_changed_items(saving, plan, name);                                             \
    }

static void unknown_source(dcp_write_item *item)
{
    item->source = UINT64_C(4711) << 32;
}
LOCAL_PLAN(unknown_source)

static void unknown_name(dcp_write_item *item)
{
    item->source = 0;
    item->index.name = "who";
    item->path_length = 0;
}
LOCAL_PLAN(unknown_name)

static void no_name(dcp_write_item *item)
{
    item->index.name = NULL;
}
LOCAL_PLAN(no_name)

static void wrong_path(dcp_write_item *item)
{
    item->index.name = "other";
}
LOCAL_PLAN(wrong_path)

static void outside(dcp_write_item *item)
{
    static const int64_t offsets[] = {ROWS, 0};
    if (item->is_tensor)
        item->index.offsets = offsets;
}
LOCAL_PLAN(outside)

static void not_held(dcp_write_item *item)
{
    static const int64_t offsets[] = {0, 0}, sizes[] = {ROWS, COLUMNS};
    if (item->is_tensor) {
        item->index.offsets = offsets;
        item->sizes = sizes;
    }
}
LOCAL_PLAN(not_held)

static void hole(dcp_write_item *item)
{
    static int64_t sizes[] = {1, COLUMNS};
    if (item->is_tensor)
        item->sizes = sizes;
}
LOCAL_PLAN(hole)

static void no_dtype(dcp_write_item *item)
{
    if (item->is_tensor)
        item->dtype = (dcp_dtype)99;
}
LOCAL_PLAN(no_dtype)

static void complex_dtype(dcp_write_item *item)
{
    if (item->is_tensor)
        item->dtype = DCP_C64;
}
LOCAL_PLAN(complex_dtype)

static dcp_status plan_twice(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    return status == DCP_OK ? dcp_save_default_create_local_plan(saving, plan) : status;
}

static dcp_status resolve_nothing(void *context, dcp_saving *saving, const dcp_write_item *item,
                                  dcp_write_data *data)
{
    (void)context;
    (void)saving;
    (void)item;
    (void)data;
    return DCP_OK;
}

static dcp_status look_up_nothing(void *context, dcp_saving *saving, const dcp_write_item *item,
                                  const dcp_state **object)
{
    (void)context;
    (void)saving;
    (void)item;
    (void)object;
    return DCP_OK;
}

static dcp_status tensor_as_data(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    static float number;
    (void)context;
    dcp_tensor tensor = {.dtype = DCP_F32, .data = &number};
    dcp_state_tensor(dcp_save_plan_planner_data(plan), "t", &tensor);
    return dcp_save_default_create_local_plan(saving, plan);
}

static void refuses_nonsense_in_local_plans(void **state)
{
    const struct {
        dcp_save_planner planner;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.create_local_plan = plan_unknown_source}, DCP_ERR_ARGUMENT, "an invalid source"},
        {{.create_local_plan = plan_unknown_name}, DCP_ERR_NOT_FOUND, "\"who\" of the save plan"},
        {{.create_local_plan = plan_no_name}, DCP_ERR_ARGUMENT, "has no name in valid UTF-8"},
        {{.create_local_plan = plan_wrong_path},
         DCP_ERR_ARGUMENT,
         "joined by dots, is not its name"},
        {{.create_local_plan = plan_outside}, DCP_ERR_ARGUMENT, "is not inside its tensor"},
        {{.create_local_plan = plan_not_held},
         DCP_ERR_COVERAGE,
         "\"model.w\": no chunk of the state holds [0:12, 0:5]"},
        {{.create_local_plan = plan_hole}, DCP_ERR_COVERAGE, "no rank holds"},
        {{.create_local_plan = plan_no_dtype}, DCP_ERR_ARGUMENT, "has an invalid dtype"},
        {{.create_local_plan = plan_complex_dtype},
         DCP_ERR_DTYPE,
         "float32 in memory cannot be written as complex64"},
        {{.create_local_plan = plan_twice}, DCP_ERR_DUPLICATE, "rank 0 has two objects"},
        {{.resolve_data = resolve_nothing}, DCP_ERR_ARGUMENT, "gave no bytes to write"},
        {{.lookup_object = look_up_nothing},
         DCP_ERR_ARGUMENT,
         "hook lookup_object succeeded, but found no object"},
        {{.create_local_plan = tensor_as_data},
         DCP_ERR_UNSUPPORTED,
         "planner data of a save plan: object['t'] is a tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial trial = {.planner = cases[i].planner};
        expect_failure(state, &trial, 2, cases[i].status, cases[i].message);
    }
}

static dcp_status global_nothing(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                 int plan_count)
{
    (void)context;
    (void)saving;
    (void)plans;
    (void)plan_count;
    return DCP_OK;
}

static dcp_status global_exchange(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                  int plan_count)
{
    (void)context;
    (void)plan_count;
    dcp_write_item item;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    must(dcp_save_plan_item(plans[0], 0, &item));
    return status == DCP_OK ? dcp_save_plan_add(plans[1], &item) : status;
}

static dcp_status global_invented(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                  int plan_count)
{
    (void)context;
    dcp_write_item item = {.index.name = "invented"};
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    return status == DCP_OK ? dcp_save_plan_add(plans[1], &item) : status;
}

static dcp_status global_hole(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                              int plan_count)
{
    (void)context;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    dcp_save_plan_clear(plans[1]);
    return status;
}

static dcp_status global_few(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                             int plan_count)
{
    (void)context;
    return dcp_save_default_create_global_plan(saving, plans, plan_count - 1);
}

static void refuses_nonsense_in_global_plans(void **state)
{
    const struct {
        dcp_save_planner planner;
        bool whole;
        dcp_status status;
        const char *message;
    } cases[] = {
        {{.create_global_plan = global_nothing}, true, DCP_ERR_DUPLICATE, "would both write it"},
        {{.create_global_plan = global_exchange},
         false,
         DCP_ERR_ARGUMENT,
         "the global plan has rank 1 write [0:6, 0:5] of \"model.w\" as float32, which is not in "
         "that rank's local plan"},
        {{.create_global_plan = global_exchange}, true, DCP_ERR_DUPLICATE, "would both write it"},
        {{.create_global_plan = global_invented},
         false,
         DCP_ERR_ARGUMENT,
         "rank 1 write the object \"invented\", which is not in that rank's local plan"},
        {{.create_global_plan = global_hole},
         false,
         DCP_ERR_COVERAGE,
         "\"model.w\": no rank holds [6:12, 0:5]"},
        {{.create_global_plan = global_few}, false, DCP_ERR_ARGUMENT, "the plans are NULL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial trial = {.planner = cases[i].planner, .whole = cases[i].whole};
        expect_failure(state, &trial, 2, cases[i].status, cases[i].message);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_rank_gets_the_failure_of_a_hook),
        TEST(refuses_states_that_were_not_built_as_a_whole),
        TEST(wants_the_same_hooks_on_all_ranks),
        TEST(refuses_nonsense_in_local_plans),
        TEST(refuses_nonsense_in_global_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
