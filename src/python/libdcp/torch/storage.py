# SPDX-License-Identifier: BSD-3-Clause
"""The storage of this library for ``torch.distributed.checkpoint``: one changed line.

::

    from libdcp.torch import FileSystemReader, FileSystemWriter
    dcp.save(state_dict, storage_writer=FileSystemWriter(path))
    dcp.load(state_dict, storage_reader=FileSystemReader(path))

They take the arguments of PyTorch's classes of these names, whose subclasses they are, and work with
any planner. What they write has checksums for each block and is loaded by PyTorch without them;
what they read is checked as far as its file has checksums. What several ranks read goes through the
page cache, so that a host reads it once. A checkpoint is replaced at once when the new one is
durable: its files have names of their own, and the old ones go after the commit.

What the library has no way for goes PyTorch's: stream extensions but zstd when reading, safetensors as
the format of writing, file systems of subclasses, tensors outside of host memory when writing,
reading by the metadata of a single rank, and reading checkpoints with names, dtypes or numbers of
dimensions that C or the library has not, such as quantized tensors.
"""

from __future__ import annotations

import io
import math
import operator
import os
import pickle
import queue
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple, cast

import torch
from torch.distributed.checkpoint import filesystem as _stock
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .._errors import MismatchError, UnsupportedError
from .._shards import ShardWriter, make_save_id
from ..checkpoint import Checkpoint, Tensor
from ..checkpoint import open as open_checkpoint
from ..loading import load_described
from ..saving import page_cache_number
from .metadata import SentMetadata
from .trees import _COUNT, NDIM_MOST, STORED_DTYPES, Describer, Elsewhere, check_memory, is_text

_StockWriter: Any = getattr(_stock, "_StockFileSystemWriter", _stock.FileSystemWriter)
_StockReader: Any = getattr(_stock, "_StockFileSystemReader", _stock.FileSystemReader)

_IO_AUTO, _IO_BUFFERED = 0, 8

_SHARD = re.compile(r"__(\d+)_\d+(?:\.g(\d+))?\.distcp")
# In a plan of a load: other ranks read the same files.
_SHARED = "several ranks read what this one reads"
_SAVE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class SavePrefix(_stock._StoragePrefix):  # type: ignore[misc,unused-ignore]
    """What the coordinator tells each rank: how its files begin and end, and whose they are."""

    generation: int = 0
    save_id: str = ""

    def file_name(self, number: int) -> str:
        middle = ".g%d" % self.generation if self.generation else ""
        return "%s%d%s%s" % (self.prefix, number, middle, _stock.DEFAULT_SUFFIX)

    def __reduce__(self) -> Any:
        return _arrive, (self.prefix, self.generation, self.save_id)


# What the coordinator told this thread's rank last. A planner that keeps plans goes on with the plan
# of an earlier save, and with that save's prefix.
_told = threading.local()


def _arrive(prefix: str, generation: int, save_id: str) -> SavePrefix:
    _told.prefix = SavePrefix(prefix, generation, save_id)
    return SavePrefix(prefix, generation, save_id)


