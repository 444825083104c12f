# SPDX-License-Identifier: BSD-3-Clause
"""Groups over communicators of mpi4py: test_mpi4py.py DIRECTORY, by mpirun."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import libdcp


def raised_by(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def main():
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    path = Path(sys.argv[1])
    whole = np.arange(60.0).reshape(12, 5)
    mine = slice(12 * rank // size, 12 * (rank + 1) // size)
    theirs = slice(12 * (size - 1 - rank) // size, 12 * (size - rank) // size)

    assert isinstance(raised_by(lambda: libdcp.save({"a": 1}, path, group=world)), TypeError)
    with libdcp.Group(world) as group:
        state = {"w": libdcp.Sharded((12, 5), [((mine.start, 0), whole[mine])]), "step": 7, "same": np.ones(3)}
        libdcp.save(state, path / "a", group=group, overwrite=True)
        place = np.zeros((theirs.stop - theirs.start, 5))
        found = {"w": libdcp.Sharded((12, 5), [((theirs.start, 0), place)]), "step": 0}
        libdcp.load(found, path / "a", group=group)
        assert (place == whole[theirs]).all() and found["step"] == 7
        with libdcp.Saver(group=group) as saver:
            for step in range(3):
                saver.save({**state, "step": step}, path / "b", overwrite=True, step=step).result()
        assert libdcp.read(path / "b")["step"] == 2

        error = raised_by(lambda: libdcp.save({"w": object() if rank == 1 else 1}, path / "c", group=group))
        assert isinstance(error, TypeError if rank == 1 else libdcp.Error), error
        assert "builtins.object" in str(error), error
        assert not (path / "c" / ".metadata").exists()
    world.Barrier()
    if rank == 0:
        print("%d ranks of mpi4py" % size)


main()
