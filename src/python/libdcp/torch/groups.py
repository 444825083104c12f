# SPDX-License-Identifier: BSD-3-Clause
"""Process groups of PyTorch, and what saves and loads over one of them keep."""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from .. import _structs as structs
from .._library import Callbacks, check, lib, release_with
from ..groups import Group, Messages

#: Backends that send bytes from one rank to another.
_SENDING = ("gloo", "nccl")
#: Of messages from one rank to another; those of a job have 0, unless it says otherwise.
_TAG = 0x646370


def _view(address: int, size: int) -> Any:
    """Memory of the library, as a tensor."""
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)


class Lane:
    """Bytes between the ranks of one process group, in tensors on a device that its backend takes."""

    def __init__(self, process_group: Any) -> None:
        # PyTorch keeps it until it is destroyed, and then it should go.
        self._process_group = weakref.ref(process_group)
        self.rank = dist.get_rank(process_group)
        self.size = dist.get_world_size(process_group)
        devices = process_group._device_types
        self._cpu = not devices or torch.device("cpu") in devices
        self._kind = "cpu" if self._cpu else devices[0].type
        backends = dist.get_backend_config(process_group).split(",")
        self.sends = any("%s:%s" % (self._kind, name) in backends for name in _SENDING)

    @property
    def process_group(self) -> Any:
        group = self._process_group()
        if group is None:
            raise RuntimeError("the process group was destroyed")
        return group

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def all_gather(self, send: int, size: int, receive: int) -> None:
        """Gives every rank the bytes of all ranks, in rank order."""
        if size == 0:
            return
        mine, whole = _view(send, size), _view(receive, size * self.size)
        if self._cpu:
            dist.all_gather(list(whole.split(size)), mine, group=self.process_group)
            return
        device = torch.device(self._kind, torch.get_device_module(self._kind).current_device())
        parts: Any = torch.empty(size * self.size, dtype=torch.uint8, device=device)
        dist.all_gather(list(parts.split(size)), mine.to(device), group=self.process_group)
        whole.copy_(parts)

    def broadcast(self, root: int, data: int, size: int) -> None:
        """Gives every rank the bytes of one."""
        if size == 0:
            return
        source = dist.get_global_rank(self.process_group, root)
        mine = _view(data, size)
        if self._cpu:
            dist.broadcast(mine, source, group=self.process_group)
            return
        device = torch.device(self._kind, torch.get_device_module(self._kind).current_device())
        there = mine.to(device)
        dist.broadcast(there, source, group=self.process_group)
        if self.rank != root:
            mine.copy_(there)

    def all_to_all(self, outgoing: Messages, incoming: Messages) -> None:
        """Sends each rank a message, and receives one of each."""
        group = self.process_group
        ranks = dist.get_process_group_ranks(group)
        if self._cpu:
            self._transfer(
                [(rank, _view(*place)) for rank, place in zip(ranks, outgoing) if place[1]],
                [(rank, _view(*place)) for rank, place in zip(ranks, incoming) if place[1]],
            )
            return
        device = torch.device(self._kind, torch.get_device_module(self._kind).current_device())
        there = {place: _view(*place).to(device) for place in set(outgoing) if place[1]}
        parts = [
            (rank, torch.empty(size, dtype=torch.uint8, device=device), address)
            for rank, (address, size) in zip(ranks, incoming)
            if size
        ]
        self._transfer(
            [(rank, there[place]) for rank, place in zip(ranks, outgoing) if place[1]],
            [(rank, part) for rank, part, _address in parts],
        )
        for _rank, part, address in parts:
            _view(address, part.numel()).copy_(part)

    def _transfer(self, sent: List[Tuple[int, Any]], received: List[Tuple[int, Any]]) -> None:
        """Tensors to and from ranks of the job."""
        group = self.process_group
        operations = [dist.P2POp(dist.irecv, part, rank, group, _TAG) for rank, part in received]
        operations += [dist.P2POp(dist.isend, part, rank, group, _TAG) for rank, part in sent]
        works = dist.batch_isend_irecv(operations) if operations else []
        try:
            while works:
                works.pop().wait()
        finally:
            works.clear()  # an exception keeps this frame, and messages go on while their work is kept

    def allgather(self, sendobj: bytes) -> List[bytes]:
        raise NotImplementedError("a TorchGroup moves bytes where they lie")

    def bcast(self, obj: Any, root: int) -> bytes:
        raise NotImplementedError("a TorchGroup moves bytes where they lie")

    def duplicate(self) -> Optional["Lane"]:
        """Another group of the same ranks, for another thread; None where there can be none."""
        if not dist.is_gloo_available():
            return None
        ranks = dist.get_process_group_ranks(self.process_group)
        group = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        return Lane(group)


