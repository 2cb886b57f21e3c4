#!/usr/bin/env python3
"""The core path: the files, in reading order, from train_gpt's loop to the bytes on the network; and their sizes.

  core_path.py            print it, with lines
  core_path.py --check    exit with 1 if it has grown beyond its limits, a file is not on it, or the pages show another
  core_path.py --update   write it into the README, and the sizes of core and annexes into CONTRIBUTING, too
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- core path: make core-path UPDATE=1 -->", "<!-- end of the core path -->"
MOST_FILES, MOST_LINES = 44, 5500
COMM = "runtime/comm"
# The core is everything in these folders that is in no annex. A reader of the core can leave out the annexes.
CORE = ("runtime", "kernels")
ANNEXES = {
    "runtime/job": "how the ranks of a job find each other, start and end together: the store, Open MPI, Slurm, `ringrun`, `spawn()`",
    "runtime/analysis": "schedules that are not run: proofs that they are right, simulated times, the cost model",
    "runtime/parallel/beyond": "more than DDP needs: ZeRO, FSDP, tensor and pipeline parallelism, PowerSGD, local SGD, SyncBatchNorm, training that survives the loss of ranks",
    "kernels/cuda": "the kernels for GPUs",
    "kernels/vgpu": "a CUDA runtime on the CPU, which runs GPU code where there is no GPU",
    "labs": "the tasks and their judge; our programs (`apps`); PyTorch's and NCCL's interfaces to the rings",
    "lessons": "the lessons' programs, the one file, and the book's live figures",
    "tests": "tests and benchmarks",
}
SOURCES = (".cpp", ".hpp", ".cu", ".cuh", ".h")
# The sizes in the pages may be off by the larger of this share and this number of lines, because not every commit
# updates them.
NEAR, NEAR_LINES = 0.05, 200

DAYS = [
    ("the loop and the model",
     ["labs/apps/train/train_gpt.cpp", "labs/apps/train/gpt_program.hpp", "runtime/nn/gpt.cpp"]),
    ("tensors, the tape, and hooks on its leaves",
     ["runtime/tensor/tensor.hpp", "runtime/autograd/node.hpp", "runtime/autograd/engine.cpp"]),
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


def sizes():
    """Returns {part: lines, rounded to a hundred} for the core and each annex."""
    annexes = {room: size_of(room) for room in ANNEXES}
    core = sum(map(size_of, CORE)) - sum(size for room, size in annexes.items() if room.startswith(CORE))
    return {part: round(size, -2) for part, size in {"core": core, **annexes}.items()}


def sizes_line():
    core, *annexes = sizes().values()
    return f"The core has about {core:,} lines of C++ and CUDA. The annexes, to read when they are needed, have {sum(annexes):,}."


def map_table():
    core, *annexes = sizes().items()
    rows = ["| part | lines | for |", "|---|---|---|",
            f"| core | {core[1]:,} | `runtime` and `kernels` without their annexes: tensors, tape, models, DDP, and everything that moves bytes |"]
    return "\n".join(rows + [f"| annex [`{room}`]({room}) | {size:,} | {ANNEXES[room]} |" for room, size in annexes])


def size_faults(page, now):
    """Checks that the page has the text `now` in front of its mark END, with sizes that are near."""
    said = re.search(rf"^The core has about .*?(?=\n{END})", page.read_text(), re.M | re.S)
    said, now = (re.sub(r"(?<=\d),(?=\d{3})", "", text) for text in (said[0] if said else "", now))
    if re.sub(r"\d+", "", said) != re.sub(r"\d+", "", now):
        return [f"{page.name} has no sizes of core and annexes: make core-path UPDATE=1"]
    pairs = zip(*(map(int, re.findall(r"\d+", text)) for text in (said, now)))
    return [f"{page.name} says {a:,} lines where there are {b:,}: make core-path UPDATE=1"
            for a, b in pairs if abs(a - b) > max(NEAR_LINES, NEAR * b)]


def read_block():
    count, length = totals()
    return f"{BEGIN}\n{table()}\n\n{count} files, {length:,} lines to read in a week; the rest is for reference.\n"


def write(page, block):
    text = page.read_text()
    page.write_text(text[:text.index(BEGIN)] + block + text[text.index(END):])


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
    return found + size_faults(README, f"{sizes_line()}\n\n{map_table()}") + size_faults(CONTRIBUTING, sizes_line())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.update:
        write(README, f"{read_block()}\n{sizes_line()}\n\n{map_table()}\n")
        write(CONTRIBUTING, f"{BEGIN}\n{sizes_line()}\n")
    if args.check:
        found = faults()
        print("\n".join(found) if found else "core path: {} files, {} lines".format(*totals()))
        sys.exit(1 if found else 0)
    for day, (what, files) in enumerate(DAYS, 1):
        print(f"day {day}: {what}")
        for f in files:
            print(f"  {lines(f):5}  {f}")
    print("{} files, {} lines".format(*totals()))
    for part, size in sizes().items():
        print(f"  {size:7,}  {part}")


if __name__ == "__main__":
    main()
