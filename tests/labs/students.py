#!/usr/bin/env python3
"""A new student's path through every lab: python3 tests/labs/students.py [06 ...]

The skeleton is installed and checked, and says what to do first; a hint asks a question; with the solution in place
the verdict is full marks, point by point. Prints how long each verdict took (the time a person waits after saving).
"""
import json
import os
import re
import sys
import time

from common import PLACE, make

from labs.course.lab import select
from labs.course.split import texts
from labs.course.verdicts import AuthorError


def expect(holds, what, said):
    if not holds:
        raise AssertionError(f"{what}; it said:\n{said}")


def path_through(lab):
    """Returns the seconds from saving to the verdict, for the skeleton and for the solution."""
    n = f"N={lab.number}"
    for used in lab.build.get("uses", []):  # this student has solved the earlier labs
        own, = select(used)
        own.work.mkdir(parents=True, exist_ok=True)
        for name, text in texts(own, True).items():
            (own.work / name).write_text(text)
    code, said = make("lab", n)
    expect(code == 0, f"make lab {n} failed", said)
    begun = time.monotonic()
    code, said = make("check", n)
    skeleton = time.monotonic() - begun
    expect(code != 0, f"make check {n} passed on the skeleton", said)
    expect(re.search(r"First step: task 1\b", said), f"make check {n} does not say what to do first", said)
    said = make("hint", n)[1]
    expect("?" in said, f"the first hint of {n} asks nothing", said)
    for name, text in texts(lab, True).items():
        (lab.work / name).write_text(text)
    begun = time.monotonic()
    code, said = make("check", n)
    solution = time.monotonic() - begun
    expect(code == 0, f"make check {n} failed on the solution", said)
    reports = PLACE / "reports" / lab.number
    code, said = make("grade", n, f"REPORTS={reports}")
    expect(code == 0 and "100 of 100 points" in said, f"make grade {n} on the solution", said)
    points = sum(map(int, re.findall(r"^ +(\d+)/\d+ ", said, re.M)))
    expect(points == 100, f"the points that make grade {n} names add up to {points}", said)
    score = json.loads((reports / "results.json").read_text())["score"]
    expect(score == 100, f"results.json of lab {lab.number}: {score}", said)
    return skeleton, solution


def main():
    os.environ.setdefault("LABS_JOBS", str(os.cpu_count() or 2))
    labs = [lab for number in sys.argv[1:] for lab in select(number)] or select(None)
    failures = 0
    for lab in labs:
        try:
            seconds = path_through(lab)
            print(f"{lab.slug}: the whole path; from save to verdict {seconds[0]:.1f} s (skeleton), {seconds[1]:.1f} s "
                  "(solution)", flush=True)
        except (AssertionError, AuthorError) as error:
            failures += 1
            print(f"{lab.slug}: FAILED: {error}", flush=True)
    if not labs:
        print("students.py: no lab found: that is no pass")
    return 1 if failures or not labs else 0


if __name__ == "__main__":
    sys.exit(main())
