#!/usr/bin/env python3
"""sweep.py BUILD_DIR [numbers] [lessons] [files] [streams] [signals]: gives every program extreme inputs.

    numbers   every option that takes a value, in the help of every program, at the ends of every type: the program ends
              in time, with one line that names the option and exit code 6, or behaves as its help
              says; no crash, no "internal error", no NaN with exit code 0
    lessons   the same values for every argument of the lessons' programs that use lessons/arguments.hpp
    files     before a program runs, a file or folder that it writes is replaced by a link, a FIFO, a device, a folder or
              socket: links are followed or refused by name, everything else is refused by name, in time; the replacement
              is unchanged afterwards
    streams   every program with its descriptors 0, 1, 2 closed, in all 8 combinations: no signal ends it, and nothing
              that it prints is in a file that it writes
    signals   every program with every signal ignored: it ends as it does without this, and ignores them until then

The programs are found in the sources, their options in their help, and their files by an undisturbed run, so additions
are tested automatically. A program needs a small command in commands(), or the sweep fails. Run it as root if possible:
other users cannot create device nodes. Exit status 1: there are faults, one line for each, with the command.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 20  # seconds per trial
MEMORY = 8 << 20  # KiB of address space per trial
LARGE = "2147483647"  # accepted by many options; a run that is still working after 3 s passes
VALUES = ["-1", "0", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616", "nan", "inf", "-inf",
          LARGE, "1e300", "1e-300", "", "0x10", "010", "1.5", " 3", "3 ", "+3", "1e400", "-0", "1,2", "\u0663"]
ENDLESS = {("--run_cycles", "0"), ("--run_cycles", "-0"),  # endless, as their help says
           ("--seconds", "010"), ("--maxbytes", "2147483648")}  # and runs that were asked to be long
faults = []


def fault(text):
    faults.append(text)
    print(f"FAULT {text}", flush=True)


class Trial:
    """A command that has run in a folder: code (negative: a signal; None: it did not end in time), out, err."""

    def __init__(self, words, folder, *, env=None, before="", limit=LIMIT):
        self.words = [str(w) for w in words]
        script = f"ulimit -c 0; ulimit -v {MEMORY}; {before or ':'}; exec \"$@\""
        process = subprocess.Popen(["bash", "-c", script, "sweep", *self.words], cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   env={**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": f"{folder}/cache",
                                        "VGPU_DEVICES": "2", "VGPU_MEMORY_MB": "64", **(env or {})})
        self.process = process
        try:
            out, err = process.communicate(timeout=limit)
            self.code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.code = None
        self.out, self.err = out.decode(errors="replace"), err.decode(errors="replace")

    def __str__(self):
        tail = (self.err.strip() or self.out.strip()).splitlines()[-1:]
        return f"{shlex.join(self.words)}: {'no end' if self.code is None else self.code}: {' '.join(tail)[:300]}"

    def died(self):
        """True if a signal ended it, or it reported an internal error, a failed assertion or a
        sanitizer's finding."""
        return (self.code is not None and (self.code < 0 or self.code > 128)) or \
            re.search(r"internal error|terminate called|Assertion|Sanitizer|what\(\)", self.err)


def programs():
    """Returns all programs. labs/apps/FOLDER/NAME.cpp with a main() is the program NAME;
    perf/main.cpp is each name in perf/programs.cpp."""
    apps = ROOT / "labs/apps"
    found = [p.stem for p in apps.rglob("*.cpp") if p.stem != "main" and "\nint main(" in p.read_text()]
    return sorted(found + re.findall(r'\{\.name = "(\w+)"', (apps / "perf/programs.cpp").read_text()))


