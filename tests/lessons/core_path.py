#!/usr/bin/env python3
"""The core path: the files, in reading order, from train_gpt's loop to the bytes on the network; and their sizes.

  core_path.py            print it, with lines
  core_path.py --check    exit with 1 if it has grown beyond its limits, a file is not on it, or the README shows another
  core_path.py --update   write it into the README
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- core path: make core-path UPDATE=1 -->", "<!-- end of the core path -->"
MOST_FILES, MOST_LINES = 45, 7000
COMM = "runtime/comm"
ROOMS = ("runtime", "kernels", "labs", "tests", "lessons")
SOURCES = (".cpp", ".hpp", ".cu", ".cuh", ".h")
# The README's sizes may be off by this share, or by a thousand, because not every commit changes them.
NEAR = 0.05

DAYS = [
    ("the loop, the model, the step",
     ["labs/apps/train/train_gpt.cpp", "runtime/nn/gpt.cpp", "runtime/optim/optimizer.hpp"]),
    ("tensors, the tape, and hooks on its leaves",
     ["runtime/tensor/tensor.hpp", "runtime/autograd/node.hpp", "runtime/autograd/engine.cpp", "runtime/nn/module.hpp"]),
    ("DDP: full buckets are reduced while backward runs",
     ["runtime/parallel/ddp.hpp", "runtime/parallel/ddp.cpp", "runtime/parallel/reducer.hpp", "runtime/parallel/reducer.cpp",
      "runtime/parallel/gradient_buckets.hpp", "runtime/parallel/bucket.hpp"]),
    ("the call of a collective: checked, numbered, queued",
     [f"{COMM}/types/buffer.hpp", f"{COMM}/types/collective.hpp", f"{COMM}/types/transfer.hpp", f"{COMM}/process_group.hpp",
      f"{COMM}/process_group.cpp", f"{COMM}/cpu_process_group.hpp", f"{COMM}/cpu_process_group.cpp", f"{COMM}/queue.cpp"]),
    ("its schedule, which is data, and the executors that run it",
     [f"{COMM}/schedule/schedule.hpp", f"{COMM}/schedule/ring.hpp", f"{COMM}/schedule/ring.cpp", f"{COMM}/schedule/direct.hpp",
      f"{COMM}/executor/dispatcher.hpp", f"{COMM}/executor/dispatcher.cpp", f"{COMM}/executor/plan.hpp", f"{COMM}/executor/mapping.hpp",
      f"{COMM}/executor/executors.hpp"]),
    ("the bytes move: slots with two counters, memory that peers read directly",
     [f"{COMM}/executor/plain_ring.cpp", f"{COMM}/transport/channel.hpp", f"{COMM}/executor/slots.cpp",
      f"{COMM}/executor/mapped.cpp", "kernels/reduce.hpp", f"{COMM}/transport/layout.hpp",
      f"{COMM}/transport/agreement_barrier.hpp", f"{COMM}/transport/segments.hpp", f"{COMM}/transport/peers.hpp",
      f"{COMM}/transport/peers.cpp"]),
    ("the bytes move to other hosts; the ring as one kernel per GPU",
     [f"{COMM}/transport/network_transport.hpp", f"{COMM}/transport/tcp/tcp_transport.cpp", f"{COMM}/device/station.hpp",
      f"{COMM}/device/slots.cuh", f"{COMM}/device/ring.cu"]),
]


def lines(path):
    return (ROOT / path).read_text().count("\n")


def included(path, seen):
    """Adds to `seen` all files that `path` includes, directly or not, and the source of each
    header."""
    if path in seen or not (ROOT / path).exists():
        return
    seen.add(path)
    for header in re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.M):
        included(header, seen)
        for source in (".cpp", ".cu"):
            included(str(pathlib.PurePath(header).with_suffix(source)), seen)


def lies_on(path, seen):
    """Returns True if the file is on the path. Also returns True if a file that is not a header
    includes one on the path: a source whose header has another name, or a kernel."""
    own = set()
    included(path, own)
    return path in seen or (not path.endswith(".hpp") and bool((own - {path}) & seen))


def table():
    rows = ["| day | topic | files and their lines |", "|---|---|---|"]
    for day, (what, files) in enumerate(DAYS, 1):
        rows.append(f"| {day} | {what} | " + ", ".join(f"[{pathlib.PurePath(f).name}]({f}) {lines(f)}" for f in files) + " |")
    return "\n".join(rows)


def totals():
    files = sum((files for _, files in DAYS), [])
    return len(files), sum(map(lines, files))


def size_of(room):
    return sum(p.read_bytes().count(b"\n") for p in (ROOT / room).rglob("*") if p.suffix in SOURCES and "node_modules" not in p.parts)


def sizes_line():
    """Returns the thousands of lines, in total and by room."""
    sizes = {room: size_of(room) for room in ROOMS}
    return (f"All of it is about {sum(sizes.values()) / 1000:.0f},000 lines of C++ and CUDA, in thousands: " +
            ", ".join(f"{room} {size / 1000:.0f}" for room, size in sizes.items()) + ".")


def size_faults(text):
    """Checks that the README's line of sizes is near today's."""
    now = sizes_line()
    said = next((line for line in text.splitlines() if line.startswith(now.split("about")[0])), "")
    if re.sub(r"\d+", "", said) != re.sub(r"\d+", "", now):
        return ["README.md has no line with the sizes of all rooms: make core-path UPDATE=1"]
    pairs = zip(*(map(int, re.findall(r"\d+", line.replace(",000", ""))) for line in (said, now)))
    return [f"README.md says {a} thousand lines where there are {b}: make core-path UPDATE=1"
            for a, b in pairs if abs(a - b) > max(1, NEAR * b)]


def read_block():
    count, length = totals()
    return f"{BEGIN}\n{table()}\n\n{count} files, {length:,} lines to read in a week; the rest is for reference.\n"


def block():
    return f"{read_block()}{sizes_line()}\n{END}"


def faults():
    count, length = totals()
    found = []
    if count > MOST_FILES or length > MOST_LINES:
        found.append(f"the core path has {count} files and {length} lines: at most {MOST_FILES} and {MOST_LINES}")
    seen = set()
    included(DAYS[0][1][0], seen)
    found += [f"{f} does not lie on the path from {DAYS[0][1][0]}" for _, files in DAYS for f in files if not lies_on(f, seen)]
    if read_block() not in README.read_text():
        found.append("README.md shows another core path: make core-path UPDATE=1")
    return found + size_faults(README.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.update:
        text = README.read_text()
        begin, end = text.index(BEGIN), text.index(END) + len(END)
        README.write_text(text[:begin] + block() + text[end:])
    if args.check:
        found = faults()
        print("\n".join(found) if found else "core path: {} files, {} lines".format(*totals()))
        sys.exit(1 if found else 0)
    for day, (what, files) in enumerate(DAYS, 1):
        print(f"day {day}: {what}")
        for f in files:
            print(f"  {lines(f):5}  {f}")
    print("{} files, {} lines".format(*totals()))
    print(sizes_line())


if __name__ == "__main__":
    main()
