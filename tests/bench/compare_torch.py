"""libdcp.torch next to torch.distributed.checkpoint, in the same processes.

    compare torch [save|load|cold|columns|everything|after|kept|async|small-save|small-load|import ...] [--ranks 2] [--hosts 1] [--repeat 5]
                  [--tensors N] [--cpu] [--json] [--dir DIR] [--library FILE] [--python PYTHON]

save        1 GiB in 100 sharded tensors, durable, each into a fresh directory
load, cold  the same, of files that the page cache holds on all sides, and that it holds on none
columns, everything   as cold, but divided by columns, and every rank loads all of it
after       a load at once after a save, as each side leaves its files
kept        the same, with page_cache="kept" on our sides
async       the same: how long a step waits, from the third save on, with stagers that are kept, of pair ours
small-save, small-load   10,000 sharded tensors of 4 KiB, again and again
import      of the package, when PyTorch's are there; the limit is 50 ms

pair is PyTorch's functions over our storage and stager, full are our functions; the rival is PyTorch with plan
caching on.  Of saves and loads, the ceiling of pair is PyTorch's functions over a storage that moves no bytes.
Medians of the slowest rank, or with --cpu of the CPU time of all ranks, which other work on the machine changes less; sides
take turns. With --hosts, the ranks are on so many hosts of this machine: network namespaces, which only root can make, and
Open MPI starts them there. They have the disk and the page cache in common, and a network that is as fast as the machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
ROWS = 240
LARGE, SMALL = (100, 1 << 30), (10000, 40 << 20)
MEASURES = {"save": ("save", LARGE), "load": ("load", LARGE), "cold": ("cold", LARGE),
            "columns": ("columns", LARGE), "everything": ("everything", LARGE), "after": ("after", LARGE),
            "kept": ("kept", LARGE), "async": ("async", LARGE), "small-save": ("save", SMALL),
            "small-load": ("load", SMALL), "import": ("import", SMALL)}


def measure(what, size, options):
    """Medians of the sides."""
    tensors, size = size
    if options.tensors:
        tensors, size = options.tensors, size * options.tensors // tensors
    columns = max(1, round(size / tensors / ROWS / 4))
    paths = [os.path.join(TREE, "src", "python"), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path), OMP_NUM_THREADS="1")
    if options.library:
        environment["LIBDCP_LIBRARY"] = options.library
    with tempfile.TemporaryDirectory(prefix="compare.", dir=options.dir) as directory:
        numbers = [str(n) for n in (options.ranks, tensors, columns, options.repeat)]
        program = [options.python, os.path.join(HERE, "torch_functions.py"), what, *numbers, directory]
        program += ["cpu"] if options.cpu else []
        if options.hosts > 1 and what != "import":
            hosts = os.path.join(TREE, "tests", "mpi", "run_hosts.sh")
            program = ["sh", hosts, "mpiexec", str(options.hosts), str(options.ranks // options.hosts), *program]
            environment["GLOO_SOCKET_IFNAME"] = "eth0"
        out = subprocess.run(program, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    values = {}
    for line in out.splitlines():
        side, seconds = line.split()
        values.setdefault(side, []).append(float(seconds))
    return {side: statistics.median(seconds) for side, seconds in values.items()}


def report(name, medians, options):
    full = medians["full"]
    row = {"measure": name, "ranks": options.ranks, "hosts": options.hosts, "unit": "s", **medians}
    if "stock" in medians:
        row["pair_ratio"] = round(medians["stock"] / medians["pair"], 2)
        row["full_ratio"] = round(medians["stock"] / full, 2)
    if "nothing" in medians:
        row["pair_of_ceiling"] = round(medians["nothing"] / medians["pair"], 2)
    if options.json:
        print(json.dumps(row), flush=True)
    elif "stock" in medians:
        print("%-12s PyTorch %9.4f s   pair %9.4f s %6.2fx   full %9.4f s %6.2fx" % (
            row["measure"], medians["stock"], medians["pair"], row["pair_ratio"], full, row["full_ratio"])
            + ("   pair of its ceiling %.2f" % row["pair_of_ceiling"] if "nothing" in medians else ""), flush=True)
    else:
        print("%-12s %9.1f ms" % (row["measure"], full * 1000), flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(prog="compare torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tensors", type=int, help="of the same sizes; default: as above")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of the time that passes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dir", default=None, help="where to save; default: the system's place for temporary files")
    library = os.path.join(TREE, "build", "release", "src", "libdcp.so")
    parser.add_argument("--library", default=os.environ.get("LIBDCP_LIBRARY") or library)
    venv = os.path.join(TREE, "build", "venv", "bin", "python")
    parser.add_argument("--python", default=os.environ.get("DCP_PYTHON") or (venv if os.path.exists(venv) else sys.executable))
    options = parser.parse_args(arguments)
    if options.hosts < 1 or options.ranks % options.hosts != 0:
        parser.error("%d ranks cannot be on %d hosts, as many on each" % (options.ranks, options.hosts))
    unknown = set(options.measures) - set(MEASURES)
    if unknown:
        parser.error("no measure: %s" % ", ".join(sorted(unknown)))
    for name in options.measures or MEASURES:
        report(name, measure(*MEASURES[name], options), options)