def commands(binaries, inputs):
    """Returns a small command for each program: the words before its options, and those after
    them."""
    text, run, flights = inputs / "text", inputs / "run", inputs / "flights"
    small = ["--steps", "3", "--batch", "4", "--progress", "off", "--timeout", "5"]
    out = {"train_mlp": ["--draw", "100", "--hidden", "8", *small],
           "train_images": ["--draw", "40", "--model", "resnet18", "--width", "4", *small],
           "train_gpt": ["--data", text, "--layers", "1", "--dim", "16", "--heads", "2", "--context", "16", "--sample", "8",
                         "--validation-windows", "2", *small],
           "train_bench": ["gpt", "--layers", "1", "--dim", "16", "--heads", "2", "--context", "16", "--batch", "2",
                           "--steps", "2", "--warmup", "1", "--timeout", "5"],
           "dp_vs_ddp": ["--device", "cpu", "-n", "1,2", "--steps", "1", "--predict", "4", "--svg", "a.svg", "--html", "a.html"],
           "async_vs_ddp": ["--steps", "3", "--draw", "100", "--hidden", "8", "--batch", "4", "--slow-ms", "1", "--timeout", "5"],
           "scaling": ["--to", "64", "--svg", "a.svg"],
           "schedule_player": ["--check", "--simulate", "--svg", "a.svg"],
           "kernel_bench": ["softmax", "--seconds", "0.01"],
           "doctor": ["--timeout", "5"],
           "train_report": [run],
           "flight_reader": [flights],
           "ringrun": ["--nproc-per-node", "2", "--join-timeout", "2", "--grace", "2"]}
    for name in programs():
        if name.endswith("_perf"):
            out[name] = ["-b", "64", "-e", "64", "-n", "2", "-w", "0", "-T", "5", "-J", "a.json"]
        if name not in out:
            fault(f"{name}: commands() in sweep.py has no small command for it")
    out = {name: ([binaries / name, *words], []) for name, words in out.items()}
    out["ringrun"] = (out["ringrun"][0], ["--", "true"])
    out["sendrecv_perf"] = (launched(binaries, 2) + out["sendrecv_perf"][0], [])  # which needs two ranks
    return out


def launched(binaries, ranks):
    return [binaries / "ringrun", "--standalone", "--no-prefix", "--nproc-per-node", ranks, "--"]


def make_inputs(binaries, folder):
    """Creates the programs' inputs: a text, a run, and the flight logs of a job that failed."""
    (folder / "text").write_text("".join(f"ring {i * i} steps\n" for i in range(400)))
    (folder / "flights").mkdir()
    Trial([binaries / "train_mlp", "--draw", "100", "--hidden", "8", "--steps", "3", "--progress", "off", "--run-dir", "run"], folder)
    stops = "[ $RANK = 1 ] && { sleep 1; kill -STOP $$; } & exec \"$@\""
    Trial([*launched(binaries, 2), "sh", "-c", stops, "sh", binaries / "all_reduce_perf", "-b", "8", "-n", "1000", "-N", "0",
           "-T", "2", "--flight-dir", "flights"], folder)
    for made in ("run/run.json", "flights"):
        if not (folder / made).exists() or not list((folder / "flights").iterdir()):
            sys.exit(f"sweep.py: could not make {made}: is everything built?")


def at_once(work, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


# --- numbers ----------------------------------------------------------------------------------------------------------

def options(program):
    """Returns (name, type) of each option that takes a value, according to the help."""
    text = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"^  (?:-\w,)?(--[a-z][\w-]+) (INT|UINT|FLOAT|TEXT)\b", text, re.M)


