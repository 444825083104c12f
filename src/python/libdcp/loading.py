# SPDX-License-Identifier: BSD-3-Clause
"""Loading, into arrays that are there or into new ones."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _structs as structs
from ._errors import error_of
from ._library import ERR_FORMAT, check, interruptible, lib, path_bytes, texts
from ._progress import Progress, Watch
from ._state import State
from ._values import Opaque, is_tensor
from .checkpoint import Checkpoint, PathLike, Tensor
from .checkpoint import open as open_checkpoint
from .groups import Group

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
    options.group = group.handle if group else None
    options.strictness = _STRICTNESS[strict]
    options.convert = convert
    options.verification = 0 if verify else 2
    options.thread_count = threads
    options.timeout_seconds = timeout
    options.memory_limit = memory_limit
    options.include, options.include_count = texts(include), len(include)
    options.exclude, options.exclude_count = texts(exclude), len(exclude)
    options.members, options.member_count = texts(members), len(members)
    tree = State.of(state, writable=True)
    watch = Watch(progress, "loading")
    try:
        lines = _fill(tree, path, options, watch, group)
        _put_back(state, tree.values(make_tensor=_elsewhere))
        return lines
    finally:
        watch.close()
        tree.free()


def load_described(described: bytes, held: List[Any], path: PathLike) -> None:
    """Fills the tensors of a description, and nothing else. held: what they point to."""
    with State.described(described, held) as tree:
        _fill(tree, path, structs.dcp_load_options(), Watch(None, "loading"), None)


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
    path: PathLike,
    options: structs.dcp_load_options,
    watch: Watch,
    group: Optional[Group],
) -> List[Difference]:
    options.progress = watch.function

    def call() -> List[Difference]:
        report = ctypes.c_void_p()
        try:
            status = lib.dcp_load_sized(
                tree.handle,
                path_bytes(path),
                ctypes.byref(options),
                ctypes.sizeof(options),
                ctypes.byref(report),
            )
            if group and group.callbacks.raised:
                raise group.callbacks.raised.pop(0)
            watch.callbacks.check(status)
            return _lines(report)
        finally:
            lib.dcp_load_report_free(report)

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


class _Elsewhere:
    """Stands for a tensor that was loaded in place."""


def _elsewhere(*_: Any) -> _Elsewhere:
    return _Elsewhere()


def _put_back(state: Any, loaded: Any) -> None:
    """Puts values that were loaded in the place of those that were there; arrays stay."""
    for key in list(state) if isinstance(state, dict) else range(len(state)):
        mine, found = state[key], loaded[key]
        if is_tensor(mine) or _is_sharded_stand_in(found):
            continue
        if isinstance(mine, dict) and isinstance(found, dict) and mine.keys() == found.keys():
            _put_back(mine, found)
        elif isinstance(mine, list) and isinstance(found, list) and len(mine) == len(found):
            _put_back(mine, found)
        else:
            state[key] = found


def _is_sharded_stand_in(found: Any) -> bool:
    return isinstance(found, Opaque) and found.name == "torch.Tensor"


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