class FileSystemWriter(_StockWriter):  # type: ignore[misc]
    """PyTorch's FileSystemWriter, over this library; arguments are the same, and one is new.

    page_cache: what becomes of the pages that the files have in the page cache. "any" is what is
    written fastest: large files go around the cache, so that a save, for which training waits, is
    short and takes no memory from data that is cached. A load at once after it, on the same machine,
    reads the disk then, and may take longer than of files of PyTorch's, which stay in the cache.
    "kept" makes such a load fast, "dropped" leaves the memory to others, and "auto" is one of these
    two, by how much memory is free.
    """

    # Of writers that come from elsewhere without one.
    page_cache = "any"

    def __init__(self, *args: Any, page_cache: str = "any", **kwargs: Any) -> None:
        page_cache_number(page_cache)
        super().__init__(*args, **kwargs)
        self.page_cache = page_cache
        self.save_id = make_save_id()
        self._earlier: List[str] = []

    def reset(self, checkpoint_id: Any = None) -> None:
        super().reset(checkpoint_id)
        self.save_id = make_save_id()
        self._earlier = []

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        _told.prefix = None
        plan = super().prepare_local_plan(plan)
        if isinstance(plan.storage_data, _stock._StoragePrefix):
            plan = replace(plan, storage_data=self._own_prefix(plan.storage_data))
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        plans = super().prepare_global_plan(plans)
        plans = [replace(plan, storage_data=self._own_prefix(plan.storage_data)) for plan in plans]
        if len(plans) == 1:
            _told.prefix = plans[0].storage_data
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[List[WriteResult]]":
        prefix = getattr(_told, "prefix", None) or plan.storage_data
        if not isinstance(prefix, SavePrefix) or not self._is_ours():
            return cast("Future[List[WriteResult]]", super().write_data(plan, planner))
        buckets = (
            _stock._split_by_size_and_type(self.thread_count, plan.items)
            if self.single_file_per_rank
            else [[item] for item in plan.items]
        )
        files = [(prefix.file_name(i), bucket) for i, bucket in enumerate(buckets)]

        def write(file: Tuple[str, List[WriteItem]]) -> List[WriteResult]:
            return self._write_file(file[0], file[1], planner, prefix.save_id)

        with ThreadPoolExecutor(max(self.thread_count, 1)) as pool:
            results = [result for part in pool.map(write, files) for result in part]
        future: "Future[List[WriteResult]]" = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        if not self._is_ours():
            super().finish(metadata, results)
            return
        metadata.version = _stock.CURRENT_DCP_VERSION
        metadata.storage_data = {
            result.index: result.storage_data for part in results for result in part
        }
        metadata.storage_meta = self.storage_meta()
        alone = not self.use_collectives and self.rank is not None
        place = Path(self._get_metadata_path(self.rank if alone else None))
        temporary = place.with_name(place.name + ".tmp")
        pickled = pickle.dumps(metadata)
        with open(temporary, "wb") as file:
            file.write(pickled)
            if self.sync_files:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, place)
        if self.sync_files:
            _sync_directory(place.parent)
        self._remove_earlier({info.relative_path for info in metadata.storage_data.values()})
        if len(results) > 1 and type(self) is FileSystemWriter:
            SentMetadata.make(metadata, pickled)

    def _is_ours(self) -> bool:
        return (
            type(self.fs) is _stock.FileSystem
            and not self.transforms.extensions
            and self.serialization_format == _stock.SerializationFormat.TORCH_SAVE
        )

    def _own_prefix(self, stock: Any) -> Any:
        """The prefix with a generation that no file in the directory has."""
        if isinstance(stock, SavePrefix) or not self._is_ours():
            return stock
        alone = not self.use_collectives and self.rank is not None
        generation = 0
        self._earlier = []
        for name in os.listdir(self.path):
            shard = _SHARD.fullmatch(name)
            if shard and (not alone or int(shard[1]) == self.rank):
                self._earlier.append(name)
                generation = max(generation, int(shard[2] or 0) + 1)
        return SavePrefix(stock.prefix, generation, self.save_id)

    def _remove_earlier(self, named: Set[str]) -> None:
        """Files that were there before the save, when nothing names them any more."""
        for name in self._earlier:
            if name not in named:
                (Path(self.path) / name).unlink(missing_ok=True)
        self._earlier = []

    def _write_file(
        self, file: str, items: List[WriteItem], planner: SavePlanner, save_id: str
    ) -> List[WriteResult]:
        try:
            with ShardWriter(
                Path(self.path), file, save_id, self.sync_files, page_cache_of(self)
            ) as shard:
                shard.add(*_describe(items, planner))
                locations = shard.seal()
        except (Elsewhere, UnsupportedError):
            return self._write_stock(file, items, planner)
        return [
            WriteResult(
                index=item.index,
                size_in_bytes=place.length,
                storage_data=_stock._StorageInfo(file, place.offset, place.length),
            )
            for item, place in zip(items, locations)
        ]

    def _write_stock(
        self, file: str, items: List[WriteItem], planner: SavePlanner
    ) -> List[WriteResult]:
        """One file, written by PyTorch."""
        files: "queue.Queue[Any]" = queue.Queue()
        results: "queue.Queue[List[WriteResult]]" = queue.Queue()
        files.put((self.fs.concat_path(self.path, file), file, items))
        _stock._write_files_from_queue(
            create_stream=self.fs.create_stream,
            file_queue=files,
            result_queue=results,
            planner=planner,
            transforms=self.transforms,
            inflight_threshhold=self.per_thread_copy_ahead,
            use_fsync=self.sync_files,
            thread_count=self.thread_count,
            serialization_format=self.serialization_format,
        )
        return results.get_nowait()


