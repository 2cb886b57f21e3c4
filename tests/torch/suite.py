#!/usr/bin/python3
"""Runs PyTorch's own tests of torch.distributed, which are part of its package, on this backend.

    suite.py [--world 3] [--backend ringsmith|gloo] [--only PATTERN] [--list FILE]

torch.testing._internal.distributed.distributed_test is PyTorch's test for its backends: collectives, groups,
DDP, ZeroRedundancyOptimizer, join. PyTorch's own runner runs every case in separate processes, forked from one that
has imported it. A case is passed, failed, or not applicable for the reason that PyTorch's decorators give (it needs a
GPU, or NCCL). A case that fails is run over gloo, too. If it passes there, it must be in EXPECTED, with its reason, or
the script fails; a case in EXPECTED that passes is a failure, too.
"""
import argparse
import faulthandler
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
import warnings

import ranks

LIMIT = 90  # seconds per case

# PyTorch's decorators restrict some cases to named backends. They are run nevertheless if this backend meets their
# requirements.
BY_NAME = re.compile(r"gloo|\bMPI\b", re.I)
ELSEWHERE = re.compile(r"CUDA|NCCL only|high priority")

# Cases that fail on this backend, and why.
NAMES = "the case makes its model only if the backend is called gloo, nccl or mpi"
WORDS = "it ends in time, in a TimeoutError, but the case wants gloo's words for it"
MONITORED = "torch.distributed.monitored_barrier() is for gloo, by name; barrier() here names who is missing"
CUSTOM = "PyTorch 2's log says custom for every backend that is not PyTorch's"
EXPECTED = {
    "test_ddp_logging_data_cpu": CUSTOM,
    "test_accumulate_gradients_no_sync": NAMES,
    "test_accumulate_gradients_no_sync_allreduce_hook": NAMES,
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": NAMES,
    "test_accumulate_gradients_no_sync_grad_is_view": NAMES,
    "test_barrier_timeout_full_group": WORDS,
    "test_barrier_timeout_global": WORDS,
    "test_barrier_timeout_group": WORDS,
    "test_monitored_barrier_failure_order": MONITORED,
    "test_monitored_barrier_gloo": MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": MONITORED,
    "test_monitored_barrier_gloo_subgroup": MONITORED,
    "test_monitored_barrier_wait_all_ranks": MONITORED,
}
if sys.version_info >= (3, 14):
    for case in ("test_gather_object", "test_gather_object_subgroup"):
        EXPECTED[case] = "this Python cannot pickle the case's local class, over gloo either"


def load(backend, world):
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500",
                      GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", TEMP_DIR=tempfile.mkdtemp(prefix="suite-"))
    sys.path.insert(0, str(ranks.BUILD))
    # Debian does not have this package. Its TestCase adds a method that no case here uses.
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False))
    sys.argv = sys.argv[:1]  # PyTorch's module parses the arguments
    import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # PyTorch 2.6 under Python 3.13: one for each hook
    import ringsmith_torch  # noqa: F401
    from torch.testing._internal import common_distributed
    cases = common_distributed.DistTestCases
    for feature in ("ddp", "subgroup", "plugin"):
        cases.backend_feature[feature].add("ringsmith")
    from torch.testing._internal.distributed import distributed_test

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    return Suite, distributed_test, common_distributed


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def one_rank(suite, rank, name, store, pipe, log):
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.enable(2)
    suite._run(rank, name, store, pipe)


def reason_of(text):
    """Returns the reason that PyTorch's runner gives for a skip."""
    found = re.search(r"skipping test \w+ for following reason: (.*)", text)
    return found[1] if found else "skipped"


def first_error(text):
    lines = [re.sub(r"^\[rank\d+\]:([A-Z]\d+ \S+ \d+ \S+\] *)?", "", line) for line in text.splitlines()]
    lines = [line for line in lines if re.match(r" ?(\w+\.)*\w*(Error|Exception|Lost|Aborted)\b", line)]
    return lines[0][:300] if lines else (text.strip().splitlines() or ["nothing was printed"])[-1][:300]


