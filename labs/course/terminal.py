"""Reports for people: one line per test, then each failure with its cause and the command that
repeats it."""
import os
import re
import sys
import threading
import time

from labs.course.reading import printable, printable_lines

LONGEST = 2000  # characters of a printed line
COLOURS = {"pass": "32", "wrong": "31", "hang": "35", "crash": "31", "cheat": "41;97", "does not compile": "31",
           "not attempted": "33", "not verified": "36", "given up": "33"}


def paint(status):
    if not sys.stdout.isatty():
        return status
    return f"\033[{COLOURS.get(status, '0')}m{status}\033[0m"


class Progress:
    """A line on a terminal while a lab is judged: compiling, then the number of finished tests, with the seconds so
    far. A test that hangs takes as long as its deadline, and no verdict is printed before the last test has ended."""

    def __init__(self):
        self._text, self._ended = "compiling", threading.Event()
        terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawer = threading.Thread(target=self._draw, daemon=True) if terminal else None

    def __call__(self, text):
        self._text = text

    def _draw(self):
        begun = time.monotonic()
        while not self._ended.wait(1):
            print(f"\r\033[K{self._text}, {time.monotonic() - begun:.0f} s so far", end="", flush=True)

    def __enter__(self):
        if self._drawer:
            self._drawer.start()
        return self

    def clear(self):
        """Ends the line, and removes it from the terminal."""
        self._ended.set()
        if self._drawer:
            self._drawer.join()
            print("\r\033[K", end="", flush=True)

    def __exit__(self, *_):
        self.clear()


def hint_for(lab, message):
    """The hint whose signature ([[signature]] in lab.toml) matches the message, or None."""
    for entry in lab.signatures:
        if re.search(entry["match"], message, re.S):
            return entry["hint"]
    return None


def _lines(text, most):
    return [line[:LONGEST] for line in printable_lines(text).splitlines()[:most]]


def show(report, grading=False, command="check"):
    lab = report.lab
    for r in report.results:
        where = "hidden" if r.hidden else "public"
        points = f"{r.score:3g}/{r.points:<3g}" if grading else "      "
        print(f"  {points} {paint(r.status):13} {r.name}: {r.title}" + (f" [{where}]" if grading else ""))
    shown = set()
    for r in report.results:
        if r.status == "pass" or r.message in shown:
            continue
        shown.add(r.message)
        print(f"\n{r.name}: {paint(r.status)}")
        if r.status == "not attempted":
            print(f"  {printable(r.message)[:LONGEST]}: your code goes there. The task is in labs/{lab.slug}/README.md, "
                  f"the place is marked in {lab.work.parent.name}/{lab.slug}.")
            continue
        print("\n".join("  " + line for line in _lines(r.message, 40)))
        hint = hint_for(lab, r.message)
        if hint:
            print(f"  hint: {hint}")
        if r.status not in ("does not compile", "cheat", "given up"):
            print(f"  again: make {command} N={lab.number} TEST={r.name} SEED={r.seed}")
    if report.warnings and not any(r.status == "does not compile" for r in report.results):
        print("\nwarnings of the compiler:\n" + "\n".join(_lines(report.warnings, 20)))
    print()
    if report.cheat:
        print(f"CHEAT: {printable_lines(report.cheat)}\nThe whole submission scores 0.")
    passed = sum(r.status == "pass" for r in report.results)
    line = f"lab {lab.number}, {lab.title}: {passed} of {len(report.results)} tests pass"
    if grading:
        line += f", {report.total:g} of {report.available:g} points"
        missing = 100 - report.available
        if missing > 0:
            line += f" ({missing:g} points of 100 are given by tests that are not here or were not run)"
    if report.swapped:
        line += f"; swapped in from the course: lab {', '.join(report.swapped)}"
    print(f"{line} ({report.seconds:.1f} s)")
    if report.sandbox:
        print(report.sandbox)
    unverified = [r.name for r in report.results if r.status == "not verified"]
    if unverified:
        print(f"not verified on this machine, so not passed: {', '.join(unverified)}")
