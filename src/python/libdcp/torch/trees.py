# SPDX-License-Identifier: BSD-3-Clause
"""State dicts of PyTorch, described for the library."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from .. import _dtypes
from .._values import Packer, has_memory, lies_in_storage

NUMBERS: Dict[torch.dtype, int] = {
    getattr(torch, kind.name): kind.number
    for kind in _dtypes._KINDS
    if kind.number < 40 and hasattr(torch, kind.name)
}
#: Those that the library knows in a checkpoint.
STORED_DTYPES = frozenset(
    getattr(torch, kind.name) for kind in _dtypes._KINDS if hasattr(torch, kind.name)
)
NDIM_MOST = 64
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))
_KINDS: Dict[type, int] = {Replicate: 0, Shard: 1, _StridedShard: 2}
_COUNT = struct.Struct("<cQ")
_MESH_HEAD = struct.Struct("<cBBBB")


class Elsewhere(Exception):
    """Something is not for this library; PyTorch's own way is taken. Its text says what."""


class _Forms:
    """Forms of tensors by their number of dimensions."""

    def __init__(self, ndim: int) -> None:
        self.zeros = (0,) * ndim
        # kind, dtype, ndim, requires_grad, sharded, chunks; shape; device; address; the chunk
        self.tensor = struct.Struct("<cBBBBQ%dqQqQQ%dq" % (ndim, 3 * ndim))
        self.mesh = struct.Struct("<%dqQqQQ%dq" % (ndim, 2 * ndim))
        self.head = struct.Struct("<cBBBBQ%dq" % ndim)
        self.chunk = struct.Struct("<QqQQ%dq" % (3 * ndim))


_forms: List[_Forms] = [_Forms(ndim) for ndim in range(NDIM_MOST + 1)]


