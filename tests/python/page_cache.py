# SPDX-License-Identifier: BSD-3-Clause
"""What the page cache has of files."""

import ctypes
import mmap
from pathlib import Path


def part_cached(path):
    """The part of the shard files in a directory that the page cache has."""
    pages = []
    for file in path.glob("*.distcp"):
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
            found = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE + 1))()
            start = ctypes.c_char.from_buffer(mapped)
            assert ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), found) == 0
            del start
            pages += [page & 1 for page in found[: -(-len(mapped) // mmap.PAGESIZE)]]
    return sum(pages) / len(pages)


def in_memory(path):
    """Whether the file system keeps its files in the page cache for good."""
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = {place: kind for _, place, kind, *_ in found}
    path = path.resolve()
    return next(places[str(at)] for at in (path, *path.parents) if str(at) in places) == "tmpfs"
