# SPDX-License-Identifier: BSD-3-Clause
"""Shard files written one by one, and metadata rebuilt from footers, read by PyTorch: check_shard_files.py PROGRAM SAVED.

SAVED is a folder with checkpoints that were saved by the library; their copies lose their .metadata and get it back."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.simplefilter("ignore")


def check_written(program, path):
    subprocess.run([program, "write", path, "plain"], check=True)
    expected = torch.arange(8 * 4096, dtype=torch.float32).reshape(8, 4096)
    metadata = dcp.FileSystemReader(path).read_metadata()
    assert metadata.planner_data["model.layer.w"] == ("model", "layer.w"), metadata.planner_data
    assert metadata.planner_data["list.0"] == ("list", 0), metadata.planner_data
    wanted = {
        "model": {"layer.w": torch.zeros(8, 4096)},
        "flat.name": torch.zeros(3, dtype=torch.int64),
        "list.0": "",
    }
    dcp.load(wanted, checkpoint_id=path, no_dist=True)
    assert torch.equal(wanted["model"]["layer.w"], expected)
    assert wanted["flat.name"].tolist() == [1, -2, 2**63 - 1]
    assert wanted["list.0"] == "n\u00fcn", wanted


def contents(path):
    """What .metadata says, in an order that does not depend on how it was made."""
    metadata = dcp.FileSystemReader(path).read_metadata()
    entries = {}
    for name, entry in metadata.state_dict_metadata.items():
        if hasattr(entry, "chunks"):
            chunks = sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks)
            properties = entry.properties
            entries[name] = (tuple(entry.size), properties.dtype, properties.requires_grad, chunks)
        else:
            entries[name] = type(entry)
    storage = {
        (index.fqn, tuple(index.offset or ())): (
            info.relative_path,
            info.offset,
            info.length,
            tuple(info.transform_descriptors or ()),
        )
        for index, info in metadata.storage_data.items()
    }
    return entries, storage, metadata.planner_data, metadata.storage_meta.save_id


def check_rebuilt(program, saved, path):
    shutil.copytree(saved, path)
    before = contents(path)
    (path / ".metadata").unlink()
    subprocess.run([program, "rebuild", path], check=True)
    after = contents(path)
    for one, other in zip(before, after):
        assert one == other, (saved, one, other)


def main():
    program, saved = sys.argv[1], pathlib.Path(sys.argv[2])
    found = sorted(metadata.parent for metadata in saved.glob("**/.metadata"))
    assert found, saved
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check_written(program, folder / "written")
        for number, directory in enumerate(found):
            check_rebuilt(program, directory, folder / str(number))
    print(f"{len(found)} checkpoints rebuilt")


main()
