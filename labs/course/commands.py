"""The commands of a student: lab, check, hint, grade, watch, reset, progress."""
import contextlib
import json
import os
import re
import signal
import sys
import shutil
import time

from labs.course import manifest, reports, sandbox, terminal
from labs.course.grading import grade, refuse, untouched
from labs.course.lab import WORK, all_labs
from labs.course.reading import printable, read_files
from labs.course.split import texts
from labs.course.verdicts import FINE, AuthorError, Refused


def submission(lab, folder=None):
    """Returns the student's files. Raises AuthorError or Refused naming a file that is missing or cannot be read."""
    if folder is not None:
        return read_files(folder, lab.files, foreign=True)
    missing = [f for f in lab.files if not (lab.work / f).exists()]
    if missing:
        raise AuthorError(f"{printable(lab.work / missing[0])} does not exist yet. Begin with: make lab N={lab.number}")
    return read_files(lab.work, lab.files)


def start(lab):
    lab.work.mkdir(parents=True, exist_ok=True)
    for name, text in texts(lab, solution=False).items():
        target = lab.work / name
        if target.exists():
            print(f"{target} already exists and stays as it is (make reset N={lab.number} starts over)")
        else:
            target.write_text(text)
            print(f"{target} is created")
    print(f"Read labs/{lab.slug}/README.md, edit, then: make check N={lab.number}")


def _task(message):
    """The number in "task 2, launch: ...", else 0."""
    number = re.match(r"task (\d+)", message)
    return int(number.group(1)) if number else 0


@contextlib.contextmanager
def _progress():
    """Shows the progress of a judgement. Ctrl-C ends it immediately, instead of after the tests that run: in a sandbox, all
    programs end with the judge, and the next judge removes its folders."""
    def interrupt(*_):
        if not sandbox.here.cache_info().currsize or sandbox.here().kind == "none":
            raise KeyboardInterrupt
        progress.clear()
        os._exit(130)

    with terminal.Progress() as progress:
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield progress
        finally:
            signal.signal(signal.SIGINT, before)


def check(lab, only=None, seed=None):
    with _progress() as progress:
        report = grade(lab, submission(lab), only=only, public_only=not only, seed=seed, progress=progress)
    terminal.show(report)
    beware = sandbox.note()
    if beware:
        print(beware)
    edited = manifest.require_whole()
    if edited:
        print(f"Warning: {edited}. With these changes, make grade gives 0.")
    _remember(lab, report)
    if untouched(report):
        first = min((r.message for r in report.results), key=_task)
        print(f"Nothing is written yet. First step: {first}. Stuck? make hint N={lab.number}")
    return all(r.status in FINE for r in report.results)


def full_grade(lab, submission_folder=None, only=None, seed=None, reports_folder=None, unsafe=False):
    """Runs every test that is present. A cheat, or a handout with edited tests, scores zero."""
    sandbox.here()  # reports a wrong setting before anything else
    try:
        files = submission(lab, submission_folder)
    except Refused as refused:
        report = refuse(lab, refused, only)
        print(f"refused: {refused}: 0 points", file=sys.stderr)
    else:
        sandbox.require(unsafe)
        with _progress() as progress:
            report = grade(lab, files, only=only, seed=seed, progress=progress)
        report.sandbox = sandbox.here().describe()
        report.cheat = report.cheat or manifest.require_whole() or ""
        terminal.show(report, grading=True, command="grade")
    if reports_folder:
        print("written: " + ", ".join(map(printable, reports.write(report, reports_folder))))
    return not report.cheat and all(r.status in FINE for r in report.results)


def watch(lab, seed=None):
    """Runs the public tests after every save."""
    seen = None
    while True:
        now = {f: (lab.work / f).lstat().st_mtime_ns for f in lab.files if (lab.work / f).exists()}
        if now != seen:
            seen = now
            print(f"\n--- {time.strftime('%H:%M:%S')} lab {lab.number}")
            try:
                check(lab, seed=seed)
            except AuthorError as error:
                print(error)
        time.sleep(0.2)


def _state(lab):
    path = lab.work / ".progress.json"
    try:
        return path, json.loads(path.read_text())
    except (OSError, ValueError):
        return path, {}


def _remember(lab, report):
    path, state = _state(lab)
    state["passing"] = sorted({r.name for r in report.results if r.status == "pass"})
    state["tests"] = len(report.results)
    path.write_text(json.dumps(state))


def hint(lab):
    """Prints the next hint of lab.toml. work/ records the number shown."""
    lab.work.mkdir(parents=True, exist_ok=True)
    path, state = _state(lab)
    shown = min(state.get("hints", 0) + 1, len(lab.hints))
    state["hints"] = shown
    path.write_text(json.dumps(state))
    print(f"hint {shown} of {len(lab.hints)}: {lab.hints[shown - 1]}")
    if shown == len(lab.hints):
        print("That was the last hint. make check names the first element that is wrong; begin there.")


def reset(lab):
    """Moves the student's files aside and starts over."""
    if lab.work.exists():
        aside = lab.work.with_name(f"{lab.slug}.{time.strftime('%Y%m%d-%H%M%S')}")
        shutil.move(lab.work, aside)
        print(f"The old files are in {aside}")
    start(lab)


def progress():
    for lab in all_labs():
        if not lab.work.exists():
            print(f"  {lab.number} {lab.title:36} not started")
            continue
        _, state = _state(lab)
        tests = state.get("tests", 0)
        done = len(state.get("passing", []))
        text = f"{done} of {tests} public tests passed at the last check" if tests else "started, not checked yet"
        print(f"  {lab.number} {lab.title:36} {text}, {state.get('hints', 0)} of {len(lab.hints)} hints seen")
    if not WORK.exists():
        print("Begin with: make lab N=00")
