#!/usr/bin/env python3
"""Tests the code that all labs share: python3 tests/labs/machinery.py [-v] [TestName]. handouts.py tests
handouts.

Tests that need a compiler use lab 06 and the cache of LABS_BUILD. `make grade-the-grader` goes through all
labs.
"""
import errno
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock as mock
import xml.etree.ElementTree as xml

from common import PLACE, RING, ROOT, alive, make, unique

from labs.course import grading, mutants, record, reports, runner, terminal
from labs.course import lab as lab_module
from labs.course.build import build, needed, swapped_in
from labs.course.lab import all_labs
from labs.course.split import split, texts
from labs.course.verdicts import AuthorError, Cheat, Crash, Hang, NotAttempted, Wrong


class Splitting(unittest.TestCase):
    TEXT = "a\n#ifdef SOLUTION\nb\n#if 1\nc\n#else\nd\n#endif\n#else\ne\n#endif\n#ifdef OTHER\nf\n#endif\n"

    def test_both_sides(self):
        self.assertEqual(split(self.TEXT, True), "a\nb\n#if 1\nc\n#else\nd\n#endif\n#ifdef OTHER\nf\n#endif\n")
        self.assertEqual(split(self.TEXT, False), "a\ne\n#ifdef OTHER\nf\n#endif\n")

    def test_refuses_what_it_does_not_understand(self):
        for text in ("#ifdef SOLUTION\n", "#endif\n", "#ifndef SOLUTION\n#endif\n", "#if defined(SOLUTION)\n#endif\n",
                     "#ifdef SOLUTION\n#elif 1\n#endif\n"):
            with self.assertRaises(AuthorError, msg=text):
                split(text, True)


class Records(unittest.TestCase):
    def test_there_and_back(self):
        values = {"i": -5, "d": 0.1, "s": "a\nb é", "B": b"\0\n1", "I": [1, -2], "D": [0.5],
                  "F": record.floats([1.5, 2]), "e": []}
        back = record.decode(record.encode(values))
        self.assertEqual([back["i"], back["d"], back["s"], back["B"]], [-5, 0.1, "a\nb é", b"\0\n1"])
        self.assertEqual([list(back[k]) for k in "IDFe"], [[1, -2], [0.5], [1.5, 2.0], []])

    def test_torn(self):
        whole = record.encode({"name": "value"})
        for end in range(1, len(whole) - 1):
            with self.assertRaises(record.Torn):
                record.decode(whole[:end])