def page_cache_of(writer: Any) -> int:
    """What a writer, which may be PyTorch's own, says of the page cache, as the library's number."""
    return page_cache_number(getattr(writer, "page_cache", "any"))


@torch.no_grad()  # a DTensor gives its local tensor much faster
def _describe(items: List[WriteItem], planner: SavePlanner) -> Tuple[bytes, List[Any]]:
    """The items of a file, packed, and what that points to. Elsewhere: not for this library."""
    describer = Describer(1, False)
    describer.parts.append(_COUNT.pack(b"[", 2 * len(items)))
    for item in items:
        data: Any = planner.resolve_data(item)
        describer.put_name(item.index.fqn)
        if item.type == WriteItemType.BYTE_IO:
            stream = data.getvalue()
            describer.parts.append(_COUNT.pack(b"b", len(stream)))
            describer.parts.append(stream)
            continue
        memory, number = describer.memory(_plain(data))
        described = item.tensor_data
        if described is None or tuple(described.chunk.sizes) != memory.shape:
            raise Elsewhere("a tensor that is not of its item's sizes")
        describer.put_chunk(described.size, described.chunk.offsets, memory, number)
    return b"".join(describer.parts), describer.held


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor whose class may be another. Elsewhere: it has none of its own."""
    if type(tensor) is torch.Tensor:
        return tensor
    check_memory(tensor)
    plain = tensor.detach().as_subclass(torch.Tensor)
    if plain.numel() and not plain.data_ptr():
        raise Elsewhere("a tensor of class %s" % type(tensor).__name__)
    return plain


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Lazy:
    """A checkpoint that is opened when something is read of it one by one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: Optional[Checkpoint] = None

    def get(self) -> Checkpoint:
        if self._opened is None:
            self._opened = open_checkpoint(self._path)
        return self._opened

    def __enter__(self) -> "_Lazy":
        return self

    def __exit__(self, *error: object) -> None:
        if self._opened is not None:
            self._opened.close()


