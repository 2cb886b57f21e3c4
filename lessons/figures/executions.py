#!/usr/bin/env python3
"""executions.py TEST OUT: the executions of a litmus test of two threads as graphs, from what lesson19_litmus tells."""
import re
import subprocess
import sys

from svg import Picture

WIDTH, HEIGHT, BOX, TALL = 356, 262, 120, 34
ORDERS = {"relaxed": "relaxed", "both": "release/acquire", "seq_cst": "seq_cst"}
OUTCOME = re.compile(r"^ +\d+  (.*, .*)$")
STEP = re.compile(r"^ +(\d+)  (\S+(?: \d)?)  +(.+?)\.(load|store)\((?:(\d), )?\w+\)(?: -> (\d) +(.*))?$")


def told(test, orders, *more):
    return subprocess.run(["lesson19_litmus", test, orders, *more], capture_output=True, text=True, timeout=10,
                          check=True).stdout.splitlines()


def executions(test):
    """{outcome: [(step, thread, place, what, value read or stored, note)]}"""
    found = {}
    for line in told(test, "relaxed", "told"):
        if match := STEP.match(line):
            step, thread, place, what, stored, read, note = match.groups()
            steps.append((int(step), thread, place, what, stored or read, note or ""))
        elif match := OUTCOME.match(line):
            steps = found.setdefault(match[1], [])
    return found


def draw(picture, x, y, outcome, steps, allowed):
    picture.box(x, y, WIDTH, HEIGHT, kind="box" if len(allowed) == len(ORDERS) else "tone1")
    picture.text(x + WIDTH / 2, y + 26, outcome, "title")
    threads = sorted({s[1] for s in steps}, key=lambda t: min(s[0] for s in steps if s[1] == t))
    at, rows = {}, dict.fromkeys(threads, 0)
    for step, thread, place, what, value, _ in steps:
        column = threads.index(thread)
        at[step] = (x + 24 + column * (WIDTH - 48 - BOX), y + 70 + 84 * rows[thread])
        left, top = at[step]
        picture.box(left, top, BOX, TALL, f"{place} = {value}" if what == "store" else f"{place} → {value}", f"tone{3 * column}",
                    "code")
        if rows[thread]:
            picture.arrow(left + BOX / 2, top - 84 + TALL, left + BOX / 2, top - 2)
        else:
            picture.text(left + BOX / 2, top - 10, thread, "quiet")
        rows[thread] += 1

    def edge(step, other):
        left, top = at[step]
        return (left + BOX if at[other][0] > left else left), top + TALL / 2

    arrows = [(s[0], t[0]) for s, t in zip(steps, steps[1:]) if s[1] == t[1]]
    for step, _, place, what, _, note in steps:
        if what != "load":
            continue
        source = re.match(r"step (\d+)", note)
        store = int(source[1]) if source else next(s[0] for s in steps if s[2] == place and s[3] == "store")
        arrows.append((store, step) if source else (step, store))
        start, end = arrows[-1]
        picture.line([edge(start, end), edge(end, start)], "curve3" if source else "curve1 dash", head=True)
    names = [text for name, text in ORDERS.items() if name in allowed]
    most = len(names) == len(ORDERS)
    words = "allowed with any orders" if most else "allowed with " + " or ".join(names) if names[1:] else f"allowed with {names[0]} alone"
    picture.text(x + WIDTH / 2, y + HEIGHT - 34, words, "" if most else "strong")
    if circle(arrows):
        picture.text(x + WIDTH / 2, y + HEIGHT - 14, "the arrows go round in a circle")


def circle(arrows):
    """True if the arrows contain a circle. Arrows that begin where no other arrow ends are removed until none is left."""
    while left := [(a, b) for a, b in arrows if any(c == a for _, c in arrows)]:
        if left == arrows:
            return True
        arrows = left
    return False


def main():
    test, out = sys.argv[1:]
    found = executions(test)
    allowed = {o: [name for name in ORDERS if any(line.endswith("  " + o) for line in told(test, name))] for o in found}
    picture = Picture(2 * WIDTH + 48, 2 * HEIGHT + 84, f"The {len(found)} executions of {test} with relaxed orders")
    for n, (outcome, steps) in enumerate(found.items()):
        draw(picture, 16 + (WIDTH + 16) * (n % 2), 16 + (HEIGHT + 16) * (n // 2), outcome, steps, allowed[outcome])
    y = 2 * HEIGHT + 58
    picture.line([(20, y - 5), (56, y - 5)], "curve3", head=True)
    picture.text(64, y, "the load reads this store", "", "start")
    picture.line([(272, y - 5), (308, y - 5)], "curve1 dash", head=True)
    picture.text(316, y, "the load reads what was there before", "", "start")
    picture.arrow(600, y - 5, 636, y - 5)
    picture.text(644, y, "then", "", "start")
    picture.save(out)


if __name__ == "__main__":
    main()
