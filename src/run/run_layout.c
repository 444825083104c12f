/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables, from the frameworks' sources as of 2026: torchtitan 0.3.0, KempnerForge 5666d0d,
 * Megatron Core 0.16.1, Megatron-Bridge 0.3.1 to 0.7, NeMo 2 (8cfedd7), Lightning 2.6.6, NeMo
 * AutoModel, TorchTNT b83990d, Transformers 5.23, Accelerate 1.15, Composer 6405188, DeepSpeed
 * edaa722, OLMo-core, MegaCpp, Orbax 3ff7b24, nanochat 92d63d4, litgpt 2685705. */
#include "run/run_layout.h"

/* What a save of DCP leaves, however far it came. */
#define DCP_TRACES ".metadata .metadata.tmp* __* pp# .dcp_owner*"

/* Up to Core 0.16 what is not sharded has a file of its own, as the JSON says. */
#define MCORE_NEEDS                                                                                \
    {.kind = RUN_NEED_JSON, .path = "metadata.json", .key = "sharded_backend"},                    \
        {.kind = RUN_NEED_DCP, .path = ""},                                                        \
    {                                                                                              \
        .kind = RUN_NEED_TORCH, .path = "common.pt", .when = "metadata.json:common_backend"        \
    }

#define MCORE_IN_WEIGHTS_NEEDS                                                                     \
    {.kind = RUN_NEED_JSON, .path = "weights/metadata.json", .key = "sharded_backend"},            \
        {.kind = RUN_NEED_DCP, .path = "weights"},                                                 \
    {                                                                                              \
        .kind = RUN_NEED_TORCH, .path = "weights/common.pt",                                       \
        .when = "weights/metadata.json:common_backend"                                             \
    }

#define TRANSFORMERS_NEEDS                                                                         \
    {.kind = RUN_NEED_DCP, .path = "pytorch_model_fsdp_#", .or_next = true},                       \
        {.kind = RUN_NEED_TORCH, .path = "pytorch_model*.bin", .or_next = true},                   \
        {.kind = RUN_NEED_WEIGHTS, .path = ""},                                                    \
        {.kind = RUN_NEED_DCP, .path = "optimizer_#", .or_next = true},                            \
    {                                                                                              \
        .kind = RUN_NEED_TORCH, .path = "optimizer.pt optimizer*.bin"                              \
    }

#define TRAINER_NEEDS                                                                              \
    TRANSFORMERS_NEEDS, {.kind = RUN_NEED_TORCH, .path = "scheduler.pt"},                          \
        {.kind = RUN_NEED_RANKS, .path = "rng_state_#.pth rng_state.pth"},                         \
    {                                                                                              \
        .kind = RUN_NEED_JSON, .path = "trainer_state.json", .key = "global_step"                  \
    }

/* Which of the last ones there are depends on what the job has prepared. */
#define ACCELERATE_NEEDS                                                                           \
    TRANSFORMERS_NEEDS, {.kind = RUN_NEED_RANKS, .path = "random_states_#.pkl"},                   \
        {.kind = RUN_NEED_TORCH, .path = "scheduler.bin", .as_next = true},                        \
    {                                                                                              \
        .kind = RUN_NEED_FILE, .path = "sampler.bin", .as_next = true                              \
    }

#define FSDP_SIGNS "pytorch_model_fsdp_# optimizer_#"
#define PLAIN_SIGNS                                                                                \
    "*.safetensors *.safetensors.index.json pytorch_model*.bin optimizer*.pt optimizer*.bin"
#define TRAINER_TRACES                                                                             \
    "rng_state* scheduler.pt scaler.pt trainer_state.json training_args.bin config.json "          \
    "generation_config.json tokenizer* adapter_config.json"
#define ACCELERATE_TRACES                                                                          \
    "random_states_#.pkl scheduler*.bin sampler*.bin dl_state_dict*.bin scaler.pt "                \
    "custom_checkpoint_#.pkl"

