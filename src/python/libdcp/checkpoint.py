# SPDX-License-Identifier: BSD-3-Clause
"""Looking into a checkpoint and reading parts of it."""

from __future__ import annotations

import ctypes
import os
import threading
from types import TracebackType
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
)

import numpy as np

from . import _dtypes
from . import _structs as structs
from ._library import check, lib, path_bytes, release_with, texts, whole_number
from ._state import State, gather_bytes
from ._values import _Memory, mark_written

PathLike = Union[str, "os.PathLike[str]"]

_VERIFY_ALL = 0
_VERIFY_NONE = 2


class Chunk(NamedTuple):
    """A stored piece of a tensor: its box, and where its stream lies."""

    offsets: Tuple[int, ...]
    sizes: Tuple[int, ...]
    file: str
    offset: int
    length: int


class Info(NamedTuple):
    """What ``metadata.json`` says of the save that made a checkpoint; None where it says nothing."""

    step: Optional[int]
    unix_time: Optional[int]
    world_size: Optional[int]
    info: Optional[Dict[str, Any]]
    save_id: Optional[str]


class _Mapping:
    """A stored chunk in memory, until the last array that shows it is gone."""

    def __init__(self, handle: int, interface: Dict[str, Any]) -> None:
        self.__array_interface__ = interface
        self._end = release_with(self, lib.dcp_mapping_free, handle)


