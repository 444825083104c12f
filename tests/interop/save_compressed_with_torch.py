#!/usr/bin/env python3
"""Save large tensors compressed with PyTorch's extension, for load_compressed.

    python save_compressed_with_torch.py DIRECTORY

As usual, and with records far apart.
"""
import os
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard
from torch.utils.serialization import config

warnings.simplefilter("ignore")


def values(rows, columns):
    return ((torch.arange(rows)[:, None] * 31 + torch.arange(columns) * 7) % 4093).float()


state = {
    "tall": values(8192, 2048),
    # Its elements are stored column by column.
    "turned": values(1200, 1500).t().contiguous().t(),
    "small": values(100, 50),
}
assert not state["turned"].is_contiguous()
for name, alignment in ("usual", 64), ("apart", 16384), ("far_apart", 65536):
    config.save.storage_alignment = alignment
    dcp.save(state, no_dist=True, storage_writer=dcp.FileSystemWriter(
        os.path.join(sys.argv[1], name), _extensions=[ZStandard()]))
