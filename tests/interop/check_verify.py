#!/usr/bin/env python3
"""What dcp verify ends with: faults of a checkpoint, and failures of its own.

    python check_verify.py DCP FIXTURES

Needs nothing but Python.
"""
import os
import resource
import subprocess
import sys
import tempfile
import zipfile

failures = []


def run(command, *arguments, files=None, memory=None):
    def limit():
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return subprocess.run([command, "verify", *arguments], capture_output=True, text=True, timeout=120, preexec_fn=limit)


def expect(what, done, status, lines, text):
    shown = done.stdout + done.stderr
    if done.returncode != status or len(done.stdout.splitlines()) != lines or text not in shown:
        failures.append("%s: exit status %d, expected %d, %d lines and \"%s\": %s"
                        % (what, done.returncode, status, lines, text, shown))


def check_own_failures(command, fixtures):
    for case in ("basic/ckpt", "hf_single/ckpt", "pt_objects/ckpt.pt"):
        path = os.path.join(fixtures, case)
        expect(path, run(command, path), 0, 2 if case.startswith("hf") else 1, "0 faults")
        if case.startswith("hf"):  # of the others no more than one file is open at a time
            expect("%s, 4 files" % path, run(command, path, files=4), 3, 0, "Too many open files")


def write_pt(path, sizes):
    """A torch.save file with one tensor of bytes, whose storage is deflated."""
    pickle = (b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\n"
              b"X\x01\0\0\0" + b"0" + b"X\x03\0\0\0cpuJ" + sizes.to_bytes(4, "little") + b"tQK\0J"
              + sizes.to_bytes(4, "little") + b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("a/data.pkl", pickle, zipfile.ZIP_STORED)
        archive.writestr("a/version", b"3\n", zipfile.ZIP_STORED)
        with archive.open("a/data/0", "w") as record:
            for _ in range(sizes >> 20):
                record.write(bytes(1 << 20))


def check_bomb(command, folder):
    path = os.path.join(folder, "fine.pt")
    write_pt(path, 32 << 20)
    expect("32 MiB of zeros", run(command, path), 0, 1, "0 faults")
    path = os.path.join(folder, "bomb.pt")
    write_pt(path, 1 << 30)
    done = run(command, path, memory=600 << 20)
    expect("1 GiB of zeros", done, 1, 2, "deflated bytes claim to inflate to 1073741824")
    done = subprocess.run([command, "cat", path, "w"], capture_output=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20)))
    if done.returncode != 1 or b"deflated" not in done.stderr:
        failures.append("cat of 1 GiB of zeros: %s" % done.stderr)


def main():
    command, fixtures = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        check_bomb(command, folder)
        expect("nothing", run(command, os.path.join(folder, "nothing")), 1, 0, "no such file")
    check_own_failures(command, fixtures)
    print("\n".join(failures) or "all as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
