#!/usr/bin/python3
"""make torch-on-my-ring: sums the gradients of PyTorch's MLP by a student's ring of lab 06, and by the shipped ring.

    on_my_ring.py [FOLDER with a ring.so] [--ranks 2,3]

The checker first proves the ring, or reports its fault, before anything trains. On two ranks the losses must equal the
shipped ring's bit for bit; on more ranks they do if the chunks take the same path, and otherwise differ by rounding.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("RINGSMITH_TORCH_BUILD", TOP / "build/torch"))
OWN = TOP / ("build/labs/own-ring" if os.environ.get("LAB06") == "ref" else "work/06-ring")
ROUNDING = 1e-5  # relative difference of losses after a few steps


def losses(ranks, steps, *how):
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["/usr/bin/python3", TOP / "labs/torch/train.py", "--ranks", str(ranks), "--steps", str(steps),
                               "--json", out.name, *how], capture_output=True, text=True, timeout=600, check=False,
                              env={**os.environ, "PYTHONPATH": str(BUILD)})
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if "ringsmith:" in line]
            sys.exit(said[-1] if said else done.stdout + done.stderr)
        print(done.stdout.strip(), "(your ring)" if "--schedule" in how else "(the shipped ring)", flush=True)
        return [float.fromhex(x) for x in json.loads(pathlib.Path(out.name).read_text())["losses"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=OWN)
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    for ranks in map(int, args.ranks.split(",")):
        own = losses(ranks, args.steps, "--schedule", str(args.folder))
        shipped = losses(ranks, args.steps, "--algorithm", "ring")
        off = max((abs(a - b) / abs(b) for a, b in zip(own, shipped)), key=lambda d: (math.isnan(d), d))  # NaN counts as the largest
        print(f"{ranks} ranks: " + ("the same losses, bit for bit" if own == shipped else f"losses differ by {off:.0e}"))
        if not off <= ROUNDING or (ranks == 2 and own != shipped):
            return "the losses differ by more than rounding"
    return 0


if __name__ == "__main__":
    sys.exit(main())
