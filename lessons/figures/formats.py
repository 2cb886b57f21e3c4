#!/usr/bin/env python3
"""formats.py OUT: which magnitudes f32, bf16 and f16 hold, and the magnitudes of a training run's gradients (lesson14_training)."""
import subprocess
import sys

from svg import Picture

LEFT, SCALE, LOW, HIGH = 150, 7.4, -50, 24  # pixels for a power of two, and the powers that are shown


def x(power):
    return LEFT + (power - LOW) * SCALE


def lane(picture, top, name, boxes):
    picture.text(LEFT - 12, top + 22, name, "strong", "end")
    for first, last, words, kind in boxes:
        picture.box(x(first), top + 4, x(last) - x(first), 28, words, kind)


def histogram(picture, bottom, name, counts, shift):
    picture.text(LEFT - 12, bottom - 18, name, "strong", "end")
    picture.line([(x(LOW), bottom), (x(HIGH), bottom)])
    highest = max(counts.values())
    for power, count in counts.items():
        height = 46 * count / highest
        if height >= 0.5:
            kept = power + shift >= -25  # half of the smallest f16 and more
            picture.box(x(power + shift), bottom - height, SCALE - 1, height, "", "tone2" if kept else "tone1")


def main():
    done = subprocess.run(["lesson14_training", "gradients"], capture_output=True, text=True, check=True)
    counts = {int(power): int(count) for power, count in (line.split() for line in done.stdout.splitlines())}
    picture = Picture(740, 372, "Magnitudes that f32, bf16 and f16 hold, and the gradients of a training before and after scaling")
    lane(picture, 16, "f32", [(LOW, HIGH, "2^-126 .. 2^128, 24 bits", "tone0")])
    lane(picture, 58, "bf16", [(LOW, HIGH, "2^-126 .. 2^128, 8 bits", "tone3")])
    lane(picture, 100, "f16", [(-24, -14, "fewer bits", "box"), (-14, 16, "2^-14 .. 65504, 11 bits", "tone2")])
    histogram(picture, 206, "gradients", counts, 0)
    histogram(picture, 286, "times 65536", counts, 16)
    for power in range(LOW, HIGH + 1, 10):
        picture.line([(x(power), 296), (x(power), 302)])
        picture.text(x(power), 318, f"2^{power}", "quiet")
    for power in (-24, 16):
        picture.line([(x(power), 136), (x(power), 296)], "line dash")
    picture.text(x(-37), 346, "to the left of 2^-24: zero in f16", "quiet")
    picture.text(x(16) + 4, 346, "beyond: infinite in f16", "quiet", "middle")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
