# SPDX-License-Identifier: BSD-3-Clause
"""Writes mesh_cases.inc: random meshes, placements and shapes with the chunk that PyTorch's DTensor gives one rank.

    pip install torch==2.13.0
    python make_mesh_cases.py [CASES [SEED]] > mesh_cases.inc

Each line is one case of numbers: dimensions, shape; mesh dimensions, mesh shape; per mesh dimension kind (dcp_placement_kind),
dim, split factor; the rank; whether its part is one box; and if it is, offsets and sizes.
"""

import math
import random
import sys

from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset, _get_shard_size_and_offsets
from torch.distributed.tensor.placement_types import Replicate, Shard, _StridedShard


def random_placements(draw, mesh, ndim):
    placements = []
    for mesh_dim, _ in enumerate(mesh):
        kind = draw.random()
        dim = draw.randrange(ndim)
        if kind < 0.2:
            placements.append(Replicate())
        elif kind < 0.65:
            placements.append(Shard(dim))
        elif kind < 0.9:  # what FSDP2 over tensor parallelism makes: the mesh dimensions to the right on the same dim
            placements.append((dim, mesh_dim))
        else:
            placements.append(_StridedShard(dim, split_factor=draw.randint(1, 4)))
    for i, placement in enumerate(placements):
        if isinstance(placement, tuple):
            dim, _ = placement
            right = [n for n, other in zip(mesh[i + 1 :], placements[i + 1 :])
                     if isinstance(other, (Shard, _StridedShard)) and other.dim == dim]
            placements[i] = _StridedShard(dim, split_factor=math.prod(right)) if right else Shard(dim)
    return placements


def one_box(shape, mesh, coordinate, placements):
    positions = {}
    extent = list(shape)
    for i, placement in enumerate(placements):
        if isinstance(placement, (Shard, _StridedShard)):
            extent[placement.dim], positions[placement.dim] = _get_shard_size_and_offsets(
                extent[placement.dim], mesh[i], coordinate[i], placement, positions.get(placement.dim),
                shape[placement.dim], False)
    return all((p[1:] - p[:-1] == 1).all() for p in positions.values())


def numbers(shape, mesh, placements, rank):
    coordinate, rest = [], rank
    for n in reversed(mesh):
        coordinate.insert(0, rest % n)
        rest //= n
    line = [len(shape), *shape, len(mesh), *mesh]
    for placement in placements:
        if isinstance(placement, _StridedShard):
            line += [2, placement.dim, placement.split_factor]
        elif isinstance(placement, Shard):
            line += [1, placement.dim, 0]
        else:
            line += [0, 0, 0]
    boxed = one_box(shape, mesh, coordinate, placements)
    line += [rank, int(boxed)]
    if boxed:
        sizes, offsets = _compute_local_shape_and_global_offset(shape, mesh, coordinate, placements)
        line += [*offsets, *sizes]
    return line


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1200
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print("/* SPDX-License-Identifier: BSD-3-Clause */")
    print("/* Made by make_mesh_cases.py with PyTorch 2.13.0. */")
    for _ in range(count):
        shape = [draw.choice([draw.randint(0, 9), draw.randint(1, 40)]) for _ in range(draw.randint(1, 3))]
        mesh = [draw.randint(1, 5) for _ in range(draw.randint(1, 3))]
        placements = random_placements(draw, mesh, len(shape))
        line = numbers(shape, mesh, placements, draw.randrange(math.prod(mesh)))
        print(",".join(map(str, line)) + ",")


if __name__ == "__main__":
    main()
