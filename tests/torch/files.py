#!/usr/bin/python3
"""Runs PyTorch's own test files with this backend in gloo's place.

    files.py --source FOLDER [--only REGEX] [--cases REGEX] [--backend ringsmith|gloo] [--list FILE [--resume]]
             [--table FILE...]

FOLDER is PyTorch's source, of the version that is installed, for instance from Debian (with a deb-src line in apt's
sources):

    apt-get source --download-only pytorch && mkdir pytorch && tar -xf pytorch_*.orig.tar.xz -C pytorch --strip-components 1

The test files ask for gloo by name, or use its class. Here the class ProcessGroupGloo of torch.distributed creates a
group of this backend instead, under gloo's name. Each case runs in a process, whose ranks are forked.

A case is passed, failed, or not applicable: it needs CUDA or a package that is not here, or never creates a group of
gloo's. A failed case is run over gloo itself, too. It is expected to fail if it fails there, or if it passes an error's
type but compares gloo's words, or if EXPECTED has a reason; otherwise the script fails.
--list writes a line of JSON per case, from which --table makes a table with a row per file and version. All files take
hours: with --resume, a run that was interrupted continues after the cases that the list has.
"""
import argparse
import collections
import faulthandler
import importlib.util
import json
import mmap
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

import ranks

LIMIT = 150  # seconds per case

# Below test/distributed. A version of PyTorch need not have all of them.
FILES = """
test_c10d_common.py test_c10d_gloo.py test_c10d_spawn_gloo.py test_c10d_object_collectives.py test_collective_utils.py
test_backends.py test_device_mesh.py test_functional_api.py test_pg_wrapper.py test_c10d_logger.py test_store.py
test_inductor_collectives.py algorithms/test_join.py algorithms/quantization/test_quantization.py
algorithms/ddp_comm_hooks/test_ddp_hooks.py optim/test_zero_redundancy_optimizer.py optim/test_named_optimizer.py
_composable/test_*.py _composable/fsdp/test_*.py _composable/test_composability/test_*.py fsdp/test_*.py
_shard/test_*.py _shard/*/test_*.py _shard/*/*/test_*.py _tensor/test_*.py _tensor/*/test_*.py tensor/test_*.py
tensor/parallel/test_*.py pipelining/test_s*.py checkpoint/test_*.py checkpoint/*/test_*.py
""".split()

# Files that are written for GPUs and NCCL, but need neither: (file, regular expression, text in its place).
ON_CPUS = [
    (r"test_functional_api.py", 'DEVICE = "cuda"', 'DEVICE = "cpu"'),
    (r"/test_quantization.py", r'os.environ\["BACKEND"\]', '"gloo"'),
    (r"/test_quantization.py", r'os.environ\["WORLD_SIZE"\]', "2"),
    (r"/checkpoint/", r"@skip_if_lt_x_gpu\(\d\)", ""),
    (r"/pipelining/", r"from torch.testing._internal.common_cuda import TEST_MULTIGPU", "TEST_MULTIGPU = True"),
    (r"/pipelining/", r"@requires_nccl\(\)", ""),
    (r"/pipelining/", 'return "nccl"', 'return "gloo"'),
    (r"/pipelining/", r"dev_id = cls.rank % torch.cuda.device_count\(\)", ""),
    (r"/pipelining/", r'torch.device\(f"cuda:{dev_id}"\)', 'torch.device("cpu")'),
]

