# SPDX-License-Identifier: BSD-3-Clause
"""State dicts in memory: for the same training state our functions must give the same names and values as
get_model_state_dict(), get_optimizer_state_dict() and their setters, whatever the options, and each side must take what the
other one gave: check_state_dict.py PROGRAM."""
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import torch

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict)
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

from check_optimizer_state import check_equal  # noqa: E402
from ranks import run_ranks  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(width)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, 7), torch.nn.Linear(7, width)])
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, value):
        return value + self.scale * self.layers[1](torch.relu(self.layers[0](self.norm(value))))


class Model(torch.nn.Module):
    """Nested, with buffers, frozen and shared parameters, and rows that no number of ranks divides evenly."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Linear(4, 5)
        self.blocks = torch.nn.ModuleDict({"first": Block(5), "second": Block(5)})
        self.head = torch.nn.Linear(5, 3)
        self.tail = torch.nn.Linear(5, 3, bias=False)
        self.tail.weight = self.head.weight
        self.blocks["first"].layers[0].bias.requires_grad_(False)
        self.embedding.weight.requires_grad_(False)

    def forward(self, value):
        value = self.embedding(value)
        for block in self.blocks.values():
            value = block(value)
        return self.head(value) + self.tail(value)


def make(seed, world):
    torch.manual_seed(seed)
    model = Model()
    if world > 1:
        mesh = init_device_mesh("cpu", (world,))
        for block in model.blocks.values():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    names = dict(model.named_parameters())
    first = [value for name, value in names.items() if name.endswith("bias")]
    second = [value for name, value in names.items() if not name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": first, "weight_decay": 0.0}, {"params": second, "lr": 0.01}], lr=0.02)
    return model, optimizer


def train(model, optimizer):
    for number in range(3):
        model(torch.randn(6, 4, generator=torch.Generator().manual_seed(number))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def parameters_of(model, optimizer):
    """The optimizer's parameters in its order, as the program wants them."""
    names = {value: name for name, value in model.named_parameters()}
    return ["%d:%d:%s" % (number, not value.requires_grad, names[value])
            for number, group in enumerate(optimizer.param_groups) for value in group["params"]]


def states(model, optimizer, options):
    return {"model": dict(get_model_state_dict(model, options=options)),
            "optimizer": get_optimizer_state_dict(model, optimizer, options=options)}


def load_whole(path):
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


COMBINATIONS = [dict(zip(("full_state_dict", "cpu_offload", "ignore_frozen_params", "flatten_optimizer_state_dict"), chosen))
                for chosen in itertools.product((False, True), repeat=4)]


def title(chosen):
    words = {"full_state_dict": "full", "cpu_offload": "offload", "ignore_frozen_params": "frozen",
             "flatten_optimizer_state_dict": "flat"}
    return ",".join(word for name, word in words.items() if chosen[name]) or "none"


def save_theirs(rank, world, directory):
    """What PyTorch gives by every combination of options, and the state as it is trained, divided and whole."""
    model, optimizer = make(1, world)
    train(model, optimizer)
    dcp.save(states(model, optimizer, StateDictOptions()), checkpoint_id=f"{directory}/sharded")
    for chosen in COMBINATIONS:
        state = states(model, optimizer, StateDictOptions(**chosen))
        if chosen["full_state_dict"] and chosen["cpu_offload"] and rank > 0:
            assert not state["model"] and not state["optimizer"], state
        names = {"model": sorted(state["model"]), "optimizer": sorted(state["optimizer"])}
        whole = states(model, optimizer, StateDictOptions(**{**chosen, "full_state_dict": True, "cpu_offload": False}))
        if rank == 0:
            torch.save((names, whole), f"{directory}/{title(chosen)}.pt")
    whole = states(model, optimizer, StateDictOptions(full_state_dict=True))
    if rank == 0:
        dcp.save(whole, checkpoint_id=f"{directory}/whole", no_dist=True)
        with open(f"{directory}/parameters", "w") as file:
            file.write("\n".join(parameters_of(model, optimizer)))


def run(*arguments):
    return subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout


