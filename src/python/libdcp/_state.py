# SPDX-License-Identifier: BSD-3-Clause
"""State trees of the library, made from values of Python and read back."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type

from . import _structs as structs
from ._library import ERR_CALLBACK, Callbacks, check, lib
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

    @classmethod
    def refusing(cls, status: int, text: str) -> "State":
        """A tree that fails the call that it is given to, on all ranks, with a status and text."""

        def refuse(_context: Any, _node: Any) -> int:
            lib.dcp_error_set(status, b"%s", text.encode("utf-8", "replace"))
            return status

        function = structs.StatefulFunction(refuse)
        stateful = structs.dcp_stateful(function)
        state = cls()
        state.held.append((function, stateful))
        try:
            check(lib.dcp_state_stateful(state.handle, b"refused", stateful))
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


def state_of(
    values: Any, writable: bool, together: bool
) -> Tuple[State, Optional[Exception]]:
    """The tree of a dict. together: other ranks wait for this one. Then, if there can be none, it is
    a tree that refuses, by which they learn of it, and the exception for this rank."""
    try:
        return State.of(values, writable), None
    except Exception as error:
        if not together:
            raise
        return State.refusing(ERR_CALLBACK, described_error(error)), error


def described_error(error: BaseException) -> str:
    """What other ranks are told of an exception."""
    kind = type(error)
    return "%s.%s: %s" % (kind.__module__, kind.__qualname__, error)
