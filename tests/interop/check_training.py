#!/usr/bin/env python3
"""Training checkpoints of other frameworks, converted by dcp convert: every value as their expected.json has it.

    check_training.py DCP_COMMAND FIXTURES
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

command, fixtures = sys.argv[1:3]
NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "I64": "int64", "I32": "int32",
         "U8": "uint8", "BOOL": "bool"}


def convert(source, target, *options):
    if os.path.exists(target):
        os.remove(target)
    subprocess.run([command, "convert", "--no-sync", "--quiet", *options, source, target], check=True)


def read(path):
    """(dtype, shape, SHA-256) of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        tensors = {}
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                file.seek(8 + size + begin)
                tensors[name] = (NAMES[tensor["dtype"]], tensor["shape"], hashlib.sha256(file.read(end - begin)).hexdigest())
    return tensors


def expect(found, expected, what):
    for name, tensor in expected.items():
        assert found.get(name) == tensor, (what, name, found.get(name), tensor)
    assert set(found) == set(expected), (what, sorted(set(found) ^ set(expected)))


def entries(path):
    """The names in a checkpoint and what each is: "tensor" or "object"."""
    shown = subprocess.run([command, "ls", "--json", path], check=True, capture_output=True, text=True).stdout
    return {entry["name"]: entry["type"] for entry in json.loads(shown)["entries"]}


def bucket_masters(source, target, case):
    """The weights of dp_reshardable's bucket, stacked, as the expected map of it says where they lie."""
    def find(value):
        return value.get("bucket_map") or next(filter(None, map(find, value.values())), None) if isinstance(value, dict) else None

    with open(os.path.join(fixtures, case, "expected.json")) as file:
        places = find(json.load(file))
    assert places, case
    with tempfile.TemporaryDirectory() as scratch:
        bucket = os.path.join(scratch, "bucket.safetensors")
        convert(source, bucket, "--all", "--include", "optimizer.*.bucket_idx_0.param")
        with open(bucket, "rb") as file:
            data = file.read()
    data, layers = data[8 + struct.unpack("<Q", data[:8])[0]:], {}
    stored = {"pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_", "input_layernorm.": "self_attention.linear_qkv.layer_norm_"}
    for place in places:
        parts = place["name"].split(".layers.")
        layer, _, name = parts[1].partition(".") if len(parts) == 2 else ("", "", "")
        for old, new in stored.items():
            name = name.replace(old, new)
        name = parts[0] + ".layers." + name if layer else parts[0]
        layers.setdefault(name, {})[layer] = (place["shape"], data[4 * place["start"]:4 * place["end"]])
    return {name: ("float32", ([len(of)] if "" not in of else []) + next(iter(of.values()))[0],
                   hashlib.sha256(b"".join(of[layer][1] for layer in sorted(of, key=lambda text: int(text or 0)))).hexdigest())
            for name, of in layers.items()}


def compare_masters(source, target, tensors, case):
    """The optimizer's weights under the model's names; the model's, widened, where there are none."""
    prefixes = ("optimizer.state.fp32_param.", "optimizer.state.param.")
    masters = {name[len(prefix):]: tensor for name, tensor in tensors.items() for prefix in prefixes if name.startswith(prefix)}
    if not masters:
        masters = bucket_masters(source, target, case)
    convert(source, target, "--masters")
    found = read(target)
    assert set(found) == {name for name in tensors if not name.startswith("optimizer.")}, (case, sorted(found))
    for name, tensor in found.items():
        assert tensor == masters.get(name, tensor) and tensor[0] == "float32", (case, name)


def value(checkpoint, name):
    return json.loads(subprocess.run([command, "cat", checkpoint, name], check=True, capture_output=True, text=True).stdout)


def check_objects(checkpoint, objects, form, case):
    """Objects of everything that was taken: each that is kept under a name of its own."""
    names = list(entries(checkpoint))
    if "megatron" in form:
        for name in objects["sharded_objects"]:
            assert any(found.startswith(name) for found in names), (case, name)
        objects = {"iteration": objects["iteration"], "checkpoint_version": objects["checkpoint_version"],
                   **{"opt_param_scheduler." + key: text for key, text in objects["opt_param_scheduler"].items()},
                   **{"content_metadata." + key: text for key, text in (objects["content_metadata"] or {}).items()}}
    elif "deepspeed" in form:
        groups = {"optim.param_groups.%d.%s" % (i, key): group[key] for i, group in enumerate(objects["param_groups"])
                  for key in ("lr", "weight_decay")}
        objects = {**{key: objects[key] for key in ("global_steps", "skipped_steps", "epoch", "data.position")}, **groups,
                   **{"lr_scheduler." + key: number for key, number in objects["lr_scheduler"].items()}}
    for name, expected in objects.items():
        name = name.replace("train_state.", "state.")  # the item's name is in no file
        found = value(checkpoint, name)
        assert found == expected or bytes.fromhex(found["$bytes"]).decode() == expected, (case, name, found, expected)


def check(case, scratch):
    with open(os.path.join(fixtures, case, "expected.json")) as file:
        expected = json.load(file)
    tensors = {name: (t["dtype"], t["shape"], t["sha256"]) for name, t in expected["tensors"].items()}
    source, target = os.path.join(fixtures, case, expected["checkpoint"]), os.path.join(scratch, "out.safetensors")

    def resolve(entry):
        return tensors[entry] if isinstance(entry, str) else (entry["dtype"], entry["shape"], entry["sha256"])

    def compare(names, *options):
        convert(source, target, *options)
        expect(read(target), {name: resolve(entry) for name, entry in expected["sets"][names].items()}, (case, names))

    compare("weights")
    if "fp32" in expected["sets"]:
        compare("fp32", "--masters")
    if "layers" in expected["sets"]:
        compare("layers", "--unstack")
    if "megatron" in expected["form"]:
        compare_masters(source, target, tensors, case)
    everything = os.path.join(scratch, "all.pt")
    convert(source, everything, "--all")
    objects = [name for name, kind in entries(everything).items() if kind == "object"]
    convert(everything, target, *(option for name in objects for option in ("--exclude", name)))
    found = read(target)
    for name, tensor in tensors.items():
        assert found.get(name) == tensor or name.startswith("fp32."), (case, name, found.get(name), tensor)
    check_objects(everything, expected["objects"], expected["form"], case)
    print(case, len(tensors), "tensors", len(objects), "objects")


with tempfile.TemporaryDirectory() as scratch:
    cases = sorted(os.listdir(fixtures))
    assert cases
    for case in cases:
        check(case, scratch)
