# SPDX-License-Identifier: BSD-3-Clause
"""Element types: their numbers in the library, their names in PyTorch, and NumPy's."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

import numpy as np


class _Kind(NamedTuple):
    number: int  # of dcp_dtype
    name: str  # PyTorch's
    size: int  # bytes of an element
    numpy: Optional[str]  # NumPy's or ml_dtypes' name; None: neither has it


_KINDS = [
    _Kind(1, "float64", 8, "float64"),
    _Kind(2, "float32", 4, "float32"),
    _Kind(3, "float16", 2, "float16"),
    _Kind(4, "bfloat16", 2, "bfloat16"),
    _Kind(10, "int64", 8, "int64"),
    _Kind(11, "int32", 4, "int32"),
    _Kind(12, "int16", 2, "int16"),
    _Kind(13, "int8", 1, "int8"),
    _Kind(14, "uint64", 8, "uint64"),
    _Kind(15, "uint32", 4, "uint32"),
    _Kind(16, "uint16", 2, "uint16"),
    _Kind(17, "uint8", 1, "uint8"),
    _Kind(18, "bool", 1, "bool"),
    _Kind(20, "complex128", 16, "complex128"),
    _Kind(21, "complex64", 8, "complex64"),
    _Kind(22, "complex32", 4, None),
    _Kind(23, "bcomplex32", 4, None),
    _Kind(30, "float8_e4m3fn", 1, "float8_e4m3fn"),
    _Kind(31, "float8_e4m3fnuz", 1, "float8_e4m3fnuz"),
    _Kind(32, "float8_e5m2", 1, "float8_e5m2"),
    _Kind(33, "float8_e5m2fnuz", 1, "float8_e5m2fnuz"),
    _Kind(34, "float8_e8m0fnu", 1, "float8_e8m0fnu"),
    _Kind(35, "float4_e2m1fn_x2", 1, None),
    _Kind(40, "bits8", 1, None),
    _Kind(41, "bits16", 2, None),
    _Kind(42, "bits1x8", 1, None),
    _Kind(43, "bits2x4", 1, None),
    _Kind(44, "bits4x2", 1, None),
]
_BY_NUMBER: Dict[int, _Kind] = {kind.number: kind for kind in _KINDS}
_BY_NAME: Dict[str, _Kind] = {kind.name: kind for kind in _KINDS}


class Dtype(str):
    """A ``torch.dtype`` among the values of a checkpoint, by its name: ``Dtype("bfloat16")``."""

    __slots__ = ()

    def __new__(cls, name: str) -> "Dtype":
        if name not in _BY_NAME:
            raise ValueError("%r is no dtype of PyTorch" % name)
        return str.__new__(cls, name)

    def __repr__(self) -> str:
        return "libdcp.Dtype(%r)" % str(self)


def name_of(number: int) -> str:
    """PyTorch's name of a dtype of the library."""
    return _BY_NUMBER[number].name


def number_of(name: str) -> int:
    """The library's number of a dtype that PyTorch has by this name. Raises TypeError if it has
    none."""
    kind = _BY_NAME.get(name)
    if kind is None:
        raise TypeError("a tensor of %s cannot be saved" % name)
    return kind.number


def size_of(number: int) -> int:
    """Bytes of an element."""
    return _BY_NUMBER[number].size


def numpy_dtype(number: int) -> "np.dtype[Any]":
    """NumPy's dtype for one of the library; of bfloat16 and float8 that of ml_dtypes.

    Raises TypeError where there is none.
    """
    kind = _BY_NUMBER[number]
    if kind.numpy is None:
        raise TypeError("NumPy has no dtype for %s; read its bytes with raw=True" % kind.name)
    try:
        return np.dtype(kind.numpy)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            "NumPy needs the package ml_dtypes for %s; without it, read its bytes with raw=True"
            % kind.name
        ) from None
    found: "np.dtype[Any]" = np.dtype(getattr(ml_dtypes, kind.numpy))
    return found


def raw_dtype(number: int) -> "np.dtype[Any]":
    """Unsigned integers as large as the elements, for those that NumPy does not know."""
    size = size_of(number)
    return np.dtype("u%d" % size) if size <= 8 else np.dtype("V%d" % size)


def number_of_numpy(dtype: "np.dtype[Any]") -> int:
    """The library's number of a NumPy dtype. Raises TypeError if it has none."""
    if not dtype.isnative:
        raise TypeError("an array in foreign byte order (%s) cannot be saved" % dtype)
    kind = _BY_NAME.get(dtype.name)
    if kind is None or kind.numpy != dtype.name:
        raise TypeError("an array of %s cannot be saved" % dtype)
    return kind.number
