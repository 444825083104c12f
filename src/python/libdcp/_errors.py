# SPDX-License-Identifier: BSD-3-Clause
"""Failures of the library as exceptions, by status."""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """A call of the library failed. The text is the library's own.

    ``status`` is its number in ``dcp/status.h``.
    """

    status = 0


class ArgumentError(Error, ValueError):
    """An argument is out of range or contradicts another."""


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but this version cannot do it."""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed, or a limit of memory is too small."""


class InputOutputError(Error, OSError):
    """The operating system or the storage reported a failure, such as a full disk."""


class NotFoundError(Error, FileNotFoundError):
    """There is no such file, directory, checkpoint or name."""


class ExistsError(Error, FileExistsError):
    """A checkpoint is already there, and overwriting was not asked for."""


class BusyError(Error):
    """Another save owns the directory, or has replaced the checkpoint meanwhile."""


class FormatError(Error, ValueError):
    """Stored bytes break the format, do not match their checksum, or belong to another save."""


class MismatchError(Error):
    """What is wanted and what is stored differ: names, shapes, dtypes, kinds, holes, overlaps."""


class ReplicaError(Error):
    """Ranks hold different bytes of what should be the same."""


class GroupError(Error):
    """Communication between ranks failed."""


class DeadlineError(Error, TimeoutError):
    """Ranks, or a save that is waited for, did not come within the deadline."""


class UnconfirmedError(Error):
    """The checkpoint is committed, but not every rank has confirmed it."""


class CancelledError(Error):
    """The save or load was cancelled."""


_BY_STATUS: Dict[int, Type[Error]] = {
    10: ArgumentError,
    11: UnsupportedError,
    20: OutOfMemoryError,
    21: InputOutputError,
    30: InputOutputError,
    31: InputOutputError,
    32: NotFoundError,
    33: ExistsError,
    34: InputOutputError,
    35: BusyError,
    40: FormatError,
    41: FormatError,
    42: FormatError,
    58: ReplicaError,
    70: GroupError,
    71: DeadlineError,
    72: UnconfirmedError,
    81: CancelledError,
}
_BY_STATUS.update({status: MismatchError for status in range(50, 58)})


def error_of(status: int, message: str) -> Error:
    """The exception that stands for a status."""
    error = _BY_STATUS.get(status, Error)(message)
    error.status = status
    return error
