/* SPDX-License-Identifier: BSD-3-Clause */
/* What each framework's checkpoints need beyond the reference trees: damage to one thing at a time,
 * and forms of which there is no tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "run/run_scene.h"
#include "storage/scratch.h"

/* One file of a whole checkpoint is changed; then it is not whole any more, for that reason. */
static const struct damage {
    const char *tree;
    const char *checkpoint;
    const char *file; /* relative to the checkpoint's folder */
    long cut;         /* bytes; -1: removed */
    const char *why;
} damages[] = {
    {"kempnerforge", "step_30", "train_state.pt", -1, "train_state.pt is missing"},
    {"kempnerforge", "step_30", "train_state.pt", 30, "train_state.pt is cut short"},
    {"kempnerforge", "step_30", "metadata.json", 2, "metadata.json is no JSON object"},
    {"kempnerforge", "step_30", "__0_0.distcp", 1, "__0_0.distcp is cut short"},
    {"kempnerforge_pp", "step_20", "pp1/.metadata", -1, "no pp1/.metadata"},
    {"kempnerforge_pp", "step_20", "pp0/__0_0.distcp", -1, "pp0/__0_0.distcp is missing"},
    {"megatron_bridge", "iter_0000030", "train_state.pt", -1, "train_state.pt is missing"},
    {"megatron_bridge", "iter_0000030", "common.pt", -1, "common.pt is missing"},
    {"megatron_bridge", "iter_0000030", "metadata.json", 1, "metadata.json is no JSON object"},
    {"megatron_bridge", "iter_0000030", "__1_1.distcp", -1, "__1_1.distcp is missing"},
    {"megatron_lm", "iter_0000019", "mp_rank_01/model_optim_rng.pt", -1, "model_optim_rng.pt"},
    {"megatron_lm", "iter_0000019", "mp_rank_00/model_optim_rng.pt", 9, "cut short"},
    {"hf_trainer", "checkpoint-30", "scheduler.pt", -1, "scheduler.pt is missing"},
    {"hf_trainer", "checkpoint-30", "rng_state_0.pth", -1, "rng_state_0.pth is missing"},
    {"hf_trainer", "checkpoint-30", "trainer_state.json", 3, "trainer_state.json is no JSON"},
    {"hf_trainer", "checkpoint-30", "pytorch_model_fsdp_0/.metadata", 9, ".metadata"},
    {"accelerate", "checkpoints/checkpoint_1", "random_states_0.pkl", -1, "random_states_0.pkl"},
    {"accelerate", "checkpoints/checkpoint_1", "scheduler.bin", -1, "scheduler.bin is missing"},
    {"accelerate", "checkpoints/checkpoint_1", "optimizer_0/.metadata", -1, "no optimizer_0/"},
    {"deepspeed", "global_step20", "mp_rank_00_model_states.pt", -1, "0 of the model's files"},
    {"deepspeed", "global_step20", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", -1,
     "1 of the optimizer's files, expected 1 model-parallel x 2"},
    {"olmo_core", "step20", ".metadata.json", 1, ".metadata.json is no JSON"},
    {"olmo_core", "step20", "train/rank0.pt", -1, "train/rank0.pt is missing"},
    {"olmo_core", "step20", "model_and_optim/.metadata", -1, "no model_and_optim/.metadata"},
    {"megacpp", "dcp_000020", "extra_state.pt", 9, "extra_state.pt is cut short"},
    {"megacpp", "dcp_000020", "../meta_000020.json", -1, "meta_000020.json is missing"},
    {"nanochat", "d4/model_000020.pt", "../optim_000020_rank1.pt", -1, "optim_000020_rank1.pt"},
    {"nanochat", "d4/model_000020.pt", "../meta_000020.json", 5, "meta_000020.json is no JSON"},
    {"nanochat", "d4/model_000020.pt", "../model_000020.pt", 50, "cut short"},
    {"litgpt", "step-00000020", "lit_model.pth", 1, "cut short"},
    {"lightning_fsdp", "epoch=0-step=20.ckpt", "meta.pt", 10, "meta.pt is cut short"},
    {"automodel", "epoch_0_step_20", "model/model.safetensors.index.json", 1, "no index"},
    {"automodel", "epoch_0_step_20", "optim/.metadata", -1, "no optim/.metadata"},
    {"orbax", "30", "state/_METADATA", -1, "state/_METADATA is missing"},
    {"litgpt", "step-00000020", "lit_model.pth", -1, "lit_model.pth is missing"},
    {"orbax", "30", "_CHECKPOINT_METADATA", 1, "_CHECKPOINT_METADATA is no JSON"},
    {"composer", "ep0-ba30", "__0_0.distcp", 1, "cut short"},
    {"torchtitan", "checkpoint/step-30", ".metadata", -1, "no .metadata"},
    {"torchtnt", "epoch_9_step_10", "__1_0.distcp", -1, "missing"},
};

