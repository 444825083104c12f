# SPDX-License-Identifier: BSD-3-Clause
"""libdcp.torch in the place of PyTorch's storage: the same values, read and written by either."""

import os
import pickle
import random
import socket
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader as StockReader
from torch.distributed.checkpoint.filesystem import FileSystemWriter as StockWriter
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, zeros

import libdcp
import libdcp.torch
from libdcp.torch import FileSystemReader, FileSystemWriter
from page_cache import in_memory, part_cached

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def bits(tensor):
    dense = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return bytes(dense.flatten().view(torch.uint8).numpy())


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, torch.Tensor):
        if hasattr(a, "to_local"):
            a, b = a.to_local(), b.to_local()
        return (a.dtype, a.shape) == (b.dtype, b.shape) and bits(a) == bits(b)
    return type(a) is type(b) and a == b


def emptied(value):
    if isinstance(value, dict):
        return {key: emptied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [emptied(part) for part in value]
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0


def any_tensor(source):
    shape = [source.choice([0, 1, 2, 3, 5, 17, 64]) for _ in range(source.randrange(4))]
    dtype = source.choice(DTYPES)
    count = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.tensor([source.randrange(2 if dtype == torch.bool else 256) for _ in range(count)])
    tensor = raw.to(torch.uint8).view(dtype).reshape(shape) if count else torch.zeros(shape, dtype=dtype)
    layout = source.randrange(4)
    if layout == 1 and tensor.dim() > 1:
        tensor = tensor.transpose(0, -1)
    elif layout == 2 and tensor.dim() > 0:
        tensor = tensor[::2]
    elif layout == 3 and dtype == torch.complex64:
        tensor = tensor.conj()
    return tensor


def any_state(source):
    return {
        "model": {str(i): any_tensor(source) for i in range(source.randrange(1, 12))},
        "list": [any_tensor(source), {"k": source.random()}],
        "step": source.randrange(1000),
        "text": "é" * source.randrange(5),
    }


class OneProcess(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"

    def test_random_states_by_either_side(self):
        for seed in range(25):
            source = random.Random(seed)
            state = any_state(source)
            options = {"thread_count": source.choice([1, 3]), "single_file_per_rank": source.random() < 0.7}
            path = self.path / str(seed)
            for writer, folder in ((FileSystemWriter, path / "ours"), (StockWriter, path / "theirs")):
                dcp.save(state, storage_writer=writer(folder, **options))
                for reader in (FileSystemReader, StockReader):
                    found = emptied(state)
                    dcp.load(found, storage_reader=reader(folder))
                    self.assertTrue(equal(state, found), (seed, writer, reader))
                self.assertEqual(libdcp.verify(folder), [])
            self.compare_metadata(path / "ours", path / "theirs")

    def test_all_items_of_a_file_are_described_in_one_call(self):
        state = {"t%d" % i: torch.full((3,), float(i)) for i in range(200)}
        state.update(step=7, text="é")
        added = []
        add = libdcp.torch.storage.ShardWriter.add

        def counted(shard, described, held):
            added.append(len(held))
            add(shard, described, held)

        with unittest.mock.patch.object(libdcp.torch.storage.ShardWriter, "add", counted):
            dcp.save(state, storage_writer=FileSystemWriter(self.path))
        self.assertEqual(added, [200])
        found = emptied(state)
        dcp.load(found, storage_reader=StockReader(self.path))
        self.assertTrue(equal(state, found))

    def test_names_that_c_cannot_have_are_pytorchs(self):
        state = {"a\0b": torch.arange(3), "a": torch.arange(5)}
        dcp.save(state, storage_writer=FileSystemWriter(self.path))
        found = emptied(state)
        dcp.load(found, storage_reader=StockReader(self.path))
        self.assertTrue(equal(state, found))

    def test_checkpoints_that_the_library_has_no_words_for_are_read(self):
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
        for number, odd in enumerate(({"a\0b": torch.arange(3)}, {"\ud800": 1.5}, {"d": torch.ones((1,) * 65)}, {"q": quantized})):
            state = {"a": torch.arange(5), "k": {"x": [1, torch.ones(2)]}, "o": (1, "x")}
            for save in (dcp.save, libdcp.torch.save):
                path = self.path / str(number) / save.__module__
                save({**state, **odd}, checkpoint_id=path)
                whole = dict(state) if "q" in odd else {**state, **odd}  # PyTorch cannot load those
                for load, reader in ((dcp.load, FileSystemReader(path)), (libdcp.torch.load, None)):
                    found = emptied(whole)
                    load(found, checkpoint_id=None if reader else path, storage_reader=reader)
                    self.assertTrue(equal(whole, found), (odd.keys(), save, load))

    def compare_metadata(self, ours, theirs):
        mine, stock = (pickle.loads((path / ".metadata").read_bytes()) for path in (ours, theirs))
        self.assertEqual(mine.state_dict_metadata, stock.state_dict_metadata)
        self.assertEqual(mine.planner_data, stock.planner_data)
        self.assertEqual(set(mine.storage_data), set(stock.storage_data))
        self.assertEqual(mine.version, stock.version)

    def test_a_checkpoint_is_replaced_after_the_next_is_whole(self):
        for step in range(3):
            dcp.save({"a": torch.full((100,), step)}, storage_writer=FileSystemWriter(self.path))
            self.assertEqual(len(list(self.path.iterdir())), 2)
        (self.path / "foreign.txt").write_text("")
        before = sorted(os.listdir(self.path))

        class Breaks(dcp.DefaultSavePlanner):
            def resolve_data(self, item):
                raise LookupError("no data")

        with self.assertRaises(CheckpointException):
            dcp.save({"a": torch.zeros(100)}, storage_writer=FileSystemWriter(self.path), planner=Breaks())
        self.assertEqual(sorted(os.listdir(self.path)), before)
        self.assertEqual(libdcp.read(self.path)["a"][0], 2)
        with self.assertRaisesRegex(CheckpointException, "Checkpoint already exists"):
            dcp.save({"a": torch.zeros(1)}, storage_writer=FileSystemWriter(self.path, overwrite=False))

    def test_damage_is_noticed(self):
        dcp.save({"a": torch.ones(100_000)}, storage_writer=FileSystemWriter(self.path))
        file = self.path / "__0_0.distcp"
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with self.assertRaisesRegex(CheckpointException, "block 49 at offset 200704"):
            dcp.load({"a": torch.zeros(100_000)}, storage_reader=FileSystemReader(self.path))

    def test_dtypes_are_converted_as_pytorch_does(self):
        dcp.save({"a": torch.arange(12.0).reshape(3, 4)}, storage_writer=FileSystemWriter(self.path))
        for place in (torch.zeros(3, 4, dtype=torch.int32), torch.zeros(3, 4, dtype=torch.bfloat16)):
            dcp.load({"a": place}, storage_reader=FileSystemReader(self.path))
            self.assertTrue(torch.equal(place.float(), torch.arange(12.0).reshape(3, 4)))

    def test_other_ways_are_left_to_pytorch(self):
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
        from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader

        self.assertFalse(issubclass(FsspecWriter, FileSystemWriter))
        self.assertFalse(issubclass(QuantizedHuggingFaceStorageReader, FileSystemReader))
        strange = {"a": torch.ones(4), "meta": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}
        dcp.save(strange, storage_writer=FileSystemWriter(self.path))
        found = {"a": torch.zeros(4)}
        dcp.load(found, storage_reader=StockReader(self.path))
        self.assertTrue(torch.equal(found["a"], strange["a"]))

    def test_pages_stay_in_the_page_cache_or_not(self):
        state = {"a": torch.arange(2.0**21)}
        for save in dcp.save, libdcp.torch.save:
            for page_cache, part in ("kept", 1), ("dropped", 0):
                path = self.path / save.__module__ / page_cache
                writer = pickle.loads(pickle.dumps(FileSystemWriter(path, page_cache=page_cache)))
                save(state, storage_writer=writer)
                if part == 1 or not in_memory(path):
                    self.assertEqual(part_cached(path), part)
        self.assertRaises(ValueError, FileSystemWriter, self.path, page_cache="some")

    def test_writers_can_be_pickled(self):
        writer = pickle.loads(pickle.dumps(FileSystemWriter(self.path, thread_count=2)))
        dcp.save({"a": torch.ones(3)}, storage_writer=writer)
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 3)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_rank(rank, size, port, path, work):
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        work(rank, size, Path(path))
    finally:
        dist.destroy_process_group()


def sharded_state(size, full):
    mesh = init_device_mesh("cpu", (size,))
    make = (lambda tensor, places: distribute_tensor(tensor, mesh, places)) if full else (
        lambda tensor, places: zeros(*tensor.shape, device_mesh=mesh, placements=places)
    )
    whole = torch.arange(7 * 10, dtype=torch.float32).reshape(7, 10)
    return {
        "rows": make(whole, [Shard(0)]),
        "columns": make(whole, [Shard(1)]),
        "copies": make(whole, [Replicate()]),
        "plain": torch.ones(5) if full else torch.zeros(5),
        "step": 3 if full else 0,
    }


def save_work(rank, size, path):
    dcp.save(sharded_state(size, True), storage_writer=FileSystemWriter(path / "ours"))
    dcp.save(sharded_state(size, True), storage_writer=StockWriter(path / "theirs"))


def load_work(rank, size, path):
    wanted = sharded_state(size, True)
    for folder in ("ours", "theirs"):
        for reader in (FileSystemReader, StockReader):
            found = sharded_state(size, False)
            dcp.load(found, storage_reader=reader(path / folder))
            assert equal(wanted, found), (folder, reader)


def cached_work(rank, size, path):
    """Plans that the planner keeps, changed on one rank, on all, on none; over a checkpoint, and beside it."""
    for step in range(5):
        state = {"mine%d" % rank: torch.full((3,), float(step)), "all": torch.full((4,), float(step)), "step": step}
        if step > 1 and rank == 0 or step > 2:
            state["more%d" % rank] = torch.ones(2)
        for name in ("same", str(step)):
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            dcp.save(state, storage_writer=FileSystemWriter(path / name), planner=planner)
            for reader in (FileSystemReader, StockReader):
                found = emptied(state)
                dcp.load(found, storage_reader=reader(path / name))
                assert equal(state, found), (step, name, reader)
            assert libdcp.verify(path / name) == []
            dist.barrier()


class Noting(FileSystemWriter):
    """A writer of one's own, which has something to add to the metadata."""

    def finish(self, metadata, results):
        super().finish(metadata, results)
        metadata.planner_data["noted"] = (len(results),)


def metadata_work(rank, size, path):
    """Every rank gets the metadata that was written, which the others unpickle when they look at it."""
    for step in range(2):
        for name, writer in ("plain", FileSystemWriter), ("noting", Noting):
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            planner._cached_plans_key = name
            state = {"a": torch.full((3,), float(step)), "mine%d" % rank: torch.ones(2)}
            found = dcp.save(state, storage_writer=writer(path / name), planner=planner)
            is_lazy = writer is FileSystemWriter and rank > 0
            assert (type(found) is not dcp.Metadata) == is_lazy, type(found)
            again = pickle.loads(pickle.dumps(found))
            stored = pickle.loads((path / name / ".metadata").read_bytes())
            assert type(found) is type(again) is dcp.Metadata and found == again
            assert found.planner_data.pop("noted", None) == ((size,) if writer is Noting else None)
            assert found == stored and len(found.storage_data) == 1 + size
            dist.barrier()
    changed = dcp.save(state, storage_writer=FileSystemWriter(path / "changed"))
    changed.planner_data = None
    assert type(changed) is dcp.Metadata and changed.planner_data is None and len(changed.storage_data) == 1 + size


def alone_work(rank, size, path):
    state = {"mine": torch.full((3,), float(rank)), "step": rank}
    dcp.save(state, storage_writer=FileSystemWriter(path / "alone"), use_collectives=False)
    dist.barrier()
    for reader in (FileSystemReader, StockReader):
        found = emptied(state)
        dcp.load(found, storage_reader=reader(path / "alone"))
        assert equal(state, found), reader


def async_work(rank, size, path):
    for kind in (AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS):
        writer = FileSystemWriter(path / kind.value)
        for step in range(2):
            state = {"a": torch.full((1000,), float(step)), "step": step}
            future = dcp.async_save(
                state, storage_writer=writer, async_checkpointer_type=kind,
                process_group=dist.group.WORLD,
            )  # fmt: skip
            future.result()
            found = emptied(state)
            dcp.load(found, storage_reader=StockReader(path / kind.value))
            assert equal(state, found), (kind, step)


def read_once_work(rank, size, path):
    """What several ranks read goes through the page cache, so that the disk is read once."""
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(2.0**22).reshape(2048, 2048)
    writer = FileSystemWriter(path / "ours", page_cache="dropped")
    dcp.save({"a": distribute_tensor(whole, mesh, [Shard(0)])}, storage_writer=writer)
    for place, part in (Shard(0), 0), (Replicate(), 1):
        found = {"a": zeros(2048, 2048, device_mesh=mesh, placements=[place])}
        dcp.load(found, storage_reader=FileSystemReader(path / "ours"))
        assert torch.equal(found["a"].full_tensor(), whole)
        cached = part_cached(path / "ours")
        assert in_memory(path) or abs(cached - part) < 0.1, (place, cached)  # but for the ends of files
        dist.barrier()


class Ranks(unittest.TestCase):
    def run_ranks(self, size, work, path):
        mp.start_processes(run_rank, args=(size, free_port(), path, work), nprocs=size, start_method="fork")

    def test_ranks_save_and_other_numbers_load(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, save_work, path)
            self.run_ranks(3, load_work, path)
            self.assertEqual(libdcp.verify(Path(path) / "ours"), [])

    def test_what_several_ranks_read_is_read_once(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, read_once_work, path)

    def test_plans_that_are_kept(self):
        for size in (1, 2):
            with tempfile.TemporaryDirectory() as path:
                self.run_ranks(size, cached_work, path)

    def test_every_rank_gets_the_metadata(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, metadata_work, path)

    def test_ranks_save_without_collectives(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, alone_work, path)

    def test_asynchronous_saves_by_thread_and_process(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, async_work, path)


if __name__ == "__main__":
    torch.set_num_threads(1)  # ranks are forked, and would wait for threads that they do not have
    unittest.main()
