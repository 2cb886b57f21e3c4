#!/usr/bin/python3
"""A rank that hangs is found, and its output names the function that it hangs in: tests ranks.run().

    hangs.py

Both deadlines are tried (for the whole run, and for a run that prints nothing), and three ways to hang: in Python, in
this backend's wait for another rank, and in a C function that never releases the interpreter's lock. A test that is
stopped for longer than its deadlines, and then continued, has no rank that hangs.
"""
import argparse
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
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


def ends_when_told():
    while not pathlib.Path(os.environ["GO"]).exists():
        time.sleep(0.01)


CASES = {f.__name__: f for f in (sleeps_in_python, waits_for_a_rank, holds_the_lock)}


def rank_main(case, joins):
    if case == "ends_when_told":
        return ends_when_told()
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


def stopped():
    """Runs a rank in a new session, stops all its processes for longer than both deadlines, and lets the rank end."""
    with tempfile.TemporaryDirectory() as folder:
        begun, go = pathlib.Path(folder, "begun"), pathlib.Path(folder, "go")
        program = (f"import pathlib, ranks\n"
                   f"done = ranks.run(1, {__file__!r}, '--rank', 'ends_when_told', limit={2 * DEADLINE}, quiet={DEADLINE},\n"
                   f"                 watch=lambda *_: pathlib.Path({str(begun)!r}).touch(), GO={str(go)!r})\n"
                   f"ranks.expect_success(done, 'a rank')\n"
                   f"assert done[0].seconds < float('inf'), 'the rank was taken for one that hangs'")
        child = subprocess.Popen([ranks.PYTHON, "-c", program], cwd=pathlib.Path(__file__).parent, start_new_session=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not begun.exists() and child.poll() is None:
            time.sleep(0.01)
        time.sleep(0.5)
        os.killpg(child.pid, signal.SIGSTOP)
        time.sleep(3 * DEADLINE)
        go.touch()
        os.killpg(child.pid, signal.SIGCONT)
        said = child.communicate(timeout=SOON)[0]
        assert child.returncode == 0, f"a test that was stopped, and continued: {said}"
        print("a test that was stopped for longer than its deadlines: no rank is aborted", flush=True)


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
    stopped()


if __name__ == "__main__":
    sys.exit(main())
