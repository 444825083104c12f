# SPDX-License-Identifier: BSD-3-Clause
"""Trains with FSDP2 and saves while it goes on: torchrun --nproc-per-node 2 train.py DIRECTORY"""

import sys

import libdcp.torch as dcp
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters())

saved = None
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        saved = dcp.async_save({**parts, "step": step}, checkpoint_id="%s/step_%d" % (sys.argv[1], step))
saved.result()

state = {**dict(zip(("model", "optimizer"), get_state_dict(model, optimizer))), "step": 0}
dcp.load(state, checkpoint_id="%s/step_19" % sys.argv[1])
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
if dist.get_rank() == 0:
    print("resumed at step %d" % state["step"])
dist.destroy_process_group()