def judge_number(trial, program, option, kind, value):
    if trial.died():
        return fault(f"died: {trial}")
    if trial.code is None:
        if value != LARGE and (option, value) not in ENDLESS:
            fault(f"no end in {LIMIT} s: {trial}")
        return None
    lines = [line for line in trial.err.splitlines() if not line.startswith(("ringrun: ", "  ")) or program == "ringrun"]
    lines = list(dict.fromkeys(lines))  # two ranks may refuse their host's interface in the same words
    errors = [line for line in lines if re.match(rf"{program}: (error|stopped): ", line)]
    if trial.code == 0:
        if kind != "TEXT" and re.search(r"(?<![\w./'-])-?(nan|inf)(?![\w'])", trial.out):
            fault(f"exit code 0 with NaN or infinity: {trial}: {re.search('.*(nan|inf).*', trial.out)[0].strip()}")
        return None
    if program == "flight_reader" and trial.code == 1 and not lines:
        return None  # it reads the logs of a job that failed
    ranks = 2 if trial.words[0].endswith("ringrun") and program != "ringrun" else 1  # each may print a different reason
    if not 1 <= len(errors) <= ranks or (program != "ringrun" and len(lines) != len(errors)):
        return fault(f"{len(errors)} lines of error among {len(lines)}: {trial}")
    if trial.code == 6 and option not in errors[0] and value not in errors[0]:
        return fault(f"the option is not named: {trial}")
    return (trial.code, option, value, errors[0]) if trial.code != 6 else None


def numbers(binaries, inputs, folder, only):
    work = []
    for name, (words, rest) in commands(binaries, inputs).items():
        variants = [("", words)]
        if name == "train_mlp":
            hook = ["--comm-hook", "powersgd", "--powersgd-start", "2", "--transport", "tcp"]
            variants.append((" on 2 ranks", launched(binaries, 2) + words + hook))
        work += [(name, option, kind, value, line, rest) for _, line in variants for option, kind in options(binaries / name)
                 for value in VALUES if only in name]

    def one(item):
        name, option, kind, value, words, rest = item
        with tempfile.TemporaryDirectory(dir=folder) as here:
            trial = Trial([*words, f"{option}={value}", *rest], here, limit=3 if value == LARGE else LIMIT)
            return judge_number(trial, name, option, kind, value)

    others = [r for r in at_once(one, work) if r]
    for code, option, value, line in others:
        print(f"  exit code {code}: {option}={value}: {line}")
    print(f"numbers: {len(work)} trials of {len({(w[0], w[1]) for w in work})} options in {len({w[0] for w in work})} programs")


# --- lessons ----------------------------------------------------------------------------------------------------------

def lesson_commands(binaries):
    """Returns (words, index of a number in them) for each number in the usage of each lesson's program."""
    found = []
    for source in sorted((ROOT / "lessons").glob("[0-9][0-9]-*/*.cpp")):
        usage = re.search(r'lessons::Arguments given\(\s*argc, argv,\s*"([^"]*)"', source.read_text())
        if not usage:
            continue
        names = re.sub(r"[][]|\.\.\.", "", usage[1]).split()[1:]
        words = ["run" if name == "FOLDER" else "1" if name.isupper() else name.split("|")[0] for name in names]
        program = binaries / f"lesson{source.parent.name[:2]}_{source.stem}"
        found += [([program, *words], i + 1) for i, name in enumerate(names) if name.isupper() and name != "FOLDER"]
    return found


def lessons(binaries, inputs, folder, only):
    commands = lesson_commands(binaries)
    work = [(words, i, value) for words, i in commands for value in VALUES if only in words[0].name]

    def one(item):
        words, i, value = item
        with tempfile.TemporaryDirectory(dir=folder) as here:
            trial = Trial([*words[:i], value, *words[i + 1:]], here)
        if trial.died() or trial.code is None:
            return fault(f"died or did not end: {trial}")
        if trial.code == 0 and re.search(r"\b(nan|inf)\b", trial.out):
            return fault(f"exit code 0 with NaN or infinity: {trial}")
        named = any(f"'{text}'" in trial.err for text in trial.words[1:])  # START may be beyond an end that is now smaller
        if trial.code != 0 and (trial.code != 6 or len(trial.err.splitlines()) != 1 or not named):
            return fault(f"not exit code 6 with one line that names an argument: {trial}")
        return None

    at_once(one, work)
    print(f"lessons: {len(work)} trials of {len(commands)} arguments")


# --- files ------------------------------------------------------------------------------------------------------------

KINDS = ["a link to a file", "a link to nothing", "a link to a folder", "a folder", "a FIFO", "a link to a FIFO", "a socket",
         "/dev/full", "/dev/null", "a link to /dev/full"]