class Student(unittest.TestCase):
    """A new student's first hour with lab 06."""

    def test_the_path(self):
        shutil.rmtree(os.environ["LABS_WORK"], ignore_errors=True)
        file = pathlib.Path(os.environ["LABS_WORK"]) / "06-ring" / "ring.hpp"
        code, said = make("check", "N=06")
        self.assertNotEqual(code, 0)
        self.assertIn("make lab N=06", said)
        self.assertEqual(make("lab", "N=06")[0], 0)
        code, said = make("check", "N=06")
        self.assertNotEqual(code, 0)
        self.assertIn("First step: task 1, chunk_of", said)
        first, second = make("hint", "N=06")[1], make("hint", "N=06")[1]
        self.assertIn("?", first)
        self.assertIn("hint 2 of", second)
        file.write_text(file.read_text() + "// mine\n")
        self.assertIn("stays as it is", make("lab", "N=6")[1])
        self.assertIn("// mine", file.read_text())
        dropping = next(m for m in mutants.mutants(RING) if m["name"] == "drops the remainder")
        wrong = mutants.mutate(RING, dropping, texts(RING, True))
        for name, text in wrong.items():
            (file.parent / name).write_text(text)
        code, said = make("check", "N=06", "TEST=counts")
        self.assertRegex(said, r"element \d+ on rank \d+: rank \d+ missing")
        again = re.search(r"again: make check (N=06 TEST=counts SEED=\d+)", said)
        repeated = make("check", *again.group(1).split())[1]
        self.assertEqual(re.findall(r"element .*", repeated), re.findall(r"element .*", said))
        for name, text in texts(RING, True).items():
            (file.parent / name).write_text(text)
        begun = time.monotonic()
        code, said = make("grade", "N=06", f"REPORTS={PLACE}/reports")
        self.assertEqual(code, 0, said)
        self.assertIn("100 of 100 points", said)
        self.assertEqual(sum(map(int, re.findall(r"^ +(\d+)/\d+ ", said, re.M))), 100)
        self.assertLess(time.monotonic() - begun, 600)
        self.assertEqual(json.loads((PLACE / "reports/results.json").read_text())["score"], 100)
        self.assertIn("tests passed at the last check", make("progress")[1])
        self.assertIn("The old files are in", make("reset", "N=06")[1])
        self.assertIn("kit::todo", file.read_text())

    def test_bad_words(self):
        for words, said in (("check", "name a lab"), ("check N=77", "there is no lab 77"),
                            ("grade N=06 TEST=none SUBMISSION=/", "ring.hpp does not exist"),
                            ("check N=06 SEED=1.5", "SEED=1.5 is not a whole number"),
                            ("check N=06 SEED=-1", "SEED=-1: the least is 0"),
                            ("soak N=06 ROUNDS=0", "ROUNDS=0: the least is 1"),
                            ("soak N=06 ROUNDS=9" + 40 * "9", "is not a whole number: for instance ROUNDS=200")):
            code, text = make(*words.split())
            self.assertNotEqual(code, 0)
            self.assertIn(said, text)
            self.assertLessEqual(len(text.splitlines()), 3, text)  # make adds a line

    def test_numbers_that_are_none(self):
        """One line names the word that the user typed."""
        for words, variables, said in (("check N=06 SEED=abc", {}, "SEED=abc is not a whole number"),
                                       ("soak N=06 ROUNDS=x", {}, "ROUNDS=x is not a whole number"),
                                       ("progress", {"LABS_PATIENCE": "x"}, "LABS_PATIENCE=x is not a positive number"),
                                       ("progress", {"LABS_PATIENCE": "nan"}, "LABS_PATIENCE=nan is not"),
                                       ("progress", {"LABS_PATIENCE": "-1"}, "LABS_PATIENCE=-1 is not")):
            code, text = make(*words.split(), env=variables)
            self.assertNotEqual(code, 0)
            own = [line for line in text.splitlines() if not re.match(r"make(\[\d+\])?: ", line)]
            self.assertEqual([said in line for line in own], [True], text)
        for wrong in ("x", "0", "-2", "1.5"):
            with self.assertRaises(SystemExit), mock.patch.dict(os.environ, {"LABS_JOBS": wrong}):
                grading.grade(RING, texts(RING, False), only=["chunks"])

    def test_a_checkout_that_is_read_only(self):
        from labs.course.__main__ import trouble
        for folder, word in ((lab_module.WORK / "06-ring", "LABS_WORK"), (lab_module.BUILD / "cache", "LABS_BUILD")):
            for number in (errno.EACCES, errno.EROFS):
                said = trouble(OSError(number, os.strerror(number), str(folder)))
                self.assertIn(f"'{folder}': {os.strerror(number)}: make it writable, or set {word}=/a/folder", said)
        self.assertNotIn("LABS_", trouble(OSError(errno.ENOSPC, "full", str(lab_module.WORK))))
        self.assertNotIn("LABS_", trouble(OSError(errno.EROFS, "read-only", "/etc/elsewhere")))

    def test_an_empty_file(self):
        for name in RING.files:
            report = grading.grade(RING, {**texts(RING, True), name: " \n"}, public_only=True)
            self.assertEqual({(r.status, r.message.split(":")[0]) for r in report.results},
                             {("does not compile", f"{name} is empty")})

    def test_output_that_cannot_be_written(self):
        """One line and a failure, if the disk is full; no line on the streams that are left, if one is closed."""
        for redirected, said in ((">/dev/full", "No space left on device"), (">&-", None), ("2>&-", None)):
            done = subprocess.run(["sh", "-c", f"{sys.executable} -B -m labs.course progress {redirected}"], cwd=ROOT,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 2 if said else 0, redirected)
            self.assertEqual(len(done.stderr.splitlines()), 1 if said else 0, done.stderr)
            self.assertIn(said or "", done.stderr)

    def test_ctrl_c(self):
        """It ends make check at once, although a test computes forever, and ends that test's program."""
        work = PLACE / "endless" / RING.slug
        work.mkdir(parents=True)
        for name, text in texts(RING, True).items():
            endless = r"\1  for (volatile int n = 0;;) n = n + 1;\n"
            (work / name).write_text(re.sub(r"(reduce_scatter\(.*\{\n)", endless, text, count=1))
        judge = subprocess.Popen([sys.executable, "-B", "-m", "labs.course", "check", "--lab=06", "--test=three_ranks"],
                                 cwd=ROOT, env={**os.environ, "LABS_WORK": str(work.parent)}, start_new_session=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def drivers():
            """The programs of the lab that this judge or a child of it has started."""
            tree, parents = {judge.pid}, {}
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                    parents[int(folder.name)] = int(parent) if state != "Z" else 0
                except OSError:
                    pass
            for _ in range(5):
                tree |= {pid for pid, parent in parents.items() if parent in tree}
            return [pid for pid in tree if pid in parents and "driver" in words(pid)]

        def words(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            except OSError:
                return ""
        for _ in range(2400):
            if any("06-ring-" in words(pid) or words(pid).startswith("/driver") for pid in drivers()):
                break
            time.sleep(0.05)
        started = drivers()
        self.assertNotEqual(started, [])
        os.kill(judge.pid, signal.SIGINT)
        self.assertEqual(judge.wait(20), 130)
        for _ in range(400):
            if not any("driver" in words(pid) for pid in started):
                break
            time.sleep(0.05)
        self.assertEqual([words(pid) for pid in started if "driver" in words(pid)], [])

    def test_progress_on_a_terminal(self):
        """While a submission is compiled and tested, a terminal shows a line that changes, and that is erased."""
        ours, theirs = pty.openpty()
        with open(theirs, "w") as terminal_of_a_user, mock.patch.object(sys, "stdout", terminal_of_a_user), \
             mock.patch.dict(os.environ, {"TERM": "xterm"}):
            with terminal.Progress() as progress:
                time.sleep(1.5)
                progress("2 of 7 tests have ended")
                time.sleep(1.5)
            said = ""
            while select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 65536).decode()
        os.close(ours)
        self.assertRegex(said, r"compiling, \d+ s so far")
        self.assertRegex(said, r"2 of 7 tests have ended, \d+ s so far")
        self.assertTrue(said.endswith("\r\033[K"), said)


class Reports(unittest.TestCase):
    def report(self, **status):
        results = [grading.Result(name, "A title", name == "b", 50, s, f"{s} <&> \x07 message", 0.5, 1, 7)
                   for name, s in status.items()]
        found = grading.Report(RING, results, seconds=1.25)
        found.cheat = next((r.message for r in results if r.status == "cheat"), "")
        return found

    def test_gradescope(self):
        results = reports.gradescope(self.report(a="pass", b="hang"))
        self.assertEqual(reports.schema_problems(json.loads(json.dumps(results))), [])
        self.assertEqual((results["score"], [t["status"] for t in results["tests"]]), (50, ["passed", "failed"]))
        self.assertEqual(results["tests"][1]["visibility"], "after_due_date")
        self.assertEqual(reports.gradescope(self.report(a="pass", b="cheat"))["score"], 0)

    def test_the_schema_refuses(self):
        good = reports.gradescope(self.report(a="pass"))
        self.assertEqual(reports.schema_problems(good), [])
        for change in ({"score": "50"}, {"score": float("nan")}, {"scores": 1}, {"visibility": "secret"},
                       {"score": True}, {"tests": [{"name": "x", "status": "pass"}]},
                       {"tests": [{"status": "passed", "score": 2, "max_score": 1}]}):
            self.assertTrue(reports.schema_problems({**good, **change}), change)

    def test_junit(self):
        report = self.report(a="pass", b="hang", c="crash", d="not verified", e="not attempted")
        suite = xml.fromstring(reports.junit(report))
        self.assertEqual([suite.get(k) for k in ("tests", "failures", "errors", "skipped")], ["5", "1", "2", "1"])
        self.assertEqual([[child.tag for child in case] for case in suite],
                         [[], ["failure"], ["error"], ["skipped"], ["error"]])


class Includes(unittest.TestCase):
    def test_names_in_a_rule(self):
        """The files of a rule, as g++ and clang++ write it for folders with odd names."""
        with tempfile.TemporaryDirectory(dir=PLACE) as place:
            for odd in ("plain", "a b", "#1", "$HOME", "a  b # $$ c", "Übung", "it's", "a\\b", "(x)", "a:b", "unit: x"):
                folder = pathlib.Path(place) / odd
                folder.mkdir()
                (folder / "one.hpp").write_text("")
                (folder / "two.cpp").write_text('#include "one.hpp"\n')
                subprocess.run(["g++", "-MD", "-MF", str(folder / "d"), "-MT", "unit", "-fsyntax-only",
                                str(folder / "two.cpp")], check=True)
                names = [n for n in needed((folder / "d").read_text()) if not n.startswith("/usr/include/")]
                self.assertEqual(names, [str(folder / n) for n in ("two.cpp", "one.hpp")])


class Runner(unittest.TestCase):
    """Misbehaving programs run instead of a driver."""

    def end(self, script, deadline=60):
        program = PLACE / "program"
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o755)
        return runner.observe(program, "x", {}, {"deadline": deadline, "memory_mib": 512})

    ANSWER = 'n=$(head -c 4096 <&$1 | grep -a -A1 kit.nonce | tail -1); ' \
             'b=$(printf "kit.status s 4\\ndone\\nkit.message s 0\\n\\n"; echo x); b=${b%x}; ' \
             'printf "LABS %s %d\\n%s" "$n" "${#b}" "$b" >&$2; '
    TORN = ANSWER.replace('"${#b}"', "99999")  # ends in the middle of an answer

    def test_an_answer(self):
        self.assertEqual(self.end(self.ANSWER)["kit.printed"], "")
        self.assertEqual(self.end("echo hello; " + self.ANSWER)["kit.printed"], "hello\n")

    def test_no_answer(self):
        for script, verdict, said in (("exit 0", Cheat, "status 0"), ("exit 3", Crash, "status 3"),
                                      ("kill -SEGV $$", Crash, "SIGSEGV"),
                                      ("echo PASS >&$2", Cheat, "channel"),
                                      ("echo LABS 00 5 >&$2; echo hello >&$2", Cheat, "channel"),
                                      (self.ANSWER + "echo more >&$2", Cheat, "channel"),
                                      (self.TORN + "exit 3", Crash, "status 3 without an answer"),
                                      (self.TORN + "kill -SEGV $$", Crash, "SIGSEGV"),
                                      (self.ANSWER + "exit 1", Crash, "then failed")):
            with self.assertRaises(verdict) as caught:
                self.end(script)
            self.assertIn(said, str(caught.exception))

    def test_a_sleeper_and_its_children_are_ended(self):
        begun, seconds = time.monotonic(), unique()
        with self.assertRaises(Hang):  # after 5 s, because on a busy machine a shell needs time to start
            self.end(f"sleep {seconds} & wait", deadline=5)
        self.assertLess(time.monotonic() - begun, 300)
        for _ in range(600):
            if not alive(seconds):
                return
            time.sleep(0.05)
        self.fail(f"processes {alive(seconds)} are still there")


