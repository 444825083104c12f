# SPDX-License-Identifier: BSD-3-Clause
"""Shard files written one by one, by dcp/shard_file.h."""

from __future__ import annotations

import ctypes
import os
from typing import Any, List, NamedTuple, Sequence

from . import _structs as structs
from ._library import check, lib, path_bytes


class Location(NamedTuple):
    """Where a stream lies in its file."""

    offset: int
    length: int


class Memory(NamedTuple):
    """Elements in host memory: the library's number of their type, address and strides in
    elements. Whoever gives it keeps them."""

    dtype: int
    address: int
    strides: Sequence[int]


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
        self._tensor = structs.dcp_tensor()
        self._name = structs.dcp_shard_name()

    def add_tensor(
        self,
        name: str,
        shape: Sequence[int],
        offsets: Sequence[int],
        sizes: Sequence[int],
        memory: Memory,
        held: Any,
    ) -> None:
        """Adds a chunk of a tensor."""
        tensor = self._tensor
        ctypes.memset(ctypes.byref(tensor), 0, ctypes.sizeof(tensor))
        tensor.dtype, tensor.ndim = memory.dtype, len(shape)
        tensor.sharded = tensor.strided = True
        tensor.data = memory.address
        for i in range(len(shape)):
            tensor.global_shape[i] = shape[i]
            tensor.offsets[i] = offsets[i]
            tensor.sizes[i] = sizes[i]
            tensor.strides[i] = memory.strides[i]
        self._name.name = name.encode("utf-8")
        self._held.append(held)
        check(
            lib.dcp_shard_writer_add_tensor_sized(
                self._handle, ctypes.byref(self._name), ctypes.byref(tensor), ctypes.sizeof(tensor)
            )
        )

    def add_stream(self, name: str, stream: bytes) -> None:
        """Adds an object that is encoded already, by torch.save."""
        self._name.name = name.encode("utf-8")
        check(
            lib.dcp_shard_writer_add_stream(
                self._handle, ctypes.byref(self._name), stream, len(stream)
            )
        )

    def seal(self) -> List[Location]:
        """Writes the file, and says where each item lies, in the order of adding."""
        check(lib.dcp_shard_writer_seal(self._handle))
        location = structs.dcp_storage_location()
        locations: List[Location] = []
        for i in range(lib.dcp_shard_writer_count(self._handle)):
            check(
                lib.dcp_shard_writer_location_sized(
                    self._handle, i, ctypes.byref(location), ctypes.sizeof(location)
                )
            )
            locations.append(Location(location.offset, location.length))
        return locations

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error: object) -> None:
        lib.dcp_shard_writer_free(self._handle)
        self._held = []
