"""compare peers: the same state saved and loaded by one process of ours and of others' (compare --help)."""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = {"ours": "save", "ours, kept": "save_kept"}
PEERS = {"dcp": "PyTorch DCP", "torch": "torch.save", "mmap": "torch.load, mapped", "safetensors": "safetensors",
         "fastsafetensors": "fastsafetensors", "orbax": "Orbax, JAX"}
MEASURES = ["save", "load after save", "load warm", "load cold", "save memory", "load memory"]


def parse_arguments(arguments, parse_bytes, tree):
    parser = argparse.ArgumentParser(prog="compare peers", description=__doc__)
    parser.add_argument("--bytes", type=parse_bytes, default=1 << 30, help="of the state, as 256M; default: 1G")
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--dir", default=None, help="where to save; default: the build directory")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build", default=os.path.join(tree, "build", "release"))
    parser.add_argument("--python", default=os.environ.get("DCP_PYTHON"))
    options = parser.parse_args(arguments)
    options.dir = options.dir or options.build
    venv = os.path.join(tree, "build", "venv", "bin", "python")
    options.python = options.python or (venv if os.path.exists(venv) else sys.executable)
    options.ranks = 1
    return options


def start(side, rows, options):
    """The programs of the sides that there are, ours first."""
    options.columns = max(1, round(options.bytes / options.tensors / rows / 4))
    ours = side([os.path.join(options.build, "tests", "bench", "bench_ranks")], options)
    sides = {name: ours for name in OURS}
    for peer in PEERS:
        program = side([options.python, os.path.join(HERE, "peer.py"), peer], options)
        said = program.process.stdout.readline().split()
        if said == ["ready"]:
            sides[peer] = program
        else:
            print("%s is left out: %s" % (PEERS[peer], " ".join(said) or "it does not start"), file=sys.stderr)
            program.close()
    return sides


def take(program, save, ours, path):
    """One save, and loads of it as it then is, once it was read, and when the page cache has nothing of it."""
    taken = {}
    os.sync()
    program.do("trim", path)
    answer = program.do(save, path)
    taken["save"], taken["save memory"] = answer["s"], answer["memory"]
    for measure in "load after save", "load warm", "load cold":
        if measure == "load cold":
            ours.do("cool", path)
        program.do("trim", path)
        answer = program.do("load", path)
        taken[measure] = answer["s"]
        taken["load memory"] = max(taken.get("load memory", 0), answer["memory"])
    shutil.rmtree(path)
    return taken


def report(medians, options):
    for side, figures in medians.items():
        row = {"measure": "peers", "side": side, "durable": True, "tensors": options.tensors, "bytes": options.bytes,
               "repeat": options.repeat}
        row.update(figures)
        row["ratios"] = {name: round(figures[name] / medians["ours"][name], 3) if medians["ours"][name] else 0
                         for name in MEASURES}
        if options.json:
            print(json.dumps(row), flush=True)
    if options.json:
        return
    print("%-20s" % ("median of %d" % options.repeat) + "".join("%17s" % name for name in MEASURES))
    for side, figures in medians.items():
        cells = ["%.1f MiB" % (figures[name] / 2**20) if "memory" in name else "%.4f s" % figures[name]
                 for name in MEASURES]
        print("%-20s" % PEERS.get(side, side) + "".join("%17s" % cell for cell in cells))
    print("Every save is durable; what has no sync of its own was synced behind it. Kept: in the page cache.")


def main(arguments, side, rows, parse_bytes, tree):
    options = parse_arguments(arguments, parse_bytes, tree)
    os.makedirs(options.dir, exist_ok=True)
    sides = start(side, rows, options)
    values = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="compare.", dir=options.dir) as directory:
        for i in range(options.repeat):
            names = list(sides)
            for name in names[i % len(names):] + names[:i % len(names)]:
                values[name].append(take(sides[name], OURS.get(name, "save"), sides["ours"], os.path.join(directory, name)))
    for program in set(sides.values()):
        program.close()
    report({name: {measure: statistics.median(taken[measure] for taken in values[name]) for measure in MEASURES}
            for name in sides}, options)
