#!/usr/bin/env python3
"""crash_points.py OUT: draws what a power cut leaves of a file that is being replaced, from what lesson16_crash prints."""
import subprocess
import sys

from svg import Picture

CELL, LEFT, ROW = 92, 210, 74
TONES = {"o": ("tone0", "old"), "n": ("tone2", "new"), "X": ("tone1", "?"), "-": ("empty", "none")}


def main():
    lines = subprocess.run(["lesson16_crash"], capture_output=True, text=True, timeout=30).stdout.splitlines()[1:]
    ways = []
    for line in lines:
        if not line.startswith("  "):
            ways.append((line, []))
        else:
            ways[-1][1].append((line[2:24].strip().removeprefix("before "), line[24:].split()))
    most = max(len(points) for _, points in ways)
    picture = Picture(LEFT + CELL * most + 20, 66 + ROW * len(ways) + 30, "What a reader finds after a power cut, for four "
                      "ways to replace a file and every moment of the cut")
    picture.text(20, 30, "what may be found when the power is cut before ...", "title", "start")
    for row, (way, points) in enumerate(ways):
        y = 62 + ROW * row
        picture.text(20, y + 34, way, "strong", "start")
        for at, (when, found) in enumerate(points):
            x = LEFT + CELL * at
            picture.text(x + (CELL - 8) / 2, y + 10, "when done" if when.startswith("after") else when, "quiet")
            width = (CELL - 8) / len(found)
            for i, letter in enumerate(found):
                kind, word = TONES[letter]
                picture.box(x + width * i, y + 16, width, 32, word, kind)
    picture.text(20, 66 + ROW * len(ways) + 14, "? neither the old file nor the new one: empty, torn, or zeros", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
