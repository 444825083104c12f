#!/usr/bin/env python3
"""Checkpoints of PyTorch converted by dcp convert: into each form, read by PyTorch and safetensors, and back.

    check_convert.py DCP_COMMAND
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

warnings.filterwarnings("ignore", message="torch.distributed is disabled")
command = sys.argv[1]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool,
          torch.float8_e4m3fn, torch.complex64]


def random_model(rng):
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    model = {}
    for i in range(rng.randint(1, 12)):
        shape = [rng.randint(0, 40) for _ in range(rng.randint(0, 4))]
        dtype = rng.choice(DTYPES)
        bytes_ = torch.randint(0, 2 if dtype is torch.bool else 256, shape + [dtype.itemsize],
                               generator=generator, dtype=torch.uint8)
        model["layers.%d.weight" % i] = bytes_.view(dtype).reshape(shape)
    return model


def same(ours, expected, name):
    assert ours.dtype == expected.dtype and ours.shape == expected.shape, (name, ours.dtype, ours.shape)
    left, right = (t.contiguous().reshape(-1).view(torch.uint8) for t in (ours, expected))
    assert torch.equal(left, right), name


def same_model(ours, expected):
    assert sorted(ours) == sorted(expected), (sorted(ours), sorted(expected))
    for name, tensor in expected.items():
        same(ours[name], tensor, name)


def run(*arguments):
    subprocess.run([command, "convert", "--quiet", "--no-sync", *arguments], check=True)


def read_safetensors(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def read_directory(path):
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(path, "model.safetensors"))
    files = json.load(open(index, encoding="utf-8"))["weight_map"]
    found = {}
    for file in sorted(set(files.values())):
        found.update(read_safetensors(os.path.join(path, file)))
    assert all(name in found for name in files)
    return found


def read_dcp(path, scratch):
    dcp_to_torch_save(path, scratch)
    return torch.load(scratch, weights_only=False)


def check(rng, directory):
    def at(name):
        return os.path.join(directory, name)
    model, state = random_model(rng), None
    state = {"model": model, "step": 7, "optimizer": {"lr": 0.1, "betas": (0.9, 0.95)}}
    dcp.save(state, checkpoint_id=at("dcp"), no_dist=True)
    torch.save(state, at("theirs.pt"))

    for source in "dcp", "theirs.pt":
        run(at(source), at("ours.pt"))
        loaded = torch.load(at("ours.pt"), weights_only=True)
        same_model(loaded["model"], model)
        assert loaded["step"] == 7 and loaded["optimizer"] == state["optimizer"], loaded
        run(at(source), at("ours.safetensors"), "--model-only")
        run(at(source), at("ours"), "--to", "hf", "--model-only", "--shard-size", "5000")
        for found in read_safetensors(at("ours.safetensors")), read_directory(at("ours")):
            same_model(found, model)
        for i, back in enumerate(("ours.pt", "ours.safetensors", "ours")):
            run(at(back), at("back"), "--to", "dcp", "--ranks", str(rng.randint(1, 3)))
            found = read_dcp(at("back"), at("back.pt"))
            same_model(found["model"] if i == 0 else found, model)
            subprocess.run(["rm", "-rf", at("back")], check=True)
        subprocess.run(["rm", "-rf", at("ours.pt"), at("ours.safetensors"), at("ours")], check=True)


def check_shared(directory):
    """Tensors that share storages, at offsets and with strides, do so in another .pt file."""
    def at(name):
        return os.path.join(directory, name)
    base, words = torch.randn(40, 30), torch.arange(64).to(torch.uint16)  # of no storage class
    state = {
        "base": base, "same": base, "rows": base[3:9, 2:], "columns": base[:, ::3], "turned": base.t(),
        "words": words, "some": words[4:36:3], "expanded": torch.ones(1, 3).expand(5, 3),
        "alone": torch.randn(1000)[10:14], "lists": [[torch.ones(2)], [base[0]]], "pair": (torch.ones(2), "text"),
    }
    torch.save(state, at("theirs.pt"))
    run(at("theirs.pt"), at("shared.pt"))
    for weights_only in True, False:
        found = torch.load(at("shared.pt"), weights_only=weights_only)
        assert list(found) == list(state) and found["pair"][1] == "text", found
        same(found["pair"][0], state["pair"][0], "pair")
        same(found["lists"][1][0], base[0], "lists")
        for name, tensor in state.items():
            if isinstance(tensor, torch.Tensor):
                same(found[name], tensor, name)
                assert name == "alone" or found[name].stride() == tensor.stride(), name
        places = {name: found[name].untyped_storage().data_ptr()
                  for name in found if isinstance(found[name], torch.Tensor)}
        for name in "same", "rows", "columns", "turned":
            assert places[name] == places["base"], name
        assert found["lists"][1][0].untyped_storage().data_ptr() == places["base"]
        assert places["some"] == places["words"]
        assert found["alone"].untyped_storage().nbytes() == 16  # the rest of its storage stays behind


for seed in range(6):
    with tempfile.TemporaryDirectory() as directory:
        try:
            check(random.Random(seed), directory)
        except BaseException:
            print("seed %d" % seed, file=sys.stderr)
            raise
with tempfile.TemporaryDirectory() as directory:
    check_shared(directory)
print("ok")
