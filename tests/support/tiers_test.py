#!/usr/bin/env python3
"""tiers_test.py BUILD: checks that the tiers lose no case and run none twice, and that run_tests.py reports ctest's
results.

The first part reads the sources and CMake's output; nothing needs to be built. The second runs run_tests.py on a small
folder of tests, of which some fail.
"""
import collections
import fnmatch
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path.insert(0, str(TESTS / "lessons"))
import ledger  # noqa: E402  (Catch2's test specs are read there)
import run_tests  # noqa: E402

BUILD = pathlib.Path("build/release")
RUN = HERE / "run_tests.py"


def started_programs(text):
    """Returns (entry, program tests_X, how it is started, test spec) for each entry that starts a
    program, without a configuration."""
    environment = {}
    for names, value in re.findall(r'^set_tests_properties\((\[=\[.*?\]=\]) .*?ENVIRONMENT "([^"]*)"', text, re.M):
        environment[names[3:-3]] = value
    found = []
    for line in text.splitlines():
        if not line.startswith("add_test("):  # the lines of a configuration are indented
            continue
        name, *words = [a or b for a, b in re.findall(r'\[=\[(.*?)\]=\]|"((?:\\.|[^"\\])*)"', line)]
        at = next((n for n, w in enumerate(words) if re.search(r"/bin/tests_\w+$", w)), None)
        if at is None:
            continue
        rest, spec = words[at + 1:], ""
        if rest and not rest[-1].startswith("--") and not (len(rest) > 1 and rest[-2].startswith("--")):
            spec = rest.pop()
        found.append((name, pathlib.PurePath(words[at]).name, (tuple(words[:at]), tuple(rest), environment.get(name, "")), spec))
    return found


def cases_of(program):
    """Returns {case: tags} for the folder from which a program is built: kernels/cuda for
    tests_kernels_cuda."""
    room = program.removeprefix("tests_")
    folder = next((f for f in (TESTS / room, TESTS / room.replace("_cuda", "/cuda")) if f.is_dir()), None)
    assert folder, f"no folder for {program}"
    cases = {}
    for source in [*folder.glob("*.cpp"), *folder.glob("*.cu"), *folder.glob("explored/*.cpp")]:  # linked into tests_memory_order
        cases.update(ledger.test_cases(source.read_text(encoding="utf-8")))
    return cases


class Cases(unittest.TestCase):
    def setUp(self):
        self.entries = started_programs((BUILD / "tests/CTestTestfile.cmake").read_text())
        self.assertGreater(len(self.entries), 50)

    def test_every_case_is_run(self):
        specs, lost, seen = collections.defaultdict(list), [], 0
        for _, program, _, spec in self.entries:
            specs[program].append(spec)
        for program, ways in specs.items():
            for case, tags in cases_of(program).items():
                seen += 1
                if not ledger.hidden(tags) and not any(ledger.selects(spec, case, tags) for spec in ways):
                    lost.append(f"{program}: {case}")
        self.assertEqual(lost, [])
        self.assertGreater(seen, 500)

    def test_every_program_has_an_entry(self):
        """A folder of tests whose program no entry starts would be compiled and never run."""
        started = {program for _, program, _, _ in self.entries} | {"tests_rdma"}  # in the VM: tests/rdma/guest.sh
        started.add("tests_memory_order_explored")  # objects of tests_memory_order
        rooms = {"tests_" + "_".join(f.parent.relative_to(TESTS).parts) for f in TESTS.glob("**/*_test.c*")}
        self.assertEqual(sorted(rooms - started), [])

    def test_no_case_is_run_twice_in_the_same_way(self):
        ways, twice = collections.defaultdict(list), []
        for name, program, way, spec in self.entries:
            ways[program, way].append((name, spec))
        self.assertTrue(any(len(entries) > 1 for entries in ways.values()))
        for (program, _), entries in ways.items():
            for case, tags in cases_of(program).items():
                by = [name for name, spec in entries if ledger.selects(spec, case, tags)]
                if len(by) > 1:
                    twice.append(f"{case}: {' and '.join(by)}")
        self.assertEqual(twice, [])

    def test_the_table_has_every_entry(self):
        table = {line.split()[0] for line in (BUILD / "tests/entries.txt").read_text().splitlines()}
        self.assertEqual(sorted({name for name, *_ in self.entries} - table), [])

    def test_the_page_has_every_entry(self):
        rows = run_tests.rows_of_page()
        self.assertGreater(len(rows), 20)
        entries = [line.split()[:2] for line in (BUILD / "tests/entries.txt").read_text().splitlines()]
        self.assertEqual([name for name, _ in entries if run_tests.row_of(name, rows) is None], [])
        self.assertEqual([name for name, tier in entries if run_tests.row_of(name, rows)[2] != tier], [])
        empty = [p for _, patterns, _ in rows for p in patterns if not any(fnmatch.fnmatchcase(name, p) for name, _ in entries)]
        self.assertEqual(empty, [])


