#!/usr/bin/env python3
"""run.py CASE BUILD: tests NCCL's interface (labs/nccl) with the client in client.cu.

  threads    one process, a device for each rank, communicators by ncclCommInitAll and by threads, one by one
  processes  a process for each rank, the id exchanged by MPI
  both       several processes with several devices each, communicators made in a group
  split      communicators by ncclCommSplit
  failures   a rank dies, aborts, or is late: the other rank's error, and how soon it is reported
  all        everything, for `make test-nccl`: 2 to 8 devices, 8 B to 1 MiB, every type and reduction

Exit status 77: not run, with the reason. Each line of the client counts elements, wrong elements, and refusals
that are not as expected; it exits with 1 if there are any.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
DEADLINE = 280  # seconds per run; `all` has more


def start(command, **environment):
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **environment})


def finish(process, seconds=DEADLINE):
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        out += f"\nrun.py: it did not end within {seconds} s"
        return 124, out
    return process.returncode, out


def client(build, processes, *options, seconds=DEADLINE):
    """Runs the client once. Returns 0, or 1 if it found an error."""
    program = build / "bin" / "nccl_client"
    command = [program, *options] if processes == 1 else [TESTS / "support/mpirun.sh", processes, program, *options]
    begin = time.monotonic()
    code, out = finish(start(command, RINGSMITH_DEADLINE=str(seconds)), seconds + 20)
    print(f"{out.strip()} [{time.monotonic() - begin:.1f} s]" if code == 0 else
          f"FAILED ({code}): {processes} processes, {' '.join(map(str, options))}\n{out}", flush=True)
    return 0 if code == 0 else 1


def failure(build, how, result, words, most_seconds, **environment):
    """Runs two ranks, of which rank 1 fails as `how` says. Checks the output of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start([build / "bin/nccl_client", "--id-file", pathlib.Path(folder, "id"), "--rank", r, "--ranks", 2,
                        "--fail", how], **environment) for r in (0, 1)]
        codes, outputs = zip(*(finish(p, 60) for p in ranks))
    said = re.search(r"result (\d+) after ([\d.]+) s: (.*)", outputs[0])
    again = re.search(r"the next call: (\d+)", outputs[0])
    good = (said is not None and int(said[1]) == result and float(said[2]) < most_seconds and words in said[3] and
            again is not None and int(again[1]) == result and codes[0] == 0)
    print(f"{'' if good else 'FAILED: '}rank 1 {how}s: rank 0 says {said[0] if said else outputs[0]}", flush=True)
    if not good:
        print(f"expected result {result} within {most_seconds} s and '{words}'; rank 1: {codes[1]}, {outputs[1]}")
    return 0 if good else 1


def survivors(build):
    """Rank 1 of 3 is killed; ranks 0 and 2 continue with a new communicator (ncclCommShrink)."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start([build / "bin/nccl_client", "--id-file", pathlib.Path(folder, "id"), "--rank", r, "--ranks", 3,
                        "--fail", "shrink"]) for r in range(3)]
        codes, outputs = zip(*(finish(p, 60) for p in ranks))
    good = all(codes[r] == 0 and "the sum of the survivors: 4\n" in outputs[r] for r in (0, 2))
    print(f"{'' if good else 'FAILED: '}rank 1 dies, ranks 0 and 2 shrink: {outputs[0].splitlines()[-1:]}", flush=True)
    if not good:
        print(codes, *outputs, sep="\n")
    return 0 if good else 1


def failures(build):
    remote, system = 6, 2
    return (survivors(build) + failure(build, "die", remote, "is gone: its process has died", 5) +
            failure(build, "abort", remote, "rank 1 called ncclCommAbort", 5) +
            failure(build, "late", system, "waited 1500 ms for", 4, RINGSMITH_NCCL_TIMEOUT_MS="1500"))


def everything(build):
    def long(*options):
        return client(build, *options, seconds=1800)
    bad = sum(long(1, "-g", world, "-m", "all" if world % 2 else "one") for world in range(2, 9))
    bad += sum(long(world, "-m", "group", "-f", 64) for world in (2, 3, 4, 8))
    bad += long(2, "-g", 2, "-m", "group", "-f", 64) + long(2, "-g", 4, "-m", "split", "-f", 64)
    bad += long(4, "-g", 2, "-m", "one", "-f", 64)
    return bad + failures(build)


CASES = {
    "threads": lambda b: client(b, 1, "-q", "-g", 4, "-e", "16K", "-f", 64, "-m", "all") +
    client(b, 1, "-q", "-g", 3, "-e", "512", "-f", 64, "-m", "one"),
    "processes": lambda b: client(b, 3, "-q", "-e", "16K", "-f", 64, "-m", "group"),
    "both": lambda b: client(b, 2, "-q", "-g", 2, "-e", "16K", "-f", 64, "-m", "group"),
    "split": lambda b: client(b, 2, "-q", "-g", 2, "-e", "512", "-f", 64, "-m", "split"),
    "failures": failures,
    "all": everything,
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in CASES:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[2]).resolve()
    if not (build / "bin/nccl_client").exists():
        print(f"NOT RUN: {build}/bin/nccl_client is not built (make test-nccl builds it)")
        sys.exit(77)
    sys.exit(1 if CASES[sys.argv[1]](build) else 0)


if __name__ == "__main__":
    main()
