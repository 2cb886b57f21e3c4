#!/usr/bin/python3
"""Runs programs that were written for gloo, and reference trajectories of gloo, on this backend.

    programs.py [--worlds 2,3,4]

1. The peers' MLP, CNN and GPT (tests/bench/peers/torch_ddp_*.py), unchanged: init_process_group("gloo") creates the
   other backend instead, and every loss.item() is recorded. In gloo's order of sums each loss has the bits of the run on
   gloo itself; in the backend's own order it may differ by rounding.
2. The trajectories in tests/reference/data/strict, which the runtime's own trainer follows bit for bit
   (tests/reference): PyTorch on this backend must follow them too, so that both train identically on the same ring.
"""
import argparse
import json
import os
import runpy
import sys

import ranks

PEERS = ranks.TOP / "tests/bench/peers"
PROGRAMS = {name: program.split() for name, program in {
    "mlp": "torch_ddp_mlp.py --hidden 96 --steps 6 --warmup 2 --batch 8",
    "cnn": "torch_ddp_images.py --model small_cnn --steps 6 --warmup 2 --batch 8",
    "gpt": "torch_ddp_gpt.py --steps 3 --warmup 1 --batch 2"}.items()}
STRICT = ranks.TOP / "tests/reference/data/strict"
SCALAR_BLAS = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3"
# gloo's sums in plain scalar order, in which the trajectories were recorded
SCALAR = {"ATEN_CPU_CAPABILITY": "default", "LD_PRELOAD": SCALAR_BLAS}


def as_backend(way, program, *args):
    """Runs the unchanged program on another backend. Called in a rank."""
    import torch
    import torch.distributed as dist

    import ringsmith_torch
    make, destroy = dist.init_process_group, dist.destroy_process_group
    item = torch.Tensor.item
    losses = []

    def init_process_group(backend, **_):
        assert backend == "gloo", f"{program} asks for {backend}"
        if way == "strict":
            ringsmith_torch.options.algorithm = "gloo_ring"
        make("gloo" if way == "gloo" else "ringsmith", init_method=f"file://{os.environ['STORE']}",
             rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

    def write_down(tensor):
        if tensor.grad_fn is not None:
            losses.append(item(tensor).hex())
        return item(tensor)

    def destroy_process_group():
        print("LOSSES", json.dumps(losses), flush=True)
        if way == "gloo":  # its destructor hangs in one of ten runs, as of PyTorch 1.13
            os._exit(0)
        destroy()

    dist.init_process_group, dist.destroy_process_group = init_process_group, destroy_process_group
    torch.Tensor.item = write_down
    sys.path.insert(0, str(PEERS))
    sys.argv = [program, *args]
    runpy.run_path(str(PEERS / program), run_name="__main__")


def follow(world):
    """Runs the training of a reference file and returns the differences. Called in a rank."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.backends.mkldnn.enabled = False
    rank, _ = ranks.join(algorithm="gloo_ring") if world > 1 else (0, 1)
    said = json.loads((STRICT / f"mlp_w{world}.json").read_text())
    x = torch.tensor(said["x"]).view(said["n"], said["in"])
    y = torch.tensor(said["y"]).view(said["n"], said["out"])
    net = nn.Sequential(nn.Linear(said["in"], said["hidden"]), nn.ReLU(), nn.Linear(said["hidden"], said["out"]))
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), said["init"][rank]):
            parameter.copy_(torch.tensor(values).view_as(parameter))
    wrapped = DistributedDataParallel(net) if world > 1 else net
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=said["lr"], momentum=said["momentum"], foreach=False)
    for number, step in enumerate(said["steps"]):
        optimizer.zero_grad()
        rows = step["indices"][rank]
        loss = nn.functional.mse_loss(wrapped(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        assert torch.equal(loss, torch.tensor(step["loss"][rank])), f"step {number}: loss {loss} is not {step['loss'][rank]}"
        for parameter, values in zip(net.parameters(), step["params"]):
            assert torch.equal(parameter.flatten(), torch.tensor(values)), f"step {number}: parameters differ"
    print("FOLLOWED", number + 1, flush=True)


def losses_of(world, way, name):
    program, *args = PROGRAMS[name]
    done = ranks.run(world, __file__, "--rank", way, program, *args)
    ranks.expect_success(done, f"{program} on {way}")
    lines = [line for end in done for line in end.text.splitlines() if line.startswith("LOSSES ")]
    losses = [[float.fromhex(x) for x in json.loads(line.split(" ", 1)[1])] for line in lines]
    count = int(args[args.index("--steps") + 1]) + int(args[args.index("--warmup") + 1])
    assert len(losses) == world and all(len(row) == count for row in losses), f"{program} on {way}: {losses}"
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,3,4")
    parser.add_argument("--rank", nargs=argparse.REMAINDER, help="(internal) be a rank")
    args = parser.parse_args()
    if args.rank:
        return follow(int(args.rank[1])) if args.rank[0] == "follow" else as_backend(*args.rank)
    ranks.leave_if_impossible()
    for world in map(int, args.worlds.split(",")):
        for name in PROGRAMS:
            of = {way: losses_of(world, way, name) for way in ("gloo", "strict", "own")}
            assert of["strict"] == of["gloo"], f"{name}, {world} ranks: losses in gloo's order differ from gloo's: {of}"
            off = max((abs(a - b) / abs(b) for mine, theirs in zip(of["own"], of["gloo"]) for a, b in zip(mine, theirs)),
                      key=lambda d: (d != d, d))  # NaN is the worst
            assert off < 2e-5, f"{name}, {world} ranks: losses are off by {off:.1e}"
            first, *_, last = of["own"][0]
            print(f"{world} ranks, {PROGRAMS[name][0]}: loss {first:.4f} to {last:.4f}; gloo's bits in gloo's order;"
                  f" own order off by {off:.0e}", flush=True)
    if not os.path.exists(SCALAR_BLAS):
        sys.exit(f"programs.py: no {SCALAR_BLAS}: apt-get install libblas3")
    for world in range(1, 6):
        done = ranks.run(world, __file__, "--rank", "follow", world, **SCALAR)
        ranks.expect_success(done, f"strict trajectory of {world} ranks")
        steps = {line.split()[1] for end in done for line in end.text.splitlines() if line.startswith("FOLLOWED")}
        assert len(steps) == 1, f"{world} ranks: {[end.text for end in done]}"
        print(f"{world} ranks: {steps.pop()} steps of the strict trajectory, every bit of losses and parameters", flush=True)


if __name__ == "__main__":
    sys.exit(main())
