#!/usr/bin/env python3
"""Runs the tests of a build folder: a tier, or a room.

    run_tests.py DIR --tier quick        run by `make test` (tests/README.md has the table of tiers)
    run_tests.py DIR --tier all          every entry; --tier rest: every entry that is not quick
    run_tests.py DIR --only ROOM         a room in both tiers: a folder of tests/, a label or an entry; repeatable
    run_tests.py DIR ... --targets       runs nothing: prints the targets that these entries need to be built
    run_tests.py DIR --record            runs nothing: writes the times of the last run into durations.txt

First prints the number of entries and the expected time, then one line for each entry that has ended (on a terminal a
counter in place), and at the end the entries that were not run and why, the failures and how to run them again, and
the number of entries left out. The last line is "N passed, N failed, N skipped". DIR/tests.log has all output,
DIR/tests.xml the results as JUnit. Other options are ctest's. Exit status: ctest's own; 6 for a wrong call.
"""
import argparse
import collections
import datetime
import fnmatch
import json
import math
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DURATIONS = ROOT / "tests/support/durations.txt"
PAGE = ROOT / "tests/README.md"
SHOWN = 10  # number of slowest entries to print
WIDTH = 80
UNKNOWN_S = 5  # assumed for an entry whose time is not recorded
QUIET_S = 30  # without a terminal, print a line at least this often
SPLIT = re.compile(r"[^\w./+@%:=,~-]")  # a character of a path that a shell does not leave alone
ENDED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) [ .]*(.*?) +([\d.]+) sec")
STARTED = re.compile(r"^ *Start +\d+: (\S+)")

Entry = collections.namedtuple("Entry", "name tier targets labels processors serial timeout")


def stop(text):
    print(f"run_tests.py: {text}", file=sys.stderr)
    sys.exit(6)


def read_entries(folder, config):
    """Returns the entries that ctest would run without a selection, with their properties from CMake
    (tests/tiers.cmake)."""
    table = {}
    written = folder / "tests/entries.txt"
    if not written.exists():
        stop(f"'{folder}' is not configured: make configure")
    for line in written.read_text().splitlines():
        name, tier, *targets = line.split()
        table[name] = tier, targets
    done = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1", *config], capture_output=True, text=True)
    if done.returncode:
        stop(f"ctest cannot read '{folder}': {last_lines(done.stderr)[-1]}")
    entries = []
    for test in json.loads(done.stdout)["tests"]:
        has = {p["name"]: p["value"] for p in test["properties"]}
        tier, targets = table.get(test["name"], ("all", ["all"]))
        entries.append(Entry(test["name"], tier, targets, has.get("LABELS", []), int(has.get("PROCESSORS", 1)),
                             has.get("RUN_SERIAL", False), has.get("TIMEOUT", 0)))
    return entries


def in_room(entry, room):
    room = room.strip("/").replace("/", "_")
    return room == entry.name or entry.name.startswith(room + "_") or room in entry.labels


def room_of(entry, rooms):
    """Returns the folder of tests/ to which an entry belongs, for counting the entries left out."""
    return max((r for r in rooms if entry.name == r or entry.name.startswith((r + "_", r.rstrip("s") + "_"))), key=len,
               default=(entry.labels or [entry.name])[0])


def folders():
    return sorted(p.name for p in (ROOT / "tests").iterdir() if p.is_dir())


def choose(entries, args):
    if not args.only:
        return [e for e in entries if args.tier == "all" or (e.tier == "quick") == (args.tier == "quick")]
    words = " ".join(args.only).split()
    for room in words:
        if not any(in_room(e, room) for e in entries):
            rooms = {r for r in folders() if any(in_room(e, r) for e in entries)} | {label for e in entries for label in e.labels}
            stop(f"there is no room '{room}'; give an entry (ctest -N) or one of: {' '.join(sorted(rooms))}")
    return [e for e in entries if any(in_room(e, room) for room in words)]


# ---- how long it will take


def recorded(folder, entries, limits):
    """Returns ({entry: seconds}, where they were measured). limits: deadlines of entries, {name: seconds}; a longer time
    is no measurement, because ctest counts the time in which a machine slept."""
    here, text = {}, folder / "Testing/Temporary/CTestCostData.txt"
    if text.exists():
        for line in text.read_text().split("---")[0].splitlines():
            words = line.split()
            if len(words) == 3 and int(words[1]) > 0 and float(words[2]) <= (limits.get(words[0]) or math.inf):
                here[words[0]] = float(words[2])
    if entries and all(e.name in here for e in entries):
        return here, "as measured here before"
    text = DURATIONS.read_text() if DURATIONS.exists() else ""
    said = re.search(r"^# (measured .*)", text, re.M)
    times = {words[0]: float(words[1]) for words in map(str.split, text.splitlines()) if len(words) == 2 and words[0] != "#"}
    return times, said[1] if said else "not measured yet"


