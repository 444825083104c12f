# SPDX-License-Identifier: BSD-3-Clause
"""Reads with PyTorch what the examples of planners have saved: check_planners.py DIRECTORY."""

import pickle
import sys
import tarfile
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

WEIGHT = torch.tensor([[10.0 * row + column for column in range(3)] for row in range(8)])
BIAS = torch.tensor([0.0, 0.5, 1.0])


def load(path):
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


def metadata(path):
    with open(f"{path}/.metadata", "rb") as file:
        return pickle.load(file)


def check(state, prefix="", dtype=torch.float32, flat=False):
    get = (lambda a, b: state[f"{a}.{b}"]) if flat else (lambda a, b: state[a][b])
    assert set(state) == ({f"{prefix}model", f"{prefix}train"} if not flat else {"model.weight", "model.bias", "train.step"}), state
    weight = get(f"{prefix}model", "weight")
    assert weight.dtype == dtype and torch.equal(weight, WEIGHT.to(dtype)), weight
    assert torch.equal(get(f"{prefix}model", "bias"), BIAS.to(dtype))
    assert get(f"{prefix}train", "step") == 1000


def check_examples(prefix):
    """Those that save; their names follow the prefix."""
    check(load(f"{prefix}rename_on_save"), prefix="foo_")
    check(load(f"{prefix}half_on_save"), dtype=torch.float16)
    check(load(f"{prefix}balance_writes"))
    writers = {info.relative_path.split("_")[2] for index, info in metadata(f"{prefix}balance_writes").storage_data.items()
               if index.fqn != "model.weight"}
    assert writers == {"0", "1"}, writers

    check(load(f"{prefix}extra_data"), flat=True)
    told = metadata(f"{prefix}extra_data").planner_data
    assert told == [f"per-rank-data of rank {rank}" for rank in range(4)], told

    check(load(f"{prefix}object_per_item"))
    places = [info.relative_path for info in metadata(f"{prefix}object_per_item").storage_data.values()]
    assert len(set(places)) == len(places) and all(place.startswith("item-") for place in places), places


def check_archive(path):
    """An archive of the example of storages, unpacked: of each name the last member counts."""
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(path) as archive:
            archive.extractall(directory)
        state = load(directory)
    assert set(state) == {"matrix", "step"} and state["step"] == 2, state
    assert torch.equal(state["matrix"], (2 * torch.arange(4096 * 1024)).to(torch.float32).view(4096, 1024))


def main(directory):
    check_examples(f"{directory}/")
    check_examples(f"{directory}/async_")
    check_archive(f"{directory}/tar_storage.tar")
    state = load(f"{directory}/unflattened")
    assert set(state) == {"model", "plain", "step"}, state
    assert metadata(f"{directory}/unflattened").planner_data is None
    assert torch.equal(state["model"]["layer"]["weight"], torch.tensor([[0.0, 3], [1, 4], [2, 5]]))
    assert state["model"]["number"].item() == 0.5 and state["model"]["epoch"] == 3 and state["step"] == 7
    assert state["model"]["empty"].shape == (2, 0, 1, 1, 3) and state["model"]["empty"].dtype == torch.bfloat16
    assert [int(value) for value in state["model"]["counters"]] == list(range(1000, 1040))
    print("PyTorch", torch.__version__, "reads all of them")


if __name__ == "__main__":
    main(sys.argv[1])