static void find(const char *run, const char *path, dcp_run_list **list, dcp_run_checkpoint *found)
{
    *list = scene_read(run, NULL);
    for (size_t i = 0; i < dcp_run_list_count(*list); i++) {
        must(dcp_run_list_checkpoint(*list, i, found));
        if (strcmp(found->path, path) == 0)
            return;
    }
    fail_msg("%s is not listed", path);
}

static void expect_broken(const char *run, const struct damage *damage)
{
    dcp_run_list *list;
    dcp_run_checkpoint found;
    find(run, damage->checkpoint, &list, &found);
    if (found.complete || !strstr(found.why, damage->why))
        fail_msg("%s: %s: expected \"%s\", found \"%s\"", damage->tree, damage->file, damage->why,
                 found.why);
    assert_false(found.latest);
    dcp_run_list_free(list);
}

static void every_part_counts(void **state)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *damage = &damages[i];
        const char *run = scene_tree(state, damage->tree, false);
        const char *file = damage->file;
        char folder[600];
        snprintf(folder, sizeof folder, "%s/%s", run, damage->checkpoint);
        if (strncmp(file, "../", 3) == 0) {
            file += 3;
            *strrchr(folder, '/') = '\0';
        }
        if (damage->cut < 0)
            scene_remove(folder, file);
        else
            scene_cut(folder, file, (size_t)damage->cut);
        expect_broken(run, damage);
    }
}

/* A checkpoint without the files that tell its layout has that of its neighbours. */
static void neighbours_determine_the_layout(void **state)
{
    const char *run = scene_tree(state, "kempnerforge", false);
    scene_save(NULL, scene_in(run, "step_50"));
    mkdir(scene_in(run, "step_60"), 0777);
    scene_expect(
        run, NULL,
        "step_10 10 dcp (no .metadata)\nstep_20 20 dcp whole\nstep_30 30 dcp whole latest\n"
        "step_40 40 dcp (no .metadata) marked\nstep_50 50 dcp (train_state.pt is missing)\n"
        "step_60 60 dcp (no .metadata)\n");
    run = scene_tree(state, "megatron_bridge", false);
    scene_remove(scene_in(run, "iter_0000030"), "run_config.yaml");
    scene_remove(scene_in(run, "iter_0000030"), "train_state.pt");
    scene_expect_latest(run, "non_persistent/iter_0000021");
    run = scene_tree(state, "hf_trainer", false);
    mkdir(scene_in(run, "checkpoint-50"), 0777);
    scene_expect_latest(run, "checkpoint-30");
}

/* Trainer states of data loaders look like iterations by name. */
static void data_loaders_are_no_checkpoints(void **state)
{
    const char *run = scene_tree(state, "megatron_bridge", false);
    scene_write(scene_in(run, "iter_0000050"), "train_dataloader_dprank000.pt", "x");
    mkdir(scene_in(run, "iter_0000060"), 0777);
    scene_write(scene_in(run, "iter_0000060/mp_rank_00"), "train_dataloader_dprank000.pt", "x");
    dcp_run_list *list = scene_read(run, NULL);
    assert_int_equal(dcp_run_list_count(list), 5);
    dcp_run_list_free(list);
}

static void newer_cores_have_no_common_file(void **state)
{
    const char *run = scene_tree(state, "megatron_lm", false);
    const char *newest = scene_in(run, "iter_0000030");
    scene_remove(newest, "common.pt");
    scene_expect_latest(run, "iter_0000020");
    scene_write(newest, "metadata.json",
                "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}");
    scene_expect_latest(run, "iter_0000030");
}

static void releases_have_no_step(void **state)
{
    const char *run = scene_tree(state, "megatron_lm", false);
    assert_int_equal(rename(scene_in(run, "iter_0000030"), scene_in(run, "release")), 0);
    scene_write(run, "latest_checkpointed_iteration.txt", "release");
    scene_expect(run, NULL,
                 "release - mcore whole marked\niter_0000010 10 mcore (metadata.json is missing)\n"
                 "iter_0000019 19 megatron-legacy whole\niter_0000020 20 mcore whole latest\n");
}

static void evaluated_ones_are_newer(void **state)
{
    const char *run = scene_tree(state, "torchtnt", false);
    scene_remove(scene_in(run, "epoch_9_step_10"), ".metadata");
    scene_expect_latest(run, "epoch_2_train_step_30");
    scene_remove(scene_in(run, "epoch_2_train_step_30"), ".metadata");
    scene_expect_latest(run, "epoch_1_train_step_20_eval_step_4_val_loss=0.25");
}