LINKS = ("a link to a file", "a link to nothing")


def plant(path, target, kind, old):
    """Puts an object of this kind at the path. target: the path elsewhere that a link points to; old: the bytes that were at
    the path. Returns the states of both."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a link to a file":
        target.write_bytes(old if old is not None else b"kept\n")
        path.symlink_to(target)
    elif kind == "a link to nothing":
        path.symlink_to(target)
    elif kind == "a link to a folder":
        target.mkdir()
        (target / "inside").write_text("kept\n")
        path.symlink_to(target)
    elif kind == "a folder":
        path.mkdir()
        (path / "inside").write_text("kept\n")
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a link to a FIFO":
        os.mkfifo(target)
        path.symlink_to(target)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(path.parent, os.O_RDONLY)  # a short name for a long path
            listener.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
    elif kind.startswith("/dev/"):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7 if kind == "/dev/full" else 3))
    else:
        path.symlink_to("/dev/full")
    return [state(path), state(target)]


def state(path):
    """Returns path, type, identity (a link's target, or the inode number unless it is a regular
    file) and contents of a path."""
    try:
        info = path.lstat()
    except OSError:
        return (path, None, None, None)
    inside = None
    if stat.S_ISREG(info.st_mode):
        inside = path.read_bytes()
    if stat.S_ISDIR(info.st_mode):
        inside = sorted(p.name for p in path.iterdir())
    number = os.readlink(path) if stat.S_ISLNK(info.st_mode) else info.st_ino if not stat.S_ISREG(info.st_mode) else 0
    return (path, stat.S_IFMT(info.st_mode), number, inside)


class Scenario:
    """Commands that write. prepare: run before something is planted; skip: kinds that take too long to follow."""

    def __init__(self, name, command, prepare=None, env=None, fails=False, midway="", skip=(), only=()):
        self.name, self.command, self.prepare, self.env = name, command, prepare, env
        self.fails, self.midway, self.skip, self.only = fails, midway, skip, only
        self.inputs = set()


def scenarios(binaries, inputs):
    mlp = [binaries / "train_mlp", "--draw", "100", "--hidden", "8", "--batch", "4", "--progress", "off", "--timeout", "5",
           "--steps", "8", "--save-every", "2", "--keep", "3", "--report", "--run-dir", "run"]
    perf = [binaries / "all_reduce_perf", "-b", "8", "-n", "1", "-w", "0"]
    ringrun = binaries / "ringrun"
    nodes = "\"$1\" --nnodes 2 --node-rank 1 {0} -- true & \"$1\" --nnodes 2 --node-rank 0 {0} -- true; code=$?; wait $!; exit $code"

    def two_nodes(options):
        return ["sh", "-c", nodes.format(options + " --join-timeout 5"), "sh", ringrun]

    def interrupted(folder):
        Trial(mlp, folder)
        for name in ("run/model.safetensors", "run/run.json", "run/trace.json", "run/report.html"):
            (folder / name).unlink()
        for step in ("6", "8"):
            shutil.rmtree(folder / f"run/checkpoints/step-00000{step}")

    by_hand = "for r in 1 0; do RANK=$r \"$@\" & done; wait $!"
    stops = "[ $RANK = 1 ] && { sleep 1; kill -STOP $$; } & exec \"$@\""
    return [
        Scenario("a training", mlp, only=["run", "run/checkpoints", "run/checkpoints/lock", "run/model.safetensors"]),
        Scenario("a training that is resumed", [*mlp, "--resume", "auto"], prepare=interrupted),
        Scenario("a training that has begun", [*mlp[:-2], "--steps", "3000", "--save-every", "1000", "--run-dir", "run"],
                 midway="files go to"),
        Scenario("a training per step", [ringrun, "--standalone", "--per-step", "--nproc-per-node", "2", "--", *mlp[:11],
                                         "--per-step", "--steps", "8", "--run-dir", "run"],
                 only=["run", "run/steps-rank-1.jsonl"], skip=("a folder", "a link to a folder")),  # a folder is shared
        Scenario("results", [*perf, "-J", "a.json"]),
        Scenario("constants", [*launched(binaries, 2), *perf, "--calibrate"], skip=LINKS,
                 only=["cache/ringsmith/calibration.json"]),
        Scenario("constants, read", [*launched(binaries, 2), *perf], only=["cache/ringsmith/calibration.json"]),
        Scenario("a picture and a page", [binaries / "dp_vs_ddp", "--device", "cpu", "-n", "1,2", "--steps", "1", "--predict", "4",
                                          "--svg", "a.svg", "--html", "a.html"]),
        Scenario("a picture of a cluster", [binaries / "scaling", "--to", "64", "--svg", "a.svg"]),
        Scenario("a picture of a schedule", [binaries / "schedule_player", "--svg", "a.svg"]),
        Scenario("a report", [binaries / "train_report", "run"], prepare=lambda f: shutil.copytree(inputs / "run", f / "run")),
        Scenario("a secret", [ringrun, "--make-secret", "secret"]),
        Scenario("the user's secret", two_nodes("--port-file port")),
        Scenario("a secret and a port", two_nodes("--port-file port --secret-file secret"),
                 prepare=lambda f: Trial([ringrun, "--make-secret", "secret"], f)),
        Scenario("logs of ranks", [ringrun, "--nproc-per-node", "2", "--log-dir", "logs", "--", "echo", "x"]),
        Scenario("flight logs", [*launched(binaries, 2), "sh", "-c", stops, "sh", *perf, "-N", "0", "-T", "3", "--flight-dir", "f"],
                 prepare=lambda f: (f / "f").mkdir(), fails=True),
        Scenario("flight logs, read", [binaries / "flight_reader", "f"], fails=True,
                 prepare=lambda f: shutil.copytree(inputs / "flights", f / "f")),
        Scenario("a meeting", ["sh", "-c", by_hand, "sh", *perf, "-T", "4"],
                 env={"WORLD_SIZE": "2", "RINGSMITH_MEETING_DIR": "m"}),
    ]


def tree(folder):
    return {p.relative_to(folder): p.read_bytes() if p.is_file() and not p.is_symlink() else None for p in folder.rglob("*")}


def run_scenario(scenario, folder, path=None, kind=None, old=None):
    """Returns the trial, and the states of the planted objects, which must be unchanged
    afterwards."""
    kept = []

    def put():
        place = folder / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif place.exists() or place.is_symlink():
            place.unlink()
        kept.extend(plant(place, folder.parent / "target", kind, old))

    if scenario.prepare:
        scenario.prepare(folder)
    if path and not scenario.midway:
        put()
    if path and scenario.midway:
        return midway(scenario, folder, put), kept
    return Trial(scenario.command, folder, env=scenario.env), kept


def midway(scenario, folder, put):
    """Plants the object while the program, which has begun its work, is stopped."""
    log = folder / "log"
    words = ["sh", "-c", "exec \"$@\" > log", "sh", *scenario.command]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(Trial, words, folder)
        end = time.monotonic() + LIMIT
        while not (log.exists() and scenario.midway in log.read_text()) and time.monotonic() < end:
            time.sleep(0.001)
        for pid in processes_in(folder):
            os.kill(pid, signal.SIGSTOP)
        put()
        for pid in processes_in(folder):
            os.kill(pid, signal.SIGCONT)
        trial = running.result()
    trial.err += log.read_text()
    return trial


def processes_in(folder):
    out = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "cwd") == str(folder):
                out.append(int(process.name))
        except OSError:
            pass
    return out


def judge_file(scenario, path, kind, trial, kept, followed):
    what = f"{scenario.name}: {path} is {kind}"
    if trial.died() or trial.code is None:
        return fault(f"{what}: {trial}")
    pruned = "checkpoints/step-" in str(path)  # a bad checkpoint is skipped, and removed with the old ones
    for before in kept[1:] if pruned else kept:
        now = state(before[0])
        grown = kind in LINKS and before is kept[1] and (trial.code == 0 or scenario.fails)
        if now != before and not grown:
            fault(f"{what}: it is gone or changed: {before[0].name} was {before[1:]}, is {now[1:]}: {trial}")
    if trial.code == 0 and kind not in LINKS and followed and not pruned:
        fault(f"{what}: exit code 0: {trial}")
    text = trial.err + trial.out
    if trial.code != 0 and not scenario.fails and \
            not any(part + end in text for part in path.parts for end in "'/ "):
        fault(f"{what}: the path is not named: {trial}")
    return None


def files(binaries, inputs, folder, only):
    work = []
    for scenario in scenarios(binaries, inputs):
        if only not in scenario.name:
            continue
        paths = {pathlib.Path(p): None for p in scenario.only}
        if not paths:
            here = pathlib.Path(tempfile.mkdtemp(dir=folder))
            if scenario.prepare:
                scenario.prepare(here)
            before = tree(here)
            trial = Trial(scenario.command, here, env=scenario.env)
            if (trial.code != 0) != scenario.fails:
                fault(f"{scenario.name}: without anything planted: {trial}")
            paths = {p: data for p, data in tree(here).items() if before.get(p, b"") != data or p in before}
            # The command may succeed without some of these files.
            scenario.inputs = {p for p in paths if before.get(p, b"") == paths[p]}
        kinds = [k for k in KINDS if k not in scenario.skip and (os.geteuid() == 0 or not k.startswith("/dev/"))]
        folders = ("a folder", "a link to a folder")
        work += [(scenario, p, k, data) for p, data in sorted(paths.items()) for k in kinds
                 if data is not None or scenario.only or k not in folders]

    def one(item):
        scenario, path, kind, old = item
        here = pathlib.Path(tempfile.mkdtemp(dir=folder)).resolve() / "here"
        here.mkdir()
        trial, kept = run_scenario(scenario, here, path, kind, old)
        opened = scenario.midway and path.name == "lock"
        unused = scenario.name == "constants, read" or opened or path in scenario.inputs
        judge_file(scenario, path, kind, trial, kept, not unused)
        shutil.rmtree(here.parent, ignore_errors=True)

    at_once(one, work)
    print(f"files: {len(work)} trials of {len({(w[0].name, w[1]) for w in work})} paths in {len({w[0].name for w in work})} scenarios")


# --- streams and signals ----------------------------------------------------------------------------------------------

def small_runs(binaries, inputs, only):
    """Yields the run of every program alone, and of one training and one collective also on two
    ranks over each transport."""
    for name, (words, rest) in commands(binaries, inputs).items():
        if only not in name:
            continue
        yield name, [*words, *rest]
        if name in ("train_mlp", "all_reduce_perf"):
            for transport in ("shm", "tcp"):
                yield f"{name} on 2 ranks, {transport}", [*launched(binaries, 2), *words, "--transport", transport]


def streams(binaries, inputs, folder, only):
    work = []
    for name, words in small_runs(binaries, inputs, only):
        here = pathlib.Path(tempfile.mkdtemp(dir=folder))
        normal = Trial(words, here)
        printed = {re.sub(r"\d+", "0", line) for line in (normal.out + normal.err).splitlines() if len(line) > 20}
        printed -= {re.sub(r"\d+", "0", line) for data in tree(here).values() if data for line in data.decode(errors="replace").splitlines()}
        work += [(name, words, normal, printed, closed, by_rank) for closed in range(1, 8) for by_rank in (False, True)
                 if not by_rank or "on 2" in name]

    def one(item):
        name, words, normal, printed, closed, by_rank = item
        close = " ".join(f"{fd}>&-" for fd in range(3) if closed & 1 << fd)
        if by_rank:  # on one rank only
            at = words.index("--") + 1
            words = [*words[:at], "sh", "-c", f"[ $RANK = 0 ] || exec {close}; exec \"$@\"", "sh", *words[at:]]
        here = pathlib.Path(tempfile.mkdtemp(dir=folder))
        trial = Trial(words, here, before="" if by_rank else f"exec {close}")
        what = f"{name} with {close}{' in one rank' if by_rank else ''}"
        if trial.died() or trial.code != normal.code:
            fault(f"{what}, which ends with {normal.code}: {trial}")
        for path, data in tree(here).items():
            lines = {re.sub(r"\d+", "0", line) for line in (data or b"").decode(errors="replace").splitlines()}
            if lines & printed:
                fault(f"{what}: prints into {path}: {min(lines & printed)}")
        shutil.rmtree(here, ignore_errors=True)

    at_once(one, work)
    print(f"streams: {len(work)} trials of {len({w[0] for w in work})} commands")


NOT_IGNORED = {signal.SIGKILL, signal.SIGSTOP}
RESET = {signal.SIGCHLD}  # reset by every program, which otherwise could not wait for its children


def mask_of(signals):
    return sum(1 << (s - 1) for s in signals)


def signals(binaries, inputs, folder, only):
    each = [s for s in range(1, 32) if s not in NOT_IGNORED]
    work = []
    for name, words in small_runs(binaries, inputs, only):
        normal = Trial(words, tempfile.mkdtemp(dir=folder)).code
        alone = [[s] for s in each] if name.startswith(("train_mlp", "ringrun")) else []
        work += [(name, words, normal, ignored) for ignored in [each, *alone]]

    def one(item):
        name, words, normal, ignored = item
        here = pathlib.Path(tempfile.mkdtemp(dir=folder)).resolve()
        wanted = mask_of(set(ignored) - RESET)
        seen, lost, before = 0, set(), {}  # before: per process, the signals that it did not ignore when last seen
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(Trial, words, here, before="trap '' " + " ".join(map(str, ignored)))
            while not running.done():
                for pid in processes_in(here):
                    try:
                        status = pathlib.Path(f"/proc/{pid}/status").read_text()
                        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                    except OSError:
                        continue
                    mask = re.search(r"SigIgn:\s*(\w+)", status)
                    if not mask or not command.startswith(str(binaries)):
                        continue
                    seen += 1
                    missing = wanted & ~int(mask[1], 16)
                    twice = missing & before.get(pid, 0)  # seen twice, so it is not just a child being started
                    lost |= {s for s in ignored if twice & mask_of([s])}
                    before[pid] = missing
                time.sleep(0.005)
            trial = running.result()
        what = f"{name} with signals ignored: {len(ignored) if len(ignored) > 1 else ignored[0]}"
        if trial.died() or trial.code != normal:
            fault(f"{what}, which ends with {normal}: {trial}")
        if lost:
            fault(f"{what}: no longer ignored: {sorted(signal.Signals(s).name for s in lost)}: {trial}")
        if not seen and len(ignored) > 1:
            print(f"  {what}: it ended before anybody looked")
        shutil.rmtree(here, ignore_errors=True)

    at_once(one, work)
    print(f"signals: {len(work)} trials of {len({w[0] for w in work})} commands")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("sweeps", nargs="*", help="numbers, lessons, files, streams, signals [all]")
    parser.add_argument("--only", default="", help="programs, or scenarios of files, whose names contain this")
    args = parser.parse_args()
    binaries = args.build.resolve() / "bin"
    known = {"numbers": numbers, "lessons": lessons, "files": files, "streams": streams, "signals": signals}
    for name in args.sweeps:
        if name not in known:
            sys.exit(f"sweep.py: '{name}' is not a sweep: give one or more of {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder:
        inputs = pathlib.Path(folder) / "inputs"
        inputs.mkdir()
        make_inputs(binaries, inputs)
        for name in args.sweeps or known:
            begin = time.monotonic()
            known[name](binaries, inputs, pathlib.Path(folder), args.only)
            print(f"{name}: {time.monotonic() - begin:.0f} s, {len(faults)} faults so far", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
