#!/usr/bin/env python3
"""bucket_sweep.py OUT: exposed communication over the bucket cap on 64 GPUs, as the program scaling predicts it."""
import math
import re
import subprocess
import sys

from svg import Picture

CAPS = [0.01, 0.1, 0.5, 1, 2, 5, 10, 25, 50, 100]
CASES = [("ethernet", "plain Ethernet", "curve1"), ("dgx-h100", "DGX H100 pod", "curve3")]
LEFT, TOP, WIDTH, HEIGHT = 70, 50, 480, 260


def exposed(topology, cap):
    out = subprocess.run(["scaling", "--topology", topology, "--algorithms", "ring", "--from", "64", "--to", "64",
                          "--bucket-cap-mb", str(cap)], capture_output=True, text=True, timeout=60, check=True).stdout
    row = re.search(r"^ +64  ring +(\S+) +(\S+)", out, re.M)
    return float(row[2])


def main():
    picture = Picture(700, 370, "Exposed communication over the bucket cap: too small and too large both cost")
    picture.text(LEFT, 28, "ResNet-50 on 64 GPUs: exposed communication, ms (predicted)", "title", "start")
    most = 100.0

    def x(cap):
        return LEFT + WIDTH * (math.log10(cap) + 2) / 4

    def y(ms):
        return TOP + HEIGHT * (1 - math.log10(max(ms, 1)) / math.log10(most))

    for ms in (1, 10, 100):
        picture.line([(LEFT, y(ms)), (LEFT + WIDTH, y(ms))], "line dash")
        picture.text(LEFT - 8, y(ms) + 5, str(ms), "quiet", "end")
    for cap in (0.01, 0.1, 1, 10, 100):
        picture.text(x(cap), TOP + HEIGHT + 20, f"{cap:g}", "quiet")
    picture.text(LEFT + WIDTH / 2, TOP + HEIGHT + 42, "bucket cap, MiB", "quiet")
    for topology, name, kind in CASES:
        points = [(x(cap), y(exposed(topology, cap))) for cap in CAPS]
        picture.line(points, kind)
        picture.text(points[-1][0] + 8, points[-1][1] + 5, name, "strong", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
