"""make soak runs the tests of a lab on its solution repeatedly while all cores are busy. A test that fails once in 200
runs also fails students whose code is right. Prints a certificate with the count.
"""
import contextlib
import datetime
import os
import platform
import subprocess
import sys
import time

from labs.course.grading import grade
from labs.course.mutants import references
from labs.course.split import texts

BUSY = "while True: pass"


@contextlib.contextmanager
def busy_cores():
    """Runs one computing program per core, unless the load average is above twice the number of
    cores."""
    cores = os.cpu_count() or 2
    missing = 0 if os.getloadavg()[0] > 2 * cores else cores
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(missing)]
    try:
        yield f"{cores} cores, " + (f"{missing} programs that only compute" if missing else "busy with other work")
    finally:
        for program in programs:
            program.kill()
            program.wait()


def soak_one(lab, rounds, seed, load):
    """True if no test failed."""
    files, swapped = texts(lab, True), references(lab)
    tests = runs = 0
    failures, slowest, loads, begun = [], 0.0, [], time.monotonic()
    for number in range(rounds):
        report = grade(lab, files, seed=seed + number + 1, swapped=swapped)
        loads.append(os.getloadavg()[0])
        for r in report.results:
            tests += 1
            runs += r.runs
            slowest = max(slowest, r.seconds)
            if r.status != "pass":
                failures.append(r)
                print(f"  {r.name}, seed {r.seed}: {r.status}: {r.message}", flush=True)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    print(f"certificate: lab {lab.number}, {rounds} rounds of {tests // max(rounds, 1)} tests ({tests} tests, "
          f"{runs} runs of the driver): {len(failures)} failures. Load: {load}, load average {min(loads):.1f} to "
          f"{max(loads):.1f}. Slowest test {slowest:.1f} s, {time.monotonic() - begun:.0f} s in all, "
          f"{platform.machine()}, {now}", flush=True)
    return tests > 0 and not failures


def soak(labs, rounds, seed=None):
    with busy_cores() as load:
        return all([soak_one(lab, rounds, seed or 0, load) for lab in labs])
