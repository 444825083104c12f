# SPDX-License-Identifier: BSD-3-Clause
"""Values of Python and their description in dcp/packed.h, both ways."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple, Union

import numpy as np

from . import _dtypes
from ._dtypes import Dtype
from ._library import whole_number

_COUNT = struct.Struct("<cQ")
_INT = struct.Struct("<cq")
_FLOAT = struct.Struct("<cd")
_COMPLEX = struct.Struct("<cdd")
_TENSOR = struct.Struct("<cBBBBQ")
_U64 = struct.Struct("<Q")


class Size(Tuple[int, ...]):
    """A ``torch.Size`` among the values of a checkpoint."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "libdcp.Size(%s)" % tuple.__repr__(self)


class Device(str):
    """A ``torch.device`` among the values of a checkpoint: ``Device("cuda:0")``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "libdcp.Device(%r)" % str(self)


class Opaque:
    """An object of another class in a checkpoint. It is shown, never made.

    ``name`` is "module.name" of what its pickle would have called, ``children`` are the arguments
    and state that it would have been given.
    """

    __slots__ = ("name", "children")

    def __init__(self, name: str, children: Sequence[Any]) -> None:
        self.name = name
        self.children = tuple(children)

    def __repr__(self) -> str:
        return "libdcp.Opaque(%r, %r)" % (self.name, self.children)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return self.name == other.name and self.children == other.children

    __hash__ = None  # type: ignore[assignment]


class Sharded:
    """This rank's chunks of a tensor that several ranks hold.

    ``shape`` is the shape of the whole tensor, ``chunks`` are pairs of the offsets at which an
    array begins in it (one number for each dimension) and the array. A rank that holds nothing of
    the tensor gives one array without elements.
    """

    __slots__ = ("shape", "chunks")

    def __init__(
        self, shape: Sequence[int], chunks: Sequence[Tuple[Sequence[int], Any]]
    ) -> None:
        self.shape = tuple(whole_number(size, "a size", 64) for size in shape)
        self.chunks = [
            (tuple(whole_number(n, "an offset", 64) for n in offsets), array)
            for offsets, array in chunks
        ]
        if not self.chunks:
            raise ValueError("a sharded tensor needs a chunk, if only one without elements")
        for offsets, array in self.chunks:
            if len(offsets) != len(self.shape) or len(array.shape) != len(self.shape):
                raise ValueError("offsets, chunks and the whole need as many dimensions")


class _Memory:
    """Where an array lies: its element type, sizes and strides in elements, and address."""

    __slots__ = ("dtype", "sizes", "strides", "address", "held", "requires_grad")

    def __init__(self, array: Any, writable: bool) -> None:
        self.requires_grad = False
        if not isinstance(array, np.ndarray):
            if type(array).__module__.split(".")[0] == "torch":
                self._take_torch(array)
                return
            array = _by_dlpack(array, writable)
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError("a masked array cannot be saved; its data and its mask can")
        if writable and not array.flags.writeable:
            raise TypeError("the array is read-only and cannot be loaded into")
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            raise TypeError("the array's strides are no multiples of its elements; copy it first")
        self.dtype = _dtypes.number_of_numpy(array.dtype)
        self.sizes = array.shape
        self.strides = tuple(stride // size for stride in array.strides)
        self.address = int(array.__array_interface__["data"][0])
        self.held = array

    def _take_torch(self, tensor: Any) -> None:
        """A tensor of PyTorch, by its pointer."""
        if tensor.device.type != "cpu" or str(tensor.layout) != "torch.strided":
            raise TypeError("of PyTorch's tensors, dense ones in host memory can be used here")
        if tensor.is_conj() or tensor.is_neg():
            raise TypeError("a conjugated or negated view must be resolved first")
        self.dtype = _dtypes.number_of(str(tensor.dtype).split(".")[1])
        if tensor.numel() and not has_memory(tensor):
            raise TypeError(
                "the tensor has no memory of its own; of a DTensor, Sharded() takes to_local()"
            )
        self.sizes = tuple(tensor.shape)
        self.strides = tuple(tensor.stride())
        self.address = int(tensor.data_ptr())
        self.requires_grad = bool(tensor.requires_grad)
        self.held = tensor


def _by_dlpack(array: Any, writable: bool) -> "np.ndarray[Any, Any]":
    """What NumPy makes of an array of another package."""
    try:
        return np.from_dlpack(array)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        # NumPy takes no bfloat16 and float8 by DLPack. What it converts may be a copy.
        if writable or not hasattr(array, "__array__"):
            raise TypeError("a %s: %s" % (type(array).__qualname__, error)) from error
    return np.asarray(array)


def mark_written(arrays: Iterable[Any]) -> None:
    """Tells PyTorch that tensors were written, of which it may need the earlier values."""
    torch: Any = sys.modules.get("torch")
    mark: Any = getattr(torch.autograd.graph, "increment_version", None) if torch else None
    if mark is None:  # no PyTorch, or one before 2.1
        return
    for array in arrays:
        if isinstance(array, torch.Tensor):
            mark(array)


def has_memory(tensor: Any) -> bool:
    """Whether a tensor of PyTorch with elements has memory of its own, with all of them in it."""
    return bool(tensor.data_ptr()) and lies_in_storage(tensor)


def lies_in_storage(tensor: Any) -> bool:
    """Whether the storage of a tensor of PyTorch with elements, which may have shrunk, has the bytes
    of all of them."""
    count = tensor.numel()
    if not tensor.is_contiguous():
        count = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    end = (tensor.storage_offset() + count) * tensor.element_size()
    return bool(end <= tensor.untyped_storage().nbytes())


def is_tensor(value: Any) -> bool:
    """Whether a value is saved as a tensor, and loaded in place."""
    return (
        isinstance(value, (np.ndarray, Sharded))
        or hasattr(value, "__dlpack__")
        and not isinstance(value, np.generic)
    )


class Packer:
    """Describes a state. ``held`` keeps the memory that the description points to."""

    def __init__(self, writable: bool) -> None:
        self.parts: List[bytes] = []
        self.held: List[Any] = []
        self._writable = writable
        self._put: Dict[type, Callable[[Any], None]] = {
            type(None): lambda value: self.parts.append(b"N"),
            bool: lambda value: self.parts.append(b"1" if value else b"0"),
            int: self._put_int,
            float: lambda value: self.parts.append(_FLOAT.pack(b"f", value)),
            complex: lambda value: self.parts.append(
                _COMPLEX.pack(b"c", value.real, value.imag)
            ),
            str: lambda value: self._put_bytes(b"s", value.encode("utf-8")),
            bytes: lambda value: self._put_bytes(b"b", value),
            bytearray: lambda value: self._put_bytes(b"B", bytes(value)),
            Device: lambda value: self._put_bytes(b"V", value.encode("utf-8")),
            Dtype: lambda value: self.parts.append(
                b"D%c" % _dtypes.number_of(str.__str__(value))
            ),
            Size: self._put_size,
            list: lambda value: self._put_sequence(b"[", value),
            tuple: lambda value: self._put_sequence(b"(", value),
            dict: lambda value: self._put_dict(b"{", value),
            OrderedDict: lambda value: self._put_dict(b"O", value),
            set: lambda value: self._put_sequence(b"S", list(value)),
            frozenset: lambda value: self._put_sequence(b"F", list(value)),
            Sharded: self._put_sharded,
        }

    def put(self, value: Any) -> None:
        put = self._put.get(type(value))
        if put is not None:
            put(value)
        elif is_tensor(value):
            self._put_tensor(value)
        else:
            raise TypeError(_refusal(value))

    def described(self) -> bytes:
        return b"".join(self.parts)

    def _put_bytes(self, kind: bytes, value: bytes) -> None:
        self.parts.append(_COUNT.pack(kind, len(value)))
        self.parts.append(value)

    def _put_int(self, value: int) -> None:
        if -(2**63) <= value < 2**63:
            self.parts.append(_INT.pack(b"i", value))
        else:
            self._put_bytes(b"I", _digits_of(value))

    def _put_size(self, value: Size) -> None:
        self.parts.append(_COUNT.pack(b"Z", len(value)))
        sizes = [whole_number(size, "a size", 64) for size in value]
        self.parts.append(struct.pack("<%dq" % len(value), *sizes))

    def _put_sequence(self, kind: bytes, values: Sequence[Any]) -> None:
        self.parts.append(_COUNT.pack(kind, len(values)))
        for position, value in enumerate(values):
            self._put_child(position, value)

    def _put_dict(self, kind: bytes, values: Dict[Any, Any]) -> None:
        self.parts.append(_COUNT.pack(kind, len(values)))
        for key, value in values.items():
            self.put(key)
            self._put_child(key, value)

    def _put_child(self, key: Any, value: Any) -> None:
        try:
            self.put(value)
        except TypeError as error:
            raise TypeError("[%r]%s%s" % (key, _joint(error), error)) from None

    def _put_tensor(self, value: Any) -> None:
        memory = _Memory(value, self._writable)
        self._put_head(memory, memory.sizes, False, 1)
        self._put_chunk(memory, (0,) * len(memory.sizes))

    def _put_sharded(self, value: Sharded) -> None:
        memories = [_Memory(array, self._writable) for _, array in value.chunks]
        if any(memory.dtype != memories[0].dtype for memory in memories):
            raise TypeError("the chunks of one tensor have several dtypes")
        self._put_head(memories[0], value.shape, True, len(memories))
        for memory, (offsets, _) in zip(memories, value.chunks):
            self._put_chunk(memory, offsets)

    def _put_head(
        self, memory: _Memory, shape: Sequence[int], sharded: bool, chunks: int
    ) -> None:
        self.parts.append(
            _TENSOR.pack(b"t", memory.dtype, len(shape), memory.requires_grad, sharded, chunks)
        )
        self.parts.append(struct.pack("<%dq" % len(shape), *shape))

    def _put_chunk(self, memory: _Memory, offsets: Sequence[int]) -> None:
        self.held.append(memory.held)
        self.parts.append(
            struct.pack(
                "<QqQQ%dq" % (3 * len(offsets)),
                0,
                0,
                0,
                memory.address,
                *offsets,
                *memory.sizes,
                *memory.strides,
            )
        )


def _joint(error: TypeError) -> str:
    return "" if str(error).startswith("[") else ": "


def _refusal(value: Any) -> str:
    kind = type(value)
    name = "%s.%s" % (kind.__module__, kind.__qualname__)
    if isinstance(value, np.generic):
        return "a NumPy scalar (%s) cannot be saved; use .item(), or np.asarray() for a tensor" % (
            name
        )
    return "a value of type %s cannot be saved" % name


#: Makes something of a tensor inside of an object: dtype, shape, address, strides.
TensorMaker = Callable[[int, Tuple[int, ...], int, Tuple[int, ...]], Any]


class Unpacker:
    """Makes the values that a description describes."""

    def __init__(self, data: bytes, make_tensor: TensorMaker) -> None:
        self._data = data
        self._at = 0
        self._make_tensor = make_tensor
        self._take: Dict[int, Callable[[], Any]] = {
            ord("N"): lambda: None,
            ord("0"): lambda: False,
            ord("1"): lambda: True,
            ord("i"): lambda: self._take_numbers("<q", 8)[0],
            ord("I"): lambda: _int_of(self._take_bytes()),
            ord("f"): lambda: self._take_numbers("<d", 8)[0],
            ord("c"): lambda: complex(*self._take_numbers("<dd", 16)),
            ord("s"): self._take_text,
            ord("b"): self._take_bytes,
            ord("B"): lambda: bytearray(self._take_bytes()),
            ord("D"): lambda: Dtype(_dtypes.name_of(self._take_numbers("<B", 1)[0])),
            ord("V"): lambda: Device(self._take_text()),
            ord("Z"): self._take_size,
            ord("["): self._take_list,
            ord("("): lambda: tuple(self._take_list()),
            ord("{"): self._take_dict,
            ord("O"): lambda: OrderedDict(self._take_pairs()),
            ord("S"): lambda: set(self._take_list()),
            ord("F"): lambda: frozenset(self._take_list()),
            ord("t"): self._take_tensor,
            ord("x"): lambda: Opaque(self._take_text(), self._take_list()),
        }

    def take(self) -> Any:
        kind = self._data[self._at]
        self._at += 1
        return self._take[kind]()

    def _take_numbers(self, form: str, size: int) -> Tuple[Any, ...]:
        numbers = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return numbers

    def _take_count(self) -> int:
        (count,) = _U64.unpack_from(self._data, self._at)
        self._at += 8
        return int(count)

    def _take_bytes(self) -> bytes:
        length = self._take_count()
        self._at += length
        return self._data[self._at - length : self._at]

    def _take_text(self) -> str:
        # Python's strings may hold lone surrogates, and so may what it has stored.
        return self._take_bytes().decode("utf-8", "surrogatepass")

    def _take_list(self) -> List[Any]:
        return [self.take() for _ in range(self._take_count())]

    def _take_size(self) -> Size:
        count = self._take_count()
        return Size(self._take_numbers("<%dq" % count, 8 * count))

    def _take_pairs(self) -> List[Tuple[Any, Any]]:
        return [(self._take_key(), self.take()) for _ in range(self._take_count())]

    def _take_key(self) -> Any:
        key = self.take()
        try:
            hash(key)
        except TypeError:
            return Opaque("builtins." + type(key).__name__, [repr(key)]).name
        return key

    def _take_dict(self) -> Dict[Any, Any]:
        return dict(self._take_pairs())

    def _take_tensor(self) -> Any:
        dtype, ndim, _, _, chunks = self._take_numbers("<BBBBQ", 12)
        shape = self._take_numbers("<%dq" % ndim, 8 * ndim)
        made = None
        for _ in range(chunks):
            numbers = self._take_numbers("<QqQQ%dq" % (3 * ndim), 32 + 24 * ndim)
            sizes = numbers[4 + ndim : 4 + 2 * ndim]
            made = self._make_tensor(dtype, sizes, numbers[3], numbers[4 + 2 * ndim :])
        return made if chunks == 1 else Opaque("torch.Tensor", [shape])


_DIGITS = 4000  # of an int, that Python reads or writes in one go


def _digits_of(value: int) -> bytes:
    """The digits of an int of any size."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    parts: List[str] = []
    while value >= 10**_DIGITS:
        value, part = divmod(value, 10**_DIGITS)
        parts.append("%0*d" % (_DIGITS, part))
    parts.append(sign + str(value))
    return "".join(reversed(parts)).encode("ascii")


