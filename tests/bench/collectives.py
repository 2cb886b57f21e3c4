#!/usr/bin/env python3
"""Compares all-reduce with its peers: alternating runs, medians, and a verdict for each target.

In each round every program runs once, so that a slow minute of the machine affects all of them. A time
is the median over rounds of the median over iterations of the slowest rank; a ratio is the median over
rounds of the ratios within a round. Rounds that other processes disturbed are dropped if enough clean
ones remain; the CPU share of other processes is printed.
"""
import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import time

from link import build_folder

HERE = os.path.dirname(os.path.abspath(__file__))
KIB, MIB = 1 << 10, 1 << 20


def busy():
    """Returns the clock ticks that all cores have spent busy."""
    ticks = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4]


def wait_for_quiet(limit, patience):
    end = time.time() + patience
    while True:
        before = busy()
        time.sleep(0.3)
        share = (busy() - before) / 0.3 / os.sysconf("SC_CLK_TCK") / os.cpu_count()
        if share < limit or time.time() > end:
            return


def run(command, options, environment):
    """Returns standard output, and the share of the machine that other processes used meanwhile."""
    wait_for_quiet(options.limit, options.patience)
    before, children, start = busy(), os.times(), time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    elapsed, after = time.time() - start, os.times()
    if done.returncode:
        sys.exit(f"collectives.py: exit code {done.returncode} of: {shlex.join(command)}\n{done.stdout}{done.stderr}")
    own = after.children_user - children.children_user + after.children_system - children.children_system
    foreign = (busy() - before) / os.sysconf("SC_CLK_TCK") - own
    return done.stdout, max(0.0, foreign) / elapsed / os.cpu_count()


def parse(text):
    """Returns {size: {column: value}} of a table whose '#' header names the columns size and time."""
    columns, rows = None, {}
    for line in text.splitlines():
        if line.startswith("#"):
            names = re.sub(r"\([^)]*\)", "", line[1:]).split()
            if "size" in names and "time" in names:
                columns = names
        elif columns and re.match(r"\s*\d+\s", line):
            cells = line.split()
            # If two columns have the same name, the first one counts, because it is the requested placement.
            row = {name: cells[i] for i, name in reversed(list(enumerate(columns))) if i < len(cells)}
            rows[int(row["size"])] = {k: float(row[k]) for k in ("time", "predicted") if k in row}
    return rows


def peers_of(world, options):
    """Returns names and commands of all programs that are compared with this number of ranks."""
    sizes = ["-b", str(options.min), "-e", str(options.max), "-f", str(options.factor),
             "-w", "5", "-n", str(options.iterations)]
    ours = [os.path.join(HERE, "../support/mpirun.sh"), str(world),
            os.path.join(options.dir, "bin/all_reduce_perf"), *sizes,
            "--min-time", str(options.min_ms), "--place", "in",
            *(["--bind", "1"] if world <= os.cpu_count() else []), "--memory"]  # as mpirun binds by default
    mpirun = ["mpirun", "-np", str(world), *(["--oversubscribe"] if world > os.cpu_count() else []),
              "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    segmented = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
                 "--mca", "coll_tuned_allreduce_algorithm_segmentsize", str(256 * KIB)]
    peer = [*sizes, "-T", str(options.min_ms)]
    # The cost model is calibrated in the process that uses it, at other sizes, because on virtual machines the time of
    # a hand-off changes up to threefold from one minute to the next.
    calibrate = [] if options.no_calibration else ["--calibrate"]
    commands = {"own": [*ours, "own", *calibrate], "ring": [*ours, "own", "--algorithm", "ring"],
                "user": [*ours, "user", *calibrate],
                "mpi": [*mpirun, os.path.join(options.dir, "peers/allreduce_mpi"), *peer],
                "mpi seg": [*mpirun, *segmented, os.path.join(options.dir, "peers/allreduce_mpi"), *peer]}
    gloo = os.path.join(options.dir, "peers/allreduce_gloo")
    if os.path.exists(gloo):
        commands["gloo"] = [gloo, *peer, "-p", str(world)]
    return commands


