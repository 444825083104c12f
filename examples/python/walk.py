# SPDX-License-Identifier: BSD-3-Clause
"""A walk through a checkpoint, cell by cell, as for a notebook: walk.py CHECKPOINT

Nothing here needs a framework, nor as much memory as the model.
"""

# %% Opening reads the metadata alone.
import sys

import numpy as np

import libdcp

path = sys.argv[1]
checkpoint = libdcp.open(path)
print("%d names, saved at step %s" % (len(checkpoint), checkpoint.info().step))

# %% What is in it: tensors say shape, dtype and size, and have not been read.
tensors = list(checkpoint.tensors())
for tensor in tensors:
    print("  %-24s %-10s %-12s %8d bytes in %d pieces" % (
        tensor.name, tensor.dtype, list(tensor.shape), tensor.nbytes, len(tensor.chunks)))  # fmt: skip
for name in checkpoint:
    if not isinstance(checkpoint[name], libdcp.Tensor):
        print("  %-24s %r" % (name, checkpoint[name]))

# %% A slice reads just these elements, and checks them.
largest = max(tensors, key=lambda tensor: tensor.nbytes)
print("%s[:2] =\n%s" % (largest.name, largest[:2]))

# %% Where a piece lies, and the same elements without a copy.
piece = largest.chunks[0]
print("its first piece: %s, %d bytes at %d" % (piece.file, piece.length, piece.offset))
shown = largest.map()
print("mapped, not read: mean %.4f" % shown.mean(dtype=np.float64))

# %% Statistics of all of it, a tensor at a time, in the order of the files.
for tensor in tensors:
    values = tensor[...].astype(np.float64)
    print("  %-24s min %.4f max %.4f, %d not finite" % (
        tensor.name, values.min(), values.max(), (~np.isfinite(values)).sum()))  # fmt: skip

# %% Is every byte as it was saved?
faults = libdcp.verify(path)
print("every byte is as it was saved" if not faults else faults)

# %% A part of it, changed, as a checkpoint of its own.
halves = {tensor.name: tensor[...].astype(np.float16) for tensor in tensors}
checkpoint.close()
libdcp.save(halves, path.rstrip("/") + "_float16", overwrite=True)
print("saved again in float16: %d bytes" % sum(array.nbytes for array in halves.values()))
