# SPDX-License-Identifier: BSD-3-Clause
"""State trees of the library, made from values of Python and read back."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Callable, List, Optional, Type

from . import _structs as structs
from ._library import Callbacks, check, lib
from ._values import Packer, TensorMaker, Unpacker, copy_of_memory


def gather_bytes(call: Callable[[Any], int]) -> bytes:
    """What a call gives to a sink."""
    parts: List[bytes] = []
    callbacks = Callbacks()

    def take(_context: Any, data: Any, size: int) -> int:
        return callbacks.call(lambda: parts.append(ctypes.string_at(data, size)))

    callbacks.check(call(structs.Sink(take)))
    return b"".join(parts)


class State:
    """A tree, and the memory that its tensors point to."""

    def __init__(self) -> None:
        self.handle: Optional[int] = lib.dcp_state_new()
        self.held: List[Any] = []
        if not self.handle:
            raise MemoryError("a state")

    @classmethod
    def of(cls, values: Any, writable: bool) -> "State":
        """The tree of a dict. writable: its arrays are loaded into."""
        packer = Packer(writable)
        if not isinstance(values, dict):
            raise TypeError("a state is a dict, not a %s" % type(values).__name__)
        packer.put(dict(values))
        return cls.described(packer.described(), packer.held)

    @classmethod
    def described(cls, described: bytes, held: List[Any]) -> "State":
        """The tree of a description of a dict. held: what its tensors point to."""
        state = cls()
        try:
            state.held = held
            check(lib.dcp_state_unpack(state.handle, None, described, len(described)))
        except BaseException:
            state.free()
            raise
        return state

    def values(self, make_tensor: TensorMaker = copy_of_memory, key: Optional[bytes] = None) -> Any:
        """What is in the tree, or under a key of its root."""
        node = self.handle if key is None else lib.dcp_state_find(self.handle, key)
        packed = gather_bytes(lambda sink: int(lib.dcp_state_pack(node, 0, sink, None)))
        return Unpacker(packed, make_tensor).take()

    def free(self) -> None:
        handle, self.handle = self.handle, None
        if handle:
            lib.dcp_state_free(handle)
        self.held = []

    def __enter__(self) -> "State":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.free()

