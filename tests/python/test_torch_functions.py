# SPDX-License-Identifier: BSD-3-Clause
"""save, load and async_save of libdcp.torch beside PyTorch's: the same values and metadata, read by either."""

import collections
import ctypes
import os
import pickle
import random
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from page_cache import in_memory
from test_torch_storage import any_state, any_tensor, bits, emptied, equal, free_port, run_rank
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed._shard.sharded_tensor import Shard as LocalShard, init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import libdcp
import libdcp.torch as ours
from libdcp._library import lib
from libdcp.torch import ways

OBJECTS = {
    "tuple": (1, "a", None), "nested": [[1], {"no": ()}][:1], "size": torch.Size([3, 0]), "dtype": torch.bfloat16,
    "device": torch.device("cpu"), "big": 2**100, "digits": -(3**10000), "float": float("inf"), "bytes": b"\0\xff", "set": {1, "b"},
    "pair": (torch.arange(3), [torch.ones(2)]), "ordered": collections.OrderedDict(z=1, a=[1.5]), "text": "\ud800é",
    "counter": (collections.Counter("aab"),), "empty": {}, "nothing": [], "path": Path("a/b"), 7: True, "d.o.t": 1,
}  # fmt: skip


def metadata_of(path):
    return pickle.loads((Path(path) / ".metadata").read_bytes())


