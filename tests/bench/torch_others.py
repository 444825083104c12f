"""What the ranks of torch_ranks.py load that one of them has written, beside a checkpoint of PyTorch DCP: a .pt file, of which each
maps all and copies its part, and a safetensors file, of which each reads its slices."""
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor


def write(model, path):
    """By one rank."""
    if path.endswith(".pt"):
        torch.save({"model": model}, path)
    elif path.endswith(".safetensors"):
        from safetensors.torch import save_file
        save_file({"model." + name: value for name, value in model.items()}, path)
    else:
        dcp.save({"model": model}, checkpoint_id=path, no_dist=True)


def part_of(value, rank, ranks):
    """Of a tensor, what this rank has; torch.chunk() divides in the same way."""
    if not isinstance(value, DTensor):
        return (slice(None),) * value.dim()
    dim = value.placements[0].dim
    size = value.shape[dim]
    step = -(-size // ranks)
    part = [slice(None)] * value.dim()
    part[dim] = slice(min(rank * step, size), min((rank + 1) * step, size))
    return tuple(part)


def fill(target, get, rank, ranks):
    for name, value in target["model"].items():
        local = value.to_local() if isinstance(value, DTensor) else value
        local.copy_(get(name)[part_of(value, rank, ranks)])


def load(target, path, rank, ranks):
    if path.endswith(".pt"):
        fill(target, torch.load(path, mmap=True)["model"].__getitem__, rank, ranks)
    elif path.endswith(".safetensors"):
        from safetensors import safe_open
        with safe_open(path, framework="pt") as file:
            fill(target, lambda name: file.get_slice("model." + name), rank, ranks)
    else:
        dcp.load(target, checkpoint_id=path)
