"""make soak: the tests of a lab, on its solution, over and over while both cores are busy. A test that fails once in
200 runs fails students who did nothing wrong. Prints a certificate with the count.
"""
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


def soak(labs, rounds, seed=None):
    burners = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 2)]
    clean = True
    try:
        for lab in labs:
            files, swapped = texts(lab, True), references(lab)
            runs = tests = 0
            failures, slowest, begun = [], 0.0, time.monotonic()
            for number in range(rounds):
                report = grade(lab, files, seed=(seed or 0) + number + 1, swapped=swapped)
                for r in report.results:
                    tests += 1
                    runs += r.runs
                    slowest = max(slowest, r.seconds)
                    if r.status != "pass":
                        failures.append(f"{r.name}, seed {r.seed}: {r.status}: {r.message.splitlines()[0]}")
                        print(f"  {failures[-1]}", flush=True)
            clean = clean and not failures and tests > 0
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
            print(f"certificate: lab {lab.number}, {rounds} rounds of {tests // max(rounds, 1)} tests ({tests} tests, "
                  f"{runs} runs of the driver), {len(failures)} failures; {os.cpu_count()} cores kept busy by as many "
                  f"other programs; slowest test {slowest:.1f} s; {time.monotonic() - begun:.0f} s in all; "
                  f"{platform.machine()}, {now}", flush=True)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    return clean
