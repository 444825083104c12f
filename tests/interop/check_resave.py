#!/usr/bin/env python3
"""Objects of many classes, read by us and saved again, are what they were.

    python check_resave.py RESAVE DCP

Writes torch.save files of several protocols, has RESAVE make checkpoints of them, and loads these; also a
checkpoint of PyTorch's, whose objects are copied as the streams that are stored.
Names are those of PyTorch's own flattening. What DCP says of each file must be sound.
"""
import argparse
import collections
import datetime
import decimal
import enum
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import uuid
import warnings

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

warnings.filterwarnings("ignore")


class Outer:
    class Color(enum.Enum):
        RED = 1

    class Point(collections.namedtuple("Point", "x y")):
        __qualname__ = "Outer.Point"


class Holder:
    """Refers to itself, and has slots beside its dict."""

    __slots__ = ("slot", "__dict__")

    def __init__(self):
        self.slot, self.me, self.items = 3, self, [1, 2]

    def __eq__(self, other):
        return self.slot == other.slot and other.me is other and self.items == other.items


def attributes():
    ordered = collections.OrderedDict(a=1, b=2)
    ordered._metadata = collections.OrderedDict(version=2)
    return (ordered,)


def objects():
    numpy_random = np.random.RandomState(3)
    return {
        "numpy": {
            "float64": np.float64(0.1),
            "int32": np.int32(-7),
            "bool": np.bool_(True),
            "half": np.float16(1.5),
            "complex": np.complex64(1 - 2j),
            "text": np.str_("x"),
            "array": np.arange(12, dtype=np.float32).reshape(3, 4),
            "fortran": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
            "empty": np.zeros((0, 3)),
            "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
            "dtype": np.dtype("float32"),
            "shared": (lambda a: (a, a))(np.arange(3)),
        },
        "rng": {
            "torch": torch.get_rng_state(),
            "numpy": numpy_random.get_state(),
            "legacy": numpy_random,
            "generator": np.random.default_rng(5),
            "python": random.Random(4).getstate(),
        },
        "collections": {
            "deque": collections.deque([1, 2, "x"], maxlen=5),
            "unbounded": collections.deque(range(2500)),
            "default": (collections.defaultdict(list, a=[1], b=[2]),),
            "counter": (collections.Counter("hello"),),
            "ordered": (collections.OrderedDict(b=1, a=2),),
            "attributes": attributes(),
            "set": {1, 2, 3},
            "frozenset": frozenset("ab"),
            "chain": (collections.ChainMap({"a": 1}, {"b": 2}),),
        },
        "times": {
            "datetime": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc),
            "date": datetime.date(2026, 1, 2),
            "time": datetime.time(1, 2),
            "delta": datetime.timedelta(days=1, seconds=2),
        },
        "values": {
            "namespace": argparse.Namespace(lr=0.1, layers=[1, 2], nested=argparse.Namespace(x=1)),
            "path": pathlib.PurePosixPath("/a/b"),
            "uuid": uuid.UUID(int=5),
            "decimal": decimal.Decimal("1.10"),
            "range": range(3, 9, 2),
            "slice": slice(1, None, 2),
            "enum": Outer.Color.RED,
            "named": Outer.Point(1, 2),
            "type": int,
            "function": os.path.join,
            "holder": Holder(),
            "surrogate": "\ud800x",
            "large": 3 ** 20000,
            "many": [np.float64(i) for i in range(2001)],
            "sizes": (torch.Size([1, 2]), torch.float32, torch.device("cpu")),
        },
    }


def state():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    base = torch.arange(24.0)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "keys": {0: torch.ones(2), True + 1: 3, (1, "a"): 4, None: 5, 1.5: 6, -3: {7: "x"}},
        "views": {"whole": base, "rows": base.view(4, 6)[1:3], "column": base.view(4, 6)[:, 2],
                  "transposed": base.view(4, 6).t(), "expanded": base[3].expand(2, 2)},
        "objects": objects(),
    }


def equal(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.strides == b.strides and np.array_equal(a, b)
    if isinstance(a, np.random.RandomState):
        return equal(a.get_state(), b.get_state())
    if isinstance(a, np.random.Generator):
        return a.bit_generator.state == b.bit_generator.state
    if isinstance(a, (list, tuple, collections.deque)):
        same_limit = getattr(a, "maxlen", None) == getattr(b, "maxlen", None)
        return same_limit and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        if getattr(a, "default_factory", None) != getattr(b, "default_factory", None):
            return False
        return (list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
                and getattr(a, "__dict__", None) == getattr(b, "__dict__", None))
    return a == b


def check(resave, command, folder, protocol):
    wanted, _ = flatten_state_dict(state())
    path, out = os.path.join(folder, "all%d.pt" % protocol), os.path.join(folder, "all%d" % protocol)
    torch.save(state(), path, pickle_protocol=protocol)
    wanted, _ = flatten_state_dict(torch.load(path, weights_only=False))
    failures = []
    for run in ([command, "verify", path], [resave, path, out], [command, "verify", out]):
        done = subprocess.run(run, capture_output=True, text=True)
        if done.returncode != 0:
            return ["%s: %s%s" % (" ".join(run), done.stdout, done.stderr)]
    listing = subprocess.run([command, "ls", "--json", path], capture_output=True, check=True)
    listed = {e["name"]: e for e in json.loads(listing.stdout)["entries"]}
    if set(listed) != set(wanted):
        failures.append("%s: %s" % (path, sorted(set(listed) ^ set(wanted))))
    target = {k: torch.zeros_like(v) if isinstance(v, torch.Tensor) else None for k, v in wanted.items()}
    dcp.load(target, checkpoint_id=out)
    for name, value in wanted.items():
        if not equal(value, target[name]):
            failures.append("%s: %s: %r, expected %r" % (path, name, target[name], value))
    if target["objects.numpy.shared"][0] is not target["objects.numpy.shared"][1]:
        failures.append("%s: a value that was shared is there twice" % path)
    for name in ("optimizer.state.0.exp_avg", "keys.(1, 'a')", "keys.None", "keys.1.5", "keys.-3.7"):
        if name not in listed:
            failures.append("%s: there is no %s" % (path, name))
        elif subprocess.run([command, "cat", path, name], capture_output=True).returncode != 0:
            failures.append("%s: cat %s" % (path, name))
    return failures


def check_streams(resave, folder):
    """A checkpoint of PyTorch's, its objects copied as the streams that are stored."""
    path, out = os.path.join(folder, "source"), os.path.join(folder, "streams")
    dcp.save(state(), checkpoint_id=path)
    done = subprocess.run([resave, path, out, "streams"], capture_output=True, text=True)
    if done.returncode != 0:
        return ["%s: %s" % (path, done.stderr)]
    wanted, _ = flatten_state_dict(state())
    targets = []
    for folder in (path, out):
        target = {k: torch.zeros_like(v) if isinstance(v, torch.Tensor) else None for k, v in wanted.items()}
        dcp.load(target, checkpoint_id=folder)
        targets.append(target)
    return ["%s: %s: %r, expected %r" % (out, name, targets[1][name], targets[0][name])
            for name in wanted if not equal(targets[0][name], targets[1][name])]


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            failures += check(sys.argv[1], sys.argv[2], folder, protocol)
        failures += check_streams(sys.argv[1], folder)
    print("\n".join(failures) or "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
