/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run is resumed from. The eight cases that MegaCpp's checkpoint manager pins, as far as one
 * place has them, are named here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "run/job_scene.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

static const int64_t three[] = {10, 20, 30};

static void expect_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in: %s", words, text);
}

/* ---- the newest whole one ---- */

/* MegaCpp: resume is exact, on another number of ranks too. */
static dcp_status resume_exactly(struct rank *self)
{
    struct job job;
    dcp_run_resumed resumed;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group, .state = job.state};
    must(dcp_run_open(self->path, &options, &job.run));
    job_save(&job, 10);
    job_save(&job, 20);
    must(dcp_run_close(job.run));
    job_train_to(&job, 77);
    must(dcp_run_open(self->path, &options, &job.run));
    must(dcp_run_resume(job.run, &resumed));
    assert_true(resumed.found && resumed.step == 20 && resumed.kind == DCP_RUN_DCP);
    job_expect(&job, 20);
    job_close(&job);
    return DCP_OK;
}

static void a_resume_is_exact(void **state)
{
    ranks_must(4, path_in(state, "run"), resume_exactly, NULL);
}

static void an_empty_run_begins_or_fails(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options fail = {.if_missing = DCP_RUN_MISSING_FAIL};
    expect_words(job_resumes(run, NULL, -1), "has nothing to resume from");
    job_resume_fails(run, &fail, DCP_ERR_NOT_FOUND, "nothing to resume from");
}

/* MegaCpp: a crash in a save leaves nothing that is taken; incomplete ones are never advertised. */
static void what_is_not_whole_is_passed_over(void **state)
{
    const char *run = path_in(state, "run");
    job_run(run, NULL, three, 3);
    scene_remove(scene_in(run, "step_30"), ".metadata");
    scene_cut(scene_in(run, "step_20"), "__0_0.distcp", 1);
    const char *line = job_resumes(run, NULL, 10);
    expect_words(line, "step_10 is the newest one to resume from");
    expect_words(line, "step_30 is not whole: no .metadata");
    expect_words(line, "step_20 is not whole: __0_0.distcp");
    expect_words(line, "the mark latest names step_30");
    job_run(run, NULL, (const int64_t[]){40}, 1);
    scene_write(scene_in(run, "step_40"), "metadata.json", "");
    expect_words(job_resumes(run, NULL, 10), "step_40 is not whole: metadata.json is no JSON");
}

/* MegaCpp: corrupt data raises; here it is remembered as well, until the step is saved again. */
static void what_did_not_load_is_remembered(void **state)
{
    const char *run = path_in(state, "run");
    size_t size;
    job_run(run, NULL, three, 3);
    unsigned char *bytes = scratch_read(scene_in(run, "step_30"), "__0_0.distcp", &size);
    const float first = 30;
    size_t at = 0;
    while (at + sizeof first < size && memcmp(bytes + at, &first, sizeof first) != 0)
        at++;
    assert_true(at + sizeof first < size);
    free(bytes);
    scratch_flip(scene_in(run, "step_30"), "__0_0.distcp", at, 1);
    expect_words(job_resumes(run, NULL, 20), "step_30 did not load");
    expect_words(job_resumes(run, NULL, 20), "step_30 did not load before");
    const dcp_run_options named = {.reference = "30"};
    job_resume_fails(run, &named, DCP_ERR_CHECKSUM, "__0_0.distcp");
    job_run(run, NULL, (const int64_t[]){30}, 1);
    job_resumes(run, NULL, 30);
}

static void nothing_loads_is_no_fresh_start(void **state)
{
    const char *run = path_in(state, "run");
    size_t size;
    job_run(run, NULL, three, 1);
    unsigned char *bytes = scratch_read(scene_in(run, "step_10"), "__0_0.distcp", &size);
    const float first = 10;
    size_t at = 0;
    while (memcmp(bytes + at, &first, sizeof first) != 0)
        at++;
    free(bytes);
    scratch_flip(scene_in(run, "step_10"), "__0_0.distcp", at, 1);
    job_resume_fails(run, NULL, DCP_ERR_CHECKSUM, "__0_0.distcp");
}

/* What does not fit is not the checkpoint's fault. */
static void another_state_is_an_error(void **state)
{
    const char *run = path_in(state, "run");
    struct job job;
    job_run(run, NULL, three, 2);
    job_make(&job, 0, 1);
    dcp_state_int(job.state, "new", 1);
    job_open(&job, run, NULL);
    must_fail(dcp_run_resume(job.run, NULL), DCP_ERR_MISSING_KEY, "new");
    job_close(&job);
    job_resumes(run, NULL, 20);
}

