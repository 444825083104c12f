#!/usr/bin/env python3
"""Names and shapes of models of real size, as transformers, torchtitan and gguf have them: describe_models.py >FILE.

Models are made of their definitions on the meta device, without a byte of weights. Needs the packages transformers 5,
torchtitan, triton and gguf; check_models.py reads the result without them."""
import importlib.metadata
import json
import re

import gguf
import torch
import torchtitan.models.llama3 as titan
import transformers
from huggingface_hub import split_torch_state_dict_into_shards
from transformers.core_model_loading import revert_weight_conversion

ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0}


def llama(hidden, inner, layers, heads, **more):
    return transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072, rms_norm_eps=1e-5,
        rope_parameters=ROPE, **more)


def mixtral(hidden, inner, layers, heads, vocabulary):
    return transformers.MixtralConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=8, vocab_size=vocabulary, num_local_experts=8, num_experts_per_tok=2)


# The configuration, and torchtitan's model of the same size.
MODELS = {
    "Llama-3.2-1B": (llama(2048, 8192, 16, 32, head_dim=64, tie_word_embeddings=True), titan._1b),
    "Llama-3.1-8B": (llama(4096, 14336, 32, 32), titan._8b),
    "Llama-3.1-70B": (llama(8192, 28672, 80, 64), titan._70b),
    "Llama-3.1-405B": (llama(16384, 53248, 126, 128), titan._405b),
    "Mistral-7B": (transformers.MistralConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=32768), None),
    "Qwen2.5-7B": (transformers.Qwen2Config(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064), None),
    "Mixtral-8x7B": (mixtral(4096, 14336, 32, 32, 32000), None),
    "Mixtral-8x22B": (mixtral(6144, 16384, 56, 48, 32768), None),
}


def pattern(name):
    """{l} for the number of a layer, {e} for that of an expert."""
    name = re.sub(r"(^|\.)layers\.\d+\.", r"\1layers.{l}.", name, count=1)
    return re.sub(r"experts\.\d+\.", "experts.{e}.", name)


def expand(patterns, layers, experts):
    return {name.format(l=l, e=e): shape for name, shape in patterns.items()
            for l in range(layers if "{l}" in name else 1) for e in range(experts if "{e}" in name else 1)}


def patterns_of(state, layers, experts):
    found = {pattern(name): list(tensor.shape) for name, tensor in state.items()}
    assert expand(found, layers, experts) == {name: list(t.shape) for name, t in state.items()}
    return found


def gguf_names(patterns, layers):
    """As gguf names them; None where experts are stacked, which check_models.py spells out."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    return {p: (names.get_name(p.format(l=7), try_suffixes=(".weight",)) or "").replace("blk.7.", "blk.{l}.") or None
            for p in patterns if "{e}" not in p}


def describe(config, titan_model):
    layers, experts = config.num_hidden_layers, getattr(config, "num_local_experts", 1)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    state = revert_weight_conversion(model, model.state_dict())
    if config.tie_word_embeddings:
        del state["lm_head.weight"]  # save_pretrained() leaves it out
    described = {"config": config.to_dict(), "layers": layers, "experts": experts,
                 "tensors": patterns_of(state, layers, experts)}
    if experts == 1:  # else transformers divides what it has in memory, where experts are stacked
        described["files"] = {
            size: len(split_torch_state_dict_into_shards(state, max_shard_size=size).filename_to_tensors)
            for size in ("5GB", "50GB")}
    if config.model_type != "qwen2":
        described["gguf"] = gguf_names(described["tensors"], layers)
    if titan_model:
        with torch.device("meta"):
            described["torchtitan"] = patterns_of(titan_model("flex").build().state_dict(), layers, 1)
    return described


def main():
    packages = {name: importlib.metadata.version(name) for name in ("transformers", "torchtitan", "gguf", "torch")}
    models = {name: describe(config, titan_model) for name, (config, titan_model) in MODELS.items()}
    text = json.dumps({"packages": packages, "models": models}, indent=1)
    print(re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text))


main()