def estimate(entries, times, slots):
    """Returns the seconds that ctest needs. It starts entries that take all cores first, then the
    longest; serial entries run alone."""
    waiting = sorted(entries, key=lambda e: (e.serial, e.processors < slots - 2, -times.get(e.name, UNKNOWN_S)))
    running, now = [], 0.0  # pairs (end, slots)
    while waiting or running:
        free = slots - sum(n for _, n in running)
        for entry in list(waiting):
            wanted = slots if entry.serial else min(entry.processors, slots)
            if wanted <= free:
                free -= wanted
                running.append((now + times.get(entry.name, UNKNOWN_S), wanted))
                waiting.remove(entry)
        running.sort()
        now = running.pop(0)[0]
    return now


def in_words(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# ---- why a test failed, in a few lines


def last_lines(text):
    noise = re.compile(r"[-=~ *.]*$|test cases:|assertions:|Primary job|a non-zero exit code|mpirun (detected|noticed)|"
                       r"Process name:|Exit code:|Ran \d+ test|FAILED \(|tests_\w+ is a Catch|Run with -\?|Randomness seeded")
    lines = [line.strip() for line in (text or "").splitlines()]
    return [line for line in lines if not noise.match(line)] or ["it printed nothing"]


def why_failed(text):
    """Returns the first failed assertion of Catch2; otherwise the last exception; otherwise the
    first fault, if the test lists faults as `FILE:LINE: TEXT`; otherwise the last two meaningful
    lines."""
    lines = (text or "").splitlines()
    at = next((n for n, line in enumerate(lines) if re.search(r":\d+: FAILED:|\(\d+\): FAILED:", line)), None)
    if at is not None:
        block = []
        for line in lines[at:at + 12]:
            if not line.strip() or line.startswith(("====", "----")):
                break
            block.append(line.strip().replace(f"{ROOT}/", ""))
        more = sum(": FAILED:" in line for line in lines) - 1
        return block[:5] + ([f"and {more} more in the log"] if more else [])
    said = [line.strip() for line in lines if re.match(r"\s*[\w.]*(Error|Exception|Interrupt|Fault)\b.*", line)]
    if said:
        return said[-1:]
    at = [n for n, line in enumerate(lines) if re.match(r"[\w./-]+:\d+: ", line)]
    more = [f"and {len(at) - 1} more in the log"] if len(at) > 1 else []
    return [line.strip() for line in lines[at[0]:at[0] + 4]] + more if at else last_lines(text)[-2:]


def why_skipped(text):
    """Returns the line in which a test gives the reason why it was not run, often after 'NOT
    RUN:'."""
    said = [line.strip() for line in (text or "").splitlines() if "not run" in line.lower() or "skipped" in line.lower()]
    return said[0] if said else last_lines(text)[-1]


def cut(text, width=WIDTH - 1):
    return text if len(text) <= width else text[:width - 3] + "..."


# ---- progress


class Progress:
    """The progress that ctest has reported, as a counter in place or as lines."""

    def __init__(self, entries, expected):
        self.total, self.expected = len(entries), expected
        self.done, self.failed, self.running = 0, {}, []  # failed: {entry: how}
        self.begin = self.said = time.monotonic()
        self.terminal = sys.stdout.isatty()

    def line(self, text):
        if self.terminal:
            sys.stdout.write("\r\x1b[K")
        print(text, flush=True)
        self.said = time.monotonic()

    def tell(self):
        seconds = time.monotonic() - self.begin
        text = f"{self.done} of {self.total}, {seconds:.0f} s of about {self.expected:.0f}"
        if self.failed:
            text += f", {len(self.failed)} failed"
        text += f": {', '.join(self.running)}"
        if self.terminal:
            width = shutil.get_terminal_size((WIDTH, 24)).columns - 1
            sys.stdout.write("\r\x1b[K" + cut(text, max(width, 20)))
            sys.stdout.flush()
        elif time.monotonic() - self.said > QUIET_S:
            self.line(cut("   ... " + text))

    def read(self, line):
        if started := STARTED.match(line):
            self.running.append(started[1])
        elif ended := ENDED.match(line):
            name, how, seconds = ended.groups()
            self.running = [n for n in self.running if n != name]
            self.done += 1
            how = how.strip("* ").lower()
            if how not in ("passed", "skipped"):
                self.failed[name] = how
                how = "FAILED" if how == "failed" else f"FAILED ({how})"
            if not self.terminal or how.startswith("FAILED"):
                self.line(f"{self.done:4}/{self.total}  {name:28} {how:8} {float(seconds):7.1f} s")
        self.tell()


def run_ctest(command, progress):
    """Returns (exit status, all output)."""
    ctest = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines, kept = queue.Queue(), []
    threading.Thread(target=pump, args=(ctest, lines), daemon=True).start()
    try:
        progress.tell()
        while True:
            try:
                line = lines.get(timeout=1)
            except queue.Empty:
                progress.tell()
                continue
            if line is None:
                break
            kept.append(line.rstrip("\n"))
            progress.read(line)
    except KeyboardInterrupt:  # the terminal has sent SIGINT to ctest and its tests as well
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctest.terminate()
        ctest.wait()
        progress.line(f"interrupted: {progress.done} of {progress.total} entries had ended")
        sys.exit(130)
    if progress.terminal:
        sys.stdout.write("\r\x1b[K")
    return ctest.wait(), kept


def pump(ctest, lines):
    for line in ctest.stdout:
        lines.put(line)
    lines.put(None)


# ---- the end


def report(cases, folder, shown_folder, timeouts, faults):
    # ctest also reports a missing program as "notrun", but then the test itself gives no reason.
    failed = [c for c in cases if c.get("status") == "fail" or c.get("name") in faults]
    skipped = [c for c in cases if c.get("status") in ("notrun", "disabled") and c not in failed]
    if skipped:
        print("\nNot run, and why:")
        reasons = collections.defaultdict(list)
        for case in skipped:
            reasons[re.sub(r"^(\S+: )?NOT RUN: ", "", why_skipped(case.findtext("system-out")))].append(case.get("name"))
        for reason, names in reasons.items():
            for text, indent in [(" ".join(names), 2), (reason, 6)]:
                print(textwrap.fill(text, WIDTH - 1, initial_indent=" " * indent, subsequent_indent=" " * indent,
                                    break_long_words=False, break_on_hyphens=False))
    print("\nTook longest, in seconds:")
    for case in sorted(cases, key=lambda c: -float(c.get("time")))[:SHOWN]:
        print(f"  {case.get('name'):28} {float(case.get('time')):6.1f}")
    if failed:
        print("\nFailed, and how to run it again:")
        for case in failed:
            name = case.get("name")
            print(f"\n  {name}, after {float(case.get('time')):.1f} s")
            if faults.get(name) == "timeout":
                print(f"    did not end within {timeouts.get(name, 0):.0f} s; its last words:")
            elif faults.get(name, "failed") not in ("failed", "not run"):
                print(f"    {faults[name]}; its last words:")
            for line in why_failed(case.findtext("system-out")):
                print(f"    {cut(line, WIDTH - 5)}")
            print(f"    ctest --test-dir {shown_folder} -R '^{name}$' --output-on-failure")
        print(f"\nAll that they printed: {shown_folder / 'tests.log'}")
    return f"{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped"


def left_out(entries, chosen, times, slots, args):
    rest = [e for e in entries if e not in chosen]
    if not rest:
        return
    if args.only or args.tier == "rest":
        print(f"\nLeft out: {len(rest)} entries; all of them: make test-all")
        return
    rooms = collections.Counter(room_of(e, folders()) for e in rest)
    words = ", ".join(f"{room} {n}" for room, n in rooms.most_common())
    print(f"\nLeft out: {len(rest)} entries, about {in_words(estimate(rest, times, slots))}:")
    line = " "
    for word in words.split(" "):
        if len(line) + 1 + len(word) > WIDTH - 1:
            print(line)
            line = " "
        line += " " + word
    print(line)
    print("  make test-all                all entries\n  make test ONLY=labs          a room")


def rows_of_page():
    """Returns [line, patterns of entries, tier] for each row of the table of tests/README.md."""
    rows = []
    for n, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines()):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 6 and cells[3] in ("quick", "all"):
            rows.append((n, re.findall(r"`([^`]+)`", cells[1]), cells[3]))
    return rows


