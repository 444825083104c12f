#!/usr/bin/env python3
"""Checks growth: the exponents that it finds of known figures, that it keeps to its time, and that its
drawing shows what was measured.

    check_growth.py GROWTH-ARGUMENT...
"""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

GROWTH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "growth")
AXES = ["planning", "alone", "gathered", "mpi", "tensors", "bytes", "chunks", "checkpoints"]
SVG = "{http://www.w3.org/2000/svg}"


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
    judged = growth.judge("known", known)
    assert [name for name, figure in judged.items() if figure["steep"]] == ["slow"], judged
    assert judged["slow"]["why"] is None
    steep = growth.judge("bytes", [(x, {"load-memory": (x ** 2, "bytes")}) for x in growth.steps(1, 1 << 20, 2)])
    assert steep["load-memory"]["steep"] and "buffers" in steep["load-memory"]["why"], steep
    assert judged["slow"]["exponent"] == 2 and judged["slow"]["last"] == points[-1] ** 2


def numbers(text):
    return [float(number) for number in re.findall(r"-?[0-9.]+", text)]


def check_drawing(path, rows):
    """A panel for each axis and unit, inside the picture: its title, and a line and a name of each figure that is
    more than nothing, with a point for each of its values, from left to right."""
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg", root.tag
    width, height = float(root.get("width")), float(root.get("height"))
    panels = root.findall(SVG + "g")
    titles = [panel.find(SVG + "text").text for panel in panels]
    assert len(set(titles)) == len(titles) and {title.split(",")[0] for title in titles} == {
        row["axis"] for row in rows}, titles
    for panel, title in zip(panels, titles):
        axis, unit = title.split(", ")
        row = [row for row in rows if row["axis"] == axis][0]
        drawn = {name: [x for x, figures in row["points"] if name in figures and figures[name][0] > 0]
                 for name, figure in row["figures"].items() if figure["unit"] == unit}
        lines = [numbers(line.get("points")) for line in panel.findall(SVG + "polyline")]
        names = [text.text for text in panel.findall(SVG + "text") if text.get("fill")]
        assert names == [name for name in drawn if drawn[name]], (title, names)
        assert [len(line) // 2 for line in lines] == [len(drawn[name]) for name in names], title
        left, top = numbers(panel.get("transform"))
        for line in lines:
            assert line[::2] == sorted(line[::2]), (title, line)
            assert all(0 <= left + x <= width for x in line[::2]), (title, line)
            assert all(0 <= top + y <= height for y in line[1::2]), (title, line)


def check_drawn_places(growth, directory):
    """Both scales are logarithmic: ten times as much is as far in any decade, and x^2 rises twice as steeply."""
    path = os.path.join(directory, "known.svg")
    known = [(x, {"flat": (3, "s"), "square": (x ** 2, "s")}) for x in (1, 10, 100)]
    with open(path, "w") as file:
        file.write(growth.draw({"known": known}))
    lines = [numbers(line.get("points")) for line in xml.etree.ElementTree.parse(path).iter(SVG + "polyline")]
    flat, square = lines
    assert abs(flat[4] - 2 * flat[2] + flat[0]) < 0.2 and flat[1] == flat[3] == flat[5], flat
    assert square[1] > square[3] > square[5] and abs(square[5] - 2 * square[3] + square[1]) < 0.2, square


def check_run(arguments, directory):
    drawing = os.path.join(directory, "growth.svg")
    done = subprocess.run([sys.executable, GROWTH, "--json", "--svg", drawing] + arguments, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    left_out = {"mpi"} if "mpi is left out" in done.stderr else set()
    assert [row["axis"] for row in rows] == [axis for axis in AXES if axis not in left_out], done.stdout
    for row in rows:
        names = row["points"][0][1]
        assert len(row["points"]) > 1 and len(names) >= 6 and set(row["figures"]) == set(names), row
        least = {"planning": set(), "checkpoints": {"list-user", "latest-user", "latest-memory"}}
        assert least.get(row["axis"], {"save-user", "load-user", "save-memory"}) <= set(names), row
    check_drawing(drawing, rows)


def main():
    growth = load_growth()
    check_fit(growth)
    with tempfile.TemporaryDirectory() as directory:
        check_drawn_places(growth, directory)
        check_run(sys.argv[1:], directory)
    refused = subprocess.run([sys.executable, GROWTH, "sideways"], check=False, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 1 and "no axis sideways" in refused.stderr, refused


if __name__ == "__main__":
    main()
