#!/usr/bin/env python3
"""fit_memory.py OUT: what a rank holds with DDP, ZeRO-1 to 3 and a tensor split, from lesson20_by_hand."""
import subprocess
import sys

from svg import Picture

LEFT, TOP, STEP, BAR, HEIGHT, MOST = 80, 70, 126, 64, 256, 64


def main():
    out = subprocess.run(["lesson20_by_hand"], capture_output=True, text=True, timeout=60, check=True).stdout
    rows = [(line[:14].strip(), [int(v) for v in line[14:].split()]) for line in out.splitlines()[2:7]]
    picture = Picture(760, 430, "Numbers on a rank in five ways: parameters, gradients, state, what a step adds, and what it sends")
    picture.text(20, 30, "Numbers on each of two ranks, of 16 parameters", "title", "start")
    for level in (0, 16, 32, 48, 64):
        y = TOP + HEIGHT * (1 - level / MOST)
        picture.line([(LEFT - 10, y), (LEFT + 5 * STEP, y)], "line dash")
        picture.text(LEFT - 18, y + 4, str(level), "quiet", "end")
    for n, (name, (parameters, gradients, state, together, most, sends)) in enumerate(rows):
        x, y = LEFT + n * STEP + 16, TOP + HEIGHT
        for amount, tone in ((parameters, "tone1"), (gradients, "tone2"), (state, "tone3"), (most - together, "empty")):
            height = HEIGHT * amount / MOST
            y -= height
            if amount:
                picture.box(x, y, BAR, height, "", tone)
        picture.text(x + BAR / 2, y - 8, str(most), "strong")
        picture.text(x + BAR / 2, TOP + HEIGHT + 22, name, "strong")
        picture.text(x + BAR / 2, TOP + HEIGHT + 42, f"sends {sends}", "quiet")
    names = (("parameters", "tone1"), ("gradients", "tone2"), ("state", "tone3"), ("only within a step", "empty"))
    for n, (name, tone) in enumerate(names):
        picture.box(LEFT + n * 130, TOP + HEIGHT + 64, 12, 12, "", tone)
        picture.text(LEFT + n * 130 + 20, TOP + HEIGHT + 75, name, "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
