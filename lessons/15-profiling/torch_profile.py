#!/usr/bin/python3
"""torch_profile.py [BACKEND]: two ranks train with PyTorch's DDP on this backend, ringsmith or gloo, under torch.profiler.
Rank 0 prints what calls the collectives and writes torch_trace.json, which Perfetto opens."""
import importlib.util
import os
import sys
import tempfile


def rank(rank, world, backend, meeting):
    import torch
    import torch.distributed as dist
    if backend == "ringsmith":
        import ringsmith_torch  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(400, 400) for _ in range(4)])
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=2, warmup=1, active=5)) as profile:
        for _ in range(8):
            with torch.profiler.record_function("forward"):
                loss = ddp(torch.ones(4, 400)).square().mean()
            optimizer.zero_grad()
            with torch.profiler.record_function("backward"):
                loss.backward()
            with torch.profiler.record_function("optimizer"):
                optimizer.step()
            profile.step()
    if rank == 0:
        print(f"{'name':34} {'a step':>6}  {'ms a step':>9}")
        for row in sorted(profile.key_averages(), key=lambda row: row.key):
            if any(word in row.key.lower() for word in ("forward", "backward", "optimizer", "allreduce", "all_reduce", "reducer")) \
                    and "autograd" not in row.key.lower() and "#" not in row.key:
                print(f"{row.key:34} {row.count / 5:6.1f}  {row.cpu_time_total / 5e3:9.3f}")
        profile.export_chrome_trace("torch_trace.json")
    dist.barrier()
    dist.destroy_process_group()


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "ringsmith"
    if backend not in ("ringsmith", "gloo"):
        sys.exit(f"torch_profile.py: no backend '{backend}' here: choose ringsmith or gloo")
    for module, remedy in (("torch", "make torch installs it for /usr/bin/python3"),
                           ("ringsmith_torch", "make torch, then export PYTHONPATH=$PWD/build/torch")):
        if (module == "torch" or backend == "ringsmith") and not importlib.util.find_spec(module):
            sys.exit(f"torch_profile.py: no module {module}: {remedy}")
    import torch.multiprocessing
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank, args=(2, backend, f"file://{folder}/meeting"), nprocs=2)


if __name__ == "__main__":
    main()