def check_getting(program, world, directory):
    with open(f"{directory}/parameters") as file:
        parameters = file.read().split("\n")
    for chosen in COMBINATIONS:
        words = title(chosen)
        ours = f"{directory}/ours-{words}"
        run(program, "get", str(world), f"{directory}/sharded", ours, words, *parameters)
        names, expected = torch.load(f"{directory}/{words}.pt")
        for part in names:
            assert names[part] == sorted(expected[part]), (words, part)
        if chosen["full_state_dict"]:
            places = [f"{ours}/{rank}" for rank in range(1 if chosen["cpu_offload"] else world)]
            assert sorted(os.listdir(ours)) == [str(rank) for rank in range(len(places))]
        else:
            places = [ours]
        for place in places:
            check_equal(load_whole(place), expected, words)


def take_ours(rank, world, directory, how):
    """A fresh model and optimizer take what our setter has made, and what our getter has."""
    model, optimizer = make(1, world)
    train(model, optimizer)
    whole = StateDictOptions(full_state_dict=True)
    expected = states(model, optimizer, whole)

    fresh, empty = make(2, world)
    state = states(fresh, empty, StateDictOptions())
    dcp.load(state, checkpoint_id=f"{directory}/set-{how}")
    set_model_state_dict(fresh, state["model"])
    set_optimizer_state_dict(fresh, empty, state["optimizer"])
    check_equal(states(fresh, empty, whole), expected, how)

    fresh, empty = make(3, world)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=how == "broadcast" and world > 1)
    state = load_whole(f"{directory}/ours-full/0") if rank == 0 or not options.broadcast_from_rank0 else \
        {"model": {}, "optimizer": {}}
    set_model_state_dict(fresh, state["model"], options=options)
    set_optimizer_state_dict(fresh, empty, state["optimizer"], options=options)
    check_equal(states(fresh, empty, whole), expected, how)
    if world > 1:
        assert isinstance(fresh.head.weight, DTensor)


def check_strictness(program, directory):
    """Missing and unexpected names: the same ones, and what is there is taken."""
    model, _ = make(1, 1)
    source = dict(get_model_state_dict(model))
    missing = ["head.bias", "blocks.second.norm.running_mean"]
    for name in missing:
        del source[name]
    source["blocks.third.weight"] = torch.ones(2)
    fresh, _ = make(2, 1)
    dcp.save(source, checkpoint_id=f"{directory}/source", no_dist=True)
    dcp.save(dict(get_model_state_dict(fresh)), checkpoint_id=f"{directory}/destination", no_dist=True)

    found = run(program, "strict", f"{directory}/source", f"{directory}/destination", f"{directory}/partial", "partial")
    keys = set_model_state_dict(fresh, dict(source), options=StateDictOptions(strict=False))
    assert sorted(keys.missing_keys) == sorted(missing) and keys.unexpected_keys == ["blocks.third.weight"]
    assert found.split("\n")[:-1] == ["missing " + name for name in sorted(keys.missing_keys)] + \
        ["unexpected " + name for name in keys.unexpected_keys], found
    check_equal(load_whole(f"{directory}/partial"), dict(get_model_state_dict(fresh)), "partial")

    before = {name: value.clone() for name, value in load_whole(f"{directory}/destination").items()}
    found = run(program, "strict", f"{directory}/source", f"{directory}/destination", f"{directory}/all", "all")
    try:
        set_model_state_dict(make(2, 1)[0], dict(source))
        raise AssertionError("PyTorch takes it")
    except RuntimeError as error:
        for name in missing + ["blocks.third.weight"]:
            assert name in str(error) and name in found, (name, found)
    assert found.startswith("failed "), found
    check_equal(load_whole(f"{directory}/all"), before, "all")


def main(program):
    for world in (1, 2, 3):
        with tempfile.TemporaryDirectory() as directory:
            run_ranks(world, save_theirs, directory)
            check_getting(program, world, directory)
            for how in ("own", "broadcast"):
                run(program, "set", str(world), f"{directory}/whole", f"{directory}/set-{how}", how)
                run_ranks(world, take_ours, directory, how)
    with tempfile.TemporaryDirectory() as directory:
        check_strictness(program, directory)
    print("PyTorch", torch.__version__, "and we give and take the same states")


if __name__ == "__main__":
    main(sys.argv[1])
