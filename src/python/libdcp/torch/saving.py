# SPDX-License-Identifier: BSD-3-Clause
"""``save`` and ``async_save`` of ``torch.distributed.checkpoint``."""

from __future__ import annotations

import ctypes
from concurrent.futures import Future
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict_saver as _stock
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.checkpoint.utils import _api_bc_check

from .. import _structs as structs
from .. import saving as _saving
from .._errors import Error, UnsupportedError
from .._library import interruptible, lib, path_bytes
from .._progress import Watch
from .._state import State
from . import ways
from .groups import Ranks, ranks_of
from .metadata import stored_metadata
from .storage import FileSystemWriter, page_cache_of
from .trees import Elsewhere, SaveDescriber

_stock_save: Any = _stock.save
_stock_async_save: Any = _stock.async_save

_REPLICAS_WHOLE, _REPLICAS_LOWEST = 1, 2
_FILE_PER_ITEM = 1


class _Save:
    """One save by the library: its tree, options, and what it leaves."""

    def __init__(
        self, states: ways.States, place: Tuple[Any, Any], planner: Any, ranks: Ranks, plans: int
    ) -> None:
        """place: the storage writer and the checkpoint_id."""
        alone = ranks.group is None
        writer, why = ways.way_of(ways.writer_for, place, ways.check_save_planner, planner, alone)
        planner = None if why else planner
        flatten = planner is None or planner.flatten_state_dict
        describer = SaveDescriber(ranks.size)

        def describe() -> None:
            if why:
                raise why
            describer.put_state(states.get(), flatten)

        self.ranks = ranks
        self._writer = writer
        self.path = path_bytes(writer.path)
        self.tree, self.refusal = ways.tree_of(describer, describe, alone)
        self._committed: List[Tuple[str, str]] = []
        self._after = structs.AfterCommit(self._commit)
        options = structs.dcp_save_options()
        options.group = ranks.handle
        options.overwrite = 1 if writer.overwrite else 0
        lowest = planner is not None and planner.dedup_save_to_lowest_rank
        options.replicas = _REPLICAS_LOWEST if lowest else _REPLICAS_WHOLE
        options.files = 0 if writer.single_file_per_rank else _FILE_PER_ITEM
        options.thread_count = writer.thread_count
        options.skip_sync = not writer.sync_files
        options.unflattened = not flatten
        options.allow_partial = ranks.size == 1
        options.plan_cache = plans
        options.page_cache = page_cache_of(writer)
        options.after_commit = self._after
        self._id = str(writer.path).encode("utf-8", "replace")
        options.checkpoint_id = self._id
        self.options = options

    def _commit(self, _context: Any, path: bytes, save_id: bytes) -> int:
        self._committed.append((path.decode("utf-8", "surrogateescape"), save_id.decode("ascii")))
        return 0

    @property
    def held(self) -> Tuple[Any, ...]:
        """What must live as long as the save."""
        return (self._after, self._id, self.refusal, *self.tree.held)

    def metadata(self) -> Metadata:
        path, save_id = self._committed[-1]
        self._writer.save_id = save_id
        return stored_metadata(path, save_id)

    def raised(self, error: Exception) -> Exception:
        """What a failure of the library stands for on this rank. Elsewhere: nothing was saved."""
        if isinstance(error, UnsupportedError):
            return Elsewhere(str(error))
        return self.refusal.cause_of(error) if self.refusal else error


def _reset(storage: Any, checkpoint_id: Any) -> None:
    if storage is not None and checkpoint_id is not None:
        storage.reset(checkpoint_id)


