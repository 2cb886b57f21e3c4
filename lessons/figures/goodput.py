#!/usr/bin/env python3
"""goodput.py OUT: goodput over the interval between saves, simulated and by the formula, from lesson18_weeks curve."""
import math
import subprocess
import sys

from svg import Picture

LEFT, TOP, WIDTH, HEIGHT = 70, 60, 520, 300
LOW, HIGH = math.log10(20), math.log10(8000)


def place(seconds, share):
    return LEFT + WIDTH * (math.log10(seconds) - LOW) / (HIGH - LOW), TOP + HEIGHT * (1 - share / 100)


def main():
    out = subprocess.run(["lesson18_weeks", "curve"], capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [[float(n) for n in line.split()] for line in out.splitlines()]
    picture = Picture(760, 430, "Goodput over the interval between saves: best at 11 minutes for 16,384 GPUs, at 4 for 131,072")
    picture.text(20, 30, "useful share of the time; saves of 20 s, restarts of 5 minutes", "title", "start")
    for share in (0, 25, 50, 75, 100):
        picture.line([place(20, share), place(8000, share)], "line dash")
        picture.text(LEFT - 8, place(20, share)[1] + 4, f"{share} %", "quiet", "end")
    for seconds, name in ((20, "20 s"), (60, "1 min"), (300, "5 min"), (1200, "20 min"), (7200, "2 h")):
        picture.text(place(seconds, 0)[0], TOP + HEIGHT + 22, name, "quiet")
    picture.text(LEFT + WIDTH / 2, TOP + HEIGHT + 46, "work between two saves", "quiet")
    for gpus, kind in ((16384, "curve3"), (131072, "curve1")):
        mine = [row for row in rows if row[0] == gpus]
        picture.line([place(row[1], row[2]) for row in mine], kind)
        x, y = place(mine[-1][1], mine[-1][2])
        picture.text(x + 10, y + 5, f"{gpus:,} GPUs", "strong", "start")
        for row in mine[::2] if gpus == 16384 else []:  # only the smaller cluster is simulated
            x, y = place(row[1], row[3])
            picture.box(x - 4, y - 4, 8, 8, "", "tone3")
        best = max(mine, key=lambda row: row[2])
        x, y = place(best[1], best[2])
        picture.line([(x, y), (x, TOP + HEIGHT)], "line dash")
    picture.box(LEFT + 20, TOP + HEIGHT - 36, 8, 8, "", "tone3")
    picture.text(LEFT + 36, TOP + HEIGHT - 27, "simulated", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
