#!/usr/bin/env python3
"""caps.py OUT: exposed communication over the bucket cap, and the bound, from lesson15_sweep."""
import math
import re
import subprocess
import sys

from svg import Picture

LEFT, TOP, WIDTH, HEIGHT = 70, 60, 520, 270
LEAST, MOST = 1.0, 600.0  # ms


def main():
    picture = Picture(720, 400, "Exposed communication over the bucket cap: a wall to the left, a slope to the right")
    picture.text(LEFT, 28, "exposed communication, ms, over the bucket cap, MiB", "title", "start")

    def x(mib):
        return LEFT + WIDTH * math.log(mib) / math.log(96)

    def y(ms):
        return TOP + HEIGHT * (1 - math.log(max(ms, LEAST) / LEAST) / math.log(MOST / LEAST))

    for ms in (1, 3, 10, 30, 100, 300):
        picture.line([(LEFT, y(ms)), (LEFT + WIDTH, y(ms))], "line dash")
        picture.text(LEFT - 8, y(ms) + 5, f"{ms:g}", "quiet", "end")
    for mib in (1, 2, 4, 8, 16, 32, 96):
        picture.text(x(mib), TOP + HEIGHT + 20, str(mib), "quiet")
    for alpha, kind, words_at in (("200", "curve1", (8.5, 50)), ("50", "curve3", (8, 2.05))):
        out = subprocess.run(["lesson15_sweep", alpha], capture_output=True, text=True, timeout=30, check=True).stdout
        rows = [line.split() for line in out.splitlines()[1:-1]]
        points = [(x(float(row[0])), y(float(row[5]))) for row in rows]
        picture.line(points, kind)
        best = min(rows, key=lambda row: float(row[5]))
        px, py = x(float(best[0])), y(float(best[5]))
        picture.line([(px, py - 7), (px, py + 7)], kind)
        picture.text(x(words_at[0]), y(words_at[1]), f"alpha {alpha} us: best {best[0]} MiB", "strong", "start")
        least = float(re.search(r"at least (\S+)", out)[1])
        picture.line([(LEFT, y(least)), (LEFT + WIDTH, y(least))], kind + " dash")
        picture.text(LEFT + WIDTH + 8, y(least) + 5, f"bound {least}", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
