#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of torch.distributed.checkpoint, with libdcp.torch in the place of what they test.

    run.py storage|functions [FILE ...]

storage: its FileSystemWriter and FileSystemReader; functions: its save, load and async_save as well. DCP_PYTORCH_TESTS
names a folder with the texts of test/distributed/checkpoint of PyTorch 2.13; without it, or without pytest and
expecttest, the tests are skipped (exit status 77). They run on gloo and CPU tensors, each rank a forked process.
Prints how many tests the library served, and why others went PyTorch's way.
"""
import collections
import importlib.util
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77

LEFT_OUT = {
    "compile_True": "torch.compile, for minutes; the same with compile_False is run",
    "TestNoCPU": "wants a process group without the CPU, which needs a GPU",
}


def read_notes(folder):
    served, elsewhere = set(), collections.Counter()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as notes:
            for line in notes:
                test, word, why = line.rstrip("\n").split("\t", 2)
                if word == "elsewhere":
                    elsewhere[why] += 1
                else:
                    served.add(test)
    return served, elsewhere


def main():
    tests = os.environ.get("DCP_PYTORCH_TESTS")
    if not tests:
        print("skipped: DCP_PYTORCH_TESTS does not name PyTorch's tests")
        return SKIPPED
    missing = [name for name in ("pytest", "expecttest") if importlib.util.find_spec(name) is None]
    if missing:
        print("skipped: %s is missing" % " and ".join(missing))
        return SKIPPED
    with tempfile.TemporaryDirectory() as work:
        notes = os.path.join(work, "notes")
        os.mkdir(notes)
        environment = dict(
            os.environ, DCP_SUITE_SWAP=sys.argv[1], DCP_SUITE_TRACE=notes, TMPDIR=work, OMP_NUM_THREADS="1",
            CUDA_VISIBLE_DEVICES="", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="100",
            PYTHONPATH=os.pathsep.join([os.path.join(HERE, "inject"), os.environ.get("PYTHONPATH", "")]),
        )  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, "--tb=short"]
        command += ["-k", " and ".join("not " + name for name in LEFT_OUT), *(sys.argv[2:] or ["."])]
        status = subprocess.run(command, cwd=tests, env=environment).returncode
        served, elsewhere = read_notes(notes)
    print("%d tests called the library" % len(served))
    for why, count in elsewhere.most_common():
        print("PyTorch's way, %d calls: %s" % (count, why))
    return status or (0 if served else 1)


if __name__ == "__main__":
    sys.exit(main())