@_api_bc_check  # type: ignore[misc,untyped-decorator,unused-ignore]
def save(
    state_dict: Dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Saves a state dict as a checkpoint, as ``torch.distributed.checkpoint.save``.

    checkpoint_id: a directory, or storage_writer: one that has it and how to write. state_dict,
    planner, process_group, no_dist, use_collectives: as PyTorch's.

    Collective over the process group. Returns when the checkpoint is durable and visible; a
    checkpoint that is there is replaced at that moment, whole. Failures are CheckpointException,
    the same on all ranks. The metadata that it returns is read when it is looked at. Large files go
    around the page cache, unless the storage writer says otherwise by its ``page_cache``.
    Until it returns, no other thread may free or shrink the storage of a tensor: PyTorch has no way
    to hold one. What was freed or shrunk before is ValueError, on all ranks.
    """
    _reset(storage_writer, checkpoint_id)
    states = ways.States(state_dict)
    try:
        if not use_collectives:
            raise Elsewhere("each rank saves without the others")
        place = (storage_writer, checkpoint_id)
        return _save(states, place, planner, ranks_of(process_group, no_dist))
    except Elsewhere as why:
        ways.say_elsewhere("save", str(why))
    states.check("write", ranks_of(process_group, no_dist or not use_collectives))
    metadata: Metadata = _stock_save(
        states.get(),
        storage_writer=_stock_writer(storage_writer, checkpoint_id),
        checkpoint_id=None if ways.is_local(checkpoint_id) else checkpoint_id,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
        use_collectives=use_collectives,
    )
    return metadata


def _stock_writer(storage_writer: Any, checkpoint_id: Any) -> Any:
    if storage_writer is None and ways.is_local(checkpoint_id):
        return FileSystemWriter(checkpoint_id)
    return storage_writer


def _save(states: ways.States, place: Tuple[Any, Any], planner: Any, ranks: Ranks) -> Metadata:
    with ranks.lock:
        one: Optional[_Save] = None
        try:
            one = _Save(states, place, planner, ranks, ranks.save_plans)
            _run(one)
            return one.metadata()
        except Elsewhere:
            raise
        except Exception as error:
            raised = one.raised(error) if one else error
            if isinstance(raised, Elsewhere):
                raise raised from None
            states.fail("write", ranks.rank, raised)
        finally:
            if one:
                one.tree.free()


def _run(one: _Save) -> None:
    group, watch = one.ranks.group, Watch(None, "saving")
    one.options.progress = watch.function

    def call() -> None:
        status = lib.dcp_save_sized(
            one.tree.handle, one.path, ctypes.byref(one.options), ctypes.sizeof(one.options)
        )
        _saving._check(status, watch, group)

    if group:
        call()
    else:
        interruptible(call, watch.cancel)


def async_save(
    state_dict: Dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Any:
    """Saves while training goes on, as ``torch.distributed.checkpoint.async_save``.

    Tensors may change when this returns: they have been copied, into memory that is kept for the
    next save. The future gives the metadata when the checkpoint is durable and visible, or
    CheckpointException. A save waits for the one before it. Whether tensors require gradients is
    stored as by ``save``; PyTorch's ways of copying forget it, but for some of DTensors.

    state_dict, checkpoint_id, storage_writer, planner, process_group, no_dist, use_collectives: as
    for ``save``. async_checkpointer_type, async_stager: another than a thread, or any stager, go
    PyTorch's way.
    """
    if not no_dist and dist.is_available() and dist.is_initialized():
        group: Any = process_group or dist.group.WORLD
        if torch.device("cpu") not in group._device_types:
            raise AssertionError(
                "A CPU backend must be enabled for async save; try initializing process group"
                " with 'cpu:gloo,cuda:nccl'"
            )
    states = ways.States(state_dict)
    try:
        if async_stager is not None:
            raise Elsewhere("there is a stager of class %s" % ways.name_of(async_stager))
        if async_checkpointer_type != AsyncCheckpointerType.THREAD:
            raise Elsewhere("it is to be done by a process")
        if not use_collectives:
            raise Elsewhere("each rank saves without the others")
        _reset(storage_writer, checkpoint_id)
        place = (storage_writer, checkpoint_id)
        return _begin(states, place, planner, ranks_of(process_group, no_dist))
    except Elsewhere as why:
        ways.say_elsewhere("async_save", str(why))
    states.check("write", ranks_of(process_group, no_dist or not use_collectives))
    return _stock_async_save(
        states.get(),
        storage_writer=_stock_writer(storage_writer, checkpoint_id),
        checkpoint_id=checkpoint_id,
        planner=planner,
        process_group=process_group,
        async_checkpointer_type=async_checkpointer_type,
        async_stager=async_stager,
        no_dist=no_dist,
        use_collectives=use_collectives,
    )


def _begin(
    states: ways.States, place: Tuple[Any, Any], planner: Any, ranks: Ranks
) -> "Future[Metadata]":
    with ranks.lock:
        one: Optional[_Save] = None
        try:
            one = _Save(states, place, planner, ranks, ranks.async_plans)
            one.options.chain = ranks.chain_of_saves()
            begun = _saving.begin_save(
                one.tree.handle, one.held, one.path, one.options, ranks.group
            )
            return _future_of(one, begun)
        except Elsewhere:
            raise
        except Exception as error:
            if ranks.group and ranks.group.callbacks.raised:
                error = _first(ranks.group.callbacks.raised)
            raised = one.raised(error) if one else error
            if isinstance(raised, Elsewhere):
                raise raised from None
            states.fail("write", ranks.rank, raised)
        finally:
            if one:
                one.tree.free()


def _first(raised: List[BaseException]) -> Exception:
    first = raised[0]
    raised.clear()
    return first if isinstance(first, Exception) else RuntimeError(repr(first))


def _future_of(one: _Save, saving: "_saving.Future") -> "Future[Metadata]":
    """A future as PyTorch's async_save returns it."""
    future: "Future[Metadata]" = Future()
    future.set_running_or_notify_cancel()

    def end(ended: "_saving.Future") -> None:
        try:
            ended.result()
            future.set_result(one.metadata())
        except Error as error:
            try:
                ways.fail("write", one.ranks.rank, error)
            except BaseException as failure:
                future.set_exception(failure)
        except BaseException as error:  # else whoever waits would wait for ever
            future.set_exception(error)

    saving.add_done_callback(end)
    return future
