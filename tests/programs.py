#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What has to be built for tests: prints the targets of Ninja that the tests of a preset name in their commands.

usage: tests/programs.py PRESET
"""
import os
import re
import subprocess
import sys


def find_programs(build):
    """By test, the targets in a build folder: every file that its command names and that a build makes."""
    shown = subprocess.run(("ninja", "-C", build, "-t", "targets", "all"), check=True, capture_output=True, text=True)
    made = {line.rpartition(": ")[0] for line in shown.stdout.splitlines()}
    programs = {}
    for path, _, files in os.walk(build):
        if "CTestTestfile.cmake" not in files:
            continue
        with open(os.path.join(path, "CTestTestfile.cmake"), encoding="utf-8") as lines:
            for line in lines:
                found = re.match(r'add_test\((?:\[=*\[(.*?)\]=*\]|(\S+)) (.*)', line)
                if found:
                    inside = re.findall(r'"' + re.escape(build) + r'/([^"]+)"', found[3])
                    programs[found[1] or found[2]] = [name for name in inside if name in made]
    return programs


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    preset = sys.argv[1]
    shown = subprocess.run(("ctest", "--preset", preset, "-N"), cwd=root, check=True, capture_output=True, text=True)
    tests = re.findall(r"^ *Test +#\d+: (\S+)", shown.stdout, re.MULTILINE)
    programs = find_programs(os.path.join(root, "build", preset))
    print("\n".join(sorted({name for test in tests for name in programs[test]})))


if __name__ == "__main__":
    main()
