# SPDX-License-Identifier: BSD-3-Clause
"""What PyTorch wrote, read without it: every value of every fixture."""

import json
import random
import tempfile
import threading
import unittest
from collections import OrderedDict
from pathlib import Path

import numpy as np

import libdcp

FIXTURES = Path(__file__).parents[1] / "fixtures"
NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def number(text):
    return NUMBERS[text] if text in NUMBERS else float.fromhex(text)


class Expectation:
    """Compares a value with its tagged form in expected.json."""

    def __init__(self, test, directory):
        self.test, self.directory = test, directory

    def check(self, tagged, value):
        getattr(self, "check_" + tagged["t"])(tagged, value)

    def check_none(self, tagged, value):
        self.test.assertIsNone(value)

    def check_bool(self, tagged, value):
        self.test.assertIs(value, tagged["v"])

    def check_int(self, tagged, value):
        self.test.assertIs(type(value), int)
        self.test.assertEqual("%d" % value if abs(value) < 10**4000 else "", tagged["v"])

    def check_float(self, tagged, value):
        self.test.assertIs(type(value), float)
        self.test.assertEqual(np.float64(value).tobytes(), np.float64(number(tagged["v"])).tobytes())

    def check_complex(self, tagged, value):
        self.check_float({"v": tagged["re"]}, value.real)
        self.check_float({"v": tagged["im"]}, value.imag)

    def check_str(self, tagged, value):
        self.test.assertIs(type(value), str)
        text = bytes.fromhex(tagged["hex"]).decode() if "hex" in tagged else tagged["v"]
        self.test.assertEqual(value, text)

    def check_bytes(self, tagged, value):
        self.test.assertEqual((type(value), value.hex()), (bytes, tagged["hex"]))

    def check_bytearray(self, tagged, value):
        self.test.assertEqual((type(value), value.hex()), (bytearray, tagged["hex"]))

    def check_list(self, tagged, value, kind=list):
        self.test.assertIs(type(value), kind)
        self.test.assertEqual(len(value), len(tagged["v"]))
        for part, found in zip(tagged["v"], value):
            self.check(part, found)

    def check_tuple(self, tagged, value):
        self.check_list(tagged, value, tuple)

    def check_set(self, tagged, value, kind=set):
        self.test.assertIs(type(value), kind)
        self.check_list(tagged, sorted(value, key=repr))

    def check_frozenset(self, tagged, value):
        self.check_set(tagged, value, frozenset)

    def check_dict(self, tagged, value, kind=dict):
        self.test.assertIs(type(value), kind)
        self.test.assertEqual(len(value), len(tagged["v"]))
        for (key, part), found in zip(tagged["v"], value.items()):
            self.check(key, found[0])
            self.check(part, found[1])

    def check_odict(self, tagged, value):
        self.check_dict(tagged, value, OrderedDict)

    def check_dtype(self, tagged, value):
        self.test.assertEqual((type(value), "torch." + value), (libdcp.Dtype, tagged["v"]))

    def check_device(self, tagged, value):
        self.test.assertEqual((type(value), value), (libdcp.Device, tagged["v"]))

    def check_size(self, tagged, value):
        self.test.assertEqual((type(value), list(value)), (libdcp.Size, tagged["v"]))

    def check_tensor(self, tagged, value):
        self.test.assertEqual(list(value.shape), tagged["shape"])
        self.test.assertEqual(value.tobytes(), (self.directory / tagged["file"]).read_bytes())

    def check_other(self, tagged, value):
        self.test.assertNotEqual(tagged["py_type"], "")


def dcp_cases():
    for case in json.loads((FIXTURES / "index.json").read_text())["cases"]:
        expected = json.loads((FIXTURES / case["expected"]).read_text())
        yield case["case"], (FIXTURES / case["expected"]).parent, expected


class Fixtures(unittest.TestCase):
    def test_every_value_is_what_was_saved(self):
        count = 0
        for name, directory, expected in dcp_cases():
            with self.subTest(name), libdcp.open(directory / expected["checkpoint"]) as checkpoint:
                wanted = {entry["fqn"]: entry for entry in expected["entries"]}
                self.assertEqual(set(checkpoint), set(wanted))
                for fqn, entry in wanted.items():
                    self.check_entry(directory, checkpoint, fqn, entry)
                    count += 1
        self.assertGreater(count, 1000)

    def check_entry(self, directory, checkpoint, fqn, entry):
        value = checkpoint[fqn]
        if entry["type"] == "object":
            Expectation(self, directory).check(entry["value"], value)
            return
        self.assertEqual(
            (value.dtype, list(value.shape), value.nbytes),
            (entry["dtype"], entry["shape"], entry["nbytes"]),
        )
        self.assertEqual(
            value.read(raw=True).tobytes(), (directory / entry["file"]).read_bytes(), fqn
        )
        self.assertEqual(sum(np.prod(chunk.sizes) for chunk in value.chunks), np.prod(value.shape))

    def test_any_slice_is_that_of_the_whole(self):
        source = random.Random(1)
        for name, directory, expected in dcp_cases():
            if not name.startswith(("shapes", "layouts", "fsdp2", "zstd")):
                continue
            with self.subTest(name), libdcp.open(directory / expected["checkpoint"]) as checkpoint:
                for tensor in checkpoint.tensors():
                    whole = tensor.read(raw=True)
                    for _ in range(5):
                        index = any_index(source, tensor.shape)
                        np.testing.assert_array_equal(tensor.read(index, raw=True), whole[index])

    def test_paths_nest(self):
        directory = FIXTURES / "nesting"
        expected = json.loads((directory / "expected.json").read_text())
        with libdcp.open(directory / "ckpt") as checkpoint:
            for entry in expected["entries"]:
                self.assertEqual(list(checkpoint.path(entry["fqn"])), entry["path"])
        state = libdcp.read(directory / "ckpt")
        for entry in expected["entries"]:
            value = state
            for key in entry["path"]:
                value = value[key]


