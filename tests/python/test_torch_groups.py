# SPDX-License-Identifier: BSD-3-Clause
"""Groups over process groups of PyTorch: messages from one rank to another."""

import ctypes
import datetime
import os
import random
import resource
import tempfile
import unittest
import weakref
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from page_cache import in_memory
from test_torch_storage import free_port, run_rank
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import libdcp.torch as ours
from libdcp.torch.groups import Lane, TorchGroup


def address_of(bytes_):
    return ctypes.addressof(bytes_)


def expected(sender, receiver, size):
    return bytes((sender * 31 + receiver * 7 + i) % 251 for i in range(size))


def exchange(lane, sizes):
    """Sends messages of those sizes, by sender and receiver, and checks those that come."""
    me = lane.rank
    mine = [ctypes.create_string_buffer(expected(me, other, size), max(size, 1)) for other, size in enumerate(sizes[me])]
    places = [ctypes.create_string_buffer(b"\xff" * (row[me] + 8), row[me] + 8) for row in sizes]
    lane.all_to_all(
        [(address_of(bytes_), size) for bytes_, size in zip(mine, sizes[me])],
        [(address_of(place), row[me]) for place, row in zip(places, sizes)],
    )
    for other, (place, row) in enumerate(zip(places, sizes)):
        assert place.raw == expected(other, me, row[me]) + b"\xff" * 8, (me, other)


def exchanges(lane, seed):
    source = random.Random(seed)
    for round_ in range(20):
        sizes = [[source.choice((0, 1, 4096, 300_000)) for _ in range(lane.size)] for _ in range(lane.size)]
        for rank in range(lane.size):
            sizes[rank][rank] = 0
        if round_ == 3:
            sizes = [[0] * lane.size for _ in range(lane.size)]
        exchange(lane, sizes)


def lane_work(rank, size, _path):
    """The job's group, one of some of its ranks, in which they have other numbers, and a message of a job's own."""
    lane = Lane(dist.group.WORLD)
    assert lane.sends
    early = torch.zeros(4)
    waiting = dist.irecv(early, (rank + 1) % size)
    exchanges(lane, 1)
    dist.send(torch.full((4,), float(rank)), (rank - 1) % size)
    waiting.wait()
    assert early.eq((rank + 1) % size).all()
    some = dist.new_group(range(1, size))
    if rank > 0:
        exchanges(Lane(some), 2)
    dist.barrier()


def device_work(rank, size, _path):
    """Tensors of the backend's device are copied there and back; here the device is the host."""
    lane = Lane(dist.group.WORLD)
    lane._cpu, copied = False, []
    empty = torch.empty
    with mock.patch("torch.get_device_module", lambda kind: mock.Mock(current_device=lambda: 0)):
        with mock.patch("torch.empty", lambda *sizes, **named: copied.append(named["device"]) or empty(*sizes, **named)):
            exchanges(lane, 3)
    assert set(copied) == {torch.device("cpu", 0)}


def gone_work(rank, size, path):
    """A rank that ends while others wait for its message: they get the error, and their memory."""
    lane = Lane(dist.group.WORLD)
    dist.barrier()
    if rank == 0:
        dist.destroy_process_group()
        os._exit(0)
    sizes = [[0] * size for _ in range(size)]
    sizes[0] = [0] + [4096] * (size - 1)
    try:
        exchange(lane, sizes)
    except RuntimeError:
        (path / str(rank)).touch()


def whole_and_state(size):
    whole = torch.arange(2.0**25).reshape(2**12, 2**13)
    return whole, {"a": distribute_tensor(whole, init_device_mesh("cpu", (size,)), [Shard(0)])}


