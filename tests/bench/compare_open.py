"""Opening a checkpoint of many chunks: ours and PyTorch's, on metadata as either writes it.

    compare open [--chunks 1000000] [--tensors 10000] [--repeat 5] [--dir DIR] [--json]
            [--build DIR] [--python PYTHON]

From nothing to having visited every name and chunk, each time in a new process, whose start
is not counted; the limit is a plain read of the same file.  There is no data.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="compare open", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1000000)
    parser.add_argument("--tensors", type=int, default=10000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build", default=os.path.join(TREE, "build", "release"))
    parser.add_argument("--python", default=os.environ.get("DCP_PYTHON"))
    options = parser.parse_args(arguments)
    options.dir = options.dir or options.build
    venv = os.path.join(TREE, "build", "venv", "bin", "python")
    options.python = options.python or (venv if os.path.exists(venv) else sys.executable)
    return options


def run(*command):
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return (float(answer[0]), int(answer[1])) if answer else None


def read_plainly(directory):
    start = time.perf_counter()
    with open(os.path.join(directory, ".metadata"), "rb", buffering=0) as file:
        while file.read(8 << 20):
            pass
    return time.perf_counter() - start


def compare(name, directory, ours, peer, options):
    times = {"ours": [], "peer": [], "limit": []}
    for _ in range(options.repeat):
        for side, program in ("ours", ours), ("peer", peer):
            seconds, chunks = run(*program, "list", directory)
            if chunks != options.tensors * (options.chunks // options.tensors):
                sys.exit("compare: %s found %d chunks" % (side, chunks))
            times[side].append(seconds)
        times["limit"].append(read_plainly(directory))
    median = {side: statistics.median(values) for side, values in times.items()}
    row = {"measure": name, "ours": median["ours"], "peer": median["peer"],
           "ratio": round(median["peer"] / median["ours"], 3), "limit": median["limit"],
           "of_limit": round(median["limit"] / median["ours"], 3), "unit": "s", "chunks": chunks,
           "bytes": os.path.getsize(os.path.join(directory, ".metadata")), "repeat": options.repeat}
    if options.json:
        print(json.dumps(row), flush=True)
    else:
        print("%-26s %9.4f s, PyTorch %9.4f s, %8.1fx, plain read %9.4f s" % (
            name, row["ours"], row["peer"], row["ratio"], row["limit"]), flush=True)


def main(arguments):
    options = parse_arguments(arguments)
    os.makedirs(options.dir, exist_ok=True)
    ours = [os.path.join(options.build, "tests", "bench", "bench_open")]
    peer = [options.python, os.path.join(HERE, "torch_open.py")]
    with tempfile.TemporaryDirectory(prefix="compare.", dir=options.dir) as theirs, \
            tempfile.TemporaryDirectory(prefix="compare.", dir=options.dir) as own:
        run(*peer, "make", theirs, str(options.tensors), str(options.chunks // options.tensors))
        run(*ours, "rewrite", theirs, own)
        compare("open, PyTorch's metadata", theirs, ours, peer, options)
        compare("open, our metadata", own, ours, peer, options)