def any_index(source, shape):
    parts = []
    for size in shape:
        kind = source.randrange(4)
        if kind == 0 and size > 0:
            parts.append(source.randrange(-size, size))
        elif kind == 1:
            parts.append(slice(None))
        else:
            ends = [source.choice([None, source.randint(-size - 1, size + 1)]) for _ in range(2)]
            parts.append(slice(*ends, source.choice([None, 1, 2, -1, -3])))
    if source.random() < 0.3 and parts:
        parts[source.randrange(len(parts)) :] = [...]
    return tuple(parts)


class Checkpoints(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = Path(temporary.name) / "checkpoint"
        self.array = np.arange(200_000, dtype="f4").reshape(500, 400)
        libdcp.save({"w": self.array, "e": np.zeros((0, 3)), "n": 1}, self.path)

    def test_arrays_and_mappings_outlive_the_checkpoint(self):
        checkpoint = libdcp.open(self.path)
        shown = checkpoint["w"].map()
        part = checkpoint["w"][3:5]
        tensor = checkpoint["w"]
        self.assertEqual(checkpoint["e"].map().shape, (0, 3))
        checkpoint.close()
        np.testing.assert_array_equal(shown, self.array)
        np.testing.assert_array_equal(part, self.array[3:5])
        self.assertFalse(shown.flags.writeable)
        for use in (lambda: tensor[0], lambda: checkpoint["w"], checkpoint.info, tensor.map):
            self.assertRaisesRegex(ValueError, "closed", use)
        checkpoint.close()

    def test_arrays_are_made_where_they_are_asked_for(self):
        with libdcp.open(self.path) as checkpoint:
            tensor = checkpoint["w"]
            np.testing.assert_array_equal(np.asarray(tensor), self.array)
            np.testing.assert_array_equal(np.from_dlpack(tensor), self.array)
            self.assertEqual(len(tensor), 500)
            place = np.zeros((400, 2), "f4").T
            tensor.read_into(place, (7, 0))
            np.testing.assert_array_equal(place, self.array[7:9])

    def test_wrong_indices_and_arrays_are_refused(self):
        with libdcp.open(self.path) as checkpoint:
            tensor = checkpoint["w"]
            for index in (500, -501, (0, 0, 0), (..., ...)):
                self.assertRaises(IndexError, tensor.read, index)
            self.assertRaises(TypeError, tensor.read, "a")
            self.assertRaises(TypeError, tensor.read, [1, 2])
            self.assertRaises(TypeError, tensor.read_into, np.zeros((2, 400), "f8"))
            self.assertRaises(ValueError, tensor.read_into, np.zeros(400, "f4"))
            self.assertRaises(libdcp.Error, tensor.read_into, np.zeros((501, 400), "f4"))
            read_only = np.zeros((1, 400), "f4")
            read_only.flags.writeable = False
            self.assertRaises(TypeError, tensor.read_into, read_only)
            self.assertRaises(KeyError, lambda: checkpoint["x"])

    def test_threads_read_and_one_closes(self):
        checkpoint = libdcp.open(self.path)
        wrong = []

        def read(number):
            source = random.Random(number)
            try:
                for _ in range(2000):
                    row = source.randrange(500)
                    if not np.array_equal(checkpoint["w"][row], self.array[row]):
                        wrong.append(row)
            except ValueError as error:
                if "closed" not in str(error):
                    wrong.append(error)

        threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        checkpoint.close()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_damage_is_noticed(self):
        file = self.path / "__0_0.distcp"
        with libdcp.open(self.path) as checkpoint:
            offset = checkpoint["w"].chunks[0].offset + 5000
        content = bytearray(file.read_bytes())
        content[offset] ^= 1
        file.write_bytes(content)
        self.assertEqual({fault.file for fault in libdcp.verify(self.path)}, {file.name})
        with libdcp.open(self.path) as checkpoint:
            self.assertRaises(libdcp.FormatError, checkpoint["w"].read)
        with libdcp.open(self.path, verify=False) as checkpoint:
            checkpoint["w"].read()

    def test_what_is_not_there_is_said(self):
        with self.assertRaises(libdcp.NotFoundError) as caught:
            libdcp.open(self.path / "other")
        self.assertIsInstance(caught.exception, FileNotFoundError)
        self.assertIn("other", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
