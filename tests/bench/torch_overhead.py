#!/usr/bin/python3
"""The time of a small all_reduce through PyTorch, compared with the runtime's own call and PyTorch's part.

    torch_overhead.py [--dir build/release] [--bytes 1024] [--rounds 7] [--calls 3000] [--strict]

Each round measures three things in turn, so that a busy machine slows all of them:

    c++      the runtime's call, in place, in plain memory (all_reduce_perf)
    fake     PyTorch's part: the call over PyTorch's backend "fake", which communicates nothing
    pytorch  the call over this backend

With --strict, exit status 1 if pytorch takes more than 1.5 times c++ plus fake (medians). Needs PyTorch 2, and
`make build` for all_reduce_perf.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RINGSMITH_TORCH_BUILD", TOP / "build/torch"))
WORLD = 2
MOST = 1.5  # times the C++ call, besides PyTorch's part


def be_rank(backend, count, calls):
    """Prints the seconds per call: the median of ten blocks."""
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    else:
        import ringsmith_torch  # noqa: F401
        dist.init_process_group(backend, init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=world)
    x = torch.zeros(count)
    for _ in range(200):
        dist.all_reduce(x)
    blocks = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(calls // 10):
            dist.all_reduce(x)
        blocks.append((time.perf_counter() - start) / (calls // 10))
    if backend != "fake":
        dist.barrier()
    print(f"SECONDS {statistics.median(blocks)}", flush=True)


def through_pytorch(backend, args):
    world = 1 if backend == "fake" else WORLD
    with tempfile.TemporaryDirectory() as folder:
        running = [subprocess.Popen(["/usr/bin/python3", __file__, "--rank", backend, "--bytes", str(args.bytes),
                                     "--calls", str(args.calls)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env={**os.environ, "PYTHONPATH": str(BUILD), "RANK": str(rank), "WORLD_SIZE": str(WORLD),
                                         "STORE": f"{folder}/store", "OMP_NUM_THREADS": "1"}) for rank in range(world)]
        said = [process.communicate(timeout=300) for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"torch_overhead.py: {backend} failed:\n" + "\n".join(a + b for a, b in said))
    return max(float(out.split("SECONDS ")[1]) for out, _ in said)


def through_cpp(args):
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run([TOP / "tests/support/mpirun.sh", str(WORLD), args.dir / "bin/all_reduce_perf", "-b",
                               str(args.bytes), "-n", str(args.calls), "-w", "200", "-c", "0", "--place", "in", "--memory", "user",
                               "-J", out.name], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"torch_overhead.py: all_reduce_perf failed:\n{done.stdout}{done.stderr}")
        return json.loads(pathlib.Path(out.name).read_text())["results"][0]["in_place"]["time_us"] / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default=TOP / "build/release", help="build folder with bin/all_reduce_perf")
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--rank", help="(internal) be a rank over this backend")
    args = parser.parse_args()
    if args.rank:
        return be_rank(args.rank, args.bytes // 4, args.calls)
    args.dir = args.dir.resolve()
    if not (args.dir / "bin/all_reduce_perf").exists():
        sys.exit(f"torch_overhead.py: {args.dir} has no bin/all_reduce_perf: make build")
    times = {"c++": [], "fake": [], "pytorch": []}
    for _ in range(args.rounds):
        times["c++"].append(through_cpp(args))
        times["fake"].append(through_pytorch("fake", args))
        times["pytorch"].append(through_pytorch("ringsmith", args))
    of = {name: 1e6 * statistics.median(t) for name, t in times.items()}
    least = {name: 1e6 * min(t) for name, t in times.items()}
    allowed = MOST * of["c++"] + of["fake"]
    print(f"all_reduce of {args.bytes} bytes, {WORLD} ranks, µs: medians of {args.rounds} alternating rounds (least)")
    for name in times:
        print(f"{name:8}{of[name]:9.2f} ({least[name]:.2f})")
    print(f"pytorch takes {(of['pytorch'] - of['fake']) / of['c++']:.2f} times c++ besides fake; at most {MOST} are allowed")
    return args.strict and of["pytorch"] > allowed


if __name__ == "__main__":
    sys.exit(main())
