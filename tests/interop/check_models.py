#!/usr/bin/env python3
"""Models of real size: what rules in files, GGUF and the division into files make of all their names and shapes, by
dcp convert --dry-run, and the way back: check_models.py DCP MODELS TRANSFORMS DIRECTORY.

MODELS is what describe_models.py has found in the definitions of transformers, torchtitan and gguf. The files are sparse:
they have the lengths of the models (811 GB for the largest), and no data."""
import json
import os
import shutil
import struct
import subprocess
import sys

dcp, models_path, transforms, directory = sys.argv[1:]


def fail(text):
    sys.exit(f"check_models.py: {text}")


def expand(patterns, model, **more):
    """Names and shapes of all layers and experts."""
    found = {}
    for pattern, shape in patterns.items():
        for layer in range(model["layers"] if "{l}" in pattern else 1):
            for expert in range(model["experts"] if "{e}" in pattern else 1):
                found[pattern.format(l=layer, e=expert)] = shape
    return found | more


def bytes_of(shape):
    size = 2
    for n in shape:
        size *= n
    return size


def write_sparse(path, tensors, distinct):
    """A safetensors file of bfloat16 zeros; the tensor `distinct` is no zeros, so that it is tied to no other one."""
    header, at = {}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_of(shape)]}
        at += bytes_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
        if distinct in header:
            file.seek(8 + len(text) + header[distinct]["data_offsets"][0])
            file.write(b"\1\1")


def write_model(folder, tensors, model, distinct="lm_head.weight"):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    write_sparse(f"{folder}/model.safetensors", tensors, distinct)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(model["config"], file)


