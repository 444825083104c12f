"""Optimizer state both ways: what get_optimizer_state_dict() and dcp.save() wrote becomes our native form, and what we
save of that is loaded by dcp.load() and set_optimizer_state_dict(); each is compared with the optimizer that it was."""
import copy
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict)

warnings.simplefilter("ignore")


def make_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    model[1].bias.requires_grad_(False)
    return model


def groups_of(model):
    names = [name for name, _ in model.named_parameters()]
    return [names[2:5], names[:2] + names[5:]]  # not in the model's order


def parameters(model, names):
    named = dict(model.named_parameters())
    return [named[name] for name in names]


def adam_of_two_groups(model):
    first, second = groups_of(model)
    return [torch.optim.AdamW([{"params": parameters(model, first), "lr": 0.01},
                               {"params": parameters(model, second), "betas": (0.8, 0.9)}])]


def tensor_rate(model):
    return [torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01), amsgrad=True)]


def momentum(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)]


def plain(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def two_optimizers(model):
    first, second = groups_of(model)
    return [torch.optim.Adam(parameters(model, first), lr=0.5), torch.optim.Adam(parameters(model, second), lr=0.25)]


def step(model, optimizers):
    for number in range(3):
        model(torch.randn(4, 5, generator=torch.Generator().manual_seed(number))).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def arguments(model, optimizers):
    names = {parameter: name for name, parameter in model.named_parameters()}
    return ["%d:%d:%d:%s" % (o, g, not parameter.requires_grad, names[parameter])
            for o, optimizer in enumerate(optimizers)
            for g, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]]


def check_equal(found, expected, where):
    if isinstance(expected, dict):
        assert set(found) == set(expected), (where, found.keys(), expected.keys())
        for key in expected:
            check_equal(found[key], expected[key], where + "." + str(key))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            check_equal(found[i], value, "%s.%d" % (where, i))
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected), where
    else:
        assert type(found) is type(expected) and found == expected, (where, found, expected)


def emptied(value):
    """A template to load into: equal in form, with other values."""
    if isinstance(value, dict):
        return {key: emptied(child) for key, child in value.items()}
    if isinstance(value, list):
        return [emptied(child) for child in value]
    return torch.full_like(value, -1) if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def check(program, directory, make, flat):
    model = make_model()
    optimizers = make(model)
    step(model, optimizers)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    stored, ours = os.path.join(directory, "theirs"), os.path.join(directory, "ours")
    dcp.save({"model": dict(model.named_parameters()),
              "optimizer": get_optimizer_state_dict(model, optimizers, options=options)}, checkpoint_id=stored)
    subprocess.run([program, stored, ours, "flat" if flat else "name"] + arguments(model, optimizers), check=True)

    expected = {str(o): optimizer.state_dict() for o, optimizer in enumerate(optimizers)}
    native = {"native": emptied(expected)}
    dcp.load(native, checkpoint_id=ours)
    check_equal(native["native"], expected, "native")

    fresh_model = make_model()
    fresh = make(fresh_model)
    state = get_optimizer_state_dict(fresh_model, fresh, options=options)
    dcp.load({"optimizer": state}, checkpoint_id=ours)
    if make is plain and not flat:
        options = StateDictOptions(strict=False)  # PyTorch misses state that this optimizer never has
    set_optimizer_state_dict(fresh_model, fresh, state, options=options)
    for found, optimizer in zip(fresh, optimizers):
        found = found.state_dict()
        found["state"] = {key: value for key, value in found["state"].items() if value}  # PyTorch makes empty ones
        check_equal(found, optimizer.state_dict(), "fresh")


def main():
    for make in (adam_of_two_groups, tensor_rate, momentum, plain, two_optimizers):
        for flat in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                try:
                    check(sys.argv[1], directory, make, flat)
                except BaseException:
                    print("%s, %s" % (make.__name__, "flat" if flat else "by name"), file=sys.stderr)
                    raise


if __name__ == "__main__":
    main()
