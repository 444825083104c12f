/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of other frameworks are pruned if their layout is named, and only then: what stays, and that
 * an interrupted removal never looks whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static const dcp_run_keep last = {.size_of = sizeof last, .last = 1};

/* Lines "VERDICT NAME". */
static void note(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    char *text = context;
    size_t length = strlen(text);
    assert_true(*why || verdict == DCP_RUN_LEFT);
    snprintf(text + length, 4096 - length, "%s %s\n",
             verdict == DCP_RUN_KEPT      ? "keep"
             : verdict == DCP_RUN_REMOVED ? "remove"
                                          : "leave",
             name);
}

/* Prunes to the last one, first dry, and compares what became of each. */
static void expect(const char *run, const char *layout, const char *verdicts)
{
    for (int dry = 1; dry >= 0; dry--) {
        char text[4096] = "";
        const dcp_run_prune_options options = {.keep = &last,
                                               .layout = layout,
                                               .dry_run = dry,
                                               .verdict = note,
                                               .verdict_context = text};
        must(dcp_run_prune(run, &options, NULL));
        assert_string_equal(text, verdicts);
    }
}

static bool is_there(const char *run, const char *name)
{
    return access(scene_in(run, name), F_OK) == 0;
}

static void others_are_pruned_when_named(void **state)
{
    const char *run = scene_tree(state, "torchtitan", false);
    must_fail(dcp_run_prune(run, &(dcp_run_prune_options){.keep = &last}, NULL), DCP_ERR_NOT_FOUND,
              "holds no run");
    must_fail(
        dcp_run_prune(run, &(dcp_run_prune_options){.keep = &last, .layout = "torchtitanic"}, NULL),
        DCP_ERR_ARGUMENT, "is no layout: expected one of");
    expect(run, "KempnerForge", "");
    expect(run, "torchtitan",
           "remove checkpoint/step-10\nremove checkpoint/step-20\nkeep checkpoint/step-30\n"
           "leave checkpoint/step-40\n");
    scene_expect_latest(run, "checkpoint/step-30");
    assert_false(is_there(run, "checkpoint/step-20"));
    assert_true(is_there(run, "checkpoint/old-step-50") && is_there(run, "checkpoint/notes.txt"));
}

