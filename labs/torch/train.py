#!/usr/bin/python3
"""PyTorch's DDP or FSDP on an MLP, a CNN or a GPT, over ringsmith or gloo: the time of a step, and the loss.

    train.py [--model mlp|cnn|gpt] [--backend ringsmith|gloo] [--fsdp] [--ranks 2] [--steps 60]

Starts its ranks itself, as processes, or is one rank under torchrun or ringrun. The data is random; equal losses
show that two backends compute the same.
"""
import argparse
import functools
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

# name: (samples of a rank's batch, units per sample in the report, unit)
BATCH = {"mlp": (64, 1, "samples"), "cnn": (32, 1, "samples"), "gpt": (16, 128, "tokens")}
WARMUP = 8  # steps in which DDP rebuilds its buckets and memory is touched for the first time


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, tokens=256, width=128, length=128, layers=4):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = self.token(x) + self.place(torch.arange(x.shape[1]))
        return self.norm(self.blocks(x)) @ self.token.weight.t()


def model_of(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    if name == "cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                             nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 10))
    return GPT()


def batch_of(name, g):
    size = BATCH[name][0]
    if name == "gpt":
        text = torch.randint(0, 256, (size, 129), generator=g)
        return text[:, :-1], text[:, 1:]
    shape = (size, 1, 28, 28) if name == "cnn" else (size, 784)
    return torch.randn(shape, generator=g), torch.randint(0, 10, (size,), generator=g)


def wrapper_of(args):
    """Returns the function that makes a module parallel."""
    if args.backend == "ringsmith":
        import ringsmith_torch  # registers the backend
        for name in ("algorithm", "schedule"):
            if getattr(args, name):
                setattr(ringsmith_torch.options, name, getattr(args, name))
        if not args.plain_memory and not args.fsdp:
            return ringsmith_torch.DistributedDataParallel
    if args.fsdp:  # PyTorch 2: on CPUs
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        units = ModuleWrapPolicy({Block, nn.Linear} if args.model != "gpt" else {Block})
        return functools.partial(FullyShardedDataParallel, auto_wrap_policy=units, device_id=torch.device("cpu"))
    return nn.parallel.DistributedDataParallel


def train(args):
    torch.set_num_threads(1)
    if "RINGSMITH_STORE" in os.environ:  # started by ringrun: env:// needs this package, for gloo, too
        import ringsmith_torch  # noqa: F401
    make_parallel = wrapper_of(args)
    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    net = make_parallel(model_of(args.model))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    g = torch.Generator().manual_seed(1000 + rank)
    data = [batch_of(args.model, g) for _ in range(4)]
    times, losses = [], []
    for step in range(WARMUP + args.steps):
        x, target = data[step % len(data)]
        start = time.perf_counter()
        optimizer.zero_grad()
        y = net(x)
        loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    if rank == 0:
        median = sorted(times[WARMUP:])[args.steps // 2]
        size, weight, unit = BATCH[args.model]
        print(f"{'FSDP of ' if args.fsdp else ''}{args.model} over {args.backend}, {world} ranks: {1e3 * median:.2f} ms a step, "
              f"{world * size * weight / median:,.0f} {unit}/s, loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps({"step": median, "losses": [x.hex() for x in losses]}))
    dist.barrier()
    dist.destroy_process_group()


def be_rank(rank, args, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(args.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train(args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=BATCH, default="mlp")
    parser.add_argument("--backend", choices=["ringsmith", "gloo"], default="ringsmith")
    parser.add_argument("--fsdp", action="store_true", help="FullyShardedDataParallel instead of DDP (PyTorch 2)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--algorithm", help="algorithm of ringsmith's all-reduce; gloo_ring: gloo's order of sums")
    parser.add_argument("--schedule", help="all-reduce of ringsmith by this schedule: a file, checked first")
    parser.add_argument("--plain-memory", action="store_true", help="ringsmith under PyTorch's own DDP class")
    parser.add_argument("--json", help="file for the losses' bits and the time")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("USE_LIBUV", "0")  # Debian 13's PyTorch 2.6 has no libuv, but env:// asks for it
    if "RANK" in os.environ:
        return train(args)
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(be_rank, (args, port), args.ranks)


if __name__ == "__main__":
    sys.exit(main())