CATCH = """-------------------------------------------------------------------------------
two and two
-------------------------------------------------------------------------------
{root}/tests/sums_test.cpp:7
{root}/tests/sums_test.cpp:9: FAILED:
  CHECK( sum == 5 )
with expansion:
  4 == 5

===============================================================================
test cases: 2 | 1 passed | 1 failed
assertions: 3 | 2 passed | 1 failed
"""
# name, tier, shell command, properties
ENTRIES = [
    ("base", "quick", "echo all is well", ""),
    ("comm", "quick", "cat catch; exit 1", ""),
    ("comm_tcp", "all", "echo 'NOT RUN: no network here' >&2; exit 77", ""),
    ("course", "all", "echo 'Traceback (most recent call last):'; echo 'ValueError: seven is no lab'; "
                      "echo; echo 'FAILED (errors=1)'; exit 1", ""),
    ("slow", "all", "echo begun; exec sleep 60", "TIMEOUT 1"),
    ("crash", "all", "echo at the edge; kill -SEGV $$", ""),
]


class Runner(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="tiers.")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "tests").mkdir()
        (self.folder / "catch").write_text(CATCH.format(root=TESTS.parent))
        self.write(ENTRIES)

    def write(self, entries):
        lines, table = [], []
        for name, tier, command, properties in entries:
            label = " LABELS quick" if tier == "quick" else " LABELS long"
            lines += [f"add_test([=[{name}]=] sh -c [=[cd {self.folder} && {command}]=])",
                      f"set_tests_properties([=[{name}]=] PROPERTIES SKIP_RETURN_CODE 77 {properties}{label})"]
            table.append(f"{name} {tier} {'nothing' if name == 'course' else 'tests_' + name}")
        (self.folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        (self.folder / "tests/entries.txt").write_text("\n".join(table) + "\n")

    def run_tests(self, *options):
        return subprocess.run([sys.executable, "-B", RUN, self.folder, *options], capture_output=True, text=True, timeout=60)

    def test_a_folder_that_a_shell_splits(self):
        for name in ("a b", "x;y", "it's", "$HOME"):
            with tempfile.TemporaryDirectory(prefix=f"tiers. {name}") as folder:
                done = subprocess.run([sys.executable, "-B", RUN, folder, "--targets"], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout), (6, ""))
                self.assertIn("clone into another folder", done.stderr)
        with tempfile.TemporaryDirectory(prefix="tiers.Übung") as folder:
            done = subprocess.run([sys.executable, "-B", RUN, folder, "--targets"], capture_output=True, text=True)
            self.assertIn("is not configured", done.stderr)

    def test_all(self):
        done = self.run_tests("--tier", "all")
        lines = done.stdout.splitlines()
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(lines[-1], "1 passed, 4 failed, 1 skipped")
        self.assertIn("tests: all: 6 entries, about ", lines[0])
        said = re.sub(r"\s+", " ", done.stdout)
        for words in ("tests/sums_test.cpp:9: FAILED: CHECK( sum == 5 ) with expansion: 4 == 5 ctest --test-dir",
                      "-R '^comm$' --output-on-failure", "ValueError: seven is no lab ctest",
                      "did not end within 1 s; its last words: begun ctest", "at the edge ctest",
                      "comm_tcp no network here"):
            self.assertIn(words, said)
        for name in ("base", "comm", "course", "slow", "crash"):
            self.assertEqual(len(re.findall(rf"^ *\d+/6  {name} ", done.stdout, re.M)), 1, name)
        self.assertIn("FAILED (timeout)", done.stdout)
        self.assertNotIn("Left out", done.stdout)
        log = (self.folder / "tests.log").read_text()
        self.assertIn("all is well", log)
        self.assertIn("sum == 5", log)
        self.assertEqual([line for line in lines if len(line) > 80 and str(self.folder) not in line], [])

    def test_quick_says_what_it_leaves_out(self):
        done = self.run_tests("--tier", "quick")
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertIn("Left out: 4 entries, about ", done.stdout)
        self.assertIn("make test-all", done.stdout)

    def test_the_rest_is_what_is_not_quick(self):
        done = self.run_tests("--tier", "rest")
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 3 failed, 1 skipped")

    def test_a_room(self):
        done = self.run_tests("--only", "comm")
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed, 1 skipped")
        self.assertEqual(self.run_tests("--only", "long base", "--tier", "quick").stdout.splitlines()[-1],
                         "1 passed, 3 failed, 1 skipped")

    def test_a_program_that_was_not_built_is_a_failure(self):
        with open(self.folder / "CTestTestfile.cmake", "w") as out:
            out.write(f'add_test([=[base]=] "{self.folder}/bin/tests_base")\n')
        done = self.run_tests("--tier", "all")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")
        self.assertIn("Unable to find executable", done.stdout)

    def test_a_time_beyond_the_deadline_is_no_measurement(self):
        (self.folder / "Testing/Temporary").mkdir(parents=True, exist_ok=True)
        (self.folder / "Testing/Temporary/CTestCostData.txt").write_text("slow 1 90000\nbase 1 2.5\n---\n")
        entries = [entry for entry in run_tests.read_entries(self.folder, []) if entry.name in ("slow", "base")]
        times, where = run_tests.recorded(self.folder, entries, {entry.name: entry.timeout for entry in entries})
        self.assertNotEqual(where, "as measured here before")
        times, where = run_tests.recorded(self.folder, entries[:1], {"slow": 1})
        self.assertEqual((times, where), ({"base": 2.5}, "as measured here before"))

    def test_the_first_fault_of_a_list_is_shown(self):
        self.assertEqual(run_tests.why_failed("ok\na/b.md:3: no such word:\nit\nc.md:9: too long\ntext: 2 faults\n"),
                         ["a/b.md:3: no such word:", "it", "c.md:9: too long", "text: 2 faults", "and 1 more in the log"])

    def test_good_runs_end_with_0(self):
        self.write(ENTRIES[:1])
        done = self.run_tests("--tier", "all")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"))

    def test_an_interrupt_is_one_line(self):
        self.write([("long", "all", "echo begun > begun; exec sleep 60", "")])
        ours = subprocess.Popen([sys.executable, "-B", RUN, self.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)
        limit = time.monotonic() + 20
        while not (self.folder / "begun").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        os.killpg(ours.pid, signal.SIGINT)
        out, err = ours.communicate(timeout=20)
        self.assertEqual((ours.returncode, err), (130, ""))
        self.assertEqual(out.splitlines()[-1], "interrupted: 0 of 1 entries had ended")

    def test_targets(self):
        for options, targets in ((("--tier", "quick"), "quick_tests"), (("--tier", "all"), "all"), (("--only", "course"), "nothing"),
                                 (("--only", "comm"), "tests_comm tests_comm_tcp")):
            self.assertEqual(self.run_tests(*options, "--targets").stdout, targets + "\n")

    def test_wrong_calls_are_one_line(self):
        for options, words in ((("--only", "com"), "there is no room 'com'; give an entry (ctest -N) or one of: "),):
            done = self.run_tests(*options)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (6, "", 1))
            self.assertIn(words, done.stderr)
        self.assertIn(" comm ", done.stderr)
        done = self.run_tests("--record")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (6, 1))
        (self.folder / "tests/entries.txt").unlink()
        done = self.run_tests("--tier", "quick")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (6, 1))
        self.assertIn("make configure", done.stderr)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    os.environ.pop("CTEST_OUTPUT_ON_FAILURE", None)
    unittest.main()
