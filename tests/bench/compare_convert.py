"""Converting a .pt file into a DCP directory and back, and shards that PyTorch wrote as safetensors into a Hugging Face
directory: dcp convert and PyTorch's functions. And the fp32 weights of DeepSpeed checkpoints of two ranks (ZeRO-2 and
ZeRO-3, without the moments, which nobody reads here) into a .pt file: dcp convert --masters and zero_to_fp32.py, where
Python has deepspeed. And a model in FP8 with block scales into a .pt file of its fp32 weights: dcp convert --dequantize, and
PyTorch's QuantizedHuggingFaceStorageReader with torch.save.

    compare convert [--bytes 1G] [--tensors 100] [--repeat 3] [--dir DIR] [--json]
            [--build DIR] [--python PYTHON]

Each time in a new process, at most how much of whose memory is in use at a time. Of PyTorch what its
start takes is not counted, of ours all is, of which the limit is 64 MiB. Into a directory
both wait for the disk, as PyTorch does by default; into a file neither does.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
MIB = 1 << 20
LIMIT = 64 * MIB

MAKE = """
import sys, torch
path, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
elements = max(1, size // 4 // count)
torch.save({"model": {"layers.%d.weight" % i: torch.rand(elements) for i in range(count)}, "step": 1}, path)
"""

# Two ranks, each with half of every tensor, in a file for each rank.
MAKE_SHARDS = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as processes, torch.distributed.checkpoint as checkpoint
from torch.distributed.tensor import DTensor, Shard, init_device_mesh
path, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def save(rank):
    dist.init_process_group("gloo", init_method="file://" + path + ".store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    rows = max(1, size // 4 // count // 2 // 256)
    state = {"layers.%d.weight" % i: DTensor.from_local(torch.rand(rows, 256), mesh, [Shard(0)]) for i in range(count)}
    checkpoint.save(state, storage_writer=checkpoint.HuggingFaceStorageWriter(path, save_distributed=True))
    dist.destroy_process_group()
processes.start_processes(save, nprocs=2, start_method="fork")
"""

# As DeepSpeed writes them, of bfloat16 weights; bytes: of the fp32 ones. Tensors of ZeRO-3 lie in pieces.
MAKE_ZERO = """
import os, sys, torch
from collections import OrderedDict
path, size, count, stage = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
ranks, tag, elements = 2, "global_step1", max(2, size // 4 // count // 2 * 2)
os.makedirs(os.path.join(path, tag))
shapes = OrderedDict(("layers.%d.weight" % i, torch.Size([elements])) for i in range(count))
total = elements * count
flat = torch.rand(total)
weights = OrderedDict((name, flat[i * elements:(i + 1) * elements].bfloat16().clone() if stage == 2 else
                       torch.empty(0, dtype=torch.bfloat16)) for i, name in enumerate(shapes))
model = {"module": weights, "buffer_names": [], "optimizer": None, "param_shapes": [shapes],
         "frozen_param_shapes": OrderedDict(), "shared_params": {}, "frozen_param_fragments": OrderedDict(),
         "ds_version": "0.19.8"}
for rank in range(ranks):
    if stage == 2:
        name = "mp_rank_00_model_states.pt"
        piece = flat[total // 2 * rank:total // 2 * (rank + 1)]
        optimizer = {"single_partition_of_fp32_groups": [piece.clone()], "zero_stage": 2, "partition_count": [ranks],
                     "group_paddings": [0], "base_optimizer_state": {"state": {}, "param_groups": []}}
    else:
        name = "zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank
        piece = flat.view(count, ranks, elements // 2)[:, rank].reshape(-1)
        optimizer = {"fp32_flat_groups": [piece.clone()], "zero_stage": 3, "partition_count": ranks,
                     "optimizer_state_dict": {"state": {}, "param_groups": []}}
    torch.save(model, os.path.join(path, tag, name))
    torch.save({"optimizer_state_dict": optimizer, "ds_version": "0.19.8"},
               os.path.join(path, tag, "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank))
with open(os.path.join(path, "latest"), "w") as file:
    file.write(tag)
"""

# A Hugging Face directory in FP8, with a scale for each block of 128 x 128; bytes: of the computed weights.
MAKE_FP8 = """
import json, os, sys, torch
from safetensors.torch import save_file
path, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows, tensors = max(128, size // 4 // count // 256 // 128 * 128), {}
os.mkdir(path)
for i in range(count):
    tensors["layers.%d.weight" % i] = torch.randn(rows, 256).to(torch.float8_e4m3fn)
    tensors["layers.%d.weight_scale_inv" % i] = torch.rand(rows // 128, 2)
name = "model-00001-of-00001.safetensors"
save_file(tensors, os.path.join(path, name), {"format": "pt"})
with open(os.path.join(path, "model.safetensors.index.json"), "w") as file:
    json.dump({"metadata": {}, "weight_map": dict.fromkeys(tensors, name)}, file)
with open(os.path.join(path, "config.json"), "w") as file:
    json.dump({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}, file)
"""

PEER = """
import os, sys, time, logging, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
if sys.argv[1] == "hf":
    os.mkdir(sys.argv[3])
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
if sys.argv[1].startswith("zero"):
    import contextlib
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict
if sys.argv[1] == "fp8":
    import torch, torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
def dequantize(source, target):
    found = QuantizedHuggingFaceStorageReader(source).read_metadata().state_dict_metadata
    state = {name: torch.empty(tensor.size) for name, tensor in found.items() if name.endswith(".weight")}
    checkpoint.load(state, storage_reader=QuantizedHuggingFaceStorageReader(source), no_dist=True)
    torch.save(state, target)
def highest():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
before, start = highest(), time.perf_counter()
if sys.argv[1] == "hf":
    consolidate_safetensors_files(sys.argv[2], sys.argv[3], {"layers.%d.weight" % i: 1 for i in range(int(sys.argv[4]))})
elif sys.argv[1] == "fp8":
    dequantize(sys.argv[2], sys.argv[3])
elif sys.argv[1].startswith("zero"):
    with contextlib.redirect_stdout(sys.stderr):
        convert_zero_checkpoint_to_fp32_state_dict(sys.argv[2], sys.argv[3], max_shard_size=None)
else:
    (torch_save_to_dcp if sys.argv[1] == "dcp" else dcp_to_torch_save)(sys.argv[2], sys.argv[3])
print(time.perf_counter() - start, highest() - before)
"""

# In a process of its own, whose only child it is.
OURS = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
"""


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="compare convert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=parse_size, default=1 << 30)
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build", default=os.path.join(TREE, "build", "release"))
    parser.add_argument("--python", default=os.environ.get("DCP_PYTHON"))
    options = parser.parse_args(arguments)
    options.dir = os.path.abspath(options.dir or options.build)  # a file:// address has it
    venv = os.path.join(TREE, "build", "venv", "bin", "python")
    options.python = options.python or (venv if os.path.exists(venv) else sys.executable)
    return options


def run(*command):
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout.split()
    return float(answer[-2]), int(answer[-1])


def has_deepspeed(options):
    return subprocess.run([options.python, "-c", "import deepspeed.utils.zero_to_fp32"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    os.sync()


def compare(form, source, options):
    target, zero, fp8 = source + "." + form, form.startswith("zero"), form == "fp8"
    command = os.path.join(options.build, "bin", "dcp")
    ours = [sys.executable, "-c", OURS, command, "convert", "--quiet", "--to", "pt" if zero or fp8 else form, source, target]
    ours += ["--no-sync"] if form != "dcp" else []
    ours += ["--masters"] if zero else ["--dequantize", "fp32"] if fp8 else []
    peer = [options.python, "-c", PEER, form, source, target, str(options.tensors)]
    found = {"ours": [], "peer": []}
    for _ in range(options.repeat):
        for side, program in ("ours", ours), ("peer", peer):
            seconds, memory = run(*program)
            found[side].append((seconds, memory))
            remove(target)
    for i, (unit, limit) in enumerate((("s", None), ("B", LIMIT))):
        mine, theirs = (statistics.median(values[i] for values in found[side]) for side in ("ours", "peer"))
        show("convert.%s%s.%s" % ("" if zero or fp8 else "to_", form, "seconds" if i == 0 else "memory"), mine, theirs, limit, unit, options)


def show(measure, ours, peer, limit, unit, options):
    if options.json:
        print(json.dumps({"measure": measure, "ours": ours, "peer": peer, "ratio": peer / ours, "limit": limit,
                          "of_limit": limit / ours if limit else None, "unit": unit, "bytes": options.bytes,
                          "tensors": options.tensors}))
    elif unit == "s":
        print("%-24s ours %8.2f s    PyTorch %8.2f s    %5.1f x" % (measure, ours, peer, peer / ours))
    else:
        print("%-24s ours %8.1f MiB  PyTorch %8.1f MiB  %5.1f x" % (measure, ours / MIB, peer / MIB, peer / ours))


def main(arguments):
    options = parse_arguments(arguments)
    os.makedirs(options.dir, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        source = os.path.join(directory, "source.pt")
        subprocess.run([options.python, "-c", MAKE, source, str(options.bytes), str(options.tensors)], check=True)
        os.sync()
        compare("dcp", source, options)
        stored = os.path.join(directory, "stored")
        subprocess.run([os.path.join(options.build, "bin", "dcp"), "convert", "--quiet", source, stored, "--to", "dcp"],
                       check=True)
        os.remove(source)
        compare("pt", stored, options)
        shutil.rmtree(stored)
        shards = os.path.join(directory, "shards")
        subprocess.run([options.python, "-c", MAKE_SHARDS, shards, str(options.bytes), str(options.tensors)], check=True)
        os.sync()
        compare("hf", shards, options)
        shutil.rmtree(shards)
        model = os.path.join(directory, "model")
        subprocess.run([options.python, "-c", MAKE_FP8, model, str(options.bytes), str(options.tensors)], check=True)
        os.sync()
        compare("fp8", model, options)
        shutil.rmtree(model)
        for stage in (2, 3) if has_deepspeed(options) else ():
            run_of = os.path.join(directory, "run")
            subprocess.run([options.python, "-c", MAKE_ZERO, run_of, str(options.bytes), str(options.tensors), str(stage)],
                           check=True)
            os.sync()
            compare("zero%d" % stage, run_of, options)
            shutil.rmtree(run_of)
