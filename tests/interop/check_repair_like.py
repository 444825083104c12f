# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's checkpoints without their .metadata, rebuilt by another one of the job, and loaded by PyTorch:
check_repair_like.py DCP_COMMAND."""
import io
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from ranks import run_ranks

warnings.simplefilter("ignore")
torch.set_num_threads(1)  # ranks are forks
command = sys.argv[1]


def state_of(step, wide=5):
    """A state of a job at a step, whole: tensors of several layouts and dtypes, and objects of one length."""
    generator = torch.Generator().manual_seed(step)
    inner = io.BytesIO()
    torch.save({"amax": torch.randn(3, generator=generator)}, inner)
    return {
        "model": {
            "embed": torch.randn(300, 401, generator=generator),
            "bias": torch.randn(7, generator=generator).bfloat16(),
            "turned": torch.randn(6, wide, generator=generator).t(),
            "empty": torch.empty(0, 3),
            "scalar": torch.tensor(step),
        },
        "optimizer": {"m": torch.randn(64, 32, generator=generator), "step": float(step)},
        "extra": inner.getvalue(),
        "rng": [step, "text", {"lr": step / 1000}],
    }


def zeros_like(state):
    if isinstance(state, dict):
        return {key: zeros_like(value) for key, value in state.items()}
    if isinstance(state, list):
        return [zeros_like(value) for value in state]
    return torch.zeros_like(state) if isinstance(state, torch.Tensor) else type(state)()


def same(ours, expected, name=""):
    if isinstance(expected, dict):
        assert ours.keys() == expected.keys(), (name, ours.keys(), expected.keys())
        for key in expected:
            same(ours[key], expected[key], "%s.%s" % (name, key))
    elif isinstance(expected, list):
        assert len(ours) == len(expected), name
        for number, value in enumerate(expected):
            same(ours[number], value, "%s.%d" % (name, number))
    elif isinstance(expected, torch.Tensor):
        assert ours.dtype == expected.dtype and torch.equal(ours, expected), name
    else:
        assert ours == expected, (name, ours, expected)


def run(status, *arguments):
    done = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def load_whole(path, expected):
    wanted = zeros_like(expected)
    dcp.load(wanted, checkpoint_id=path, no_dist=True)
    same(wanted, expected)


def lose(path):
    (path / ".metadata").unlink()


def check_one_rank(folder):
    for step in 1, 2:
        dcp.save(state_of(step), checkpoint_id=folder / str(step), no_dist=True)
    lose(folder / "2")
    said = run(1, "repair", folder / "2")
    assert "float32 [300, 401]" in said and "an object" in said and "--like" in said, said
    found = json.loads(run(1, "repair", "--json", folder / "2").split("\ndcp repair: ")[0])["streams"]
    assert [300, 401] in [stream.get("shape") for stream in found], found
    assert {"dtype": "float32", "shape": [5, 6], "strides": [1, 5]}.items() <= next(
        stream for stream in found if stream.get("shape") == [5, 6]).items(), found
    run(0, "repair", "--dry-run", "--like", folder / "1", folder / "2")
    assert not (folder / "2" / ".metadata").exists()
    said = run(0, "verify", "--repair", "--like", folder / "1", folder / "2")
    assert ": published" in said and said.endswith("0 faults\n"), said
    load_whole(folder / "2", state_of(2))
    metadata = dcp.FileSystemReader(folder / "2").read_metadata()
    assert metadata.planner_data == dcp.FileSystemReader(folder / "1").read_metadata().planner_data


def check_compressed(folder):
    from torch.distributed.checkpoint._extension import ZStandard
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    def save(path):
        # Compressed lengths are those of the other checkpoint only if the values are.
        state = {"w": torch.arange(40000.0).reshape(200, 200), "o": "text", "b": torch.full((5,), 7)}
        dcp.save(state, storage_writer=FileSystemWriter(path, _extensions=[ZStandard()]), no_dist=True)
        return state

    state = save(folder / "z1")
    save(folder / "z2")
    lose(folder / "z2")
    said = run(0, "verify", "--repair", "--like", folder / "z1", folder / "z2")
    assert "float32 [200, 200], compressed" in said, said
    load_whole(folder / "z2", state)


def sharded(rank, world, step):
    mesh = init_device_mesh("cpu", (world,))
    state = state_of(step)
    state["model"]["embed"] = distribute_tensor(state["model"]["embed"], mesh, [Shard(0)])
    state["optimizer"]["m"] = distribute_tensor(state["optimizer"]["m"], mesh, [Shard(1)])
    state["model"]["bias"] = distribute_tensor(state["model"]["bias"], mesh, [Replicate()])
    return state


def save_ranks(rank, world, folder):
    for step in 1, 2:
        dcp.save(sharded(rank, world, step), checkpoint_id=folder / str(step))


def load_ranks(rank, world, path):
    wanted, expected = sharded(rank, world, 0), sharded(rank, world, 2)
    dcp.load(wanted, checkpoint_id=path)
    for part, name in ("model", "embed"), ("model", "bias"), ("optimizer", "m"):
        assert torch.equal(wanted[part][name].to_local(), expected[part][name].to_local()), name
    assert wanted["rng"] == expected["rng"] and wanted["optimizer"]["step"] == 2.0


def check_ranks(folder):
    run_ranks(3, save_ranks, folder)
    lose(folder / "2")
    run(0, "repair", "--like", folder / "1", folder / "2")
    assert run(0, "verify", folder / "2").endswith("0 faults\n")
    run_ranks(3, load_ranks, folder / "2")
    run_ranks(2, load_ranks, folder / "2")
    load_whole(folder / "2", state_of(2))


def check_what_differs(folder):
    """What does not agree is listed and left out; the rest is loaded."""
    dcp.save(state_of(1), checkpoint_id=folder / "1", no_dist=True)
    # As long as [6, 5], so that all others are at their places.
    other = state_of(2, wide=5)
    other["model"]["turned"] = other["model"]["turned"].t().contiguous()
    dcp.save(other, checkpoint_id=folder / "2", no_dist=True)
    lose(folder / "2")
    said = run(1, "verify", "--repair", "--like", folder / "1", folder / "2")
    assert "stored tensor has shape [6, 5], but the metadata says [5, 6]" in said, said
    assert "names of %s, 1 fault: published" % (folder / "1") in said, said
    del other["model"]["turned"]
    load_whole(folder / "2", other)
    assert "model.turned" not in dcp.FileSystemReader(folder / "2").read_metadata().state_dict_metadata
    # A file of another rank, one that is cut, and one of which a stream is damaged.
    lose(folder / "2")
    shard = folder / "2" / "__0_0.distcp"
    whole = shard.read_bytes()
    shutil.copy(shard, folder / "2" / "__1_0.distcp")
    said = run(1, "repair", "--dry-run", "--like", folder / "1", folder / "2")
    assert "__1_0.distcp: a stream that the other checkpoint has no name for" in said, said
    (folder / "2" / "__1_0.distcp").unlink()
    shard.write_bytes(whole[:-3000])
    said = run(1, "repair", "--dry-run", "--like", folder / "1", folder / "2")
    assert "no stream begins at" in said and "no stream of torch.save" in said, said
    shard.unlink()
    said = run(1, "repair", "--dry-run", "--like", folder / "1", folder / "2")
    assert "__0_0.distcp is not in the directory" in said and not (folder / "2" / ".metadata").exists(), said


def check_random_damage(folder):
    """Whatever is damaged: what is rebuilt has the values that were saved, or verify finds its checksum wrong."""
    rng = random.Random(5)
    dcp.save(state_of(1), checkpoint_id=folder / "1", no_dist=True)
    dcp.save(state_of(2), checkpoint_id=folder / "2", no_dist=True)
    lose(folder / "2")
    shard = folder / "2" / "__0_0.distcp"
    whole = shard.read_bytes()
    for _ in range(20):
        damaged = bytearray(whole)
        at, size = rng.randrange(len(whole)), rng.choice([1, 40, 5000])
        damaged[at:at + size] = rng.randbytes(len(damaged[at:at + size]))
        shard.write_bytes(damaged)
        done = subprocess.run([command, "repair", "--like", folder / "1", folder / "2"], capture_output=True, text=True)
        assert done.returncode in (0, 1), (done.returncode, done.stdout, done.stderr)
        if (folder / "2" / ".metadata").exists():
            done = subprocess.run([command, "verify", folder / "2"], capture_output=True, text=True)
            assert done.returncode in (0, 1) and "chunk" not in done.stdout, done
            lose(folder / "2")


def main():
    # Ranks first: forks of a process without threads.
    checks = [check_ranks, check_one_rank, check_what_differs, check_random_damage]
    try:
        import zstandard  # noqa: F401

        checks.append(check_compressed)
    except ImportError:
        print("compressed streams are not tried: no package zstandard")
    for check in checks:
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder))
    print("%d kinds of checkpoints rebuilt" % len(checks))


main()
