#!/usr/bin/env python3
"""Save checkpoints with PyTorch at many topologies, each with a manifest for check_manifest.

    python save_with_torch.py DIRECTORY
"""
import json
import logging
import os
import sys
import warnings
import zlib

import numpy
import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from check_with_torch import tensor_bytes  # noqa: E402
from ranks import run_ranks  # noqa: E402

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
          "uint32", "uint16", "uint8", "bool", "complex128", "complex64", "complex32",
          "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
SHAPES = [(7, 6), (1, 3), (16,), (5, 1, 2, 3)]


def contents(name, shape, dtype="float32"):
    """Random bits that follow from the name."""
    dtype = getattr(torch, dtype)
    count = int(numpy.prod(shape, dtype=numpy.int64)) * torch.empty(0, dtype=dtype).element_size()
    data = numpy.random.RandomState(zlib.crc32(name.encode())).bytes(count)
    data = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return ((data & 1) if dtype is torch.bool else data).view(dtype).reshape(shape)


def placed_tensors(mesh, wholes):
    """Every combination of placements on one or two mesh dimensions."""
    kinds = {"replicated": lambda ndim: Replicate(), "rows": lambda ndim: Shard(0),
             "columns": lambda ndim: Shard(ndim - 1)}
    tensors = {}
    for shape in SHAPES:
        for first in kinds:
            for second in kinds if mesh.ndim == 2 else [None]:
                name = "%s.%s.%s" % ("x".join(map(str, shape)), first, second)
                wholes[name] = contents(name, shape)
                placements = [kinds[k](len(shape)) for k in (first, second) if k]
                tensors[name] = distribute_tensor(wholes[name], mesh, placements, src_data_rank=None)
    if mesh.ndim == 2:
        wholes["strided"] = contents("strided", (12, 3), "bfloat16")
        tensors["strided"] = distribute_tensor(
            wholes["strided"], mesh, [_StridedShard(0, split_factor=mesh.size(1)), Shard(0)],
            src_data_rank=None)
    return tensors


def objects():
    return {"none": None, "true": True, "int": 7, "negative": -(2**40), "large": 2**70,
            "float": 0.1, "infinite": float("inf"), "text": "gr\u00fc\u00df \u20ac", "empty": "",
            "bytes": bytes(range(256)), "complex": 1 - 2j, "ints": list(range(300)),
            "nested": (1, [2.5, None], {"a": (), 3: "three"}), "set": {1, 2, 3},
            "dtype": torch.bfloat16}


def tagged(v):
    """The tagged form of a value, see tests/fixtures/README.md."""
    name = type(v).__name__
    if v is None:
        return {"t": "none"}
    if name == "bool":
        return {"t": name, "v": v}
    if name == "int":
        return {"t": name, "v": str(v)}
    if name == "float":
        return {"t": name, "v": v.hex()}
    if name == "complex":
        return {"t": name, "re": v.real.hex(), "im": v.imag.hex()}
    if name == "str":
        return {"t": name, "v": v}
    if name == "bytes":
        return {"t": name, "hex": v.hex()}
    if name in ("list", "tuple"):
        return {"t": name, "v": [tagged(x) for x in v]}
    if name == "set":
        return {"t": name, "v": [tagged(x) for x in sorted(v, key=repr)]}
    if name == "dict":
        return {"t": name, "v": [[tagged(k), tagged(x)] for k, x in v.items()]}
    if name == "dtype":
        return {"t": name, "v": str(v)}
    raise TypeError(name)


class Manifest:
    """Collects what a checkpoint must contain; without a directory, nothing."""

    def __init__(self, directory):
        self.directory, self.entries = directory, []

    def tensor(self, path, value):
        if not self.directory:
            return
        file = "%03d.bin" % len(self.entries)
        with open(os.path.join(self.directory, file), "wb") as out:
            out.write(tensor_bytes(value))
        self.add(path, {"type": "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape),
                        "file": file})

    def object(self, path, value):
        self.add(path, {"type": "object", "value": tagged(value)})

    def add(self, path, entry):
        self.entries.append({"fqn": ".".join(map(str, path)), "path": list(path), **entry})

    def write(self):
        if not self.directory:
            return
        with open(os.path.join(self.directory, "expected.json"), "w") as out:
            json.dump({"case": os.path.basename(self.directory), "kind": "dcp",
                       "checkpoint": "ckpt", "entries": self.entries}, out)


def make_state(rank, world, mesh, manifest):
    wholes = {}
    state = {
        "placed": placed_tensors(mesh, wholes),
        "plain": {d: contents(d, (3, 5), d) for d in DTYPES},
        "groups": [{"lr": 0.1 / (i + 1), "betas": (0.9, 0.95), "params": [i]} for i in range(2)],
        "objects": objects(),
        "scalar": torch.tensor(3.25),
        "empty": torch.empty(0, 4),
    }
    if rank == world - 1:
        state["only"] = {"tensor": contents("only", (9,)), "object": "on the last rank"}
    for name, whole in wholes.items():
        manifest.tensor(["placed", name], whole)
    for name, value in state["plain"].items():
        manifest.tensor(["plain", name], value)
    for name in ("scalar", "empty"):
        manifest.tensor([name], state[name])
    manifest.tensor(["only", "tensor"], contents("only", (9,)))
    manifest.object(["only", "object"], "on the last rank")
    for i, group in enumerate(state["groups"]):
        for key, value in group.items():
            manifest.object(["groups", i, key], value)
    for name, value in state["objects"].items():
        manifest.object(["objects", name], value)
    return state


def save(rank, world, directory, mesh_shape, writer_options, asynchronous):
    if rank == 0:
        os.makedirs(directory)
    dist.barrier()
    manifest = Manifest(directory if rank == 0 else None)
    mesh = init_device_mesh("cpu", mesh_shape)
    state = make_state(rank, world, mesh, manifest)
    manifest.write()
    writer = dcp.FileSystemWriter(os.path.join(directory, "ckpt"), **writer_options)
    if asynchronous:
        dcp.async_save(state, storage_writer=writer).result()
    else:
        dcp.save(state, storage_writer=writer)


CASES = [
    ("ranks1", (1,), {}, False),
    ("ranks2_async", (2,), {}, True),
    ("ranks3_2_threads", (3,), {"thread_count": 2}, False),
    ("ranks4_2x2", (2, 2), {}, False),
    ("ranks4_4x1_file_per_item", (4, 1), {"single_file_per_rank": False}, False),
]


def main():
    directory = sys.argv[1]
    torch.set_num_threads(1)
    for name, mesh_shape, writer_options, asynchronous in CASES:
        world = int(numpy.prod(mesh_shape))
        run_ranks(world, save, os.path.join(directory, name), mesh_shape, writer_options, asynchronous)
        print("saved", name)
    with open(os.path.join(directory, "index.json"), "w") as out:
        json.dump({"cases": [{"expected": "%s/expected.json" % c[0]} for c in CASES]}, out)


if __name__ == "__main__":
    main()
