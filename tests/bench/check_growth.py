#!/usr/bin/env python3
"""Checks growth: the exponents that it finds of known figures, that it keeps to its time, and that its
drawing is well-formed.

    check_growth.py GROWTH-ARGUMENT...
"""
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

GROWTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "growth")
AXES = ["planning", "alone", "gathered", "tensors", "bytes", "chunks"]


def load_growth():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("growth", GROWTH)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("growth", loader))
    loader.exec_module(module)
    return module


def check_fit(growth):
    assert growth.steps(1, 100, 10) == [1, 10, 100]
    assert growth.steps(1, 9, 10 ** 0.5) == [1, 3]
    points = growth.steps(1, 1000, 2)
    for exponent in 0, 0.5, 1, 2:
        assert abs(growth.fit([(x, 3 * x ** exponent) for x in points]) - exponent) < 1e-9
    # What is below does not count, nor does what is nothing.
    assert abs(growth.fit([(x, max(x, 64) ** 2) for x in points if x < 128 or x > 64]) - 2) < 0.5
    assert abs(growth.fit([(x, 7 if x < 32 else x ** 2) for x in points]) - 2) < 1e-9
    assert growth.fit([(4, 1)]) is None and growth.fit([(1, 0), (2, 0), (3, 0)]) is None
    known = [(x, {"slow": (x ** 2, "s"), "fast": (x, "s"), "small": (x ** 2 * 1e-9, "s"), "a-wall": (x ** 2, "s")})
             for x in points]
    judged = growth.judge(known)
    assert [name for name, figure in judged.items() if figure["steep"]] == ["slow"], judged
    assert judged["slow"]["exponent"] == 2 and judged["slow"]["last"] == points[-1] ** 2


def check_run(arguments, directory):
    drawing = os.path.join(directory, "growth.svg")
    done = subprocess.run([sys.executable, GROWTH, "--json", "--svg", drawing] + arguments, check=True,
                          stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["axis"] for row in rows] == AXES, done.stdout
    for row in rows:
        names = row["points"][0][1]
        assert len(names) >= 6 and set(row["figures"]) == set(names), row
        assert row["axis"] == "planning" or {"save-user", "load-user", "save-memory"} <= set(names), row
    root = xml.etree.ElementTree.parse(drawing).getroot()
    assert root.tag.endswith("svg") and len(root) > len(AXES), root


def main():
    check_fit(load_growth())
    with tempfile.TemporaryDirectory() as directory:
        check_run(sys.argv[1:], directory)
    refused = subprocess.run([sys.executable, GROWTH, "sideways"], check=False, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 1 and "no axis sideways" in refused.stderr, refused


if __name__ == "__main__":
    main()