def plan(folder, *arguments):
    """What would be written: names and shapes, and the rest of what is printed."""
    done = subprocess.run([dcp, "convert", "--dry-run", "--json", "--quiet", folder, f"{directory}/none", *arguments],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{folder} {arguments}: {done.stderr}")
    told = json.loads(done.stdout)
    return {item["name"]: item["shape"] for item in told["items"]}, told


def equal(what, found, expected):
    if found == expected:
        return
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            fail(f"{what}: {name} is {found.get(name)}, expected {expected.get(name)}")


def megatron(model):
    """As Megatron-Core with Transformer Engine has them, by the configuration alone."""
    config = model["config"]
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    keys, size = config["num_key_value_heads"], config.get("head_dim") or hidden // heads
    vocabulary = (config["vocab_size"] + 127) // 128 * 128
    layer = "decoder.layers.{l}."
    patterns = {
        "embedding.word_embeddings.weight": [vocabulary, hidden],
        "decoder.final_layernorm.weight": [hidden],
        f"{layer}self_attention.linear_qkv.layer_norm_weight": [hidden],
        f"{layer}self_attention.linear_qkv.weight": [(heads + 2 * keys) * size, hidden],
        f"{layer}self_attention.linear_proj.weight": [hidden, heads * size],
    }
    if not config["tie_word_embeddings"]:
        patterns["output_layer.weight"] = [vocabulary, hidden]
    if config["model_type"] == "qwen2":
        patterns[f"{layer}self_attention.linear_qkv.bias"] = [(heads + 2 * keys) * size]
    if model["experts"] == 1:
        patterns[f"{layer}mlp.linear_fc1.layer_norm_weight"] = [hidden]
        patterns[f"{layer}mlp.linear_fc1.weight"] = [2 * inner, hidden]
        patterns[f"{layer}mlp.linear_fc2.weight"] = [hidden, inner]
    else:
        patterns[f"{layer}pre_mlp_layernorm.weight"] = [hidden]
        patterns[f"{layer}mlp.router.weight"] = [model["experts"], hidden]
        patterns[f"{layer}mlp.experts.linear_fc1.weight{{e}}"] = [2 * inner, hidden]
        patterns[f"{layer}mlp.experts.linear_fc2.weight{{e}}"] = [hidden, inner]
    return expand(patterns, model)


def gguf(model):
    config, experts = model["config"], model["experts"]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    patterns = {name: model["tensors"][pattern] for pattern, name in model["gguf"].items()}
    if experts > 1:
        patterns["blk.{l}.ffn_gate_exps.weight"] = patterns["blk.{l}.ffn_up_exps.weight"] = [experts, inner, hidden]
        patterns["blk.{l}.ffn_down_exps.weight"] = [experts, hidden, inner]
    if (config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        size = config.get("head_dim") or hidden // config["num_attention_heads"]
        patterns["rope_freqs.weight"] = [size // 2]
    return expand(patterns, model)


def check_rules(name, model, source, rules, expected, back, distinct):
    """One way by a file of rules, and the other way by its inverse."""
    found, _ = plan(f"{directory}/{name}", "--to", "dcp", "--transform", f"{transforms}/{rules}.json")
    equal(f"{name}, {rules}", found, expected)
    write_model(f"{directory}/back", back, model, distinct)
    found, _ = plan(f"{directory}/back", "--to", "hf", "--inverse", "--transform", f"{transforms}/{rules}.json")
    equal(f"{name}, {rules}, inverse", found, source)


def check_gguf(name, model):
    found, told = plan(f"{directory}/{name}", "--to", "gguf", "--gguf-type", "q8_0")
    equal(f"{name}, GGUF", found, gguf(model))
    for item in told["items"]:
        plain = len(item["shape"]) == 1 or "ffn_gate_inp" in item["name"]
        if item["dtype"] != ("F32" if plain else "Q8_0"):
            fail(f"{name}: {item['name']} is {item['dtype']} in a GGUF file")


def check(name, model):
    source = expand(model["tensors"], model)
    write_model(f"{directory}/{name}", source, model)
    total = sum(bytes_of(shape) for shape in source.values())
    listed = json.loads(subprocess.run([dcp, "ls", "--json", "--totals", f"{directory}/{name}"],
                                       capture_output=True, text=True, check=True).stdout)
    if listed["dtypes"] != [{"dtype": "bfloat16", "tensors": len(source), "bytes": total, "objects": 0}]:
        fail(f"{name}: {listed['dtypes']}, expected {len(source)} tensors of {total} bytes")
    expected = megatron(model)
    rules = "llama_megatron" if model["experts"] == 1 else "mixtral_megatron"
    check_rules(name, model, source, rules, expected, expected, "output_layer.weight")
    for size, files in model.get("files", {}).items():
        found, told = plan(f"{directory}/{name}", "--to", "hf", "--shard-size", size)
        equal(f"{name}, shards", found, source)
        if told["files"] != files:
            fail(f"{name}: {told['files']} files of {size}, transformers writes {files}")
    if "gguf" in model:
        check_gguf(name, model)
    if "torchtitan" in model:
        titan = expand(model["torchtitan"], model)
        tied = model["config"]["tie_word_embeddings"]
        expected = {n: shape for n, shape in titan.items() if n != "lm_head.weight" or not tied}
        check_rules(name, model, source, "llama_torchtitan", expected, titan, "" if tied else "lm_head.weight")
    shutil.rmtree(f"{directory}/{name}")


def check_pairs():
    """torchtitan has the two halves of a head's rows, which transformers keeps apart, as pairs."""
    heads, keys, size = 2, 1, 8
    hidden = heads * size
    model = {"config": {"num_attention_heads": heads, "num_key_value_heads": keys}}
    rows = {"q": heads * size, "k": keys * size, "v": keys * size, "o": hidden}
    layer = "model.layers.0."
    tensors = {f"{layer}self_attn.{part}_proj.weight": [n, hidden] for part, n in rows.items()}
    tensors |= {f"{layer}mlp.{part}_proj.weight": [1, 1] for part in ("gate", "up", "down")}
    tensors |= {f"{layer}{norm}.weight": [1] for norm in ("input_layernorm", "post_attention_layernorm")}
    tensors |= {"model.embed_tokens.weight": [1], "model.norm.weight": [1]}
    write_model(f"{directory}/small", tensors, model)
    with open(f"{directory}/small/model.safetensors", "r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        for name, shape in tensors.items():
            file.seek(8 + length + header[name]["data_offsets"][0])
            for row in range(shape[0]):  # a row of the number of it, which is a subnormal bfloat16
                file.write(struct.pack("<H", row + 1) * (shape[1] if len(shape) > 1 else 1))
    rules = ["--transform", f"{transforms}/llama_torchtitan.json"]
    subprocess.run([dcp, "convert", "-q", f"{directory}/small", f"{directory}/titan", "--to", "dcp", *rules], check=True)
    for part, count in (("wq", heads), ("wk", keys)):
        data = subprocess.run([dcp, "cat", f"{directory}/titan", f"layers.0.attention.qkv_linear.{part}.weight", "-s", ":,0"],
                              capture_output=True, check=True).stdout
        found = [number - 1 for number in struct.unpack(f"<{len(data) // 2}H", data)]
        expected = [head * size + half * size // 2 + row
                    for head in range(count) for row in range(size // 2) for half in range(2)]
        if found != expected:
            fail(f"rows of {part} are {found}, expected {expected}")
    subprocess.run([dcp, "convert", "-q", f"{directory}/titan", f"{directory}/again", "--to", "hf", "--inverse", *rules,
                    "--config", f"{directory}/small/config.json"], check=True)
    subprocess.run([dcp, "diff", f"{directory}/small", f"{directory}/again"], stdout=subprocess.DEVNULL, check=True)


def main():
    with open(models_path, encoding="utf-8") as file:
        models = json.load(file)["models"]
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    for name, model in models.items():
        check(name, model)
    check_pairs()
    if len(models) < 8:
        fail(f"{len(models)} models")
    shutil.rmtree(directory)


main()
