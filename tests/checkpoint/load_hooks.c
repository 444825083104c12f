/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load_hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void note(struct job *job, const char *call)
{
    size_t used = strlen(job->calls);
    snprintf(job->calls + used, sizeof job->calls - used, "%s ", call);
}

static dcp_status body(struct rank *self)
{
    const struct test *test = self->context;
    struct scene scene;
    struct job job = {.self = self, .scene = &scene, .choice = test->choice};
    dcp_load_planner planner = test->planner;
    dcp_storage_reader reader = test->reader;
    dcp_load_options options = test->options;
    planner.size_of = sizeof planner;
    reader.size_of = sizeof reader;
    planner.context = reader.context = &job;
    options.group = self->group;
    options.planner = &planner;
    options.storage_reader = &reader;
    scene_init(&scene, self, test->no_memory);
    dcp_status status = dcp_load(scene.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = test->check ? test->check(&job) : scene_check(&scene);
    for (int i = 0; i < job.used; i++)
        free(job.memory[i]);
    scene_free(&scene);
    return status;
}

void load_must(void **state, struct test test)
{
    ranks_must(2, path_in(state, "c"), body, &test);
}

void load_must_fail(void **state, const struct test *test, dcp_status expected, const char *message)
{
    struct rank ranks[RANKS_MAX];
    struct test copy = *test;
    ranks_run(ranks, 2, path_in(state, "c"), body, &copy);
    for (int r = 0; r < 2; r++)
        if (ranks[r].status != expected || !strstr(ranks[r].message, message))
            fail_msg("rank %d: %s: \"%s\" does not say \"%s\"", r,
                     dcp_status_string(ranks[r].status), ranks[r].message, message);
}

static dcp_status noting_set_up(void *context, dcp_loading *loading, dcp_state *tree,
                                const dcp_checkpoint *metadata, bool is_coordinator)
{
    note(context, is_coordinator ? "set_up!" : "set_up");
    if (dcp_checkpoint_count(metadata) != 4)
        return dcp_error_set(DCP_ERR_INTERNAL, "the metadata has not 4 entries");
    return dcp_load_default_set_up_planner(loading, tree);
}

static dcp_status noting_local(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    note(context, "local");
    return dcp_load_default_create_local_plan(loading, plan);
}

static dcp_status noting_global(void *context, dcp_loading *loading, dcp_load_plan *const *plans,
                                int count)
{
    char text[64];
    (void)loading;
    snprintf(text, sizeof text, "global(%d:%zu,%zu)", count, dcp_load_plan_count(plans[0]),
             dcp_load_plan_count(plans[1]));
    note(context, text);
    return DCP_OK;
}

static dcp_status noting_finish(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)loading;
    (void)plan;
    note(context, "finish");
    return DCP_OK;
}

static dcp_status noting_resolve_bytes(void *context, dcp_loading *loading,
                                       const dcp_read_item *item, size_t size, void **bytes)
{
    note(context, "resolve_bytes");
    return dcp_load_default_resolve_bytes(loading, item, size, bytes);
}

static dcp_status noting_load_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                                    const void *bytes, size_t size)
{
    note(context, "load_bytes");
    return dcp_load_default_load_bytes(loading, item, bytes, size);
}

static dcp_status noting_resolve(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 dcp_tensor *tensor)
{
    note(context, "resolve");
    return dcp_load_default_resolve_tensor(loading, item, tensor);
}

static dcp_status noting_lookup(void *context, dcp_loading *loading, const dcp_read_item *item,
                                dcp_tensor *tensor)
{
    note(context, "lookup");
    return dcp_load_default_lookup_tensor(loading, item, tensor);
}

static dcp_status noting_transform(void *context, dcp_loading *loading, const dcp_read_item *item,
                                   dcp_tensor *tensor)
{
    note(context, "transform");
    return dcp_load_default_transform_tensor(loading, item, tensor);
}

static dcp_status noting_commit(void *context, dcp_loading *loading, const dcp_read_item *item,
                                const dcp_tensor *tensor)
{
    (void)loading;
    (void)item;
    (void)tensor;
    note(context, "commit");
    return DCP_OK;
}

static dcp_status noting_reset(void *context, const char *id)
{
    note(context, *id ? "reset" : "reset?");
    return DCP_OK;
}

