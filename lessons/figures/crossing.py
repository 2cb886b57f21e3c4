#!/usr/bin/env python3
"""crossing.py OUT: draws the three phases of a hierarchical all-reduce, from the steps that schedule_player prints."""
import re
import subprocess
import sys

from svg import Picture

X = [90, 220, 420, 550]
TITLES = ["1. sum inside", "2. ring between", "", "3. gather inside"]


def main():
    table = subprocess.run(["schedule_player", "-a", "hierarchical", "--world", "4", "--ranks-per-node", "2",
                            "--count", "4",
                            "--width", "100"], capture_output=True, text=True, timeout=30).stdout
    steps = [re.findall(r"^(\d)\s+\S+ -> (\d)", part, re.M) for part in re.split(r"step \d+\n", table)[1:]]
    if [len(step) for step in steps] != [4, 4, 4, 4]:
        sys.exit(f"crossing.py: four steps of four messages were expected: {steps}")
    picture = Picture(660, 380, "A hierarchical all-reduce of two nodes with two ranks each: four steps")
    for node in range(2):
        picture.box(40 + 330 * node, 40, 260, 320)
        picture.text(170 + 330 * node, 32, f"node {node}", "strong")
    for row, step in enumerate(steps):
        y = 70 + 76 * row
        for rank in range(4):
            picture.box(X[rank] - 38, y, 76, 34, f"rank {rank}", f"tone{rank % 2}")
        for sender, receiver in ((int(a), int(b)) for a, b in step):
            shift = 10 if sender < receiver else 24
            ends = (X[sender] + 38, X[receiver] - 38) if sender < receiver else (X[sender] - 38, X[receiver] + 38)
            if abs(sender - receiver) == 1:
                picture.arrow(ends[0], y + shift, ends[1], y + shift)
            else:
                low = y + (44 if sender % 2 == 0 else 54)
                side = 12 if sender < receiver else -12
                picture.line([(X[sender] + side, y + 34), (X[sender] + side, low), (X[receiver] + side, low),
                              (X[receiver] + side, y + 37)], "line dash", True)
        if TITLES[row]:
            picture.text(46, y - 8, TITLES[row], "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
