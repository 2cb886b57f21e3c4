#!/usr/bin/python3
"""The exception in a PyTorch program when a rank dies, stops, or makes another call, and how soon it is thrown.

    faults.py [--kills 20] [--short]

Every survivor must end with the right exception, which names the rank to blame, the call and the line of the
program, within 5 seconds of the kill, of the wrong call, or of the end of the program's timeout.
"""
import argparse
import datetime
import random
import re
import signal
import sys
import time

import ranks

SOON = 5.0      # seconds
TIMEOUT = 2.0   # set by the programs
LONG = 1800.0   # PyTorch's default


def rank_main(case, victim):
    import torch
    import torch.distributed as dist

    import ringsmith_torch
    rank, world = ranks.join(timeout=TIMEOUT if case.startswith("timeout") else LONG)

    def now():
        """Marks the time from which the rank is expected to fail."""
        print(f"AT {time.monotonic()}", flush=True)

    def ddp():
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200), bucket_cap_mb=0.01)
        while True:
            yield net(torch.randn(4, 200)).sum().backward()  # the line of a training step

    def forever():
        x = torch.ones(100_000)
        while True:
            yield dist.all_reduce(x)  # the line of an all_reduce

    def messages():
        x = torch.ones(1000)
        while True:
            if rank == 0:
                for peer in range(1, world):
                    yield dist.recv(x, peer)
            else:
                yield dist.send(x, 0)

    def any_source():
        x = torch.ones(10)
        for _ in range(4):
            yield dist.recv(x) if rank else [dist.send(x, peer) for peer in range(1, world)]
        yield dist.recv(x) if rank else time.sleep(60)  # no more messages arrive

    try:
        if case.startswith("kill"):
            where = {"ddp": ddp, "all_reduce": forever, "messages": messages, "any_source": any_source}
            for n, _ in enumerate(where[case.split("-")[1]]()):
                if n == 3:
                    now()
        elif case == "mismatch-ddp" or case == "timeout-ddp":
            for n, _ in enumerate(ddp()):
                if n == 3:
                    now()
                    if case == "timeout-ddp" and rank == victim:
                        time.sleep(TIMEOUT + 2 * SOON)
                    if case == "mismatch-ddp" and rank == victim:
                        dist.all_reduce(torch.ones(3))
        elif case.startswith("later"):  # the group's own timeout is LONG
            dist.barrier()
            now()
            if rank == victim:
                time.sleep(TIMEOUT + 2 * SOON)
                return
            for wrong in (0, -1):
                try:
                    ringsmith_torch.set_timeout(datetime.timedelta(seconds=wrong))
                    sys.exit(f"a timeout of {wrong} s was accepted")
                except ringsmith_torch.UsageError:
                    pass
            soon = datetime.timedelta(seconds=TIMEOUT)
            if case == "later-collective":
                ringsmith_torch.set_timeout(soon)
                dist.all_reduce(torch.ones(10))
            elif case == "later-pending":
                work = dist.all_reduce(torch.ones(10), async_op=True)
                time.sleep(0.3)
                ringsmith_torch.set_timeout(soon)
                work.wait()
            elif case == "later-message":
                ringsmith_torch.set_timeout(soon)
                dist.recv(torch.ones(10), victim)
        else:
            dist.barrier()
            now()
            if case.startswith("timeout") and rank == victim:
                time.sleep(TIMEOUT + 2 * SOON)
            if case == "mismatch-shape":
                dist.all_reduce(torch.ones(10 + (rank == victim)))
            elif case == "mismatch-type":
                dist.all_reduce(torch.ones(10, dtype=torch.float64 if rank == victim else torch.float32))
            elif case == "mismatch-operation":
                dist.all_reduce(torch.ones(10), dist.ReduceOp.MAX if rank == victim else dist.ReduceOp.SUM)
            elif case == "mismatch-call" and rank == victim:
                dist.broadcast(torch.ones(10), 0)
            elif case == "mismatch-root":
                dist.broadcast(torch.ones(10), 1 if rank == victim else 0)
            elif case == "mismatch-message" and rank == victim:
                dist.recv(torch.ones(11), (victim + 1) % world)
            elif case == "mismatch-message" and rank == (victim + 1) % world:
                dist.send(torch.ones(10), victim)
            elif case == "timeout-any-message" and rank != victim:
                dist.recv(torch.ones(10))
            elif case == "timeout-monitored" and rank != victim:
                ringsmith_torch.monitored_barrier()
            elif case == "timeout-message" and rank != victim:
                dist.recv(torch.ones(10), victim)
            elif case == "abort" and rank == victim:
                time.sleep(0.5)
                ringsmith_torch.abort()
                dist.barrier()
            elif "message" not in case and case != "timeout-monitored":
                dist.all_reduce(torch.ones(10))
    except ringsmith_torch.Error as error:
        print(f"CAUGHT {time.monotonic()} {type(error).__name__}: {error}", flush=True)
        # Acts like a program that writes its last messages. The other ranks must not depend on its end.
        time.sleep(1)
        sys.exit(5)


