# SPDX-License-Identifier: BSD-3-Clause
"""Saving while the program goes on."""

import asyncio
import gc
import os
import signal
import tempfile
import threading
import unittest
import unittest.mock
import weakref
from pathlib import Path

import numpy as np

import libdcp
from page_cache import in_memory, part_cached


class Savers(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name)

    def test_arrays_may_change_when_they_are_staged(self):
        for staging in ("blocking", "pinned", "overlapped"):
            array = np.arange(1_000_000.0)
            with libdcp.Saver(staging=staging) as saver:
                for step in range(3):
                    future = saver.save({"a": array, "step": step}, self.path / staging, overwrite=True)
                    future.wait_staged()
                    array += 1
                    future.result()
                    self.assertTrue(future.done())
                    done, total = future.progress()
                    self.assertEqual(done, total)
                    found = libdcp.read(self.path / staging)
                    self.assertEqual(found["step"], step)
                    np.testing.assert_array_equal(found["a"], np.arange(1_000_000.0) + step)

    def test_the_next_waits_for_the_one_before(self):
        with libdcp.Saver() as saver:
            futures = [saver.save({"n": n}, self.path / str(n)) for n in range(5)]
            for n, future in enumerate(futures):
                self.assertIsNone(future.exception())
                self.assertEqual(libdcp.read(self.path / str(n)), {"n": n})

    def test_a_future_can_be_awaited(self):
        async def work():
            with libdcp.Saver() as saver:
                await saver.save({"a": np.zeros(1000)}, self.path / "a")
                with self.assertRaises(libdcp.ExistsError):
                    await saver.save({"a": np.zeros(1000)}, self.path / "a")

        asyncio.run(work())
        self.assertEqual(libdcp.verify(self.path / "a"), [])

    def test_failures_come_from_the_future(self):
        blocked = self.path / "file"
        blocked.write_text("")
        with libdcp.Saver(retries=1, retry_seconds=0.01) as saver:
            future = saver.save({"a": 1}, blocked / "b")
            self.assertIsInstance(future.exception(), libdcp.Error)
            self.assertRaises(libdcp.Error, future.result)
        with libdcp.Saver(retries=0, fallback=self.path / "other") as saver:
            saver.save({"a": 1}, blocked / "b").result()
            self.assertEqual(libdcp.read(self.path / "other" / "b"), {"a": 1})
        self.assertRaises(ValueError, saver.save, {"a": 1}, self.path / "late")
        self.assertRaises(ValueError, libdcp.Saver, staging="other")

    def test_callbacks_are_called_once(self):
        called, ended = [], threading.Event()

        def callback(future):
            called.append(future)
            ended.set()

        with libdcp.Saver() as saver:
            future = saver.save({"a": np.zeros(100_000)}, self.path / "a")
            future.add_done_callback(callback)
            self.assertTrue(ended.wait(60))
            future.result()
            future.add_done_callback(callback)
        self.assertEqual(called, [future, future])

    def test_control_c_while_a_save_begins_leaves_its_arrays_held(self):
        begin = libdcp.saving.lib.dcp_save_async_sized

        def interrupted(*arguments):
            status = begin(*arguments)
            os.kill(os.getpid(), signal.SIGINT)
            return status

        class One:
            def Get_rank(self):
                return 0

            def Get_size(self):
                return 1

            def allgather(self, sendobj):
                return [sendobj]

            def bcast(self, obj, root):
                return obj

        held = len(libdcp.saving._beginning)
        for group in (None, libdcp.Group(One())):
            array = np.full(5_000_000, 7.0)
            alive = weakref.ref(array)
            path = self.path / str(group is None)
            with libdcp.Saver(group=group, staging="overlapped") as saver:
                with unittest.mock.patch.object(libdcp.saving.lib, "dcp_save_async_sized", interrupted):
                    with self.assertRaises(KeyboardInterrupt):
                        saver.save({"a": array}, path)
                del array
                for failure in [future.exception() for future in list(libdcp.Future._under_way)]:
                    self.assertIsInstance(failure, (libdcp.CancelledError, type(None)))
            if group is None:
                gc.collect()
                self.assertIsNone(alive())
                self.assertEqual(len(libdcp.saving._beginning), held)
            else:
                self.assertIsNotNone(alive())
                self.assertTrue((libdcp.read(path)["a"] == 7).all())

    def test_a_future_outlives_the_loop_that_awaited_it(self):
        async def work(saver):
            future = saver.save({"a": np.zeros(5_000_000)}, self.path / "a")
            asyncio.ensure_future(asyncio.wait_for(future, 60))
            await asyncio.sleep(0)
            return future

        with libdcp.Saver() as saver, unittest.mock.patch.object(libdcp.saving._log, "exception") as logged:
            asyncio.run(work(saver)).result()
        logged.assert_not_called()
        self.assertEqual(libdcp.verify(self.path / "a"), [])

    def test_pages_stay_in_the_page_cache_or_not(self):
        saver = libdcp.Saver()
        self.addCleanup(saver.close)
        for save in libdcp.save, lambda *args, **named: saver.save(*args, **named).result():
            for page_cache in "kept", "auto", "dropped", "any":
                save({"a": np.full(3_000_000, 7.0)}, self.path / "a", overwrite=True, page_cache=page_cache)
                part = part_cached(self.path / "a")
                if page_cache == "kept" or page_cache == "dropped" and not in_memory(self.path):
                    self.assertEqual(part, page_cache == "kept")
            self.assertRaisesRegex(ValueError, "page_cache is", save, {"a": 1}, self.path / "b", page_cache="some")

    def test_arrays_are_held_while_a_save_needs_them(self):
        with libdcp.Saver(staging="overlapped") as saver:
            future = saver.save({"a": np.full(3_000_000, 7.0)}, self.path / "a")
            gc.collect()
            future.result()
        self.assertTrue((libdcp.read(self.path / "a")["a"] == 7).all())


if __name__ == "__main__":
    unittest.main()
