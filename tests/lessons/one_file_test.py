#!/usr/bin/env python3
"""lessons/one-file/ringsmith.cpp builds alone, trains as the runtime does, and ends when a rank fails.

    one_file_test.py [BUILD]              BUILD: build/release, whose train_mlp trains on the same data; $CXX [c++]
    one_file_test.py --write-data FOLDER  writes that data as MNIST's files

Exits 0, or 1 with a line for each fault.
"""
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

import links
from lesson import Lesson

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "lessons/one-file"
SOURCE = (PAGE / "ringsmith.cpp").read_text(encoding="utf-8")
FLAGS = ["-std=c++20", "-pthread", "-Wall", "-Wextra", "-Werror"]
STEPS = 60
# Both programs compute in f32, but add in different orders. One rounding is 6e-8 of a value. Over 200 steps the losses,
# which begin at 2.3, differed by 7e-7 at most. One sample in the wrong place or one rate from the next step gives 1e-3.
TOLERANCE = 1e-5
faults = []


def expect(holds, text):
    if not holds:
        faults.append(text)


def planted(*pairs):
    text = SOURCE
    for old, new in pairs:
        expect(text.count(old) == 1, f"the test replaces '{old}', which is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


# "narrow" has a short deadline and buckets of 1 element, so that two of 3 chunks are empty. In "poisoned" a rank's
# parameters become NaN.
PROGRAMS = {
    "one": ("-O2", SOURCE),
    "narrow": ("-O0", planted(("kTimeout{10}", "kTimeout{1}"), ("kHidden = 64", "kHidden = 1"),
                              ("kBucketFloats = 512", "kBucketFloats = 1"))),
    "poisoned": ("-O0", planted(("static_cast<float>(rate)", "(rank == 1 ? NAN : static_cast<float>(rate))"))),
}


def build(folder):
    running = []
    for name, (level, text) in PROGRAMS.items():
        (folder / f"{name}.cpp").write_text(text, encoding="utf-8")
        command = [os.environ.get("CXX", "c++"), *FLAGS, level, f"{name}.cpp", "-o", name]
        running.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for each in running:
        said = each.communicate(timeout=100)[0]
        expect(each.returncode == 0, f"{' '.join(each.args)}: {said}")
    return not faults


def write_data(folder):
    """Draws the digits of section 2 again: MT19937 seeded with 1."""
    state = [1]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xffffffff)
    words = random.Random()
    words.setstate((3, (*state, 624), None))
    glyphs = re.findall(r'^ +"([ #]{59})"', SOURCE, re.M)
    pixels = bytes((120 if glyphs[p // 5][i % 10 * 6 + p % 5] == "#" else 0) + words.getrandbits(32) % 136
                   for i in range(2000) for p in range(35))
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 2000, 7, 5) + pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2000) + bytes(i % 10 for i in range(2000)))


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def losses_of(program, ranks):
    done = run(program, ranks, STEPS)
    found = {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) of \d+: loss (\S+)$", done.stdout, re.M)}
    expect((done.returncode, len(found)) == (0, 20), f"{ranks} ranks: exit code {done.returncode}, {done.stderr}")
    expect(done.stdout.endswith("\nthe parameters of all ranks are equal bit for bit\n"), f"{ranks} ranks: {done.stdout[-80:]}")
    return found


