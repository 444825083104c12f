# SPDX-License-Identifier: BSD-3-Clause
"""libdcp.torch.DefaultStager beside PyTorch's: the same copies, into memory that is kept."""

import gc
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader as StockReader
from torch.distributed.checkpoint.staging import DefaultStager as StockStager
from torch.distributed.checkpoint.staging import StagingOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from libdcp.torch import DefaultStager, FileSystemWriter, staging

PLAIN = StagingOptions(False, False, False, False)
LARGE = (1 << 20) // 4 + 3  # elements


class Staging(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        self.stager = DefaultStager(PLAIN)
        self.addCleanup(self.stager.close)

    def test_copies_are_those_of_pytorch(self):
        base = torch.arange(2 * LARGE, dtype=torch.float32)
        state = {
            "large": torch.rand(LARGE), "view": base[7:LARGE:3], "same": base, "grown": base.view(2, -1).t(),
            "small": torch.arange(3), "none": torch.empty(0, 4), "scalar": torch.tensor(3.5),
            "parameter": torch.nn.Parameter(torch.rand(LARGE)), "nested": [{"x": (1, torch.ones(5))}, "text"],
            "half": torch.rand(LARGE).bfloat16(),
        }  # fmt: skip
        stock = StockStager(PLAIN)
        for _ in range(3):
            mine, theirs = self.stager.stage(state), stock.stage(state)
            for name, tensor in theirs.items():
                if isinstance(tensor, torch.Tensor):
                    found = mine[name]
                    self.assertIs(type(found), type(tensor), name)
                    self.assertTrue(torch.equal(found, tensor), name)
                    self.assertEqual(found.stride(), tensor.stride(), name)
                    self.assertEqual(found.requires_grad, tensor.requires_grad, name)
                    if tensor.numel():
                        self.assertNotEqual(found.data_ptr(), state[name].data_ptr(), name)
            self.assertTrue(torch.equal(mine["nested"][0]["x"][1], torch.ones(5)))
            self.assertEqual(mine["view"].untyped_storage().data_ptr(), mine["same"].untyped_storage().data_ptr())
            base += 1

    def test_views_that_conjugate_or_negate_stay_such(self):
        base = torch.arange(6) * (1 + 2j)
        state = {"conj": base.conj(), "imag": base.conj().imag, "plain": base}
        for _ in range(2):
            staged = self.stager.stage(state)
            for name, tensor in state.items():
                self.assertTrue(torch.equal(staged[name], tensor), name)
                self.assertEqual((staged[name].is_conj(), staged[name].is_neg()), (tensor.is_conj(), tensor.is_neg()))
            base += 1

    def test_memory_is_kept_and_goes_with_its_state(self):
        freed = []
        free = staging.lib.dcp_memory_free

        class Counting:
            dcp_memory_allocate = staging.lib.dcp_memory_allocate
            dcp_memory_copy = staging.lib.dcp_memory_copy

            @staticmethod
            def dcp_memory_free(address):
                freed.append(address.value)
                free(address)

        with unittest.mock.patch.object(staging, "lib", Counting):
            state = {"a": torch.zeros(LARGE)}
            places = set()
            for step in range(3):
                state["a"].fill_(step)
                staged = self.stager.stage(state)
                self.assertEqual(staged["a"][-1], step)
                places.add(staged["a"].data_ptr())
            self.assertEqual(len(places), 1)
            self.assertEqual(places.pop() % 4096, 0)
            del state
            gc.collect()
            self.assertEqual(freed, [])  # the copy is in use
            self.assertEqual(staged["a"][0], 2)
            del staged
            gc.collect()
            self.assertEqual(len(freed), 1)

    def test_several_threads_copy_every_byte(self):
        threads = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(3)
        state = {"a": torch.arange(3 * staging._PART + 77, dtype=torch.int32).to(torch.uint8)}
        for _ in range(2):
            self.assertTrue(torch.equal(self.stager.stage(state)["a"], state["a"]))
            state["a"] += 1

    def test_a_storage_that_grew_is_refused_as_by_pytorch(self):
        state = {"a": torch.zeros(LARGE)}
        self.stager.stage(state)
        state["a"].untyped_storage().resize_(8 * LARGE)
        self.assertRaises(AssertionError, self.stager.stage, state)

    def test_what_is_saved_is_what_was_staged(self):
        with tempfile.TemporaryDirectory() as temporary:
            dist.init_process_group("gloo", init_method="file://%s/store" % temporary, rank=0, world_size=1)
            self.addCleanup(dist.destroy_process_group)
            mesh = init_device_mesh("cpu", (1,))
            whole = torch.rand(LARGE)
            state = {"d": distribute_tensor(whole.clone(), mesh, [Shard(0)]), "t": whole.clone(), "step": 0}
            for step in range(3):
                path = Path(temporary) / str(step)
                state["step"] = step
                future = dcp.async_save(state, storage_writer=FileSystemWriter(path), async_stager=self.stager)
                state["d"].to_local().add_(1)
                state["t"].add_(1)
                future.result()
                found = {"d": distribute_tensor(torch.zeros(LARGE), mesh, [Shard(0)]), "t": torch.zeros(LARGE), "step": -1}
                dcp.load(found, storage_reader=StockReader(path))
                self.assertIs(type(found["d"]), DTensor)
                self.assertTrue(torch.equal(found["d"].to_local() + 1, state["d"].to_local()))
                self.assertTrue(torch.equal(found["t"] + 1, state["t"]))
                self.assertEqual(found["step"], step)


if __name__ == "__main__":
    unittest.main()
