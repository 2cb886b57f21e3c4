#!/usr/bin/env python3
"""tables.py WHAT OUT: charts for the decks of tables that a lesson shows, drawn from the lesson's text.

WHAT: predicted (06, measured times and the formula's), intervals, spares (18, where the time goes). The tests of the
lessons compare the tables with the programs' output, so these charts need no program.
"""
import math
import pathlib
import sys

from svg import Picture

LESSONS = pathlib.Path(__file__).resolve().parent.parent
PARTS = (("useful", "tone2"), ("saving", "tone0"), ("restart", "tone3"), ("lost", "tone1"), ("waiting", "box"))


def table(lesson, command):
    """Returns the rows below the line of `command` in a lesson, as lists of words."""
    lines = (LESSONS / lesson / "README.md").read_text(encoding="utf-8").splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("$") and command in line)
    rows = []
    for line in lines[at + 1:]:
        if line.startswith(("```", "$")):
            return rows
        rows.append(line.replace("+-", "").split())


def predicted(picture):
    rows = [row for row in table("06-ring", "all_reduce_perf --calibrate") if row[0].isdigit()]
    left, top, width, height, low, high = 90, 70, 560, 330, 0.2, 500.0

    def x(size):
        return left + width * math.log(size / 1024) / math.log(4096)

    def y(us):
        return top + height * (1 - math.log(us / low) / math.log(high / low))

    picture.text(20, 32, "an all-reduce on 2 ranks, us: measured, and predicted by the formula", "title", "start")
    for us in (1, 10, 100):
        picture.line([(left, y(us)), (left + width, y(us))], "line dash")
        picture.text(left - 10, y(us) + 5, str(us), "quiet", "end")
    sizes, measured, formula = ([float(row[n]) for row in rows] for n in (0, 5, 10))
    picture.line([(x(s), y(t)) for s, t in zip(sizes, formula)], "curve3")
    for row, size, us, by_formula in zip(rows, sizes, measured, formula):
        picture.box(x(size) - 6, y(us) - 6, 12, 12, "", "tone3")
        picture.text(x(size), top + height + 26, {1024: "1 KiB", 16384: "16 KiB", 262144: "256 KiB"}.get(size, "4 MiB"), "quiet")
        last = row is rows[-1]
        picture.text(x(size) + (-14 if last else 12), y(us) + (5 if last else 22), f"{us:g}, predicted {by_formula:g}", "strong",
                     "end" if last else "start")
    picture.box(left + 20, top + 12, 12, 12, "", "tone3")
    picture.text(left + 42, top + 23, "measured", "", "start")
    picture.line([(left + 14, top + 44), (left + 38, top + 44)], "curve3")
    picture.text(left + 46, top + 49, "predicted", "", "start")


def stacked(picture, title, rows, labels, axis):
    left, top, width, height = 80, 84, 600, 330
    picture.text(20, 32, title, "title", "start")
    at = 80.0
    for name, kind in PARTS:
        picture.box(at, 50, 14, 14, "", kind)
        picture.text(at + 20, 62, name, "", "start")
        at += 40 + 9 * len(name)
    for share in (0, 25, 50, 75, 100):
        picture.text(left - 10, top + height * (1 - share / 100) + 5, f"{share} %", "quiet", "end")
    each = width / len(rows)
    for n, (row, label) in enumerate(zip(rows, labels)):
        x, y = left + n * each + 8, top + height
        for share, (_, kind) in zip(row, PARTS):
            high = height * share / 100
            y -= high
            if high >= 1:
                picture.box(x, y, each - 16, high, f"{share:.0f} %" if high > 24 else "", kind)
        picture.text(x + each / 2 - 8, top + height + 22, label, "strong")
    picture.text(left + width / 2, top + height + 46, axis, "quiet")


def parts(command):
    rows = [row for row in table("18-scale", command) if row[0].isdigit()]
    first = 3 if command.endswith("intervals") else 2
    return rows, [[float(row[n]) for n in (first, first + 2, first + 3, first + 4, first + 5)] for row in rows]


def intervals(picture):
    rows, shares = parts("lesson18_weeks intervals")
    name = {"60": "1 min", "240": "4 min", "654": "11 min", "1800": "30 min", "3600": "1 h", "10800": "3 h"}
    stacked(picture, "48 days of work on 16,384 GPUs: where the time goes", shares, [name[row[0]] for row in rows],
            "work between two saves")


def spares(picture):
    rows, shares = parts("lesson18_weeks spares")
    stacked(picture, "48 days of work on 16,384 GPUs: where the time goes", shares, [row[0] for row in rows], "spares")


def main():
    what = sys.argv[1]
    titles = {"predicted": "Time of an all-reduce over its size: four measured points near the formula's line",
              "intervals": "Where the time goes, by the interval between saves: best at 11 minutes",
              "spares": "Where the time goes, by the number of spares: with eight, a third of it is waiting"}
    picture = Picture(720, 480, titles[what])
    {"predicted": predicted, "intervals": intervals, "spares": spares}[what](picture)
    picture.save(sys.argv[2])


if __name__ == "__main__":
    main()
