#!/usr/bin/env python3
"""PyTorch's side of `compare plan`: its own global planning of plans of simulated ranks.

    torch_plan.py RANKS weights|optimizer < TENSORS

Each line of standard input is a name and a shape; every rank holds rows of each tensor.  What
ranks send is pickled, as gather_object does it, and one line per figure goes out.
"""
import io
import pickle
import resource
import sys
import time

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType


def read_model():
    for line in sys.stdin:
        name, *shape = line.split()
        yield name, torch.Size(map(int, shape))


def write_item(fqn, dtype, offsets, sizes, shape, kind):
    return WriteItem(
        index=MetadataIndex(fqn, offsets), type=kind,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
            properties=TensorProperties(dtype=dtype), size=shape))


def make_plan(model, rank, ranks, optimizer):
    items, paths = [], {}
    none = torch.Size(())
    for name, shape in model:
        step = -(-shape[0] // ranks)
        start = min(rank * step, shape[0])
        rows = min(step, shape[0] - start)
        offsets = torch.Size((start,) + (0,) * (len(shape) - 1))
        sizes = torch.Size((rows,) + tuple(shape[1:]))
        fqn = "model." + name
        paths[fqn] = ("model", name)
        if rows > 0:
            items.append(write_item(fqn, torch.bfloat16, offsets, sizes, shape, WriteItemType.SHARD))
        if not optimizer:
            continue
        for key in ("exp_avg", "exp_avg_sq"):
            fqn = "optim.state.%s.%s" % (name, key)
            paths[fqn] = ("optim", "state", name, key)
            if rows > 0:
                items.append(write_item(fqn, torch.float32, offsets, sizes, shape, WriteItemType.SHARD))
        fqn = "optim.state.%s.step" % name
        paths[fqn] = ("optim", "state", name, "step")
        items.append(write_item(fqn, torch.float32, none, none, none, WriteItemType.TENSOR))
    return SavePlan(items, planner_data=paths)


def report(measure, value, unit):
    print(measure, "%.9g" % value, unit, flush=True)


def store(plans):
    """What the storage writers tell of where everything went."""
    storage = {}
    for rank, plan in enumerate(plans):
        name, offset = "__%d_0.distcp" % rank, 0
        for item in plan.items:
            length = item.tensor_storage_size() + 1500
            storage[item.index] = _StorageInfo(name, offset, length)
            offset += length
    return storage


def main():
    ranks, optimizer = int(sys.argv[1]), sys.argv[2] == "optimizer"
    model = list(read_model())
    messages = [pickle.dumps(make_plan(model, rank, ranks, optimizer)) for rank in range(ranks)]
    report("plan-message", max(map(len, messages)), "bytes")

    start = time.monotonic()
    plans = [pickle.loads(message) for message in messages]
    items = sum(len(plan.items) for plan in plans)
    planner = DefaultSavePlanner()
    plans, metadata = planner.create_global_plan(plans)
    for plan in plans:
        pickle.dumps(plan)
    report("coordinator", time.monotonic() - start, "s")
    report("items", items, "items")
    del messages
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    report("coordinator-memory", memory, "bytes")

    metadata.storage_data = store(plans)
    out = io.BytesIO()
    start = time.monotonic()
    pickle.dump(metadata, out)
    report("encode", time.monotonic() - start, "s")
    report("metadata-bytes", out.tell(), "bytes")
    start = time.monotonic()
    pickle.loads(out.getvalue())
    report("decode", time.monotonic() - start, "s")
    report("memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "bytes")


if __name__ == "__main__":
    main()