# Cases that pass over gloo and fail here: regular expressions for FILE CASE and for the exception, and the reason.
EXPECTED = [
    (r"^test_c10d_gloo.py (CommTest.test_broadcast_coalesced_gloo_cpu|DistributedDataParallelTest.test_gloo_backend_)",
     "has no attribute 'create_device'", "the case calls `create_device()` of gloo's own object"),
    (r"^test_c10d_gloo.py GlooProcessGroupWithDispatchedCollectivesTests.test_all_to_all_single$",
     "ValueError not raised", "the case wants an error for a strided tensor, which works here"),
    (r"^test_c10d_gloo.py ProcessGroupGlooTest.test_allreduce_coalesced_checks$",
     "RuntimeError not raised", "the case wants an error for an empty list, which is accepted here"),
    (r"^test_c10d_gloo.py ProcessGroupGlooTest.test_set_gloo_pg_timeout$",
     "has no attribute 'options'", "PyTorch before 2.14 sets timeouts of gloo and NCCL only: `ringsmith_torch.set_timeout()`"),
]
BOTH = "fails over gloo, too"
# The message of a case that passes several tensors per process to a group's own method.
SEVERAL = "one tensor for each process is needed, got"
# The message of a case that gets an exception of the right type, but with other words than gloo's.
WORDS = re.compile(r'AssertionError: ".*" does not match "', re.S)


def stub_of_expecttest():
    """Debian does not have this package. Its TestCase compares a text with the program's own, which the caller updates."""
    class TestCase(unittest.TestCase):
        longMessage = True

        def assertExpectedInline(self, actual, expect, skip=0):
            self.assertEqual(actual.strip(), expect.strip())
    return types.SimpleNamespace(TestCase=TestCase, ACCEPT=False)


def import_under_python_3_11():
    """PyTorch 1.13's dataclasses have defaults that Python 3.11 refuses, because they have no hash."""
    import dataclasses
    dataclass = dataclasses.dataclass

    def with_hash(cls=None, **options):
        def make(of):
            return dataclass(of, **{**options, "unsafe_hash": "__hash__" not in vars(of)})
        return make if cls is None else make(cls)
    dataclasses.dataclass = with_hash
    try:
        import torch.distributed._shard.checkpoint
        import torch.distributed.fsdp  # noqa: F401
    finally:
        dataclasses.dataclass = dataclass


def put_in_place(made):
    """Makes torch.distributed's gloo this backend. made counts the groups, in all processes that are forked later."""
    import dataclasses
    import datetime

    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    import ringsmith_torch
    real = c10d.ProcessGroupGloo

    class OfGloo(type):
        def __instancecheck__(cls, thing):
            return isinstance(thing, real) or type(thing) is real.__mro__[1]

        def __subclasscheck__(cls, other):
            return issubclass(other, real)

        def __getattr__(cls, name):  # options, devices
            return getattr(real, name)

    class ProcessGroupGloo(metaclass=OfGloo):
        def __new__(cls, store, rank, size, options=None, timeout=None):
            timeout = getattr(options, "_timeout", options) or timeout or datetime.timedelta(minutes=30)
            made[0] += 1
            return ringsmith_torch._C.make(store, rank, size, timeout, "", dataclasses.asdict(ringsmith_torch.Options()))

    # PyTorch's wrapper, which compares the ranks' calls (DETAIL), sends its own messages over gloo.
    make_wrapper = c10d._create_process_group_wrapper

    def with_helper_of_gloo(*args, **kwargs):
        c10d.ProcessGroupGloo = real
        try:
            return make_wrapper(*args, **kwargs)
        finally:
            c10d.ProcessGroupGloo = ProcessGroupGloo

    for module in (dist, c10d, sys.modules["torch._C._distributed_c10d"]):
        module.ProcessGroupGloo = ProcessGroupGloo
        if hasattr(module, "_create_process_group_wrapper"):
            module._create_process_group_wrapper = with_helper_of_gloo
    # DDP's logger takes a group that is called gloo for an object of gloo's class, and reads its devices: SIGSEGV.
    dist.Logger.set_construction_data_and_log = lambda *_: None


