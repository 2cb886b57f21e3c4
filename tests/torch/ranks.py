"""Starts the ranks of a PyTorch program and collects their output: run(world, FILE, args) in the parent, join() in a
rank.

Every rank is a process in the environment that torchrun would set; they meet in a file store, so that no other process
can take a port meanwhile.
"""
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RINGSMITH_TORCH_BUILD", TOP / "build/torch"))
PYTHON = "/usr/bin/python3"
NOT_RUN = 77


@dataclasses.dataclass
class Rank:
    status: int   # exit status of the process; negative: a signal
    text: str     # standard output and error
    seconds: float  # until it ended, from the start of all ranks


def environment(rank, world, **more):
    """Returns the environment of one rank. It has one thread, because several threads add in another order."""
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(BUILD), "PYTHONDONTWRITEBYTECODE": "1", **more}


def why_not():
    """Returns the reason why these tests cannot run here, or "" if they can."""
    have = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, text=True, check=False)
    if have.returncode:
        return "no PyTorch (make torch installs python3-torch)"
    if not list((BUILD / "ringsmith_torch").glob("_C.*.so")):
        return f"the extension is not built in {BUILD} (make torch)"
    return ""


def leave_if_impossible():
    if why := why_not():
        print(f"torch: NOT RUN: {why}")
        sys.exit(NOT_RUN)


def run(world, program, *args, limit=120, watch=None, **more):
    """Runs all ranks of a program to their ends. Meanwhile watch(processes, said) may act on them; said(rank) is the
    output of a rank so far."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        ranks = []
        for rank in range(world):
            log = open(f"{folder}/rank-{rank}", "w+")
            ranks.append((subprocess.Popen([PYTHON, str(program), *map(str, args)], stdout=log, stderr=subprocess.STDOUT,
                                           env=environment(rank, world, STORE=f"{folder}/store", **more)), log))
        ends = {}
        try:
            if watch:
                watch([process for process, _ in ranks], lambda rank: pathlib.Path(f"{folder}/rank-{rank}").read_text())
            while len(ends) < world and time.monotonic() - start < limit:
                for rank, (process, _) in enumerate(ranks):
                    if rank not in ends and process.poll() is not None:
                        ends[rank] = time.monotonic() - start
                time.sleep(0.005)
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
            hung = " (killed: it hung)" if end.seconds == float("inf") else f" after {end.seconds:.1f} s"
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
    dist.init_process_group(backend, init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=timeout))
    return rank, world
