/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of all known frameworks, as the reference trees have them: what is listed, and how, is what
 * their expected.json says, and what they call foreign is not listed; what is whole can be loaded,
 * or the message says whose form it is and what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "run/run_scene.h"
#include "storage/fixtures.h"

static bool flag(const cJSON *object, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static void compare(const char *tree, const cJSON *expected, const dcp_run_checkpoint *found)
{
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(expected, "step");
    if (strcmp(dcp_run_kind_name(found->kind), fixture_text(expected, "kind")) != 0 ||
        found->has_step != (bool)cJSON_IsNumber(step) ||
        (found->has_step && found->step != (int64_t)step->valuedouble) ||
        found->complete != flag(expected, "complete") ||
        found->latest != flag(expected, "latest") || found->marked != flag(expected, "marked"))
        fail_msg("%s: %s: %s, complete %d, latest %d, marked %d: %s; expected: %s", tree,
                 found->path, dcp_run_kind_name(found->kind), found->complete, found->latest,
                 found->marked, found->why, fixture_text(expected, "why"));
    assert_true(found->checked);
    assert_int_equal(found->complete, found->why[0] == '\0');
}

static const cJSON *find(const cJSON *expected, const char *path)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, expected)
    {
        if (strcmp(fixture_text(item, "path"), path) == 0 &&
            strcmp(fixture_text(item, "kind"), "foreign") != 0)
            return item;
    }
    return NULL;
}

static void try_tree(void *const *state, const char *tree, bool links)
{
    char name[256];
    const char *latest = NULL;
    size_t count = 0;
    snprintf(name, sizeof name, "runs/%s/expected.json", tree);
    cJSON *expected = fixture_json(name);
    const char *run = scene_tree(state, tree, links);
    dcp_run_list *list = scene_read(run, NULL);
    const cJSON *item;
    cJSON_ArrayForEach(item, expected)
    {
        count += strcmp(fixture_text(item, "kind"), "foreign") != 0;
        latest = flag(item, "latest") ? fixture_text(item, "path") : latest;
    }
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        dcp_run_checkpoint found;
        must(dcp_run_list_checkpoint(list, i, &found));
        item = find(expected, found.path);
        if (!item)
            fail_msg("%s: %s is no checkpoint", tree, found.path);
        compare(tree, item, &found);
    }
    assert_int_equal(dcp_run_list_count(list), count);
    dcp_run_list_free(list);
    scene_expect_latest(run, latest);
    cJSON_Delete(expected);
}

/* Forms that are refused, and words of the message. */
static const struct refused {
    const char *tree, *path;
    const char *why;
} refused[] = {
    {"megatron_lm", "iter_0000019", "let Megatron-LM convert it"},
    {"orbax", "10", "restore it with Orbax"},
    {"orbax", "20", "restore it with Orbax"},
    {"orbax", "30", "restore it with Orbax"},
};

static void load(const char *run, const char *tree, const dcp_run_checkpoint *found)
{
    const char *path = scene_in(run, found->path);
    dcp_checkpoint *checkpoint;
    uint64_t faults;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i].tree, tree) == 0 && strcmp(refused[i].path, found->path) == 0) {
            must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_UNSUPPORTED,
                      refused[i].why);
            return;
        }
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    if (dcp_checkpoint_count(checkpoint) == 0)
        fail_msg("%s: %s holds nothing", tree, found->path);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(path, &(dcp_open_options){0}, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static size_t load_tree(void *const *state, const char *tree)
{
    const char *run = scene_tree(state, tree, false);
    dcp_run_list *list = scene_read(run, NULL);
    size_t loaded = 0;
    for (size_t i = 0; i < dcp_run_list_count(list); i++) {
        dcp_run_checkpoint found;
        must(dcp_run_list_checkpoint(list, i, &found));
        if (!found.complete || found.kind == DCP_RUN_LINK)
            continue;
        load(run, tree, &found);
        loaded++;
    }
    dcp_run_list_free(list);
    return loaded;
}

static void what_is_whole_is_loaded_or_refused_by_its_name(void **state)
{
    cJSON *index = fixture_json("runs/index.json");
    const cJSON *tree;
    cJSON_ArrayForEach(tree, cJSON_GetObjectItemCaseSensitive(index, "trees"))
    {
        assert_true(load_tree(state, tree->string) > 0);
    }
    cJSON_Delete(index);
}

static void try_trees(void *const *state, bool links)
{
    cJSON *index = fixture_json("runs/index.json");
    const cJSON *tree;
    int count = 0;
    cJSON_ArrayForEach(tree, cJSON_GetObjectItemCaseSensitive(index, "trees"))
    {
        try_tree(state, tree->string, links);
        count++;
    }
    assert_int_equal(count, 22);
    cJSON_Delete(index);
}

static void trees_are_listed_as_expected(void **state)
{
    try_trees(state, false);
}

static void links_are_as_good_as_texts(void **state)
{
    try_trees(state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trees_are_listed_as_expected, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(what_is_whole_is_loaded_or_refused_by_its_name,
                                        directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(links_are_as_good_as_texts, directory_setup,
                                        directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
