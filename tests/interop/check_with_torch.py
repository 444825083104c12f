#!/usr/bin/env python3
"""Load a checkpoint with PyTorch and compare every value with a manifest, exactly.

    python check_with_torch.py CHECKPOINT MANIFEST        one checkpoint
    python check_with_torch.py --index tests/fixtures/index.json   all cases of an index

Needs: pip install torch==2.13.0 numpy
(and safetensors for "safetensors-dir" checkpoints, zstandard for compressed ones).

CHECKPOINT may be written by any program.  MANIFEST is an expected.json as
tests/fixtures/README.md describes it.  The least a manifest needs per entry is

    {"fqn": "model.w", "type": "tensor", "dtype": "float32", "shape": [4, 3],
     "sha256": "...", "file": "expected/000.bin"}          sha256 or file is enough
    {"fqn": "step", "type": "object", "json": 7}           or "value" or "repr"

"path" (list of dict keys and list indices) defaults to [fqn]; "kind" to "dcp".

What is done for a checkpoint directory:
  1 metadata     every chunk has a storage entry inside an existing file, chunks lie
                 inside the tensor, do not overlap, and cover it; dtypes and shapes agree
  2 preallocated dcp.load into tensors filled with garbage (default planner, one process)
  3 convert      format_utils.dcp_to_torch_save, then torch.load
  4 keys         _load_state_dict_from_keys with a few of the names
  5 reshard      every tensor is read again in uneven pieces along each dimension

Exit status 0 only if everything passed; --allow-skip also accepts cases whose extra
packages are missing or whose torch is too old.
"""
import argparse
import collections
import hashlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings

import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader  # noqa: E402
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
)
from torch.distributed.checkpoint.planner import LoadPlan  # noqa: E402
from torch.distributed.checkpoint.planner_helpers import (  # noqa: E402
    create_read_items_for_chunk_list,
)
from torch.distributed.checkpoint.state_dict_loader import (  # noqa: E402
    _load_state_dict,
    _load_state_dict_from_keys,
)


class Report:
    def __init__(self, name, verbose):
        self.name, self.verbose = name, verbose
        self.checks = 0
        self.failures = []

    def ok(self, n=1):
        self.checks += n

    def fail(self, text):
        self.checks += 1
        self.failures.append(text)

    def that(self, cond, text):
        if cond:
            self.ok()
        else:
            self.fail(text)
        return cond


# ------------------------------------------------------------------ comparing

def tensor_bytes(t):
    t = t.detach().cpu().resolve_conj().resolve_neg()
    if t.numel() == 0:
        return b""
    t = torch.empty(t.shape, dtype=t.dtype).copy_(t).reshape(-1)
    return t.view(torch.uint8).numpy().tobytes()


def compare_tensor(t, e, base, rep, where):
    label = "%s: %s" % (where, e.get("fqn", "tensor in object"))
    if not isinstance(t, torch.Tensor):
        return rep.fail("%s: not a tensor but %r" % (label, type(t)))
    if str(t.dtype) != "torch." + e["dtype"]:
        return rep.fail("%s: dtype %s, expected %s" % (label, t.dtype, e["dtype"]))
    if list(t.shape) != list(e["shape"]):
        return rep.fail("%s: shape %s, expected %s" % (label, list(t.shape), e["shape"]))
    data = tensor_bytes(t)
    if "sha256" in e:
        if hashlib.sha256(data).hexdigest() != e["sha256"]:
            return rep.fail("%s: contents differ (sha256)%s" % (label, first_difference(data, e, base)))
    else:
        with open(os.path.join(base, e["file"]), "rb") as f:
            if f.read() != data:
                return rep.fail("%s: contents differ%s" % (label, first_difference(data, e, base)))
    rep.ok()


def first_difference(data, e, base):
    try:
        with open(os.path.join(base, e["file"]), "rb") as f:
            want = f.read()
    except (KeyError, OSError):
        return ""
    if len(want) != len(data):
        return ": %d bytes, expected %d" % (len(data), len(want))
    for i, (a, b) in enumerate(zip(data, want)):
        if a != b:
            return ": first at byte %d (%02x, expected %02x)" % (i, a, b)
    return ""


