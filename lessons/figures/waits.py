#!/usr/bin/env python3
"""waits.py OUT: one step of a trainer on one rank, its all-reduces where lesson13_waits puts them."""
import re
import subprocess
import sys

from svg import Picture

LEFT, SCALE = 150, 3.6  # pixels a millisecond


def main():
    out = subprocess.run(["lesson13_waits", "4"], capture_output=True, text=True, timeout=30).stdout
    buckets = [[float(n) for n in re.findall(r"\d+\.\d", line)] for line in out.splitlines() if line.startswith("bucket")]
    backward = float(re.search(r"backward ends at (\S+):", out).group(1))
    if len(buckets) != 4 or any(len(row) != 3 for row in buckets):
        sys.exit(f"waits.py: four buckets were expected: {out}")
    picture = Picture(720, 300, "One step: the loader fetches, backward computes, the ring adds up, the optimizer steps")

    def at(ms):
        return LEFT + ms * SCALE

    end = buckets[-1][2]
    for row, name in enumerate(("loader (10)", "tape (03)", "buckets (09)", "ring (06)", "optimizer (04)")):
        picture.text(LEFT - 12, 64 + 46 * row, name, "strong", "end")
    picture.box(at(0), 44, (backward + 20) * SCALE, 30, "fetches the next batch", "empty", "quiet")
    begin = 0.0
    for k, (ready, start, stop) in enumerate(buckets):
        picture.box(at(begin), 90, (ready - begin) * SCALE - 2, 30, f"layer {3 - k}", f"tone{k}")
        picture.box(at(ready) - 9, 136, 18, 30, str(k), f"tone{k}")
        picture.arrow(at(ready), 121, at(ready), 134)
        picture.box(at(start), 182, (stop - start) * SCALE - 2, 30, f"all-reduce {k}", f"tone{k}")
        picture.arrow(at(ready), 167, max(at(start), at(ready)) + 6, 180)
        begin = ready
    picture.box(at(end), 228, 44, 30, "step")
    picture.line([(at(backward), 84), (at(backward), 270)], "line dash")
    picture.line([(at(end), 84), (at(end), 270)], "line dash")
    picture.text(at((backward + end) / 2), 286, f"waits {end - backward:.0f} ms", "quiet")
    picture.text(at(0), 32, "one step of one rank", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
