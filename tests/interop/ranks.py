"""Runs a function on several ranks, each a process with a gloo process group."""
import os
import sys
import tempfile
import traceback

import torch._dynamo  # noqa: F401  DTensor and FSDP import it when they are used first: once, before ranks are forked
import torch.distributed as dist


def run_ranks(world, function, *arguments):
    """Calls function(rank, world, *arguments) on every rank; exits if one of them fails."""
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                os._exit(_run_rank(directory, rank, world, function, arguments))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        sys.exit("%s on %d ranks: exit codes %s" % (function.__name__, world, codes))


def _run_rank(directory, rank, world, function, arguments):
    try:
        dist.init_process_group(
            "gloo", init_method="file://%s/store" % directory, rank=rank, world_size=world)
        function(rank, world, *arguments)
        dist.barrier()
        dist.destroy_process_group()
        sys.stdout.flush()
        return 0
    except BaseException:  # CheckpointException is one, and no rank may live on past its failure
        traceback.print_exc()
        return 1