class TorchGroup(Group):
    """A group over a process group of PyTorch.

    Asynchronous saves commit over a gloo group of the same ranks, which is made for the first.
    """

    def __init__(self, process_group: Any) -> None:
        self._lanes: Dict[int, Tuple[Lane, Callbacks]] = {}
        self._numbers = itertools.count(1)
        lane = Lane(process_group)
        self._sends = lane.sends
        super().__init__(lane)
        self._lanes[0] = (lane, self.callbacks)

    def gather(self, mine: bytes) -> List[bytes]:
        """The bytes of all ranks, which are as many on each. Collective."""
        size = len(mine)
        send = ctypes.create_string_buffer(mine, size)
        receive = ctypes.create_string_buffer(size * self.size)
        self._lanes[0][0].all_gather(ctypes.addressof(send), size, ctypes.addressof(receive))
        return [receive.raw[size * rank : size * (rank + 1)] for rank in range(self.size)]

    def _add_operations(self, operations: structs.dcp_group_operations) -> None:
        operations.close = structs.Close(self._close)
        operations.duplicate = structs.Duplicate(self._duplicate)
        if self._sends:
            operations.all_to_all = structs.AllToAll(self._all_to_all)

    def _all_gather(self, context: Any, _call: Any, send: int, size: int, receive: int) -> int:
        lane, callbacks = self._lanes[context or 0]
        return callbacks.call(lambda: lane.all_gather(send, size, receive))

    def _broadcast(self, context: Any, _call: Any, root: int, data: int, size: int) -> int:
        lane, callbacks = self._lanes[context or 0]
        return callbacks.call(lambda: lane.broadcast(root, data, size))

    def _callbacks_of(self, context: Any) -> Callbacks:
        return self._lanes[context or 0][1]

    def _exchange(self, context: Any, outgoing: Messages, incoming: Messages) -> None:
        self._lanes[context or 0][0].all_to_all(outgoing, incoming)

    def _duplicate(self, context: Any, _call: Any, copy: Any) -> int:
        lane, callbacks = self._lanes[context or 0]

        def make() -> None:
            made = lane.duplicate()
            if made is None:
                copy[0] = None
                return
            number = next(self._numbers)
            # What a thread of the library raises is told by the status that it leads to.
            self._lanes[number] = (made, Callbacks())
            copy[0] = number

        return callbacks.call(make)

    def _close(self, context: Any) -> None:
        if context:
            del self._lanes[context]


class Ranks:
    """The ranks of a process group (None: this process alone), and plans of earlier calls."""

    def __init__(self, process_group: Any) -> None:
        self.group = TorchGroup(process_group) if process_group is not None else None
        self.rank = self.group.rank if self.group else 0
        self.size = self.group.size if self.group else 1
        self.lock = threading.Lock()
        self.save_plans = _new(lib.dcp_save_plan_cache_new)
        self.async_plans = _new(lib.dcp_save_plan_cache_new)
        self.load_plans = _new(lib.dcp_load_plan_cache_new)
        plans = (self.save_plans, self.async_plans, self.load_plans)
        self._chains: List[int] = []
        self._finalizer = release_with(self, _free, self._chains, plans, self.group)

    @property
    def handle(self) -> Optional[int]:
        return self.group.handle if self.group else None

    def tell(self, text: str) -> Dict[int, str]:
        """What each rank tells the others, by rank, without those that tell nothing. Collective."""
        if not self.group:
            return {0: text} if text else {}
        mine = text.encode("utf-8", "replace")
        lengths = self.group.gather(len(mine).to_bytes(8, "little"))
        sizes = [int.from_bytes(length, "little") for length in lengths]
        if not any(sizes):
            return {}
        told = self.group.gather(mine.ljust(max(sizes), b"\0"))
        return {
            rank: part[:size].decode("utf-8", "replace")
            for rank, (part, size) in enumerate(zip(told, sizes))
            if size
        }

    def chain_of_saves(self) -> int:
        """The chain of asynchronous saves, which keeps their staging memory. Collective once."""
        if not self._chains:
            options = structs.dcp_save_chain_options(group=self.handle)
            handle = ctypes.c_void_p()
            check(
                lib.dcp_save_chain_new_sized(
                    ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)
                )
            )
            self._chains.append(int(handle.value or 0))
        return self._chains[0]


def _free(chains: List[int], plans: Tuple[int, int, int], group: Optional[TorchGroup]) -> None:
    for chain in chains:
        lib.dcp_save_chain_free(chain)
    lib.dcp_save_plan_cache_free(plans[0])
    lib.dcp_save_plan_cache_free(plans[1])
    lib.dcp_load_plan_cache_free(plans[2])
    if group:
        group.close()


def _new(make: Any) -> int:
    handle = ctypes.c_void_p()
    check(make(ctypes.byref(handle)))
    return int(handle.value or 0)


_known: "weakref.WeakKeyDictionary[Any, Ranks]" = weakref.WeakKeyDictionary()
_alone: List[Ranks] = []
_lock = threading.Lock()


def ranks_of(process_group: Any, no_dist: bool) -> Ranks:
    """The ranks that save or load together, as PyTorch's functions choose them."""
    if no_dist or not dist.is_available() or not dist.is_initialized():
        with _lock:
            if not _alone:
                _alone.append(Ranks(None))
            return _alone[0]
    group = process_group if process_group is not None else dist.group.WORLD
    with _lock:
        found = _known.get(group)
        if found is None:
            found = _known[group] = Ranks(group)
        return found
