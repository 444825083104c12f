# SPDX-License-Identifier: BSD-3-Clause
"""``load`` of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import ctypes
import io
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
import torch.distributed.checkpoint.state_dict_loader as _stock
from torch.distributed.checkpoint.utils import _api_bc_check

from .. import _structs as structs
from .._errors import FormatError, MismatchError, NotFoundError, UnsupportedError
from .._library import interruptible, lib, path_bytes
from .._progress import Watch
from .._state import State, gather_bytes
from .._values import Unpacker, mark_written
from ..checkpoint import Checkpoint
from ..checkpoint import open as open_checkpoint
from ..loading import _lines
from . import ways
from .groups import Ranks, ranks_of
from .storage import FileSystemReader
from .trees import _SCALARS, Elsewhere, LoadDescriber

_stock_load: Any = _stock.load

_STRICT_MISSING, _STRICT_PARTIAL = 0, 30

# PyTorch may still load what does not fit: it converts dtypes, puts objects where tensors were, and
# knows names of earlier versions; else its error is the one that is expected.
_OTHERWISE = (FormatError, MismatchError, NotFoundError, UnsupportedError)


@_api_bc_check  # type: ignore[misc,untyped-decorator,unused-ignore]
def load(
    state_dict: Dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fills a state dict from a checkpoint, in place, as ``torch.distributed.checkpoint.load``.

    state_dict: nested, tensors are filled where they are. checkpoint_id: a directory, or
    storage_reader: one that has it. planner, process_group, no_dist: as PyTorch's.

    Collective over the process group. What is read is checked as far as its file has checksums.
    Failures are CheckpointException, the same on all ranks.
    Objects are unpickled as PyTorch does, which executes what they name, but for plain values. Where
    that fails on one rank only, the load fails on all, as PyTorch's: ``failures`` of the exception
    has what was raised there, and on the other ranks its text. Tensors are filled by then.
    What ``load_state_dict`` of an entry raises comes back as it is, and on the other ranks, which
    have loaded all of theirs, as CheckpointException with its text.
    """
    if storage_reader is not None and checkpoint_id is not None:
        storage_reader.reset(checkpoint_id)
    states = ways.States(state_dict, is_sorted=True)
    ranks = ranks_of(process_group, no_dist)
    elsewhere = ""
    try:
        _load(states, (storage_reader, checkpoint_id), planner, ranks)
    except Elsewhere as why:
        elsewhere = str(why)
    if elsewhere:
        ways.say_elsewhere("load", elsewhere)
        states.check("read", ranks)
        if storage_reader is None and ways.is_local(checkpoint_id):
            storage_reader, checkpoint_id = FileSystemReader(checkpoint_id), None
        _stock_load(
            states.get(),
            storage_reader=storage_reader,
            checkpoint_id=checkpoint_id,
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
        )
    error = _hand_over(state_dict, states)
    try:
        with ranks.lock:
            ways.fail_together("read", ranks, error)
    except BaseException:  # as CheckpointException is
        if error:
            raise error from None
        raise


def _hand_over(state_dict: Dict[str, Any], states: ways.States) -> Optional[BaseException]:
    """Gives what was loaded to the entries that it is of. Returns what one of them raises."""
    try:
        for key, value in states.get().items():
            if ways.is_stateful(state_dict[key]):
                state_dict[key].load_state_dict(value)
            else:
                state_dict[key] = value
    except BaseException as error:  # else the other ranks would go on without this one
        return error
    return None


