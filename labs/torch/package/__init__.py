"""`ringsmith` as a backend of torch.distributed, for tensors on the CPU.

    import ringsmith_torch
    torch.distributed.init_process_group("ringsmith")

What else is here:

    options                    how groups are made from now on: the algorithm, the transport, ...
    DistributedDataParallel    PyTorch's, with its buckets where the other ranks can read them
    communication_memory       the same for any tensors that are made within it
    zeros                      one tensor in communication memory
    Error and its kinds        errors.py
"""
import contextlib
import dataclasses
import datetime
import inspect
import os

import torch
import torch.distributed as dist

from ringsmith_torch import _C
from ringsmith_torch.errors import CLASSES, Aborted, Error, MismatchError, PeerLost, TimeoutError, UsageError

__all__ = ["Aborted", "DistributedDataParallel", "Error", "MismatchError", "Options", "PeerLost", "TimeoutError",
           "UsageError", "abort", "communication_memory", "facts", "options", "zeros"]


@dataclasses.dataclass
class Options:
    """How a group is made. All ranks alike; also as init_process_group(..., pg_options=Options(...)).

    What is not here is PyTorch's: timeout= of init_process_group is the deadline of every wait.
    """
    algorithm: str = "automatic"  # of all_reduce; "gloo_ring": the order of gloo's sums, bit for bit
    schedule: str = ""            # a file or folder with an all-reduce of one's own, in the ring's place; proved first
    transport: str = "auto"       # auto: shared memory within a host, TCP between hosts; or shm, tcp, rdma
    interface: str = ""           # of TCP or RDMA: "eth0", "mlx5_0"; empty: one that reaches the others
    sockets: int = 1              # of TCP: connections between two ranks
    checksum: bool = False        # of TCP: a CRC32C within a host, too; an Error for bytes that fail it
    ranks_per_node: int = 0       # 0: nodes are hosts; else so many ranks count as one, for trying
    flight_dir: str = ""          # an existing folder for what ranks did last, if the group fails


options = Options()


def _create(given, pg_options=None):
    """What PyTorch calls in init_process_group and new_group."""
    chosen = options if pg_options is None else pg_options
    if not isinstance(chosen, Options):
        raise UsageError(f"pg_options must be ringsmith_torch.Options, got {type(chosen).__name__}")
    ranks = list(given.global_ranks_in_group)
    scope = f"in the group of ranks {', '.join(map(str, ranks))}" if ranks else ""
    timeout = given.timeout if isinstance(given.timeout, datetime.timedelta) else datetime.timedelta(seconds=given.timeout)
    return _C.make(given.store, given.group_rank, given.group_size, timeout, scope, dataclasses.asdict(chosen))


def _backend(group):
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def facts(group=None):
    """Lines that say how the ranks of a group reach each other."""
    return _C.facts(_backend(group))


def abort(group=None):
    """Ends what runs in the group, on all ranks, with Aborted; and every later call."""
    _C.abort(_backend(group))


def zeros(*size, dtype=torch.float32, group=None):
    """A tensor in the group's communication memory, from which the other ranks of the host reduce directly."""
    sizes = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return _C.zeros(_backend(group), list(sizes), dtype)


@contextlib.contextmanager
def communication_memory(group=None):
    """Tensors of 16 KiB or more that this thread makes meanwhile lie in the group's communication memory."""
    _C.open_scope(_backend(group))
    try:
        yield
    finally:
        _C.close_scope()


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's own, with its gradient buckets in communication memory: their all_reduce copies nothing.

    Buckets are made in the constructor and once more in an early forward(), when the order of the gradients is known.
    """
    _REBUILT_BY = 3  # forward passes with gradients

    def __init__(self, module, *args, **kwargs):
        self._with_gradients = 0
        with communication_memory(kwargs.get("process_group")):
            super().__init__(module, *args, **kwargs)

    def forward(self, *inputs, **kwargs):
        if self._with_gradients >= self._REBUILT_BY or not torch.is_grad_enabled():
            return super().forward(*inputs, **kwargs)
        self._with_gradients += 1
        with communication_memory(self.process_group):
            return super().forward(*inputs, **kwargs)


_C.set_error_classes(CLASSES)
# Lines below these are nobody's program: an error names the line that called PyTorch.
_C.set_library_folders([os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep, "<frozen"])
_devices = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
dist.Backend.register_backend("ringsmith", _create, extended_api=True, **_devices)