static dcp_status noting_storage(void *context, dcp_loading *loading,
                                 const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)loading;
    (void)metadata;
    note(context, is_coordinator ? "storage!" : "storage");
    return DCP_OK;
}

static dcp_status noting_prepare(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)loading;
    (void)plan;
    note(context, "prepare");
    return DCP_OK;
}

static dcp_status noting_prepare_global(void *context, dcp_loading *loading,
                                        dcp_load_plan *const *plans, int count)
{
    (void)loading;
    (void)plans;
    (void)count;
    note(context, "prepare_global");
    return DCP_OK;
}

static dcp_status noting_read(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)plan;
    note(context, "read");
    return dcp_load_default_read_data(loading);
}

#define TENSOR "resolve lookup transform commit "
#define OBJECT "resolve_bytes load_bytes "

static dcp_status check_sequence(struct job *job)
{
    const char *first = job->self->rank == 0 ? "reset set_up! storage! local prepare global(2:5,5) "
                                               "prepare_global finish read "
                                             : "reset set_up storage local prepare finish read ";
    const char *rest = job->calls + strlen(first);
    if (strncmp(job->calls, first, strlen(first)) != 0)
        return dcp_error_set(DCP_ERR_INTERNAL, "calls were: %s", job->calls);
    int tensors = 0, objects = 0;
    while (*rest) {
        bool tensor = strncmp(rest, TENSOR, strlen(TENSOR)) == 0;
        if (!tensor && strncmp(rest, OBJECT, strlen(OBJECT)) != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "calls were: %s", job->calls);
        tensors += tensor;
        objects += !tensor;
        rest += strlen(tensor ? TENSOR : OBJECT);
    }
    if (objects != 2 || tensors != 3)
        return dcp_error_set(DCP_ERR_INTERNAL, "%d tensors, %d objects", tensors, objects);
    return scene_check(job->scene);
}

const struct test noting = {
    .planner = {.set_up_planner = noting_set_up,
                .create_local_plan = noting_local,
                .create_global_plan = noting_global,
                .finish_plan = noting_finish,
                .load_bytes = noting_load_bytes,
                .resolve_bytes = noting_resolve_bytes,
                .resolve_tensor = noting_resolve,
                .commit_tensor = noting_commit,
                .lookup_tensor = noting_lookup,
                .transform_tensor = noting_transform},
    .reader = {.reset = noting_reset,
               .set_up_storage_reader = noting_storage,
               .prepare_local_plan = noting_prepare,
               .prepare_global_plan = noting_prepare_global,
               .read_data = noting_read},
    .check = check_sequence,
};

dcp_status tagging_local(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    struct job *job = context;
    dcp_state *data = dcp_load_plan_planner_data(plan);
    if (!data)
        return DCP_ERR_NO_MEMORY;
    RETURN_UNLESS_OK(dcp_state_int(data, "rank", job->self->rank));
    return dcp_load_default_create_local_plan(loading, plan);
}

dcp_status reversing_global(void *context, dcp_loading *loading, dcp_load_plan *const *plans,
                            int count)
{
    (void)context;
    (void)loading;
    for (int r = 0; r < count; r++) {
        int64_t rank = -1;
        dcp_read_item items[16];
        size_t items_count = dcp_load_plan_count(plans[r]);
        dcp_state *data = dcp_load_plan_planner_data(plans[r]);
        dcp_state_as_int(dcp_state_find(data, "rank"), &rank);
        if (rank != r)
            return dcp_error_set(DCP_ERR_INTERNAL, "plan %d is of rank %d", r, (int)rank);
        for (size_t i = 0; i < items_count; i++)
            RETURN_UNLESS_OK(dcp_load_plan_item(plans[r], i, &items[i]));
        dcp_load_plan_clear(plans[r]);
        while (items_count-- > 0)
            RETURN_UNLESS_OK(dcp_load_plan_add(plans[r], &items[items_count]));
        RETURN_UNLESS_OK(dcp_state_string(data, "sent", "yes"));
    }
    return DCP_OK;
}

dcp_status forgetful_local(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context;
    RETURN_UNLESS_OK(dcp_load_default_create_local_plan(loading, plan));
    dcp_load_plan_clear(plan);
    return DCP_OK;
}

int scene_setup(void **state)
{
    if (directory_setup(state) != 0)
        return -1;
    ranks_must(2, path_in(state, "c"), scene_save, NULL);
    return 0;
}