def run_case(suite, module, common, name, world):
    """Returns (verdict, words)."""
    method = getattr(suite, name)
    why = getattr(method, "__unittest_skip_why__", "")
    if why and (not BY_NAME.search(why) or ELSEWHERE.search(why)):
        return "not applicable", why
    common.initialize_temp_directories()
    module.Barrier.init()
    skips = {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes, ends = [], []
        for rank in range(world):
            ours, theirs = context.Pipe()
            process = context.Process(target=one_rank, args=(suite, rank, name, f"{folder}/store", theirs, f"{folder}/{rank}"))
            process.start()
            processes.append(process)
            ends.append(ours)
        until = time.monotonic() + LIMIT
        while any(p.exitcode is None for p in processes) and time.monotonic() < until:
            if any(p.exitcode == suite.TEST_ERROR_EXIT_CODE for p in processes):
                until = min(until, time.monotonic() + 10)  # the others will soon learn of it
            time.sleep(0.01)
        hung = [rank for rank, p in enumerate(processes) if p.exitcode is None]
        ranks.end_hung([processes[rank] for rank in hung],
                       lambda n, text: append(f"{folder}/{hung[n]}", text))
        for p in processes:
            p.join()
        texts = [pathlib.Path(f"{folder}/{rank}").read_text(errors="replace") for rank in range(world)]
    common.cleanup_temp_dir()
    codes = [p.exitcode for p in processes]
    for rank, code in enumerate(codes):
        if code in skips:
            return "not applicable", reason_of(texts[rank]) if skips[code].startswith("Test skipped at sub") else skips[code]
    if not any(codes):
        return "passed", ""
    worst = next((rank for rank, code in enumerate(codes) if code == suite.TEST_ERROR_EXIT_CODE), None)
    if worst is None and hung:
        return "failed", f"ranks {hung} hung; rank {hung[0]}:\n{texts[hung[0]][-6000:]}"
    worst = next(rank for rank, code in enumerate(codes) if code) if worst is None else worst
    return "failed", f"rank {worst} ended with {codes[worst]}: {first_error(texts[worst])}"


def fails_over_gloo(name, world):
    """Runs the case in another process, because PyTorch's module fixes the backend when it is imported."""
    done = subprocess.run([sys.executable, __file__, "--backend", "gloo", "--world", str(world), "--only", f"^{name}$"],
                          capture_output=True, text=True, check=False)
    return re.search(rf"^failed +{name}\b", done.stdout, re.M) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--backend", default="ringsmith")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--list", help="a file for the list, one case a line")
    args = parser.parse_args()
    ranks.leave_if_impossible()
    suite, module, common = load(args.backend, args.world)
    names = [n for n in unittest.TestLoader().getTestCaseNames(suite) if re.search(args.only, n)]
    verdicts, wrong, lines = {}, [], []
    for name in names:
        verdict, words = run_case(suite, module, common, name, args.world)
        verdicts.setdefault(verdict, []).append(name)
        expected = EXPECTED.get(name) if args.backend == "ringsmith" else None
        if verdict == "failed" and args.backend == "ringsmith" and not expected:
            expected = "fails over gloo, too" if fails_over_gloo(name, args.world) else None
        if verdict == "failed" and expected:
            words = f"{expected} ({words})"
        lines.append(f"{verdict:15} {name}{': ' + words if words else ''}")
        print(lines[-1], flush=True)
        if args.backend == "ringsmith" and verdict != "not applicable" and (verdict == "failed") != bool(expected):
            wrong.append(name)
    if args.list:
        pathlib.Path(args.list).write_text("\n".join(lines) + "\n")
    print(f"{args.backend}, {args.world} ranks: " + ", ".join(f"{len(v)} {k}" for k, v in sorted(verdicts.items())))
    for name in wrong:
        print(f"unexpected: {name}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
