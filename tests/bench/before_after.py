#!/usr/bin/env python3
"""before_after.py BEFORE AFTER [--rounds N] [--only TEXT]: compares the speed of two checkouts, each with a build.

Both run alternately: all_reduce by shm and TCP on 2 and 4 ranks, in communication memory and in plain memory, and the
training benchmarks on 1, 2 and 4 ranks. The ratio is the median over the rounds of after / before within a round, so
that a slow minute of the machine affects both; above 1: AFTER is slower. Lines more than 3 % slower are marked. Build
both with the same compiler, and run nothing else meanwhile.

    git worktree add --detach ../before HEAD~20
    (cd ../before && cmake --preset release && cmake --build build/release --target all_reduce_perf train_bench)
    tests/bench/before_after.py ../before .

BUILD (default build/release) is the build folder in each checkout.
"""
import argparse
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

LIMIT = 1.03


def jobs():
    """Yields (name, ranks, program and options) of each comparison."""
    perf = ["all_reduce_perf", "-b", "64", "-f", "4", "-e", "64M", "-n", "10", "--min-time", "40", "-c", "0", "--place", "in"]
    for transport in ("shm", "tcp"):
        for ranks in (2, 4):
            for memory in ("own", "user"):
                yield f"{transport} {ranks} {memory}", ranks, [*perf, "--transport", transport, "--memory", memory]
    for model, steps in (("gpt", ["--steps", "15", "--warmup", "3"]), ("mlp", ["--steps", "100", "--warmup", "10"])):
        for ranks in (1, 2, 4):
            yield f"{model} {ranks}", ranks, ["train_bench", model, *steps]


def times(text):
    """Returns {label: microseconds} from a program's output: one per size, or one for a training step."""
    step = re.search(r"ms/step ([\d.]+)", text)
    if step:
        return {"step": 1000 * float(step[1])}
    header = [line for line in text.splitlines() if re.match(r"#\s+size\s", line)][-1]
    column = re.sub(r"\([^)]*\)", "", header[1:]).split().index("time")
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s", line)]
    return {row[0]: float(row[column]) for row in rows}


def run(root, build, ranks, command):
    words = [root / "tests/support/mpirun.sh", str(ranks), root / build / "bin" / command[0], *command[1:]]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={"RINGSMITH_DEADLINE": "200", **os.environ})
    if done.returncode:
        sys.exit(f"before_after.py: exit code {done.returncode} of: {shlex.join(map(str, words))}\n{done.stderr}")
    return times(done.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("before", type=pathlib.Path)
    ap.add_argument("after", type=pathlib.Path)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--build", default="build/release")
    ap.add_argument("--only", default="", help="comparisons whose name contains this: shm, tcp 4, gpt")
    options = ap.parse_args()
    sides = [options.before.resolve(), options.after.resolve()]
    for root in sides:
        if not (root / options.build / "bin/all_reduce_perf").exists():
            sys.exit(f"before_after.py: {root / options.build} has no bin/all_reduce_perf: build it first")
    print(f"{'comparison':16} {'size':>9} {'before us':>11} {'after us':>11} {'ratio':>6}")
    for name, ranks, command in jobs():
        if options.only not in name:
            continue
        found = []
        for turn in range(options.rounds):
            order = sides if turn % 2 == 0 else sides[::-1]
            pair = {root: run(root, options.build, ranks, command) for root in order}
            found.append([pair[root] for root in sides])
        for label in found[0][0]:
            ratio = statistics.median(after[label] / before[label] for before, after in found)
            medians = [statistics.median(pair[side][label] for pair in found) for side in (0, 1)]
            mark = "  slower" if ratio > LIMIT else ""
            print(f"{name:16} {label:>9} {medians[0]:11.2f} {medians[1]:11.2f} {ratio:6.3f}{mark}", flush=True)


main()
