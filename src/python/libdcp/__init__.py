# SPDX-License-Identifier: BSD-3-Clause
"""Sharded checkpoints in the format of PyTorch Distributed Checkpoint, without PyTorch.

``open(path)`` looks into a checkpoint and reads parts of it, ``read(path)`` reads all of it,
``save`` and ``load`` work on a state of one process or of many, ``Saver`` saves while the program
goes on, ``verify`` checks every byte. ``python -m libdcp`` is the command ``dcp``.
"""

from ._dtypes import Dtype
from ._errors import (
    ArgumentError,
    BusyError,
    CancelledError,
    DeadlineError,
    Error,
    ExistsError,
    FormatError,
    GroupError,
    InputOutputError,
    MismatchError,
    NotFoundError,
    OutOfMemoryError,
    ReplicaError,
    UnconfirmedError,
    UnsupportedError,
)
from ._library import lib as _lib
from ._values import Device, Opaque, Sharded, Size
from .checking import Fault, verify
from .checkpoint import Checkpoint, Chunk, Info, Tensor, open
from .groups import Communicator, Group
from .loading import Difference, load, read
from .saving import Future, Saver, save

#: Version of the library that is loaded.
__version__: str = _lib.dcp_version_string().decode("ascii")

__all__ = [
    "ArgumentError",
    "BusyError",
    "CancelledError",
    "Checkpoint",
    "Chunk",
    "Communicator",
    "DeadlineError",
    "Device",
    "Difference",
    "Dtype",
    "Error",
    "ExistsError",
    "Fault",
    "FormatError",
    "Future",
    "Group",
    "GroupError",
    "Info",
    "InputOutputError",
    "MismatchError",
    "NotFoundError",
    "Opaque",
    "OutOfMemoryError",
    "ReplicaError",
    "Saver",
    "Sharded",
    "Size",
    "Tensor",
    "UnconfirmedError",
    "UnsupportedError",
    "load",
    "open",
    "read",
    "save",
    "verify",
]