def last(pattern, text):
    found = re.findall(pattern, text, re.M)
    return found[-1] if found else None


def check(case, done, victim, kind, words, since, excused=()):
    """Checks that every rank except the excused ones has reported this kind of error soon, with
    these words. Returns the slowest time."""
    slowest = 0.0
    for rank, end in enumerate(done):
        if rank in excused:
            continue
        what = f"{case}, the culprit is rank {victim} of {len(done)}: rank {rank}"
        found = last(r"^CAUGHT ([\d.]+) (\w+): (.*)", end.text)
        if end.status != 5 or not found:
            sys.exit(f"{what} {'hung' if end.seconds == float('inf') else f'ended with {end.status}'}:\n{end.text}")
        seconds = float(found[0]) - since
        slowest = max(slowest, seconds)
        if seconds > SOON:
            sys.exit(f"{what} was told after {seconds:.1f} s: {found[2]}")
        if found[1] != kind:
            sys.exit(f"{what}: expected {kind}, got {found[1]}: {found[2]}")
        for word in words:
            if word not in found[2]:
                sys.exit(f"{what}: '{word}' is not in: {found[2]}")
    return slowest


def kill(rng, where, how):
    """Kills one rank at a random moment of a run; returns how long the others took to report it."""
    world = rng.choice((2, 3, 4))
    # With messages the victim is rank 0, because if another rank died, rank 0 would fail first, and the ranks that
    # send to it would blame it.
    # The same holds for any source. There, the others fail only when no rank is left that could send.
    world = 2 if where == "any_source" else world
    victim = 0 if where in ("messages", "any_source") else rng.randrange(world)
    at = []

    def watch(processes, said):
        limit = time.monotonic() + 60
        while not all("AT " in said(rank) for rank in range(world)) and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.3))
        at.append(time.monotonic())
        processes[victim].send_signal(how)

    done = ranks.run(world, __file__, "--rank", f"kill-{where}", "--victim", victim, limit=120, watch=watch)
    words = [f"rank {victim} ", {"ddp": "all_reduce(sum, f32", "all_reduce": "all_reduce(sum, f32, 100000)",
                                 "messages": "send to rank 0 at faults.py:",
                                 "any_source": "recv from rank 0 at faults.py:"}[where], "faults.py:"]
    return check(f"{how.name} in {where}", done, victim, "PeerLost", words, at[0], [victim])


