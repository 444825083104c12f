"""PyTorch's asynchronous saves, as bench_async.c: with the stager that it makes for each save (async), with one that the
caller keeps (kept), and with one that copies behind the caller's back (overlapped)."""
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from together import start_together

CALM_SECONDS = 0.3
COMMANDS = "async", "kept", "overlapped", "beside"


class Computation:
    """Products of matrices that stay in the cache."""

    def __init__(self):
        self.left, self.right, self.product = torch.rand(192, 192), torch.rand(192, 192), torch.empty(192, 192)

    def run(self, least, is_over):
        start, products, seconds = time.perf_counter(), 0, 0.0
        while seconds < least or not is_over():
            torch.mm(self.left, self.right, out=self.product)
            products += 1
            seconds = time.perf_counter() - start
        return products / seconds, seconds


class AsyncSaves:
    def __init__(self):
        self.stagers = {}
        self.computation = Computation()
        self.group = dist.new_group(backend="gloo")  # as the save goes on beside the barriers

    def stager(self, command):
        """None: PyTorch's choice."""
        if command in ("kept", "overlapped") and command not in self.stagers:
            self.stagers[command] = DefaultStager(StagingOptions(False, False, command == "overlapped", False))
        return self.stagers.get(command)

    def save(self, command, state, path):
        """Seconds until the step may go on, and until the checkpoint is there, CPU seconds, and seconds lost."""
        stager = self.stager(command)
        processor = lost = 0.0
        dist.barrier()
        if command == "beside":
            calm_rate, _ = self.computation.run(CALM_SECONDS, lambda: True)
        start_together()
        start = time.perf_counter()
        answer = dcp.async_save(state, checkpoint_id=path, process_group=self.group, async_stager=stager)
        upload = answer
        if command == "overlapped":
            answer.staging_completion.result()
            upload = answer.upload_completion
        waited = time.perf_counter() - start
        if command == "beside":
            processor, own = -time.process_time(), time.thread_time()
            rate, seconds = self.computation.run(0, upload.done)
            processor += time.process_time() - (time.thread_time() - own)
            lost = seconds * (1 - rate / calm_rate)
        upload.result()
        whole = time.perf_counter() - start
        return waited, whole, processor, lost

    def close(self):
        for stager in self.stagers.values():
            stager.close()
