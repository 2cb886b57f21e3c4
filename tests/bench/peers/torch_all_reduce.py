"""PyTorch's all-reduce (NCCL on devices, gloo on CPUs) in the columns of all_reduce_perf: bytes, median, busbw.

    python3 torchrun.py --nproc_per_node 2 torch_all_reduce.py --backend nccl --most 256M
"""
import argparse
import os
import time

import torch
import torch.distributed as dist

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--backend", choices=["nccl", "gloo"], required=True)
    p.add_argument("--most", type=size, default="256M", help="largest message: bytes, or 64K, 256M")
    p.add_argument("--reps", type=int, default=20)
    a = p.parse_args()
    if a.backend == "gloo":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(a.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    device = f"cuda:{rank}" if a.backend == "nccl" else "cpu"
    wait = (lambda: torch.cuda.synchronize(device)) if a.backend == "nccl" else (lambda: None)
    if rank == 0:
        print(f"torch {torch.__version__}, {a.backend}, {world} processes, float32 sum, medians of {a.reps}")
        print(f"{'bytes':>12} {'us':>10} {'busbw GB/s':>12}")
    nbytes = 1 << 10
    while nbytes <= a.most:
        x = torch.zeros(nbytes // 4, device=device)
        times = []
        for rep in range(a.reps + 3):
            x.fill_(rank + 1)
            wait()
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(x)
            wait()
            times.append(time.perf_counter() - begin)
        if not torch.equal(x, torch.full_like(x, world * (world + 1) / 2)):
            raise SystemExit(f"rank {rank}: {nbytes} bytes: the sum is wrong")
        median = sorted(times[3:])[a.reps // 2]
        if rank == 0:
            print(f"{nbytes:>12} {median * 1e6:>10.1f} {2 * (world - 1) / world * nbytes / median / 1e9:>12.2f}")
        nbytes *= 8
    dist.destroy_process_group()


main()