const struct run_layout run_layouts[] = {
    {.framework = "Orbax",
     .kind = DCP_RUN_ORBAX,
     .names = "# *_#",
     .signs = "_CHECKPOINT_METADATA commit_success.txt */_METADATA */manifest.ocdbt",
     .needs = {{.kind = RUN_NEED_JSON, .path = "_CHECKPOINT_METADATA", .optional = true},
               {.kind = RUN_NEED_FILE, .path = "commit_success.txt", .far = true},
               {.kind = RUN_NEED_FILE, .path = "state/_METADATA", .as_next = true},
               {.kind = RUN_NEED_FILE, .path = "default/_METADATA", .as_next = true},
               {.kind = RUN_NEED_FILE, .path = "params/_METADATA", .as_next = true}}},
    {.framework = "litgpt",
     .kind = DCP_RUN_PT,
     .names = "step-########",
     .signs = "lit_model.pth",
     .traces = "model_config.yaml hyperparameters.yaml tokenizer*",
     .shares = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = "lit_model.pth"}}},
    {.framework = "litgpt",
     .kind = DCP_RUN_PT,
     .names = "final",
     .signs = "lit_model.pth",
     .never_latest = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = "lit_model.pth"}}},
    {.framework = "torchtitan",
     .kind = DCP_RUN_DCP_PART,
     .names = "step-#",
     .folder = "ft-replicat-*",
     .traces = DCP_TRACES,
     .never_latest = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""}}},
    {.framework = "torchtitan",
     .kind = DCP_RUN_DCP,
     .names = "step-#",
     .traces = DCP_TRACES " sharded *.safetensors *.safetensors.index.json",
     .needs = {{.kind = RUN_NEED_DCP, .path = "", .or_next = true},
               {.kind = RUN_NEED_WEIGHTS, .path = ""}}},
    {.framework = "KempnerForge",
     .kind = DCP_RUN_DCP,
     .names = "step_#",
     .signs = "train_state.pt metadata.json:tokens_seen",
     .shares = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""},
               {.kind = RUN_NEED_TORCH, .path = "train_state.pt"},
               {.kind = RUN_NEED_JSON, .path = "metadata.json", .key = "step", .optional = true}}},
    /* Before the row of usual saves, which is the last one of its name. */
    {.framework = "dcp",
     .kind = DCP_RUN_EMERGENCY,
     .names = "emergency_step_#_%",
     .signs = "__*.metadata",
     .never_latest = true,
     .needs = {{.kind = RUN_NEED_FILE, .path = "__*.metadata"}}},
    {.framework = "dcp",
     .kind = DCP_RUN_DCP,
     .names = "step_#",
     .traces = DCP_TRACES " metadata.json",
     .needs = {{.kind = RUN_NEED_DCP, .path = ""},
               {.kind = RUN_NEED_JSON, .path = "metadata.json", .optional = true}}},
    {.framework = "OLMo-core",
     .kind = DCP_RUN_DCP,
     .names = "step#",
     .traces = "model_and_optim train .metadata.json",
     .needs = {{.kind = RUN_NEED_JSON, .path = ".metadata.json"},
               {.kind = RUN_NEED_DCP, .path = "model_and_optim"},
               {.kind = RUN_NEED_TORCH, .path = "train/rank0.pt"}}},
    {.framework = "Megatron-LM",
     .kind = DCP_RUN_MEGATRON_LEGACY,
     .names = "iter_####### release",
     .signs = "mp_rank_*/model_optim_rng.pt mp_rank_*/distrib_optim.pt",
     .needs = {{.kind = RUN_NEED_MODEL_PARALLEL, .path = ""}}},
    {.framework = "Megatron-Bridge",
     .kind = DCP_RUN_MCORE,
     .names = "iter_#######",
     .signs = "train_state.pt run_config.yaml",
     .beside = "latest_train_state.pt",
     .shares = true,
     .needs = {MCORE_NEEDS, {.kind = RUN_NEED_TORCH, .path = "train_state.pt"}}},
    {.framework = "Megatron Core",
     .kind = DCP_RUN_MCORE,
     .names = "iter_####### release",
     .traces = DCP_TRACES " common.pt metadata.json modelopt_state hf tokenizer",
     .needs = {MCORE_NEEDS}},
    {.framework = "NeMo",
     .kind = DCP_RUN_MCORE,
     .names = "*-step=#-consumed_samples=*",
     .not_names = "*-unfinished *-last",
     .traces = "weights context",
     .free_names = true,
     .first_step = 1,
     .needs = {{.kind = RUN_NEED_ABSENT, .path = "&-unfinished", .beside = true},
               MCORE_IN_WEIGHTS_NEEDS}},
    {.framework = "NeMo",
     .kind = DCP_RUN_MCORE,
     .names = "*-step=#-consumed_samples=*-last",
     .traces = "weights context",
     .marks_itself = true,
     .free_names = true,
     .first_step = 1,
     .needs = {{.kind = RUN_NEED_ABSENT, .path = "&-unfinished", .beside = true},
               MCORE_IN_WEIGHTS_NEEDS}},
    {.framework = "Lightning",
     .kind = DCP_RUN_DCP,
     .names = "*step=#[-v~].ckpt *step=#-*[-v~].ckpt",
     .traces = DCP_TRACES " meta.pt",
     .free_names = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""}, {.kind = RUN_NEED_TORCH, .path = "meta.pt"}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_DCP,
     .names = "last[-v~].ckpt",
     .traces = DCP_TRACES " meta.pt",
     .marks_itself = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""}, {.kind = RUN_NEED_TORCH, .path = "meta.pt"}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_PT,
     .names = "*step=#[-v~].ckpt *step=#-*[-v~].ckpt",
     .is_file = true,
     .free_names = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = ""}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_PT,
     .names = "last[-v~].ckpt",
     .is_file = true,
     .marks_itself = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = ""}}},
    {.framework = "NeMo AutoModel",
     .kind = DCP_RUN_AUTOMODEL,
     .names = "epoch_%_step_#",
     .signs = "model optim",
     .shares = true,
     .needs = {{.kind = RUN_NEED_ABSENT, .path = "*incomplete* *INCOMPLETE* *unfinished*"},
               {.kind = RUN_NEED_WEIGHTS, .path = "model"},
               {.kind = RUN_NEED_DCP, .path = "optim"}}},
    {.framework = "TorchTNT",
     .kind = DCP_RUN_DCP,
     .names = "epoch_@[_train]_step_#[_eval_step_!][_predict_step_%][_*=^] "
              "epoch_@_eval_step_#[_predict_step_%][_*=^] epoch_@_predict_step_#[_*=^]",
     .traces = DCP_TRACES,
     .free_names = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""}}},
    {.framework = "Transformers",
     .kind = DCP_RUN_DEEPSPEED,
     .names = "checkpoint-#",
     .signs = "global_step#",
     .shares = true,
     .needs = {{.kind = RUN_NEED_ZERO, .path = "global_step#"},
               {.kind = RUN_NEED_TORCH, .path = "scheduler.pt", .as_next = true},
               {.kind = RUN_NEED_RANKS, .path = "rng_state_#.pth rng_state.pth"},
               {.kind = RUN_NEED_JSON, .path = "trainer_state.json", .key = "global_step"}}},
    {.framework = "Transformers",
     .kind = DCP_RUN_HF_FSDP,
     .names = "checkpoint-#",
     .signs = FSDP_SIGNS,
     .traces = TRAINER_TRACES,
     .shares = true,
     .needs = {TRAINER_NEEDS}},
    {.framework = "Transformers",
     .kind = DCP_RUN_PT_SET,
     .names = "checkpoint-#",
     .signs = PLAIN_SIGNS,
     .shares = true,
     .needs = {TRAINER_NEEDS}},
    {.framework = "Accelerate",
     .kind = DCP_RUN_HF_FSDP,
     .names = "checkpoint_#",
     .signs = FSDP_SIGNS,
     .traces = ACCELERATE_TRACES,
     .shares = true,
     .needs = {ACCELERATE_NEEDS}},
    {.framework = "Accelerate",
     .kind = DCP_RUN_PT_SET,
     .names = "checkpoint_#",
     .signs = PLAIN_SIGNS,
     .shares = true,
     .needs = {ACCELERATE_NEEDS}},
    {.framework = "Composer",
     .kind = DCP_RUN_DCP,
     .names = "ep%-ba#",
     .traces = DCP_TRACES,
     .needs = {{.kind = RUN_NEED_DCP, .path = ""}}},
    {.framework = "Composer",
     .kind = DCP_RUN_PT,
     .names = "ep%-ba#-rank0.pt",
     .is_file = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = ""}}},
    {.framework = "DeepSpeed",
     .kind = DCP_RUN_DEEPSPEED,
     .names = "global_step#",
     .traces = "mp_rank_* *zero_pp_rank_* layer_*",
     .needs = {{.kind = RUN_NEED_ZERO, .path = ""}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_DCP,
     .names = "dcp_###### dist_ckpt_######",
     .traces = DCP_TRACES " extra_state.pt",
     .needs = {{.kind = RUN_NEED_DCP, .path = ""},
               {.kind = RUN_NEED_JSON, .path = "meta_$.json", .beside = true},
               {.kind = RUN_NEED_TORCH, .path = "extra_state.pt", .optional = true}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_EMERGENCY,
     .names = "emergency_step_#[_%]",
     .traces = "*",
     .never_latest = true,
     .needs = {{.kind = RUN_NEED_DCP, .path = "", .or_next = true},
               {.kind = RUN_NEED_TORCH, .path = "*.pt"}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_PT,
     .names = "model_######.pt",
     .is_file = true,
     .beside = "dcp_###### dist_ckpt_###### extra_######.pt",
     .needs = {{.kind = RUN_NEED_TORCH, .path = ""},
               {.kind = RUN_NEED_JSON, .path = "meta_$.json", .beside = true}}},
    {.framework = "nanochat",
     .kind = DCP_RUN_PT_SET,
     .names = "model_######.pt",
     .is_file = true,
     .needs = {{.kind = RUN_NEED_TORCH, .path = ""},
               {.kind = RUN_NEED_JSON, .path = "meta_$.json", .beside = true},
               {.kind = RUN_NEED_RANKS, .path = "optim_$_rank#.pt", .beside = true}}},
};

const size_t run_layout_count = sizeof run_layouts / sizeof *run_layouts;

const struct run_mark_layout run_mark_layouts[] = {
    {"latest", RUN_MARK_NAME},                            /* KempnerForge, DeepSpeed */
    {"LATEST", RUN_MARK_NAME},                            /* AutoModel */
    {"last.ckpt", RUN_MARK_NAME},                         /* Lightning */
    {"latest-rank0.pt", RUN_MARK_NAME},                   /* Composer, in the file system */
    {"latest-rank0.pt.symlink", RUN_MARK_PATH},           /* Composer, in an object store */
    {"latest_train_state.pt", RUN_MARK_TORCH},            /* Bridge */
    {"latest_checkpointed_iteration.txt", RUN_MARK_STEP}, /* Megatron-LM, Bridge */
};

const size_t run_mark_layout_count = sizeof run_mark_layouts / sizeof *run_mark_layouts;
