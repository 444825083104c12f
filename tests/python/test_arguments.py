# SPDX-License-Identifier: BSD-3-Clause
"""Arguments that do not fit, and arrays of other packages: an exception that says what is wrong, never another meaning."""

import os
import tempfile
import unittest
from pathlib import Path

import numpy as np

import libdcp
from test_save_load import Rank, Ranks


class Foreign:
    """An array of a package whose dtypes NumPy does not take by DLPack, such as JAX's in bfloat16."""

    def __init__(self, elements):
        self.elements = elements

    def __dlpack__(self, **_):
        raise RuntimeError("Unsupported dtype in DLTensor.")

    def __dlpack_device__(self):
        return (1, 0)

    def __array__(self, dtype=None, copy=None):
        return self.elements


class Exported:
    """An array of which nothing but DLPack is known."""

    def __init__(self, elements):
        self.elements = elements

    def __dlpack__(self, **arguments):
        return self.elements.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.elements.__dlpack_device__()


class Arguments(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"

    def test_what_is_no_group_is_refused(self):
        class Communicator(Rank):
            handle = 1140850688  # as that of mpi4py's

        for group in (Communicator(Ranks(1), 0), 7, True):
            for use in (libdcp.save, libdcp.load):
                self.assertRaisesRegex(TypeError, "group is a libdcp.Group, not a", use, {"a": 1}, self.path, group=group)
            self.assertRaisesRegex(TypeError, "group is a libdcp.Group, not a", libdcp.Saver, group=group)

    def test_texts_with_a_nul_are_not_cut(self):
        path = str(self.path) + "\0more"
        libdcp.save({"a": 1}, self.path)
        for use in (
            lambda: libdcp.save({"a": 1}, path), lambda: libdcp.load({"a": 1}, path), lambda: libdcp.open(path),
            lambda: libdcp.verify(path), lambda: libdcp.read(self.path, members=[path]),
            lambda: libdcp.load({"a": 1}, self.path, include=["a\0b"]), lambda: libdcp.Saver(fallback=path),
        ):  # fmt: skip
            self.assertRaisesRegex(ValueError, "has a NUL inside", use)
        with libdcp.Saver() as saver:
            self.assertRaisesRegex(ValueError, "has a NUL inside", saver.save, {"a": 1}, path)

    def test_paths_are_bytes_or_texts_of_any_bytes(self):
        odd = os.fsdecode(os.fsencode(self.path) + b"\xff")
        libdcp.save({"a": np.ones(3)}, odd)
        for path in (odd, os.fsencode(odd), Path(odd)):
            self.assertEqual(libdcp.read(path)["a"].sum(), 3)
            self.assertEqual(libdcp.read(self.path.parent, members=[path])["a"].sum(), 3)

    def test_one_text_is_no_sequence_of_texts(self):
        libdcp.save({"a": 1}, self.path)
        for named in ({"include": "a*"}, {"exclude": "b"}, {"members": str(self.path)}):
            with self.assertRaisesRegex(TypeError, "is a sequence of texts, not one"):
                libdcp.load({"a": 0}, self.path, **named)
        libdcp.load({"a": 0}, self.path, include=(text for text in ["a"]))

    def test_numbers_are_not_cut(self):
        libdcp.save({"a": np.ones(3)}, self.path)
        for named in ({"step": 2**63}, {"threads": 2**32}, {"memory_limit": -1}, {"memory_limit": 2**64 + 10**9}):
            with self.assertRaisesRegex(libdcp.ArgumentError, r"%s is -?\d+, expected" % next(iter(named))):
                libdcp.save({"a": 1}, self.path, overwrite=True, **named)
        for named in ({"threads": -(2**32)}, {"memory_limit": 2**64}):
            with self.assertRaisesRegex(libdcp.ArgumentError, r"is -?\d+, expected"):
                libdcp.load({"a": np.ones(3)}, self.path, **named)
        self.assertRaises(libdcp.ArgumentError, libdcp.Saver, retries=2**32 + 1)
        self.assertRaises(libdcp.ArgumentError, libdcp.Sharded, (2**63,), [((0,), np.ones(2))])
        self.assertRaises(libdcp.ArgumentError, libdcp.Sharded, (4,), [((2**64,), np.ones(2))])
        self.assertRaises(libdcp.ArgumentError, libdcp.save, {"a": (libdcp.Size((2**70,)),)}, self.path)
        with libdcp.open(self.path) as checkpoint:
            tensor = checkpoint["a"]
            for use in (
                lambda: tensor.map(2**64), lambda: tensor.map(-1), lambda: checkpoint.stream("a", 2**64),
                lambda: tensor.read_into(np.zeros(1), (2**64,)), lambda: tensor.read_into(np.zeros(1), (-1,)),
            ):  # fmt: skip
                self.assertRaises(libdcp.ArgumentError, use)
            self.assertRaises(TypeError, tensor.map, "0")

    def test_indices_that_numpy_takes_for_masks_are_refused(self):
        libdcp.save({"a": np.arange(6.0).reshape(2, 3)}, self.path)
        with libdcp.open(self.path) as checkpoint:
            for index in (True, np.True_, (0, False), None, [0, 1], 1.0, "a"):
                with self.assertRaises(TypeError):
                    checkpoint["a"][index]
            self.assertEqual(checkpoint["a"][np.int64(1), -1], 5)

    def test_reads_into_arrays_of_other_packages(self):
        libdcp.save({"a": np.arange(6.0).reshape(2, 3)}, self.path)
        with libdcp.open(self.path) as checkpoint:
            place, row = np.zeros((2, 3)), np.zeros((1, 3))
            if not np.from_dlpack(Exported(place)).flags.writeable:  # as of NumPy before 2.1
                self.assertRaises(TypeError, checkpoint["a"].read_into, Exported(place))
                self.skipTest("this NumPy writes into no array that it has by DLPack")
            checkpoint["a"].read_into(Exported(place))
            np.testing.assert_array_equal(place, np.arange(6.0).reshape(2, 3))
            checkpoint["a"].read_into(row[:, ::-1], (1, 0))
            np.testing.assert_array_equal(row, [[5, 4, 3]])
            for wrong in ([1.0], Foreign(place), np.zeros((2, 3), "f4"), np.broadcast_to(0.0, (2, 3))):
                with self.assertRaises(TypeError):
                    checkpoint["a"].read_into(wrong)
            for wrong in (np.zeros(3), np.zeros((2, 3, 1))):
                with self.assertRaises(ValueError):
                    checkpoint["a"].read_into(wrong)

    def test_arrays_without_dlpack_for_their_dtype_are_saved_and_not_loaded_into(self):
        elements = np.arange(6.0).reshape(2, 3)
        libdcp.save({"a": Foreign(elements), "b": Exported(elements)}, self.path)
        found = libdcp.read(self.path)
        np.testing.assert_array_equal(found["a"], elements)
        np.testing.assert_array_equal(found["b"], elements)
        with self.assertRaisesRegex(TypeError, r"\['a'\]: a Foreign: Unsupported dtype"):
            libdcp.load({"a": Foreign(np.zeros((2, 3)))}, self.path)

    def test_masks_are_not_dropped(self):
        masked = np.ma.masked_array([1.0, 2.0], [False, True])
        self.assertRaisesRegex(TypeError, "masked array", libdcp.save, {"a": masked}, self.path)
        libdcp.save({"a": masked.data, "mask": masked.mask}, self.path)
        self.assertRaisesRegex(TypeError, "masked array", libdcp.load, {"a": masked}, self.path)

    def test_all_of_a_closed_checkpoint_is_closed(self):
        libdcp.save({"a": np.ones(3)}, self.path)
        checkpoint = libdcp.open(self.path)
        checkpoint.close()
        for use in (
            checkpoint.tensors, lambda: checkpoint.stream("a"), lambda: checkpoint.path("a"), lambda: checkpoint["a"],
        ):  # fmt: skip
            self.assertRaisesRegex(ValueError, "closed", use)


if __name__ == "__main__":
    unittest.main()
