# SPDX-License-Identifier: BSD-3-Clause
"""What a storage says of a save, by a hook of ours or of PyTorch's, read by the other side: check_storage_meta.py PROGRAM."""
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import StorageMeta

warnings.simplefilter("ignore")


def run(*arguments):
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout.decode().split("\n")[:-1]


def check_ours(program, path, own):
    os.mkdir(path)
    run(program, "write", path, "own" if own else "files")
    meta = dcp.FileSystemReader(path).read_metadata().storage_meta
    assert type(meta) is StorageMeta
    assert meta.checkpoint_id == "s3://bucket/run 7" and meta.modules == ["model", "optimizer \u00fc"], meta
    if own:
        assert meta.save_id == "the 12th", meta
    else:
        assert len(meta.save_id) == 36, meta  # that of our files
    stored = run(program, "read", path)
    assert stored == ["s3://bucket/run 7", meta.save_id, "none yet", "model", "optimizer \u00fc"], stored
    state = {"w": torch.zeros(3), "step": 0}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    assert state["step"] == 7 and torch.equal(state["w"], torch.tensor([1.0, 2, 3]))


class Writer(dcp.FileSystemWriter):
    def __init__(self, path, meta):
        super().__init__(path)
        self.meta = meta

    def storage_meta(self):
        return self.meta


def check_theirs(program, path, meta, expected):
    dcp.save({"w": torch.ones(3)}, storage_writer=Writer(path, meta), no_dist=True)
    found = run(program, "read", path)
    assert found == expected, (found, expected)


def main(program):
    with tempfile.TemporaryDirectory() as directory:
        check_ours(program, f"{directory}/files", False)
        check_ours(program, f"{directory}/own", True)
        check_theirs(program, f"{directory}/all", StorageMeta("run 7", "the 12th", "again", ["a", "\u00fc"]),
                     ["run 7", "the 12th", "again", "a", "\u00fc"])
        check_theirs(program, f"{directory}/some", StorageMeta(save_id="the 12th"), ["(none)", "the 12th", "(none)"])
        check_theirs(program, f"{directory}/path", StorageMeta(pathlib.Path("/data/run 7/\u00fc")), ["/data/run 7/\u00fc", "(none)", "(none)"])
        check_theirs(program, f"{directory}/relative", StorageMeta(pathlib.Path("run/7")), ["run/7", "(none)", "(none)"])
        check_theirs(program, f"{directory}/number", StorageMeta(7), ["(none)"] * 3)
        # One text that is in the list often would take a hundred megabytes.
        check_theirs(program, f"{directory}/many", StorageMeta("id", modules=["x" * 100000] * 1000), ["id", "(none)", "(none)"])
        check_theirs(program, f"{directory}/none", None, ["(none)"] * 3)
        dcp.save({"w": torch.ones(3)}, checkpoint_id=f"{directory}/plain", no_dist=True)
        meta = dcp.FileSystemReader(f"{directory}/plain").read_metadata().storage_meta
        assert run(program, "read", f"{directory}/plain") == [f"{directory}/plain", meta.save_id, "(none)"]
    print("PyTorch", torch.__version__, "and we read each other's storage_meta")


main(sys.argv[1])
