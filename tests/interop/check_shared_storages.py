#!/usr/bin/env python3
"""Tensors of an object that share a storage share it after they were read by us and saved again.

    python check_shared_storages.py RESAVE

Writes torch.save files of several protocols and a checkpoint of PyTorch's, has RESAVE make checkpoints of them,
and loads these: values, dtypes, strides, offsets, sizes of storages, which tensors share one, and which are one
object must be as before, and streams as torch.save would write them.
"""
import argparse
import collections
import io
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
import zipfile

import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")

ELEMENTS = 100000


def values():
    """Name -> an object, and whether the pickle of its stream is byte for byte torch.save's."""
    base = torch.arange(float(ELEMENTS))
    few = torch.arange(24.0)
    raw = torch.arange(64, dtype=torch.uint8)
    grad = torch.ones(6, requires_grad=True)
    tied = torch.ones(5)
    weight = torch.nn.Parameter(torch.arange(8.0))
    narrow = torch.nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn))
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    return {
        "three": ((base, base.view(250, 400)[:, 3:5].t(), base[17:].expand(3, ELEMENTS - 17)), True),
        "kinds": ((few.view(4, 6), few.view(4, 6)[1:3, ::2], few[3], few[5:5], few[24:], few[:, None], few[7].expand(2, 0),
                   few.as_strided((3, 4), (1, 2), 5), torch.zeros(0), torch.tensor(3)), True),
        "widths": ((raw, raw.view(torch.uint16), raw[8:].view(torch.uint32)[::2], raw.view(torch.float8_e4m3fn)[3:]), True),
        "untyped_first": ((raw.view(torch.uint16)[1:], raw, raw.view(torch.uint64)), True),
        "tied": ((tied, tied, {"weight": tied, "part": tied[1:]}, (tied, (tied[2:],))), True),
        "grad": ((grad, grad.detach(), grad.detach()[2:]), True),
        "parameters": ((weight, weight.detach()[1:], torch.nn.Parameter(weight.detach(), False), narrow, weight), True),
        "half": ((few.bfloat16()[::3], few.half()[1:2], few.bool()[4:], few.long().view(2, 12)[1]), True),
        "many": (tuple(few[i:i + 2] for i in range(20)) + tuple(torch.full((2,), i) for i in range(12)), False),
        "members": ((argparse.Namespace(state=few, part=few[4:8]), collections.deque([few[2:], raw])), True),
        "conjugated": ((numbers, numbers.conj()), False),
    }


def tensors_in(value, found=None):
    found = [] if found is None else found
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for part in value.values():
            tensors_in(part, found)
    elif isinstance(value, (list, tuple, collections.deque)):
        for part in value:
            tensors_in(part, found)
    elif isinstance(value, argparse.Namespace):
        tensors_in(vars(value), found)
    return found


def described(tensor):
    return (type(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.requires_grad,
            tensor.untyped_storage().nbytes())


def relations(tensors):
    storages = [t.untyped_storage().data_ptr() for t in tensors]
    return ([[a == b for b in storages] for a in storages], [[a is b for b in tensors] for a in tensors])


def compare(name, expected, found):
    a, b = tensors_in(expected), tensors_in(found)
    if len(a) != len(b):
        return ["%s: %d tensors, expected %d" % (name, len(b), len(a))]
    failures = ["%s: tensor %d has other values" % (name, i) for i in range(len(a))
                if not torch.equal(a[i].float() if a[i].dtype == torch.float8_e4m3fn else a[i],
                                   b[i].float() if b[i].dtype == torch.float8_e4m3fn else b[i])]
    if name == "conjugated":
        return failures
    failures += ["%s: tensor %d: %s, expected %s" % (name, i, described(b[i]), described(a[i]))
                 for i in range(len(a)) if described(a[i]) != described(b[i])]
    if relations(a) != relations(b):
        failures.append("%s: other tensors share storages, or are one object" % name)
    return failures


def records(stream):
    archive = zipfile.ZipFile(io.BytesIO(stream))
    return {n.split("/", 1)[1]: archive.read(n) for n in archive.namelist()}


def check_stream(folder, name, value, exact):
    """The bytes that are stored, next to torch.save's."""
    entries = dcp.FileSystemReader(folder).read_metadata().storage_data
    where = next(info for index, info in entries.items() if index.fqn == name)
    with open(os.path.join(folder, where.relative_path), "rb") as file:
        file.seek(where.offset)
        ours = file.read(where.length)
    expected = io.BytesIO()
    torch.save(value, expected)
    expected = records(expected.getvalue())
    found = records(ours)
    failures = []
    if name != "conjugated" and {n: len(r) for n, r in found.items() if n.startswith("data/")} != \
            {n: len(r) for n, r in expected.items() if n.startswith("data/")}:
        failures.append("%s: other storages: %s" % (name, sorted(found)))
    if exact and found["data.pkl"] != expected["data.pkl"]:
        failures.append("%s: another pickle than torch.save's" % name)
    return failures


def resave(program, path, out):
    done = subprocess.run([program, path, out], capture_output=True, text=True)
    return [] if done.returncode == 0 else ["%s: %s" % (path, done.stderr)]


def check(program, path, out):
    failures = resave(program, path, out)
    if failures:
        return failures
    expected = values()
    target = {name: None for name in expected}
    dcp.load(target, checkpoint_id=out)
    for name, (value, exact) in expected.items():
        failures += compare(name, value, target[name])
        failures += check_stream(out, name, value, exact)
    if os.path.getsize(os.path.join(out, "__0_0.distcp")) > 4 * ELEMENTS + 65536:
        failures.append("%s: takes more than its storages" % out)
    return ["%s: %s" % (path, failure) for failure in failures]


def main():
    failures = []
    state = {name: value for name, (value, _) in values().items()}
    with tempfile.TemporaryDirectory() as folder:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            path = os.path.join(folder, "%d.pt" % protocol)
            torch.save(state, path, pickle_protocol=protocol)
            failures += check(sys.argv[1], path, os.path.join(folder, "of_%d" % protocol))
        legacy = os.path.join(folder, "legacy.pt")
        torch.save(state, legacy, _use_new_zipfile_serialization=False)
        failures += check(sys.argv[1], legacy, os.path.join(folder, "of_legacy"))
        dcp.save(state, checkpoint_id=os.path.join(folder, "saved"))
        failures += check(sys.argv[1], os.path.join(folder, "saved"), os.path.join(folder, "again"))
        failures += check(sys.argv[1], os.path.join(folder, "again"), os.path.join(folder, "once_more"))
    print("\n".join(failures) or "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
