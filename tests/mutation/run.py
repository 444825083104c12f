#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks promises of the sources on purpose, one at a time, and says which of them no test notices.

sabotages.txt lists them. Each is applied to a copy of the tree, what it touches is built, and the tests that should notice
are run. A sabotage that no test notices has survived: either a test is missing, or the list says why nobody can notice.
"""
import argparse
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True
from programs import find_programs  # noqa: E402, of the folder above
LIST = os.path.join(HERE, "sabotages.txt")
FOLDERS = ("CMakeLists.txt", "CMakePresets.json", "cmake", "examples", "include", "src", "tests")
OPTIONS = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1", "-DDCP_BUILD_TESTS=ON", "-DDCP_WARNINGS_AS_ERRORS=OFF", "-DDCP_CUDA=OFF",
           "-DDCP_MPI=OFF", "-DDCP_NCCL=OFF", "-DDCP_INSTALL=OFF")
QUICK_SECONDS = 3
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s]')

Sabotage = collections.namedtuple("Sabotage", "line file text replacement tests promise equivalent")


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_list():
    """FILE :: TEXT => REPLACEMENT :: TESTS :: PROMISE [:: equivalent: REASON]"""
    sabotages = []
    with open(LIST, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = [field.strip() for field in re.split(r"\s::(?:\s|$)", line)]
            equivalent = fields.pop() if len(fields) == 5 else ""
            if len(fields) != 4 or equivalent and not equivalent.startswith("equivalent: "):
                sys.exit(f"{LIST}:{number}: not FILE :: TEXT => REPLACEMENT :: TESTS :: PROMISE [:: equivalent: REASON]")
            change = re.split(r"\s=>(?:\s|$)", fields[1])
            if len(change) != 2:
                sys.exit(f"{LIST}:{number}: not TEXT => REPLACEMENT")
            sabotages.append(Sabotage(number, fields[0], change[0].strip(), change[1].strip(), *fields[2:], equivalent))
    return sabotages


def pattern_of(text):
    """A text of C, however it is broken into lines."""
    pattern, in_word = "", False
    for token in TOKEN.findall(text):
        word = re.match(r"\w", token) is not None
        if pattern:
            pattern += r"\s+" if word and in_word else r"\s*"
        elif word:
            pattern = r"\b"
        pattern += re.escape(token)
        in_word = word
    return re.compile(pattern + (r"\b" if in_word else ""))


def sabotaged(root, sabotage):
    """The source with the sabotage in it; or None, and what is wrong with the line."""
    path = os.path.join(root, sabotage.file)
    if not os.path.isfile(path):
        return None, "there is no such file"
    text = read_text(path)
    found = list(pattern_of(sabotage.text).finditer(text))
    if len(found) != 1:
        return None, f"the text is there {len(found)} times, expected once"
    changed = text[:found[0].start()] + sabotage.replacement + text[found[0].end():]
    if changed == text:
        return None, "nothing is replaced"
    return changed, None


def check_list(sabotages):
    faults = 0
    for sabotage in sabotages:
        fault = sabotaged(ROOT, sabotage)[1]
        try:
            re.compile(sabotage.tests)
        except re.error as error:
            fault = f"TESTS is no regular expression: {error}"
        if fault:
            print(f"{LIST}:{sabotage.line}: {sabotage.file}: {sabotage.text}: {fault}")
            faults += 1
    print(f"{len(sabotages)} sabotages, of which {faults} cannot be applied")
    return faults == 0


def copy_tree(tree):
    """Into tree; what has not changed keeps its time, so that it is not built again."""
    wanted = set()
    for folder in FOLDERS:
        top = os.path.join(ROOT, folder)
        for path, folders, files in os.walk(top) if os.path.isdir(top) else [(ROOT, [], [folder])]:
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in files:
                source = os.path.join(path, name)
                target = os.path.join(tree, os.path.relpath(source, ROOT))
                wanted.add(target)
                with open(source, "rb") as file:
                    content = file.read()
                if os.path.isfile(target):
                    with open(target, "rb") as file:
                        if file.read() == content:
                            continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(content)
                shutil.copymode(source, target)
    for path, _, files in os.walk(tree):
        for name in files:
            if os.path.join(path, name) not in wanted:
                os.remove(os.path.join(path, name))


def run(command, log, **options):
    with open(log, "w", encoding="utf-8") as output:
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, **options).returncode == 0


def tail_of(log, count=15):
    return "".join(read_text(log).splitlines(keepends=True)[-count:])


class Trial:
    """A copy of the tree with a build folder."""

    def __init__(self, work, jobs):
        self.tree = os.path.join(work, "tree")
        self.build = os.path.join(work, "build")
        self.log = os.path.join(work, "log")
        self.jobs = str(jobs)
        os.makedirs(self.build, exist_ok=True)
        copy_tree(self.tree)
        launcher = ("-DCMAKE_C_COMPILER_LAUNCHER=ccache",) if shutil.which("ccache") else ()
        if not run(("cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build) + OPTIONS + launcher, self.log):
            sys.exit(tail_of(self.log))
        self.targets = find_programs(self.build)

    def build_for(self, tests):
        """tests: a regular expression."""
        names = sorted({target for test in self.targets if re.search(tests, test) for target in self.targets[test]})
        if not names:
            sys.exit(f"no test is named like {tests}")
        return run(("ninja", "-C", self.build, "-j", self.jobs, *names), self.log)

    def passes(self, tests, timeout):
        return run(("ctest", "--test-dir", self.build, "-R", tests, "-j", self.jobs, "--stop-on-failure", "--timeout",
                    str(timeout), "--output-on-failure"), self.log)

    def notices(self, tests, timeout):
        """Whether one of the tests fails: those that take long are run after the others, and one by one."""
        seconds = {}
        costs = os.path.join(self.build, "Testing", "Temporary", "CTestCostData.txt")
        for line in read_text(costs).splitlines() if os.path.isfile(costs) else []:
            fields = line.split()
            if len(fields) == 3:
                seconds[fields[0]] = float(fields[2])
        names = sorted((test for test in self.targets if re.search(tests, test)), key=lambda test: seconds.get(test, 0))
        quick = [name for name in names if seconds.get(name, 0) < QUICK_SECONDS]
        rounds = ([quick] if quick else []) + [[name] for name in names[len(quick):]]
        return not all(self.passes("^(" + "|".join(map(re.escape, some)) + ")$", timeout) for some in rounds)

    def failed_test(self):
        found = re.search(r"^\s*\d+ - (\S+) \((.*?)\)", read_text(self.log), re.MULTILINE)
        return f"{found[1]} ({found[2].lower()})" if found else "a test"

    def attempt(self, sabotage, timeout):
        """killed, survived or broken, and what there is to say of it."""
        path = os.path.join(self.tree, sabotage.file)
        before = read_text(path)
        changed, fault = sabotaged(self.tree, sabotage)
        if fault:
            return "broken", fault
        try:
            write_text(path, changed)
            if not self.build_for(sabotage.tests):
                return "broken", "does not build:\n" + tail_of(self.log)
            if self.notices(sabotage.tests, timeout):
                return "killed", self.failed_test()
            return "survived", sabotage.promise
        finally:
            write_text(path, before)


def choose(sabotages, arguments):
    chosen = [sabotage for sabotage in sabotages if re.search(arguments.only, f"{sabotage.file} {sabotage.promise}")]
    if arguments.lines:
        chosen = [sabotage for sabotage in chosen if sabotage.line in arguments.lines]
    if arguments.sample:
        chosen = [sabotage for sabotage in chosen if not sabotage.equivalent]
        random.Random(arguments.seed).shuffle(chosen)
        chosen = chosen[:arguments.sample]
    return sorted(chosen, key=lambda sabotage: sabotage.line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check that every line of the list applies to one place")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="try N of them, chosen by the seed")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default="", metavar="REGEX", help="try those whose file or promise matches")
    parser.add_argument("--lines", type=int, nargs="+", default=[], metavar="N", help="try those of these lines of the list")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other after so long")
    parser.add_argument("--passing", action="store_true", help="it is known that without a sabotage all tests pass")
    parser.add_argument("--timeout", type=int, default=120, help="seconds of a test, beyond which it has noticed")
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "mutation"), help="folder of the copy and its build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    sabotages = read_list()
    if arguments.check:
        return 0 if check_list(sabotages) else 1

    started = time.monotonic()
    chosen = choose(sabotages, arguments)
    trial = Trial(os.path.abspath(arguments.work), arguments.jobs)
    everything = "|".join(sorted({f"({sabotage.tests})" for sabotage in chosen}))
    if not chosen:
        sys.exit("none is chosen")
    if not trial.build_for(everything) or not arguments.passing and not trial.passes(everything, 10 * arguments.timeout):
        sys.exit("without a sabotage:\n" + tail_of(trial.log, 40))
    print(f"ready after {time.monotonic() - started:.0f} s", flush=True)

    ends = collections.Counter()
    survivors = []
    for sabotage in chosen:
        if time.monotonic() - started > arguments.seconds:
            ends["not tried"] = len(chosen) - sum(ends.values())
            break
        began = time.monotonic()
        end, what = trial.attempt(sabotage, arguments.timeout)
        if end == "survived" and sabotage.equivalent:
            end, what = "equivalent", sabotage.equivalent
        elif end == "killed" and sabotage.equivalent:
            end, what = "broken", f"is marked as equivalent, but {what} fails"
        ends[end] += 1
        if end in ("survived", "broken"):
            survivors.append(f"{LIST}:{sabotage.line}: {end}: {sabotage.file}: {sabotage.text}: {what}")
        print(f"{sabotage.line:4} {end:10} {time.monotonic() - began:5.1f} s  {sabotage.file}: {what}", flush=True)
    print("\n".join(["", *survivors, ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))]))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
