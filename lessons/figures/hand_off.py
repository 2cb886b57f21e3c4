#!/usr/bin/env python3
"""hand_off.py OUT: the two hand-offs between two ranks, with the counters that lesson07_hand_off prints."""
import re
import subprocess
import sys

from svg import Picture

LEFT, RIGHT = 150, 490


def main():
    out = subprocess.run(["lesson07_hand_off"], capture_output=True, text=True, timeout=10, check=True).stdout
    rows = re.findall(r"^ +(\d+) +(rank \d) (.+?)  +tail (\d+) +head (\d+)", out, re.M)
    picture = Picture(720, 96 + 46 * len(rows), "Who stores what, and where the counters stand afterwards")
    picture.text(LEFT, 30, "rank 0, the sender", "title")
    picture.text(RIGHT, 30, "rank 1, the receiver", "title")
    y = 64
    for _, who, what, tail, head in rows:
        sender = who == "rank 0"
        picture.box((LEFT if sender else RIGHT) - 130, y - 16, 260, 34, what, "tone0" if sender else "tone1")
        if "tail" in what and sender:
            picture.arrow(LEFT + 134, y, RIGHT - 134, y + 30)
        if "head" in what and not sender:
            picture.arrow(RIGHT - 134, y, LEFT + 134, y + 30)
        picture.text(636, y + 5, f"tail {tail}  head {head}", "quiet", "start")
        y += 46
    picture.text(20, y + 4, "tail - head messages lie in the slots; both only grow", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
