# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of PyTorch saved and loaded without it taking part, and read by it."""

import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import libdcp
import libdcp.torch


def state():
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    moments = [dict(values) for values in optimizer.state_dict()["state"].values()]
    return {
        "model": dict(model.state_dict()),
        "optimizer": {"state": moments, "betas": (0.9, 0.999)},
        "bf16": torch.randn(7, 4).to(torch.bfloat16).T,
        "fp8": torch.randn(3).to(torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "step": 7,
    }


def bits(tensor):
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits(a) == bits(b)
    return type(a) is type(b) and a == b


def emptied(value):
    if isinstance(value, dict):
        return {key: emptied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [emptied(part) for part in value]
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0


class Torch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"

    def test_pytorch_loads_what_was_saved(self):
        saved = state()
        libdcp.save(saved, self.path)
        found = emptied(saved)
        dcp.load(found, checkpoint_id=self.path)
        self.assertTrue(equal(saved, found))
        self.assertTrue(equal(saved, _load_state_dict_from_keys(checkpoint_id=self.path)))

    def test_what_pytorch_saved_is_loaded(self):
        saved = state()
        dcp.save(saved, checkpoint_id=self.path)
        found = emptied(saved)
        found["parameter"].requires_grad_(False)
        libdcp.load(found, self.path)
        self.assertTrue(equal(saved, found))
        with libdcp.open(self.path) as checkpoint:
            self.assertEqual(checkpoint["bf16"].read(raw=True).tobytes(), bits(saved["bf16"]))

    def test_tensors_inside_of_objects_are_filled(self):
        def state(fill):
            grid = torch.arange(12.0).reshape(3, 4)
            parts = (grid.t()[1:, ::2], torch.ones(3, dtype=torch.bfloat16), torch.zeros(0), torch.tensor(5))
            return {"t": tuple(part.clone() if fill else torch.zeros_like(part) for part in parts), "w": grid * fill}

        for save in (libdcp.save, lambda state, path: dcp.save(state, checkpoint_id=path)):
            path = self.path / save.__name__
            save(state(1), path)
            found = state(0)
            places = found["t"]
            libdcp.load(found, path)
            self.assertTrue(equal(state(1), found))
            self.assertTrue(all(place is part for place, part in zip(places, found["t"])))

    def test_parts_are_read_into_tensors_of_any_dtype(self):
        whole = torch.randn(6, 4)
        kinds = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex32)
        libdcp.save({str(kind): whole.to(kind) for kind in kinds}, self.path)
        with libdcp.open(self.path) as checkpoint:
            for kind in kinds:
                place = torch.zeros(4, 3, dtype=kind).t()  # columns lie apart
                checkpoint[str(kind)].read_into(place, (2, 0))
                self.assertEqual(bits(place), bits(whole.to(kind)[2:5]))
                with self.assertRaisesRegex(TypeError, "the array is int32"):
                    checkpoint[str(kind)].read_into(torch.zeros(3, 4, dtype=torch.int32))
                place.untyped_storage().resize_(place.element_size())
                with self.assertRaisesRegex(TypeError, "has no memory of its own"):
                    checkpoint[str(kind)].read_into(place)

    def test_entries_that_pytorch_leaves_out_shift_no_others(self):
        dcp.save({"a": [{}, torch.ones(2), [{}, torch.zeros(1)]], "b": {}}, checkpoint_id=self.path)
        found = libdcp.read(self.path)
        self.assertEqual(list(found), ["a"])
        self.assertEqual((len(found["a"]), found["a"][0], found["a"][2][0]), (3, None, None))
        self.assertEqual((found["a"][1].sum(), found["a"][2][1].sum()), (2, 0))

    def test_names_that_contradict_each_other_are_an_error(self):
        for number, state in enumerate(({1: 2.0, "1": {"x": 3}}, {"1": {"x": torch.ones(1)}, 1: 2.0})):
            path = self.path / str(number)
            dcp.save(state, checkpoint_id=path)
            with self.assertRaisesRegex(libdcp.FormatError, "is a value and a dict"):
                libdcp.read(path)
            with libdcp.open(path) as checkpoint:
                self.assertEqual(checkpoint["1"], 2)

    def test_tensors_elsewhere_are_refused(self):
        for tensor in (torch.zeros(2, device="meta"), torch.eye(2).to_sparse()):
            with self.assertRaisesRegex(TypeError, r"\['a'\]: of PyTorch's tensors"):
                libdcp.save({"a": tensor}, self.path)
        with self.assertRaisesRegex(TypeError, "conjugated"):
            libdcp.save({"a": torch.ones(2, dtype=torch.complex64).conj()}, self.path)

    def test_tensors_without_memory_are_refused(self):
        gone, shrunk = torch.zeros(4), torch.zeros(1000)
        gone.untyped_storage().resize_(0)
        shrunk.untyped_storage().resize_(16)
        with FakeTensorMode():
            fake = torch.zeros(4)
        dist.init_process_group("gloo", init_method="file://%s.store" % self.path, rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        distributed = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (1,)), [Shard(0)])
        libdcp.save({"a": torch.ones(4)}, self.path)
        for tensor in (gone, shrunk, fake, distributed):
            for call in (libdcp.load, libdcp.save):
                with self.assertRaisesRegex(TypeError, r"\['a'\]: the tensor has no memory"):
                    call({"a": tensor}, self.path)
        with self.assertRaisesRegex(TypeError, "quint8 cannot be saved"):
            libdcp.save({"a": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)}, self.path)
        with self.assertRaises(libdcp.ArgumentError):
            libdcp.load({"a": torch.zeros(1).expand(4)}, self.path)

    def test_freed_and_cut_tensors_are_neither_source_nor_destination(self):
        libdcp.torch.save({"a": torch.ones(4)}, checkpoint_id=self.path)
        for size, dtype in (0, torch.float32), (0, torch.int32), (12, torch.float32), (12, torch.int32):
            gone, window = torch.zeros(4, dtype=dtype), torch.zeros(3, 4, dtype=dtype)[:, 2].expand(4, 3)[:, 1]
            gone.untyped_storage().resize_(size)
            window.untyped_storage().resize_(size)
            for tensor in (gone, window):
                for load in (dcp.load, libdcp.torch.load):
                    with self.assertRaisesRegex(CheckpointException, "was freed or cut to %d bytes" % size):
                        load({"a": tensor}, storage_reader=libdcp.torch.FileSystemReader(self.path))
                writer = libdcp.torch.FileSystemWriter(self.path)
                for save in (dcp.save, libdcp.torch.save, libdcp.torch.async_save):
                    with self.assertRaisesRegex(CheckpointException, "was freed or cut to %d bytes" % size):
                        save({"a": tensor}, storage_writer=writer)
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 4)

    def test_so_are_those_of_other_classes_and_inside_of_them(self):
        libdcp.torch.save({"a": torch.ones(80)}, checkpoint_id=self.path)
        reader, writer = libdcp.torch.FileSystemReader(self.path), libdcp.torch.FileSystemWriter(self.path)
        stager = libdcp.torch.DefaultStager(StagingOptions(False, False, False, False))
        process = {"storage_writer": writer, "async_checkpointer_type": AsyncCheckpointerType.PROCESS}
        calls = (
            lambda state: dcp.load(state, storage_reader=reader),
            lambda state: libdcp.torch.load(state, storage_reader=reader),
            lambda state: dcp.save(state, storage_writer=writer),
            lambda state: libdcp.torch.save(state, storage_writer=writer),
            lambda state: libdcp.torch.async_save(state, storage_writer=writer),
            lambda state: libdcp.torch.async_save(state, **process),
            lambda state: libdcp.torch.async_save(state, storage_writer=writer, async_stager=stager),
            stager.stage,
        )
        for kind in (lambda tensor: tensor, torch.nn.Parameter, lambda tensor: tensor.as_subclass(Tagged), Wrapper, Flattened):
            for size in (0, 40, 356):  # the view ends at byte 360
                base = torch.arange(100.0)
                state = {"a": kind(base[10:90])}
                base.untyped_storage().resize_(size)
                for call in calls:
                    with self.assertRaisesRegex((CheckpointException, ValueError), "was freed or cut to %d bytes" % size):
                        call(state)
            base.untyped_storage().resize_(360)
            calls[1](state)
            self.assertEqual(base[10:90].sum(), 80)
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 80)


class Tagged(torch.Tensor):
    """A class over memory of its own."""


class Wrapper(torch.Tensor):
    """A class with a tensor inside."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, _, arguments=(), named=None):
        plain = [part.inner if isinstance(part, Wrapper) else part for part in arguments]
        found = function(*plain, **(named or {}))
        return cls(found) if isinstance(found, torch.Tensor) else found


class Flattened(Wrapper):
    """One that says so."""

    def __tensor_flatten__(self):
        return ["inner"], None


if __name__ == "__main__":
    unittest.main()
