# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that save and load together."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Protocol, Tuple

from . import _structs as structs
from ._library import Callbacks, check, lib


class Communicator(Protocol):
    """What a group is made of: a communicator of mpi4py, or anything with these methods.

    With a method ``alltoall`` as well, which takes a list of bytes, one for each rank, and gives
    those that each rank has sent to this one, what ranks of several hosts read for each other goes
    to those that want it. Without it, it is broadcast to all.
    """

    def Get_rank(self) -> int:
        """This process, from 0 on."""

    def Get_size(self) -> int:
        """How many there are."""

    def allgather(self, sendobj: bytes) -> List[bytes]:
        """Gives every rank what every rank has sent, in rank order."""

    def bcast(self, obj: Any, root: int) -> bytes:
        """Gives every rank what the root has sent; elsewhere ``obj`` is None."""


#: By rank, where a message of the library begins, and how many bytes it has.
Messages = List[Tuple[int, int]]


class Group:
    """A group over a communicator, for the calls that save and load.

    Its methods are called by whichever thread saves or loads, never by two at the same time, and
    all ranks make the same calls. What a method raises is raised again by the save or load on its
    rank; the others get an error with its text. Close it after all that uses it.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self.callbacks = Callbacks()
        self.rank = communicator.Get_rank()
        self.size = communicator.Get_size()
        self._operations = structs.dcp_group_operations(
            ctypes.sizeof(structs.dcp_group_operations),
            structs.AllGather(self._all_gather),
            structs.Broadcast(self._broadcast),
        )
        self._add_operations(self._operations)
        handle = ctypes.c_void_p()
        check(
            lib.dcp_group_new(
                ctypes.byref(self._operations), None, self.rank, self.size, ctypes.byref(handle)
            )
        )
        self._handle = handle.value

    @property
    def handle(self) -> int:
        """The library's group. ValueError: it is closed."""
        if self._handle is None:
            raise ValueError("the group is closed")
        return self._handle

    def _add_operations(self, operations: structs.dcp_group_operations) -> None:
        """What this group can do beside the two that every group has."""
        if callable(getattr(self._communicator, "alltoall", None)):
            operations.all_to_all = structs.AllToAll(self._all_to_all)

    def _all_gather(self, _context: Any, _call: Any, send: int, size: int, receive: int) -> int:
        def gather() -> None:
            parts = self._communicator.allgather(ctypes.string_at(send, size) if size else b"")
            joined = b"".join(bytes(part) for part in parts)
            if len(joined) != size * self.size:
                raise ValueError(
                    "allgather gave %d bytes, %d were expected" % (len(joined), size * self.size)
                )
            ctypes.memmove(receive, joined, len(joined))

        return self.callbacks.call(gather)

    def _broadcast(self, _context: Any, _call: Any, root: int, data: int, size: int) -> int:
        def send() -> None:
            mine = ctypes.string_at(data, size) if self.rank == root and size else None
            got = bytes(self._communicator.bcast(b"" if size == 0 else mine, root))
            if len(got) != size:
                raise ValueError("bcast gave %d bytes, %d were expected" % (len(got), size))
            if self.rank != root and size:
                ctypes.memmove(data, got, size)

        return self.callbacks.call(send)

    def _all_to_all(
        self,
        context: Any,
        _call: Any,
        send: Optional[int],
        send_sizes: Any,
        send_offsets: Any,
        receive: Optional[int],
        receive_sizes: Any,
        receive_offsets: Any,
    ) -> int:
        def messages(base: Optional[int], sizes: Any, offsets: Any) -> Messages:
            each = zip(offsets[: self.size], sizes[: self.size])
            return [((base or 0) + offset, size) for offset, size in each]

        def exchange() -> None:
            outgoing = messages(send, send_sizes, send_offsets)
            self._exchange(context, outgoing, messages(receive, receive_sizes, receive_offsets))

        return self._callbacks_of(context).call(exchange)

    def _callbacks_of(self, _context: Any) -> Callbacks:
        return self.callbacks

    def _exchange(self, _context: Any, outgoing: Messages, incoming: Messages) -> None:
        """Sends each rank a message, and receives one of each."""
        mine = [ctypes.string_at(place, size) if size else b"" for place, size in outgoing]
        parts = [bytes(part) for part in self._communicator.alltoall(mine)]  # type: ignore[attr-defined]
        if [len(part) for part in parts] != [size for _place, size in incoming]:
            raise ValueError(
                "alltoall gave %s bytes of the ranks, %s were expected"
                % ([len(part) for part in parts], [size for _place, size in incoming])
            )
        for part, (place, size) in zip(parts, incoming):
            ctypes.memmove(place, part, size)

    def close(self) -> None:
        """Ends the group; the communicator stays."""
        handle, self._handle = self._handle, None
        if handle:
            lib.dcp_group_free(handle)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def handle_of(group: Optional[Group]) -> Optional[int]:
    """The library's group. TypeError: it is something else, such as a communicator. ValueError: it
    is closed."""
    if group is None:
        return None
    if not isinstance(group, Group):
        raise TypeError(
            "group is a libdcp.Group, not a %s; of a communicator, libdcp.Group() makes one"
            % type(group).__qualname__
        )
    return group.handle