class Tensor:
    """A stored tensor, of which nothing is read before it is asked for.

    ``tensor[100:200, :]`` reads just that box; ``tensor[...]`` and ``numpy.asarray(tensor)`` read
    all of it. ``shape`` counts elements.
    """

    def __init__(self, checkpoint: "Checkpoint", index: int, entry: structs.dcp_entry) -> None:
        self._checkpoint = checkpoint
        self._index = index
        self._number = int(entry.dtype)
        self._chunk_count = int(entry.chunk_count)
        self.name: str = entry.name.decode("utf-8")
        self.shape: Tuple[int, ...] = tuple(entry.global_shape[: entry.ndim])
        self.nbytes: int = int(entry.bytes)

    @property
    def dtype(self) -> str:
        """PyTorch's name of the element type, such as "bfloat16"."""
        return _dtypes.name_of(self._number)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def chunks(self) -> List[Chunk]:
        """The stored pieces."""
        return [self._checkpoint._chunk(self._index, i, self.ndim) for i in range(self._chunk_count)]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return "<libdcp.Tensor %r: %s %s>" % (self.name, self.dtype, list(self.shape))

    def __getitem__(self, index: Any) -> "np.ndarray[Any, Any]":
        return self.read(index)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "np.ndarray[Any, Any]":
        if copy is False:
            raise ValueError("the elements are read from a file; map() shows them without a copy")
        elements = self.read()
        wanted: "np.dtype[Any]" = elements.dtype if dtype is None else np.dtype(dtype)
        made: "np.ndarray[Any, Any]" = elements.astype(wanted, copy=False)
        return made

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.read().__dlpack__(**arguments)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    def read(self, index: Any = ..., *, raw: bool = False) -> "np.ndarray[Any, Any]":
        """Reads a box: ints, slices and ``...``, as NumPy's basic indexing takes them.

        index: positions in elements, one for each dimension from the first on. The result is a new
        array of the box's shape, also if it has no dimensions. raw: unsigned integers of the
        elements' size, also of types that NumPy does not know.

        IndexError, TypeError: an index that is none. TypeError: NumPy has no such dtype.
        ValueError: the checkpoint is closed. FormatError: the bytes are not those that were saved.
        """
        kind = _dtypes.raw_dtype(self._number) if raw else _dtypes.numpy_dtype(self._number)
        offsets, sizes, rest = _box(index, self.shape)
        elements = np.empty(sizes, kind)
        strides = [stride // elements.itemsize for stride in elements.strides]
        self._read_into(offsets, sizes, strides, elements.__array_interface__["data"][0])
        box: "np.ndarray[Any, Any]" = np.asarray(elements[rest])
        return box

    def read_into(self, array: Any, offsets: Sequence[int] = ()) -> None:
        """Fills an array with the box of its shape that begins at ``offsets`` (default: zeros).

        array: NumPy's, PyTorch's in host memory, or any with DLPack, of the tensor's dtype and number
        of dimensions, with any strides. offsets: in
        elements. TypeError: another dtype, or a read-only array. ValueError: other dimensions, or
        the checkpoint is closed. MismatchError, ArgumentError: the box is not in the tensor.
        FormatError as for read().
        """
        memory = _Memory(array, writable=True)
        if memory.dtype != self._number:
            found = _dtypes.name_of(memory.dtype)
            raise TypeError("%s is %s, the array is %s" % (self.name, self.dtype, found))
        at = [whole_number(offset, "an offset", 64) for offset in offsets]
        try:
            self._read_into(at or (0,) * self.ndim, memory.sizes, memory.strides, memory.address)
        finally:
            mark_written([memory.held])

    def map(self, chunk: int = 0) -> "np.ndarray[Any, Any]":
        """Shows a stored chunk (the whole tensor if it is stored as one) without copying it.

        The array is read-only. Pages are read from the file when they are touched, and nothing is
        checked. chunk: its number in ``chunks``. UnsupportedError: the chunk is compressed or not
        stored as it is in memory. ArgumentError: there is no such chunk. ValueError: the checkpoint
        is closed.
        """
        kind = _dtypes.numpy_dtype(self._number)
        number = whole_number(chunk, "chunk", 64, signed=False)
        handle, mapped = ctypes.c_void_p(), structs.dcp_mapped_chunk()
        how = structs.dcp_read_options(verification=_VERIFY_NONE)
        with self._checkpoint._open() as checkpoint:
            check(
                lib.dcp_checkpoint_map_chunk_sized(
                    checkpoint,
                    self._index,
                    number,
                    ctypes.byref(how),
                    ctypes.sizeof(how),
                    ctypes.byref(handle),
                    ctypes.byref(mapped),
                    ctypes.sizeof(mapped),
                )
            )
        sizes = tuple(mapped.sizes[: self.ndim])
        if not mapped.data:
            lib.dcp_mapping_free(handle)
            return np.empty(sizes, kind)
        size = kind.itemsize
        shown = _Mapping(
            int(handle.value or 0),
            {
                "version": 3,
                "shape": sizes,
                "strides": tuple(stride * size for stride in mapped.strides[: self.ndim]),
                "typestr": "|V%d" % size if kind.kind == "V" else kind.str,
                "data": (mapped.data, True),
            },
        )
        array: "np.ndarray[Any, Any]" = np.asarray(shown)
        return array if array.dtype == kind else array.view(kind)

    def _read_into(
        self, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int], address: int
    ) -> None:
        """Reads a box. strides: in elements."""
        wanted = structs.dcp_tensor()
        wanted.dtype, wanted.ndim = self._number, self.ndim
        wanted.sharded = wanted.strided = True
        if len(sizes) != self.ndim or len(offsets) != self.ndim:
            raise ValueError(
                "%s has %d dimensions, the box has %d" % (self.name, self.ndim, len(sizes))
            )
        for i in range(self.ndim):
            wanted.global_shape[i] = self.shape[i]
            wanted.offsets[i] = offsets[i]
            wanted.sizes[i] = sizes[i]
            wanted.strides[i] = strides[i]
        wanted.data = address
        how = structs.dcp_read_options(verification=self._checkpoint._verification)
        with self._checkpoint._open() as checkpoint:
            check(
                lib.dcp_checkpoint_read_tensor_sized(
                    checkpoint,
                    self._index,
                    ctypes.byref(wanted),
                    ctypes.sizeof(wanted),
                    ctypes.byref(how),
                    ctypes.sizeof(how),
                )
            )


