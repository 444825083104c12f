"""Planning with simulated ranks in one process, next to PyTorch's own global planning.

    compare plan [WORKLOAD ...] [--repeat 3] [--peer-items 100000] [--json]
                 [--build DIR] [--python PYTHON] [--dir DIR]
    compare plan --model llama3-8b --ranks 64 [--optimizer] [...]

Workloads:
    405b        Llama-3 405B with its optimizer (weights, two moments, steps) on 256 ranks
    405b-1024   its weights on 1024 ranks
    1000x1024   1000 tensors on 1024 ranks
    405b-8192   Llama-3 405B with its optimizer on 8192 ranks, ours alone
    again       10000 small tensors on 2 ranks, really saved and loaded (in --dir), again and again:
                what the slowest rank spends on planning, exchanges and reading .metadata included,
                without and with the plans that are kept; ours alone
Without any: all but 405b-8192.

Each rank holds rows of every tensor.  Measures:
    coordinator       from the plans that come in, as they were sent, to the orders for all ranks
    coordinator RSS   the largest memory of the process up to there; ours has passed on the plans
                      of all ranks by then, one after the other
    encode, decode    the .metadata file, as bytes in memory
    plan message      the largest that a rank sends
Ours alone:
    tree              what the coordinator waits for while ranks unite their plans, if each has a
                      processor of its own, the time on the wires aside
    alone             what a rank needs that finds its orders without being sent any
    again             what a rank needs when nothing has changed since the save before, one small
                      exchange aside
    load plan         what one rank of a job of another size has to read

PyTorch does DefaultSavePlanner.create_global_plan, with deduplication and validation, between
unpickling and pickling the plans.  It gets every n-th of the tensors, such that there are at
most --peer-items items, and its seconds and bytes are multiplied by n; that favours it, because
its time grows faster than that.  Its memory is shown only where nothing was scaled.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import model_params

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
TITLES = {"coordinator": "coordinator", "coordinator-memory": "coordinator RSS", "encode": "encode .metadata",
          "decode": "decode .metadata", "plan-message": "plan message", "memory": "RSS",
          "metadata-bytes": ".metadata", "tree": "tree", "alone": "alone", "again": "again",
          "load-plan": "load plan", "save-planning": "save", "save-planning-reused": "save, plan reused",
          "load-planning": "load", "load-planning-reused": "load, plan reused",
          "load-planning-reused-next": "of the next one"}
# What does not grow with the number of items as it does for the whole.
SCALED = ("coordinator", "encode", "decode", "plan-message", "metadata-bytes")


class Workload:
    def __init__(self, name, tensors, ranks, optimizer, peer=True):
        self.name, self.tensors, self.ranks = name, tensors, ranks
        self.optimizer, self.peer = optimizer, peer
        self.items = len(tensors) * ranks * (4 if optimizer else 1)


def model_tensors(name):
    return model_params.MODELS[name]()


def known_workloads():
    llama = model_tensors("llama3-405b")
    square = [("layers.%d.weight" % i, (4096, 4096)) for i in range(1000)]
    return {
        "405b": Workload("405b", llama, 256, True),
        "405b-1024": Workload("405b-1024", llama, 1024, False),
        "1000x1024": Workload("1000x1024", square, 1024, False),
        "405b-8192": Workload("405b-8192", llama, 8192, True, peer=False),
    }


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="compare plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--model", choices=sorted(model_params.MODELS))
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--optimizer", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer-items", type=int, default=100000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build", default=os.path.join(TREE, "build", "release"))
    parser.add_argument("--python", default=os.environ.get("DCP_PYTHON") or sys.executable)
    parser.add_argument("--again-tensors", type=int, default=10000, help=argparse.SUPPRESS)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    return parser.parse_args(arguments)


def run(command, lines):
    output = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    figures = {}
    for line in output.splitlines():
        measure, value, unit = line.split()
        figures[measure] = (float(value), unit)
    return figures


def run_workload(program, workload, tensors):
    lines = "".join("%s %s\n" % (name, " ".join(map(str, shape))) for name, shape in tensors)
    return run(program + [str(workload.ranks), "optimizer" if workload.optimizer else "weights"], lines)


def medians(runs):
    return {measure: (statistics.median(run[measure][0] for run in runs), unit)
            for measure, (_, unit) in runs[0].items()}


def show(value, unit):
    if unit == "s":
        return "%.4f s" % value if value >= 0.1 else "%.3f ms" % (value * 1000)
    if unit == "bytes":
        return "%.1f MB" % (value / 1e6) if value >= 1e6 else "%.1f kB" % (value / 1e3)
    return "%d" % value


def report(workload, scale, ours, peer, options):
    rows = []
    for measure, title in TITLES.items():
        if measure not in ours:
            continue
        value, unit = ours[measure]
        row = {"workload": workload.name, "measure": title, "ours": value, "unit": unit,
               "items": workload.items, "ranks": workload.ranks}
        if measure in peer and (scale == 1 or measure in SCALED):
            factor = scale if measure in SCALED else 1
            row["peer"] = peer[measure][0] * factor
            row["ratio"] = round(row["peer"] / value, 2) if value else None
            row["peer_scale"] = factor
        rows.append(row)
    if options.json:
        for row in rows:
            print(json.dumps(row), flush=True)
        return
    print("%s: %d tensors on %d ranks, %d items" % (
        workload.name, len(workload.tensors) * (4 if workload.optimizer else 1), workload.ranks, workload.items))
    if peer:
        print("PyTorch with %d items%s" % (peer["items"][0], ", times %.2f where marked with *" % scale if scale > 1 else ""))
    print("%-18s %12s %14s %9s" % ("median of %d" % options.repeat, "ours", "PyTorch", "ratio"))
    for row in rows:
        shown = show(row["peer"], row["unit"]) + ("*" if row["peer_scale"] > 1 else " ") if "peer" in row else "-"
        ratio = "%.1fx" % row["ratio"] if row.get("ratio") else ""
        print("%-18s %12s %14s %9s" % (row["measure"], show(row["ours"], row["unit"]), shown, ratio), flush=True)


def compare(workload, options):
    ours = [os.path.join(options.build, "tests", "bench", "bench_plan")]
    peer = [options.python, os.path.join(HERE, "torch_plan.py")]
    scale = max(1, -(-workload.items // options.peer_items))
    our_runs, peer_runs = [], []
    for _ in range(options.repeat):
        our_runs.append(run_workload(ours, workload, workload.tensors))
        if workload.peer:
            peer_runs.append(run_workload(peer, workload, workload.tensors[::scale]))
    if workload.peer:
        scale = len(workload.tensors) / len(workload.tensors[::scale])
    report(workload, scale, medians(our_runs), medians(peer_runs) if peer_runs else {}, options)


def compare_again(options):
    ours = [os.path.join(options.build, "tests", "bench", "bench_again")]
    workload = Workload("again", [("", ())] * options.again_tensors, 2, False, peer=False)
    command = ours + [str(options.again_tensors), str(workload.ranks), options.dir]
    report(workload, 1, medians([run(command, "") for _ in range(options.repeat)]), {}, options)


def main(arguments):
    options = parse_arguments(arguments)
    known = known_workloads()
    if options.model:
        workloads = [Workload(options.model, model_tensors(options.model), options.ranks, options.optimizer)]
    else:
        names = options.workloads or ["405b", "405b-1024", "1000x1024", "again"]
        unknown = [name for name in names if name not in known and name != "again"]
        if unknown:
            sys.exit("compare plan: no workload %s; there are %s, again" % (unknown[0], ", ".join(known)))
        workloads = [known.get(name) for name in names]
    for workload in workloads:
        if workload:
            compare(workload, options)
        else:
            compare_again(options)
