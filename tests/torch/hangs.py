#!/usr/bin/python3
"""A rank that hangs is found, and its output names the function that it hangs in: tests ranks.run().

    hangs.py

Both deadlines are tried (the whole run's, and that of a run that prints nothing), and three ways to hang: in Python, in
this backend's wait for another rank, and in a C function that never releases the interpreter's lock.
"""
import argparse
import ctypes
import sys
import time

import ranks

# Long enough for the import of PyTorch on a busy machine.
LIMIT, QUIET = 30, 20  # seconds
SOON = 120.0  # seconds until the report: gdb may read PyTorch's symbols


def sleeps_in_python():
    time.sleep(1000)


def waits_for_a_rank():
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(10))


def holds_the_lock():
    ctypes.PyDLL(None).sleep(1000)  # unlike CDLL, PyDLL keeps the lock


CASES = {f.__name__: f for f in (sleeps_in_python, waits_for_a_rank, holds_the_lock)}


def rank_main(case):
    rank, _ = ranks.join()
    print("JOINED", flush=True)
    if case == "waits_for_a_rank" and rank == 1:
        sleeps_in_python()
    if case != "waits_for_a_rank" and rank == 0:
        return
    CASES[case]()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", help="(internal) be a rank, in this case")
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.rank)
    ranks.leave_if_impossible()
    for case in CASES:
        for deadline in [{"quiet": QUIET}] + [{"limit": LIMIT}] * (case == "sleeps_in_python"):
            begin = time.monotonic()
            done = ranks.run(2, __file__, "--rank", case, **deadline)
            seconds = time.monotonic() - begin
            what = f"{case} with {deadline}"
            hangs = done[0 if case == "waits_for_a_rank" else 1]
            assert "JOINED" in hangs.text, f"{what}: the rank never began:\n{hangs.text}"
            assert hangs.status < 0 and hangs.seconds == float("inf"), f"{what}: status {hangs.status}:\n{hangs.text}"
            assert "HUNG: aborted by the test" in hangs.text, f"{what}:\n{hangs.text}"
            assert f" in {case}" in hangs.text, f"{what}: the output does not name the function:\n{hangs.text}"
            assert seconds < SOON, f"{what}: reported after {seconds:.0f} s"
            print(f"{case}, {deadline}: aborted, and its stack is in its output", flush=True)


if __name__ == "__main__":
    sys.exit(main())