def _box(
    index: Any, shape: Sequence[int]
) -> Tuple[Tuple[int, ...], Tuple[int, ...], Tuple[Any, ...]]:
    """Offsets and sizes of the smallest box that an index lies in, and the index in that box."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("an index can have only one ellipsis")
    if Ellipsis in [part for part in parts if part is Ellipsis]:
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        missing = len(shape) - (len(parts) - 1)
        parts[at : at + 1] = [slice(None)] * max(missing, 0)
    if len(parts) > len(shape):
        raise IndexError("%d indices for %d dimensions" % (len(parts), len(shape)))
    parts += [slice(None)] * (len(shape) - len(parts))
    offsets: List[int] = []
    sizes: List[int] = []
    rest: List[Any] = []
    for part, size in zip(parts, shape):
        if isinstance(part, slice):
            positions = range(*part.indices(size))
            least = min(positions[0], positions[-1]) if positions else 0
            offsets.append(least)
            sizes.append(abs(positions[-1] - positions[0]) + 1 if positions else 0)
            rest.append(slice(None, None, part.step))
        else:
            try:
                if isinstance(part, (bool, np.bool_)):  # NumPy takes it for a mask
                    raise AttributeError
                position = part.__index__()
            except AttributeError:
                raise TypeError("an index is made of ints, slices and ..., not %r" % (part,)) from None
            if not -size <= position < size:
                raise IndexError("index %d for a dimension of %d" % (position, size))
            offsets.append(position % size)
            sizes.append(1)
            rest.append(0)
    return tuple(offsets), tuple(sizes), tuple(rest)


class _Opened:
    """Keeps a checkpoint from being closed by another thread while it is read."""

    def __init__(self, checkpoint: "Checkpoint") -> None:
        self._checkpoint = checkpoint

    def __enter__(self) -> int:
        with self._checkpoint._lock:
            if self._checkpoint._handle is None:
                raise ValueError("the checkpoint is closed")
            self._checkpoint._users += 1
            return self._checkpoint._handle

    def __exit__(self, *error: object) -> None:
        with self._checkpoint._lock:
            self._checkpoint._users -= 1
            self._checkpoint._lock.notify_all()


class Checkpoint(Mapping[str, Any]):
    """An open checkpoint: a mapping of flattened names, as ``open()`` gives it.

    ``checkpoint[name]`` is a :class:`Tensor`, or the value of an object, whose pickle is never
    executed. Any number of threads may read. It is a context manager; closed, it can be read no
    more, but arrays and mappings stay.
    """

    def __init__(self, handle: int, verify: bool) -> None:
        self._handle: Optional[int] = handle
        self._verification = _VERIFY_ALL if verify else _VERIFY_NONE
        self._lock = threading.Condition()
        self._users = 0
        count = int(lib.dcp_checkpoint_count(handle))
        self._entries = (structs.dcp_entry * count)()
        try:
            check(
                lib.dcp_checkpoint_entries_sized(
                    handle, 0, count, self._entries, ctypes.sizeof(structs.dcp_entry)
                )
            )
        except BaseException:
            lib.dcp_checkpoint_close(handle)
            raise
        self._indices: Dict[str, int] = {
            entry.name.decode("utf-8"): i for i, entry in enumerate(self._entries)
        }
        self._finalizer = release_with(self, lib.dcp_checkpoint_close, handle)

    def __getitem__(self, name: str) -> Any:
        index = self._indices[name]
        with self._open() as handle:
            if self._entries[index].is_tensor:
                return Tensor(self, index, self._entries[index])
            how = structs.dcp_read_options(verification=self._verification)
            with State() as state:
                check(
                    lib.dcp_checkpoint_read_object_sized(
                        handle,
                        index,
                        state.handle,
                        b"value",
                        ctypes.byref(how),
                        ctypes.sizeof(how),
                    )
                )
                return state.values(key=b"value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __contains__(self, name: object) -> bool:
        return name in self._indices

    def __repr__(self) -> str:
        return "<libdcp.Checkpoint of %d names%s>" % (
            len(self),
            "" if self._handle is not None else ", closed",
        )

    def tensors(self) -> Iterator[Tensor]:
        """The tensors in the order in which they lie in their files, the fastest to read them in."""
        found: List[Tuple[str, int, Tensor]] = []
        with self._open():
            for name, index in self._indices.items():
                if self._entries[index].is_tensor:
                    tensor = self[name]
                    first = tensor.chunks[0] if self._entries[index].chunk_count else None
                    found.append((first.file, first.offset, tensor) if first else ("", 0, tensor))
        found.sort(key=lambda place: place[:2])
        return (tensor for _, _, tensor in found)

    def path(self, name: str) -> Tuple[Union[str, int], ...]:
        """The keys and positions on the way to an entry in the state that was saved. KeyError."""
        with self._open():
            entry = self._entries[self._indices[name]]
            return tuple(
                part.position if part.key is None else part.key.decode("utf-8")
                for part in entry.path[: entry.path_length]
            )

    def stream(self, name: str, chunk: int = 0) -> bytes:
        """The bytes that torch.save has made of an object, or of a chunk of a tensor.

        chunk: its number in ``chunks``; 0 of an object. KeyError: there is no such name.
        FormatError: they are not those that were saved.
        """
        index = self._indices[name]
        number = whole_number(chunk, "chunk", 64, signed=False)
        how = structs.dcp_read_options(verification=self._verification)
        with self._open() as handle:
            return gather_bytes(
                lambda sink: int(
                    lib.dcp_checkpoint_read_stream_sized(
                        handle, index, number, sink, None, ctypes.byref(how), ctypes.sizeof(how)
                    )
                )
            )

    def info(self) -> Info:
        """Step, time and the caller's own fields, as ``metadata.json`` has them."""
        found = structs.dcp_save_info()
        with self._open() as handle, State() as state:
            check(
                lib.dcp_checkpoint_info_sized(
                    handle, state.handle, b"info", ctypes.byref(found), ctypes.sizeof(found)
                )
            )
            return Info(
                found.step if found.has_step else None,
                found.unix_time or None,
                found.world_size or None,
                state.values(key=b"info") if found.has_info else None,
                found.save_id.decode("utf-8") if found.save_id else None,
            )

    def close(self) -> None:
        """Waits for reads of other threads, and closes."""
        with self._lock:
            while self._users > 0:
                self._lock.wait()
            self._handle = None
            self._entries = (structs.dcp_entry * 0)()
        self._finalizer()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _open(self) -> _Opened:
        return _Opened(self)

    def _chunk(self, index: int, chunk: int, ndim: int) -> Chunk:
        stored = structs.dcp_stored_chunk()
        with self._open() as handle:
            check(
                lib.dcp_checkpoint_chunk_sized(
                    handle, index, chunk, ctypes.byref(stored), ctypes.sizeof(stored)
                )
            )
            return Chunk(
                tuple(stored.offsets[:ndim]),
                tuple(stored.sizes[:ndim]),
                stored.file.decode("utf-8", "surrogateescape"),
                stored.offset,
                stored.length,
            )


def _open_options(members: Sequence[PathLike]) -> structs.dcp_open_options:
    options = structs.dcp_open_options()
    options.members, options.member_count = texts(members, "members")
    return options


def open(path: PathLike, *, members: Sequence[PathLike] = (), verify: bool = True) -> Checkpoint:
    """Opens a checkpoint: reads and checks its metadata, not its data.

    path: a directory of DCP or safetensors files, or a ``.pt`` file. members: directories whose
    union is the checkpoint, such as pipeline stages. verify: checksums are checked of all that is
    read. NotFoundError: there is none. FormatError: it is damaged, or no checkpoint.
    """
    options = _open_options(members)
    handle = ctypes.c_void_p()
    check(
        lib.dcp_checkpoint_open_sized(
            path_bytes(path), ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)
        )
    )
    return Checkpoint(int(handle.value or 0), verify)
