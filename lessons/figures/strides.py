#!/usr/bin/env python3
"""strides.py OUT: six numbers in memory, and four views of them, from what lesson01_views prints."""
import re
import subprocess
import sys

from svg import Picture

CELL = 46
SHOWN = ["m = six.view(2,3)", "m.transpose(0,1)", "m.select(1,2)", "row.expand(3,2)"]


def read():
    """{name: (sizes, strides, offset)}"""
    out = subprocess.run(["lesson01_views"], capture_output=True, text=True, timeout=10, check=True).stdout
    views = {}
    for line in out.splitlines():
        match = re.match(r"(\S.*?) +sizes \[(.*?)\] +strides \[(.*?)\] +offset (\d+)", line)
        if match and match.group(1) not in views:
            numbers = [[int(n) for n in part.split(",")] for part in match.group(2, 3)]
            views[match.group(1)] = (*numbers, int(match.group(4)))
    return views


def main():
    views = read()
    picture = Picture(760, 412, "A storage of six numbers, and four views of it with their sizes, strides and offsets")
    picture.text(20, 30, "the storage: six numbers, which never move", "title", "start")
    for position in range(6):
        picture.box(20 + CELL * position, 46, CELL, CELL, str(position), f"tone{position % 3}")
        picture.text(20 + CELL * position + CELL / 2, 106, f"{position}", "quiet")
    picture.text(20 + 6 * CELL + 12, 106, "position", "quiet", "start")
    left = 20
    for name in SHOWN:
        sizes, strides, offset = views[name]
        rows, columns = (sizes if len(sizes) == 2 else [sizes[0], 1])
        picture.text(left, 150, name, "code", "start")
        for i in range(rows):
            for j in range(columns):
                index = [i, j][:len(sizes)]
                position = offset + sum(k * s for k, s in zip(index, strides))
                x, y = left + CELL * j, 164 + CELL * i
                picture.box(x, y, CELL, CELL, str(position), f"tone{position % 3}")
        y = 164 + CELL * 3 + 26
        picture.text(left, y, f"sizes {sizes}", "quiet", "start")
        picture.text(left, y + 18, f"strides {strides}", "quiet", "start")
        picture.text(left, y + 36, f"offset {offset}", "quiet", "start")
        left += 190
    picture.text(20, 396, "position in the storage = offset + sum of index times stride", "strong", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
