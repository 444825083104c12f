#!/usr/bin/env python3
"""PyTorch's side of compare: as bench_ranks.c, with the commands save, save_files, load, reshard, everything, alone, those of torch_async.py, and
"write FILE" for a file of torch_others.py, which one rank writes.

    python torch_ranks.py RANKS TENSORS COLUMNS
"""
import ctypes
import logging
import os
import sys
import tempfile
import time
import warnings

import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

import torch_async  # noqa: E402
import torch_others  # noqa: E402
from together import start_together  # noqa: E402

ROWS = 240
DIVISION = {"reshard": 1, "everything": -1, "alone": -1}


def make_state(mesh, count, columns, dim, fill):
    """Equal matrices, of which each rank makes only its own part; dim -1: each makes plain tensors of all."""
    rank, ranks = mesh.get_local_rank(), mesh.size()
    rows, cols = torch.arange(ROWS).unsqueeze(1), torch.arange(columns).unsqueeze(0)
    if dim >= 0:
        rows, cols = (rows.chunk(ranks)[rank], cols) if dim == 0 else (rows, cols.chunk(ranks, 1)[rank])
    model = {}
    for t in range(count):
        local = torch.full((rows.numel(), cols.numel()), float("nan"))
        if fill:
            local.copy_((t * 31 + rows * columns + cols) & 0xFFFFFF)
        model["t%d" % t] = local if dim < 0 else DTensor.from_local(
            local, mesh, [Shard(dim)], run_check=False, shape=torch.Size((ROWS, columns)),
            stride=(columns, 1))
    return {"model": model}


def same(state, other):
    return all(torch.equal(value.to_local(), other["model"][name].to_local()) if isinstance(value, DTensor)
               else torch.equal(value, other["model"][name]) for name, value in state["model"].items())


def bytes_read():
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])


def memory_peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def memory_trim():
    """As memory_use.c."""
    ctypes.CDLL(None).malloc_trim(0)


def memory_restart():
    with open("/proc/self/clear_refs", "w") as references:
        references.write("5")
    return memory_peak()


def execute(command, path, state, mesh, count, columns):
    target, saves = state, command.startswith("save")
    if not saves:
        target = make_state(mesh, count, columns, DIVISION.get(command, 0), False)
    before = bytes_read()
    memory = memory_restart()
    start_together()
    start, processor = time.perf_counter(), time.process_time()
    if saves:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, single_file_per_rank=command == "save"))
    else:
        torch_others.load(target, path, mesh.get_local_rank(), mesh.size())
    seconds = time.perf_counter() - start
    processor = time.process_time() - processor
    answer = seconds, bytes_read() - before, memory_peak() - memory, 0, processor, 0
    if not saves:
        wanted = make_state(mesh, count, columns, DIVISION[command], True) if command in DIVISION else state
        if not same(target, wanted):
            sys.exit("%s: what was loaded differs" % path)
    return answer


def run_rank(rank, ranks, count, columns, store, commands, answers):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    state = make_state(mesh, count, columns, 0, True)
    saves = torch_async.AsyncSaves()
    for line in os.fdopen(commands):
        command, path = line.rstrip("\n").split(" ", 1)
        if command in torch_async.COMMANDS:
            waited, *times = saves.save(command, state, path)
            answer = waited, 0, 0, *times
        elif command == "trim":
            memory_trim()
            answer = (0,) * 6
        elif command == "write":
            if rank == 0:
                torch_others.write(make_state(mesh, count, columns, -1, True)["model"], path)
            answer = (0,) * 6
        else:
            answer = execute(command, path, state, mesh, count, columns)
        os.write(answers, b"%.6f %d %d %.6f %.6f %.6f\n" % answer)
    saves.close()
    dist.destroy_process_group()


def main():
    ranks, count, columns = map(int, sys.argv[1:])
    read_answers, answers = os.pipe()
    pipes = []
    with tempfile.TemporaryDirectory() as directory:
        for rank in range(ranks):
            read_end, write_end = os.pipe()
            pipes.append(write_end)
            if os.fork() == 0:
                for earlier in pipes:
                    os.close(earlier)
                os.close(read_answers)
                run_rank(rank, ranks, count, columns, os.path.join(directory, "store"), read_end, answers)
                os._exit(0)
            os.close(read_end)
        os.close(answers)
        lines = os.fdopen(read_answers)
        for command in sys.stdin:
            for pipe in pipes:
                os.write(pipe, command.encode())
            parts = [lines.readline().split() for _ in range(ranks)]
            if not all(parts):
                sys.exit("a rank died")
            combined = (combine(float(p[i]) for p in parts)
                        for i, combine in enumerate((max, sum, max, max, sum, sum)))
            print("%.6f %d %d 0 %.6f %.6f %.6f" % tuple(combined), flush=True)
        for pipe in pipes:
            os.close(pipe)
        for _ in range(ranks):
            os.wait()


if __name__ == "__main__":
    main()
