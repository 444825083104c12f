# SPDX-License-Identifier: BSD-3-Clause
"""``torch.distributed.checkpoint`` by this library: one changed line.

::

    import libdcp.torch as dcp        # instead of torch.distributed.checkpoint
    dcp.save(state_dict, checkpoint_id=path)
    dcp.load(state_dict, checkpoint_id=path)
    future = dcp.async_save(state_dict, checkpoint_id=path)

``save``, ``load`` and ``async_save`` have PyTorch's signatures and meaning. The library plans, over the
job's own process group, and keeps plans from one call to the next. What it has no way for (planners
and storages of other classes, tensors outside of host memory) goes PyTorch's own way, with the two
classes below, which the log says once.

``FileSystemWriter`` and ``FileSystemReader`` are the storage alone, for PyTorch's functions and any
planner. ``DefaultStager`` is PyTorch's stager of that name with the library's copies.
"""

from .loading import load
from .saving import async_save, save
from .staging import DefaultStager
from .storage import FileSystemReader, FileSystemWriter

__all__ = ["DefaultStager", "FileSystemReader", "FileSystemWriter", "async_save", "load", "save"]
