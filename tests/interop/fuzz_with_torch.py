#!/usr/bin/env python3
"""Save random states with PyTorch in random ways, and check all that dcp makes of them.

    python fuzz_with_torch.py BIN_DCP BIN_CHECK_MANIFEST DIRECTORY [--seconds S] [--seed N] [--case N]

Every name, path, dtype, shape, chunk and value is compared with `dcp ls --json`, every byte with `dcp cat`; `dcp verify` must
find nothing; and check_manifest loads the same at several topologies. --case runs one case alone and keeps its files.
"""
import argparse
import io
import json
import logging
import os
import pickle
import pickletools
import random
import shutil
import subprocess
import sys
import time
import warnings

import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.utils.serialization  # noqa: E402
from torch.distributed.checkpoint._extension import ZStandard  # noqa: E402

from fuzz_states import Maker, as_json, comparable, encodable, flatten, tagged, tensor_bytes  # noqa: E402

MOST_CAT = 25  # tensors of one case that `dcp cat` is asked for
MOST_ARGUMENT = 100000  # bytes, so that the kernel takes it


class Failure(Exception):
    pass


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def clashes(parts):
    names = [".".join(map(str, path)) for path, _ in parts]
    return len(set(names)) != len(names) or not all(map(encodable, names))


# ---- saving

def repickle(rng, path):
    """The metadata as another pickler would have written it."""
    with open(path, "rb") as file:
        metadata = pickle.load(file)
    protocol = rng.randrange(2, 6)
    if rng.random() < 0.3:
        out = io.BytesIO()
        pickler = pickle._Pickler(out, protocol)
        pickler.fast = True  # no memo
        pickler.dump(metadata)
        data = out.getvalue()
    else:
        data = pickle.dumps(metadata, protocol)
    if rng.random() < 0.5:
        data = pickletools.optimize(data)
    with open(path, "wb") as file:
        file.write(data)
    return "metadata of protocol %d" % protocol


def save_dcp(rng, state, path):
    options = {"single_file_per_rank": rng.random() < 0.6, "thread_count": rng.choice([1, 1, 2, 5]),
               "sync_files": False}
    if rng.random() < 0.3:
        options["_extensions"] = [ZStandard()]
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, **options), no_dist=True)
    return "dcp %s, %s" % (options, repickle(rng, os.path.join(path, ".metadata")) if rng.random() < 0.7 else "")


def save_pt(rng, state, path):
    protocol = rng.randrange(2, 6)
    if rng.random() < 0.3 and save_legacy(state, path, protocol):
        return "legacy pt of protocol %d" % protocol
    torch.save(state, path, pickle_protocol=protocol)
    return "pt of protocol %d" % protocol


def save_legacy(state, path, protocol):
    """False: PyTorch itself cannot read what it writes of this state, as of dtypes that are newer than the form."""
    try:
        torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        torch.load(path, weights_only=False)
    except Exception:
        return False
    return True


def set_container(rng):
    """Every item of DCP, too, is what torch.save makes under these settings."""
    crc = rng.random() < 0.8
    alignment = rng.choice([64, 64, 64, 1, 128, 4096])
    torch.serialization.set_crc32_options(crc)
    torch.utils.serialization.config.save.storage_alignment = alignment
    return "%s CRC, alignment %d" % ("with" if crc else "without", alignment)


def save_safetensors(rng, state, path):
    from safetensors.torch import save_file
    os.makedirs(path)
    names = list(state)
    files = rng.randint(1, 3)
    for i in range(files):
        save_file({n: state[n] for n in names[i::files]}, os.path.join(path, "model-%d.safetensors" % i),
                  metadata={"format": "pt"} if rng.random() < 0.5 else None)
    return "safetensors in %d files" % files


# ---- what must be there

def stored_chunks(path):
    """{name: (path parts, [chunk])} as PyTorch reads the metadata."""
    metadata = dcp.FileSystemReader(path).read_metadata()
    stored = {}
    for name, entry in metadata.state_dict_metadata.items():
        infos = {i.offset: s for i, s in metadata.storage_data.items() if i.fqn == name} if len(
            metadata.state_dict_metadata) < 200 else None
        rows = []
        for chunk in getattr(entry, "chunks", []):
            info = infos[chunk.offsets] if infos else None
            if info:
                rows.append({"offsets": list(chunk.offsets), "sizes": list(chunk.sizes), "file": info.relative_path,
                             "offset": info.offset, "length": info.length})
        stored[name] = (list(metadata.planner_data[name]), rows)
    return stored


class Manifest:
    def __init__(self, directory):
        self.directory, self.files = directory, 0

    def write_bytes(self, data):
        name = "%04d.bin" % self.files
        self.files += 1
        with open(os.path.join(self.directory, name), "wb") as file:
            file.write(data)
        return name

    def entry(self, path, value, chunks):
        entry = {"fqn": ".".join(map(str, path)), "path": list(path)}
        if isinstance(value, torch.Tensor):
            entry.update(type="tensor", **{k: v for k, v in tagged(value, self.write_bytes).items() if k != "t"})
            if chunks:
                entry["chunks"] = chunks
        else:
            entry.update(type="object", value=tagged(value, self.write_bytes))
        return entry

    def write(self, checkpoint, kind, entries):
        path = os.path.join(self.directory, "expected.json")
        with open(path, "w") as file:
            json.dump({"kind": kind, "checkpoint": checkpoint, "entries": entries}, file)
        return path


