#!/usr/bin/env python3
"""Load checkpoints with PyTorch on several ranks into DTensors, and compare with their manifests.

    python load_with_torch.py [--all] INDEX.json

Each checkpoint is loaded on one rank and at one other topology, in turn, or with --all at every one. Nothing may warn, and
every object must be readable with weights_only=True.
"""
import io
import json
import logging
import os
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# Its import silences warnings and logging, which are what this is about.
filters, disabled = warnings.filters[:], logging.root.manager.disable
import check_with_torch as check  # noqa: E402

warnings.filters[:] = filters
logging.disable(disabled)

from ranks import run_ranks  # noqa: E402

TOPOLOGIES = [((1,), ["rows"]), ((3,), ["rows"]), ((5,), ["columns"]), ((2, 2), ["rows", "columns"])]


class Complaints(logging.Handler):
    """Collects what PyTorch has to say at level WARNING and above."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def distributed(tensor, mesh, divisions):
    by = {"rows": 0, "columns": tensor.ndim - 1}
    placements = [Shard(by[d]) if tensor.ndim else Replicate() for d in divisions]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def expected_tensor(entry, directory):
    with open(os.path.join(directory, entry["file"]), "rb") as file:
        data = bytearray(file.read())
    dtype = getattr(torch, entry["dtype"])
    if not data:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(entry["shape"])


def load(checkpoint, entries, mesh, divisions):
    state = {}
    for entry in entries:
        value = "to be replaced"
        if entry["type"] == "tensor":
            value = distributed(check.garbage(entry), mesh, divisions)
        check.put(state, entry["path"], value)
    dcp.load(state, checkpoint_id=checkpoint)
    return state


def compare(state, entries, directory, mesh, divisions, report):
    for entry in entries:
        value = check.get(state, entry["path"])
        if entry["type"] == "object":
            check.compare_object(value, entry, directory, report, "load")
            continue
        wanted = distributed(expected_tensor(entry, directory), mesh, divisions)
        same = isinstance(value, DTensor) and check.tensor_bytes(
            value.to_local()) == check.tensor_bytes(wanted.to_local())
        report.that(same, "%s: contents differ" % entry["fqn"])


def read_objects(checkpoint, report):
    """Each object's bytes by themselves, with the unpickler that runs nothing."""
    metadata = dcp.FileSystemReader(checkpoint).read_metadata()
    for index, info in metadata.storage_data.items():
        if index.offset is not None:
            continue
        with open(os.path.join(checkpoint, info.relative_path), "rb") as file:
            file.seek(info.offset)
            data = file.read(info.length)
        if getattr(info, "transform_descriptors", None):
            data = ZStandard().transform_from(io.BytesIO(data)).read()
        try:
            torch.load(io.BytesIO(data), weights_only=True)
            report.ok()
        except Exception as error:
            report.fail("%s: weights_only: %s" % (index.fqn, error))


def load_all(rank, world, manifests, mesh_shape, divisions):
    mesh = init_device_mesh("cpu", mesh_shape)
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch"):
            logging.getLogger(name).addHandler(complaints)
    failed = False
    for manifest in manifests:
        with open(manifest) as file:
            document = json.load(file)
        directory = os.path.dirname(manifest)
        checkpoint = os.path.join(directory, document["checkpoint"])
        report = check.Report(manifest, False)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "ComplexHalf")  # said of any complex32 tensor
            state = load(checkpoint, document["entries"], mesh, divisions)
            if world == 1:
                read_objects(checkpoint, report)
        for line in [str(w.message) for w in warned] + complaints.lines:
            report.fail("warning: %s" % line)
        complaints.lines.clear()
        compare(state, document["entries"], directory, mesh, divisions, report)
        for line in report.failures[:10]:
            print("%s, rank %d of mesh %s: %s" % (document["case"], rank, mesh_shape, line))
        failed = failed or bool(report.failures)
    if failed:
        sys.exit("some values differ")


def main():
    every, index = sys.argv[1:-1] == ["--all"], sys.argv[-1]
    torch.set_num_threads(1)
    with open(index) as file:
        cases = json.load(file)["cases"]
    manifests = [os.path.join(os.path.dirname(os.path.abspath(index)), c["expected"]) for c in cases]
    others = len(TOPOLOGIES) - 1
    for number, (mesh_shape, divisions) in enumerate(TOPOLOGIES):
        world = torch.Size(mesh_shape).numel()
        some = manifests if every or world == 1 else manifests[number - 1::others]
        run_ranks(world, load_all, some, mesh_shape, divisions)
        print("%d checkpoints on %s ranks" % (len(some), "x".join(map(str, mesh_shape))))


if __name__ == "__main__":
    main()
