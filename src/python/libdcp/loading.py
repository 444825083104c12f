# SPDX-License-Identifier: BSD-3-Clause
"""Loading, into arrays that are there or into new ones."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _structs as structs
from ._errors import error_of
from ._library import ERR_FORMAT, check, interruptible, lib, path_bytes, texts, whole_number
from ._placing import Loaded, put_back
from ._progress import Progress, Watch
from ._state import State, state_of
from ._values import mark_written
from .checkpoint import Checkpoint, PathLike, Tensor
from .checkpoint import open as open_checkpoint
from .groups import Group, handle_of

_STRICTNESS = {"missing": 0, "all": 10, "log-missing": 20, "log-all": 21, "partial": 30}
_GAPS_MOST = 1_000_000  # positions of a list that are not stored
_DIFFERENCES = ("missing", "unexpected", "converted", "mismatched", "unused")


class Difference(NamedTuple):
    """A line of a report: what differs ("missing", "unexpected", "converted", "mismatched" or
    "unused"), the name, and how."""

    kind: str
    name: str
    detail: str
    stored_name: str


def load(
    state: Dict[str, Any],
    path: PathLike,
    *,
    group: Optional[Group] = None,
    strict: str = "missing",
    convert: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    members: Sequence[PathLike] = (),
    verify: bool = True,
    threads: int = 0,
    timeout: float = 0,
    memory_limit: int = 0,
    progress: Progress = None,
) -> List[Difference]:
    """Fills a state from a checkpoint, in place, at any number of ranks and any division.

    state: as for ``save``. Arrays and :class:`Sharded` tensors are filled where they are; other
    values are replaced by what is stored. strict: what is an error of names that are wanted and not
    stored (missing) and the reverse (unexpected): "missing", "all", or, with a warning in the log or
    without, nothing: "log-missing", "log-all", "partial". convert: between real dtypes, else other
    ones are an error. include, exclude: patterns of names. path, members, verify: as for ``open``.
    group, threads, timeout, memory_limit, progress: as for ``save``.

    Returns what differed and was no error. TypeError: an array that cannot be loaded into.
    NotFoundError: there is no checkpoint. MismatchError: names, shapes or dtypes differ; nothing
    was read then. FormatError: damaged, arrays may have been filled in part.
    """
    if strict not in _STRICTNESS:
        raise ValueError("strict is one of %s, not %r" % (", ".join(_STRICTNESS), strict))
    options = structs.dcp_load_options()
    options.group = handle_of(group)
    options.strictness = _STRICTNESS[strict]
    options.convert = convert
    options.verification = 0 if verify else 2
    options.thread_count = whole_number(threads, "threads", 32)
    options.timeout_seconds = timeout
    options.memory_limit = whole_number(memory_limit, "memory_limit", 64, signed=False)
    options.include, options.include_count = texts(include, "include")
    options.exclude, options.exclude_count = texts(exclude, "exclude")
    options.members, options.member_count = texts(members, "members")
    place = path_bytes(path)
    watch = Watch(progress, "loading")
    tree, refused = state_of(state, True, group is not None)
    try:
        lines = _fill(tree, place, options, watch, group, refused)
        put_back(state, tree.values(make_tensor=Loaded))
        return lines
    finally:
        watch.close()
        tree.free()


def load_described(described: bytes, held: List[Any], path: PathLike, io_ways: int) -> None:
    """Fills the tensors of a description, and nothing else. held: what they point to; io_ways: how
    they are read, of dcp_io."""
    options = structs.dcp_load_options(io=io_ways)
    with State.described(described, held) as tree:
        _fill(tree, path_bytes(path), options, Watch(None, "loading"), None)


def read(path: PathLike, *, members: Sequence[PathLike] = (), verify: bool = True) -> Any:
    """Reads a whole checkpoint: the state that was saved, with new arrays.

    Positions of lists that are not stored, as PyTorch leaves out empty dicts, are None. path,
    members, verify, and errors: as for ``open``. TypeError: NumPy has no dtype for a tensor.
    FormatError: the bytes are not those that were saved, or a name is a value and a dict.
    """
    with open_checkpoint(path, members=members, verify=verify) as checkpoint:
        return _nest(checkpoint)


def _fill(
    tree: State,
    path: bytes,
    options: structs.dcp_load_options,
    watch: Watch,
    group: Optional[Group],
    refused: Optional[Exception] = None,
) -> List[Difference]:
    options.progress = watch.function

    def call() -> List[Difference]:
        report = ctypes.c_void_p()
        try:
            status = lib.dcp_load_sized(
                tree.handle,
                path,
                ctypes.byref(options),
                ctypes.sizeof(options),
                ctypes.byref(report),
            )
            if group:
                group.callbacks.raise_first(refused)
            watch.callbacks.check(status)
            return _lines(report)
        finally:
            lib.dcp_load_report_free(report)
            mark_written(tree.held)

    return call() if group else interruptible(call, watch.cancel)


def _lines(report: Any) -> List[Difference]:
    lines: List[Difference] = []
    line = structs.dcp_report_line()
    for i in range(lib.dcp_load_report_count(report)):
        check(
            lib.dcp_load_report_line_sized(report, i, ctypes.byref(line), ctypes.sizeof(line))
        )
        lines.append(
            Difference(
                _DIFFERENCES[line.difference],
                line.name.decode("utf-8"),
                line.detail.decode("utf-8"),
                (line.stored_name or line.name).decode("utf-8"),
            )
        )
    return lines


def _value_of(checkpoint: Checkpoint, name: str) -> Any:
    value = checkpoint[name]
    return value.read() if isinstance(value, Tensor) else value


class _Node(Dict[Any, Any]):
    """A dict or list that is being put together."""


def _nest(checkpoint: Checkpoint) -> Any:
    """The nested state: dicts by keys, lists by positions."""
    root = _Node()
    nodes: List[Tuple[_Node, Any]] = []
    for name in checkpoint:
        path = checkpoint.path(name)
        place = root
        for key in path[:-1]:
            if key not in place:
                place[key] = _Node()
                nodes.append((place, key))
            place = place[key]
            if type(place) is not _Node:
                raise _contradiction(name)
        if path[-1] in place:
            raise _contradiction(name)
        place[path[-1]] = _value_of(checkpoint, name)
    for parent, key in reversed(nodes):
        parent[key] = _finish(parent[key], key)
    return dict(root)


def _finish(node: _Node, key: Any) -> Any:
    """A position of a list that is not stored is None, as PyTorch has it."""
    positions = sum(isinstance(key, int) for key in node)
    if not positions:
        return dict(node)
    if positions < len(node) or max(node) > len(node) + _GAPS_MOST:
        raise _contradiction(key)
    return [node.get(position) for position in range(max(node) + 1)]


def _contradiction(name: Any) -> Exception:
    return error_of(
        ERR_FORMAT,
        "%r is a value and a dict or list, or has positions that no list has; libdcp.open() reads"
        " the names one by one" % (name,),
    )
