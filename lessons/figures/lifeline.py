#!/usr/bin/env python3
"""lifeline.py OUT: what a job of three ranks does in 372 minutes, phase by phase, from lesson18_by_hand."""
import re
import subprocess
import sys

from svg import Picture

TONES = {"work": "tone0", "save": "tone2", "restart": "tone3"}
LEFT, SCALE, ROWS, HIGH = 40, 5.0, 3, 46


def main():
    out = subprocess.run(["lesson18_by_hand"], capture_output=True, text=True, timeout=10, check=True).stdout
    phases = [(int(a), int(b), kind, bool(cut))
              for a, b, kind, cut in re.findall(r"^ *(\d+) to +(\d+)  (\w+)(, cut)?$", out, re.M)]
    picture = Picture(720, 330, "240 minutes of work take 372: three failures, saves, restarts, and work done again")
    picture.text(LEFT, 28, "four hours of work in 372 minutes", "title", "start")
    minutes = 128  # of a row

    def kept(index):
        """Work is kept if its save, or the job, is complete."""
        following = phases[index + 1] if index + 1 < len(phases) else None
        return not phases[index][3] and (following is None or following[2] == "save" and not following[3])

    for index, (begin, end, kind, cut) in enumerate(phases):
        tone = "tone1" if kind == "work" and not kept(index) or kind == "save" and cut else TONES[kind]
        at = begin
        while at < end:
            row = at // minutes
            stop = min(end, (row + 1) * minutes)
            picture.box(LEFT + SCALE * (at - row * minutes), 50 + 72 * row, max(2, SCALE * (stop - at)), HIGH,
                        kind if stop - at > 12 else "", tone)
            at = stop
        if cut:
            row = end // minutes
            x = LEFT + SCALE * (end - row * minutes)
            picture.line([(x, 42 + 72 * row), (x, 50 + 72 * row + HIGH + 8)], "curve1")
            picture.text(x, 50 + 72 * row + HIGH + 20, str(end), "quiet")
    x = LEFT
    for tone, words in (("tone0", "work that is kept"), ("tone1", "lost"), ("tone2", "save"), ("tone3", "restart")):
        picture.box(x, 286, 18, 18, "", tone)
        picture.text(x + 26, 300, words, "quiet", "start")
        x += 170
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