def _int_of(digits: bytes) -> int:
    """An int of any size: Python refuses to read long ones in one go."""
    text = digits.decode("ascii")
    sign = -1 if text.startswith("-") else 1
    value = 0
    text = text.lstrip("-")
    for at in range(0, len(text), _DIGITS):
        part = text[at : at + _DIGITS]
        value = value * 10 ** len(part) + int(part)
    return sign * value


def copy_of_memory(
    dtype: int, sizes: Tuple[int, ...], address: int, strides: Tuple[int, ...]
) -> "np.ndarray[Any, Any]":
    """A copy of elements in the library's memory, as an array."""
    try:
        kind = _dtypes.numpy_dtype(dtype)
    except TypeError:
        kind = _dtypes.raw_dtype(dtype)
    if 0 in sizes:
        return np.empty(sizes, kind)
    view = _view_of_memory(kind.itemsize, sizes, address, strides)
    copy: "np.ndarray[Any, Any]" = np.ascontiguousarray(view).view(kind).reshape(sizes)
    return copy


def fill_from_memory(
    array: Any, dtype: int, sizes: Tuple[int, ...], address: int, strides: Tuple[int, ...]
) -> bool:
    """Copies elements in the library's memory into an array. False: its dtype or sizes differ."""
    memory = _Memory(array, writable=True)
    if memory.dtype != dtype or tuple(memory.sizes) != tuple(sizes):
        return False
    if 0 in sizes:
        return True
    if isinstance(memory.held, np.ndarray):
        memory.held[...] = copy_of_memory(dtype, sizes, address, strides)
        return True
    size = _dtypes.size_of(dtype)
    target = _view_of_memory(size, sizes, memory.address, memory.strides)
    target[...] = _view_of_memory(size, sizes, address, strides)
    mark_written([memory.held])
    return True


def _view_of_memory(
    size: int, sizes: Tuple[int, ...], address: int, strides: Tuple[int, ...]
) -> "np.ndarray[Any, Any]":
    """Elements of a size in bytes, as plain bytes. Strides in elements, none is negative."""
    span = 1 + sum((count - 1) * stride for count, stride in zip(sizes, strides))
    memory = (ctypes.c_char * (span * size)).from_address(address)
    elements = np.frombuffer(memoryview(memory), dtype=np.dtype("V%d" % size))
    return np.lib.stride_tricks.as_strided(
        elements, sizes, tuple(stride * size for stride in strides)
    )


Value = Union[
    None,
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    List[Any],
    Tuple[Any, ...],
    Dict[Any, Any],
    "np.ndarray[Any, Any]",
    Sharded,
    Opaque,
]
