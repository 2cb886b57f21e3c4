"""Where PyTorch's rendezvous finds its store: under ringrun, and in a PyTorch that was built without libuv.

MASTER_PORT of a rank that ringrun has started is the port of ringrun's own store, which does not speak PyTorch's
protocol. Rank 0 opens PyTorch's store on a free port, and tells the others the port through ringrun's store, which
admits only processes that know the job's secret. Rank 0's rendezvous finds the store open, and shares it.
"""
import datetime
import os

import torch.distributed as dist

from ringsmith_torch import _C

PATIENCE = datetime.timedelta(minutes=10)
_opened = []  # rank 0's store, which ends with the process


def choose_store():
    """Sets USE_LIBUV=0 if this PyTorch has no libuv (Debian's 2.6, 2.14): env:// and tcp:// ask for it by default."""
    if "USE_LIBUV" in os.environ:
        return
    try:
        dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    except RuntimeError as error:
        if "libuv" in str(error):
            os.environ["USE_LIBUV"] = "0"


def _open(world):
    arguments = {"host_name": os.environ["MASTER_ADDR"], "port": 0, "world_size": world, "is_master": True,
                 "timeout": PATIENCE, "wait_for_workers": False, "multi_tenant": True}
    try:
        return dist.TCPStore(**arguments, use_libuv=os.environ.get("USE_LIBUV", "1") == "1")
    except TypeError:  # PyTorch before 2.2 has no such argument
        return dist.TCPStore(**arguments)


def open_store():
    """Called when the package is imported. Waits until rank 0 has imported it, too."""
    choose_store()
    if os.environ.get("RINGSMITH_STORE") != "launcher" or "RANK" not in os.environ:
        return
    port = 0
    if os.environ["RANK"] == "0":
        _opened.append(_open(int(os.environ["WORLD_SIZE"])))
        port = _opened[0].port
    os.environ["MASTER_PORT"] = _C.exchange_in_launcher(str(port), PATIENCE)[0]
    del os.environ["RINGSMITH_STORE"]  # not for processes that this one starts
