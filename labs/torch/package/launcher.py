"""Ranks that ringrun has started: where PyTorch's env:// rendezvous finds its store.

MASTER_PORT is then the port of ringrun's own store, which does not speak PyTorch's protocol. Rank 0 opens PyTorch's store
on a free port, and tells the others the port through ringrun's store, which admits only processes that know the job's
secret. From then on the variables are those that torchrun sets, so env:// works for every backend.
"""
import datetime
import os

import torch.distributed as dist

from ringsmith_torch import _C

PATIENCE = datetime.timedelta(minutes=10)
_opened = []  # rank 0's store, which ends with the process


def _open(world):
    arguments = (os.environ["MASTER_ADDR"], 0, world, True, PATIENCE)
    try:
        return dist.TCPStore(*arguments, wait_for_workers=False, use_libuv=False)  # Debian's PyTorch 2.6 has no libuv
    except TypeError:  # PyTorch before 2.2 has no such argument
        return dist.TCPStore(*arguments, wait_for_workers=False)


def open_store():
    """Called when the package is imported. Waits until rank 0 has imported it, too."""
    if os.environ.get("RINGSMITH_STORE") != "launcher" or "RANK" not in os.environ:
        return
    port = 0
    if os.environ["RANK"] == "0":
        _opened.append(_open(int(os.environ["WORLD_SIZE"])))
        port = _opened[0].port
    port = _C.exchange_in_launcher(str(port), PATIENCE)[0]
    os.environ.update(MASTER_PORT=port, TORCHELASTIC_USE_AGENT_STORE="True")
    del os.environ["RINGSMITH_STORE"]  # not for processes that this one starts