static void safetensors_are_as_whole_as_their_index_says(void **state)
{
    const char *step = scene_in(*state, "step-5");
    static const char index[] = "{\"metadata\": {}, \"weight_map\": {\"a\": \"a.safetensors\"}}";
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    char file[128] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    scene_write(step, "model.safetensors.index.json", index);
    scene_expect_latest(*state, "step-5 is not whole: no safetensors files");
    scratch_write(step, "a.safetensors", file, 8 + sizeof header - 1 + 4);
    scene_expect(*state, NULL, "step-5 5 dcp whole latest\n");
    scratch_write(step, "a.safetensors", file, 8 + sizeof header - 1 + 3);
    scene_expect_latest(*state, "step-5 is not whole");
}

static void plain_sets_of_transformers_are_sets(void **state)
{
    const char *run = scene_tree(state, "hf_trainer", false);
    size_t size;
    unsigned char *torch = scratch_read(scene_in(run, "checkpoint-30"), "scheduler.pt", &size);
    const char *plain = scene_in(run, "checkpoint-100");
    scene_write(plain, "trainer_state.json", "{\"global_step\": 100}");
    scratch_write(plain, "pytorch_model.bin", torch, size);
    scratch_write(plain, "scheduler.pt", torch, size);
    scratch_write(plain, "rng_state.pth", torch, size);
    scene_expect_latest(run, "checkpoint-30");
    scratch_write(plain, "optimizer.pt", torch, size);
    scene_expect_latest(run, "checkpoint-100");
    scene_cut(plain, "pytorch_model.bin", 5);
    scene_expect_latest(run, "checkpoint-30");
    free(torch);
}

/* The last of them leaves no gap; a job that goes on with fewer has all in them. */
static void a_last_stage_may_be_missing(void **state)
{
    const char *run = scene_tree(state, "kempnerforge_pp", false);
    char command[2048];
    scene_expect_latest(run, "step_20");
    snprintf(command, sizeof command, "rm -r '%s'", scene_in(run, "step_20/pp1"));
    assert_int_equal(system(command), 0);
    scene_expect_latest(run, "step_10");
    dcp_run_list *list;
    dcp_run_checkpoint found;
    find(run, "step_20", &list, &found);
    assert_true(!found.complete && strstr(found.why, "stages are missing: it has "));
    dcp_run_list_free(list);
    /* One stage that has what two had. */
    snprintf(command, sizeof command, "rm -r '%s' && mv '%s' '%s' && mv '%s' '%s'",
             scene_in(run, "step_20/pp0"), scene_in(run, "step_10"), scene_in(*state, "two"),
             scene_in(run, "step_30"), scene_in(*state, "gone"));
    assert_int_equal(system(command), 0);
    scene_save(NULL, scene_in(run, "step_10/pp0"));
    scene_save(NULL, scene_in(run, "step_10/pp1"));
    scene_save(NULL, scene_in(run, "step_20/pp0"));
    scene_write(scene_in(run, "step_10"), "metadata.json", "{\"step\": 10, \"tokens_seen\": 1}");
    snprintf(command, sizeof command, "cp '%s' '%s'", scene_in(run, "step_20/train_state.pt"),
             scene_in(run, "step_10"));
    assert_int_equal(system(command), 0);
    scene_expect_latest(run, "step_20");
}

/* A Trainer over DeepSpeed has that one's folder in its own. */
static void transformers_over_deepspeed_is_one(void **state)
{
    const char *run = scene_tree(state, "deepspeed", false);
    const char *step = scene_in(*state, "trainer/checkpoint-20");
    mkdir(scene_in(*state, "trainer"), 0777);
    scene_write(step, "trainer_state.json", "{\"global_step\": 20}");
    scene_write(step, "rng_state_0.pth", "x");
    scene_write(step, "rng_state_1.pth", "x");
    scene_write(step, "latest", "global_step20");
    assert_int_equal(rename(scene_in(run, "global_step20"), scene_in(step, "global_step20")), 0);
    mkdir(scene_in(*state, "trainer/checkpoint-30"), 0777);
    scene_expect(scene_in(*state, "trainer"), NULL,
                 "checkpoint-20 20 deepspeed whole latest\n"
                 "checkpoint-30 30 deepspeed (global_step0 is missing)\n");
    scene_remove(scene_in(step, "global_step20"), "mp_rank_00_model_states.pt");
    scene_expect_latest(scene_in(*state, "trainer"), "0 of the model's files");
}