static void all_layouts_keep_their_newest(void **state)
{
    static const struct {
        const char *tree, *layout, *latest;
    } cases[] = {{"kempnerforge", "kempner-forge", "step_30"},
                 {"megatron_bridge", "Megatron Bridge", "iter_0000030"},
                 {"megatron_lm", "megatron_core", "iter_0000030"},
                 {"hf_trainer", "Transformers", "checkpoint-30"},
                 {"lightning", "lightning", "epoch=0-step=30.ckpt"},
                 {"torchtnt", "torchtnt", "epoch_9_step_10"},
                 {"deepspeed", "deepspeed", "global_step20"},
                 {"olmo_core", "olmo-core", "step20"},
                 {"megacpp", "megacpp", "dcp_000020"},
                 {"nanochat", "nanochat", "d4/model_000020.pt"},
                 {"litgpt", "litgpt", "step-00000020"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *run = scene_tree(state, cases[i].tree, false);
        const dcp_run_prune_options options = {.keep = &last, .layout = cases[i].layout};
        uint64_t removed;
        must(dcp_run_prune(run, &options, &removed));
        assert_true(removed > 0);
        scene_expect_latest(run, cases[i].latest);
        must(dcp_run_prune(run, &options, &removed));
        assert_int_equal(removed, 0);
    }
}

/* What is named in other ways than by the framework's mark, and what shares a step's files. */
static void named_ones_stay(void **state)
{
    const char *run = scene_tree(state, "megacpp", false);
    expect(run, "megacpp",
           "remove dist_ckpt_000009\nremove dcp_000010\nleave model_000020.pt\nkeep dcp_000020\n"
           "leave dcp_000030\n");
    assert_true(is_there(run, "meta_000020.json") && !is_there(run, "meta_000010.json"));
    run = scene_tree(state, "automodel", false);
    expect(run, "NeMo AutoModel",
           "keep epoch_0_step_10\nkeep epoch_0_step_20\nleave epoch_0_step_30\n");
    run = scene_tree(state, "kempnerforge", false);
    assert_int_equal(symlink("step_20", scene_in(run, "best")), 0);
    expect(run, "kempnerforge", "remove step_10\nkeep step_20\nkeep step_30\nleave step_40\n");
}

/* Runs of dcp/run.h say whose checkpoints are; what a save may be writing has an owner. */
static void our_own_are_protected(void **state)
{
    const char *run = scene_in(*state, "ours");
    const dcp_run_prune_options options = {.keep = &last, .layout = "dcp"};
    for (int step = 1; step <= 3; step++) {
        char name[16];
        snprintf(name, sizeof name, "ours/step_%d", step);
        scene_save(NULL, scene_in(*state, name));
    }
    scene_write(scene_in(run, "step_2"), ".dcp_owner", "torn");
    scene_remove(scene_in(run, "step_2"), ".metadata");
    expect(run, "dcp", "remove step_1\nleave step_2\nkeep step_3\n");
    scene_write(run, ".dcp_run",
                "dcp run 1\nidentity: mine\npattern: step_{N}\nlayout: kempnerforge\n");
    must_fail(dcp_run_prune(run, &options, NULL), DCP_ERR_KIND, "pruned without a layout");
}

static void links_are_not_followed(void **state)
{
    const char *run = scene_tree(state, "olmo_core", false);
    const char *outside = scene_in(*state, "outside");
    scene_write(outside, "kept", "x");
    assert_int_equal(symlink(outside, scene_in(run, "step0/train/outside")), 0);
    assert_int_equal(symlink(outside, scene_in(run, "step10/outside")), 0);
    expect(run, "olmo-core", "remove step0\nremove step10\nkeep step20\nleave step30\n");
    assert_true(is_there(outside, "kept"));
    assert_false(is_there(run, "step0"));
}

/* ---- interrupted removals ---- */

static int removals_left;

static dcp_status remove_some(void *context, void *directory, const char *name)
{
    if (removals_left-- <= 0)
        return dcp_error_set(DCP_ERR_IO, "no more is removed");
    return dcp_storage_files()->remove(context, directory, name);
}

static void an_interrupted_removal_never_looks_whole(void **state)
{
    static const struct {
        const char *tree, *layout, *gone, *latest;
    } cases[] = {{"kempnerforge_pp", "kempnerforge", "step_10", "step_20"},
                 {"olmo_core", "olmo-core", "step0", "step20"},
                 {"hf_trainer", "transformers", "checkpoint-20", "checkpoint-30"},
                 {"megatron_bridge", "megatron-bridge", "iter_0000010", "iter_0000030"}};
    dcp_storage storage = *dcp_storage_files();
    storage.remove = remove_some;
    const char *run;
    dcp_run_checkpoint found;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_status status = DCP_ERR_IO;
        for (int n = 1; status != DCP_OK; n++) {
            run = scene_tree(state, cases[i].tree, false);
            unlink(scene_in(run, "latest"));
            if (i == 2)
                must(dcp_run_prune(run, &(dcp_run_prune_options){.layout = "transformers"}, NULL));
            const dcp_run_prune_options options = {
                .storage = &storage, .keep = &last, .layout = cases[i].layout};
            removals_left = n;
            status = dcp_run_prune(run, &options, NULL);
            dcp_run_list *list = scene_read(run, NULL);
            for (size_t c = 0; c < dcp_run_list_count(list); c++) {
                must(dcp_run_list_checkpoint(list, c, &found));
                if (strcmp(found.path, cases[i].gone) == 0)
                    assert_false(found.complete);
            }
            dcp_run_list_free(list);
            scene_expect_latest(run, cases[i].latest);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(others_are_pruned_when_named),
        TEST(all_layouts_keep_their_newest),
        TEST(named_ones_stay),
        TEST(links_are_not_followed),
        TEST(our_own_are_protected),
        TEST(an_interrupted_removal_never_looks_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
