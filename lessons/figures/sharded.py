#!/usr/bin/env python3
"""sharded.py OUT: what a rank holds with AdamW, plain and divided among 1 to 4 ranks, from lesson17_sharded."""
import subprocess
import sys

from svg import Picture

LEFT, TOP, STEP, BAR, HEIGHT, MOST = 80, 70, 150, 46, 270, 1200  # KiB


def main():
    out = subprocess.run(["lesson17_sharded"], capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [[float(v) for v in line.split()[2:6]] for line in out.splitlines()[1:]]
    picture = Picture(760, 430, "Memory of a rank: parameters and gradients stay, the state of AdamW is divided by the number of ranks")
    picture.text(20, 30, "KiB on a rank: parameters, gradients, state of AdamW", "title", "start")
    for kib in (0, 300, 600, 900, 1200):
        y = TOP + HEIGHT * (1 - kib / MOST)
        picture.line([(LEFT - 10, y), (LEFT + 4 * STEP, y)], "line dash")
        picture.text(LEFT - 18, y + 4, str(kib), "quiet", "end")
    for n, (parameters, gradients, plain, divided) in enumerate(rows):
        for side, state in enumerate((plain, divided)):
            x, y = LEFT + n * STEP + side * (BAR + 8), TOP + HEIGHT
            for amount, tone in ((parameters, "tone1"), (gradients, "tone2"), (state, "tone3")):
                height = HEIGHT * amount / MOST
                y -= height
                picture.box(x, y, BAR, height, "", tone)
            picture.text(x + BAR / 2, y - 8, f"{parameters + gradients + state:.0f}", "strong")
            picture.text(x + BAR / 2, TOP + HEIGHT + 20, ("plain", "divided")[side], "quiet")
        picture.text(LEFT + n * STEP + BAR + 4, TOP + HEIGHT + 44, f"{n + 1} rank" + "s" * (n > 0), "strong")
    for n, (name, tone) in enumerate((("parameters", "tone1"), ("gradients", "tone2"), ("state", "tone3"))):
        picture.box(LEFT + n * 130, TOP + HEIGHT + 62, 12, 12, "", tone)
        picture.text(LEFT + n * 130 + 20, TOP + HEIGHT + 73, name, "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