def compare(ours, programs, folder, ranks, hidden, ddp="buckets"):
    """Compares the losses with train_mlp's."""
    metrics = folder / f"{ranks}-{hidden}-{ddp}"
    done = run(programs / "ringrun", "--standalone", "--nproc-per-node", ranks, "--", programs / "train_mlp", "--data", folder, "--hidden",
               hidden, "--ddp", ddp, "--batch", 16, "--momentum", 0, "--lr", 0.2, "--steps", STEPS, "--no-trace", "--run-dir", metrics)
    expect(done.returncode == 0, f"train_mlp --ddp {ddp} on {ranks} ranks: {done.stderr}")
    lines = map(json.loads, (metrics / "metrics.jsonl").read_text().splitlines())
    theirs = {line["step"]: line["loss"] for line in lines}
    # A NaN counts as the largest.
    worst = max((abs(ours[step] - theirs[step]) for step in ours), default=9, key=lambda d: (d != d, d))
    print(f"{ranks} ranks, {hidden} hidden, --ddp {ddp}: losses within {worst:.1e} of train_mlp's")
    expect(worst <= TOLERANCE, f"{ranks} ranks, --ddp {ddp}: losses differ by {worst:.1e}, more than {TOLERANCE:.0e}")  # NaN <= x is false


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def fail_by(sent, program, code, words):
    """Sends rank 1 of 3 a signal in the middle of a training run that would take an hour."""
    job = subprocess.Popen([program, "3", "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [int(job.stdout.readline().split()[-1]) for _ in range(3)]
    time.sleep(0.3)
    os.kill(pids[1], sent)
    try:
        said = job.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        job.kill()
        return expect(False, f"{sent.name}: the job did not end")
    expect(job.returncode == code, f"{sent.name}: exit code {job.returncode} instead of {code}: {said}")
    where = r"rank [02], training step \d+: the all-reduce of bucket \d waits for rank [0-2] in ring step \d"
    for pattern in words:
        expect(re.search(pattern.replace("WHERE", where), said, re.M), f"{sent.name}: no '{pattern}' in: {said}")
    left = [pid for pid in pids if runs(pid)]
    expect(not left, f"{sent.name}: ranks are left")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def check(folder, build_folder):
    expect(SOURCE.count("\n") <= 500, f"{SOURCE.count(chr(10))} lines: at most 500")
    expect('#include "' not in SOURCE, "it includes a file of the project")
    for path in re.findall(r"\b(?:runtime|labs)/[\w./-]*\w", SOURCE):
        expect((ROOT / path).exists(), f"ringsmith.cpp names {path}, which does not exist")
    faults.extend(links.check(Lesson(PAGE / "README.md"))[0])
    if not build(folder):
        return
    losses = {ranks: losses_of(folder / "one", ranks) for ranks in (1, 2, 3)}
    for ranks, found in losses.items():
        expect(found and found[STEPS] < 1.3 < 2.1 < found[3], f"{ranks} ranks learn nothing: {found}")
    expect(losses[3] == losses_of(folder / "one", 3), "two trainings on 3 ranks differ")
    narrow = losses_of(folder / "narrow", 3)
    if build_folder:
        write_data(folder)
        for ranks, found in losses.items():
            for ddp in ("plain", "buckets"):
                compare(found, build_folder / "bin", folder, ranks, 64, ddp)
        compare(narrow, build_folder / "bin", folder, 3, 1)
    killed = r"^ringsmith: error: rank 1 \(process \d+\) was killed by signal 9$"
    fail_by(signal.SIGKILL, folder / "one", 3, ["WHERE; ended: rank 1$", killed])
    fail_by(signal.SIGSTOP, folder / "narrow", 4, ["WHERE; no progress in time: rank 1$"])
    # The shell starts a child and then becomes the program. That child is not a rank.
    inherited = run("sh", "-c", f"sleep 0.05 & exec '{folder / 'one'}' 2 2000")
    expect(inherited.returncode == 0, f"with an inherited child: exit code {inherited.returncode}, {inherited.stderr}")
    for steps, words in ((1, "parameters of ranks 0 and 1 differ"), (5, "step 2: loss is not finite")):
        done = run(folder / "poisoned", 2, steps)
        expect(done.returncode == 1 and words in done.stderr, f"NaN on rank 1: exit code {done.returncode}, {done.stderr}")
    for arguments in ([], [""], ["0"], ["x"], ["2x"], ["17"], ["2", "0"], ["2", "1.5"], ["2", "3", "4"], ["9" * 30]):
        done = run(folder / "one", *arguments)
        good = done.returncode == 6 and done.stdout == "" and done.stderr.count("\n") == 1 and "give " in done.stderr
        expect(good, f"{arguments}: exit code {done.returncode}, {done.stdout}{done.stderr}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write-data"] and len(sys.argv) == 3 and pathlib.Path(sys.argv[2]).is_dir():
        write_data(pathlib.Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--write-data"] or len(sys.argv) > 2:
        sys.exit(f"one_file_test.py: error: give a build folder, or --write-data and a folder that exists, not {sys.argv[1:]}")
    else:
        with tempfile.TemporaryDirectory(prefix="one_file.") as temporary:
            check(pathlib.Path(temporary), pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None)
        print("\n".join(faults) or "lessons/one-file: all holds")
        sys.exit(1 if faults else 0)