# The error that each case causes on all ranks, and words of its message. Excused ranks may end in another way.
MISTAKES = {
    "mismatch-shape": ("MismatchError", ["all_reduce(sum, f32, 10)", "all_reduce(sum, f32, 11)", "rank {v} ", "faults.py:"]),
    "mismatch-type": ("MismatchError", ["all_reduce(sum, f32, 10)", "all_reduce(sum, f64, 10)", "rank {v} ", "faults.py:"]),
    "mismatch-operation": ("MismatchError", ["all_reduce(sum, f32, 10)", "all_reduce(max, f32, 10)", "rank {v} "]),
    "mismatch-call": ("MismatchError", ["all_reduce(sum, f32, 10)", "broadcast(f32, 10, root 0)", "rank {v} "]),
    "mismatch-root": ("MismatchError", ["broadcast(f32, 10, root 0)", "broadcast(f32, 10, root 1)", "rank {v} "]),
    "mismatch-ddp": ("MismatchError", ["all_reduce(sum, f32, 3)", "rank {v} ", "faults.py:"]),
    "mismatch-message": ("MismatchError", ["has room for 44 bytes of Float, but the sender sent 40 bytes of Float"]),
    "timeout-absent": ("TimeoutError", ["waited 2000 ms for rank {v}", "all_reduce(sum, f32, 10)", "faults.py:"]),
    "timeout-ddp": ("TimeoutError", ["waited 2000 ms for rank {v}", "all_reduce(sum, f32, "]),
    "later-collective": ("TimeoutError", ["waited 2000 ms for rank {v}", "all_reduce(sum, f32, 10)", "faults.py:"]),
    "later-pending": ("TimeoutError", ["waited 2000 ms for rank {v}", "all_reduce(sum, f32, 10)", "faults.py:"]),
    "later-message": ("TimeoutError", ["recv from rank {v} at faults.py:", "waited 2000 ms"]),
    "timeout-message": ("TimeoutError", ["recv from rank {v} at faults.py:", "waited 2000 ms"]),
    "timeout-monitored": ("TimeoutError", ["waited 2000 ms", "for rank {v}, for monitored_barrier() at faults.py:"]),
    "timeout-any-message": ("TimeoutError", ["recv() of tag 0 from any source at faults.py:", "no rank sent"]),
    "abort": ("Aborted", ["rank {v} called abort() at faults.py:"]),
}


def mistake(rng, case):
    world = rng.choice((2, 3, 4))
    victim = rng.randrange(1, world) if case == "mismatch-root" else rng.randrange(world)
    done = ranks.run(world, __file__, "--rank", case, "--victim", victim, limit=120)
    starts = [float(last(r"^AT ([\d.]+)", end.text) or sys.exit(f"{case}: a rank never began:\n{end.text}")) for end in done]
    kind, words = MISTAKES[case]
    # The culprit of a timeout arrives too late, and its error is that the group is broken. A mismatch of messages must
    # only be reported by the receiver, which is the victim.
    timed = case.startswith(("timeout", "later"))
    excused = [victim] if timed else []
    if case == "mismatch-message":
        excused = [rank for rank in range(world) if rank != victim]
    since = max(starts) + (TIMEOUT if timed else 0.5 if case == "abort" else 0.0)
    return check(case, done, victim, kind, [word.format(v=victim) for word in words], since, excused)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--short", action="store_true", help="a kill, a mismatch and a timeout")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[*MISTAKES, "kills"])
    parser.add_argument("--rank", help="(internal) be a rank, in this case")
    parser.add_argument("--victim", type=int, help="(internal)")
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.rank, args.victim)
    ranks.leave_if_impossible()
    rng = random.Random(args.seed)
    cases = [args.only] if args.only else ["mismatch-shape", "timeout-absent"] if args.short else list(MISTAKES)
    for case in cases:
        if case != "kills":
            print(f"{case}: all ranks told, after at most {mistake(rng, case):.2f} s", flush=True)
    if args.only in (None, "kills"):
        kills = 1 if args.short else args.kills
        slowest = 0.0
        for n in range(kills):
            where = ("ddp", "all_reduce", "messages", "any_source")[n % 4]
            how = signal.SIGKILL if n % 3 else signal.SIGSEGV
            seconds = kill(rng, where, how)
            print(f"kill {n + 1}: {how.name} in {where}: survivors told after {seconds:.2f} s", flush=True)
            slowest = max(slowest, seconds)
        print(f"{kills} kills at random moments: all survivors told who died, after at most {slowest:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
