#!/usr/bin/env python3
"""Checks what compare says of a limit: every way is there, the limit is the best one's, a way that a
directory lacks counts for nothing, and a limit of writing writes as many bytes as a save has written.

    check_limit.py save|cold|load COMPARE-ARGUMENT...
"""
import json
import os
import subprocess
import sys
import tempfile

import importlib.machinery
import importlib.util

COMPARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare")


def load_compare():
    loader = importlib.machinery.SourceFileLoader("compare", COMPARE)
    spec = importlib.util.spec_from_loader("compare", loader)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class Answers:
    """A program whose ways take so long: the second one is sometimes quick, the third is lacking."""

    def __init__(self):
        self.times = {"a": [5, 2, 2, 2], "b": [9, 2.5, 9, 9], "c": [float("inf")] * 4, "d": [9, 9, 9, 9]}

    def do(self, command, path):
        return {"s": self.times[command.split(":")[1]].pop(0)}


def check_choice(compare):
    answers = Answers()
    limit = compare.Limit(answers, "read", "abcd")
    for _ in range(4):
        limit.do("somewhere", lambda: None)
    assert limit.best() == "a", limit.ways()
    assert [len(limit.answers[way]) for way in "abcd"] == [4, 4, 2, 2], limit.answers
    assert limit.ways() == {"a": 2, "b": 9, "c": float("inf"), "d": 9}, limit.ways()


def bytes_in(directory, prefix):
    return sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory) if name.startswith(prefix))


def check_bytes(build):
    """Of small tensors, where the files are far larger than the tensors."""
    program = os.path.join(build, "tests", "bench", "bench_ranks")
    with tempfile.TemporaryDirectory(dir=build) as directory:
        saved, plain = os.path.join(directory, "saved"), os.path.join(directory, "plain")
        os.mkdir(plain)
        commands = "save %s\nwrite:buffered %s\n" % (saved, plain)
        subprocess.run([program, "2", "50", "1"], input=commands, text=True, check=True, stdout=subprocess.DEVNULL)
        written = bytes_in(saved, "__")
        assert bytes_in(plain, "plain_") == written > 50 * 240 * 4 * 1.5, (plain, written)


def main():
    compare = load_compare()
    check_choice(compare)
    if sys.argv[1] == "save":
        check_bytes(sys.argv[sys.argv.index("--build") + 1])
    done = subprocess.run([sys.executable, COMPARE] + sys.argv[1:] + ["--json"], check=True, stdout=subprocess.PIPE)
    row = json.loads(done.stdout.splitlines()[0])
    ways = row["ways"]
    assert list(ways) == (compare.CACHED_WAYS if sys.argv[1] == "load" else compare.WAYS), ways
    had = {way: seconds for way, seconds in ways.items() if seconds is not None}
    assert had["buffered"] > 0 and had["buffered-threads"] > 0, ways
    assert row["limit"] == min(had.values()) == had[row["way"]], row


if __name__ == "__main__":
    main()
