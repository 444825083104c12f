"""How ranks begin what is measured, as shared_start() of shared_group.h."""
import time

import torch.distributed as dist

START_SECONDS = 0.02


def start_together():
    """Compute for a moment, as a training does between checkpoints, so that each rank has a core of its own, and meet."""
    dist.barrier()
    end = time.perf_counter() + START_SECONDS
    while time.perf_counter() < end:
        pass
    dist.barrier()