/* ---- class ---- */

static void save_models(const char *run, int64_t step)
{
    struct job job;
    job_make_model(&job);
    job_open(&job, run, NULL);
    job_save(&job, step);
    job_close(&job);
}

/* MegaCpp: a missing optimizer is loud, and allowed by option. */
static void models_alone_are_passed_over_aloud(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options named = {.reference = "20"};
    const dcp_run_options allowed = {.allow_missing_optimizer = true};
    struct job job;
    dcp_run_resumed resumed;
    job_run(run, NULL, three, 1);
    save_models(run, 20);
    expect_words(job_resumes(run, NULL, 10), "step_20 is a model only");
    job_resume_fails(run, &named, DCP_ERR_KIND, "model only");
    job_make(&job, 0, 1);
    job_train_to(&job, 5);
    job_log_begin();
    job_open(&job, run, &allowed);
    must(dcp_run_resume(job.run, &resumed));
    expect_words(job_log(), "has no optimizer");
    job_log_end();
    assert_int_equal(resumed.step, 20);
    assert_true(job.weights[0] == 20 && job.moments[0] == -5);
    job_close(&job);
}

/* A tree of a model and of several optimizers, each with one number. */
static dcp_state *tree_of_optimizers(bool in_a_list, int count, double value)
{
    static const char *const names[] = {"adamw", "muon", "sgd"};
    dcp_state *root = dcp_state_new();
    dcp_state *all =
        in_a_list ? dcp_state_list(root, "optimizer") : dcp_state_dict(root, "optimizer");
    dcp_state_float(dcp_state_dict(root, "model"), "w", value);
    for (int i = 0; i < count; i++)
        dcp_state_float(dcp_state_dict(all, in_a_list ? NULL : names[i]), "m", value);
    return root;
}

static double number_in(const dcp_state *node)
{
    double value = -1;
    must(dcp_state_as_float(node, &value));
    return value;
}

/* MegaCpp: a job may have made fewer optimizers than this one, which is loud, and must be allowed.
 */
static void of_several_optimizers_those_that_are_there_are_loaded(void **state)
{
    for (int in_a_list = 0; in_a_list < 2; in_a_list++) {
        const char *path = path_in(state, in_a_list ? "list" : "dict");
        dcp_run *run;
        dcp_run_options options = {.state = tree_of_optimizers(in_a_list, 1, 7)};
        must(dcp_run_open(path, &options, &run));
        must(dcp_run_save(run, 10));
        must(dcp_run_close(run));
        dcp_state_free(options.state);

        options.state = tree_of_optimizers(in_a_list, 3, 0);
        must(dcp_run_open(path, &options, &run));
        must_fail(dcp_run_resume(run, NULL), DCP_ERR_MISSING_KEY, "optimizer");
        must(dcp_run_close(run));
        options.allow_missing_optimizer = true;
        job_log_begin();
        must(dcp_run_open(path, &options, &run));
        must(dcp_run_resume(run, NULL));
        expect_words(job_log(), in_a_list ? "has not all 3 optimizers: \"optimizer.1\" begins anew"
                                          : "has not all 3 optimizers: \"optimizer.muon\" begins");
        job_log_end();
        const dcp_state *all = dcp_state_find(options.state, "optimizer");
        for (size_t i = 0; i < 3; i++)
            assert_true(number_in(dcp_state_at(dcp_state_at(all, i), 0)) == (i == 0 ? 7 : 0));
        must(dcp_run_close(run));
        dcp_state_free(options.state);
    }
}

static void flags_leave_parts_out(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options options = {.skip_optimizer = true};
    struct job job;
    job_run(run, NULL, three, 1);
    job_make(&job, 0, 1);
    job_train_to(&job, 5);
    job_open(&job, run, &options);
    must(dcp_run_resume(job.run, NULL));
    assert_true(job.weights[0] == 10 && job.moments[0] == -5 && job.step == 10);
    job_close(&job);
}

static void a_pretrained_model_starts_a_run(void **state)
{
    const char *run = path_in(state, "run"), *base = path_in(state, "base");
    char pretrained[512];
    struct job job;
    dcp_run_resumed resumed;
    job_run(base, NULL, three, 2);
    snprintf(pretrained, sizeof pretrained, "%s", scene_in(base, "step_20"));
    const dcp_run_options options = {.pretrained = pretrained};
    job_make(&job, 0, 1);
    job_train_to(&job, 5);
    job_open(&job, run, &options);
    must(dcp_run_resume(job.run, &resumed));
    assert_true(resumed.found && resumed.model_only && resumed.step == 0);
    assert_true(job.weights[0] == 20 && job.moments[0] == -5 && job.step == 5);
    job_save(&job, 7);
    job_close(&job);
    job_resumes(run, &options, 7); /* its own come first */
}

