"""Runs the commands of a lesson's ```console blocks and compares their output with the lesson.

A block has one or more commands, each after `$ ` (a line that ends in \\ continues), each followed by its output,
both streams. All blocks of a lesson run in order, in one new folder that shows the repository's top-level entries as
links, with the built programs in PATH, without a terminal, and with a separate HOME: no calibration and no settings
of the machine's owner are used. `cd` and `export` affect the following commands. The commands of a page that is not a
lesson run in the repository itself, because they build and install.

Claims about a block's numbers are located below it: `<!-- holds: row("x")[0] > 1 -->` or, about times,
`<!-- timed: row("x")[0] > 1 -->`. If only timed claims do not hold, the block runs again, twice at most: another program
may have slowed down one row of one run.
"""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

import compare
from lesson import ROOT, Fault

TIMEOUT = 180  # seconds per command, on a busy machine; a lesson's commands should take 3 in total
RUNS = 3  # at most, of a block whose timed claims do not hold


@contextlib.contextmanager
def scratch(build, itself=False):
    with tempfile.TemporaryDirectory(prefix="lesson.") as name:
        folder = pathlib.Path(name) / "ringsmith"
        (folder.parent / "home").mkdir()
        if itself:
            folder.symlink_to(ROOT)
            yield folder
            return
        folder.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in ("build", "runs", "work", ".git"):
                (folder / entry.name).symlink_to(entry)
        (folder / "build").mkdir()
        (folder / "build" / "release").symlink_to(build.resolve())
        yield folder


def environment(folder, build):
    kept = {k: v for k, v in os.environ.items()
            if not re.match(r"RINGSMITH_|OMPI_|PMIX_|SLURM_|MAKE|CMAKE_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$", k)}
    return kept | {"BUILD": str(build.resolve().parent), "PRESET": build.resolve().name,
                   "PATH": f"{build.resolve() / 'bin'}:{kept.get('PATH', '')}", "HOME": str(folder.parent / "home"),
                   "LC_ALL": "C.UTF-8", "COLUMNS": "100", "OPENBLAS_NUM_THREADS": "1", "TERM": "dumb",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def split(fence):
    """Returns [(command, [expected lines])] of a console block."""
    found = []
    lines = iter(fence.body)
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines, "")
            found.append((command, []))
        elif found:
            found[-1][1].append(line)
        else:
            return []
    return found


def run(command, folder, env, before=()):
    """Returns (exit code or None for a timeout, output lines)."""
    process = subprocess.Popen(["bash", "-c", "\n".join([*before, command])], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out = process.communicate(timeout=TIMEOUT)[0]
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, code = process.communicate()[0], None
    text = out.decode("utf-8", "replace").replace(str(folder), "/home/you/ringsmith")
    text = text.replace(str(folder.parent / "home"), "/home/you")
    text = re.sub(rf"(?<![\w./-]){re.escape(socket.gethostname())}(?![\w/-])", "node0", text)
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return code, lines


def claim_holds(expression, lines):
    """Evaluates a `holds` claim. row("x"): numbers of the first line with x; after("x"): the number after x."""
    def number(text):
        return [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)]

    def row(text):
        line = next((line for line in lines if text in line), None)
        if line is None:
            raise Fault(f"no line of the output has '{text}'")
        return number(line)

    def after(text):
        found = number("\n".join(lines).partition(text)[2])
        if not found:
            raise Fault(f"no number after '{text}' in the output")
        return found[0]

    names = {"row": row, "after": after, "lines": lines, "min": min, "max": max, "sum": sum, "abs": abs, "len": len,
             "all": all, "any": any}
    return eval(expression, {"__builtins__": {}}, names)  # the expression is in this repository


def broken_claims(lesson, claims, lines):
    """Returns a fault for each claim that does not hold in the output, and whether all of these claims are timed."""
    faults, only_timed = [], True
    for at, claim, timed in claims:
        try:
            if claim_holds(claim, lines):
                continue
            faults.append(f"{lesson.where(at)}: the claim `{claim}` does not hold:\n" + "\n".join(lines[-15:]))
            only_timed &= timed
        except (Fault, SyntaxError, NameError, TypeError, IndexError) as error:
            faults.append(f"{lesson.where(at)}: the claim `{claim}` cannot be checked: {error}")
            only_timed = False
    return faults, only_timed


def run_again(commands, code_wanted, folder, env, before):
    """Returns the output of all commands of a block, or None if one of them ends with another exit code this time."""
    before, everything = list(before), []
    for n, (command, _) in enumerate(commands):
        code, lines = run(command, folder, env, before)
        if code != (code_wanted if n == len(commands) - 1 else 0):
            return None
        if re.match(r"(cd|export) ", command):
            before.append(command)
        everything += lines
    return everything


