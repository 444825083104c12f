# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous saves by libdcp.torch beside PyTorch's, of each kind: by a thread, by a process, with stagers; and other ways of
saving, as options of the storage and the functions have them."""

import os
import pickle
import random
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from test_torch_storage import any_state, emptied, equal, free_port, run_rank
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager as StockStager
from torch.distributed.checkpoint.staging import StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import libdcp.torch as ours
from libdcp import Error
from libdcp.torch.ways import _StockWriter

PLAIN = StagingOptions(False, False, False, False)
PROCESS = {"async_checkpointer_type": AsyncCheckpointerType.PROCESS}


def with_gradients(value, source):
    """Some of the tensors require gradients, some are parameters."""
    if isinstance(value, dict):
        return {key: with_gradients(part, source) for key, part in value.items()}
    if isinstance(value, list):
        return [with_gradients(part, source) for part in value]
    if isinstance(value, torch.Tensor):
        value = value.resolve_conj()  # PyTorch's stager forgets that views conjugate
    if isinstance(value, torch.Tensor) and value.is_floating_point() and source.random() < 0.6:
        value = value.detach().clone()
        return torch.nn.Parameter(value) if source.random() < 0.5 else value.requires_grad_()
    return value


def any_trained_state(source, mesh):
    state = with_gradients(any_state(source), source)
    for i in range(3):
        whole = torch.arange(12.0).reshape(4, 3) + i
        placed = [source.choice([Shard(0), Shard(1), Replicate()])]
        state["d%d" % i] = distribute_tensor(whole, mesh, placed).requires_grad_(source.random() < 0.6)
    return state


def stored(path):
    """What is stored of each name, and what of it is whether gradients are required."""
    entries = pickle.loads((path / ".metadata").read_bytes()).state_dict_metadata
    gradients = {}
    for name, entry in entries.items():
        if isinstance(entry, dcp.metadata.TensorStorageMetadata):
            gradients[name] = entry.properties.requires_grad
            entry.properties.requires_grad = None
    # Chunks of who holds nothing are in PyTorch's alone.
    return {name: str(getattr(entry, "properties", None)) for name, entry in entries.items()}, gradients


def kinds_work(rank, size, path):
    """The same is stored by each kind; gradients are as PyTorch's way of copying has them, or as they are."""
    case = unittest.TestCase()
    mesh = init_device_mesh("cpu", (size,))
    stagers = {"stock": StockStager(PLAIN), "pair": ours.DefaultStager(PLAIN), "full": ours.DefaultStager(PLAIN)}
    for seed in range(2):
        state = any_trained_state(random.Random(seed), mesh)
        dcp.save(state, checkpoint_id=path / str(seed) / "now")
        dist.barrier()
        wanted, given = stored(path / str(seed) / "now")
        for kind in ("thread", "default", "process", "stager"):
            found = {}
            for side, package, writer in (
                ("stock", dcp, _StockWriter), ("pair", dcp, ours.FileSystemWriter), ("full", ours, ours.FileSystemWriter)
            ):  # fmt: skip
                place = path / str(seed) / kind / side
                options = {"storage_writer": writer(place)}
                options.update({"process": PROCESS, "stager": {"async_stager": stagers[side]}}.get(kind, {}))
                if kind == "default":
                    if side == "pair":
                        continue
                    options = {"checkpoint_id": place}
                package.async_save(state, **options).result()
                dist.barrier()
                entries, found[side] = stored(place)
                case.assertEqual(entries, wanted, (seed, kind, side))
                again = emptied(any_trained_state(random.Random(seed), mesh))
                dcp.load(again, checkpoint_id=place)
                case.assertTrue(equal(state, again), (seed, kind, side))
                dist.barrier()
            case.assertEqual(found.get("pair", found["stock"]), found["stock"], (seed, kind))
            ways = {"thread": given, "default": given}
            case.assertEqual(found["full"], ways.get(kind, found["stock"]), (seed, kind))
            plain = [name for name in given if not name.startswith("d")]
            case.assertFalse(any(found["stock"][name] for name in plain), (seed, kind))
        case.assertTrue(any(given.values()))
    for stager in stagers.values():
        stager.close()


def state_of(rank, number):
    return {"a": torch.full((1000,), float(number)), "m%d" % rank: torch.full((3,), 1.0 * number + rank), "step": number}