def count_gloo(made):
    """Counts gloo's own groups."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    real = c10d.ProcessGroupGloo

    class OfGloo(type):
        def __instancecheck__(cls, thing):
            return isinstance(thing, real)

        def __getattr__(cls, name):
            return getattr(real, name)

    class ProcessGroupGloo(metaclass=OfGloo):
        def __new__(cls, *args, **kwargs):
            made[0] += 1
            return real(*args, **kwargs)

    for module in (dist, c10d, sys.modules["torch._C._distributed_c10d"]):
        module.ProcessGroupGloo = ProcessGroupGloo


def load(path, top, backend, made):
    """Imports PyTorch and then the test file; returns the module."""
    sys.modules["expecttest"] = stub_of_expecttest()
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TEMP_DIR="/tmp", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="100", OMP_NUM_THREADS="1",
                      TORCHINDUCTOR_COMPILE_THREADS="1")
    os.environ.setdefault("USE_LIBUV", "0")  # Debian's PyTorch 2 has no libuv
    sys.argv = [str(path)]  # PyTorch's modules parse the arguments
    import torch
    torch.set_num_threads(1)
    if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):
        import_under_python_3_11()
    (put_in_place if backend == "ringsmith" else count_gloo)(made)
    from torch.testing._internal import common_distributed

    def forked(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
    common_distributed.MultiProcessTestCase._spawn_processes = forked
    sys.path[:0] = [str(path.parent), str(top / "test/distributed"), str(top / "test")]
    text = path.read_text()
    for file, old, new in ON_CPUS:
        if re.search(file, str(path)):
            text = re.sub(old, new, text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def cases_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases_of(test)
        else:
            yield test


def last_line(text):
    """Returns the line of a traceback that names the exception."""
    lines = [line for line in text.splitlines() if re.match(r"(\w+\.)*\w*(Error|Exception|Lost|Aborted|Exit|Warning|Timeout)\b", line)]
    return (lines[-1] if lines else text.strip().splitlines()[-1] if text.strip() else "nothing was printed")[:300]


def innermost(text):
    """Returns the exception of the first rank that failed, from PyTorch's runner's text."""
    found = re.search(r"and exception:\n(.*?)(?:\nProcess \d+ exited|\n\nTo execute|\Z)", text, re.S)
    return found[1] if found else text


def in_child(test, pipe, log):
    os.setpgrp()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.enable(2)
    pipe.send(as_ranks(test) if hasattr(test, "run_rank") else verdict_of(test))
    pipe.close()
    sys.stdout.flush()
    os._exit(0)


def verdict_of(test):
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    if result.skipped:
        return "not applicable", str(result.skipped[0][1]), ""
    if result.errors or result.failures:
        text = innermost((result.errors + result.failures)[0][1])
        return "failed", last_line(text), text
    if result.unexpectedSuccesses:
        return "failed", "an unexpected success", ""
    return "passed", "", ""


def as_ranks(test, world=2):
    """Runs a case that torchrun, or the file's own main(), starts on each rank; returns the worst rank's verdict."""
    said, children = [], []
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(world):
            ours, theirs = context.Pipe()

            def one(rank=rank, pipe=theirs):
                kind = type(test)
                kind.rank, kind.world_size, kind.rdvz_file = rank, world, f"{folder}/store"
                pipe.send(verdict_of(test))
                pipe.close()
                os._exit(0)
            child = context.Process(target=one)
            child.start()
            theirs.close()
            children.append((child, ours))
        for child, ours in children:
            try:
                said.append(ours.recv())
            except EOFError:
                said.append(("failed", "a rank crashed", ""))
            child.join()
    return min(said, key=lambda verdict: ("failed", "not applicable", "passed").index(verdict[0]))


def stacks(group, log):
    """Makes all processes of the group write their Python stacks; returns the log's beginning."""
    os.killpg(group, signal.SIGABRT)
    time.sleep(2)
    return pathlib.Path(log).read_text(errors="replace")[:3000]


def run_case(test, made):
    """Returns (verdict, words, text)."""
    before = made[0]
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    log = f"/tmp/ringsmith-case-{os.getpid()}"
    child = context.Process(target=in_child, args=(test, theirs, log))
    child.start()
    theirs.close()
    said = ("failed", f"did not end within {LIMIT} s", "")
    try:
        left = LIMIT
        while left and not ours.poll(1):  # a pause of the whole test (Ctrl-Z) counts as one second
            left -= 1
        if left:
            try:
                said = ours.recv()
            except EOFError:
                said = ("failed", "its process crashed", pathlib.Path(log).read_text(errors="replace")[-3000:])
        else:
            said = (*said[:2], stacks(child.pid, log))
        if said[0] == "failed":  # a rank that crashed wrote its stack there
            said = (*said[:2], said[2] + "\n" + pathlib.Path(log).read_text(errors="replace")[-3000:])
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)  # with ranks that are left
        except ProcessLookupError:
            pass
    child.join()
    pathlib.Path(log).unlink(missing_ok=True)
    if said[0] == "passed" and made[0] == before:
        return "not applicable", "creates no group of gloo's", ""
    return said


