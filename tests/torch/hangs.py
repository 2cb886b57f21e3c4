#!/usr/bin/python3
"""A rank that hangs is found, and its output names the function that it hangs in: tests ranks.run().

    hangs.py

Both deadlines are tried (the whole run's, and that of a run that prints nothing), and three ways to hang: in Python, in
this backend's wait for another rank, and in a C function that never releases the interpreter's lock.
"""
import argparse
import ctypes
import os
import sys
import time

import ranks

DEADLINE = 4.0  # seconds
SOON = 60.0     # seconds until the report: gdb reads PyTorch's symbols


def sleeps_in_python():
    time.sleep(1000)


def waits_for_a_rank():
    import torch
    import torch.distributed as dist
    dist.all_reduce(torch.ones(10))


def holds_the_lock():
    ctypes.PyDLL(None).sleep(1000)  # unlike CDLL, PyDLL keeps the lock


CASES = {f.__name__: f for f in (sleeps_in_python, waits_for_a_rank, holds_the_lock)}


def rank_main(case, joins):
    rank = int(os.environ["RANK"])
    if joins:
        ranks.join()
        print("JOINED", flush=True)
    if case == "waits_for_a_rank" and rank == 1:
        sleeps_in_python()
    if case != "waits_for_a_rank" and rank == 0:
        return
    CASES[case]()


def all_joined(processes, said):
    until = time.monotonic() + 120
    while not all("JOINED" in said(rank) for rank in range(len(processes))):
        assert time.monotonic() < until, f"the ranks never began:\n{said(0)}\n{said(1)}"
        time.sleep(0.1)
    begins.append(time.monotonic())


begins = []


def hang(case, what, joins, **deadline):
    begins[:] = [time.monotonic()]
    done = ranks.run(2, __file__, "--rank", case, *["--joins"] * joins, watch=all_joined if joins else None, **deadline)
    seconds = time.monotonic() - begins[-1]
    hangs = done[0 if case == "waits_for_a_rank" else 1]
    assert hangs.status < 0 and hangs.seconds == float("inf"), f"{what}: status {hangs.status}:\n{hangs.text}"
    assert "HUNG: aborted by the test" in hangs.text, f"{what}:\n{hangs.text}"
    assert f" in {case}" in hangs.text, f"{what}: the output does not name the function:\n{hangs.text}"
    assert DEADLINE <= seconds < SOON, f"{what}: reported after {seconds:.0f} s"
    print(f"{what}: aborted, and its stack is in its output", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", help="(internal) be a rank, in this case")
    parser.add_argument("--joins", action="store_true", help="(internal) join the group first")
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.rank, args.joins)
    ranks.leave_if_impossible()
    hang("sleeps_in_python", "a rank that sleeps, by the limit", False, limit=3 * DEADLINE)
    for case in CASES:
        hang(case, f"{case}, by the silence", True, quiet=DEADLINE, limit=600)


if __name__ == "__main__":
    sys.exit(main())
