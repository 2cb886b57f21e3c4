#!/usr/bin/env python3
"""send_queue.py OUT: draws a send queue of eight places, from what lesson11_queue prints."""
import re
import subprocess
import sys

from svg import Picture

CELL = 46


def main():
    out = subprocess.run(["lesson11_queue", "8", "4"], capture_output=True, text=True, timeout=30).stdout.splitlines()
    picture = Picture(640, 300, "A send queue of eight places in which every fourth request asks for a completion")
    picture.text(20, 30, "a send queue of 8 places; every 4th request asks for a completion", "title", "start")
    done = 0
    for row, (posted, taken) in enumerate(list(zip(out[::2], out[1::2]))[:4]):
        first, last = map(int, re.findall(r"\d+", posted)[:2])
        y = 50 + 56 * row
        for number in range(done + 1, last + 1):
            place = (number - 1) % 8
            kind = "tone0" if number % 4 == 0 else "tone2" if number >= first else "box"
            picture.box(20 + CELL * place, y, CELL - 4, 34, str(number), kind)
        done = int(re.search(r"completion of (\d+)", taken).group(1))
        picture.text(20 + CELL * 8 + 12, y + 14, f"{last - first + 1} posted, 8 of 8 in use", "", "start")
        picture.text(20 + CELL * 8 + 12, y + 32, f"completion of {done}: all up to {done} are done", "quiet", "start")
    picture.text(20, 290,
                 "blue: asks for a completion; green: posted just now; a place is free again when a blue one behind "
                 "it has been polled", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