/* ---- references ---- */

/* MegaCpp: what is asked for by its path is taken, and nothing else beside it. */
static void references_are_kept(void **state)
{
    const char *run = path_in(state, "run");
    char text[512];
    job_run(run, NULL, three, 3);
    static const char *const names[] = {"20", "step_20", "latest", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        job_resumes(run, &(dcp_run_options){.reference = names[i]}, i < 2 ? 20 : 30);
    snprintf(text, sizeof text, "%s", scene_in(run, "step_10"));
    job_resumes(run, &(dcp_run_options){.reference = text}, 10);
    snprintf(text, sizeof text, "%s/./step_10/.metadata", run);
    expect_words(job_resumes(run, &(dcp_run_options){.reference = text}, 10),
                 "step_30 is later and stays");
    snprintf(text, sizeof text, "%s/", run);
    job_resumes(path_in(state, "other"), &(dcp_run_options){.reference = text}, 30);
    job_resume_fails(run, &(dcp_run_options){.reference = "25"}, DCP_ERR_NOT_FOUND, "step 25");
    job_resume_fails(run, &(dcp_run_options){.reference = "no/such"}, DCP_ERR_NOT_FOUND, "no/such");
    job_resume_fails(run, &(dcp_run_options){.reference = "20", .require_kind = "pt"}, DCP_ERR_KIND,
                     "kind dcp, not pt");
    scene_remove(scene_in(run, "step_20"), ".metadata");
    job_resume_fails(run, &(dcp_run_options){.reference = "20"}, DCP_ERR_NOT_FOUND, "not whole");
}

/* What a copy under another name says of itself counts. */
static void a_copy_under_another_name_is_not_the_latest(void **state)
{
    const char *run = path_in(state, "run");
    char command[1024];
    job_run(run, NULL, three, 2);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", scene_in(run, "step_10"),
             scene_in(run, "step_99"));
    assert_int_equal(system(command), 0);
    scene_expect(run, NULL,
                 "step_10 10 dcp whole\nstep_20 20 dcp whole latest marked\n"
                 "step_99 99 dcp whole\n");
    scene_expect_latest(run, "step_20");
    expect_words(job_resumes(run, NULL, 20), "step_99 is a copy of step 10");
    scene_remove(scene_in(run, "step_10"), ".metadata");
    scene_remove(scene_in(run, "step_20"), ".metadata");
    scene_expect_latest(run, "none of the run is whole; step_99 is a copy of step 10");
    job_resumes(run, &(dcp_run_options){.reference = "99"}, 10);
}

/* As on NFS: a rank does not see what rank 0 has seen until it has looked a few times. */
static _Thread_local int looks_in_vain;

static dcp_status open_late(void *context, const char *id, uint32_t flags, void **directory,
                            bool *created)
{
    if (strstr(id, "step_10") && looks_in_vain > 0) {
        looks_in_vain--;
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: not seen yet", id);
    }
    return dcp_storage_files()->open(context, id, flags, directory, created);
}

static dcp_status resume_late(struct rank *self)
{
    dcp_storage storage = *dcp_storage_files();
    dcp_run_resumed resumed;
    struct job job;
    storage.open = open_late;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {
        .group = self->group, .state = job.state, .storage = &storage, .visible_seconds = 30};
    must(dcp_run_open(self->path, &options, &job.run));
    looks_in_vain = self->rank == 2 ? 2 : 0;
    must(dcp_run_resume(job.run, &resumed));
    assert_int_equal(looks_in_vain, 0);
    assert_int_equal(resumed.step, 10);
    job_expect(&job, 10);
    job_close(&job);
    return DCP_OK;
}

static dcp_status save_10(struct rank *self)
{
    struct job job;
    job_make(&job, self->rank, self->size);
    const dcp_run_options options = {.group = self->group, .state = job.state};
    must(dcp_run_open(self->path, &options, &job.run));
    job_save(&job, 10);
    job_close(&job);
    return DCP_OK;
}

static void a_rank_that_sees_it_late_is_waited_for(void **state)
{
    ranks_must(3, path_in(state, "run"), save_10, NULL);
    ranks_must(3, path_in(state, "run"), resume_late, NULL);
}

