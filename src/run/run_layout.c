/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables, from the frameworks' sources as of 2026: torchtitan 0.3.0, KempnerForge 5666d0d,
 * Megatron Core 0.16.1, Megatron-Bridge 0.3.1 to 0.7, NeMo 2 (8cfedd7), Lightning 2.6.6, NeMo
 * AutoModel, TorchTNT b83990d, Transformers 5.23, Accelerate 1.15, Composer 6405188, DeepSpeed
 * edaa722, OLMo-core, MegaCpp, Orbax 3ff7b24, nanochat 92d63d4, litgpt 2685705. */
#include "run/run_layout.h"

/* What a save of DCP leaves, however far it came. */
#define DCP_TRACES ".metadata .metadata.tmp* __* pp# .dcp_owner*"

#define MCORE_NEEDS(folder)                                                                        \
    {RUN_NEED_JSON, folder "metadata.json", .key = "sharded_backend"}, {RUN_NEED_DCP, folder},     \
    {                                                                                              \
        RUN_NEED_TORCH, folder "common.pt", .when = folder "metadata.json:common_backend"          \
    }

#define TRANSFORMERS_NEEDS                                                                         \
    {RUN_NEED_DCP, "pytorch_model_fsdp_#", .or_next = true},                                       \
        {RUN_NEED_TORCH, "pytorch_model*.bin", .or_next = true}, {RUN_NEED_WEIGHTS, ""},           \
        {RUN_NEED_DCP, "optimizer_#", .or_next = true},                                            \
    {                                                                                              \
        RUN_NEED_TORCH, "optimizer.pt optimizer*.bin"                                              \
    }

