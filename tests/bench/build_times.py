#!/usr/bin/env python3
"""Measures how long compiling takes without ccache: the figures in CONTRIBUTING.

  build_times.py [WHAT...]     WHAT of: train, all, error.hpp, process_group.hpp, profile; default: all of them

    train              from nothing to the program that `make train` starts
    all                from nothing to everything that `make build` makes
    error.hpp          everything again after a change of that header, which nearly every source includes
    process_group.hpp  after a change of the interface of the communication
    profile            of `all`: seconds of compilers by room, and the longest units

Builds in build/times, with one compiler per processor (JOBS). A header is "changed" by a new modification time. Seconds
are elapsed time; compiler seconds are summed over the compilers that run concurrently. Do not use the machine meanwhile.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "times"
HEADERS = {"error.hpp": ROOT / "runtime/base/error.hpp", "process_group.hpp": ROOT / "runtime/comm/process_group.hpp"}
TARGETS = {"train": ["train_gpt_cpu", "ringrun"], "all": ["all"]}
JOBS = os.environ.get("JOBS") or str(os.cpu_count())
ENVIRONMENT = {**os.environ, "CCACHE_DISABLE": "1"}


def run(*command):
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit("\n".join(done.stdout.splitlines()[-20:]) + f"\nbuild_times.py: '{' '.join(command)}' failed")


def records():
    """Returns {name: start and end} of each step in ninja's last run, in ms since that build began, and the
    result's modification time."""
    log = FOLDER / ".ninja_log"
    rows = [line.split("\t") for line in log.read_text().splitlines() if line.count("\t") == 4] if log.exists() else []
    return {row[3]: (int(row[0]), int(row[1]), row[2]) for row in rows}


def units_of(steps):
    return {name: (end - begin) / 1000 for name, (begin, end, _) in steps.items() if name.endswith((".o", ".gch"))}


def build(targets):
    before = records()
    begin = time.monotonic()
    run("cmake", "--build", str(FOLDER), "--parallel", JOBS, "--target", *targets)
    wall = time.monotonic() - begin
    made = units_of({name: record for name, record in records().items() if before.get(name) != record})
    return wall, len(made), sum(made.values())


def room_of(unit):
    name = re.sub(r"(^|.*/)CMakeFiles/([^/]*)\.dir/.*", r"\2", unit)
    return name.removeprefix("ringsmith_")


def profile():
    units = units_of(records())
    rooms = collections.Counter()
    for name, seconds in units.items():
        rooms[room_of(name)] += seconds
    print("\ncompiler seconds by room:")
    for room, seconds in rooms.most_common(16):
        print(f"  {room:40} {seconds:7.1f}")
    print("\nthe longest units:")
    for name in sorted(units, key=units.get, reverse=True)[:10]:
        unit = re.sub(r"CMakeFiles/[^/]*\.dir/(.*/)?", "", name)
        print(f"  {unit[-60:]:60} {units[name]:7.1f}")


def main():
    if any(a in ("-h", "--help") for a in sys.argv[1:]):
        print(__doc__.strip())
        return 0
    known = [*TARGETS, *HEADERS, "profile"]
    asked = sys.argv[1:] or known
    for what in asked:
        if what not in known:
            print(f"build_times.py: there is no '{what}': use {', '.join(known)}", file=sys.stderr)
            return 6
    print(f"{time.strftime('%F')}, {JOBS} compilers on {os.cpu_count()} processors, no ccache")
    print(f"{'':20} {'seconds':>8} {'units':>6} {'compiler seconds':>17}", flush=True)
    for what in [w for w in known if w in asked]:
        if what == "profile":
            if not (FOLDER / ".ninja_log").exists():
                sys.exit("build_times.py: measure 'all' before profile")
            profile()
            continue
        if what in TARGETS:
            shutil.rmtree(FOLDER, ignore_errors=True)
            run("cmake", "--preset", "release", "-B", str(FOLDER), "-G", "Ninja")
        else:
            build(["all"])  # everything else is up to date
            os.utime(HEADERS[what])
        wall, units, compiling = build(TARGETS.get(what, ["all"]))
        print(f"{what:20} {wall:8.0f} {units:6} {compiling:17.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