class SwapIn(unittest.TestCase):
    """A later lab that builds on lab 06."""
    LATER = type("Later", (), {"number": "12", "build": {"uses": ["06"]}})

    def test_the_reference_or_the_students_own(self):
        own = RING.work.with_name("06-ring")
        shutil.rmtree(own, ignore_errors=True)
        with self.assertRaises(AuthorError) as caught:
            swapped_in(self.LATER)
        self.assertIn("LAB06=ref", str(caught.exception))
        os.environ["LAB06"] = "ref"
        try:
            self.assertEqual([files for _, files in swapped_in(self.LATER)], [texts(RING, True)])
        finally:
            del os.environ["LAB06"]
        own.mkdir(parents=True)
        for name in RING.files:
            (own / name).write_text("// mine")
        self.assertEqual([files for _, files in swapped_in(self.LATER)], [{name: "// mine" for name in RING.files}])
        shutil.rmtree(own)


class Accusations(unittest.TestCase):
    """An innocent student is never reported as a cheat."""

    def test_honest_code(self):
        honest = """
#include <condition_variable>
#include <future>
#include <iostream>
#include <semaphore>
#include <thread>
// asm, syscall and exit in a comment are nothing
inline std::string lab_says() {
  thread_local std::string kept = "OK, step 3 passed";
  std::counting_semaphore<4> slots(1);
  slots.acquire();
  std::atomic<int> flag = 1;
  flag.wait(0);
  std::thread([&] { std::cout << kept << std::endl; }).join();
  return kept + std::to_string(std::async([] { return 1; }).get());
}
static const std::string lab_said = lab_says();
"""
        files = texts(RING, False)
        driver, _ = build(RING, {**files, "ring.hpp": files["ring.hpp"] + honest})
        self.assertTrue(driver.exists())
        result = grading.grade(RING, {**files, "ring.hpp": files["ring.hpp"] + honest}, only=["chunks"]).results[0]
        self.assertEqual((result.status, result.message), ("not attempted", "task 1, chunk_of"))