def ways_work(rank, size, path):
    """Stagers that share memory, or copy in the background, and caches of writers; ranks that save by themselves; reset."""
    case = unittest.TestCase()

    def check(place, number, **options):
        dist.barrier()
        for package in (dcp, ours):
            found = emptied(state_of(rank, number))
            package.load(found, **(options or {"checkpoint_id": place}))
            case.assertTrue(equal(found, state_of(rank, number)), (place, number))
        dist.barrier()

    for name, package in (("pair", dcp), ("full", ours)):
        place = path / name
        shared, late = (ours.DefaultStager(StagingOptions(False, *flags, False)) for flags in ((True, False), (False, True)))
        for i in range(2):
            writer = ours.FileSystemWriter(place / "shared")
            package.async_save(state_of(rank, i), storage_writer=writer, async_stager=shared, **PROCESS).result()
            check(place / "shared", i)
            answer = package.async_save(state_of(rank, i), storage_writer=ours.FileSystemWriter(place / "late"), async_stager=late)
            answer.staging_completion.result()
            answer.upload_completion.result()
            check(place / "late", i)
            for word, options in (("thread", {}), ("process", PROCESS)):
                writer = ours.FileSystemWriter(place / ("alone_" + word))
                package.async_save(state_of(rank, i), storage_writer=writer, use_collectives=False, **options).result()
                check(place / ("alone_" + word), i)
        shared.close()
        late.close()
        for options in ({}, PROCESS):
            with case.assertRaisesRegex(CheckpointException, "Checkpoint already exists"):
                writer = ours.FileSystemWriter(place / "late", overwrite=False)
                package.async_save(state_of(rank, 9), storage_writer=writer, **options).result()
        check(place / "late", 1)
        writer, reader = ours.FileSystemWriter(place / "0"), ours.FileSystemReader(place / "0")
        for i, at in enumerate((1, 2, 2)):
            writer.reset(place / str(at))
            package.save(state_of(rank, i), storage_writer=writer)
            reader.reset(place / str(at))
            check(place, i, storage_reader=reader)
            package.async_save(state_of(rank, i + 5), storage_writer=writer, checkpoint_id=place / str(at)).result()
            check(place, i + 5, storage_reader=reader, checkpoint_id=place / str(at))
        shards = {name for name in os.listdir(place / "2") if not name.startswith((".", "metadata.json"))}
        case.assertEqual(shards, {"__0_0.g3.distcp", "__1_0.g3.distcp"})


def cached_work(rank, size, path):
    """A writer that keeps what it has staged, for which PyTorch wants an accelerator, and a stager that is kept."""
    case = unittest.TestCase()
    stager = ours.DefaultStager(PLAIN)
    for name, package, options in (("pair", dcp, {"async_stager": stager}), ("full", ours, {})):
        writer = ours.FileSystemWriter(path / name, cache_staged_state_dict=not options)
        state = state_of(rank, 0)
        for i in range(3):
            state["a"].fill_(i)
            future = package.async_save(state, storage_writer=writer, **options)
            state["a"].fill_(-1)
            future.result()
            found = emptied(state)
            dcp.load(found, checkpoint_id=path / name)
            case.assertEqual(found["a"].sum(), 1000 * i, name)
            dist.barrier()
    stager.close()


def cut_work(rank, size, path):
    """A tensor that one rank cannot copy is known on all, before any of them waits for it."""
    case = unittest.TestCase()
    for options in (PROCESS, {"async_stager": dcp.staging.BlockingAsyncStager()}):
        tensor = torch.ones(100)
        if rank == 1:
            tensor.untyped_storage().resize_(8)
        with case.assertRaisesRegex(CheckpointException, "was freed or cut to 8 bytes") as caught:
            ours.async_save({"a": tensor}, checkpoint_id=path / "cut", process_group=dist.group.WORLD, **options)
        case.assertEqual(list(caught.exception.failures), [1])
        case.assertIs(type(caught.exception.failures[1][0]), ValueError if rank == 1 else Error)


class Ranks(unittest.TestCase):
    def run_ranks(self, work, size=2):
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as path:
            mp.start_processes(run_rank, args=(size, free_port(), Path(path), work), nprocs=size, start_method="fork")

    def test_each_kind_stores_the_same(self):
        self.run_ranks(kinds_work)

    def test_other_ways_of_saving(self):
        self.run_ranks(ways_work)

    def test_what_was_staged_is_kept(self):
        self.run_ranks(cached_work)

    def test_tensors_that_one_rank_cannot_copy(self):
        self.run_ranks(cut_work)


if __name__ == "__main__":
    torch.set_num_threads(1)  # ranks are forked, and would wait for threads that they do not have
    unittest.main()
