#!/usr/bin/env python3
"""shares.py OUT: draws how ten samples are dealt to three ranks, from what the runtime's sampler prints."""
import subprocess
import sys

from svg import Picture

CELL, LEFT = 44, 150


def main():
    out = subprocess.run(["lesson10_deal", "10", "3"], capture_output=True, text=True, timeout=30).stdout.splitlines()
    order = out[0].split("order of epoch 0")[1].replace("|", " ").split()
    shares = [line.split(":")[1].split("(")[0].split() for line in out[1:]]
    picture = Picture(LEFT + CELL * len(order) + 40, 290,
                      "An epoch's order of ten samples, padded to twelve places, dealt to three ranks")
    picture.text(20, 30, "one order, drawn by every rank for itself", "title", "start")
    picture.text(20, 76, "order of epoch 0", "strong", "start")
    for place, sample in enumerate(order):
        x = LEFT + CELL * place
        picture.box(x, 52, CELL - 4, 36, sample, f"tone{place % 3}" if place < 10 else "empty")
        row = 118 + 48 * (place % 3)
        picture.line([(x + 20, 88), (x + 20, row)], "line dash")
        if shares[place % 3][place // 3] != sample:
            sys.exit("shares.py: the shares are not the strides of the order")
        picture.box(x, row, CELL - 4, 36, sample, f"tone{place % 3}")
    for rank in range(3):
        picture.text(20, 141 + 48 * rank, f"rank {rank} takes", "", "start")
    picture.text(LEFT + CELL * 10, 46, "padding", "quiet", "start")
    picture.text(LEFT, 278, "step t of all ranks together is the t-th stretch of three places, "
                 "for any number of ranks alike", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