def described(metadata):
    """What is the same: PyTorch stores chunks without elements of those who hold nothing, too."""
    found = {}
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, dcp.metadata.TensorStorageMetadata):
            some = [chunk for chunk in entry.chunks if chunk.sizes.numel() or not entry.size.numel()]
            chunks = {(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in some}
            entry = (entry.properties, entry.size, chunks if entry.size.numel() else bool(chunks))
        found[name] = entry
    return found


def compare_metadata(case, mine, stock):
    case.maxDiff = None
    case.assertEqual(described(mine), described(stock))
    case.assertEqual(mine.planner_data, stock.planner_data)
    case.assertLessEqual(set(mine.storage_data), set(stock.storage_data))
    case.assertEqual(mine.version, stock.version)
    case.assertEqual(str(mine.storage_meta.checkpoint_id).rsplit("/", 1)[0],
                     str(stock.storage_meta.checkpoint_id).rsplit("/", 1)[0])  # fmt: skip


class Elsewhere(list):
    """Notes what goes PyTorch's way."""

    def __enter__(self):
        self.patch = mock.patch.object(ways, "say_elsewhere", lambda call, why: self.append(why))
        self.patch.start()
        return self

    def __exit__(self, *error):
        self.patch.stop()


class OneProcess(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name)

    def both(self, state, name, planner=None, **options):
        """Saves by both sides, and gives what was returned."""
        found = []
        for side, package in (("ours", ours), ("theirs", dcp)):
            writer = ours.FileSystemWriter(self.path / name / side, **options)
            if package is dcp:
                writer = ways._StockWriter(self.path / name / side, **options)
            made = planner() if planner else None
            found.append(package.save(state, storage_writer=writer, planner=made))
        return found

    def test_random_states_by_either_side(self):
        for seed in range(12):
            source = random.Random(seed)
            state = any_state(source)
            lowest, flat = source.random() < 0.5, source.random() < 0.7
            options = {"thread_count": source.choice([1, 3]), "single_file_per_rank": source.random() < 0.7}
            with Elsewhere() as elsewhere:
                mine, stock = self.both(
                    state, str(seed), lambda: dcp.DefaultSavePlanner(flat, dedup_save_to_lowest_rank=lowest), **options
                )
                compare_metadata(self, mine, stock)
                compare_metadata(self, metadata_of(self.path / str(seed) / "ours"), stock)
                for side in ("ours", "theirs"):
                    for package in (ours, dcp):
                        found = emptied(state) if flat else {key: 0 for key in state}
                        # Without flattening, PyTorch loads objects only if it does not flatten shards either.
                        planner = dcp.DefaultLoadPlanner(flat, flatten_sharded_tensors=flat)
                        package.load(found, checkpoint_id=self.path / str(seed) / side, planner=planner)
                        self.assertTrue(equal(state, found), (seed, side, package))
            self.assertEqual(elsewhere, [])
            self.assertEqual(libdcp.verify(self.path / str(seed) / "ours"), [])

    def test_only_what_could_be_stateful_is_asked_about(self):
        class Counting(type):
            def __instancecheck__(cls, value):
                asked.append(value)
                return isinstance(value, Stateful)

        asked = []
        layer = torch.nn.Linear(2, 2)
        state = {"tensor": torch.ones(3), "layer": layer, "number": 1}
        with mock.patch.object(ways, "Stateful", Counting("Counting", (), {})):
            ours.save(state, checkpoint_id=self.path / "a")
            weight = layer.weight.detach().clone()
            torch.nn.init.zeros_(layer.weight)
            ours.load(state, checkpoint_id=self.path / "a")
        self.assertTrue(torch.equal(layer.weight, weight))
        self.assertTrue(asked)
        self.assertTrue(all(value is layer for value in asked), asked)

    def test_memory_mapped_for_reading_is_no_destination(self):
        ours.save({"a": torch.arange(5000.0), "b": torch.ones(3)}, checkpoint_id=self.path / "a")
        (self.path / "numbers").write_bytes(bytes(20000))
        mapped = torch.from_numpy(np.memmap(self.path / "numbers", np.float32, "r"))
        for load in (
            lambda state: ours.load(state, checkpoint_id=self.path / "a"),
            lambda state: dcp.load(state, storage_reader=ours.FileSystemReader(self.path / "a")),
        ):
            other = torch.zeros(3)
            with self.assertRaises(CheckpointException) as raised:
                load({"a": mapped, "b": other})
            self.assertIn("a: its 20000 bytes", str(raised.exception))
            self.assertEqual(other.sum(), 0)

    def test_objects_of_many_classes(self):
        mine, stock = self.both({"objects": OBJECTS, "list": [torch.ones(2), OBJECTS]}, "a")
        compare_metadata(self, mine, stock)
        for side in ("ours", "theirs"):
            found = {"objects": dict.fromkeys(OBJECTS, 0)}
            del found["objects"]["empty"], found["objects"]["ordered"]
            ours.load(found, checkpoint_id=self.path / "a" / side)
            for key, value in found["objects"].items():
                self.assertIs(type(value), type(OBJECTS.get(key)), key)
                if key != "pair":
                    self.assertEqual(value, OBJECTS[key])
            self.assertTrue(torch.equal(found["objects"]["pair"][0], torch.arange(3)))

    def test_destinations_keep_their_strides(self):
        state = {str(i): any_tensor(random.Random(i)) for i in range(40)}
        ours.save(state, checkpoint_id=self.path / "a")
        for seed in range(3):
            source = random.Random(seed)
            places = {}
            for name, tensor in state.items():
                order = source.sample(range(tensor.dim()), tensor.dim())
                back = [order.index(i) for i in range(tensor.dim())]
                room = torch.zeros([tensor.shape[i] + 1 for i in order], dtype=tensor.dtype)
                places[name] = room[tuple(slice(tensor.shape[i]) for i in order)].permute(back)
            strides = {name: place.stride() for name, place in places.items()}
            pointers = {name: place.data_ptr() for name, place in places.items()}
            with Elsewhere() as elsewhere:
                ours.load(places, checkpoint_id=self.path / "a")
            self.assertEqual(elsewhere, [])
            for name, place in places.items():
                self.assertEqual(bits(place), bits(state[name]), name)
                self.assertEqual((place.stride(), place.data_ptr()), (strides[name], pointers[name]))

    def test_autograd_notices_what_a_load_has_written(self):
        weight = torch.nn.Parameter(torch.ones(3))
        ours.save({"w": weight, "t": (torch.ones(3),)}, checkpoint_id=self.path)
        loads = (
            lambda: dcp.load({"w": weight}, checkpoint_id=self.path),
            lambda: ours.load({"w": weight}, checkpoint_id=self.path),
            lambda: dcp.load({"w": weight}, storage_reader=ours.FileSystemReader(self.path)),
            lambda: libdcp.load({"w": weight}, self.path),
            lambda: libdcp.load({"t": (weight,)}, self.path),
            lambda: libdcp.open(self.path)["w"].read_into(weight),
        )
        for load in loads:
            product = (weight * weight).sum()
            load()
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                product.backward()

    def test_modules_and_optimizers(self):
        def make(seed):
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (seed + 1))
            model(torch.rand(5, 3)).sum().backward()
            optimizer.step()
            return model, optimizer

        model, optimizer = make(0)
        ours.save({"model": model, "optimizer": optimizer.state_dict()}, checkpoint_id=self.path / "a")
        for package in (ours, dcp):
            other, other_optimizer = make(1)
            state = {"model": other, "optimizer": other_optimizer.state_dict()}
            package.load(state, checkpoint_id=self.path / "a")
            self.assertIs(state["model"], other)
            self.assertTrue(equal(dict(other.state_dict()), dict(model.state_dict())))
            self.assertTrue(equal(other_optimizer.state_dict()["state"], optimizer.state_dict()["state"]))
        self.assertEqual(state["optimizer"]["param_groups"][0]["lr"], 0.1)

    def test_failures_are_those_of_pytorch(self):
        ours.save({"a": torch.ones(4), "step": 1}, checkpoint_id=self.path / "a")
        writer = ours.FileSystemWriter(self.path / "a", overwrite=False)
        with self.assertRaisesRegex(CheckpointException, "Checkpoint already exists"):
            ours.save({"a": torch.ones(1)}, storage_writer=writer)
        with self.assertRaisesRegex(CheckpointException, "Checkpoint already exists"):
            ours.async_save({"a": torch.ones(1)}, storage_writer=writer)
        for state, words in (
            ({"b": torch.ones(1)}, "Missing key in checkpoint state_dict: b"),
            ({"a": torch.ones(5)}, "Size mismatch"),
        ):
            with self.assertRaisesRegex(CheckpointException, words):
                ours.load(state, checkpoint_id=self.path / "a")
        with self.assertRaises(CheckpointException):
            ours.load({"a": torch.ones(4)}, checkpoint_id=self.path / "none")
        with self.assertRaisesRegex(CheckpointException, "pickle"):
            ours.save({"a": lambda: 0}, checkpoint_id=self.path / "b")
        with self.assertRaisesRegex(CheckpointException, "another thing is in the way|Not a directory|directory"):
            (self.path / "file").write_text("")
            ours.save({"a": 1}, checkpoint_id=self.path / "file" / "c")
        found = {"a": torch.zeros(4, dtype=torch.int32), "b": 5, "step": 0}
        ours.load(found, checkpoint_id=self.path / "a", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
        self.assertEqual((found["a"].tolist(), found["b"], found["step"]), ([1] * 4, 5, 1))

    def test_damage_is_noticed(self):
        ours.save({"a": torch.ones(100_000)}, checkpoint_id=self.path)
        file = self.path / "__0_0.distcp"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with self.assertRaisesRegex(CheckpointException, "block"):
            ours.load({"a": torch.zeros(100_000)}, checkpoint_id=self.path)

    def test_metadata_is_that_of_the_save(self):
        first = ours.save({"a": 1}, checkpoint_id=self.path)
        second = ours.save({"b": 2}, checkpoint_id=self.path)
        self.assertIsInstance(second, dcp.Metadata)
        self.assertEqual(list(pickle.loads(pickle.dumps(second)).state_dict_metadata), ["b"])
        self.assertEqual(second, metadata_of(self.path))
        with self.assertRaisesRegex(RuntimeError, "another save has replaced"):
            first.planner_data

    def test_asynchronous_saves(self):
        state = {"a": torch.zeros(1000), "step": 0}
        writer = ours.FileSystemWriter(self.path)
        for step in range(4):
            state["a"].fill_(step)
            state["step"] = step
            future = ours.async_save(state, storage_writer=writer)
            state["a"].fill_(-1)
            self.assertEqual(sorted(future.result(60).state_dict_metadata), ["a", "step"])
            found = {"a": torch.zeros(1000), "step": 0}
            dcp.load(found, checkpoint_id=self.path)
            self.assertEqual((found["a"].sum(), found["step"]), (1000 * step, step))
        (self.path / "file").write_text("")
        with self.assertRaises(CheckpointException):
            ours.async_save(state, checkpoint_id=self.path / "file").result(60)

    def test_what_goes_the_way_of_pytorch(self):
        class Planner(dcp.DefaultSavePlanner):
            pass

        class Tagged(torch.Tensor):
            pass

        tagged = torch.ones(3).as_subclass(Tagged)
        state = {"a": torch.ones(3), "step": 1}
        for named, values, words in (
            ({"planner": Planner()}, state, "planner"),
            ({"use_collectives": False}, state, "without the others"),
            ({}, {**state, "t": tagged}, "Tagged"),
            ({}, {**state, "s": torch.ones(3).to_sparse()}, "sparse"),
        ):
            with Elsewhere() as elsewhere:
                try:
                    ours.save(values, checkpoint_id=self.path / words, **named)
                except CheckpointException:
                    self.assertEqual(words, "sparse")
            self.assertEqual(len(elsewhere), 1)
            self.assertIn(words, elsewhere[0])
        found = {"a": torch.zeros(3), "step": 0}
        ours.load(found, checkpoint_id=self.path / "planner")
        self.assertTrue(equal(found, state))
        with Elsewhere() as elsewhere:
            stager = dcp.staging.BlockingAsyncStager()
            ours.async_save(state, checkpoint_id=self.path / "async", async_stager=stager).result()
        self.assertIn("stager", elsewhere[0])
        with self.assertLogs("libdcp.torch", "WARNING") as log:
            for _ in range(2):
                ways.say_elsewhere("save", "once")
        self.assertEqual(len(log.output), 1)


# ---- ranks ----


def placements_of(source, dims, ndim):
    return [source.choice([Replicate(), *map(Shard, range(ndim))]) for _ in range(dims)]


def any_sharded_state(source, size, rank, full):
    """The same on all ranks, but for what each holds; empty ones for loading, placed otherwise."""
    places = random.Random(source.random() + full)
    meshes = [init_device_mesh("cpu", (size,))]
    if size == 4:
        meshes.append(init_device_mesh("cpu", (2, 2)))
    state = {"model": {}, "list": [torch.full((3,), 2.0 * full), {"k": 5 * full}], "step": 7 * full}
    for i in range(12):
        shape = [source.choice([1, 2, 5, 8]) for _ in range(source.randrange(1, 4))]
        whole = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + i
        mesh = places.choice(meshes)
        placed = placements_of(places, mesh.ndim, len(shape))
        if i % 4 == 3:
            state["model"]["t%d" % i] = whole if full else torch.zeros_like(whole)
        else:
            state["model"]["t%d" % i] = distribute_tensor(whole * full, mesh, placed)
    return state


def random_work(rank, size, path):
    """Saved by both, loaded by both, at other placements."""
    case = unittest.TestCase()
    for seed in range(3):
        state = any_sharded_state(random.Random(seed), size, rank, True)
        with Elsewhere() as elsewhere:
            mine = ours.save(state, checkpoint_id=path / str(seed) / "ours")
            stock = dcp.save(state, checkpoint_id=path / str(seed) / "theirs")
            compare_metadata(case, mine, stock)
            for side in ("ours", "theirs"):
                for package in (ours, dcp):
                    found = any_sharded_state(random.Random(seed), size, rank, False)
                    package.load(found, checkpoint_id=path / str(seed) / side)
                    for name, tensor in found["model"].items():
                        wanted = state["model"][name]
                        if isinstance(tensor, DTensor):
                            tensor, wanted = tensor.full_tensor(), wanted.full_tensor()
                        case.assertTrue(torch.equal(tensor, wanted), (seed, side, name))
                    case.assertEqual((found["step"], found["list"][1]), (7, {"k": 5}))
        case.assertEqual(elsewhere, [])
        dist.barrier()


def other_work(rank, size, path):
    """Where one rank cannot, all go PyTorch's way, or all fail; plans are kept, and renewed; a rank outside of a mesh."""
    case = unittest.TestCase()

    class Tagged(torch.Tensor):
        pass

    odd = torch.ones(3).as_subclass(Tagged) if rank == 1 else torch.ones(3)
    with Elsewhere() as elsewhere:
        ours.save({"a": odd, "b": torch.ones(2)}, checkpoint_id=path / "odd")
    case.assertIn("Tagged", elsewhere[0])
    found = {"a": torch.zeros(3)}
    ours.load(found, checkpoint_id=path / "odd")
    case.assertEqual(found["a"].sum(), 3)
    bad = (lambda: 0) if rank == 1 else 0
    for call in (ours.save, lambda *a, **k: ours.async_save(*a, **k).result()):
        with case.assertRaisesRegex(CheckpointException, "pickle"):
            call({"bad": bad, "a": torch.ones(2)}, checkpoint_id=path / "bad")
    mesh = init_device_mesh("cpu", (size,))
    for step in range(4):
        state = {"w": distribute_tensor(torch.full((8, 3), float(step)), mesh, [Shard(step % 2)]), "step": step}
        ours.save(state, checkpoint_id=path / "steps")
        found = {"w": distribute_tensor(torch.zeros(8, 3), mesh, [Shard(0)]), "step": 0}
        ours.load(found, checkpoint_id=path / "steps")
        case.assertTrue(torch.equal(found["w"].full_tensor(), state["w"].full_tensor()))
        case.assertEqual(found["step"], step)
    first = dist.new_group([0, 1])
    if rank < 2:
        state = {"a": torch.full((5,), 3.0), "rank": 0}
        ours.save(state, checkpoint_id=path / "group", process_group=first)
        found = emptied(state)
        ours.load(found, checkpoint_id=path / "group", process_group=first)
        case.assertTrue(equal(found, state))
    part = dist.DeviceMesh("cpu", [0, 1])
    local = torch.full((2, 3), 1.0 + rank)
    state = {"part": DTensor.from_local(local, part, [Shard(0)], run_check=False), "step": 4}
    for package in (ours, dcp):
        package.save(state, checkpoint_id=path / package.__name__)
        found = {"part": DTensor.from_local(torch.zeros(2, 3), part, [Shard(0)], run_check=False), "step": 0}
        ours.load(found, checkpoint_id=path / package.__name__)
        case.assertEqual(found["step"], 4)
        if rank < 2:
            case.assertTrue(torch.equal(found["part"].to_local(), local))
    alone = {"w": distribute_tensor(torch.ones(8, 3), mesh, [Shard(0)]), "mine": rank}
    ours.save(alone, checkpoint_id=path / ("alone%d" % rank), no_dist=True)
    found = {"mine": -1}
    dcp.load(found, checkpoint_id=path / ("alone%d" % rank), no_dist=True)
    case.assertEqual(found["mine"], rank)
    partial = DTensor.from_local(torch.ones(3), mesh, [Partial()], run_check=False)
    with Elsewhere() as elsewhere, case.assertRaises(CheckpointException):
        ours.save({"p": partial}, checkpoint_id=path / "partial")
    case.assertIn("Partial", elsewhere[0])


class Failing:
    """A stateful entry that has nothing to say, or takes nothing, on some ranks."""

    def __init__(self, fails, refuses=False):
        self.fails, self.refuses, self.taken = fails, refuses, None

    def state_dict(self):
        if self.fails:
            raise LookupError("no state today")
        return {"x": torch.ones(2)}

    def load_state_dict(self, state_dict):
        if self.refuses:
            raise LookupError("not this state")
        self.taken = state_dict["x"].sum()


def one_rank_work(rank, size, path):
    """What happens on one rank alone is known on all, whichever way the call goes."""
    case = unittest.TestCase()
    state, tagged = {"a": torch.ones(3)}, torch.ones(3).as_subclass(type("Tagged", (torch.Tensor,), {}))
    ours.save(state, checkpoint_id=path / "there")
    calls = (
        lambda state, **named: ours.save(state, checkpoint_id=path / "here", **named),
        lambda state, **named: ours.async_save(state, checkpoint_id=path / "here", **named).result(60),
        lambda state, **named: ours.load(state, checkpoint_id=path / "there", **named),
    )
    for call in calls:
        kind = LookupError if rank == 1 else CheckpointException
        with case.assertRaisesRegex(kind, "no state today"):
            call({"m": Failing(rank == 1)})
        with case.assertRaises(CheckpointException if rank else AttributeError):
            call(state if rank else None)
    for call in calls[:2]:
        with case.assertRaisesRegex(CheckpointException, "pickle"):
            call({"a": tagged if rank else call})
    for call, planner in zip(calls, (dcp.DefaultSavePlanner,) * 2 + (dcp.DefaultLoadPlanner,)):
        own = type("Own", (planner,), {})
        with Elsewhere() as elsewhere:
            call(state, planner=own() if rank == 1 else None)
        case.assertIn("Own", elsewhere[0])
        case.assertEqual(state["a"].sum(), 3)
    ours.load(state, checkpoint_id=path / "here")

    ours.save({"m": Failing(False), **state}, checkpoint_id=path / "stateful")
    for planner in (None, type("Own", (dcp.DefaultLoadPlanner,), {})()):
        entry = Failing(False, refuses=rank == 1)
        with case.assertRaisesRegex(LookupError if rank == 1 else CheckpointException, "not this state") as caught:
            ours.load({"m": entry, "a": torch.zeros(3)}, checkpoint_id=path / "stateful", planner=planner)
        if rank != 1:
            case.assertEqual((list(caught.exception.failures), entry.taken), ([1], 2))
            case.assertIs(type(caught.exception.failures[1][0]), libdcp.Error)
        ours.load({"m": entry if rank != 1 else Failing(False)}, checkpoint_id=path / "stateful", planner=planner)


def not_on_rank_one():
    if dist.is_initialized() and dist.get_rank() == 1:
        raise LookupError("no object here")
    return "an object"


class Picky:
    """An object that one rank cannot unpickle."""

    def __reduce__(self):
        return not_on_rank_one, ()


def unpickled_work(rank, size, path):
    """What one rank cannot unpickle fails the load on all, as PyTorch's does, and the next load is like any other."""
    case = unittest.TestCase()
    state = {"a": torch.ones(3), "picky": Picky(), "plain": 7}
    ours.save(state, checkpoint_id=path / "a")
    for load, reader in ((dcp.load, dcp.FileSystemReader), (dcp.load, ours.FileSystemReader), (ours.load, None), (ours.load, None)):
        found = {"a": torch.zeros(3), "picky": 0, "plain": 0}
        with case.assertRaisesRegex(CheckpointException, "no object here") as caught:
            load(found, checkpoint_id=path / "a", storage_reader=reader(path / "a") if reader else None)
        case.assertEqual(list(caught.exception.failures), [1])
        if rank == 1 or load is dcp.load:
            case.assertIsInstance(caught.exception.failures[1][0], LookupError)
        if load is ours.load:
            case.assertEqual(found["a"].sum(), 3)
    found = {"a": torch.zeros(3), "plain": 0}
    ours.load(found, checkpoint_id=path / "a")
    case.assertEqual((found["plain"], found["a"].sum()), (7, 3))


def training_work(rank, size, path):
    """FSDP2, with an optimizer, saved asynchronously while it goes on."""
    case = unittest.TestCase()

    def make(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
        fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.ones(2, 7)).sum().backward()
        optimizer.step()

    def states(model, optimizer):
        names, values = ("model", "optimizer"), get_state_dict(model, optimizer)
        return dict(zip(names, values))

    model, optimizer = make(0)
    for number in range(3):
        step(model, optimizer)
        state = states(model, optimizer)
        kept = {name: tensor.to_local().clone() for name, tensor in state["model"].items()}
        with Elsewhere() as elsewhere:
            future = ours.async_save(state, checkpoint_id=path / "run")
        case.assertEqual(elsewhere, [])
        step(model, optimizer)
        future.result(60)
        for package in (ours, dcp):
            other, other_optimizer = make(1)
            found = states(other, other_optimizer)
            package.load(found, checkpoint_id=path / "run")
            set_state_dict(
                other, other_optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"]
            )
            for name, tensor in other.state_dict().items():
                case.assertTrue(torch.equal(tensor.to_local(), kept[name]), (number, name))
            case.assertEqual(found["optimizer"]["state"]["0.weight"]["step"], 2 * number + 1)
        dist.barrier()


def cut_by_rows(whole, counts, rank, dims):
    """A ShardedTensor whose ranks hold so many rows each; in two shards side by side where a rank has several columns."""
    first, count = sum(counts[:rank]), counts[rank]
    middle = whole.shape[1] // 2
    shards = []
    for begin, end in ((0, middle), (middle, whole.shape[1])) if dims == 2 else ((0, whole.shape[1]),):
        if count and end > begin:
            part = whole[first : first + count, begin:end].contiguous()
            shards.append(LocalShard.from_tensor_and_offsets(part, [first, begin], rank))
    return init_from_local_shards(shards, *whole.shape)


def sharded_tensor_work(rank, size, path):
    """ShardedTensors of uneven rows, of two shards a rank, of ranks that hold nothing."""
    case = unittest.TestCase()
    whole = torch.arange(11 * 6, dtype=torch.float32).reshape(11, 6)
    uneven = [11 - 2 * (size - 1)] + [2] * (size - 1)
    first_holds_none = [0, 11] + [0] * (size - 2)
    even = [11 // size + (place < 11 % size) for place in range(size)]

    def state_of(tensor, counts, dims):
        return {"w": cut_by_rows(tensor, counts, rank, dims), "step": 3}

    for number, (counts, dims) in enumerate(((uneven, 1), (uneven, 2), (first_holds_none, 2))):
        state = state_of(whole, counts, dims)
        with Elsewhere() as elsewhere:
            mine = ours.save(state, checkpoint_id=path / str(number) / "ours")
            stock = dcp.save(state, checkpoint_id=path / str(number) / "theirs")
            compare_metadata(case, mine, stock)
            for side in ("ours", "theirs"):
                for package in (ours, dcp):
                    found = state_of(torch.zeros_like(whole), even, 1)
                    package.load(found, checkpoint_id=path / str(number) / side)
                    first = sum(even[:rank])
                    wanted = whole[first : first + even[rank]]
                    case.assertTrue(torch.equal(found["w"].local_shards()[0].tensor, wanted), (number, side))
        case.assertEqual(elsewhere, [])
        with Elsewhere() as elsewhere:
            ours.save(state, checkpoint_id=path / str(number) / "planner", planner=type("Own", (dcp.DefaultSavePlanner,), {})())
        case.assertEqual(len(elsewhere), 1)
        dist.barrier()


def parallel_work(rank, size, path):
    """HSDP, and tensor parallelism below FSDP2, saved by one layout and loaded by the other, by either side."""
    case = unittest.TestCase()
    meshes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))

    def make(seed, layout):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 4))
        if layout == "hsdp":
            fully_shard(model, mesh=meshes)
        else:
            parallelize_module(model, meshes["inner"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(model, mesh=meshes["outer"])
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        return model, optimizer

    def states(model, optimizer):
        return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))

    def whole(tensor):
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    for saved, loaded in (("hsdp", "parallel"), ("parallel", "hsdp"), ("parallel", "parallel")):
        state = states(*make(0, saved))
        with Elsewhere() as elsewhere:
            mine = ours.save(state, checkpoint_id=path / saved / loaded / "ours")
            stock = dcp.save(state, checkpoint_id=path / saved / loaded / "theirs")
            compare_metadata(case, mine, stock)
            for side in ("ours", "theirs"):
                for package in (ours, dcp):
                    found = states(*make(1, loaded))
                    package.load(found, checkpoint_id=path / saved / loaded / side)
                    for name, tensor in found["model"].items():
                        case.assertTrue(torch.equal(whole(tensor), whole(state["model"][name])), (saved, side, name))
                    for name, slots in found["optimizer"]["state"].items():
                        for slot, tensor in slots.items():
                            wanted = state["optimizer"]["state"][name][slot]
                            case.assertTrue(torch.equal(whole(tensor), whole(wanted)), (saved, side, name, slot))
        case.assertEqual(elsewhere, [])
        dist.barrier()


