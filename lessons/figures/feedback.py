#!/usr/bin/env python3
"""feedback.py OUT: the loss when few gradients travel, with and without error feedback, from lesson17_feedback curves."""
import subprocess
import sys

from svg import Picture

LEFT, TOP, WIDTH, HEIGHT, HIGHEST = 70, 60, 480, 300, 0.75
CURVES = [("all 82 travel", "curve2", "all 82"), ("4 travel, the rest waits", "curve3", "4, the rest waits"),
          ("4 travel, the rest is forgotten", "curve1", "4, the rest is forgotten")]


def main():
    out = subprocess.run(["lesson17_feedback", "curves"], capture_output=True, text=True, timeout=60, check=True).stdout
    rows = {line[:34].strip(): [float(v) for v in line[34:].split()] for line in out.splitlines()}
    picture = Picture(800, 430, "The loss over 2000 steps: 4 of 82 gradients with error feedback are as good as all, without it they are not")
    picture.text(20, 30, "loss; of 82 gradients on each of three ranks travel", "title", "start")

    def place(n, count, loss):
        return LEFT + WIDTH * n / (count - 1), TOP + HEIGHT * (1 - loss / HIGHEST)

    for loss in (0, 0.25, 0.5, 0.75):
        picture.line([place(0, 2, loss), place(1, 2, loss)], "line dash")
        picture.text(LEFT - 8, place(0, 2, loss)[1] + 4, f"{loss:.2f}", "quiet", "end")
    for step in (1, 500, 1000, 1500, 2000):
        picture.text(LEFT + WIDTH * step / 2000, TOP + HEIGHT + 22, str(step), "quiet")
    picture.text(LEFT + WIDTH / 2, TOP + HEIGHT + 46, "step", "quiet")
    for name, kind, short in CURVES:
        row = rows[name]
        picture.line([place(n, len(row), loss) for n, loss in enumerate(row)], kind)
        x, y = place(len(row) - 1, len(row), row[-1])
        picture.text(x + 10, y + (18 if kind == "curve2" else 2), short, "strong", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