def row_of(name, rows):
    """Returns the row that names an entry; otherwise the row of the longest pattern that matches
    it."""
    found = [(name == p, len(p), row) for row in rows for p in row[1] if fnmatch.fnmatchcase(name, p)]
    return max(found, key=lambda f: f[:2])[2] if found else None


def record_on_page(times):
    rows, sums = rows_of_page(), collections.Counter()
    for name, seconds in times.items():
        if row := row_of(name, rows):
            sums[row[0]] += seconds
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for n, _, _ in rows:
        lines[n] = re.sub(r"\|[^|]*\|$", f"| {sums[n]:.0f} |" if sums[n] else "| |", lines[n])
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def record(folder):
    """Writes the times of the last run, and keeps the times of entries that it did not run."""
    if not (folder / "tests.xml").exists():
        stop(f"no results in '{folder}': run make test-all first")
    cases = xml.parse(folder / "tests.xml").getroot().findall("testcase")
    times, measured = recorded(folder, [], {})
    if not measured.startswith("measured"):  # the times are only guesses so far
        times = {}
    times.update({c.get("name"): float(c.get("time")) for c in cases if c.get("status") == "run"})
    today = datetime.date.today().isoformat()
    head = ("# Seconds of each entry, for run_tests.py's estimate and for the order in which ctest begins them.\n"
            "# Written by: tests/support/run_tests.py DIR --record\n"
            f"# measured on {os.cpu_count()} cores, {today}\n")
    DURATIONS.write_text(head + "".join(f"{name} {seconds:.1f}\n" for name, seconds in sorted(times.items())))
    record_on_page(times)
    print(f"{len(times)} times in {DURATIONS.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--tier", choices=("quick", "all", "rest"), default="all")
    parser.add_argument("--only", action="append", default=[], metavar="ROOM")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--parallel", type=int, default=2 * ((os.cpu_count() or 1) + 1), help="in half cores (tests/tiers.cmake)")
    parser.add_argument("-C", dest="config", metavar="CONFIG", help="ctest's: with the longer entries of this configuration")
    args, further = parser.parse_known_args()
    folder = args.folder.resolve()
    for path in (ROOT, folder):
        split = SPLIT.search(str(path))
        if split:
            stop(f"many tests start programs through a shell, which would split '{path}' at the {split[0]!r}: clone into "
                 "another folder to test (make train and the labs work there)")
    if args.record:
        return record(folder)
    config = ["-C", args.config] if args.config else []
    entries = read_entries(folder, config)
    chosen = choose(entries, args)
    if args.targets:
        targets = list(dict.fromkeys(t for e in chosen for t in e.targets))
        if not args.only and args.tier == "quick":
            targets = ["quick_tests"]
        elif "all" in targets or (not args.only and args.tier != "quick"):
            targets = ["all"]
        print(" ".join([t for t in targets if t != "nothing"] or ["nothing"]))
        return 0

    times, measured = recorded(folder, chosen, {e.name: e.timeout for e in entries})
    expected = estimate(chosen, times, args.parallel)
    unknown = sum(e.name not in times for e in chosen)
    what = f"room {' '.join(args.only)}" if args.only else {"quick": "the quick tier", "all": "all", "rest": "all but the quick tier"}[args.tier]
    print(f"tests: {what}: {len(chosen)} entries, about {in_words(expected)} ({measured})", flush=True)
    if unknown:
        print(f"       {unknown} of them without a recorded time: {UNKNOWN_S} s assumed for each", flush=True)

    results = folder / "tests.xml"
    results.unlink(missing_ok=True)
    names = "|".join(e.name for e in chosen)
    progress = Progress(chosen, expected)
    status, printed = run_ctest(["ctest", "--test-dir", str(folder), "--no-tests=error", "--parallel", str(args.parallel),
                                 "--output-junit", str(results), "-R", f"^({names})$", *config, *further], progress)
    log = folder / "Testing/Temporary/LastTest.log"
    if log.exists():
        shutil.copyfile(log, folder / "tests.log")
    if not results.exists():
        print("\n".join(printed))
        return status or 1
    cases = xml.parse(results).getroot().findall("testcase")
    closing = report(cases, folder, args.folder, {e.name: e.timeout for e in chosen}, progress.failed)
    left_out(entries, chosen, times, args.parallel, args)
    print(f"\n{closing}")
    return status


if __name__ == "__main__":
    sys.exit(main())