# ---- checking

def check_list(tool, path, parts, stored):
    done = run(tool, "ls", "--json", path)
    if done.returncode != 0:
        raise Failure("ls: exit status %d: %s" % (done.returncode, done.stderr.decode()[-3000:]))
    entries = json.loads(done.stdout)["entries"]
    found = {e["name"]: e for e in entries}
    wanted = {".".join(map(str, p)): (p, v) for p, v in parts}
    if len(found) != len(entries) or found.keys() != wanted.keys():
        raise Failure("ls: names %s, expected %s" % (sorted(found), sorted(wanted)))
    for name, (way, value) in wanted.items():
        entry = found[name]
        rows = None
        if stored is not None:
            if list(way) != stored[name][0]:
                raise Failure("%r: the planner's path is %s, expected %s" % (name, stored[name][0], way))
            rows = stored[name][1]
        if entry["path"] != list(way):
            raise Failure("%r: path %s, expected %s" % (name, entry["path"], way))
        check_entry(name, entry, value, rows)


def check_entry(name, entry, value, rows):
    if not isinstance(value, torch.Tensor):
        if entry["type"] != "object" or comparable(entry["value"]) != comparable(as_json(value)):
            raise Failure("%r: %s, expected %s" % (
                name, comparable(entry.get("value"))[:2000], comparable(as_json(value))[:2000]))
        return
    wanted = {"type": "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape),
              "bytes": value.numel() * value.element_size()}
    if rows:
        wanted["chunks"] = rows
    got = {k: entry.get(k) for k in wanted}
    if got != wanted:
        raise Failure("%r: %s, expected %s" % (name, got, wanted))


def check_bytes(rng, tool, path, parts):
    tensors = [(".".join(map(str, p)), v) for p, v in parts if isinstance(v, torch.Tensor)]
    tensors = [(n, v) for n, v in tensors if len(n.encode()) < MOST_ARGUMENT]
    for name, value in rng.sample(tensors, min(MOST_CAT, len(tensors))):
        done = run(tool, "cat", path, "--", name)
        if done.returncode != 0 or done.stdout != tensor_bytes(value):
            raise Failure("cat %r: %s %s exit status %d, %d bytes %s: %s" % (
                name, value.dtype, list(value.shape), done.returncode, len(done.stdout), done.stdout[:20],
                done.stderr.decode()[-3000:]))


def check_whole(tool, path):
    done = run(tool, "verify", path)
    # What has no checksums is said in notes.
    said = [line for line in done.stdout.splitlines() if not line.startswith(b"note: ")]
    if done.returncode != 0 or said != [b"0 faults"]:
        raise Failure("verify: exit status %d: %s" % (done.returncode, (done.stdout + done.stderr).decode()[-3000:]))


def run_case(tools, seed, directory):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    form = rng.choice(["dcp"] * 5 + ["pt"] * 4 + ["safetensors"])
    while True:
        state = Maker(rng, form).state()
        parts = flatten(state, by_name=form == "pt")
        if parts and not clashes(parts):
            break
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    path = os.path.join(directory, "ckpt.pt" if form == "pt" else "ckpt")
    container = set_container(rng)
    how = container + ", " + {"dcp": save_dcp, "pt": save_pt, "safetensors": save_safetensors}[form](rng, state, path)
    try:
        stored = stored_chunks(path) if form == "dcp" else None
        check_list(tools.dcp, path, parts, stored)
        check_bytes(rng, tools.dcp, path, parts)
        check_whole(tools.dcp, path)
        if "cycle" not in state and len(parts) < 200:
            manifest = Manifest(directory)
            entries = [manifest.entry(p, v, stored and stored[".".join(map(str, p))][1]) for p, v in parts]
            expected = manifest.write(os.path.basename(path), {"dcp": "dcp", "pt": "torch-save"}.get(form, form), entries)
            done = run(tools.check_manifest, expected)
            if done.returncode != 0:
                raise Failure("check_manifest: %s" % (done.stdout + done.stderr).decode()[-3000:])
    except Failure as failure:
        print("FAIL case %d (%s): %s" % (seed, how, failure), flush=True)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dcp")
    parser.add_argument("check_manifest")
    parser.add_argument("directory")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1, help="the first case")
    parser.add_argument("--case", type=int, help="this one alone")
    tools = parser.parse_args()
    torch.set_num_threads(1)
    sys.set_int_max_str_digits(0)
    if tools.case is not None:
        sys.exit(0 if run_case(tools, tools.case, tools.directory) else 1)
    seed, failed, end = tools.seed, 0, time.monotonic() + tools.seconds
    while time.monotonic() < end and failed < 10:
        failed += not run_case(tools, seed, tools.directory)
        seed += 1
    if not failed:
        shutil.rmtree(tools.directory, ignore_errors=True)
    print("%d cases, %d failed" % (seed - tools.seed, failed))
    sys.exit(1 if failed or seed == tools.seed else 0)


if __name__ == "__main__":
    main()
