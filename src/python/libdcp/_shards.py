# SPDX-License-Identifier: BSD-3-Clause
"""Shard files written one by one, by dcp/shard_file.h."""

from __future__ import annotations

import ctypes
import os
from typing import Any, List, NamedTuple

from . import _structs as structs
from ._library import check, lib, path_bytes


class Location(NamedTuple):
    """Where a stream lies in its file."""

    offset: int
    length: int


def make_save_id() -> str:
    """A name for a save, which all of its files carry."""
    text = ctypes.create_string_buffer(40)
    check(lib.dcp_save_id_make(text))
    return text.value.decode("ascii")


class ShardWriter:
    """One shard file. Memory that is added is kept until the file is sealed."""

    def __init__(
        self,
        directory: "os.PathLike[str]",
        file: str,
        save_id: str,
        sync: bool,
        page_cache: int = 0,
    ) -> None:
        options = structs.dcp_shard_writer_options()
        options.save_id = save_id.encode("ascii")
        options.skip_sync = not sync
        options.page_cache = page_cache
        handle = ctypes.c_void_p()
        check(
            lib.dcp_shard_writer_open_sized(
                path_bytes(directory),
                file.encode("utf-8"),
                ctypes.byref(options),
                ctypes.sizeof(options),
                ctypes.byref(handle),
            )
        )
        self._handle = handle
        self._held: List[Any] = []

    def add(self, described: bytes, held: List[Any]) -> None:
        """Adds items: a packed list of names, and chunks of tensors or bytes of torch.save.

        held: what the description points to.
        """
        self._held.append(held)
        check(lib.dcp_shard_writer_add_packed(self._handle, described, len(described)))

    def seal(self) -> List[Location]:
        """Writes the file, and says where each item lies, in the order of adding."""
        check(lib.dcp_shard_writer_seal(self._handle))
        count = lib.dcp_shard_writer_count(self._handle)
        places = (ctypes.c_uint64 * (2 * count))()
        check(lib.dcp_shard_writer_locations(self._handle, places, count))
        numbers = iter(places)
        return [Location(offset, length) for offset, length in zip(numbers, numbers)]

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error: object) -> None:
        lib.dcp_shard_writer_free(self._handle)
        self._held = []