def plain(d):
    """Type and value of a described int or text, which are equal to no other; else None."""
    if d["t"] == "int":
        return int, int(d["v"])
    if d["t"] == "str" and "v" in d:
        return str, d["v"]
    return None


def same_tagged(v, d, base, rep, where):
    """True if v is the value the tagged form d describes (types included)."""
    t, ty = d["t"], type(v)
    if t == "none":
        return v is None
    if t == "bool":
        return ty is bool and v == d["v"]
    if t == "int":
        return ty is int and v == int(d["v"])
    if t == "float":
        return ty is float and v.hex() == d["v"]
    if t == "complex":
        return ty is complex and (v.real.hex(), v.imag.hex()) == (d["re"], d["im"])
    if t == "str":
        return ty is str and v == (d["v"] if "v" in d else bytes.fromhex(d["hex"]).decode())
    if t in ("bytes", "bytearray"):
        return ty.__name__ == t and bytes(v).hex() == d["hex"]
    if t in ("list", "tuple"):
        return ty.__name__ == t and len(v) == len(d["v"]) and all(
            same_tagged(a, b, base, rep, where) for a, b in zip(v, d["v"]))
    if t in ("dict", "odict"):
        want = dict if t == "dict" else collections.OrderedDict
        return ty is want and len(v) == len(d["v"]) and all(
            same_tagged(k, dk, base, rep, where) and same_tagged(x, dx, base, rep, where)
            for (k, x), (dk, dx) in zip(v.items(), d["v"]))
    if t in ("set", "frozenset"):
        if ty.__name__ != t or len(v) != len(d["v"]):
            return False
        exact = {(type(a), a) for a in v}
        return all(plain(b) in exact or any(same_tagged(a, b, base, rep, where) for a in v) for b in d["v"])
    if t == "dtype":
        return isinstance(v, torch.dtype) and str(v) == d["v"]
    if t == "size":
        return isinstance(v, torch.Size) and list(v) == d["v"]
    if t == "device":
        return isinstance(v, torch.device) and str(v) == d["v"]
    if t == "tensor":
        n = len(rep.failures)
        compare_tensor(v, d, base, rep, where)
        return len(rep.failures) == n
    if t == "other":
        return ty.__module__ + "." + ty.__qualname__ == d["py_type"] and stable_repr(v) == d["repr"]
    return False


def stable_repr(v):
    import numpy as np

    return repr(v.item()) if isinstance(v, np.generic) else repr(v)


def compare_object(v, e, base, rep, where):
    label = "%s: %s" % (where, e["fqn"])
    if "value" in e:
        good = same_tagged(v, e["value"], base, rep, where)
    elif "json" in e:
        good = json.dumps(v, sort_keys=True, default=repr) == json.dumps(e["json"], sort_keys=True)
    else:
        good = stable_repr(v) == e["repr"]
    rep.that(good, "%s: value %.200r differs" % (label, v))


def compare(v, e, base, rep, where):
    if v is MISSING:
        return rep.fail("%s: %s: missing" % (where, e["fqn"]))
    (compare_tensor if e["type"] == "tensor" else compare_object)(v, e, base, rep, where)


# ------------------------------------------------------------------ nested values

MISSING = object()


def put(root, path, value):
    """Same rules as the planner: string parts are dict keys, integers list positions."""
    cur = root
    for i, key in enumerate(path):
        last = i == len(path) - 1
        child = value if last else ({} if isinstance(path[i + 1], str) else [])
        if isinstance(cur, list):
            while len(cur) <= key:
                cur.append(None)
            if last or cur[key] is None:
                cur[key] = child
        elif last or key not in cur:
            cur[key] = child
        cur = cur[key]


def get(root, path):
    for key in path:
        try:
            root = root[key]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return root