class Judge(unittest.TestCase):
    def test_verdicts_of_the_real_driver(self):
        driver, warnings = build(RING, texts(RING, False))
        self.assertEqual(warnings, "")
        limits = {"deadline": 60, "memory_mib": 1024}
        with self.assertRaises(NotAttempted):
            runner.observe(driver, "counted", {"world": 2, "count": 4}, limits)
        with self.assertRaises(Crash) as caught:
            runner.observe(driver, "nothing of that name", {}, limits)
        self.assertIn("no scenario", str(caught.exception))

    def test_zero_tests_are_no_pass(self):
        hidden = next(name for name, _, hidden in RING.tests() if hidden)
        with self.assertRaisesRegex(AuthorError, "no test to run"):
            grading.grade(RING, texts(RING, False), only=[hidden], public_only=True)

    def test_a_test_that_does_not_exist_is_named_beside_one_that_does(self):
        with self.assertRaisesRegex(AuthorError, "no test is called none; there are: chunks, "):
            grading.grade(RING, texts(RING, False), only=["chunks", "none"])

    def test_a_test_that_runs_nothing_is_an_error(self):
        def nothing(lab):
            """Nothing."""
        with self.assertRaises(AuthorError):
            grading._one(RING, None, ("nothing", nothing, False), 1)

    def test_a_private_umask(self):
        """As root with umask 077: the user that runs the submission can still execute the driver."""
        work = PLACE / "private" / RING.slug
        work.mkdir(parents=True)
        for name, text in texts(RING, True).items():
            (work / name).write_text(text)
        done = subprocess.run(["sh", "-c", "umask 077; exec make -s check N=06 TEST=chunks"], cwd=ROOT, text=True,
                              capture_output=True, env={**os.environ, "LABS_WORK": str(work.parent),
                                                        "LABS_BUILD": str(PLACE / "private" / "build")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_nan_never_passes(self):
        from labs.course import expect
        nan = float("nan")
        with self.assertRaises(Wrong):
            expect.close("x", [nan], [1.0], 1e30)
        with self.assertRaises(Wrong):
            expect.same_bits("x", record.floats([nan]), record.floats([0]))
        expect.same_bits("x", record.floats([nan]), record.floats([nan]))

    def test_every_lab_is_in_order(self):
        for lab in all_labs():
            self.assertEqual(lab.problems(), [])
            for mutant in mutants.mutants(lab):
                mutants.mutate(lab, mutant, texts(lab, True))


if __name__ == "__main__":
    unittest.main()
