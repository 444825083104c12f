# SPDX-License-Identifier: BSD-3-Clause
"""Checking that a checkpoint is whole."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Sequence

from . import _structs as structs
from ._library import interruptible, lib, path_bytes
from ._progress import Progress, Watch
from .checkpoint import PathLike, _open_options


class Fault(NamedTuple):
    """Something that is wrong in a checkpoint. ``file`` and ``name`` may be empty."""

    file: str
    offset: int
    name: str
    fault: str


def verify(
    path: PathLike, *, members: Sequence[PathLike] = (), progress: Progress = None
) -> List[Fault]:
    """Checks every byte of a checkpoint; what is wrong with it, nothing if it is whole.

    path, members: as for ``open``. progress: as for ``save``. NotFoundError: there is no
    checkpoint. FormatError: its metadata cannot be read.
    """
    faults: List[Fault] = []
    place = path_bytes(path)

    def report(_context: Any, file: bytes, offset: int, name: bytes, fault: bytes) -> None:
        faults.append(
            Fault(
                file.decode("utf-8", "surrogateescape"),
                offset,
                name.decode("utf-8", "replace"),
                fault.decode("utf-8", "replace"),
            )
        )

    options = _open_options(members)
    watch = Watch(progress, "verifying")
    options.progress = ctypes.cast(watch.function, ctypes.c_void_p)
    count = ctypes.c_uint64()

    def call() -> None:
        status = lib.dcp_verify_sized(
            place,
            ctypes.byref(options),
            ctypes.sizeof(options),
            structs.FaultFunction(report),
            None,
            ctypes.byref(count),
        )
        watch.callbacks.check(status)

    try:
        interruptible(call, watch.cancel)
    finally:
        watch.close()
    return faults
