#!/usr/bin/env python3
"""threads.py OUT: six elements and four threads, from what lesson02_threads prints."""
import re
import subprocess
import sys

from svg import Picture

CELL = 62


def main():
    out = subprocess.run(["lesson02_threads"], capture_output=True, text=True, timeout=10, check=True).stdout
    done = [tuple(map(int, m)) for m in re.findall(r"element (\d+): block (\d+), thread (\d+), turn (\d+)", out)]
    picture = Picture(640, 300, "Six elements, done by two blocks of two threads in two turns")
    picture.text(20, 30, "a grid of 2 blocks of 2 threads", "title", "start")
    left = 150
    picture.text(20, 75, "elements", "strong", "start")
    for element, *_ in done:
        picture.box(left + CELL * element, 50, CELL, 40, str(element))
    for turn in range(1 + max(d[3] for d in done)):
        y = 130 + 80 * turn
        picture.text(20, y + 25, f"turn {turn}", "strong", "start")
        for element, block, thread, when in done:
            if when != turn:
                continue
            x = left + CELL * element
            picture.arrow(x + CELL / 2, y, x + CELL / 2, 92)
            picture.box(x + 3, y, CELL - 6, 44, f"block {block}\nthread {thread}", f"tone{block}", "quiet")
    picture.text(20, 282, "element = block index times block size + thread index; the next turn is grid size times block size on",
                 "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
