#!/usr/bin/env python3
"""costs.py OUT: four all-reduces over the size, for 8 ranks, from lesson05_costs. Both axes by powers."""
import math
import subprocess
import sys

from svg import Picture

SIZES = [round(2 ** (8 + k / 4)) for k in range(4 * 18 + 1)]  # 256 B to 64 MiB
LEFT, TOP, WIDTH, HEIGHT = 90, 60, 540, 330
LOW, HIGH = 1.0, 5.3  # powers of ten of a microsecond


def place(size, time):
    x = LEFT + WIDTH * math.log2(size / SIZES[0]) / math.log2(SIZES[-1] / SIZES[0])
    return x, TOP + HEIGHT * (HIGH - math.log10(time)) / (HIGH - LOW)


def main():
    command = ["lesson05_costs", "8", "5", "1e-4", "5e-5", *map(str, SIZES)]
    rows = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()[1:]
    table = [[float(n) for n in row.split()[:5]] for row in rows]
    shown = ("Time of an all-reduce on 8 ranks over the size: tree before ring below 74 KiB, ring before tree above, "
             "halving before both, flat never")
    picture = Picture(760, 450, shown)
    title = "an all-reduce on 8 ranks, by the model: alpha 5 us, 10 GB/s, adding 20 GB/s"
    picture.text(20, 30, title, "title", "start")
    for power in range(1, 6):
        y = place(SIZES[0], 10 ** power)[1]
        picture.line([(LEFT, y), (LEFT + WIDTH, y)], "line dash")
        picture.text(LEFT - 10, y + 4, ["10 us", "100 us", "1 ms", "10 ms", "100 ms"][power - 1], "quiet", "end")
    for exponent, name in ((10, "1 KiB"), (14, "16 KiB"), (18, "256 KiB"), (22, "4 MiB"), (26, "64 MiB")):
        picture.text(place(2 ** exponent, 10)[0], TOP + HEIGHT + 22, name, "quiet")
    for column, name in ((1, "flat"), (2, "tree"), (3, "ring")):
        points = [place(row[0], row[column]) for row in table]
        picture.line(points, f"curve{column}")
        picture.text(points[-1][0] + 10, points[-1][1] + 5, name, "strong", "start")
    points = [place(row[0], row[4]) for row in table]
    picture.line(points, "curve3 dash")
    x, y = points[next(n for n, row in enumerate(table) if row[0] >= 2 ** 17)]
    picture.text(x, y + 24, "halving", "strong", "start")
    crossing = next(row for row in table if row[3] <= row[2])
    x, y = place(crossing[0], crossing[3])
    picture.line([(x, y), (x, TOP + HEIGHT)], "line dash")
    picture.text(x + 6, TOP + HEIGHT - 10, "ring before tree from here on", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
