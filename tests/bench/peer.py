#!/usr/bin/env python3
"""One of the other ways to save a state, for `compare peers`: keeps it in memory, and does what it is asked on
standard input, "save PATH" or "load PATH", each answered as bench_ranks.c answers.

    python peer.py dcp|torch|mmap|safetensors|fastsafetensors|orbax 1 TENSORS COLUMNS

Every save is durable: where the peer has no sync of its own, its files and directories are synced behind it.
Every load ends with all values in memory: those that are mapped are copied into tensors that are there.
A peer whose package is missing says "missing" and ends.
"""
import logging
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

try:
    import torch_ranks
except ImportError as missing:
    print("missing", missing.name, flush=True)
    sys.exit(0)

ROWS = torch_ranks.ROWS


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sync_all(path):
    for folder, _, files in os.walk(path, topdown=False):
        for name in files:
            sync(os.path.join(folder, name))
        sync(folder)
    sync(os.path.dirname(path))


class Torch:
    """torch.save and torch.load, and what the others of PyTorch share."""

    in_place = False

    def __init__(self):
        import torch
        self.torch = torch
        torch.set_num_threads(1)

    def make_state(self, count, columns):
        rows, cols = self.torch.arange(ROWS).unsqueeze(1), self.torch.arange(columns).unsqueeze(0)
        return {"t%d" % t: ((t * 31 + rows * columns + cols) & 0xFFFFFF).float() for t in range(count)}

    def make_target(self, state):
        return {name: self.torch.full_like(value, float("nan")) for name, value in state.items()}

    def save(self, state, path):
        os.makedirs(path, exist_ok=True)
        self.write(state, os.path.join(path, "state"))
        sync_all(path)

    def write(self, state, file):
        self.torch.save(state, file)

    def load(self, path, _target):
        return self.torch.load(os.path.join(path, "state"))

    def same(self, loaded, state):
        return all(self.torch.equal(loaded[name], value) for name, value in state.items())


class Mapped(Torch):
    in_place = True

    def load(self, path, target):
        for name, value in self.map(os.path.join(path, "state")).items():
            target[name].copy_(value)
        return target

    def map(self, file):
        return self.torch.load(file, mmap=True)


class Safetensors(Mapped):
    def __init__(self):
        super().__init__()
        import safetensors.torch
        self.package = safetensors.torch

    def write(self, state, file):
        self.package.save_file(state, file)

    def map(self, file):
        return self.package.load_file(file)


class FastSafetensors(Safetensors):
    """Writes as safetensors; its tensors lie in its own buffer, which stays until the next load."""

    in_place = False

    def __init__(self):
        super().__init__()
        import fastsafetensors
        self.fast = fastsafetensors
        self.loader = self.buffer = None

    def load(self, path, _target):
        if self.loader:
            self.buffer.close()
            self.loader.close()
        self.loader = self.fast.SafeTensorsFileLoader(None, device="cpu", nogds=True)
        self.loader.add_filenames({0: [os.path.join(path, "state")]})
        self.buffer = self.loader.copy_files_to_device()
        return {name: self.buffer.get_tensor(name) for name in self.loader.get_keys()}


class Dcp(Torch):
    in_place = True

    def __init__(self):
        super().__init__()
        import torch.distributed.checkpoint as dcp
        self.dcp = dcp

    def save(self, state, path):
        self.dcp.save({"model": state}, checkpoint_id=path, no_dist=True)

    def load(self, path, target):
        self.dcp.load({"model": target}, checkpoint_id=path, no_dist=True)
        return target


class Orbax:
    """A state of JAX arrays in host memory."""

    in_place = False

    def __init__(self):
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        import orbax.checkpoint
        self.jax = jax
        self.checkpointer = orbax.checkpoint.StandardCheckpointer()

    def make_state(self, count, columns):
        jnp = self.jax.numpy
        values = jnp.arange(ROWS * columns, dtype=jnp.int32).reshape(ROWS, columns)
        state = {"t%d" % t: ((t * 31 + values) & 0xFFFFFF).astype(jnp.float32) for t in range(count)}
        self.shapes = {name: self.jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in state.items()}
        return self.jax.block_until_ready(state)

    def save(self, state, path):
        self.checkpointer.save(os.path.abspath(path), state)
        self.checkpointer.wait_until_finished()
        sync_all(path)

    def load(self, path, _target):
        return self.jax.block_until_ready(self.checkpointer.restore(os.path.abspath(path), self.shapes))

    def same(self, loaded, state):
        return all(bool((loaded[name] == value).all()) for name, value in state.items())


PEERS = {"dcp": Dcp, "torch": Torch, "mmap": Mapped, "safetensors": Safetensors, "fastsafetensors": FastSafetensors,
         "orbax": Orbax}


def execute(peer, command, path, state):
    target = peer.make_target(state) if command == "load" and peer.in_place else None
    before, memory = torch_ranks.bytes_read(), torch_ranks.memory_restart()
    start, processor = time.perf_counter(), time.process_time()
    loaded = peer.save(state, path) if command == "save" else peer.load(path, target)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    memory = torch_ranks.memory_peak() - memory
    if command == "load" and not peer.same(loaded, state):
        sys.exit("%s: what was loaded differs" % path)
    return seconds, torch_ranks.bytes_read() - before, memory, 0, 0, processor, 0


def main():
    kind, count, columns = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
    try:
        peer = PEERS[kind]()
    except ImportError as missing:
        print("missing", missing.name, flush=True)
        return
    state = peer.make_state(count, columns)
    print("ready", flush=True)
    for line in sys.stdin:
        command, path = line.rstrip("\n").split(" ", 1)
        if command == "trim":
            torch_ranks.memory_trim()
            answer = (0,) * 7
        else:
            answer = execute(peer, command, path, state)
        print("%.6f %d %d %d %.6f %.6f %.6f" % answer, flush=True)


if __name__ == "__main__":
    main()