def for_each_other_work(rank, size, path):
    """What is not in the page cache is read once, by one rank for all: the log says that memory is shared for it."""
    whole = torch.arange(2.0**25)
    state = {"a": distribute_tensor(whole, init_device_mesh("cpu", (size,)), [Shard(0)])}
    ours.save(state, storage_writer=ours.FileSystemWriter(path / "a", page_cache="dropped"))
    lines = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    hear = kind(lambda _context, _level, line: lines.append(line))
    lib.dcp_set_log(hear, None, 40)  # DCP_LOG_DEBUG
    found = {"a": torch.zeros(2**25)}
    ours.load(found, checkpoint_id=path / "a")
    lib.dcp_set_log(None, None, 0)
    assert torch.equal(found["a"], whole)
    shares = any(b"exchanges data with 1 ranks of its host" in line for line in lines)
    assert shares or in_memory(path), lines


class Ranks(unittest.TestCase):
    def run_ranks(self, size, work):
        with tempfile.TemporaryDirectory() as path:
            mp.start_processes(run_rank, args=(size, free_port(), path, work), nprocs=size, start_method="fork")

    def test_random_states(self):
        for size in (1, 2, 3, 4):
            self.run_ranks(size, random_work)

    def test_ranks_read_for_each_other(self):
        self.run_ranks(2, for_each_other_work)

    def test_ranks_that_differ(self):
        self.run_ranks(3, other_work)

    def test_one_rank_alone(self):
        self.run_ranks(3, one_rank_work)

    def test_objects_that_one_rank_cannot_unpickle(self):
        self.run_ranks(2, unpickled_work)

    def test_training(self):
        self.run_ranks(2, training_work)

    def test_sharded_tensors(self):
        for size in (2, 3):
            self.run_ranks(size, sharded_tensor_work)

    def test_parallelism_in_two_dimensions(self):
        self.run_ranks(4, parallel_work)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    unittest.main()
