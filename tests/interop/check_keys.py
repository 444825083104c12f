#!/usr/bin/env python3
"""Dicts with keys that are no strings: check_keys.py KEYS

KEYS is the program made of keys.c. What it saves is loaded by PyTorch in three ways, and what PyTorch saves of the same
state is loaded by it.
"""
import logging
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def parameter(p):
    return p if p < 11 else 1 << 40


def build(empty):
    """The state of keys.c; empty: with place holders for what a load puts in."""
    def moment(p, m):
        values = torch.arange(6, dtype=torch.float32) + (p * 100 + m * 10)
        return (values * 0 - 1 if empty else values).reshape(2, 3)

    state = {parameter(p): {"step": -1 if empty else p, "exp_avg": moment(p, 0), "exp_avg_sq": moment(p, 1)}
             for p in range(12)}
    keys = (None, True, 0.5, -10**20, b"a'", (1, "a"))
    return {"optimizer": {"state": state}, "keyed": {key: -1 if empty else 5 for key in keys},
            "set": set() if empty else {3, "three", (3,)}}


def same(found, expected):
    if isinstance(expected, dict):
        return (isinstance(found, dict) and list(map(repr, found)) == list(map(repr, expected))
                and all(same(found[key], value) for key, value in expected.items()))
    if isinstance(expected, torch.Tensor):
        return isinstance(found, torch.Tensor) and torch.equal(found, expected)
    return type(found) is type(expected) and found == expected


def text_keys(value):
    return {str(key): text_keys(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def tensors(state):
    return {p: {name: value for name, value in moments.items() if isinstance(value, torch.Tensor)}
            for p, moments in state["optimizer"]["state"].items() if isinstance(p, int)}


def check(found, expected, what):
    if not same(found, expected):
        sys.exit("%s: found %r\nexpected %r" % (what, found, expected))


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = directory + "/ours", directory + "/theirs"
        subprocess.run([program, "save", ours], check=True)
        expected = build(False)

        state = build(True)
        dcp.load(state, checkpoint_id=ours, no_dist=True)
        check(tensors(state), tensors(expected), "tensors by dcp.load")
        # PyTorch puts objects under the text of the key, beside the place holder
        check({text: state["keyed"][text] for text in text_keys(expected["keyed"])}, text_keys(expected["keyed"]),
              "objects by dcp.load")
        check(state["set"], expected["set"], "the set by dcp.load")
        names = dcp.FileSystemReader(ours).read_metadata().state_dict_metadata
        for name in ("optimizer.state.0.exp_avg", "optimizer.state.1099511627776.step", "keyed.(1, 'a')", "keyed.None",
                     "keyed.-100000000000000000000", "keyed.b\"a'\"", "keyed.True", "keyed.0.5", "set"):
            if name not in names:
                sys.exit("no %s among %s" % (name, sorted(names)))
        found = _load_state_dict_from_keys({"optimizer", "keyed", "set"}, checkpoint_id=ours)
        check(found, text_keys(expected), "_load_state_dict_from_keys")
        check(torch.load(ours + ".pt", weights_only=True), expected, "torch.load")

        dcp.save(build(False), checkpoint_id=theirs, no_dist=True)
        subprocess.run([program, "load", theirs], check=True)
    print("keys of any kind: both ways")


if __name__ == "__main__":
    main()