def has_threads(test):
    from torch.testing._internal import common_distributed
    return isinstance(test, getattr(common_distributed, "MultiThreadedTestCase", ()))


def one_file(args):
    """Runs a file's cases and prints a line of JSON for each. Called in a separate process."""
    done = cases_in(args.list)[args.file] if args.resume else set()
    if "(all)" in done:
        return
    made = memoryview(mmap.mmap(-1, 8)).cast("q")
    top = pathlib.Path(args.source).resolve()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the module prints is not ours

    def say(case, verdict, words="", text=""):
        out.write(json.dumps({"case": case, "verdict": verdict, "words": words, "text": text}) + "\n")
        out.flush()
    try:
        module = load(top / "test/distributed" / args.file, top, args.backend, made)
    except SystemExit:
        return say("(all)", "not applicable", "the file needs what is not here: it exits when it is imported")
    except unittest.SkipTest as why:
        return say("(all)", "not applicable", str(why))
    except ImportError as error:
        return say("(all)", "not applicable", f"cannot be imported: {error}")
    for test in cases_of(unittest.TestLoader().loadTestsFromModule(module)):
        name = ".".join(test.id().split(".")[-2:])
        if name in done or not re.search(args.cases, name):
            continue
        if has_threads(test):
            say(name, "not applicable", "its ranks are threads, in a group of PyTorch's for such tests")
        else:
            say(name, *run_case(test, made))


def cases_in(path):
    """Returns the names of the cases in a list, by file."""
    cases = collections.defaultdict(set)
    if path and pathlib.Path(path).exists():
        for line in pathlib.Path(path).read_text().splitlines():
            row = json.loads(line)
            cases[row["file"]].add(row["case"])
    return cases


