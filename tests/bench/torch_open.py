#!/usr/bin/env python3
"""PyTorch's side of compare open: metadata of many chunks without their data.

    torch_open.py make DIR TENSORS CHUNKS   writes DIR/.metadata, CHUNKS of each tensor
    torch_open.py list DIR                  prints the seconds that reading and visiting it took
"""
import os
import pickle
import sys
import time

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata)


def make(directory, tensors, chunks):
    entries, storage = {}, {}
    length = 1296
    properties = TensorProperties(dtype=torch.bfloat16)
    for t in range(tensors):
        name = "model.layers.%d.weight" % t
        offsets = [torch.Size((c, 0)) for c in range(chunks)]
        entries[name] = TensorStorageMetadata(
            properties=properties, size=torch.Size((chunks, 128)),
            chunks=[ChunkStorageMetadata(offsets=offset, sizes=torch.Size((1, 128))) for offset in offsets])
        for c, offset in enumerate(offsets):
            storage[MetadataIndex(name, offset)] = _StorageInfo("__%d_0.distcp" % c, t * length, length)
    metadata = Metadata(
        state_dict_metadata=entries, storage_data=storage, storage_meta=StorageMeta(),
        planner_data={name: tuple(name.split(".")) for name in entries})
    with open(os.path.join(directory, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)


def list_chunks(directory):
    start = time.perf_counter()
    metadata = FileSystemReader(directory).read_metadata()
    count = sum(len(entry.chunks) for entry in metadata.state_dict_metadata.values())
    print("%.6f %d" % (time.perf_counter() - start, count), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        list_chunks(sys.argv[2])
