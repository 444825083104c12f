#!/usr/bin/env python3
"""One of the other ways to save a state, for `compare peers`: keeps it in memory, and does what it is asked on
standard input, "save PATH" or "load PATH", each answered as bench_ranks.c answers.

    python torch_peers.py dcp|torch|mmap|safetensors 1 TENSORS COLUMNS

Every save is durable: where the peer has no sync of its own, its file and directory are synced behind it.
Every load ends with all values in memory: those that are mapped are copied into tensors that are there.
A peer whose package is missing says "missing" and ends.
"""
import logging
import os
import sys
import time
import warnings

try:
    import torch
    if sys.argv[1] == "safetensors":
        import safetensors.torch
except ImportError as missing:
    print("missing", missing.name, flush=True)
    sys.exit(0)

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed.checkpoint as dcp  # noqa: E402

import torch_ranks  # noqa: E402

ROWS = torch_ranks.ROWS


def make_state(count, columns):
    rows, cols = torch.arange(ROWS).unsqueeze(1), torch.arange(columns).unsqueeze(0)
    return {"t%d" % t: ((t * 31 + rows * columns + cols) & 0xFFFFFF).float() for t in range(count)}


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save(kind, state, path):
    if kind == "dcp":
        dcp.save({"model": state}, checkpoint_id=path, no_dist=True)
        return
    os.makedirs(path, exist_ok=True)
    file = os.path.join(path, "state")
    if kind == "safetensors":
        safetensors.torch.save_file(state, file)
    else:
        torch.save(state, file)
    for written in file, path, os.path.dirname(path):
        sync(written)


def load(kind, path, target):
    if kind == "dcp":
        dcp.load({"model": target}, checkpoint_id=path, no_dist=True)
        return target
    file = os.path.join(path, "state")
    if kind == "torch":
        return torch.load(file)
    mapped = safetensors.torch.load_file(file) if kind == "safetensors" else torch.load(file, mmap=True)
    for name, value in mapped.items():
        target[name].copy_(value)
    return target


def execute(kind, command, path, state):
    in_place = command == "load" and kind != "torch"
    target = {name: torch.full_like(value, float("nan")) for name, value in state.items()} if in_place else None
    before, memory = torch_ranks.bytes_read(), torch_ranks.memory_restart()
    start, processor = time.perf_counter(), time.process_time()
    loaded = save(kind, state, path) if command == "save" else load(kind, path, target)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    memory = torch_ranks.memory_peak() - memory
    if loaded is not None and not all(torch.equal(loaded[name], value) for name, value in state.items()):
        sys.exit("%s: what was loaded differs" % path)
    return seconds, torch_ranks.bytes_read() - before, memory, 0, 0, processor, 0


def main():
    kind, count, columns = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    state = make_state(count, columns)
    print("ready", flush=True)
    for line in sys.stdin:
        command, path = line.rstrip("\n").split(" ", 1)
        print("%.6f %d %d %d %.6f %.6f %.6f" % execute(kind, command, path, state), flush=True)


if __name__ == "__main__":
    main()