/* With slashes at its end, by a link, relative; and beyond 32 bits. */
static void a_run_may_be_named_in_any_way(void **state)
{
    const int64_t large[] = {3000000000, INT64_MAX};
    char slashes[512], path[600];
    dcp_run_resumed resumed;
    struct job job;
    snprintf(slashes, sizeof slashes, "%s//", path_in(state, "run"));
    job_run(slashes, NULL, three, 3);
    job_make(&job, 0, 1);
    job_open(&job, slashes, NULL);
    must(dcp_run_resume(job.run, &resumed));
    snprintf(path, sizeof path, "%.*s/step_30", (int)strlen(slashes) - 2, slashes);
    assert_string_equal(resumed.path, path);
    job_close(&job);
    assert_int_equal(symlink("run", path_in(state, "link")), 0);
    job_run(path_in(state, "link"), NULL, large, 1);
    assert_int_equal(chdir(*state), 0);
    job_resumes("./run/.", NULL, large[0]);
    job_run("link/", NULL, large + 1, 1);
    assert_int_equal(chdir("/"), 0);
    job_resumes(path_in(state, "run"), NULL, INT64_MAX);
    job_resumes(path_in(state, "link"), &(dcp_run_options){.reference = "3000000000"}, large[0]);
}

static void the_best_is_by_its_number(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_keep keep = {.size_of = sizeof keep, .best = 1, .metric = "loss"};
    const dcp_run_options options = {.reference = "best", .keep = &keep};
    struct job job;
    job_make(&job, 0, 1);
    job_open(&job, run, NULL);
    for (int64_t step = 10; step <= 40; step += 10) {
        must(dcp_run_note(job.run, "loss", step == 20 ? 0.5 : 1.0 + 1.0 / (double)step));
        job_save(&job, step);
    }
    job_close(&job);
    job_resumes(run, &options, 20);
}

/* ---- runs that others have left ---- */

static void checkpoints_of_others_are_taken_once(void **state)
{
    const char *run = path_in(state, "run");
    const dcp_run_options named = {.identity = "mine"};
    struct job job;
    mkdir(run, 0777);
    job_make(&job, 0, 1);
    job_train_to(&job, 40);
    const dcp_save_options save = {.has_step = true, .step = 40};
    must(dcp_save(job.state, scene_in(run, "step_40"), &save));
    job_free(&job);
    expect_words(job_resumes(run, &named, -1), "step_40 does not say which run's it is");
    job_resumes(run, NULL, 40);
    job_run(run, NULL, (const int64_t[]){50}, 1);
    job_resumes(run, NULL, 50);
    /* Two of one step are no choice. */
    must(dcp_run_pin(run, "step_50", true, NULL));
    scene_remove(scene_in(run, "step_50"), ".metadata");
    char command[2048];
    snprintf(command, sizeof command, "cp -r '%s' '%s'", scene_in(run, "step_40"),
             scene_in(run, "step_0040"));
    assert_int_equal(system(command), 0);
    job_resume_fails(run, NULL, DCP_ERR_DUPLICATE, "both step 40");
}

static void replace(dcp_state *state, const char *directory, const char *name)
{
    char command[2048];
    snprintf(command, sizeof command, "rm -rf '%s'", scene_in(directory, name));
    assert_int_equal(system(command), 0);
    must(dcp_save(state, scene_in(directory, name), NULL));
}

/* Model and optimizer where a framework has them. */
static void replace_parts(int64_t step, const char *directory)
{
    struct job model, optimizer;
    job_make_model(&model);
    job_train_to(&model, step);
    replace(model.state, directory, "pytorch_model_fsdp_0");
    job_free(&model);
    job_train_to(&optimizer, step);
    optimizer.state = dcp_state_new();
    const dcp_tensor moments = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {JOB_ROWS}, .data = optimizer.moments};
    dcp_state_tensor(dcp_state_dict(optimizer.state, "optimizer"), "m", &moments);
    replace(optimizer.state, directory, "optimizer_0");
    job_free(&optimizer);
}

/* Model and optimizer in two directories, or both in one inside. */
static void checkpoints_of_several_directories_are_resumed_from(void **state)
{
    const char *run = scene_tree(state, "hf_trainer", false);
    struct job job;
    replace_parts(30, scene_in(run, "checkpoint-30"));
    job_resumes(run, NULL, 30);
    scene_remove(scene_in(run, "checkpoint-30/optimizer_0"), ".metadata");
    replace_parts(20, scene_in(run, "checkpoint-20"));
    expect_words(job_resumes(run, NULL, 20),
                 "checkpoint-30 is not whole: no optimizer_0/.metadata");
    run = scene_tree(state, "olmo_core", false);
    job_make(&job, 0, 1);
    job_train_to(&job, 20);
    replace(job.state, scene_in(run, "step20"), "model_and_optim");
    job_free(&job);
    job_resumes(run, NULL, 20);
}