def _load(states: ways.States, place: Tuple[Any, Any], planner: Any, ranks: Ranks) -> None:
    """place: the storage reader and the checkpoint_id."""
    alone = ranks.group is None
    reader, why = ways.way_of(ways.reader_for, place, ways.check_load_planner, planner, alone)
    planner = None if why else planner
    flatten = planner is None or planner.flatten_state_dict
    partial = planner is not None and planner.allow_partial_load
    describer = LoadDescriber(ranks.size)

    def describe() -> None:
        if why:
            raise why
        describer.put_state(states.get(), flatten)

    with ranks.lock:
        tree: Optional[State] = None
        refusal: Optional[ways.Refusal] = None
        try:
            tree, refusal = ways.tree_of(describer, describe, alone)
            try:
                missing = _fill(tree, reader.path, partial, ranks)
            except _OTHERWISE as error:  # on all ranks
                raise Elsewhere(str(error)) from None
            ways.fail_together(
                "read", ranks, _put_objects(tree, reader.path, describer, missing)
            )
        except Elsewhere:
            raise
        except Exception as error:
            states.fail("read", ranks.rank, refusal.cause_of(error) if refusal else error)
        finally:
            if tree:
                tree.free()


def _put_objects(
    tree: State, path: Path, describer: LoadDescriber, missing: Set[str]
) -> Optional[BaseException]:
    """Makes the objects, and puts each where it belongs. Returns what one of them raised."""
    try:
        with _Objects(tree, path) as objects:
            for name, (parent, key) in describer.objects.items():
                if name not in missing:
                    parent[key] = objects.value(name)
    except BaseException as error:  # else the other ranks would wait for this one
        return error
    return None


def _fill(tree: State, path: Path, partial: bool, ranks: Ranks) -> Set[str]:
    """Loads into the tree. Returns the names that are not stored, if they need not be."""
    watch = Watch(None, "loading")
    options = structs.dcp_load_options()
    options.group = ranks.handle
    options.strictness = _STRICT_PARTIAL if partial else _STRICT_MISSING
    options.unflattened = True
    options.plan_cache = ranks.load_plans
    options.progress = watch.function

    def call() -> Set[str]:
        report = ctypes.c_void_p()
        try:
            status = lib.dcp_load_sized(
                tree.handle,
                path_bytes(path),
                ctypes.byref(options),
                ctypes.sizeof(options),
                ctypes.byref(report),
            )
            if ranks.group:
                ranks.group.callbacks.raise_first()
            watch.callbacks.check(status)
            lines = _lines(report) if partial else []
            return {line.name for line in lines if line.kind == "missing"}
        finally:
            lib.dcp_load_report_free(report)
            mark_written(tree.held)

    return call() if ranks.group else interruptible(call, watch.cancel)


class _NotPlain(Exception):
    """A value is to be unpickled."""


def _refuse(*_: Any) -> Any:
    raise _NotPlain


class _PlainUnpacker(Unpacker):
    """Takes values in which nothing can be shared: the rest is PyTorch's to make."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, _refuse)
        for kind in b"xDVSFIB":
            self._take[kind] = _refuse

    def take_plain(self) -> Any:
        value = self.take()
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is dict or kind is OrderedDict:
            parts: List[Any] = [*value.keys(), *value.values()]
        elif kind is list or kind is tuple:
            parts = list(value)
        else:
            raise _NotPlain
        if any(type(part) not in _SCALARS for part in parts):
            raise _NotPlain
        return value


class _Objects:
    """The objects that a load has put into its tree."""

    def __init__(self, tree: State, path: Path) -> None:
        self._tree = tree
        self._path = path
        self._checkpoint: Optional[Checkpoint] = None

    def value(self, name: str) -> Any:
        node = lib.dcp_state_find(self._tree.handle, name.encode("utf-8"))
        try:
            return _PlainUnpacker(
                gather_bytes(lambda sink: int(lib.dcp_state_pack(node, 0, sink, None)))
            ).take_plain()
        except (_NotPlain, UnsupportedError):
            pass
        if self._checkpoint is None:
            self._checkpoint = open_checkpoint(self._path)
        return torch.load(io.BytesIO(self._checkpoint.stream(name)), weights_only=False)

    def __enter__(self) -> "_Objects":
        return self

    def __exit__(self, *error: object) -> None:
        if self._checkpoint is not None:
            self._checkpoint.close()
