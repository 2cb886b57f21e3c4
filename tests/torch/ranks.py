"""Starts the ranks of a PyTorch program and collects their output: run(world, FILE, args) in the parent, join() in a
rank.

Every rank is a process in the environment that torchrun would set; they meet in a file store, so that no other process
can take a port meanwhile. A rank that hangs is aborted, and its output ends with its stacks (hangs.py tests that).
"""
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RINGSMITH_TORCH_BUILD", TOP / "build/torch"))
PYTHON = "/usr/bin/python3"
NOT_RUN = 77
PAUSE = 2.0  # seconds: if a poll takes longer, the test itself was stopped (Ctrl-Z, a machine that sleeps)


@dataclasses.dataclass
class Rank:
    status: int   # exit status of the process; negative: a signal
    text: str     # standard output and error
    seconds: float  # until it ended, from the start of all ranks


def environment(rank, world, **more):
    """Returns the environment of one rank. It has one thread, because several threads add in another order."""
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(BUILD), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1", **more}


def why_not():
    """Returns the reason why these tests cannot run here, or "" if they can."""
    have = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, text=True, check=False)
    if have.returncode:
        return "no PyTorch (make torch installs python3-torch)"
    if not list((BUILD / "ringsmith_torch").glob("_C.*.so")):
        return f"the extension is not built in {BUILD} (make torch)"
    return ""


def torch_version():
    """Returns the installed PyTorch's version, such as (2, 6)."""
    said = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True)
    return tuple(map(int, said.stdout.split(".")[:2]))


def leave_if_impossible():
    if why := why_not():
        print(f"torch: NOT RUN: {why}")
        sys.exit(NOT_RUN)


def native_stacks(pid):
    """Returns the stacks of a process's threads: gdb's, or without gdb the kernel function that each thread waits in."""
    if shutil.which("gdb"):
        try:
            done = subprocess.run(["gdb", "-batch", "-p", str(pid), "-ex", "thread apply all bt 30"], capture_output=True,
                                  text=True, timeout=20, check=False, errors="replace")
            return "\n".join(line for line in done.stdout.splitlines() if re.match(r"Thread |#\d", line))
        except subprocess.TimeoutExpired:
            pass
    lines = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        try:
            lines.append(f"thread {task.name} ({(task / 'comm').read_text().strip()}) waits in "
                         f"{(task / 'wchan').read_text().strip()}")
        except OSError:  # it has ended meanwhile
            pass
    return "\n".join(lines)


def end_hung(processes, write):
    """Ends processes that hang, and writes where: write(n, text) is called for processes[n] before it is aborted.

    Python's fault handler then writes the Python stack of every thread to the standard error of the process, even if a
    thread holds the interpreter's lock.
    """
    for n, process in enumerate(processes):
        write(n, f"HUNG: aborted by the test. Native stacks:\n{native_stacks(process.pid)}\nPython's stacks:\n")
    for process in processes:
        try:
            os.kill(process.pid, signal.SIGABRT)
        except ProcessLookupError:
            pass
    until = time.monotonic() + 5
    while any(alive(process) for process in processes) and time.monotonic() < until:
        time.sleep(0.01)
    for process in processes:
        if alive(process):
            process.kill()


def alive(process):
    return (process.poll() if hasattr(process, "poll") else process.exitcode) is None


def run(world, program, *args, limit=120, quiet=None, watch=None, **more):
    """Runs all ranks of a program to their ends. Meanwhile watch(processes, said) may act on them; said(rank) is the
    output of a rank so far. Ranks that have not ended after limit seconds are aborted, and their stacks are in their
    outputs; so are all ranks if none has printed anything for quiet seconds. Time in which the test itself was stopped
    does not count."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        ranks = []
        for rank in range(world):
            log = open(f"{folder}/rank-{rank}", "a+")
            ranks.append((subprocess.Popen([PYTHON, str(program), *map(str, args)], stdout=log, stderr=subprocess.STDOUT,
                                           env=environment(rank, world, STORE=f"{folder}/store", **more)), log))
        ends = {}
        printed, last, polled = 0, start, start
        try:
            if watch:
                watch([process for process, _ in ranks], lambda rank: pathlib.Path(f"{folder}/rank-{rank}").read_text())
                last = polled = time.monotonic()
            while len(ends) < world:
                paused = time.monotonic() - polled
                polled += paused
                if paused > PAUSE:
                    start, last = start + paused, last + paused
                if polled - start > limit:
                    break
                for rank, (process, _) in enumerate(ranks):
                    if rank not in ends and process.poll() is not None:
                        ends[rank] = time.monotonic() - start
                now = sum(os.fstat(log.fileno()).st_size for _, log in ranks)
                if now != printed:
                    printed, last = now, time.monotonic()
                if quiet and time.monotonic() - last > quiet:
                    break
                time.sleep(0.005)
            hung = [both for rank, both in enumerate(ranks) if rank not in ends]

            def write(n, text):
                hung[n][1].write(text)
                hung[n][1].flush()
            end_hung([process for process, _ in hung], write)
        finally:
            for process, _ in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
        done = []
        for rank, (process, log) in enumerate(ranks):
            log.seek(0)
            done.append(Rank(process.returncode, log.read(), ends.get(rank, float("inf"))))
            log.close()
        return done


def expect_success(done, what):
    """Prints all ranks that failed, the first one to fail first: the others may only have noticed it."""
    said = []
    for rank, end in sorted(enumerate(done), key=lambda item: item[1].seconds):
        if end.status:
            hung = " (aborted: it hung)" if end.seconds == float("inf") else f" after {end.seconds:.1f} s"
            said.append(f"{what}: rank {rank} of {len(done)} ended with {end.status}{hung}:\n{end.text}")
    if said:
        sys.exit("\n".join(said))


def join(backend="ringsmith", timeout=60.0, **options):
    """Creates the group and returns (rank, world). Called in a rank; options as in
    ringsmith_torch.Options."""
    import datetime

    import torch
    import torch.distributed as dist

    import ringsmith_torch
    torch.set_num_threads(1)
    for name, value in options.items():
        setattr(ringsmith_torch.options, name, value)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if timeout < 10:  # on a busy machine the imports of one rank take seconds more than another's
        begun = [pathlib.Path(f"{os.environ['STORE']}-begun-{r}") for r in range(world)]
        begun[rank].touch()
        until = time.monotonic() + 60
        while not all(path.exists() for path in begun) and time.monotonic() < until:
            time.sleep(0.01)
    dist.init_process_group(backend, init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=timeout))
    return rank, world
