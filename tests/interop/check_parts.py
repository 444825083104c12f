#!/usr/bin/env python3
"""PyTorch loads what ranks have saved without collectives, and partial checkpoints.

    python check_parts.py SAVE_PARTS

SAVE_PARTS writes the directories, see there. Each rank of PyTorch finds its own metadata. A
partial checkpoint is read as far as it goes: the ranks whose part it is load it.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ranks import run_ranks

ROWS = torch.arange(36, dtype=torch.float32).reshape(12, 3)
SAME = torch.tensor([1.5, 2.5], dtype=torch.float64)


def check_state(state, rows):
    assert torch.equal(rows, state["model"]["rows"]), state
    assert torch.equal(state["model"]["same"], SAME), state
    assert state["step"] == 7, state


def load_own_part(rank, world, path):
    mesh = init_device_mesh("cpu", (world,))
    rows = distribute_tensor(torch.full((12, 3), -1.0), mesh, [Shard(0)], src_data_rank=None)
    same = torch.zeros(2, dtype=torch.float64)
    state = {"model": {"rows": rows, "same": same}, "step": 0}
    dcp.load(state, storage_reader=FileSystemReader(path))
    state["model"]["rows"] = rows.to_local()
    check_state(state, ROWS.chunk(world)[rank])


def check_metadata(path, rank, world):
    name = rank if os.path.exists(os.path.join(path, "__0.metadata")) else None
    metadata = FileSystemReader(path).read_metadata(**({} if name is None else {"rank": name}))
    rows = metadata.state_dict_metadata["model.rows"]
    assert rows.size == torch.Size([12, 3]), rows
    height = 12 // world
    assert [tuple(chunk.offsets) for chunk in rows.chunks] == [(rank * height, 0)], rows
    files = {place.relative_path for place in metadata.storage_data.values()}
    assert all(file.startswith("__%d_" % (rank if name is not None else 0)) for file in files)


def load_whole(path, expected=ROWS):
    state = {"model": {"rows": torch.full((12, 3), -1.0), "same": torch.zeros(2, dtype=torch.float64)}, "step": 0}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    check_state(state, expected)


def main():
    for world in (2, 3):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([sys.argv[1], directory, str(world)], check=True)
            ranks = os.path.join(directory, "ranks")
            run_ranks(world, load_own_part, ranks)
            for rank in range(world):
                check_metadata(ranks, rank, world)
                check_metadata(os.path.join(directory, "part%d" % rank), rank, world)
            load_whole(os.path.join(directory, "whole"))
            part = ROWS.clone()
            part[12 // world:] = -1  # PyTorch does not notice what is missing
            load_whole(os.path.join(directory, "part0"), part)


if __name__ == "__main__":
    main()
