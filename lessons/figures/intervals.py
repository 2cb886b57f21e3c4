#!/usr/bin/env python3
"""intervals.py OUT: six intervals overlapped and one after the other, from lesson15_by_hand."""
import re
import subprocess
import sys

from svg import Picture

LEFT, SCALE, ROW = 150, 22, 36  # pixels; a millisecond


def main():
    out = subprocess.run(["lesson15_by_hand"], capture_output=True, text=True, timeout=30, check=True).stdout
    picture = Picture(720, 380, "Six intervals, overlapped: 56 % of the communication is hidden; and serial: none is")
    y = 20
    for line in out.splitlines():
        name = line.split()[0]
        spans = [(int(a), int(b)) for a, b in re.findall(r"(\d+) to +(\d+)", line)]
        if step := re.match(r"(\w+): step (\d+) ms", line):
            picture.text(LEFT, y + 14, f"{step[1]}: {step[2]} ms", "title", "start")
            begin, end, y = y + 22, int(step[2]), y + 28
        elif spans:
            picture.text(LEFT - 12, y + 19, name, "strong" if name == "exposed" else "", "end")
            kind = {"computation": "tone0", "communication": "tone2", "exposed": "tone1"}[name]
            beside = name == "communication" and any(b > c for (_, b), (c, _) in zip(spans, spans[1:]))
            for n, (a, b) in enumerate(spans):  # overlapping all-reduces are drawn one above the other
                picture.box(LEFT + a * SCALE, y + (20 if beside and n % 2 else 0), (b - a) * SCALE - 2,
                            19 if beside else 28, f"{b - a}", kind)
            y += ROW + (11 if beside else 0)
        elif line.startswith("  unions"):
            picture.line([(LEFT, begin), (LEFT, y)], "line dash")
            picture.line([(LEFT + end * SCALE, begin), (LEFT + end * SCALE, y)], "line dash")
            hidden = re.search(r"hidden (\d+) %", line)[1]
            picture.text(LEFT, y + 18, f"{hidden} % of the communication is hidden", "quiet", "start")
            y += 50
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
