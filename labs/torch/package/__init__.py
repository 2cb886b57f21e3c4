"""`ringsmith` as a backend of torch.distributed, for tensors on the CPU.

    import ringsmith_torch
    torch.distributed.init_process_group("ringsmith")

Also in this module:

    options                    settings of groups made from now on: the algorithm, the transport, ...
    DistributedDataParallel    PyTorch's, with its buckets in memory that the other ranks can read
    monitored_barrier          names all ranks that are missing
    set_timeout                the deadline of a group's waits
    communication_memory       context manager: the same for tensors of 16 KiB or more made within it
    zeros                      one tensor in communication memory
    Error and its subclasses   errors.py
"""
import contextlib
import dataclasses
import datetime
import inspect
import os

import torch
import torch.distributed as dist

from ringsmith_torch import _C, launcher
from ringsmith_torch.errors import CLASSES, Aborted, Error, MismatchError, PeerLost, TimeoutError, UsageError

__all__ = ["Aborted", "DistributedDataParallel", "Error", "MismatchError", "Options", "PeerLost", "TimeoutError",
           "UsageError", "abort", "communication_memory", "facts", "monitored_barrier", "options",
           "set_timeout", "zeros"]


@dataclasses.dataclass
class Options:
    """Settings of a group, the same on all ranks; also as init_process_group(..., pg_options=Options(...)).

    Other settings are PyTorch's: timeout= of init_process_group is the deadline of every wait.
    """
    algorithm: str = "automatic"  # of all_reduce; "gloo_ring" sums in gloo's order, bit for bit
    schedule: str = ""            # a file or folder with your own all-reduce, which replaces the ring; proved first
    transport: str = "auto"       # auto: shared memory within a host, TCP between hosts; or shm, tcp, rdma
    interface: str = ""           # for TCP or RDMA: "eth0", "mlx5_0"; empty: one that reaches the other ranks
    sockets: int = 1              # TCP connections between two ranks
    checksum: bool = False        # TCP: CRC32C also within a host; corrupt bytes raise Error
    ranks_per_node: int = 0       # 0: nodes are hosts; otherwise this many ranks form a node, for tests
    flight_dir: str = ""          # an existing folder for reports of the ranks' last operations if the group fails


options = Options()


def _create(given, pg_options=None):
    """Called by PyTorch in init_process_group and new_group."""
    chosen = options if pg_options is None else pg_options
    if not isinstance(chosen, Options):
        raise UsageError(f"pg_options must be ringsmith_torch.Options, got {type(chosen).__name__}")
    ranks = list(given.global_ranks_in_group)
    scope = f"in the group of ranks {', '.join(map(str, ranks))}" if ranks else ""
    timeout = given.timeout if isinstance(given.timeout, datetime.timedelta) else datetime.timedelta(seconds=given.timeout)
    return _C.make(given.store, given.group_rank, given.group_size, timeout, scope, dataclasses.asdict(chosen))


def _backend(group):
    group = group or dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps every group


def facts(group=None):
    """Returns lines that describe the connections between the ranks of a group."""
    return _C.facts(_backend(group))


def abort(group=None):
    """Aborts the group's running and later collectives, on all ranks; they raise Aborted. Does not end send and recv."""
    _C.abort(_backend(group))


def zeros(*size, dtype=torch.float32, group=None):
    """Returns a tensor in the group's communication memory, from which the other ranks of the host reduce directly."""
    sizes = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return _C.zeros(_backend(group), list(sizes), dtype)


def set_timeout(timeout, group=None):
    """Sets the deadline of a group's waits from now on, a datetime.timedelta, and of collectives in progress.

    PyTorch 2.14 has torch.distributed.set_timeout(); earlier versions can set the timeout of gloo and nccl only.
    """
    _C.set_timeout(_backend(group), timeout)


def monitored_barrier(group=None, timeout=None):
    """Waits for all ranks of a group; after the timeout, the error of each rank names all that are missing.

    Before PyTorch 2.14, torch.distributed.monitored_barrier() accepts only the backend called gloo.
    """
    unset = datetime.timedelta(milliseconds=-1)  # PyTorch's kUnsetTimeout: the group's own
    (group or dist.distributed_c10d._get_default_group()).monitored_barrier(timeout or unset, True)


@contextlib.contextmanager
def communication_memory(group=None):
    """Within this context, tensors of 16 KiB or more that this thread makes are in the group's communication memory."""
    _C.open_scope(_backend(group))
    try:
        yield
    finally:
        _C.close_scope()


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's own, with its gradient buckets in communication memory: their all_reduce copies nothing.

    overlap: "on": full buckets are reduced while backward continues, as PyTorch does. "off": backward's thread reduces
    each full bucket itself; where every core computes, two threads of a rank would only take turns on it. "auto":
    "on" if the machine has a core on which no rank of the group computes. It applies to all collectives of the group
    that backward starts.

    Buckets are made in the constructor and again in an early forward(), when the order of the gradients is known.
    """
    _REBUILT_BY = 3  # number of forward passes with gradients

    def __init__(self, module, *args, overlap="auto", **kwargs):
        if overlap not in ("auto", "on", "off"):
            raise UsageError(f"overlap={overlap!r} is unknown; choose 'auto', 'on' or 'off'")
        self._with_gradients = 0
        with communication_memory(kwargs.get("process_group")):
            super().__init__(module, *args, **kwargs)
        backend = _backend(self.process_group)
        computing = _C.ranks_on_machine(backend) * torch.get_num_threads()
        _C.set_overlap(backend, overlap == "on" or (overlap == "auto" and computing < os.cpu_count()))

    def forward(self, *inputs, **kwargs):
        if self._with_gradients >= self._REBUILT_BY or not torch.is_grad_enabled():
            return super().forward(*inputs, **kwargs)
        self._with_gradients += 1
        with communication_memory(self.process_group):
            return super().forward(*inputs, **kwargs)


_C.set_error_classes(CLASSES)
launcher.open_store()
# Errors name a line of the user's program, to which files below these folders do not belong.
_C.set_library_folders([os.path.dirname(torch.__file__) + os.sep, os.path.dirname(__file__) + os.sep, "<frozen"])
_devices = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
dist.Backend.register_backend("ringsmith", _create, extended_api=True, **_devices)
