# SPDX-License-Identifier: BSD-3-Clause
"""Puts what was loaded where it belongs in a state."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np

from ._values import Opaque, Sharded, copy_of_memory, fill_from_memory, is_tensor


class Loaded:
    """A tensor in the library's tree: in an array of the state, or in memory of the tree if it is
    inside of an object."""

    __slots__ = ("_memory",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, dtype: int, sizes: Tuple[int, ...], address: int, strides: Tuple[int, ...]
    ) -> None:
        self._memory = (dtype, sizes, address, strides)

    def put_into(self, array: Any) -> bool:
        """Whether the elements could be copied into an array: it has the same dtype and sizes."""
        return fill_from_memory(array, *self._memory)

    def copy(self) -> "np.ndarray[Any, Any]":
        return copy_of_memory(*self._memory)


def put_back(state: Any, loaded: Any) -> None:
    """Puts values that were loaded in the place of those that were there; arrays stay."""
    for key in list(state) if isinstance(state, dict) else range(len(state)):
        state[key] = _merged(state[key], loaded[key])


def _merged(mine: Any, found: Any) -> Any:
    """What takes the place of a value, which is the value itself if it could be filled."""
    if is_tensor(mine) or _is_sharded_stand_in(found):
        return mine
    if isinstance(mine, dict) and isinstance(found, dict) and mine.keys() == found.keys():
        put_back(mine, found)
        return mine
    if isinstance(mine, list) and isinstance(found, list) and len(mine) == len(found):
        put_back(mine, found)
        return mine
    return _made(mine, found)


def _made(mine: Any, found: Any) -> Any:
    """An object, with its tensors in the arrays that were in their places, or else in new ones."""
    kind = type(found)
    if kind is Loaded:
        fits = is_tensor(mine) and not isinstance(mine, Sharded) and found.put_into(mine)
        return mine if fits else found.copy()
    if kind is list or kind is tuple:
        alike = type(mine) is kind and len(mine) == len(found)
        return kind(map(_made, mine if alike else [None] * len(found), found))
    if isinstance(found, dict):
        there = mine if isinstance(mine, dict) else {}
        return kind((key, _made(there.get(key), value)) for key, value in found.items())
    if kind is Opaque:
        return Opaque(found.name, [_made(None, child) for child in found.children])
    return found


def _is_sharded_stand_in(found: Any) -> bool:
    return isinstance(found, Opaque) and found.name == "torch.Tensor"