def garbage(e):
    dtype = getattr(torch, e["dtype"])
    n = 1
    for s in e["shape"]:
        n *= s
    size = torch.empty(0, dtype=dtype).element_size()
    if dtype is torch.bool:
        return torch.ones(e["shape"], dtype=dtype)
    if n == 0:
        return torch.empty(e["shape"], dtype=dtype)
    return torch.full((n * size,), 0xA5, dtype=torch.uint8).view(dtype).reshape(e["shape"])


# ------------------------------------------------------------------ readers

class MergingReader(FileSystemReader):
    """All __R.metadata files of a checkpoint saved without collectives, as one."""

    def read_metadata(self, *args, **kwargs):
        import pickle

        merged = None
        for name in sorted(os.listdir(self.path)):
            if not (name.startswith("__") and name.endswith(".metadata")):
                continue
            with open(os.path.join(self.path, name), "rb") as f:
                md = pickle.load(f)
            if merged is None:
                merged = md
                continue
            for fqn, m in md.state_dict_metadata.items():
                have = merged.state_dict_metadata.setdefault(fqn, m)
                if have is not m and not isinstance(m, BytesStorageMetadata):
                    known = {tuple(c.offsets) for c in have.chunks}
                    have.chunks.extend(c for c in m.chunks if tuple(c.offsets) not in known)
            for k, v in md.storage_data.items():
                merged.storage_data.setdefault(k, v)
            merged.planner_data.update(md.planner_data)
        return merged


def make_reader(kind, ckpt):
    if kind == "dcp-rank-local":
        return MergingReader(ckpt)
    if kind == "safetensors-dir":
        from torch.distributed.checkpoint import HuggingFaceStorageReader

        return HuggingFaceStorageReader(ckpt)
    return FileSystemReader(ckpt)


class PiecesPlanner(DefaultLoadPlanner):
    """Reads given rectangular pieces of tensors: {fqn: [(offsets, sizes, target)]}."""

    def __init__(self, pieces):
        super().__init__()
        self.pieces = pieces

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.metadata = metadata

    def create_local_plan(self):
        items = []
        for fqn, rows in self.pieces.items():
            chunks = [ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s, _ in rows]
            items += create_read_items_for_chunk_list(fqn, self.metadata.state_dict_metadata[fqn], chunks)
        return LoadPlan(items)

    def lookup_tensor(self, index):
        for o, _, t in self.pieces[index.fqn]:
            if tuple(o) == tuple(index.offset):
                return t
        raise KeyError(index)


