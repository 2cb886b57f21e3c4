"""tape.svg: the graph of lesson 03's example, with the values and gradients that lesson03_by_hand prints."""
import re
import subprocess
import sys

from svg import Picture


def main():
    printed = subprocess.run(["lesson03_by_hand"], capture_output=True, text=True, check=True).stdout
    value = {name: text for name, text in re.findall(r"^  (p|h|s|loss) = .*?(\d+)$", printed, re.M)}
    grad = {name: text for name, text in re.findall(r"^  (\w) is complete: gradient (\d+)$", printed, re.M)}
    order = re.findall(r"^  (\w) is complete", printed, re.M)
    picture = Picture(760, 330, "The graph of loss = (w x + b)^2 w: values run to the right, gradients to the left")
    places = {"x": (30, 60), "w": (30, 150), "b": (200, 240), "p": (200, 100), "h": (340, 150), "s": (480, 150), "loss": (630, 150)}
    leaf_value = {"x": "2", "w": "3", "b": "1"}
    rules = {"p": "w x", "h": "p + b", "s": "h h", "loss": "s w"}
    for a, b, shift in (("x", "p", -8), ("w", "p", 8), ("p", "h", -8), ("b", "h", 8), ("h", "s", -7), ("h", "s", 7), ("s", "loss", 0)):
        (x1, y1), (x2, y2) = places[a], places[b]
        picture.arrow(x1 + 106, y1 + 25 + (shift if a == "h" else 0), x2 - 4, y2 + 25 + shift)
    picture.line([(83, 200), (83, 305), (683, 305), (683, 206)], head=True)
    for name, (x, y) in places.items():
        if name in leaf_value:
            picture.box(x, y, 106, 50, f"{name} = {leaf_value[name]}\ngradient {grad[name]}", "tone0")
            picture.text(x + 53, y - 8, f"complete: {order.index(name) + 1}.", "quiet")
        else:
            picture.box(x, y, 106, 50, f"{name} = {rules[name]}\n= {value[name]}", "tone3" if name == "loss" else "box")
    picture.text(340, 40, "values: left to right; gradients: right to left along the same arrows", "quiet", "start")
    picture.text(500, 297, "w is used twice: its gradient comes along two arrows", "quiet")
    picture.save(sys.argv[1])


main()
