#!/usr/bin/env python3
"""Save large tensors compressed with PyTorch's extension, for load_compressed.

    python save_compressed_with_torch.py DIRECTORY
"""
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._extension import ZStandard

warnings.simplefilter("ignore")


def values(rows, columns):
    return ((torch.arange(rows)[:, None] * 31 + torch.arange(columns) * 7) % 4093).float()


state = {
    "tall": values(8192, 2048),
    # Its elements are stored column by column.
    "turned": values(1200, 1500).t().contiguous().t(),
}
assert not state["turned"].is_contiguous()
dcp.save(state, storage_writer=dcp.FileSystemWriter(sys.argv[1], _extensions=[ZStandard()]),
         no_dist=True)