def measure(world, options, environment):
    """Returns [{name: {size: row}} of each round that counts], and the largest CPU share of other
    processes in these rounds."""
    commands = peers_of(world, options)
    rounds = []
    for number in range(options.rounds):
        got, foreign = {}, 0.0
        for name, command in commands.items():
            print(f"# {world} ranks, round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            text, share = run(command, options, environment)
            got[name] = parse(text)
            foreign = max(foreign, share)
        rounds.append((foreign, got))
    rounds.sort(key=lambda r: r[0])
    clean = [r for r in rounds if r[0] < options.limit]
    kept = clean if len(clean) >= 2 else rounds
    return [got for _, got in kept], max(share for share, _ in kept)


def median_of(rounds, name, size, key="time"):
    return statistics.median(r[name][size][key] for r in rounds)


def ratio_to_mpi(rounds, name, size):
    """Returns the time of the better of the two MPI runs divided by this program's time, as the
    median over rounds."""
    return statistics.median(min(r["mpi"][size]["time"], r["mpi seg"][size]["time"]) / r[name][size]["time"]
                             for r in rounds)


def human(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def table(world, rounds, foreign):
    names = list(rounds[0])
    sizes = sorted(rounds[0]["own"])
    print(f"\n# all-reduce, {world} ranks on {os.cpu_count()} cores, float32 sum, in place: median us of "
          f"{len(rounds)} alternating rounds (others used at most {foreign:.0%} of the machine)")
    print("# x own, x user: times faster than the better of Open MPI's default and segmented ring")
    print(f"# {'size':>8}" + "".join(f"{n:>11}" for n in names) + f"{'x own':>8}{'x user':>8}"
          + f"{'predicted':>11}{'/ own':>7}")
    for size in sizes:
        own, predicted = median_of(rounds, "own", size), median_of(rounds, "own", size, "predicted")
        print(f"{human(size):>10}" + "".join(f"{median_of(rounds, n, size):>11.1f}" for n in names)
              + "".join(f"{ratio_to_mpi(rounds, n, size):>8.2f}" for n in ("own", "user"))
              + f"{predicted:>11.1f}{predicted / own:>7.2f}")


def verdict(what, least, ratios):
    worst = min(ratios, key=ratios.get)
    below = sorted(s for s in ratios if ratios[s] < least)
    line = f"{'PASS' if not below else 'FAIL'}  {what}: at least x{least:g}; worst x{ratios[worst]:.2f} at {human(worst)}"
    print(line + (f"; below at {', '.join(map(human, below))}" if below else ""))
    return not below


def verdicts(results, options):
    print("\n# verdicts")
    good = True
    for world, (rounds, _) in results.items():
        sizes = sorted(rounds[0]["own"])
        own = {s: ratio_to_mpi(rounds, "own", s) for s in sizes}
        user = {s: ratio_to_mpi(rounds, "user", s) for s in sizes if s >= 4 * KIB}
        good &= verdict(f"own memory, {world} ranks, every size", 1, own)
        large = {s: r for s, r in own.items() if s >= 64 * KIB}
        if world <= os.cpu_count() and large:
            good &= verdict(f"own memory, {world} ranks, from 64 KiB up", 2, large)
        if user:
            good &= verdict(f"user memory, {world} ranks, from 4 KiB up", 1, user)
        if not options.no_calibration:
            for name in ("own", "user"):
                errors = [abs(median_of(rounds, name, s, "predicted") / median_of(rounds, name, s) - 1) for s in sizes]
                error = statistics.median(errors)
                good &= error <= 0.25
                print(f"{'PASS' if error <= 0.25 else 'FAIL'}  prediction, {name} memory, {world} ranks: within 25 % "
                      f"(median over sizes); is {error:.0%}")
    return good


def measurement_options(p, rounds, iterations):
    """Adds the options that all comparisons of all-reduce programs share; the defaults of two options differ."""
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--worlds", default="2,4", help="numbers of ranks")
    p.add_argument("--min", type=int, default=KIB, help="smallest size, bytes")
    p.add_argument("--max", type=int, default=256 * MIB, help="largest size, bytes")
    p.add_argument("--factor", type=int, default=4, help="factor from one size to the next")
    p.add_argument("--iterations", type=int, default=iterations)
    p.add_argument("--min-ms", type=float, default=20, help="minimum milliseconds per size")
    p.add_argument("--limit", type=float, default=0.08, help="share of the machine used by others that disturbs a round")
    p.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine before a run")
    p.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=build_folder, help="build folder with bin/all_reduce_perf and peers/")
    p.add_argument("--quick", action="store_true", help="4 sizes up to 4 MiB, 3 rounds")
    measurement_options(p, rounds=5, iterations=20)
    p.add_argument("--no-calibration", action="store_true", help="predict with the stored constants")
    options = p.parse_args()
    if options.quick:
        options.rounds, options.factor, options.max, options.iterations = 3, 16, 4 * MIB, 10
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_btl_base_warn_component_unused="0")
    # The constants are measured for this comparison and stored with it, not in the user's cache.
    environment["XDG_CACHE_HOME"] = os.path.join(options.dir, "bench-cache")
    results = {}
    for world in map(int, options.worlds.split(",")):
        results[world] = measure(world, options, environment)
        table(world, *results[world])
    good = verdicts(results, options)
    return 0 if good or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
