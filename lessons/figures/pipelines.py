#!/usr/bin/env python3
"""pipelines.py OUT: GPipe and 1F1B of three stages and four microbatches, from lesson20_pipeline."""
import subprocess
import sys

from svg import Picture

LEFT, TOP, CELL, ROW, BLOCK = 90, 66, 46, 34, 176


def main():
    out = subprocess.run(["lesson20_pipeline"], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    picture = Picture(760, 400, "GPipe and 1F1B: forwards and backwards of four microbatches on three stages; both take 12 steps")
    for block, at in enumerate((0, 4)):
        top = TOP + block * BLOCK
        picture.text(20, top - 18, out[at], "title", "start")
        for s, line in enumerate(out[at + 1:at + 4]):
            cells, _, flight = line.partition("   in flight ")
            y = top + s * ROW
            picture.text(20, y + 20, f"stage {s}", "strong", "start")
            for step, cell in enumerate(cells.split()[2:]):
                x = LEFT + step * CELL
                if cell == ".":
                    picture.box(x + 1, y, CELL - 4, ROW - 6, "", "empty")
                else:
                    picture.box(x + 1, y, CELL - 4, ROW - 6, cell, "tone0" if cell[0] == "F" else "tone1")
            picture.text(LEFT + 12 * CELL + 10, y + 20, f"keeps {flight}", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
