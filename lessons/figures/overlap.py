#!/usr/bin/env python3
"""overlap.py OUT: one backward with six gradients, its all-reduces drawn where the formula of lesson 09 puts them.

Bucket k may start when its last gradient is there and the network is free: s_k = max(r_k, e_(k-1)), e_k = s_k + T_k.
With OUT = -, it prints two measures of overlap instead: the one in some tutorials, and the share that is hidden.
"""
import sys

from svg import Picture

GRADIENTS, EACH = 6, 2.0        # ms of backward for each
ALPHA, PER_GRADIENT = 1.6, 0.9  # ms of an all-reduce: for itself, and for each gradient in it
CASES = [("after backward: one all-reduce of everything", [6]),
         ("beside backward: one all-reduce a gradient", [1] * 6),
         ("in buckets: 1, 2, 2 and 1 gradients", [1, 2, 2, 1])]
LEFT, SCALE = 120, 24


def main():
    picture = Picture(720, 420, "Backward with six gradients: all-reduces after it, one by one beside it, and in buckets")
    top, rows = 20, []
    for name, buckets in CASES:
        first, end, boxes = 0, 0.0, []
        for length in buckets:
            ready = (first + length) * EACH
            start = max(ready, end)
            end = start + ALPHA + PER_GRADIENT * length
            boxes.append((first, length, start, end))
            first += length
        backward = GRADIENTS * EACH
        picture.text(LEFT, top + 14, f"{name}: {end - backward:.1f} ms exposed of {sum(e - s for *_, s, e in boxes):.1f}", "strong", "start")
        picture.text(LEFT - 10, top + 42, "backward", "quiet", "end")
        picture.text(LEFT - 10, top + 78, "network", "quiet", "end")
        for g in range(GRADIENTS):
            bucket = next(n for n, (f, length, *_) in enumerate(boxes) if f <= g < f + length)
            picture.box(LEFT + g * EACH * SCALE, top + 24, EACH * SCALE - 2, 28, f"g{GRADIENTS - 1 - g}", f"tone{bucket % 4}")
        for n, (_, _, start, stop) in enumerate(boxes):
            picture.box(LEFT + start * SCALE, top + 60, (stop - start) * SCALE - 1, 28, f"#{n}", f"tone{n % 4}")
        x = LEFT + backward * SCALE
        picture.line([(x, top + 22), (x, top + 96)], "line dash")
        picture.text(x + 4, top + 108, "backward is over", "quiet", "start")
        top += 132
        total = sum(e - s for *_, s, e in boxes)
        rows.append((name.split(":")[0], backward, total, (backward - total) / backward, 1 - (end - backward) / total))
    if sys.argv[1] != "-":
        picture.save(sys.argv[1])
        return
    print(f"{'':18} backward  all-reduces  (B-C)/B  hidden")
    for name, backward, total, ratio, hidden in rows:
        print(f"{name:18} {backward:5.1f} ms     {total:5.1f} ms    {ratio:5.0%}   {hidden:5.0%}")


if __name__ == "__main__":
    main()