def cuts(n, k):
    """Cut range(n) into at most k uneven non-empty pieces: [(start, length)]."""
    k = max(1, min(k, n))
    edges = sorted({0, n} | {max(1, (n * i * i) // (k * k)) for i in range(1, k)} if n else {0, n})
    return [(a, b - a) for a, b in zip(edges, edges[1:])] or [(0, n)]


def pieces_of(e, k):
    shape = e["shape"]
    boxes = [([], [])]
    for n in shape:
        boxes = [(o + [a], s + [m]) for o, s in boxes for a, m in cuts(n, k)]
        if len(boxes) > 64:
            k = 1
    return boxes


# ------------------------------------------------------------------ the checks

def check_metadata(md, entries, ckpt, rep):
    names = {e["fqn"] for e in entries}
    extra = set(md.state_dict_metadata) - names
    rep.that(not extra, "metadata: unexpected names %s" % sorted(extra)[:5])
    boxes = {}
    for idx, info in md.storage_data.items():
        boxes.setdefault(idx.fqn, {})[None if idx.offset is None else tuple(idx.offset)] = info
    for e in entries:
        m = md.state_dict_metadata.get(e["fqn"])
        if not rep.that(m is not None, "metadata: no entry for %s" % e["fqn"]):
            continue
        if md.planner_data is not None:
            path = tuple(e.get("path", [e["fqn"]]))
            rep.that(md.planner_data.get(e["fqn"]) == path,
                     "metadata: %s: planner path %r, expected %r" % (e["fqn"], md.planner_data.get(e["fqn"]), path))
        store = boxes.get(e["fqn"], {})
        if e["type"] == "object":
            rep.that(isinstance(m, BytesStorageMetadata), "metadata: %s is not a byte item" % e["fqn"])
            rep.that(None in store, "metadata: %s: no storage entry" % e["fqn"])
        else:
            if not rep.that(not isinstance(m, BytesStorageMetadata), "metadata: %s is not a tensor" % e["fqn"]):
                continue
            rep.that(list(m.size) == e["shape"], "metadata: %s: size %s" % (e["fqn"], m.size))
            rep.that(str(m.properties.dtype) == "torch." + e["dtype"], "metadata: %s: dtype %s" % (e["fqn"], m.properties.dtype))
            volume = 0
            for i, c in enumerate(m.chunks):
                rep.that(len(c.offsets) == len(c.sizes) == len(m.size)
                         and all(0 <= o and 0 <= s and o + s <= n for o, s, n in zip(c.offsets, c.sizes, m.size)),
                         "metadata: %s: chunk %d out of bounds" % (e["fqn"], i))
                rep.that(tuple(c.offsets) in store, "metadata: %s: chunk at %s not stored" % (e["fqn"], tuple(c.offsets)))
                v = 1
                for s in c.sizes:
                    v *= s
                volume += v
                for d in m.chunks[:i]:
                    rep.that(len(m.size) > 0 and any(a >= b + t or b >= a + s for a, s, b, t in zip(c.offsets, c.sizes, d.offsets, d.sizes)),
                             "metadata: %s: chunks overlap at %s" % (e["fqn"], tuple(c.offsets)))
            whole = 1
            for s in m.size:
                whole *= s
            rep.that(volume == whole, "metadata: %s: chunks cover %d of %d elements" % (e["fqn"], volume, whole))
        for info in store.values():
            if not hasattr(info, "length"):
                continue
            p = os.path.join(ckpt, info.relative_path)
            if rep.that(os.path.isfile(p), "metadata: %s: no file %s" % (e["fqn"], info.relative_path)):
                rep.that(info.offset >= 0 and info.length >= 0 and info.offset + info.length <= os.path.getsize(p),
                         "metadata: %s: slice outside %s" % (e["fqn"], info.relative_path))


def guarded(rep, where, fn):
    try:
        return fn()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as err:  # CheckpointException is a BaseException
        text = str(err).strip().splitlines()
        rep.fail("%s: %s: %s" % (where, type(err).__name__, text[-1] if text else ""))
        return MISSING


def check_directory(ckpt, kind, entries, base, rep):
    reader = lambda: make_reader(kind, ckpt)
    md = guarded(rep, "metadata", lambda: reader().read_metadata())
    if md is MISSING:
        return
    check_metadata(md, entries, ckpt, rep)

    def preallocated():
        sd = {}
        for e in entries:
            put(sd, e.get("path", [e["fqn"]]), garbage(e) if e["type"] == "tensor" else "to be replaced")
        dcp.load(sd, storage_reader=reader(), no_dist=True)
        for e in entries:
            compare(get(sd, e.get("path", [e["fqn"]])), e, base, rep, "preallocated")

    guarded(rep, "preallocated", preallocated)

    def convert():
        with tempfile.TemporaryDirectory() as tmp:
            out = os.path.join(tmp, "all.pt")
            if kind == "dcp":
                dcp_to_torch_save(ckpt, out)
            else:
                sd = {}
                _load_state_dict(sd, storage_reader=reader(), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
                torch.save(sd, out)
            sd = torch.load(out, weights_only=False)
        for e in entries:
            compare(get(sd, e.get("path", [e["fqn"]])), e, base, rep, "convert")

    guarded(rep, "convert", convert)

    def keys():
        some = entries[:: max(1, len(entries) // 5)]
        for e in some:
            sd = _load_state_dict_from_keys({e["fqn"]}, storage_reader=reader())
            compare(get(sd, e.get("path", [e["fqn"]])), e, base, rep, "keys")

    if kind == "dcp" and md.planner_data is not None and not any(
            isinstance(p, int) for e in entries for p in e.get("path", [])):
        guarded(rep, "keys", keys)

    def reshard():
        for k in (2, 3):
            pieces = {}
            for e in entries:
                if e["type"] == "tensor" and 0 not in e["shape"]:
                    full = garbage(e)
                    pieces[e["fqn"]] = [(o, s, garbage(dict(e, shape=s))) for o, s in pieces_of(e, k)]
            _load_state_dict({}, storage_reader=reader(), planner=PiecesPlanner(pieces), no_dist=True)
            for e in entries:
                if e["fqn"] not in pieces:
                    continue
                full = garbage(e)
                for o, s, t in pieces[e["fqn"]]:
                    view = full
                    for d, (a, n) in enumerate(zip(o, s)):
                        view = view.narrow(d, a, n)
                    view.copy_(t)
                compare(full, e, base, rep, "reshard/%d" % k)

    guarded(rep, "reshard", reshard)


def check_file(ckpt, entries, base, rep):
    def go():
        obj = torch.load(ckpt, weights_only=False)
        for e in entries:
            compare(get(obj, e.get("path", [e["fqn"]])), e, base, rep, "torch.load")

    guarded(rep, "torch.load", go)


def unmet(needs):
    for n in needs:
        if n == "zstd":
            try:
                import zstandard  # noqa: F401
            except ImportError:
                return "zstandard is not installed"
        elif n == "safetensors":
            try:
                import safetensors  # noqa: F401
            except ImportError:
                return "safetensors is not installed"
        elif n.startswith("python>="):
            if sys.version_info[:2] < tuple(int(x) for x in n[8:].split(".")):
                return "needs %s" % n
        elif n.startswith("torch>="):
            have = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
            if have < tuple(int(x) for x in n[7:].split(".")):
                return "needs %s, this is %s" % (n, torch.__version__)
    return None


def check(ckpt, manifest, verbose):
    with open(manifest) as f:
        doc = json.load(f)
    entries = doc["entries"]
    base = os.path.dirname(os.path.abspath(manifest))
    kind = doc.get("kind", "dcp")
    if ckpt is None:
        ckpt = os.path.join(base, doc["checkpoint"])
    rep = Report(doc.get("case", os.path.basename(os.path.normpath(ckpt))), verbose)
    why = unmet(doc.get("needs", []))
    if why:
        return rep, why
    if kind == "torch-save":
        check_file(ckpt, entries, base, rep)
    else:
        check_directory(ckpt, kind, entries, base, rep)
    return rep, None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("checkpoint", nargs="?")
    ap.add_argument("manifest", nargs="?")
    ap.add_argument("--index", help="check every case of an index.json instead")
    ap.add_argument("--allow-skip", action="store_true", help="missing extras are not a failure")
    ap.add_argument("-v", "--verbose", action="store_true", help="print every failure, not the first ten")
    args = ap.parse_args()
    torch.set_num_threads(1)
    jobs = []
    if args.index:
        root = os.path.dirname(os.path.abspath(args.index))
        with open(args.index) as f:
            for row in json.load(f)["cases"]:
                jobs.append((None, os.path.join(root, row["expected"])))
    elif args.checkpoint and args.manifest:
        jobs.append((args.checkpoint, args.manifest))
    else:
        ap.error("give CHECKPOINT and MANIFEST, or --index")
    bad = skipped = total = 0
    for ckpt, manifest in jobs:
        rep, why = check(ckpt, manifest, args.verbose)
        total += rep.checks
        if why:
            skipped += 1
            print("SKIP %-28s %s" % (rep.name, why))
        elif rep.failures:
            bad += 1
            print("FAIL %-28s %d of %d checks failed" % (rep.name, len(rep.failures), rep.checks))
            for line in rep.failures if args.verbose else rep.failures[:10]:
                print("     " + line)
            if not args.verbose and len(rep.failures) > 10:
                print("     ... and %d more" % (len(rep.failures) - 10))
        else:
            print("PASS %-28s %d checks" % (rep.name, rep.checks))
    print("%d checkpoints, %d checks: %d passed, %d failed, %d skipped (torch %s)"
          % (len(jobs), total, len(jobs) - bad - skipped, bad, skipped, torch.__version__))
    sys.exit(1 if bad or (skipped and not args.allow_skip) else 0)


if __name__ == "__main__":
    main()
