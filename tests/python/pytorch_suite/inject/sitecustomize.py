# SPDX-License-Identifier: BSD-3-Clause
"""Found by every process of a run of PyTorch's tests: puts libdcp.torch in the place of PyTorch's own, without editing
a test. DCP_SUITE_SWAP is "storage" or "functions", DCP_SUITE_TRACE a folder for what was called."""

import functools
import importlib
import importlib.machinery
import os
import re
import sys

PACKAGE = "torch.distributed.checkpoint"
CLASSES = ["FileSystemWriter", "FileSystemReader"]
FUNCTIONS = ["save", "load", "async_save"]
# They derive from PyTorch's classes, and stay as they are.
DERIVED = ["%s.%s" % (PACKAGE, name) for name in ("_fsspec_filesystem", "hf_storage", "quantized_hf_storage")]


def trace(owner, name, word):
    """Notes each call, with the test that it is in."""
    called = getattr(owner, name)

    @functools.wraps(called)
    def call(*arguments, **named):
        test = os.environ.get("PYTEST_CURRENT_TEST", "?").rsplit(" ", 1)[0]
        with open(os.path.join(os.environ["DCP_SUITE_TRACE"], str(os.getpid())), "a") as notes:
            notes.write("%s\t%s\t%s\n" % (test, word, arguments[-1] if word == "elsewhere" else ""))
        return called(*arguments, **named)

    setattr(owner, name, call)


def rebind(stock, ours):
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if isinstance(name, str) and name.startswith(PACKAGE) and name not in DERIVED:
            for key, value in list(vars(module).items()):
                if value is stock:
                    setattr(module, key, ours)


def swap(package):
    for name in DERIVED:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    import libdcp.torch as ours
    from libdcp.torch import loading, saving, storage, ways

    swapped = CLASSES + (FUNCTIONS if os.environ["DCP_SUITE_SWAP"] == "functions" else [])
    for name in swapped:
        rebind(getattr(package, name), getattr(ours, name))
    trace(saving, "_run", "save")
    trace(saving, "_begin", "async_save")
    trace(loading, "_fill", "load")
    trace(ways, "say_elsewhere", "elsewhere")
    trace(storage.FileSystemWriter, "write_data", "write_data")
    trace(storage.FileSystemReader, "read_data", "read_data")


def no_decorator(*_, **__):
    return lambda function: function


def common(module):
    """What asks for accelerators runs without."""
    torch = module.torch
    for name in ("skip_if_lt_x_gpu", "requires_nccl", "requires_accelerator_dist_backend", "requires_gloo"):
        if hasattr(module, name):
            setattr(module, name, no_decorator)
    for owner, name in ((torch.nn.Module, "cuda"), (torch.Tensor, "cuda"), (torch.Tensor, "pin_memory")):
        setattr(owner, name, lambda self, *_, **__: self)
    rand = torch.rand
    torch.rand = lambda *sizes, device=None, **named: rand(
        *sizes, device="cpu" if isinstance(device, int) else device, **named
    )
    fork = torch.multiprocessing.get_context("fork").Process
    module.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(fork)


def sharded_tensor(module):
    stock = module.with_comms

    def with_comms(function=None, init_rpc=True, backend=None):
        if function is None:
            return functools.partial(with_comms, init_rpc=init_rpc)
        return stock(function, init_rpc=init_rpc, backend="gloo")

    module.with_comms = with_comms


def distributed_tensor(module):
    stock = module.DTensorTestBase.init_pg
    module.DTensorTestBase.init_pg = lambda self, eager, backend=None, *rest, **named: stock(
        self, eager, "gloo", *rest, **named
    )


def remote_device(module):
    stock = module._remote_device.__init__
    module._remote_device.__init__ = lambda self, device: stock(
        self, re.sub(r"cpu:\d+$", "cpu", device) if isinstance(device, str) else device
    )


def fully_sharded(module):
    owner = module.FullyShardedDataParallel
    stock = owner.__init__

    @functools.wraps(stock)
    def initialize(self, *arguments, **named):
        if named.get("device_id") is None:
            named["device_id"] = module.torch.device("cpu")
        stock(self, *arguments, **named)

    owner.__init__ = initialize


HOOKS = {
    PACKAGE: swap,
    "torch.distributed.remote_device": remote_device,
    "torch.distributed.fsdp.fully_sharded_data_parallel": fully_sharded,
    "torch.testing._internal.common_distributed": common,
    "torch.testing._internal.distributed._shard.sharded_tensor": sharded_tensor,
    "torch.testing._internal.distributed._tensor.common_dtensor": distributed_tensor,
}


class Finder:
    """Calls a hook right after its module was executed."""

    def find_spec(self, name, path=None, target=None):
        hook = HOOKS.pop(name, None)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if hook else None
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("DCP_SUITE_SWAP"):
    sys.meta_path.insert(0, Finder())
