# SPDX-License-Identifier: BSD-3-Clause
"""States of Python saved and loaded: values, arrays, ranks, interruptions."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
import unittest.mock
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np

import libdcp

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

VALUES = {
    "none": None,
    "flags": (True, False),
    "ints": [0, -1, 2**63 - 1, -(2**63), 2**64, -(10**300)],
    "floats": [0.1, -0.0, float("inf"), 5e-324],
    "complex": 1.5 - 2j,
    "text": "häß\0lich",
    "bytes": b"\0\xff",
    "bytearray": bytearray(b"abc"),
    "ordered": OrderedDict([("b", 1), ("a", (2, [3]))]),
    "dtype": libdcp.Dtype("bfloat16"),
    "size": libdcp.Size((2, 0, 3)),
    "device": libdcp.Device("cuda:1"),
    "empty": [(), [], ""],
    "set": {"only"},
    "frozenset": frozenset([(1, "a")]),
    "keys": ({1: "int", (2, None): "tuple", 0.5: "float", b"b": "bytes", None: "none"},),
}


class Trial(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"


class Values(Trial):
    def test_ints_that_python_writes_in_parts(self):
        values = {str(i): value for i, value in enumerate((10**3999, 10**4000 - 1, -(10**4000), 3**10000, -(10**4400)))}
        libdcp.save(values, self.path)
        self.assertTrue(libdcp.read(self.path) == values)

    def test_values_come_back_as_they_were(self):
        libdcp.save({"values": VALUES}, self.path)
        found = libdcp.read(self.path)["values"]
        self.assertEqual(repr(dict(found, ordered=0)), repr(dict(VALUES, ordered=0)))
        self.assertEqual(dict(found["ordered"]), dict(VALUES["ordered"]))

    def test_arrays_of_every_layout(self):
        base = np.arange(2 * 3 * 4, dtype="i4").reshape(2, 3, 4)
        arrays = [base, base.T, base[:, ::2, ::-1], base[0, 0, 0], base[:0], np.asfortranarray(base)]
        arrays += [base.astype(kind) for kind in "?bBhHiIlLefdFD"]
        if ml_dtypes:
            arrays += [base.astype(ml_dtypes.bfloat16), base.astype(ml_dtypes.float8_e4m3fn)]
        state = {"a": [np.asarray(array) for array in arrays]}
        libdcp.save(state, self.path)
        found = libdcp.read(self.path)
        for mine, theirs in zip(state["a"], found["a"]):
            self.assertEqual((mine.dtype, mine.shape), (theirs.dtype, theirs.shape))
            np.testing.assert_array_equal(mine, theirs)
        libdcp.load({"a": [np.zeros_like(array) for array in state["a"]]}, self.path)

    def test_loading_is_in_place(self):
        w = np.arange(12.0).reshape(3, 4)
        libdcp.save({"m": {"w": w, "l": [w, {"k": (1, 2)}]}, "step": 9}, self.path)
        mine = {"m": {"w": np.zeros((3, 4)), "l": [np.zeros((4, 3)).T, {"k": 0}]}, "step": 0}
        place, inner = mine["m"]["w"], mine["m"]
        self.assertEqual(libdcp.load(mine, self.path), [])
        self.assertIs(mine["m"], inner)
        self.assertIs(mine["m"]["w"], place)
        np.testing.assert_array_equal(place, w)
        np.testing.assert_array_equal(mine["m"]["l"][0], w)
        self.assertEqual((mine["step"], mine["m"]["l"][1]), (9, {"k": (1, 2)}))

    def test_arrays_inside_of_objects_are_loaded_too(self):
        w = np.arange(6.0).reshape(2, 3)

        def state(array):
            return {"m": [(array(w), [array(w[::-1]), {"k": array(w[0])}]), OrderedDict(x=(array(w), 1))], "n": 1}

        libdcp.save(state(np.copy), self.path)
        mine = state(np.zeros_like)
        places = [mine["m"][0][0], mine["m"][0][1][0], mine["m"][0][1][1]["k"]]
        libdcp.load(mine, self.path)
        self.assertEqual(repr(mine), repr(state(np.copy)))
        for place, found in zip(places, (mine["m"][0][0], mine["m"][0][1][0], mine["m"][0][1][1]["k"])):
            self.assertIs(place, found)
        fresh = {"m": [(np.zeros(5), 7), OrderedDict(x=())], "n": 0}  # what does not fit is made anew
        libdcp.load(fresh, self.path)
        self.assertEqual(repr(fresh), repr(state(np.copy)))
        turned = state(lambda array: np.zeros_like(array)[..., ::-1])
        place = turned["m"][0][0]
        libdcp.load(turned, self.path)
        self.assertIs(turned["m"][0][0], place)
        np.testing.assert_array_equal(place, w)

    def test_differences_are_errors_or_told(self):
        libdcp.save({"a": np.zeros(3, "f4"), "b": 1}, self.path)
        with self.assertRaisesRegex(libdcp.MismatchError, "c"):
            libdcp.load({"c": 1}, self.path)
        with self.assertRaises(libdcp.MismatchError):
            libdcp.load({"a": np.zeros(3, "f8")}, self.path)
        lines = libdcp.load({"a": np.zeros(3, "f8"), "c": 1}, self.path, convert=True, strict="partial")
        self.assertEqual(
            [(line.kind, line.name) for line in lines],
            [("missing", "c"), ("unexpected", "b"), ("converted", "a")],
        )
        libdcp.load({"c": 1, "b": 0}, self.path, exclude=["c"])

    def test_what_cannot_be_saved_is_named_with_its_place(self):
        point = namedtuple("point", "x y")(1, 2)
        cases = [
            ({"a": [{"b": object()}]}, r"\['a'\]\[0\]\['b'\]: a value of type builtins.object"),
            ({"a": point}, "point"),
            ({"a": np.float32(1)}, "NumPy scalar"),
            ({"a": np.zeros(3, ">f4")}, "byte order"),
            ({"a": np.zeros(3, "U4")}, "array of"),
            ({"a": np.zeros(3, "M8[s]")}, "array of"),
            ([], "a state is a dict"),
        ]
        for state, words in cases:
            with self.assertRaisesRegex(TypeError, words):
                libdcp.save(state, self.path)
            self.assertFalse(self.path.exists())
        odd = np.frombuffer(bytes(40), dtype=np.dtype("V10")).view("V10").view([("a", "f4"), ("b", "V6")])
        with self.assertRaisesRegex(TypeError, "strides"):
            libdcp.save({"a": odd["a"]}, self.path)
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        libdcp.save({"a": read_only}, self.path)
        with self.assertRaisesRegex(TypeError, "read-only"):
            libdcp.load({"a": read_only}, self.path)

    def test_overwriting_is_asked_for(self):
        libdcp.save({"a": 1}, self.path, step=3, info={"run": "x"})
        with self.assertRaises(libdcp.ExistsError) as caught:
            libdcp.save({"a": 2}, self.path)
        self.assertIsInstance(caught.exception, FileExistsError)
        libdcp.save({"a": 2}, self.path, overwrite=True, step=4, compression="zstd")
        with libdcp.open(self.path) as checkpoint:
            self.assertEqual((checkpoint["a"], checkpoint.info().step), (2, 4))


class Ranks:
    """Communicators of threads, by two methods each."""

    def __init__(self, size, timeout=60):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=timeout)
        self.parts = [b""] * size

    def exchange(self, rank, part):
        self.barrier.wait()
        self.parts[rank] = part
        self.barrier.wait()
        parts = list(self.parts)
        self.barrier.wait()
        return parts

    def run(self, work, kind=None):
        errors = [None] * self.size

        def play(rank):
            try:
                with libdcp.Group((kind or Rank)(self, rank)) as group:
                    work(rank, group)
            except BaseException as error:
                errors[rank] = error

        threads = [threading.Thread(target=play, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


class Rank:
    def __init__(self, ranks, rank):
        self.ranks, self.rank = ranks, rank

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.ranks.size

    def allgather(self, sendobj):
        return self.ranks.exchange(self.rank, sendobj)

    def bcast(self, obj, root):
        return self.ranks.exchange(self.rank, obj)[root]


class Sender(Rank):
    """One with messages from each rank to each other."""

    sent = 0

    def alltoall(self, sendobj):
        Sender.sent += sum(len(part) for part in sendobj)
        return [parts[self.rank] for parts in self.ranks.exchange(self.rank, sendobj)]


class Groups(Trial):
    def save_row(self, rank, group):
        part = libdcp.Sharded((5, 7), [((rank, 0), np.full((1, 7), float(rank)))])
        libdcp.save({"w": part}, self.path, group=group, timeout=30)

    def test_ranks_that_send_to_each_other(self):
        self.assertEqual(Ranks(5).run(self.save_row, Sender), [None] * 5)
        self.assertGreater(Sender.sent, 0)
        np.testing.assert_array_equal(libdcp.read(self.path)["w"], np.repeat(np.arange(5.0), 7).reshape(5, 7))

    def test_messages_of_another_size_are_an_error(self):
        class Cut(Sender):
            def alltoall(self, sendobj):
                return [part[1:] for part in super().alltoall(sendobj)]

        errors = Ranks(5, timeout=2).run(self.save_row, Cut)
        self.assertRegex(str(errors[0]), r"alltoall gave \[0, \d+, 0, 0, 0\] bytes of the ranks, \[0, \d+, 0, 0, 0\] were expected")
        self.assertFalse((self.path / ".metadata").exists())

    def test_ranks_save_and_load_at_other_divisions(self):
        whole = np.arange(700.0).reshape(100, 7)

        def rows(rank, size):
            return slice(rank * 100 // size, (rank + 1) * 100 // size)

        def save(rank, group):
            mine = rows(rank, 3)
            part = libdcp.Sharded((100, 7), [((mine.start, 0), whole[mine])])
            libdcp.save({"w": part, "common": np.ones(5), "step": 1}, self.path, group=group)

        def load(rank, group):
            mine = rows(rank, 4)
            place = np.zeros((mine.stop - mine.start, 7))
            half = place.shape[0] // 2
            chunks = [((mine.start, 0), place[:half]), ((mine.start + half, 0), place[half:])]
            state = {"w": libdcp.Sharded((100, 7), chunks), "step": 0}
            libdcp.load(state, self.path, group=group)
            np.testing.assert_array_equal(place, whole[mine])
            assert state["step"] == 1

        self.assertEqual(Ranks(3).run(save), [None] * 3)
        self.assertEqual(Ranks(4).run(load), [None] * 4)
        np.testing.assert_array_equal(libdcp.read(self.path)["w"], whole)

    def test_one_failure_is_the_failure_of_all(self):
        def load(rank, group):
            libdcp.load({"w": np.zeros(3 + rank)}, self.path, group=group)

        libdcp.save({"w": np.zeros(3)}, self.path)
        errors = Ranks(2).run(load)
        for error in errors:
            self.assertIsInstance(error, libdcp.MismatchError)

    def test_what_one_rank_cannot_describe_fails_on_all(self):
        libdcp.save({"w": np.zeros(3)}, self.path)

        def saved_async(state, path, group):
            with libdcp.Saver(group=group) as saver:
                saver.save(state, path, timeout=30).result()

        calls = (
            lambda state, group: libdcp.save(state, self.path, group=group, overwrite=True, timeout=30),
            lambda state, group: saved_async(state, self.path, group),
            lambda state, group: libdcp.load(state, self.path, group=group, timeout=30),
        )
        for call in calls:
            errors = Ranks(3).run(lambda rank, group: call({"w": object() if rank == 1 else np.zeros(3)}, group))
            self.assertIs(type(errors[1]), TypeError)
            for error in (errors[0], errors[2]):
                self.assertIsInstance(error, libdcp.Error)
                self.assertRegex(str(error), r"rank 1: .*TypeError: \['w'\]: a value of type builtins.object")
        self.assertEqual(libdcp.read(self.path)["w"].sum(), 0)

    def test_what_a_progress_function_raises_comes_back(self):
        def refuse(done, total):
            raise LookupError("enough")

        errors = Ranks(2).run(
            lambda rank, group: libdcp.save(
                {"w": np.ones(100_000)}, self.path, group=group, progress=refuse if rank else None, timeout=30
            )
        )
        self.assertIs(type(errors[1]), LookupError)
        self.assertIsInstance(errors[0], libdcp.CancelledError)
        self.assertFalse((self.path / ".metadata").exists())

    def test_what_a_communicator_raises_comes_back(self):
        class Broken(Rank):
            def allgather(self, sendobj):
                raise LookupError("no such wire")

        with libdcp.Group(Broken(Ranks(2), 0)) as group:
            with self.assertRaisesRegex(LookupError, "no such wire"):
                libdcp.save({"a": 1}, self.path, group=group, timeout=5)
        self.assertFalse((self.path / ".metadata").exists())


class Interruptions(Trial):
    def test_progress_is_told_and_its_exception_comes_back(self):
        seen = []
        state = {"a": np.zeros(1_000_000)}
        libdcp.save(state, self.path, progress=lambda done, total: seen.append((done, total)))
        self.assertGreaterEqual(seen[-1][0], 8_000_000)

        def refuse(done, total):
            raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            libdcp.save(state, self.path, overwrite=True, progress=refuse)
        libdcp.load({"a": np.ones(1_000_000)}, self.path)

    def test_progress_is_shown_by_tqdm_if_it_is_there(self):
        shown = []

        class Bar:
            def __init__(self, **named):
                self.n, self.total, self.named, self.closed = 0, None, named, False
                shown.append(self)

            def update(self, more):
                self.n += more

            def close(self):
                self.closed = True

        state = {"a": np.zeros(1_000_000)}
        with unittest.mock.patch.dict(sys.modules, tqdm=types.SimpleNamespace(tqdm=Bar)):
            libdcp.save(state, self.path, progress=True)
            libdcp.load(state, self.path, progress=True)
            libdcp.verify(self.path, progress=True)
        self.assertEqual([bar.named["desc"] for bar in shown], ["saving", "loading", "verifying"])
        for bar in shown:
            self.assertTrue(bar.closed)
            self.assertGreaterEqual(bar.n, 8_000_000)
            self.assertEqual(bar.n, bar.total)
        with unittest.mock.patch.dict(sys.modules, tqdm=None):
            libdcp.save(state, self.path, overwrite=True, progress=True)

    def test_control_c_ends_loading_and_verifying(self):
        state = {"a": np.zeros(20_000_000)}
        libdcp.save(state, self.path)
        for call in (lambda slow: libdcp.load(state, self.path, progress=slow), lambda slow: libdcp.verify(self.path, progress=slow)):
            interrupted = []

            def slow(done, total):
                if not interrupted:
                    interrupted.append(done)
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)

            before = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                call(slow)
            self.assertLess(time.monotonic() - before, 30)
            self.assertTrue(interrupted)
        self.assertEqual(libdcp.verify(self.path), [])

    def test_control_c_ends_a_save(self):
        interrupted = threading.Event()

        def slow(done, total):
            if not interrupted.is_set():
                interrupted.set()
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

        before = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            libdcp.save({"a": np.zeros(20_000_000)}, self.path, progress=slow)
        self.assertLess(time.monotonic() - before, 30)
        self.assertFalse((self.path / ".metadata").exists())

    def run_python(self, text):
        program = "import sys, numpy as np, libdcp\npath = sys.argv[1]\n" + textwrap.dedent(text)
        return subprocess.run(
            [sys.executable, "-c", program, str(self.path)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def test_the_end_of_the_program_waits_for_a_save(self):
        done = self.run_python(
            """
            saver = libdcp.Saver()
            future = saver.save({"a": np.ones(3_000_000)}, path)
            future.add_done_callback(lambda _: print("ended", flush=True))
            del future
            """
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ended\n", ""))
        self.assertEqual(libdcp.read(self.path)["a"].sum(), 3_000_000)

    def test_a_forked_child_may_end(self):
        libdcp.save({"a": np.ones(3)}, self.path)
        done = self.run_python(
            """
            import os
            checkpoint = libdcp.open(path)
            child = os.fork()
            if child == 0:
                assert checkpoint["a"].read().sum() == 3
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0 and checkpoint["a"].read().sum() == 3
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
