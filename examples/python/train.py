# SPDX-License-Identifier: BSD-3-Clause
"""Fits a line with NumPy, saves while it goes on, and resumes: train.py DIRECTORY [STEPS]

With JAX only the arrays change: libdcp takes whatever has __dlpack__, and gives arrays that jax.numpy.asarray() takes.
"""

import os
import sys

import numpy as np

import libdcp

place = os.path.join(sys.argv[1], "checkpoint")
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
random = np.random.default_rng(0)
inputs = random.normal(size=(256, 8)).astype(np.float32)
wanted = np.arange(8, dtype=np.float32)
outputs = inputs @ wanted

state = {"weight": np.zeros(8, np.float32), "momentum": np.zeros(8, np.float32), "step": 0}
try:
    libdcp.load(state, place)  # in place
    print("resumed at step %d" % state["step"])
except libdcp.NotFoundError:
    print("a fresh start")

with libdcp.Saver() as saver:  # its end waits for the last save
    while state["step"] < steps:
        error = inputs @ state["weight"] - outputs
        state["momentum"] *= 0.9
        state["momentum"] += inputs.T @ error / len(inputs)
        state["weight"] -= 0.05 * state["momentum"]
        state["step"] += 1
        if state["step"] % 50 == 0:
            saver.save(state, place, overwrite=True, step=state["step"]).wait_staged()
print("step %d: error %.5f" % (state["step"], np.abs(state["weight"] - wanted).max()))
