/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs in the layouts of KempnerForge and Megatron Bridge: written, listed as theirs, resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "run/job_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static const int64_t two[] = {10, 20};

static void expect_text(const char *directory, const char *name, const char *expected)
{
    size_t size;
    char *text = (char *)scratch_read(directory, name, &size);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(text, expected, size);
    free(text);
}

static dcp_status note_numbers(void *context, dcp_run *run, int64_t step)
{
    (void)context;
    must(dcp_run_note(run, "tokens_seen", (double)step * 64));
    return dcp_run_note(run, "consumed_train_samples", (double)step * 8);
}

/* What a file of torch.save holds, as JSON; freed by the caller. */
static char *read_torch(const char *path, const char *name)
{
    dcp_checkpoint *checkpoint;
    dcp_state *root = dcp_state_new();
    size_t index;
    char *text;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL));
    must(dcp_state_to_json(dcp_state_find(root, "value"), 0, &text));
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(root);
    return text;
}

static void kempnerforge_is_written_and_read(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_run_options options = {.layout = DCP_RUN_LAYOUT_KEMPNERFORGE,
                                     .before_save = note_numbers};
    const dcp_run_prune_options prune = {.keep = &keep};
    job_run(run, &options, two, 2);
    char *tokens = read_torch(scene_in(run, "step_20/train_state.pt"), "tokens_seen");
    char *step = read_torch(scene_in(run, "step_20/train_state.pt"), "step");
    assert_string_equal(tokens, "1280");
    assert_string_equal(step, "20");
    dcp_text_free(tokens);
    dcp_text_free(step);
    scene_expect(run, NULL, "step_10 10 dcp whole\nstep_20 20 dcp whole latest marked\n");
    scene_remove(scene_in(run, "step_20"), "train_state.pt");
    job_resumes(run, &options, 10);
    must(dcp_run_prune(run, &prune, NULL)); /* step_20 is not whole */
    job_resumes(run, &options, 10);
    job_run(run, &options, (const int64_t[]){20}, 1);
    must(dcp_run_prune(run, &prune, NULL));
    assert_false(scratch_exists(run, "step_10"));
    /* Without the run's file it is KempnerForge's by its contents. */
    scene_remove(run, ".dcp_run");
    dcp_run_list *list = scene_read(run, NULL);
    dcp_run_checkpoint found;
    must(dcp_run_list_checkpoint(list, 0, &found));
    assert_string_equal(found.framework, "KempnerForge");
    assert_true(found.complete && found.latest && found.marked);
    dcp_run_list_free(list);
}

/* The weights of the reference trees have other shapes: what they hold is asked for by its name. */
static void kempnerforges_own_runs_are_found(void **state)
{
    const char *run = scene_tree(state, "kempnerforge", true);
    struct job job;
    dcp_run_resumed resumed;
    const dcp_load_options load = {.strictness = DCP_STRICT_PARTIAL};
    const dcp_run_options options = {.load = &load, .allow_missing_optimizer = true};
    char expected[64];
    dcp_run_list *list = scene_read(run, NULL);
    dcp_run_checkpoint found;
    size_t index;
    must(dcp_run_list_latest(list, &index));
    must(dcp_run_list_checkpoint(list, index, &found));
    snprintf(expected, sizeof expected, "%s", found.path);
    int64_t step = found.step;
    dcp_run_list_free(list);
    job_make(&job, 0, 1);
    job_open(&job, run, &options);
    must(dcp_run_resume(job.run, &resumed));
    assert_true(resumed.found);
    assert_int_equal(resumed.step, step);
    assert_non_null(strstr(resumed.path, expected));
    job_close(&job);
}

/* Its names are a pattern, and it looks at nothing but .metadata; the keys are the caller's. */
static void torchtitan_is_written_and_read(void **state)
{
    const char *folder = scene_in(path_in(state, "dump"), "checkpoint");
    const dcp_run_options options = {.pattern = "step-{N}"};
    dcp_run_checkpoint found;
    mkdir(path_in(state, "dump"), 0777);
    job_run(folder, &options, (const int64_t[]){10, 20}, 2);
    scene_expect(
        path_in(state, "dump"), NULL,
        "checkpoint/step-10 10 dcp whole\ncheckpoint/step-20 20 dcp whole latest marked\n");
    job_resumes(folder, &options, 20);
    scene_remove(folder, ".dcp_run");
    dcp_run_list *list = scene_read(path_in(state, "dump"), NULL);
    must(dcp_run_list_checkpoint(list, 1, &found));
    assert_string_equal(found.framework, "torchtitan");
    assert_true(found.latest && found.step == 20);
    dcp_run_list_free(list);
}

static void bridge_is_written_and_read(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_extra_file config = {
        .size_of = sizeof config, .name = "run_config.yaml", .bytes = "train: {}\n", .size = 10};
    const dcp_run_options options = {.layout = DCP_RUN_LAYOUT_BRIDGE,
                                     .before_save = note_numbers,
                                     .files = &config,
                                     .file_count = 1};
    size_t size;
    job_run(run, &options, two, 2);
    scene_expect(run, NULL,
                 "iter_0000010 10 mcore whole\niter_0000020 20 mcore whole latest marked\n");
    expect_text(run, "latest_checkpointed_iteration.txt", "20");
    expect_text(scene_in(run, "iter_0000020"), "run_config.yaml", "train: {}\n");
    unsigned char *own = scratch_read(scene_in(run, "iter_0000020"), "train_state.pt", &size);
    unsigned char *latest = scratch_read(run, "latest_train_state.pt", &size);
    assert_memory_equal(own, latest, size);
    free(own);
    free(latest);
    char *metadata = (char *)scratch_read(scene_in(run, "iter_0000020"), "metadata.json", &size);
    assert_non_null(strstr(metadata, "\"sharded_backend\": \"torch_dist\""));
    free(metadata);
    job_resumes(run, &options, 20);
    /* What this library's own fields say of the save can still be read. */
    dcp_checkpoint *checkpoint;
    dcp_save_info info;
    must(dcp_checkpoint_open(scene_in(run, "iter_0000020"), NULL, &checkpoint));
    must(dcp_checkpoint_info(checkpoint, NULL, NULL, &info));
    assert_true(info.found && info.step == 20);
    dcp_checkpoint_close(checkpoint);
    scene_remove(run, ".dcp_run");
    scene_expect(run, NULL,
                 "iter_0000010 10 mcore whole\niter_0000020 20 mcore whole latest marked\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kempnerforge_is_written_and_read),
        TEST(kempnerforges_own_runs_are_found),
        TEST(torchtitan_is_written_and_read),
        TEST(bridge_is_written_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
