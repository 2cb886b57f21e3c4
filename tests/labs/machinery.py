#!/usr/bin/env python3
"""Tests of the labs' machinery itself, lab by lab independent; python3 tests/labs/machinery.py [-v] [TestName].

What needs a compiler uses lab 06 and the cache of LABS_BUILD. `make handout` and `make grade-the-grader` go further.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True
PLACE = pathlib.Path(tempfile.mkdtemp(prefix="labs-test-"))
os.environ["LABS_WORK"] = str(PLACE / "work")
os.environ.setdefault("LABS_BUILD", str(ROOT / "build" / "labs"))

from labs.course import grading, handout, manifest, mutants, record, reports, runner  # noqa: E402
from labs.course.build import build, swapped_in  # noqa: E402
from labs.course.lab import all_labs, select  # noqa: E402
from labs.course.split import split, texts  # noqa: E402
from labs.course.verdicts import AuthorError, Cheat, Crash, Hang, NotAttempted, Wrong  # noqa: E402

RING, = select("06")


def make(*words, root=ROOT, env=None):
    done = subprocess.run(["make", "-s", *words], cwd=root, capture_output=True, text=True, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout + done.stderr


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
        values = {"i": -5, "d": 0.1, "s": "a\nb é", "B": b"\0\n1", "I": [1, -2], "D": [0.5], "F": record.floats([1.5, 2]), "e": []}
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
        wrong = mutants.mutate(RING, next(m for m in mutants.mutants(RING) if m["name"] == "drops the remainder"), texts(RING, True))
        for name, text in wrong.items():
            (file.parent / name).write_text(text)
        code, said = make("check", "N=06", "TEST=counts")
        self.assertRegex(said, r"element \d+ on rank \d+: rank \d+ missing")
        again = re.search(r"again: make check (N=06 TEST=counts SEED=\d+)", said)
        self.assertEqual(re.findall(r"element .*", make("check", *again.group(1).split())[1]), re.findall(r"element .*", said))
        for name, text in texts(RING, True).items():
            (file.parent / name).write_text(text)
        begun = time.monotonic()
        code, said = make("grade", "N=06", f"REPORTS={PLACE}/reports")
        self.assertEqual(code, 0, said)
        self.assertIn("100 of 100 points", said)
        self.assertEqual(sum(map(int, re.findall(r"^ +(\d+)/\d+ ", said, re.M))), 100)
        self.assertLess(time.monotonic() - begun, 120)
        self.assertEqual(json.loads((PLACE / "reports/results.json").read_text())["score"], 100)
        self.assertIn("tests passed at the last check", make("progress")[1])
        self.assertIn("What was there is in", make("reset", "N=06")[1])
        self.assertIn("kit::todo", file.read_text())

    def test_bad_words(self):
        for words, said in (("check", "which lab"), ("check N=77", "there is no lab 77"), ("grade N=06 TEST=none SUBMISSION=/", "ring.hpp is not there")):
            code, text = make(*words.split())
            self.assertNotEqual(code, 0)
            self.assertIn(said, text)


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
        for change in ({"score": "50"}, {"score": float("nan")}, {"scores": 1}, {"visibility": "secret"}, {"score": True},
                       {"tests": [{"name": "x", "status": "pass"}]}, {"tests": [{"status": "passed", "score": 2, "max_score": 1}]}):
            self.assertTrue(reports.schema_problems({**good, **change}), change)

    def test_junit(self):
        suite = xml.fromstring(reports.junit(self.report(a="pass", b="hang", c="crash", d="not verified", e="not attempted")))
        self.assertEqual([suite.get(k) for k in ("tests", "failures", "errors", "skipped")], ["5", "1", "2", "1"])
        self.assertEqual([[child.tag for child in case] for case in suite], [[], ["failure"], ["error"], ["skipped"], ["error"]])


class Runner(unittest.TestCase):
    """Programs that do not behave, in place of a driver."""

    def end(self, script, deadline=3):
        program = PLACE / "program"
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o755)
        return runner.observe(program, "x", {}, {"deadline": deadline, "memory_mib": 512})

    ANSWER = 'n=$(head -c 4096 <&$1 | grep -a -A1 kit.nonce | tail -1); b=$(printf "kit.status s 4\\ndone\\nkit.message s 0\\n\\n"; echo x); ' \
             'b=${b%x}; printf "LABS %s %d\\n%s" "$n" "${#b}" "$b" >&$2; '

    def test_an_answer(self):
        self.assertEqual(self.end(self.ANSWER)["kit.printed"], "")
        self.assertEqual(self.end("echo hello; " + self.ANSWER)["kit.printed"], "hello\n")

    def test_no_answer(self):
        for script, verdict, said in (("exit 0", Cheat, "status 0"), ("exit 3", Crash, "status 3"), ("kill -SEGV $$", Crash, "SIGSEGV"),
                                      ("echo PASS >&$2", Cheat, "channel"), ("echo LABS 00 5 >&$2; echo hello >&$2", Cheat, "channel"),
                                      (self.ANSWER + "echo more >&$2", Cheat, "channel"), (self.ANSWER + "exit 1", Crash, "not end well")):
            with self.assertRaises(verdict) as caught:
                self.end(script)
            self.assertIn(said, str(caught.exception))

    def test_a_sleeper_and_its_children_are_ended(self):
        begun = time.monotonic()
        with self.assertRaises(Hang):
            self.end(f"sleep 300 & echo $! > {PLACE}/child; wait", deadline=0.5)
        self.assertLess(time.monotonic() - begun, 10)
        child = int((PLACE / "child").read_text())
        for _ in range(100):
            state = pathlib.Path(f"/proc/{child}/stat")
            if not state.exists() or state.read_text().split()[2] == "Z":
                return
            time.sleep(0.05)
        self.fail(f"process {child} is still there")


class Handout(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=PLACE)) / "course"
        self.labs = [lab for lab in all_labs()]
        handout.lay_out(self.labs, self.folder)

    def test_clean(self):
        self.assertEqual(handout.scan(self.folder, self.labs), [])

    def test_every_planted_leak_is_found(self):
        line = max(handout.solution_lines([RING]), key=len)
        for path, what, said in (("labs/kit/link.hpp", f"\n{line}\n", "a line of the solution"),
                                 ("labs/06-ring/hidden.py", "pass\n", "hidden test"),
                                 ("labs/06-ring/public.py", "\nseed = 77206112\n", "hidden seed"),
                                 ("labs/06-ring/unusual/x.hpp", "int x;\n", "hidden test"),
                                 ("labs/06-ring/ring.hpp", "#ifdef SOLUTION\n#endif\n", "not split"),
                                 ("labs/kit/fabric.o", "x", "an object file"), ("labs/kit/driver", "\x7fELF", "an object file"),
                                 (".git/HEAD", "ref", "history"), ("labs/course/__pycache__/lab.pyc", "x", "was built")):
            target = self.folder / path
            before = target.read_bytes() if target.exists() else None
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "a") as file:
                file.write(what)
            found = handout.scan(self.folder, self.labs)
            self.assertTrue(any(said in f and path.split("/")[0] in f for f in found), f"{path}: {found}")
            if before is None:
                top = self.folder / ".git" if path.startswith(".git") else target
                shutil.rmtree(top) if top.is_dir() else top.unlink()
                for folder in (target.parent, ):
                    if folder.exists() and not any(folder.iterdir()):
                        folder.rmdir()
            else:
                target.write_bytes(before)
        self.assertEqual(handout.scan(self.folder, self.labs), [])

    def test_the_seal(self):
        self.assertEqual(manifest.broken(self.folder), [])
        tests = self.folder / "labs/06-ring/public.py"
        tests.write_text(tests.read_text().replace("expect.each_once", "(lambda *a, **k: None)"))
        self.assertEqual(manifest.broken(self.folder), ["labs/06-ring/public.py was changed"])

    def test_a_student_with_a_handout(self):
        """The skeleton scores zero; edited tests are said to be a cheat; the workflow's commands run as written."""
        env = {"LABS_WORK": str(self.folder / "work")}
        self.assertEqual(make("lab", "N=06", root=self.folder, env=env)[0], 0)
        code, said = make("grade", "N=06", root=self.folder, env=env)
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"0 of \d+ tests pass, 0 of \d+ points \(\d+ points of 100 are given by tests that are not here")
        self.assertIn("not attempted", said)
        self.assertIn("not in a handout", make("soak", root=self.folder, env=env)[1] + self.run_course("soak"))
        for name, text in texts(RING, True).items():
            (self.folder / "work/06-ring" / name).write_text(text)
        for command in workflow():
            done = subprocess.run(["bash", "-e", "-c", command], cwd=self.folder, env={**os.environ, **env}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(reports.schema_problems(json.loads((self.folder / "build/reports/06/results.json").read_text())), [])
        tests = self.folder / "labs/06-ring/public.py"
        tests.write_text(tests.read_text() + "\n# edited\n")
        code, said = make("grade", "N=06", root=self.folder, env=env)
        self.assertIn("CHEAT: the tests or the kit were edited: labs/06-ring/public.py was changed", said)
        self.assertIn(", 0 of", said)
        self.assertNotEqual(code, 0)

    def run_course(self, word):
        done = subprocess.run([sys.executable, "-B", "-m", "labs.course", word], cwd=self.folder, capture_output=True, text=True)
        return done.stderr


def workflow():
    """The commands of classroom.yml, as they are written there."""
    lines = (ROOT / "labs/course/classroom.yml").read_text().splitlines()
    found = []
    for number, line in enumerate(lines):
        head = re.match(r"( +)run: (.*)", line)
        if head and head.group(2) != "|":
            found.append(head.group(2))
        elif head:
            block = []
            for inner in lines[number + 1:]:
                if inner.strip() and len(inner) - len(inner.lstrip()) <= len(head.group(1)):
                    break
                block.append(inner[len(head.group(1)) + 2:])
            found.append("\n".join(block))
    assert len(found) == 2, found
    return found


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


class Judge(unittest.TestCase):
    def test_verdicts_of_the_real_driver(self):
        driver, warnings = build(RING, texts(RING, False))
        self.assertEqual(warnings, "")
        limits = {"deadline": 5, "memory_mib": 1024}
        with self.assertRaises(NotAttempted):
            runner.observe(driver, "counted", {"world": 2, "count": 4}, limits)
        with self.assertRaises(Crash) as caught:
            runner.observe(driver, "nothing of that name", {}, limits)
        self.assertIn("no scenario", str(caught.exception))

    def test_zero_tests_are_no_pass(self):
        with self.assertRaises(AuthorError):
            grading.grade(RING, texts(RING, False), only=["none"])

    def test_a_test_that_runs_nothing_is_an_error(self):
        def nothing(lab):
            """Nothing."""
        with self.assertRaises(AuthorError):
            grading._one(RING, None, ("nothing", nothing, False), 1)

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
    try:
        unittest.main()
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
