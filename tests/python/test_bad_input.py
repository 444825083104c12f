# SPDX-License-Identifier: BSD-3-Clause
"""What must not be done, and what one may do at a bad moment: an exception or a result, never a crash."""

import array
import ctypes
import gc
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import libdcp
from libdcp import _library
from test_save_load import Rank, Ranks


class BadInput(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"

    def run_python(self, text, *arguments):
        program = "import os, sys, threading, numpy as np, libdcp\npath = sys.argv[1]\n" + textwrap.dedent(text)
        call = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(self.path), *arguments]
        return subprocess.run(call, capture_output=True, text=True, timeout=120)

    # ---- arrays ----

    def test_arrays_that_overlap_are_saved_as_they_look(self):
        base = np.arange(1000.0)
        strided = np.lib.stride_tricks.as_strided
        state = {
            "a": base[:600], "b": base[400:], "backwards": base[::-3], "windows": strided(base, (50, 20), (16, 8)),
            "repeated": np.broadcast_to(base[:7], (3, 7)), "column": base.reshape(40, 25)[:, 3],
        }  # fmt: skip
        libdcp.save(state, self.path)
        found = libdcp.read(self.path)
        for name, value in state.items():
            np.testing.assert_array_equal(found[name], value, name)

    def test_arrays_that_overlap_themselves_are_no_destination(self):
        libdcp.save({"a": np.arange(12.0).reshape(3, 4)}, self.path)
        strided = np.lib.stride_tricks.as_strided
        for place in (strided(np.zeros(4), (3, 4), (0, 8)), strided(np.zeros(9), (3, 4), (16, 8))):
            with self.assertRaises((libdcp.Error, TypeError)):
                libdcp.load({"a": place}, self.path)
        turned = np.zeros((3, 4))
        libdcp.load({"a": turned[::-1, ::-1]}, self.path)
        np.testing.assert_array_equal(turned[::-1, ::-1], np.arange(12.0).reshape(3, 4))

    def test_memory_mapped_for_reading_is_no_destination(self):
        libdcp.save({"a": np.arange(5000.0), "b": np.arange(9.0)}, self.path)
        file = self.path.parent / "numbers"
        np.zeros(5000).tofile(file)
        mapped, own = np.memmap(file, np.float64, "r"), np.zeros(9)
        # An array that says nothing of it, as those of other packages.
        quiet = np.ctypeslib.as_array((ctypes.c_double * 5000).from_address(mapped.ctypes.data))
        for place in (mapped, quiet):
            with self.assertRaisesRegex((libdcp.Error, TypeError, ValueError), "only"):
                libdcp.load({"a": place, "b": own}, self.path)
        self.assertFalse(own.any())
        copied = np.memmap(file, np.float64, "c")
        libdcp.load({"a": copied, "b": own}, self.path)
        np.testing.assert_array_equal(copied, np.arange(5000.0))

    def test_wrong_dtypes_and_shapes_are_refused(self):
        libdcp.save({"a": np.arange(6.0), "o": 1}, self.path)
        for wrong in (np.zeros(6, "f4"), np.zeros(5), np.zeros((2, 3)), np.zeros(())):
            with self.assertRaises(libdcp.Error):
                libdcp.load({"a": wrong}, self.path)
        for wrong in (np.zeros(6, ">f8"), np.zeros(6, "M8[s]"), np.zeros(6, object), np.zeros(6, "f8,f8")):
            with self.assertRaises(TypeError):
                libdcp.load({"a": wrong}, self.path)
            with self.assertRaises(TypeError):
                libdcp.save({"a": wrong}, self.path, overwrite=True)
        self.assertEqual(libdcp.read(self.path)["o"], 1)

    def test_memory_cannot_be_resized_while_a_save_needs_it(self):
        whole, raw, numbers = np.full(2_000_000, 3.0), bytearray(8_000_000), array.array("d", [5.0] * 1000)
        state = {"whole": whole, "raw": np.frombuffer(raw), "numbers": np.frombuffer(numbers)}
        with libdcp.Saver(staging="overlapped") as saver:
            future = saver.save(state, self.path)
            del state
            gc.collect()
            if not future.done():
                for grow in (lambda: whole.resize(5), lambda: raw.extend(b"x"), lambda: numbers.append(1.0)):
                    self.assertRaises((ValueError, BufferError), grow)
            future.result()
            raw.extend(b"x")  # what was held is free again
            numbers.append(1.0)
        found = libdcp.read(self.path)
        self.assertTrue((found["whole"] == 3).all() and (found["raw"] == 0).all())
        self.assertEqual(found["numbers"].sum(), 5000)

    # ---- callbacks that raise ----

    def test_callbacks_of_futures_that_raise_are_logged(self):
        called = []

        def fails(future):
            raise LookupError("from a callback")

        with libdcp.Saver() as saver, self.assertLogs("libdcp", logging.ERROR) as logged:
            future = saver.save({"a": np.zeros(1_000_000)}, self.path)
            future.add_done_callback(fails)
            future.add_done_callback(called.append)
            future.result()
            while not called:
                time.sleep(0.01)
            future.add_done_callback(fails)
        self.assertEqual(called, [future])
        self.assertEqual(sum("LookupError: from a callback" in line for line in logged.output), 2)

    # ---- after the end ----

    def test_what_is_closed_is_not_used(self):
        libdcp.save({"a": np.zeros(3), "o": 1}, self.path)
        checkpoint = libdcp.open(self.path)
        tensor = checkpoint["a"]
        checkpoint.close()
        checkpoint.close()
        for use in (
            lambda: tensor.read(), lambda: tensor.chunks, lambda: tensor.map(), lambda: checkpoint["o"],
            lambda: checkpoint.info(), lambda: tensor.read_into(np.zeros(3)),
        ):  # fmt: skip
            self.assertRaisesRegex(ValueError, "closed", use)
        saver = libdcp.Saver()
        future = saver.save({"a": 1}, self.path, overwrite=True)
        saver.close()
        saver.close()
        self.assertRaisesRegex(ValueError, "closed", saver.save, {"a": 1}, self.path)
        future.result()
        future.cancel()
        self.assertEqual(future.progress(), future.progress())

    def test_a_closed_group_does_not_save_alone(self):
        group = libdcp.Group(Rank(Ranks(1), 0))
        group.close()
        for use in (libdcp.save, libdcp.load):
            self.assertRaisesRegex(ValueError, "the group is closed", use, {"a": 1}, self.path, group=group)
        self.assertRaisesRegex(ValueError, "the group is closed", libdcp.Saver, group=group)
        self.assertFalse(self.path.exists())

    # ---- threads ----

    def test_threads_share_a_saver_and_a_future(self):
        wrong = []
        saver = libdcp.Saver()

        def work(number):
            try:
                for turn in range(4):
                    saver.save({"n": number}, self.path / ("%d.%d" % (number, turn)), sync=False).result()
            except ValueError as error:
                if "closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        future = saver.save({"a": np.zeros(5_000_000)}, self.path / "large")
        waiting = [threading.Thread(target=future.result) for _ in range(3)]
        for thread in waiting:
            thread.start()
        future.result()
        saver.close()
        for thread in threads + waiting:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(wrong, [])

    def test_threads_read_one_checkpoint_until_it_is_closed(self):
        state = {"t%d" % i: np.arange(1000.0) + i for i in range(100)}
        libdcp.save(state, self.path)
        checkpoint, wrong, reads = libdcp.open(self.path), [], []

        def work(first):
            try:
                for i in range(first, first + 10000):
                    name = "t%d" % (i % 100)
                    if not np.array_equal(checkpoint[name][10:900], state[name][10:900]):
                        wrong.append(name)
                    reads.append(name)
            except ValueError as error:
                if "closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(13 * number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        while len(reads) < 600 and not wrong:
            time.sleep(0.001)
        checkpoint.close()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertEqual(wrong, [])

    def test_waiting_beside_another_thread_has_a_deadline(self):
        with libdcp.Saver() as saver:
            future = saver.save({"a": np.zeros(10)}, self.path)
            future.result()
            future._ended.clear()
            with future._waits:
                self.assertRaises(libdcp.DeadlineError, future.result, 0.05)
            future._ended.set()

    # ---- processes ----

    def test_a_forked_child_saves_and_loads(self):
        done = self.run_python(
            """
            saver = libdcp.Saver()
            future = saver.save({"a": np.ones(3_000_000)}, path)
            child = os.fork()
            if child == 0:
                libdcp.save({"b": np.arange(5.0)}, path + ".child")
                found = {"b": np.zeros(5)}
                libdcp.load(found, path + ".child")
                assert found["b"].sum() == 10
                sys.stdout.write("saved")
                sys.stdout.flush()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            future.result()
            saver.close()
            assert status == 0
            """
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "saved", ""))
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 3_000_000)

    def test_a_daemon_saves(self):
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            path = self.path / method
            daemon = context.Process(target=libdcp.save, args=({"a": np.ones(1000)}, path), daemon=True)
            daemon.start()
            daemon.join(60)
            self.assertEqual(daemon.exitcode, 0)
            self.assertEqual(libdcp.read(path)["a"].sum(), 1000)

    def test_python_ends_while_a_daemon_thread_saves(self):
        for call in ("libdcp.save({'a': big}, path, progress=tell, overwrite=True)", "libdcp.read(first)['a'].sum()"):
            done = self.run_python(
                """
                big, begun = np.ones(4_000_000), threading.Event()
                first = path + ".first"
                libdcp.save({"a": big}, first, overwrite=True)

                def tell(done, total):
                    begun.set()

                def work():
                    while True:
                        begun.set()
                        %s

                for _ in range(2):
                    threading.Thread(target=work, daemon=True).start()
                begun.wait()
                """
                % call
            )
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_save_at_exit_is_whole(self):
        done = self.run_python(
            """
            import atexit
            atexit.register(libdcp.save, {"a": np.ones(1000)}, path)
            atexit.register(lambda: libdcp.Saver().save({"a": np.ones(10)}, path + ".later"))
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 1000)
        self.assertEqual(libdcp.read(str(self.path) + ".later")["a"].sum(), 10)

    def test_a_save_needs_no_thread_of_its_own(self):
        refused = RuntimeError("can't create new thread at interpreter shutdown")
        with unittest.mock.patch.object(_library.threading.Thread, "start", side_effect=refused):
            libdcp.save({"a": np.ones(3)}, self.path)
            self.assertEqual(libdcp.read(self.path)["a"].sum(), 3)

    # ---- another library ----

    def test_libraries_of_other_versions_are_refused(self):
        major, minor = _library.INTERFACE
        for number in (major * 10000 + (minor + 1) * 100, (major + 1) * 10000, 0):
            class Other:
                _name = "other.so"

                class dcp_version_number:
                    def __new__(cls, number=number):
                        return number

            with unittest.mock.patch.object(_library.ctypes, "CDLL", lambda *_: Other):
                words = "for version %d.%d of the library, found %d.%d" % (
                    major, minor, number // 10000, number // 100 % 100,
                )  # fmt: skip
                self.assertRaisesRegex(ImportError, words, _library._open)

    def test_libraries_that_lack_something_are_refused(self):
        program = "import libdcp"
        for name, words in (("libc.so.6", "libc.so.6 is another library"), ("no.so", "no.so")):
            environment = dict(os.environ, LIBDCP_LIBRARY=name)
            done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

        class Older:
            _name = "older.so"

        self.assertRaisesRegex(ImportError, "older.so is older than the package", _library._declare, Older)


if __name__ == "__main__":
    unittest.main()