def without_shared_memory(call):
    """Ranks that cannot make files, not in memory either, send each other what they read, as those of several hosts do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def messages_work(rank, size, path):
    """What all ranks want is sent to each once, and not broadcast."""
    whole, state = whole_and_state(size)
    ours.save(state, storage_writer=ours.FileSystemWriter(path / "a", page_cache="dropped"))
    sent, all_to_all = [], Lane.all_to_all

    def noted(lane, outgoing, incoming):
        sent.append(sum(bytes_ for _place, bytes_ in outgoing))
        all_to_all(lane, outgoing, incoming)

    found = {"a": torch.zeros(whole.shape)}
    with mock.patch.object(Lane, "all_to_all", noted):
        without_shared_memory(lambda: ours.load(found, checkpoint_id=path / "a"))
    assert torch.equal(found["a"], whole)
    if not in_memory(path):
        total = torch.tensor(sum(sent))
        dist.all_reduce(total)
        assert total.item() == (size - 1) * whole.nbytes, (total, whole.nbytes)


def broken_work(rank, size, path):
    """Messages that one rank cannot send fail the load on all."""
    whole, state = whole_and_state(size)
    ours.save(state, storage_writer=ours.FileSystemWriter(path / "a", page_cache="dropped"))
    all_to_all = Lane.all_to_all

    def refused(lane, outgoing, incoming):
        if rank == 1:
            raise LookupError("no such wire")
        all_to_all(lane, outgoing, incoming)

    if in_memory(path):
        return
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=5), dist.group.WORLD)
    try:
        with mock.patch.object(Lane, "all_to_all", refused):
            without_shared_memory(lambda: ours.load({"a": torch.zeros(whole.shape)}, checkpoint_id=path / "a"))
    except (CheckpointException, RuntimeError) as error:
        (path / str(rank)).write_text(str(error))
    os._exit(0)


def failure_work(_rank, _size, _path):
    """Messages go on, from and to memory that the library frees, as long as somebody has their work."""

    class Work:
        def wait(self):
            raise LookupError("the wire was cut")

    kept, failure = [], None

    def start(operations):
        works = [Work() for _operation in operations]
        kept.extend(map(weakref.ref, works))
        return works

    with mock.patch.object(dist, "P2POp"), mock.patch.object(dist, "batch_isend_irecv", start):
        try:
            Lane(dist.group.WORLD)._transfer([(0, None)] * 2, [(0, None)])
        except LookupError as error:
            failure = error  # which has the frames that it came through, and the work that it is of
    assert failure is not None
    assert [work() is None for work in kept] == [True, True, False]


def backends_work(_rank, _size, _path):
    for backends, sends in (("cpu:gloo,cuda:nccl", True), ("cpu:glooey", False), ("cuda:gloo,cpu:ucc", False)):
        with mock.patch.object(dist, "get_backend_config", lambda _group, known=backends: known):
            group = TorchGroup(dist.group.WORLD)
            assert bool(group._operations.all_to_all) == sends
            group.close()


class Ranks(unittest.TestCase):
    def run_ranks(self, size, work, path=None):
        with tempfile.TemporaryDirectory() as temporary:
            mp.start_processes(
                run_rank, args=(size, free_port(), path or temporary, work), nprocs=size, start_method="fork"
            )

    def test_messages_arrive(self):
        for size in (2, 3, 4):
            self.run_ranks(size, lane_work)

    def test_messages_by_way_of_a_device(self):
        self.run_ranks(3, device_work)

    def test_a_rank_that_is_gone(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(3, gone_work, path)
            self.assertEqual(sorted(os.listdir(path)), ["1", "2"])

    def test_ranks_of_several_hosts_read_for_each_other(self):
        for size in (2, 3):
            self.run_ranks(size, messages_work)

    def test_a_rank_that_cannot_send(self):
        with tempfile.TemporaryDirectory() as path:
            self.run_ranks(2, broken_work, path)
            if not in_memory(Path(path)):
                self.assertIn("no such wire", (Path(path) / "1").read_text())
                self.assertTrue((Path(path) / "0").exists())

    def test_a_failure_keeps_no_other_message(self):
        self.run_ranks(1, failure_work)

    def test_backends_that_are_not_known_to_send(self):
        self.run_ranks(1, backends_work)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    unittest.main()
