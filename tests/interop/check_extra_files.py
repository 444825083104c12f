# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints with extra files, loaded by PyTorch, and what PyTorch keeps of them: check_extra_files.py PROGRAM."""
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

warnings.simplefilter("ignore")
NAMES = ["rank_0.bin", "config.yaml", "rank_1.bin"]


def check_loads(path, folder):
    expected = torch.arange(32, dtype=torch.float32).reshape(4, 8)
    wanted = {"w": torch.zeros(4, 8)}
    dcp.load(wanted, checkpoint_id=path, no_dist=True)
    assert torch.equal(wanted["w"], expected)
    dcp_to_torch_save(path, folder / "whole.pt")
    whole = torch.load(folder / "whole.pt", weights_only=True)
    assert list(whole) == ["w"] and torch.equal(whole["w"], expected)


def check_listed(path, generation, text):
    metadata = dcp.FileSystemReader(path).read_metadata()
    files = metadata.dcp_extra_files
    assert [file["name"] for file in files] == NAMES, files
    for rank, file in zip([0, 0, 1], files):
        assert file["file"] == f"__{rank}.g{generation}.extra.{file['name']}", file
        stored = (path / file["file"]).read_bytes()
        if file["name"] == "config.yaml":
            assert stored == text.encode(), stored
        else:
            assert stored == struct.pack("<16f", *range(rank * 16, rank * 16 + 16)), stored
        assert file["size"] == len(stored), file
    return metadata


def printed(program, path):
    return subprocess.run([program, "print", path], check=True, capture_output=True, text=True).stdout


def check_kept_by_pytorch(program, path, metadata):
    """What PyTorch's tools write again is the same to us, by any protocol."""
    before = printed(program, path)
    assert [line.split()[0] for line in before.splitlines()] == NAMES, before
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (path / ".metadata").write_bytes(pickle.dumps(metadata, protocol=protocol))
        assert printed(program, path) == before, protocol


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / "c"
        for generation, text in enumerate(["layers: 2\n", "layers: 3 # more\n"]):
            subprocess.run([program, "save", path, text], check=True)
            check_loads(path, folder)
            metadata = check_listed(path, generation, text)
        assert len(list(path.glob("*.extra.*"))) == 3
        check_kept_by_pytorch(program, path, metadata)
        check_loads(path, folder)


main()