class FileSystemReader(_StockReader):  # type: ignore[misc]
    """PyTorch's FileSystemReader, over this library; arguments are the same."""

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)
        self._stored: Dict[str, Any] = metadata.state_dict_metadata
        self._is_known = all(_is_known(name, stored) for name, stored in self._stored.items())

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        prepared: List[LoadPlan] = super().prepare_global_plan(plans)
        if not _most_is_shared(prepared):
            return prepared
        return [
            replace(plan, storage_data=_SHARED) if plan.storage_data is None else plan
            for plan in prepared
        ]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        if not self._is_ours(plan):
            return cast("Future[None]", super().read_data(plan, planner))
        tensors: List[Tuple[ReadItem, torch.Tensor]] = []
        with _Lazy(Path(self.path)) as checkpoint, torch.no_grad():
            for item in plan.items:
                if item.type == LoadItemType.BYTE_IO:
                    stream = checkpoint.get().stream(item.storage_index.fqn)
                    planner.load_bytes(item, io.BytesIO(stream))
                else:
                    tensors.append((item, planner.resolve_tensor(item).detach()))
            # Once for all ranks of a host, instead of by each of them around the page cache.
            is_shared = isinstance(plan.storage_data, str) and plan.storage_data == _SHARED
            self._read_tensors(checkpoint, tensors, _IO_BUFFERED if is_shared else _IO_AUTO)
        for item, target in tensors:
            planner.commit_tensor(item, target)
        future: "Future[None]" = Future()
        future.set_result(None)
        return future

    def _is_ours(self, plan: LoadPlan) -> bool:
        if type(self.fs) is not _stock.FileSystem or not self.use_collectives:
            return False
        if not self._is_known:
            return False
        if type(self)._slice_file is not _StockReader._slice_file:
            return False
        if not any([info.transform_descriptors for info in self.storage_data.values()]):
            return True
        for item in plan.items:
            transforms = self.storage_data[item.storage_index].transform_descriptors or ()
            if any(name != "stream.zstd" for name in transforms):
                return False
        return True

    def _read_tensors(
        self, checkpoint: _Lazy, tensors: List[Tuple[ReadItem, torch.Tensor]], io_ways: int
    ) -> None:
        """All that can be read in place, at once; the rest one by one."""
        describer = Describer(1, True)
        chunks: Dict[str, List[Tuple[Tuple[int, ...], torch.Tensor, int]]] = {}
        others: List[Tuple[str, Tuple[int, ...], torch.Tensor]] = []
        for item, target in tensors:
            name = item.storage_index.fqn
            offsets = _box_of(item, target)
            try:
                if self._stored[name].properties.dtype is not target.dtype:
                    raise Elsewhere("another dtype")
                memory = describer.memory(target)
                chunks.setdefault(name, []).append((offsets, *memory))
            except Elsewhere:
                check_memory(target)
                others.append((name, offsets, target))
        if not self._fill(describer, chunks, io_ways):
            others += [(name, *part[:2]) for name, parts in chunks.items() for part in parts]
        for name, offsets, target in others:
            target.copy_(_read(checkpoint.get()[name], offsets, tuple(target.shape)))

    def _fill(
        self,
        describer: Describer,
        chunks: Dict[str, List[Tuple[Tuple[int, ...], torch.Tensor, int]]],
        io_ways: int,
    ) -> bool:
        """Whether the chunks could be filled where they are."""
        describer.parts.append(_COUNT.pack(b"{", len(chunks)))
        try:
            for name, parts in chunks.items():
                describer.put_name(name)
                describer.put_chunks(self._stored[name].size, False, parts)
            if chunks:
                load_described(b"".join(describer.parts), describer.held, self.path, io_ways)
        except (Elsewhere, MismatchError):
            return False
        return True


def _most_is_shared(plans: List[LoadPlan]) -> bool:
    """Whether most elements that the ranks want are of stored chunks that several of them read."""
    if len(plans) == 1:
        return False
    ranks: Dict[Tuple[str, Any], int] = {}  # of each chunk; -1: several
    wanted: Dict[Tuple[str, Any], int] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            chunk = item.storage_index.fqn, item.storage_index.offset
            if ranks.setdefault(chunk, rank) != rank:
                ranks[chunk] = -1
            wanted[chunk] = wanted.get(chunk, 0) + math.prod(item.lengths)
    shared = sum(elements for chunk, elements in wanted.items() if ranks[chunk] < 0)
    return 2 * shared > sum(wanted.values())


def _is_known(name: str, stored: Any) -> bool:
    """Whether the library has words for an entry; it reads no checkpoint with others."""
    if "\0" in name or not name.isascii() and not is_text(name):
        return False
    if not isinstance(stored, TensorStorageMetadata):
        return True
    return stored.properties.dtype in STORED_DTYPES and len(stored.size) <= NDIM_MOST


def _box_of(item: ReadItem, target: torch.Tensor) -> Tuple[int, ...]:
    """Where the box that is wanted begins in the whole tensor."""
    index: MetadataIndex = item.storage_index
    if target.shape != tuple(item.lengths):
        raise AssertionError(f"req {index} mismatch sizes {target.size()} vs {item.lengths}")
    if index.offset is None:
        return tuple(item.storage_offsets)
    return tuple(map(operator.add, index.offset, item.storage_offsets))


def _read(stored: Tensor, offsets: Tuple[int, ...], sizes: Tuple[int, ...]) -> torch.Tensor:
    index = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes))
    elements = torch.empty(sizes, dtype=getattr(torch, stored.dtype))
    raw = stored.read(index, raw=True)
    flat = elements.flatten().view(torch.uint8) if sizes else elements.view(1).view(torch.uint8)
    if raw.nbytes:
        flat.copy_(torch.frombuffer(bytearray(raw.tobytes()), dtype=torch.uint8))
    return elements
