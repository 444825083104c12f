# SPDX-License-Identifier: BSD-3-Clause
"""Checking that a checkpoint is whole."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Sequence

from . import _structs as structs
from ._library import check, lib, path_bytes
from .checkpoint import PathLike, _open_options


class Fault(NamedTuple):
    """Something that is wrong in a checkpoint. ``file`` and ``name`` may be empty."""

    file: str
    offset: int
    name: str
    fault: str


def verify(path: PathLike, *, members: Sequence[PathLike] = ()) -> List[Fault]:
    """Checks every byte of a checkpoint; what is wrong with it, nothing if it is whole.

    path, members: as for ``open``. NotFoundError: there is no checkpoint. FormatError: its metadata
    cannot be read.
    """
    faults: List[Fault] = []

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
    count = ctypes.c_uint64()
    check(
        lib.dcp_verify_sized(
            path_bytes(path),
            ctypes.byref(options),
            ctypes.sizeof(options),
            structs.FaultFunction(report),
            None,
            ctypes.byref(count),
        )
    )
    return faults