def recorded_line(lesson, fence):
    above = " ".join(lesson.lines[max(0, fence.start - 4):fence.start])
    return re.search(r"\*Recorded on [^*]+, \d{4}-\d\d-\d\d; the tests do not run it\.\*\s*$", above)


def measured_line(lesson, fence):
    above = " ".join(lesson.lines[max(0, fence.start - 4):fence.start])
    return re.search(r"\*Measured on [^*]+, \d{4}-\d\d-\d\d[^*]*\*\s*$", above)


def clashes(lessons):
    """A reader types all commands in the repository's folder, and a program does not write into a folder that is there.
    Returns a fault for each lesson that makes a folder of an earlier lesson's name."""
    faults, first = [], {}
    for lesson in lessons:
        for name in sorted(lesson.leaves):
            if first.setdefault(name, lesson) is not lesson:
                faults.append(f"{lesson.name}: its commands make the folder '{name}', as those of {first[name].name} do: choose "
                              "another name, because a reader types both in the same folder")
    return faults


def check(lesson, build, update=False):
    """Returns the faults of the lesson's commands, the number of commands that ran, and the seconds. Sets lesson.leaves:
    the names of the folders that the commands have made."""
    faults, ran, changed, before, began = [], 0, [], [], time.monotonic()
    with scratch(build, itself=lesson.slug == "your-own-program") as folder:
        env = environment(folder, build)
        for fence in lesson.fences:
            if fence.language in ("sh", "bash", "shell"):
                faults.append(f"{lesson.where(fence.start)}: write commands as ```console, with '$ ' and their output")
            if fence.language != "console":
                continue
            where = lesson.where(fence.start)
            unknown = [m for m in fence.marks if m not in compare.MARKS and not re.fullmatch(r"exit=\d+", m)]
            commands = split(fence)
            if unknown or not commands:
                known = f"exit=N {' '.join(sorted(compare.MARKS))}"
                faults.append(f"{where}: " + (f"unknown mark '{unknown[0]}'; known: {known}" if unknown else
                                              "a console block begins with '$ COMMAND'"))
                continue
            if "recorded" in fence.marks:
                if not recorded_line(lesson, fence):
                    faults.append(f"{where}: a recorded block needs the line above it: "
                                  "*Recorded on MACHINE, YYYY-MM-DD; the tests do not run it.*")
                continue
            if "measured" in fence.marks and not measured_line(lesson, fence):
                faults.append(f"{where}: a measured block needs the line above it: *Measured on MACHINE, YYYY-MM-DD.*")
            body, everything, before_block = [], [], list(before)
            code_wanted = next((int(m[5:]) for m in fence.marks if m.startswith("exit=")), 0)
            for n, (command, expected) in enumerate(commands):
                if re.search(r"\b(until|while) \[(?![^;]*\bkill -0\b)", command):  # for example, a repeated command fails
                    faults.append(f"{where}: this loop never ends if its program fails: until [ ... ] || ! kill -0 $!; do")
                code, actual = run(command, folder, env, before)
                if re.match(r"(cd|export) ", command):
                    before.append(command)
                ran += 1
                everything += actual
                wanted = code_wanted if n == len(commands) - 1 else 0
                if code != wanted:
                    ended = f"did not end in {TIMEOUT} s" if code is None else f"exited with {code}, not {wanted}"
                    faults.append(f"{where}: `{command}` {ended}:\n" + "\n".join(actual[-15:]))
                    body = None
                    break
                differs = compare.difference(expected, actual, fence.marks)
                if differs and not update:
                    faults.append(f"{where}: `{command}` prints something else now (--update rewrites it):\n{differs}")
                body += ["$ " + line if not i else line for i, line in enumerate(command.split("\n"))]
                body += compare.renewed(expected, actual, fence.marks) if differs else expected
            claims = list(lesson.claims(fence)) if body is not None else []
            broken, only_timed = broken_claims(lesson, claims, everything)
            runs = 1
            while broken and only_timed and runs < RUNS:
                again = run_again(commands, code_wanted, folder, env, before_block)
                if again is None:  # a command that works once only, such as mkdir
                    break
                broken, only_timed = broken_claims(lesson, claims, again)
                runs += 1
            faults += broken
            if update and body is not None and body != fence.body:
                changed.append((fence, body))
        lesson.leaves = {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()}
        lesson.leaves -= {"build", "runs"}
    for fence, body in reversed(changed):
        lesson.replace(fence, body)
    if changed:
        lesson.save()
    return faults, ran, time.monotonic() - began