/* A model-parallel grid with a hole, and an optimizer that only one rank has. */
static void legacy_grids_are_full(void **state)
{
    const char *run = scene_tree(state, "megatron_lm", false);
    const char *from = scene_in(run, "iter_0000019/mp_rank_00");
    size_t size;
    unsigned char *torch = scratch_read(from, "model_optim_rng.pt", &size);
    static const char *const ranks[] = {"mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001",
                                        "mp_rank_01_001"};
    mkdir(scene_in(run, "iter_0000040"), 0777);
    for (size_t i = 0; i < 4; i++) {
        char folder[600];
        scene_expect_latest(run, "iter_0000030");
        snprintf(folder, sizeof folder, "%s/iter_0000040/%s", run, ranks[i]);
        scene_write(folder, "model_optim_rng.pt", "");
        scratch_write(folder, "model_optim_rng.pt", torch, size);
        if (i == 0) /* a grid of one rank until others come */
            scene_write(folder, "distrib_optim.pt", "");
    }
    scene_expect_latest(run, "iter_0000030");
    for (size_t i = 0; i < 4; i++) {
        char folder[600];
        snprintf(folder, sizeof folder, "%s/iter_0000040/%s", run, ranks[i]);
        scratch_write(folder, "distrib_optim.pt", torch, size);
    }
    scene_expect_latest(run, "iter_0000040");
    free(torch);
}

static void open_names(const char *path, const char *name)
{
    dcp_checkpoint *checkpoint;
    size_t index;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    dcp_checkpoint_close(checkpoint);
}

/* A model that is not divided among ranks is one file, whichever directory is named. */
static void legacy_files_of_one_rank_are_opened(void **state)
{
    const char *run = scene_tree(state, "megatron_lm", false);
    const char *step = scene_in(run, "iter_0000019");
    dcp_checkpoint *checkpoint;
    char command[2048];
    open_names(scene_in(step, "mp_rank_01"), "model.w");
    must_fail(dcp_checkpoint_open(step, NULL, &checkpoint), DCP_ERR_UNSUPPORTED,
              "of 2 ranks, which are not put together here: open mp_rank_00/model_optim_rng.pt");
    snprintf(command, sizeof command, "rm -r '%s' && mv '%s' '%s'", scene_in(step, "mp_rank_01"),
             scene_in(step, "mp_rank_00"), scene_in(step, "mp_rank_00_000"));
    assert_int_equal(system(command), 0);
    open_names(step, "model.w");
    scene_remove(scene_in(step, "mp_rank_00_000"), "model_optim_rng.pt");
    must_fail(dcp_checkpoint_open(step, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "no checkpoint");
}

/* What one rank dumped of one step is that; a directory with more in it is a run. */
static void emergency_files_of_one_step_are_opened(void **state)
{
    const char *run = scene_tree(state, "megacpp", false);
    const char *dump = scene_in(run, "emergency_step_32_1700000000");
    static const char *const others[] = {"model_000033.pt", "optim_000033_rank0.pt", "notes.txt"};
    dcp_checkpoint *checkpoint;
    scene_write(dump, "optim_000032_rank0.pt", "");
    scene_write(dump, "meta_000032.json", "{}");
    open_names(dump, "w");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        scene_write(dump, others[i], "");
        must_fail(dcp_checkpoint_open(dump, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "no checkpoint");
        scene_remove(dump, others[i]);
    }
    open_names(dump, "w");
}

/* Wherever a file of torch.save ends too early, it is noticed; other bytes do no harm. */
static void every_length_of_a_torch_file_is_tried(void **state)
{
    const char *run = scene_tree(state, "litgpt", false);
    const char *step = scene_in(run, "step-00000020");
    size_t size;
    unsigned char *torch = scratch_read(step, "lit_model.pth", &size);
    for (size_t length = 0; length < size; length += length < size - 120 ? 37 : 1) {
        scratch_write(step, "lit_model.pth", torch, length);
        scene_expect_latest(run, "step-00000010");
    }
    for (size_t at = size > 400 ? size - 400 : 0; at < size; at++) {
        torch[at] ^= 0xff;
        scratch_write(step, "lit_model.pth", torch, size);
        dcp_run_list_free(scene_read(run, NULL));
        torch[at] ^= 0xff;
    }
    free(torch);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_part_counts),
        TEST(neighbours_determine_the_layout),
        TEST(data_loaders_are_no_checkpoints),
        TEST(newer_cores_have_no_common_file),
        TEST(releases_have_no_step),
        TEST(evaluated_ones_are_newer),
        TEST(safetensors_are_as_whole_as_their_index_says),
        TEST(plain_sets_of_transformers_are_sets),
        TEST(a_last_stage_may_be_missing),
        TEST(transformers_over_deepspeed_is_one),
        TEST(legacy_grids_are_full),
        TEST(legacy_files_of_one_rank_are_opened),
        TEST(emergency_files_of_one_step_are_opened),
        TEST(every_length_of_a_torch_file_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