def run_file(source, file, backend, cases, more=()):
    """Yields {"case", "verdict", "words", "text"} for the cases of the file."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen([sys.executable, __file__, "--source", source, "--file", file, "--backend", backend,
                                  "--cases", cases, *more], stdout=subprocess.PIPE, stderr=errors, text=True,
                                 env={**os.environ, "PYTHONPATH": str(ranks.BUILD)})
        try:
            for line in child.stdout:
                yield json.loads(line)
        except BaseException:  # this script is being ended
            child.terminate()
            raise
        child.stdout.close()
        if child.wait():
            errors.seek(0)
            text = errors.read()
            yield {"case": "(all)", "verdict": "failed", "words": last_line(text), "text": text[-3000:]}


def judge(row, args):
    """Adds to a failed case why it was expected to fail: row["why"], empty if it was not."""
    row["why"] = ""
    if row["verdict"] != "failed" or args.backend != "ringsmith":
        return
    name = f"{row['file']} {row['case']}"
    row["why"] = next((why for case, words, why in EXPECTED if re.search(case, name) and re.search(words, row["words"])), "")
    if not row["why"] and WORDS.search(row["text"]):
        row["why"] = "the error has the expected type, but not gloo's words"
    if not row["why"] and SEVERAL in row["text"]:
        row["why"] = "several tensors per process in the group's own method; `torch.distributed` has no such call"
    if not row["why"]:
        theirs = list(run_file(args.source, row["file"], "gloo", f"^{re.escape(row['case'])}$"))
        failed = [their["words"] for their in theirs if their["verdict"] == "failed"]
        if failed:
            row["why"] = BOTH
            row["gloo"] = failed[0]


def table(lists):
    """Prints Markdown: a row per file with cases that are applicable, a column per list."""
    columns, versions, reasons = collections.defaultdict(dict), [], collections.defaultdict(lambda: [0] * len(lists))
    files, not_imported = [set() for _ in lists], [[] for _ in lists]
    for number, path in enumerate(lists):
        rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        versions.append(rows[0]["version"].split("+")[0])
        for row in rows:
            files[number].add(row["file"])
            if row["case"] == "(all)" and row["why"] == BOTH:
                not_imported[number].append(row["file"])
                continue
            counts = columns[row["file"]].setdefault(number, collections.Counter())
            counts[row["verdict"]] += 1
            if row["verdict"] == "failed":
                reasons[row["why"] or f"**unexpected**: {row['case']}: {row['words']}"][number] += 1
    print("| file | " + " | ".join(f"{v}: passed, failed, not applicable" for v in versions) + " |")
    print("|---|" + "---|" * len(versions))
    for file, of in sorted(columns.items()):
        if any(c["passed"] or c["failed"] for c in of.values()):
            print(f"| `{file}` | " + " | ".join(", ".join(str(of[n][v]) for v in ("passed", "failed", "not applicable"))
                                                if n in of else "" for n in range(len(lists))) + " |")
    totals = [collections.Counter() for _ in lists]
    for of in columns.values():
        for n, counts in of.items():
            totals[n].update(counts)
    print("| all | " + " | ".join(", ".join(str(t[v]) for v in ("passed", "failed", "not applicable")) for t in totals) + " |")
    print("\n| failed because | " + " | ".join(versions) + " |")
    print("|---|" + "---|" * len(versions))
    for why, counts in reasons.items():
        print(f"| {why} | " + " | ".join(map(str, counts)) + " |")
    for n, version in enumerate(versions):
        print(f"\n{version}: {len(files[n])} files with cases. {len(not_imported[n])} of them cannot be imported, "
              f"over gloo, either: {', '.join(f'`{file}`' for file in not_imported[n])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="the folder of PyTorch's source")
    parser.add_argument("--only", default="", help="a regular expression for files")
    parser.add_argument("--cases", default="", help="a regular expression for Class.case")
    parser.add_argument("--backend", default="ringsmith", choices=("ringsmith", "gloo"))
    parser.add_argument("--list", help="a file for the list, to which lines are appended")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that the list has")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="prints the table of lists")
    parser.add_argument("--file", help="(internal) run this file")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the processes of a case that runs
    if args.table:
        return table(args.table)
    if not args.source:
        parser.error("--source is missing")
    if args.resume and not args.list:
        parser.error("--resume needs --list")
    if args.file:
        return one_file(args)
    ranks.leave_if_impossible()
    version = subprocess.run([ranks.PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                             check=True).stdout.strip()
    tests = pathlib.Path(args.source) / "test/distributed"
    files = dict.fromkeys(str(path.relative_to(tests)) for pattern in FILES for path in sorted(tests.glob(pattern)))
    if not files:
        sys.exit(f"files.py: no test files in {tests}: --source must be the folder of PyTorch's source")
    resumed = ["--list", args.list, "--resume"] if args.resume else []
    counts, wrong = collections.Counter(), 0
    for file in files:
        if not re.search(args.only, file):
            continue
        begin, of = time.monotonic(), collections.Counter()
        for row in run_file(args.source, file, args.backend, args.cases, resumed):
            row.update(file=file, version=version)
            judge(row, args)
            of[row["verdict"]] += 1
            if row["verdict"] == "failed":
                wrong += args.backend == "ringsmith" and not row["why"]
                print(f"failed {file} {row['case']}: {row['why'] or 'UNEXPECTED'} ({row['words']})", flush=True)
                if not row["why"]:
                    print(row["text"], flush=True)
            if args.list:
                with open(args.list, "a") as out:
                    out.write(json.dumps(row) + "\n")
        counts += of
        print(f"{file}: {', '.join(f'{n} {v}' for v, n in sorted(of.items()))} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{args.backend}, PyTorch {version}: " + ", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