#define TRAINER_NEEDS                                                                              \
    TRANSFORMERS_NEEDS, {RUN_NEED_TORCH, "scheduler.pt"},                                          \
        {RUN_NEED_RANKS, "rng_state_#.pth rng_state.pth"},                                         \
    {                                                                                              \
        RUN_NEED_JSON, "trainer_state.json", .key = "global_step"                                  \
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
     .needs = {{RUN_NEED_JSON, "_CHECKPOINT_METADATA", .optional = true},
               {RUN_NEED_FILE, "commit_success.txt", .far = true}}},
    {.framework = "litgpt",
     .kind = DCP_RUN_PT,
     .names = "step-########",
     .signs = "lit_model.pth",
     .shares = true,
     .needs = {{RUN_NEED_TORCH, "lit_model.pth"}}},
    {.framework = "litgpt",
     .kind = DCP_RUN_PT,
     .names = "final",
     .signs = "lit_model.pth",
     .never_latest = true,
     .needs = {{RUN_NEED_TORCH, "lit_model.pth"}}},
    {.framework = "torchtitan",
     .kind = DCP_RUN_DCP_PART,
     .names = "step-#",
     .folder = "ft-replicat-*",
     .traces = DCP_TRACES,
     .never_latest = true,
     .needs = {{RUN_NEED_DCP, ""}}},
    {.framework = "torchtitan",
     .kind = DCP_RUN_DCP,
     .names = "step-#",
     .traces = DCP_TRACES " sharded *.safetensors *.safetensors.index.json",
     .needs = {{RUN_NEED_DCP, "", .or_next = true}, {RUN_NEED_WEIGHTS, ""}}},
    {.framework = "KempnerForge",
     .kind = DCP_RUN_DCP,
     .names = "step_#",
     .signs = "train_state.pt metadata.json:tokens_seen",
     .shares = true,
     .needs = {{RUN_NEED_DCP, ""},
               {RUN_NEED_TORCH, "train_state.pt"},
               {RUN_NEED_JSON, "metadata.json", .key = "step", .optional = true}}},
    {.framework = "dcp",
     .kind = DCP_RUN_DCP,
     .names = "step_#",
     .traces = DCP_TRACES " metadata.json",
     .needs = {{RUN_NEED_DCP, ""}}},
    {.framework = "OLMo-core",
     .kind = DCP_RUN_DCP,
     .names = "step#",
     .traces = "model_and_optim train .metadata.json",
     .needs = {{RUN_NEED_JSON, ".metadata.json"},
               {RUN_NEED_DCP, "model_and_optim"},
               {RUN_NEED_TORCH, "train/rank0.pt"}}},
    {.framework = "Megatron-LM",
     .kind = DCP_RUN_MEGATRON_LEGACY,
     .names = "iter_####### release",
     .signs = "mp_rank_*/model_optim_rng.pt mp_rank_*/distrib_optim.pt",
     .needs = {{RUN_NEED_MODEL_PARALLEL, ""}}},
    {.framework = "Megatron-Bridge",
     .kind = DCP_RUN_MCORE,
     .names = "iter_#######",
     .signs = "train_state.pt run_config.yaml",
     .beside = "latest_train_state.pt",
     .shares = true,
     .needs = {MCORE_NEEDS(""), {RUN_NEED_TORCH, "train_state.pt"}}},
    {.framework = "Megatron Core",
     .kind = DCP_RUN_MCORE,
     .names = "iter_####### release",
     .traces = DCP_TRACES " common.pt metadata.json modelopt_state hf tokenizer",
     .needs = {MCORE_NEEDS("")}},
    {.framework = "NeMo",
     .kind = DCP_RUN_MCORE,
     .names = "*-step=#-consumed_samples=*",
     .not_names = "*-unfinished *-last",
     .traces = "weights context",
     .free_names = true,
     .first_step = 1,
     .needs = {{RUN_NEED_ABSENT, "&-unfinished", .beside = true}, MCORE_NEEDS("weights/")}},
    {.framework = "NeMo",
     .kind = DCP_RUN_MCORE,
     .names = "*-step=#-consumed_samples=*-last",
     .traces = "weights context",
     .marks_itself = true,
     .free_names = true,
     .first_step = 1,
     .needs = {{RUN_NEED_ABSENT, "&-unfinished", .beside = true}, MCORE_NEEDS("weights/")}},
    {.framework = "Lightning",
     .kind = DCP_RUN_DCP,
     .names = "*step=#[-v~].ckpt *step=#-*[-v~].ckpt",
     .traces = DCP_TRACES " meta.pt",
     .free_names = true,
     .needs = {{RUN_NEED_DCP, ""}, {RUN_NEED_TORCH, "meta.pt"}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_DCP,
     .names = "last[-v~].ckpt",
     .traces = DCP_TRACES " meta.pt",
     .marks_itself = true,
     .needs = {{RUN_NEED_DCP, ""}, {RUN_NEED_TORCH, "meta.pt"}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_PT,
     .names = "*step=#[-v~].ckpt *step=#-*[-v~].ckpt",
     .is_file = true,
     .free_names = true,
     .needs = {{RUN_NEED_TORCH, ""}}},
    {.framework = "Lightning",
     .kind = DCP_RUN_PT,
     .names = "last[-v~].ckpt",
     .is_file = true,
     .marks_itself = true,
     .needs = {{RUN_NEED_TORCH, ""}}},
    {.framework = "NeMo AutoModel",
     .kind = DCP_RUN_AUTOMODEL,
     .names = "epoch_%_step_#",
     .signs = "model optim",
     .shares = true,
     .needs = {{RUN_NEED_ABSENT, "*incomplete* *INCOMPLETE* *unfinished*"},
               {RUN_NEED_WEIGHTS, "model"},
               {RUN_NEED_DCP, "optim"}}},
    {.framework = "TorchTNT",
     .kind = DCP_RUN_DCP,
     .names = "epoch_@[_train]_step_#[_eval_step_!][_predict_step_%][_*=*] "
              "epoch_@_eval_step_#[_predict_step_%][_*=*] epoch_@_predict_step_#[_*=*]",
     .traces = DCP_TRACES,
     .free_names = true,
     .needs = {{RUN_NEED_DCP, ""}}},
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
     .needs = {TRANSFORMERS_NEEDS, {RUN_NEED_RANKS, "random_states_#.pkl"}}},
    {.framework = "Accelerate",
     .kind = DCP_RUN_PT_SET,
     .names = "checkpoint_#",
     .signs = PLAIN_SIGNS,
     .shares = true,
     .needs = {TRANSFORMERS_NEEDS, {RUN_NEED_RANKS, "random_states_#.pkl"}}},
    {.framework = "Composer",
     .kind = DCP_RUN_DCP,
     .names = "ep%-ba#",
     .traces = DCP_TRACES,
     .needs = {{RUN_NEED_DCP, ""}}},
    {.framework = "Composer",
     .kind = DCP_RUN_PT,
     .names = "ep%-ba#-rank0.pt",
     .is_file = true,
     .needs = {{RUN_NEED_TORCH, ""}}},
    {.framework = "DeepSpeed",
     .kind = DCP_RUN_DEEPSPEED,
     .names = "global_step#",
     .traces = "mp_rank_* *zero_pp_rank_* layer_*",
     .needs = {{RUN_NEED_ZERO, ""}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_DCP,
     .names = "dcp_###### dist_ckpt_######",
     .traces = DCP_TRACES " extra_state.pt",
     .needs = {{RUN_NEED_DCP, ""},
               {RUN_NEED_JSON, "meta_$.json", .beside = true},
               {RUN_NEED_TORCH, "extra_state.pt", .optional = true}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_EMERGENCY,
     .names = "emergency_step_#[_%]",
     .traces = "*",
     .never_latest = true,
     .needs = {{RUN_NEED_DCP, "", .or_next = true}, {RUN_NEED_TORCH, "*.pt"}}},
    {.framework = "MegaCpp",
     .kind = DCP_RUN_PT,
     .names = "model_######.pt",
     .is_file = true,
     .beside = "dcp_###### dist_ckpt_###### extra_######.pt",
     .needs = {{RUN_NEED_TORCH, ""},
               {RUN_NEED_JSON, "meta_$.json", .beside = true},
               {RUN_NEED_RANKS, "optim_$_rank#.pt", .beside = true}}},
    {.framework = "nanochat",
     .kind = DCP_RUN_PT_SET,
     .names = "model_######.pt",
     .is_file = true,
     .needs = {{RUN_NEED_TORCH, ""},
               {RUN_NEED_JSON, "meta_$.json", .beside = true},
               {RUN_NEED_RANKS, "optim_$_rank#.pt", .beside = true}}},
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
