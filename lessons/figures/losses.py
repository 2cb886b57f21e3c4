"""losses.svg: the loss of lesson 04's model over 200 steps with three optimizers, as lesson04_train prints it."""
import subprocess
import sys

from svg import Picture

NAMES = [("SGD, momentum", "curve1"), ("SGD", "curve2"), ("AdamW", "curve3")]
LEFT, TOP, WIDTH, HEIGHT, HIGHEST = 70, 50, 560, 240, 0.8


def main():
    printed = subprocess.run(["lesson04_train", "all"], capture_output=True, text=True, check=True).stdout
    rows = {name: [float(v) for v in line[16:].split()] for line in printed.splitlines() for name, _ in NAMES
            if line[:16].strip() == name}
    picture = Picture(760, 340, "The loss falls with each step: AdamW and SGD with momentum fast, plain SGD slowly")
    for loss in (0, 0.2, 0.4, 0.6, 0.8):
        y = TOP + HEIGHT * (1 - loss / HIGHEST)
        picture.line([(LEFT, y), (LEFT + WIDTH, y)], "line dash")
        picture.text(LEFT - 8, y + 4, f"{loss:.1f}", "quiet", "end")
    for step in (1, 50, 100, 150, 200):
        picture.text(LEFT + WIDTH * (step - 1) / 199, TOP + HEIGHT + 20, str(step), "quiet")
    for name, curve in NAMES:
        losses = rows[name]
        picture.line([(LEFT + WIDTH * n / (len(losses) - 1), TOP + HEIGHT * (1 - loss / HIGHEST))
                      for n, loss in enumerate(losses)], curve)
        picture.text(LEFT + WIDTH + 8, TOP + HEIGHT * (1 - losses[-1] / HIGHEST) + (0 if name != "AdamW" else 12), name, "quiet", "start")
    picture.text(LEFT, TOP - 20, "loss", "strong", "start")
    picture.text(LEFT + WIDTH / 2, TOP + HEIGHT + 40, "step", "quiet")
    picture.save(sys.argv[1])


main()
