#!/usr/bin/python3
"""PyTorch's DDP or FSDP over ringsmith and over gloo, alternating: steps of labs/torch/train.py, and their ratio.

    torch_ddp.py [--models mlp,cnn,gpt,fsdp-mlp,fsdp-gpt] [--ranks 2] [--rounds 5] [--steps 60]

`ringsmith` has its buckets in communication memory (ringsmith_torch.DistributedDataParallel); `plain` is PyTorch's own
class, as in a program that changes only the backend's name. FSDP has no class of ours. Each round runs all of them, so
that a busy machine slows all of them; the ratio is the median of the ratios within each round.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RINGSMITH_TORCH_BUILD", TOP / "build/torch"))
WAYS = {"gloo": ["--backend", "gloo"], "plain": ["--plain-memory"], "ringsmith": []}


def step_of(model, way, args):
    """Returns the seconds per step, and the first and last loss."""
    with tempfile.NamedTemporaryFile() as out:
        fsdp = ["--fsdp"] if model.startswith("fsdp-") else []
        done = subprocess.run(["/usr/bin/python3", TOP / "labs/torch/train.py", "--model", model.removeprefix("fsdp-"), *fsdp,
                               "--ranks", str(args.ranks), "--steps", str(args.steps), "--json", out.name, *WAYS[way]],
                              capture_output=True, text=True, timeout=900, check=False,
                              env={**os.environ, "PYTHONPATH": str(BUILD)})
        if done.returncode:
            sys.exit(f"{model} over {way} failed:\n{done.stdout}{done.stderr}")
        said = json.loads(pathlib.Path(out.name).read_text())
    return said["step"], said["losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    print(f"{args.ranks} ranks, ms a step: medians of {args.rounds} alternating rounds; load at the start {os.getloadavg()[0]:.1f}")
    print(f"{'model':8}{'gloo':>10}{'plain':>10}{'ringsmith':>10}   ratios (each round)")
    for model in args.models.split(","):
        ways = [way for way in WAYS if way != "ringsmith" or not model.startswith("fsdp-")]
        times = {way: [] for way in ways}
        for _ in range(args.rounds):
            losses = {}
            for way in ways:
                seconds, losses[way] = step_of(model, way, args)
                times[way].append(seconds)
            # With two ranks, the sum has the same bits in either order.
            if args.ranks == 2 and any(losses[way] != losses["gloo"] for way in ways):
                sys.exit(f"{model}: the losses differ between backends")
        ratio = {way: [g / t for g, t in zip(times["gloo"], times[way])] for way in ways}
        cells = "".join(f"{1e3 * statistics.median(times[way]):10.2f}" if way in times else f"{'':10}" for way in WAYS)
        ratios = "  ".join(f"gloo/{way} {statistics.median(ratio[way]):.2f} ({' '.join(f'{r:.2f}' for r in ratio[way])})"
                           for way in ways if way != "gloo")
        print(f"{model:8}{cells}   {ratios}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
