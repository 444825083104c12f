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
    """The kinds and texts of what a checkpoint has."""
    lines = subprocess.run([command, "ls", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(line.split("  ", 1) for line in lines[:-1])


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
    everything = os.path.join(scratch, "all.pt")
    convert(source, everything, "--all")
    objects = [name.strip() for name, text in entries(everything).items() if "byte" not in text or " chunk" not in text]
    convert(everything, target, *(option for name in objects for option in ("--exclude", name)))
    found = read(target)
    for name, tensor in tensors.items():
        assert found.get(name) == tensor or name.startswith("fp32."), (case, name, found.get(name), tensor)
    print(case, len(tensors), "tensors", len(objects), "objects")


with tempfile.TemporaryDirectory() as scratch:
    cases = sorted(os.listdir(fixtures))
    assert cases
    for case in cases:
        check(case, scratch)
