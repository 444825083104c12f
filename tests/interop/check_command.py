#!/usr/bin/env python3
"""Run the dcp command on the fixtures, and compare what it says with their manifests.

    python check_command.py DCP FIXTURES [--without-zstd]

Needs nothing but Python.
"""
import json
import os
import subprocess
import sys

failures = []


def fail(case, text):
    failures.append("%s: %s" % (case, text))


def run(dcp, *arguments):
    return subprocess.run([dcp, *arguments], capture_output=True, timeout=60)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def check_listing(case, listed, expected):
    """One entry of `dcp ls --json`."""
    wanted = {"name": expected["fqn"], "path": expected["path"], "type": expected["type"]}
    if expected["type"] == "tensor":
        wanted.update(dtype=expected["dtype"], shape=expected["shape"], bytes=expected["nbytes"])
    elif "json" in expected:
        wanted["value"] = expected["json"]
    for key, value in wanted.items():
        if key not in listed or json.dumps(listed[key]) != json.dumps(value):
            fail(case, "%s: %s is %s, expected %s" % (expected["fqn"], key, listed.get(key), value))
    places = ("offsets", "sizes", "file", "offset", "length")
    chunks = [{k: c[k] for k in places} for c in listed.get("chunks", [])]
    for chunk in expected.get("chunks", []):
        # Where ranks saved without each other, the same chunk may be stored twice and is listed once.
        same = [c for c in chunks if c["offsets"] == chunk["offsets"] and c["sizes"] == chunk["sizes"]]
        if not same:
            fail(case, "%s: no chunk at %s" % (expected["fqn"], chunk["offsets"]))


def check_cat(dcp, case, path, directory, entry):
    shown = run(dcp, "cat", path, entry["fqn"])
    if shown.returncode != 0:
        return fail(case, "cat %s: %s" % (entry["fqn"], shown.stderr.decode()))
    if entry["type"] == "tensor":
        with open(os.path.join(directory, entry["file"]), "rb") as file:
            if file.read() != shown.stdout:
                fail(case, "cat %s: other bytes" % entry["fqn"])
    elif "json" in entry and json.loads(shown.stdout) != entry["json"]:
        fail(case, "cat %s: %s" % (entry["fqn"], shown.stdout))


def check_fixture(dcp, directory, zstd):
    manifest = read_json(os.path.join(directory, "expected.json"))
    case, path = manifest["case"], os.path.join(directory, manifest["checkpoint"])
    listing = run(dcp, "ls", "--json", path)
    if "zstd" in manifest["needs"] and not zstd:
        if listing.returncode != 1 or not listing.stderr:
            fail(case, "ls: not refused")
        return
    if listing.returncode != 0:
        return fail(case, "ls: %s" % listing.stderr.decode())
    listed = {e["name"]: e for e in json.loads(listing.stdout)["entries"]}
    if set(listed) != {e["fqn"] for e in manifest["entries"]}:
        fail(case, "ls: other names")
    few = manifest["entries"][:: max(1, len(manifest["entries"]) // 100)]
    for entry in manifest["entries"]:
        if entry["fqn"] in listed:
            check_listing(case, listed[entry["fqn"]], entry)
    for entry in few:
        check_cat(dcp, case, path, directory, entry)
    verdict = run(dcp, "verify", path)
    if verdict.returncode != 0:
        fail(case, "verify: %s" % verdict.stdout.decode())


def check_hostile(dcp, directory):
    case = read_json(os.path.join(directory, "case.json"))
    path = os.path.join(directory, case["checkpoint"])
    verdict = run(dcp, "verify", path)
    if verdict.returncode not in ((1,) if case["expect"] == "error" else (0, 1)):
        fail(case["case"], "verify: exit status %d" % verdict.returncode)
    if verdict.returncode == 1 and not verdict.stdout and not verdict.stderr:
        fail(case["case"], "verify: no word of what is wrong")
    for command in (["ls", path], ["ls", "--json", path], ["cat", path, case["target"] or "w"]):
        if run(dcp, *command).returncode not in (0, 1):
            fail(case["case"], "%s: crashed" % command[0])


def main():
    dcp, fixtures = sys.argv[1:3]
    zstd = "--without-zstd" not in sys.argv
    for row in read_json(os.path.join(fixtures, "index.json"))["cases"]:
        check_fixture(dcp, os.path.join(fixtures, os.path.dirname(row["expected"])), zstd)
    for row in read_json(os.path.join(fixtures, "hostile", "index.json"))["cases"]:
        check_hostile(dcp, os.path.join(fixtures, "hostile", row["case"]))
    print("\n".join(failures) or "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
