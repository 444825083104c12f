# SPDX-License-Identifier: BSD-3-Clause
"""The stager of ``torch.distributed.checkpoint.staging``, with the library's copies."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import torch
from torch.distributed.checkpoint import staging as _stock
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.tensor import DTensor as _DTensor

from .._library import check, lib, release_with
from .trees import check_memory

_StateDictStager: Any = StateDictStager
DTensor: Any = _DTensor

_LARGE = 1 << 20  # bytes of a storage, from which on its copy is the library's
_PART = 16 << 20  # bytes that are worth a thread of their own
_THREADS_MOST = 4  # that copy: more do not make memory faster


class DefaultStager(_stock.DefaultStager):  # type: ignore[misc,unused-ignore]
    """PyTorch's DefaultStager, with copies that go past the caches; arguments are the same.

    What it copies to is in large pages, unless it is to be shared or page-locked, and is kept for
    the next save. Host memory is copied by as many threads as PyTorch has, up to 4; other memory as
    PyTorch does. As with PyTorch's, a save must have ended before the next one is staged.
    ValueError: a tensor does not lie in its storage, which was freed or shrunk.

    ::

        stager = DefaultStager(StagingOptions(False, False, False, False))
        future = dcp.async_save(state_dict, storage_writer=writer, async_stager=stager)
    """

    def __init__(self, config: Optional[_stock.StagingOptions] = None) -> None:
        config = config or _stock.StagingOptions()
        super().__init__(config)
        self._state_dict_stager = _Stager(config.use_pinned_memory, config.use_shared_memory)


class _Stager(_StateDictStager):  # type: ignore[misc]
    def _offload_tensor(self, x: Any, memo: Any, non_blocking: bool = False) -> Any:
        """A DTensor's spec does not change: it is shared, as by operations, and not copied part by
        part, which takes longer than to copy megabytes."""
        check_memory(x)  # PyTorch would give the copy the bytes that the storage lacks
        if type(x) is not DTensor or x.__dict__:
            copy = super()._offload_tensor(x, memo, non_blocking)
            return _as_viewed(copy, x) if type(x) is torch.Tensor else copy
        local = self.deepcopy_with_tensor_offload(x._local_tensor, memo, non_blocking=non_blocking)
        copy = DTensor(local, x._spec, requires_grad=False)
        memo[id(x)] = copy
        return copy

    def _stage_untyped_storage(self, storage: Any, non_blocking: bool = False) -> Any:
        kept = self._cached_storage_mapping.get(storage)
        size = storage.nbytes()
        ours = storage.device.type == "cpu" and size >= _LARGE
        if ours and kept is None and not (self.pin_memory or self.share_memory):
            kept = self._cached_storage_mapping[storage] = _allocate(size)
        if not ours or kept is None or kept.nbytes() != size:
            return super()._stage_untyped_storage(storage, non_blocking)
        _copy(kept.data_ptr(), storage.data_ptr(), size)
        return kept


def _as_viewed(copy: Any, x: Any) -> Any:
    """A copy of a view that conjugates or negates, which PyTorch's copy of its storage forgets."""
    if x.is_conj():
        copy = copy.conj()
    return torch._neg_view(copy) if x.is_neg() else copy


def _allocate(size: int) -> Any:
    """A storage in large pages. size: bytes. Raises OutOfMemoryError."""
    address = ctypes.c_void_p()
    check(lib.dcp_memory_allocate(size, ctypes.byref(address)))
    memory = (ctypes.c_char * size).from_address(address.value or 0)
    release_with(memory, lib.dcp_memory_free, address)
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def _copy(to: int, source: int, size: int) -> None:
    threads = min(torch.get_num_threads(), _THREADS_MOST, size // _PART)
    if threads < 2:
        lib.dcp_memory_copy(to, source, size)
        return
    part = size // threads & -64
    starts = [part * i for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for start, end in zip(starts, starts[1:] + [size]):
            pool.submit(lib.dcp_memory_copy, to + start, source + start, end - start)
