# SPDX-License-Identifier: BSD-3-Clause
"""The metadata of a save, as each rank gets it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Callable

from torch.distributed.checkpoint.metadata import Metadata

_FIELDS = ("state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version", "__dict__")


class LazyMetadata(Metadata):
    """Metadata that is read when it is looked at. It is an ordinary Metadata from then on."""

    def __init__(self, read: Callable[[], Metadata]) -> None:
        object.__getattribute__(self, "__dict__")["_read"] = read

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            LazyMetadata._become(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        LazyMetadata._become(self)
        object.__setattr__(self, name, value)

    def _become(self) -> None:
        """Several threads may be here: the values are there before the class changes."""
        values = object.__getattribute__(self, "__dict__")
        read = values.get("_read")
        if read is not None:
            values.update(read().__dict__)
            object.__setattr__(self, "__class__", Metadata)
            values.pop("_read", None)

    def __eq__(self, other: object) -> bool:
        LazyMetadata._become(self)
        return bool(self == other)

    def __repr__(self) -> str:
        LazyMetadata._become(self)
        return repr(self)

    def __reduce__(self) -> Any:
        LazyMetadata._become(self)
        return self.__reduce_ex__(2)

    __hash__ = None  # type: ignore[assignment]


def stored_metadata(path: str, save_id: str) -> Metadata:
    """The metadata that a save has left in a directory. RuntimeError: another one is there."""

    def read() -> Metadata:
        place = Path(path) / ".metadata"
        with open(place, "rb") as file:
            found = pickle.load(file)
        if found.storage_meta is None or found.storage_meta.save_id != save_id:
            raise RuntimeError("%s: another save has replaced this checkpoint" % place)
        assert isinstance(found, Metadata)
        return found

    return LazyMetadata(read)


class SentMetadata(Metadata):
    """Metadata that PyTorch is about to send to the other ranks: pickled, it is the bytes that were
    written, which they need not unpickle before they look. It is an ordinary Metadata again when it
    has been pickled or changed."""

    @staticmethod
    def make(metadata: Metadata, pickled: bytes) -> None:
        """Makes this of a Metadata that has just been pickled."""
        metadata.__dict__["_pickled"] = pickled
        metadata.__class__ = SentMetadata

    def __setattr__(self, name: str, value: Any) -> None:
        SentMetadata._end(self)
        setattr(self, name, value)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return _receive, (SentMetadata._end(self),)

    def _end(self) -> Any:
        object.__setattr__(self, "__class__", Metadata)
        return self.__dict__.pop("_pickled")


def _receive(pickled: bytes) -> Metadata:
    return LazyMetadata(lambda: pickle.loads(pickled))