def check_memory(tensor: torch.Tensor) -> None:
    """ValueError: not all elements of a dense tensor in host memory lie in its storage, which may
    have been freed or shrunk. PyTorch would read and write beyond it."""
    if type(tensor) in _TENSORS:
        if _is_dense(tensor) and not has_memory(tensor):
            raise _beyond(tensor)
    elif isinstance(tensor, ShardedTensor):
        for shard in tensor.local_shards():
            check_memory(shard.tensor)
    else:
        with torch._C.DisableTorchFunctionSubclass():
            if _is_dense(tensor) and not (has_memory(tensor) or _is_wrapper(tensor)):
                raise _beyond(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor has elements that lie in host memory by strides."""
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.numel() > 0


def _beyond(tensor: torch.Tensor) -> ValueError:
    return ValueError(
        "a tensor of %s does not lie in its storage, which was freed or cut to %d bytes"
        % (tuple(tensor.shape), tensor.untyped_storage().nbytes())
    )


def _is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor of another class has its elements in tensors of its own, which are checked."""
    if tensor.data_ptr():
        return False
    if hasattr(tensor, "__tensor_flatten__"):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    elif lies_in_storage(tensor):  # a storage that was freed has no bytes
        parts = list(vars(tensor).values())
    else:
        return False
    for part in parts:
        if isinstance(part, torch.Tensor):
            check_memory(part)
    return True


def check_state(state: Any) -> None:
    """As check_memory, for all tensors in dicts, lists and tuples."""
    if isinstance(state, torch.Tensor):
        check_memory(state)
    elif isinstance(state, Mapping):
        for part in state.values():
            check_state(part)
    elif isinstance(state, (list, tuple)):
        for part in state:
            check_state(part)


def _is_place(tensor: torch.Tensor) -> bool:
    """Whether elements can be read straight into a tensor: they share no memory, and nest."""
    if tensor.is_contiguous():
        return True
    dense = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride < dense:
            return False
        dense = stride * size if size > 1 else dense
    return True


class Describer:
    """What saving and loading do alike. ``held`` keeps the memory that is described."""

    def __init__(self, ranks: int, writable: bool) -> None:
        self.parts: List[bytes] = []
        self.held: List[Any] = []
        self._ranks = ranks
        self._writable = writable
        self._meshes: Dict[Any, Optional[Tuple[int, bytes]]] = {}
        self._packer = Packer(writable)
        self._packer.parts = self.parts

    def put_name(self, name: str) -> None:
        try:
            encoded = name.encode("utf-8")
        except UnicodeEncodeError:
            raise Elsewhere("a name that is no text") from None
        self.parts.append(_COUNT.pack(b"s", len(encoded)))
        self.parts.append(encoded)

    def put_tensor(self, value: Any) -> bool:
        """Describes a tensor; False: this rank holds nothing of it."""
        kind = type(value)
        if kind is DTensor:
            return self._put_distributed(value)
        if kind is ShardedTensor:
            return self._put_sharded(value)
        self._put_whole(value, *self.memory(value))
        return True

    def memory(self, tensor: torch.Tensor) -> Tuple[torch.Tensor, int]:
        """A dense tensor in host memory with the elements, and the library's number of its dtype.

        ValueError: its memory was freed, or is smaller than it.
        """
        if type(tensor) not in _TENSORS:
            check_memory(tensor)
            raise Elsewhere("a tensor of class %s" % type(tensor).__name__)
        number = NUMBERS.get(tensor.dtype)
        if number is None or tensor.layout is not torch.strided:
            raise Elsewhere("a tensor of %s, %s" % (tensor.dtype, tensor.layout))
        if not tensor.is_cpu:
            raise Elsewhere("a tensor on %s" % tensor.device.type)
        if tensor.dim() > NDIM_MOST:
            raise Elsewhere("a tensor of %d dimensions" % tensor.dim())
        if tensor.numel() and not has_memory(tensor):
            raise _beyond(tensor)
        if tensor.is_conj() or tensor.is_neg():
            if self._writable:
                raise Elsewhere("a view that conjugates or negates")
            tensor = tensor.detach().resolve_conj().resolve_neg()
        if self._writable and not _is_place(tensor):
            raise Elsewhere("a tensor whose elements share memory")
        return tensor, number

    def _put_whole(self, value: Any, memory: torch.Tensor, number: int) -> None:
        shape = memory.shape
        form = _forms[len(shape)]
        self.held.append(memory)
        self.parts.append(
            form.tensor.pack(
                b"t", number, len(shape), value.requires_grad, False, 1, *shape,
                0, 0, 0, memory.data_ptr(), *form.zeros, *shape, *memory.stride(),
            )  # fmt: skip
        )

    def _put_distributed(self, value: Any) -> bool:
        spec = value._spec
        memory, number = self.memory(value._local_tensor)
        key = (spec.mesh, spec.placements)
        if key not in self._meshes:
            self._meshes[key] = self._describe_mesh(spec.mesh, spec.placements)
        mesh = self._meshes[key]
        if mesh is None:
            return False
        shape, local = value.shape, memory.shape
        ndim = len(shape)
        if len(local) != ndim:
            raise Elsewhere("a DTensor whose chunk has other dimensions")
        if not mesh[1]:
            sizes, offsets = compute_local_shape_and_global_offset(
                shape, spec.mesh, spec.placements
            )
            if tuple(sizes) != tuple(local):
                raise Elsewhere("a DTensor whose chunk is of another size")
            self.put_chunks(shape, value.requires_grad, [(offsets, memory, number)])
            return True
        self.held.append(memory)
        self.parts.append(
            _MESH_HEAD.pack(b"m", number, ndim, value.requires_grad, mesh[0])
            + mesh[1]
            + _forms[ndim].mesh.pack(*shape, 0, 0, 0, memory.data_ptr(), *local, *memory.stride())
        )
        return True

    def _describe_mesh(self, mesh: Any, placements: Any) -> Optional[Tuple[int, bytes]]:
        """Dimensions and description; the latter is empty where offsets are to be computed here."""
        coordinates = mesh.get_coordinate()
        if coordinates is None:
            return None
        numbers: List[int] = []
        for placement in placements:
            kind = _KINDS.get(type(placement))
            if kind is None:
                raise Elsewhere("a placement of class %s" % type(placement).__name__)
            numbers += [kind, placement.dim if kind else 0, placement.split_factor if kind == 2 else 0]
        shape = tuple(mesh.shape)
        if mesh.size() > self._ranks:
            return len(shape), b""
        rank = 0
        for size, coordinate in zip(shape, coordinates):
            rank = rank * size + coordinate
        return len(shape), struct.pack(
            "<%dq" % (1 + len(shape) + len(numbers)), rank, *shape, *numbers
        )

    def _put_sharded(self, value: Any) -> bool:
        whole = value.metadata()
        chunks = []
        for shard in value.local_shards():
            memory, number = self.memory(shard.tensor)
            if tuple(memory.shape) != tuple(shard.metadata.shard_sizes):
                raise Elsewhere("a ShardedTensor whose chunk is of another size")
            chunks.append((shard.metadata.shard_offsets, memory, number))
        if chunks:
            self.put_chunks(whole.size, whole.tensor_properties.requires_grad, chunks)
        return bool(chunks)

    def put_chunk(self, shape: Any, offsets: Any, memory: torch.Tensor, number: int) -> None:
        """One chunk of a tensor of this shape."""
        sizes = memory.shape
        self.held.append(memory)
        self.parts.append(
            _forms[len(sizes)].tensor.pack(
                b"t", number, len(sizes), False, True, 1, *shape,
                0, 0, 0, memory.data_ptr(), *offsets, *sizes, *memory.stride(),
            )  # fmt: skip
        )

    def put_chunks(self, shape: Any, requires_grad: bool, chunks: List[Tuple[Any, Any, int]]) -> None:
        form = _forms[len(shape)]
        number = chunks[0][2]
        self.parts.append(
            form.head.pack(b"t", number, len(shape), requires_grad, True, len(chunks), *shape)
        )
        for offsets, memory, _ in chunks:
            self.held.append(memory)
            self.parts.append(
                form.chunk.pack(
                    0, 0, 0, memory.data_ptr(), *offsets, *memory.shape, *memory.stride()
                )
            )


def is_tensor(value: Any) -> bool:
    """Whether a value is saved by its chunks. Elsewhere: it says itself what is saved of it."""
    if isinstance(value, torch.Tensor) or type(value) is ShardedTensor:
        return True
    if hasattr(value, "__create_write_items__") or hasattr(value, "__create_chunk_list__"):
        raise Elsewhere("an object of class %s" % type(value).__name__)
    return False


def is_one_object(values: List[Any]) -> bool:
    """Whether a list is one object: there are neither tensors nor dicts in it, nor in its lists."""
    for value in values:
        if isinstance(value, (torch.Tensor, Mapping)):
            return False
        if isinstance(value, list) and not is_one_object(value):
            return False
    return True


class SaveDescriber(Describer):
    """Describes what is to be saved, nested as it is, with PyTorch's rules for what is an entry."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks, False)

    def put_state(self, state: Any, flatten: bool) -> None:
        count = len(self.parts)
        self.parts.append(b"")
        put = self._put_entry if flatten else self._put_value
        entries = sum([self._put_named(name, value, put) for name, value in state.items()])
        self.parts[count] = _COUNT.pack(b"{", entries)

    def _put_named(self, name: Any, value: Any, put: Callable[[Any], bool]) -> bool:
        """False: there is nothing to save under the name."""
        before = len(self.parts)
        self.put_name(str(name))
        if put(value):
            return True
        del self.parts[before:]
        return False

    def _put_entry(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            at = len(self.parts)
            self.parts.append(b"")
            entries = sum(
                [self._put_named(name, part, self._put_entry) for name, part in value.items()]
            )
            self.parts[at] = _COUNT.pack(b"{", entries)
            return entries > 0
        if isinstance(value, list) and not is_one_object(value):
            self.parts.append(_COUNT.pack(b"[", len(value)))
            if not all([self._put_entry(part) for part in value]):
                raise Elsewhere("a list of which this rank holds only a part")
            return True
        return self._put_value(value)

    def _put_value(self, value: Any) -> bool:
        if is_tensor(value):
            return self.put_tensor(value)
        if self._is_plain(value):
            self._packer.put(value)
        else:
            stream = io.BytesIO()
            torch.save(value, stream)
            encoded = stream.getvalue()
            self.parts.append(_COUNT.pack(b"o", len(encoded)))
            self.parts.append(encoded)
        return True

    @staticmethod
    def _is_plain(value: Any) -> bool:
        """Whether the library encodes a value as torch.save does: nothing in it can be shared."""
        kind = type(value)
        if kind is list or kind is tuple:
            return all(type(part) in _SCALARS and is_text(part) for part in value)
        return kind in _SCALARS and is_text(value)


def is_text(value: Any) -> bool:
    """Whether a value is no str with lone surrogates, which UTF-8 has not."""
    return type(value) is not str or value.isascii() or not _has_surrogates(value)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


class LoadDescriber(Describer):
    """Describes what is wanted, by flattened names. ``objects`` says where each object belongs."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks, True)
        self.objects: Dict[str, Tuple[Any, Any]] = {}
        self._names: Dict[str, None] = {}

    def put_state(self, state: Any, flatten: bool) -> None:
        self.parts.append(b"")
        for name, value in state.items():
            if flatten:
                self._put_entry(str(name), value, state, name)
            else:
                self._put_value(str(name), value, state, name)
        self.parts[0] = _COUNT.pack(b"{", len(self._names))

    def _put_entry(self, name: str, value: Any, parent: Any, key: Any) -> None:
        if isinstance(value, Mapping):
            for part in value:
                self._put_entry("%s.%s" % (name, part), value[part], value, part)
        elif isinstance(value, list) and not is_one_object(value):
            for position, part in enumerate(value):
                self._put_entry("%s.%d" % (name, position), part, value, position)
        else:
            self._put_value(name, value, parent, key)

    def _put_value(self, name: str, value: Any, parent: Any, key: Any) -> None:
        if name in self._names:
            raise ValueError("duplicated flatten key %s" % name)
        before = len(self.parts)
        self.put_name(name)
        if is_tensor(value):
            if not self.put_tensor(value):
                del self.parts[before:]
                return
        else:
            self.parts.append(b"N")
            self.objects[name] = (parent, key)
        self._names[name] = None
