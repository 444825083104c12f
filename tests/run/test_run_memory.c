/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs in a storage that has no files, and lists whose every allocation fails in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "fault/failing_allocator.h"
#include "run/run_scene.h"

static void runs_in_memory_are_listed(void **state)
{
    dcp_storage *storage;
    (void)state;
    must(dcp_storage_memory_new(&storage));
    scene_save(storage, "job/checkpoints/step_1");
    scene_save(storage, "job/checkpoints/step_2");
    scene_save(storage, "job/checkpoints/step_3");
    must(dcp_storage_remove(storage, "job/checkpoints/step_3", ".metadata"));
    scene_expect("job/checkpoints", storage,
                 "step_1 1 dcp whole\nstep_2 2 dcp whole latest\nstep_3 3 dcp (no .metadata)\n");
    must(dcp_storage_remove(storage, "job/checkpoints/step_2", "__0_1.distcp"));
    scene_expect("job/checkpoints/", storage,
                 "step_1 1 dcp whole latest\nstep_2 2 dcp (__0_1.distcp is missing)\n"
                 "step_3 3 dcp (no .metadata)\n");
    dcp_storage_memory_free(storage);
}

/* What a list says, as far as it fits. */
static void summarize(const dcp_run_list *list, char *text, size_t size)
{
    snprintf(text, size, "%s", dcp_run_list_reason(list));
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        dcp_run_checkpoint found;
        size_t length = strlen(text);
        must(dcp_run_list_checkpoint(list, i, &found));
        snprintf(text + length, size - length, "%s %d %d;", found.path, found.complete,
                 found.marked);
    }
}

/* Either the list is the right one, or there is none for want of memory. */
static void fail_each_allocation(const char *run)
{
    static char right[8192], text[8192];
    dcp_run_list *list = scene_read(run, NULL);
    summarize(list, right, sizeof right);
    dcp_run_list_free(list);
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        list = NULL;
        dcp_status status = dcp_run_list_read(run, NULL, &list);
        if (status == DCP_OK)
            summarize(list, text, sizeof text);
        dcp_run_list_free(list);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (status == DCP_OK)
            assert_string_equal(text, right);
        else
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        if (!reached)
            break;
    }
}

static void every_allocation_may_fail(void **state)
{
    static const char *const trees[] = {"kempnerforge", "megatron_bridge_trackers_differ",
                                        "megatron_lm",  "deepspeed",
                                        "nanochat",     "automodel"};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        fail_each_allocation(scene_tree(state, trees[i], true));
}

static void every_allocation_of_own_checkpoints_may_fail(void **state)
{
    scene_save(NULL, scene_in(*state, "step_1"));
    scene_save(NULL, scene_in(*state, "step_2"));
    scene_cut(scene_in(*state, "step_2"), "__0_0.distcp", 1);
    fail_each_allocation(*state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(runs_in_memory_are_listed),
        TEST(every_allocation_may_fail),
        TEST(every_allocation_of_own_checkpoints_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
