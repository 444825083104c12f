# SPDX-License-Identifier: BSD-3-Clause
"""Which way a call goes, the library's or PyTorch's, and what it says when it fails."""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Dict, NoReturn, Optional, Set, Tuple

from torch.distributed.checkpoint import filesystem as _stock
from torch.distributed.checkpoint.api import CheckpointException, _wrap_exception
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.stateful import Stateful

from .._errors import Error, ExistsError, error_of
from .._library import ERR_CALLBACK, ERR_UNSUPPORTED, check, lib
from .._state import State, described_error
from .groups import Ranks
from .storage import FileSystemReader, FileSystemWriter, _StockReader, _StockWriter
from .trees import Describer, Elsewhere, check_state

_log = logging.getLogger("libdcp.torch")
_said: Set[str] = set()
_SAID_MOST = 100  # what a load finds names places, and differs each time


def say_elsewhere(call: str, why: str) -> None:
    """Logs, once, why a call goes PyTorch's way."""
    text = "%s goes PyTorch's way: %s" % (call, why)
    if text not in _said and len(_said) < _SAID_MOST:
        _said.add(text)
        _log.warning("%s", text)


def fail(call: str, rank: int, error: Exception) -> NoReturn:
    """Raises as PyTorch's functions do."""
    if isinstance(error, ExistsError):
        error = ExistsError("Checkpoint already exists and self.overwrite=False: %s" % error)
    raise CheckpointException(call, {rank: _wrap_exception(error)}) from error


def fail_together(call: str, ranks: Ranks, error: Optional[BaseException]) -> None:
    """What one rank has met in Python is raised on all: there as it is, elsewhere by its text.
    Collective; returns where none has failed."""
    told = ranks.tell(described_error(error) if error else "")
    if error and not isinstance(error, Exception):
        raise error
    if told:
        failures: Dict[int, Any] = {
            rank: _wrap_exception(
                error if error and rank == ranks.rank else error_of(ERR_CALLBACK, text)
            )
            for rank, text in told.items()
        }
        raise CheckpointException(call, failures) from error


def name_of(value: Any) -> str:
    kind = type(value)
    return "%s.%s" % (kind.__module__, kind.__qualname__)


def is_local(checkpoint_id: Any) -> bool:
    """Whether it is a directory of this machine's file systems."""
    return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in os.fspath(checkpoint_id)


def check_save_planner(planner: Any) -> None:
    """Elsewhere: the planner does something of its own."""
    if planner is not None and type(planner) is not DefaultSavePlanner:
        raise Elsewhere("the planner is a %s" % name_of(planner))


def check_load_planner(planner: Any) -> None:
    """Elsewhere: the planner does something of its own."""
    if planner is not None and type(planner) is not DefaultLoadPlanner:
        raise Elsewhere("the planner is a %s" % name_of(planner))


def writer_for(storage_writer: Any, checkpoint_id: Any) -> Any:
    """The storage writer whose options a save has. Elsewhere: it is none of the library's."""
    if storage_writer is None:
        if not is_local(checkpoint_id):
            raise Elsewhere("the checkpoint is not in a file system")
        return FileSystemWriter(checkpoint_id)
    if type(storage_writer) not in (FileSystemWriter, _StockWriter):
        raise Elsewhere("the storage writer is a %s" % name_of(storage_writer))
    if (
        type(storage_writer.fs) is not _stock.FileSystem
        or storage_writer.transforms.extensions
        or storage_writer.serialization_format != _stock.SerializationFormat.TORCH_SAVE
    ):
        raise Elsewhere("the storage writer has extensions or another format")
    return storage_writer


def reader_for(storage_reader: Any, checkpoint_id: Any) -> Any:
    """The storage reader of a load. Elsewhere: it is none of the library's."""
    if storage_reader is None:
        if not is_local(checkpoint_id):
            raise Elsewhere("the checkpoint is not in a file system")
        return FileSystemReader(checkpoint_id)
    if type(storage_reader) not in (FileSystemReader, _StockReader):
        raise Elsewhere("the storage reader is a %s" % name_of(storage_reader))
    if type(storage_reader.fs) is not _stock.FileSystem:
        raise Elsewhere("the storage reader has another file system")
    return storage_reader


def way_of(
    storage_for: Callable[[Any, Any], Any],
    place: Tuple[Any, Any],
    check_planner: Callable[[Any], None],
    planner: Any,
    alone: bool,
) -> Tuple[Any, Optional[Exception]]:
    """The storage of a call; and why it cannot go the library's way, which all ranks must learn
    before one of them goes another. Alone, that is raised."""
    storage: Any = FileSystemWriter(".")
    try:
        storage = storage_for(*place)
        check_planner(planner)
    except Exception as error:
        if alone:
            raise
        return storage, error
    return storage, None


def is_stateful(value: Any) -> bool:
    """As PyTorch's protocol says, which takes long to ask: not of what lacks one of its methods."""
    return hasattr(value, "load_state_dict") and isinstance(value, Stateful)


class States:
    """The entries of a state dict, with what stateful ones say of themselves instead of them."""

    def __init__(self, state_dict: Any, is_sorted: bool = False) -> None:
        self._given = state_dict
        self._is_sorted = is_sorted
        self._found: Optional[Dict[Any, Any]] = None
        self._error: Optional[Exception] = None

    def get(self) -> Dict[Any, Any]:
        """Asks them once. What one of them raises is raised each time."""
        if self._error:
            raise self._error
        if self._found is None:
            try:
                entries = self._given.items()
                if self._is_sorted:
                    entries = sorted(entries, key=lambda entry: entry[0])
                self._found = {
                    key: value.state_dict() if is_stateful(value) else value
                    for key, value in entries
                }
            except Exception as error:
                self._error = error
                raise
        return self._found

    def check(self, call: str, ranks: Ranks) -> None:
        """Before PyTorch's way: what an entry raises, and tensors beyond their storage, fail the call
        on all ranks. Collective."""
        error: Optional[Exception] = None
        try:
            check_state(self.get())
        except Exception as found:
            error = found
        try:
            fail_together(call, ranks, error)
        except CheckpointException:
            if error and error is self._error:
                raise error from None
            raise

    def fail(self, call: str, rank: int, error: Exception) -> NoReturn:
        """As ``fail``; what an entry raised comes back as it is."""
        if error is self._error:
            raise error
        fail(call, rank, error)


class Refusal:
    """Why this rank cannot take part: every rank gets it from the call that they make together."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def cause_of(self, error: Exception) -> Exception:
        """What this rank raises when the call has failed. Which way a call goes is what all ranks
        were told, not what this one has found."""
        return error if isinstance(self.error, Elsewhere) else self.error

    def tree(self) -> State:
        if isinstance(self.error, Elsewhere):
            return State.refusing(ERR_UNSUPPORTED, str(self.error))
        return State.refusing(ERR_CALLBACK, described_error(self.error))


def tree_of(
    describer: Describer, describe: Callable[[], None], alone: bool
) -> Tuple[State, Optional[Refusal]]:
    """The tree of what is described. Where it cannot be: alone, the exception; else a tree that
    refuses."""
    try:
        describe()
        described = b"".join(describer.parts)
        state = State()
        try:
            state.held = describer.held
            check(lib.dcp_state_unpack(state.handle, None, described, len(described)))
        except Error as error:
            state.free()
            raise Elsewhere(str(error)) from error
        return state, None
    except Exception as error:
        if alone:
            raise
        refusal = Refusal(error)
        return refusal.tree(), refusal