static void forms_that_are_not_read_are_passed_over_by_name(void **state)
{
    const char *run = scene_tree(state, "megatron_lm", false);
    const dcp_run_options named = {.reference = "19"};
    scene_remove(scene_in(run, "iter_0000020"), ".metadata");
    scene_remove(scene_in(run, "iter_0000030"), ".metadata");
    expect_words(job_resumes(run, NULL, -1), "let Megatron-LM convert it");
    job_resume_fails(run, &named, DCP_ERR_UNSUPPORTED, "let Megatron-LM convert it");
    run = scene_tree(state, "orbax", false);
    expect_words(job_resumes(run, NULL, -1), "restore it with Orbax");
}

static void a_file_in_its_place_is_an_error_with_a_name(void **state)
{
    struct job job;
    scene_write(*state, "file", "");
    job_make(&job, 0, 1);
    const dcp_run_options options = {.state = job.state};
    must_fail(dcp_run_open(path_in(state, "file"), &options, &job.run), DCP_ERR_IO, "file");
    must_fail(dcp_run_open(path_in(state, "file/run"), &options, &job.run), DCP_ERR_IO, "file");
    job_free(&job);
}

static void runs_in_memory_resume(void **state)
{
    dcp_storage *storage;
    (void)state;
    must(dcp_storage_memory_new(&storage));
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_run_options options = {.storage = storage};
    const dcp_run_prune_options prune = {.storage = storage, .keep = &keep};
    uint64_t removed;
    job_run("job", &options, three, 3);
    scene_expect("job", storage,
                 "step_10 10 dcp whole\nstep_20 20 dcp whole\n"
                 "step_30 30 dcp whole latest marked\n");
    job_resumes("job", &options, 30);
    must(dcp_run_prune("job", &prune, &removed));
    assert_int_equal(removed, 2);
    job_resumes("job", &options, 30);
    dcp_storage_memory_free(storage);
}

/* ---- memory ---- */

static dcp_status live_once(const char *run, struct job *job)
{
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = 1};
    const dcp_run_options options = {.state = job->state, .mode = DCP_RUN_BLOCKING};
    const dcp_run_prune_options prune = {.keep = &keep};
    dcp_status status = dcp_run_open(run, &options, &job->run);
    if (status != DCP_OK)
        return status;
    status = dcp_run_resume(job->run, NULL);
    if (status == DCP_OK)
        status = dcp_run_save(job->run, job->step + 1);
    dcp_status closed = dcp_run_close(job->run);
    status = status == DCP_OK ? closed : status;
    return status == DCP_OK ? dcp_run_prune(run, &prune, NULL) : status;
}

/* Every third allocation fails in turn: that is what is told then. */
static void allocations_may_fail(void **state)
{
    const char *run = path_in(state, "run");
    struct job job;
    job_run(run, NULL, three, 1);
    job_make(&job, 0, 1);
    for (long n = 1;; n += 3) {
        failing_allocator_install(n, false);
        dcp_status status = live_once(run, &job);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %s: %s", n, dcp_status_string(status), dcp_error_message());
        job.step = job.step < 10 ? 10 : job.step;
        if (!reached)
            break;
    }
    job_free(&job);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_resume_is_exact),
        TEST(an_empty_run_begins_or_fails),
        TEST(what_is_not_whole_is_passed_over),
        TEST(what_did_not_load_is_remembered),
        TEST(nothing_loads_is_no_fresh_start),
        TEST(another_state_is_an_error),
        TEST(models_alone_are_passed_over_aloud),
        TEST(of_several_optimizers_those_that_are_there_are_loaded),
        TEST(flags_leave_parts_out),
        TEST(a_pretrained_model_starts_a_run),
        TEST(references_are_kept),
        TEST(a_rank_that_sees_it_late_is_waited_for),
        TEST(a_copy_under_another_name_is_not_the_latest),
        TEST(a_run_may_be_named_in_any_way),
        TEST(the_best_is_by_its_number),
        TEST(checkpoints_of_others_are_taken_once),
        TEST(checkpoints_of_several_directories_are_resumed_from),
        TEST(forms_that_are_not_read_are_passed_over_by_name),
        TEST(a_file_in_its_place_is_an_error_with_a_name),
        TEST(runs_in_memory_resume),
        TEST(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
