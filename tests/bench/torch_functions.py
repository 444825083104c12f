#!/usr/bin/env python3
"""PyTorch's side and libdcp.torch's in the same processes, for compare torch: prints seconds of each try, slowest rank.

    torch_functions.py save|load|cold|columns|everything|after|kept|async|import RANKS TENSORS COLUMNS REPEAT DIRECTORY [cpu]

Sides are stock (torch.distributed.checkpoint), pair (its functions over libdcp.torch's storage and stager) and full (libdcp.torch's
functions); nothing is PyTorch's functions over a storage that moves no bytes, which pair can reach at best. PyTorch's
planner keeps plans. They take turns in being first; the first try, of async the first two, is not printed. With cpu it
is the CPU time of all ranks, which other work on the machine changes less. Ranks that Open MPI has started are those; else
this process starts them.
"""
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: E402
from torch.distributed.checkpoint.storage import WriteResult  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.futures import Future  # noqa: E402

import libdcp.torch as ours  # noqa: E402
from together import start_together  # noqa: E402
from torch_ranks import make_state, same  # noqa: E402

WARM = {"save": 1, "load": 1, "cold": 1, "columns": 1, "everything": 1, "after": 1, "kept": 1, "async": 2}
LOADS = ("load", "cold", "columns", "everything", "after", "kept")
DIVISION = {"columns": 1, "everything": -1}  # else by rows, as saved


class Stock(dcp.DefaultSavePlanner):
    """Plans are kept by the name of the class."""


class Pair(dcp.DefaultSavePlanner):
    pass


class Least(dcp.DefaultSavePlanner):
    pass


class NoWriter(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        future = Future()
        future.set_result([WriteResult(item.index, 0, _StorageInfo("none", 0, 0)) for item in plan.items])
        return future


class NoReader(dcp.FileSystemReader):
    def read_data(self, plan, planner):
        future = Future()
        future.set_result(None)
        return future


READERS = {"stock": dcp.FileSystemReader, "pair": ours.FileSystemReader, "nothing": NoReader}


class Sides:
    def __init__(self, group):
        self.group = group
        options = StagingOptions(False, False, False, False)
        self.stagers = {"stock": DefaultStager(options), "pair": ours.DefaultStager(options)}

    def save(self, side, state, path, page_cache="any"):
        if side in ("stock", "nothing"):
            writer, planner = (dcp.FileSystemWriter, Stock) if side == "stock" else (NoWriter, Least)
            dcp.save(state, storage_writer=writer(path), planner=planner(enable_plan_caching=True))
            return
        writer = ours.FileSystemWriter(path, page_cache=page_cache)
        if side == "full":
            ours.save(state, storage_writer=writer)
        else:
            dcp.save(state, storage_writer=writer, planner=Pair(enable_plan_caching=True))

    def load(self, side, state, path):
        if side == "full":
            ours.load(state, checkpoint_id=path)
            return
        dcp.load(state, storage_reader=READERS[side](path))

    def begin(self, side, state, path):
        if side == "full":
            return ours.async_save(state, checkpoint_id=path, process_group=self.group)
        writer, planner = (dcp.FileSystemWriter, Stock) if side == "stock" else (ours.FileSystemWriter, Pair)
        answer = dcp.async_save(
            state, storage_writer=writer(path), planner=planner(enable_plan_caching=True), process_group=self.group,
            async_stager=self.stagers[side],
        )
        return getattr(answer, "upload_completion", answer)

    def close(self):
        for stager in self.stagers.values():
            stager.close()


def bring(path, cached):
    """Has the page cache hold the files of a checkpoint, or none of them."""
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as file:
            if not cached:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while cached and file.read(1 << 20):
                pass


def prepare(sides, what, side, state, path):
    """Before a try: what each side loads is in the same place, and no side collects another's garbage, which takes
    longer than what it would be charged to."""
    gc.collect()
    if what in ("after", "kept"):
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
        dist.barrier()
        sides.save(side, state, path, "kept" if what == "kept" else "any")
    elif dist.get_rank() == 0 and what in LOADS:
        bring(path, what == "load")
    elif dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        os.sync()


def attempt(sides, what, side, states, path, clock):
    """Seconds of one try: of the slowest rank, or of the CPU on all. states: to be saved, to be loaded into, and
    what that holds then."""
    state, empty, loaded = states
    prepare(sides, what, side, state, path)
    start_together()
    start = clock()
    if what in LOADS:
        sides.load(side, empty, path)
        seconds = clock() - start
        if side != "nothing" and not same(empty, loaded):
            sys.exit("%s: what was loaded differs" % path)
    elif what == "save":
        sides.save(side, state, path)
        seconds = clock() - start
    else:
        future = sides.begin(side, state, path)
        seconds = clock() - start
        future.result()
    together = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(together, dist.ReduceOp.SUM if clock is time.process_time else dist.ReduceOp.MAX)
    return together.item()


def run_rank(rank, ranks, what, count, columns, repeat, directory, clock, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    dim = DIVISION.get(what, 0)
    state, empty = make_state(mesh, count, columns, 0, True), make_state(mesh, count, columns, dim, False)
    states = state, empty, make_state(mesh, count, columns, dim, True) if dim != 0 else state
    sides, names = Sides(dist.new_group(backend="gloo")), ["stock", "pair", "full"]
    names += ["nothing"] if what in ("save", "load") else []
    if what in LOADS:
        for side in names:
            sides.save(side, state, os.path.join(directory, side))
    for turn in range(WARM[what] + repeat):
        first = turn % len(names)
        for side in names[first:] + names[:first]:
            path = os.path.join(directory, side)
            seconds = attempt(sides, what, side, states, path, clock)
            if rank == 0 and turn >= WARM[what]:
                print(side, "%.6f" % seconds, flush=True)
    dist.barrier()
    sides.close()
    dist.destroy_process_group()


def time_import(repeat, directory):
    """Seconds beside PyTorch's imports, in processes of their own; compiled before, as an installed package is."""
    environment = dict(os.environ, PYTHONPYCACHEPREFIX=directory)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = (
        "import torch.distributed.checkpoint, torch.distributed.tensor, time; start = time.perf_counter();"
        "import libdcp.torch; print(time.perf_counter() - start)"
    )
    for turn in range(repeat + 1):
        call = [sys.executable, "-c", program]
        out = subprocess.run(call, env=environment, check=True, capture_output=True, text=True).stdout
        if turn > 0:
            print("full", out.strip())


def main():
    what, (ranks, count, columns, repeat), directory = sys.argv[1], map(int, sys.argv[2:6]), sys.argv[6]
    clock = time.process_time if sys.argv[7:] == ["cpu"] else time.perf_counter
    if what == "import":
        return time_import(repeat, directory)
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return run_rank(int(os.environ["OMPI_COMM_WORLD_RANK"]), ranks, what, count, columns, repeat, directory, clock,
                        os.path.join(directory, "store"))  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                run_rank(rank, ranks, what, count, columns, repeat, directory, clock, os.path.join(place, "store"))
                os._exit(0)
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            sys.exit("a rank failed")


if __name__ == "__main__":
    main()
