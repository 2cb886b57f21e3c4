#!/usr/bin/env python3
"""tcp.py BUILD_DIR: all-reduce over TCP on the loopback, compared with gloo's ring; alternating runs,
medians.

Both have one process per rank and plain memory. `auto` is ringsmith's own choice, `ring` its ring at
every size. A ratio is the median over rounds of the ratios within a round.

--checksum compares `auto` with `--checksum` instead: the cost of the CRC32C of all frames.
"""
import argparse
import os
import statistics
import sys

from collectives import HERE, human, measurement_options, median_of, parse, run, verdict
from link import build_folder


def commands_of(world, options):
    """Returns {name: command}. All commands are compared with the last one."""
    sizes = ["-b", str(options.min), "-e", str(options.max), "-f", str(options.factor), "-w", "5",
             "-n", str(options.iterations)]
    ours = [os.path.join(HERE, "../support/mpirun.sh"), str(world), os.path.join(options.dir, "bin/all_reduce_perf"),
            *sizes, "--min-time", str(options.min_ms), "--place", "in", "--memory", "user", "--transport", "tcp"]
    if options.checksum:
        return {"auto": [*ours, "--checksum"], "without": ours}
    return {"auto": ours, "ring": [*ours, "--algorithm", "ring"],
            "gloo": [os.path.join(options.dir, "peers/allreduce_gloo"), *sizes, "-T", str(options.min_ms), "-p", str(world)]}


def ratios(rounds, name):
    other = list(rounds[0])[-1]
    return {size: statistics.median(r[other][size]["time"] / r[name][size]["time"] for r in rounds)
            for size in sorted(rounds[0][other])}


def measure(world, options):
    rounds, foreign = [], 0.0
    for number in range(options.rounds):
        got = {}
        for name, command in commands_of(world, options).items():
            print(f"# {world} ranks, round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            text, share = run(command, options, dict(os.environ))
            got[name] = parse(text)
            foreign = max(foreign, share)
        rounds.append(got)
    names = list(rounds[0])
    print(f"\n# all-reduce over TCP, {world} ranks on {os.cpu_count()} cores, float32 sum, in place: median us of "
          f"{len(rounds)} alternating rounds (others used at most {foreign:.0%} of the machine)")
    print(f"# {'size':>8}" + "".join(f"{n:>11}" for n in names) + "".join(f"{'x ' + n:>8}" for n in names[:-1]))
    for size in sorted(rounds[0][names[-1]]):
        print(f"{human(size):>10}" + "".join(f"{median_of(rounds, n, size):>11.1f}" for n in names)
              + "".join(f"{ratios(rounds, n)[size]:>8.2f}" for n in names[:-1]), flush=True)
    return rounds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=build_folder,
                   help="build folder with bin/all_reduce_perf and peers/allreduce_gloo (collectives.sh builds it)")
    p.add_argument("--checksum", action="store_true", help="compare checksums with none instead of gloo")
    measurement_options(p, rounds=3, iterations=5)
    options = p.parse_args()
    results = {world: measure(world, options) for world in map(int, options.worlds.split(","))}
    print("\n# verdicts")
    least, other = (0.97, "no checksums") if options.checksum else (1, "gloo's ring")
    good = [verdict(f"{name}, {world} ranks, every size, against {other}", least, ratios(rounds, name))
            for world, rounds in results.items() for name in list(rounds[0])[:-1]]
    return 0 if all(good) or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
