#!/usr/bin/env python3
"""startup.py BUILD_DIR: measures how long a job of 2 to 64 ranks on this host takes from its command to its end.

    launcher   ringrun with a program that does nothing: processes, prefixes, exit
    shm, tcp   the same with one all-reduce of 4 bytes: rendezvous, connections, the sum, shutdown
    sockets    the most that one rank of the tcp job had open: one to the store, and one to every
               other rank, which carries failure reports, and whose closing shows that the rank is
               gone

Alternating runs, medians of rounds. With more ranks than cores this also measures the processor.
"""
import argparse
import os
import statistics
import subprocess
import sys
import threading
import time


def sockets_of(pid):
    try:
        folder = f"/proc/{pid}/fd"
        return sum(os.readlink(os.path.join(folder, fd)).startswith("socket:") for fd in os.listdir(folder))
    except OSError:  # the process has just ended
        return 0


def most_sockets(program, over):
    """Watches all processes of that program until `over`; returns the largest number of sockets
    of one process."""
    most = 0
    while not over.wait(0.01):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/exe") == program:
                    most = max(most, sockets_of(pid))
            except OSError:
                pass
    return most


def seconds(command):
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"startup.py: exit code {done.returncode} of: {' '.join(command)}\n{done.stdout[-2000:]}")
    return time.monotonic() - start


def count_sockets(command, program):
    over, found = threading.Event(), []
    watcher = threading.Thread(target=lambda: found.append(most_sockets(program, over)))
    watcher.start()
    try:
        seconds(command)
    finally:
        over.set()
        watcher.join()
    return found[0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", help="build folder with bin/ringrun and bin/all_reduce_perf")
    p.add_argument("--worlds", default="2,4,8,16,32,64", help="numbers of ranks")
    p.add_argument("--rounds", type=int, default=5)
    options = p.parse_args()
    ringrun, perf = (os.path.realpath(os.path.join(options.dir, "bin", name)) for name in ("ringrun", "all_reduce_perf"))
    if not os.path.exists(ringrun):
        sys.exit(f"startup.py: no programs in '{options.dir}/bin': run make build first")
    print(f"# seconds from command to end, median of {options.rounds} rounds, {os.cpu_count()} cores")
    print(f"# {'ranks':>6}{'launcher':>10}{'shm':>8}{'tcp':>8}{'sockets':>9}")
    for world in map(int, options.worlds.split(",")):
        start = [ringrun, "--standalone", "--nproc-per-node", str(world), "--"]
        one = [perf, "-b", "4", "-e", "4", "-w", "0", "-n", "1", "--timeout", "60", "--transport"]
        jobs = {"launcher": [*start, "/bin/true"], "shm": [*start, *one, "shm"], "tcp": [*start, *one, "tcp"]}
        rounds = [{name: seconds(job) for name, job in jobs.items()} for _ in range(options.rounds)]
        row = "".join(f"{statistics.median(r[name] for r in rounds):>{8 + 2 * (name == 'launcher')}.2f}" for name in jobs)
        print(f"{world:>8}{row}{count_sockets([*jobs['tcp'], '--min-time', '300'], perf):>9}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
