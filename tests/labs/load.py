#!/usr/bin/env python3
"""The judge on a busy machine: python3 tests/labs/load.py [-v] [TestName]; LABS=06,20: other labs, with all tests.

Eight busy loops run on one core, on which the judge and all its runs have to run, too, with a lower priority: they
get a few percent of it. A model solution gets full points all the same, and a run that hangs is reported as one: after
its deadline if it sleeps, and after its deadline in processor time if it loops.
"""
import os
import pathlib
import subprocess
import sys
import time
import unittest

from common import PLACE

from labs.course import runner
from labs.course.build import build
from labs.course.grading import _one
from labs.course.lab import select
from labs.course.mutants import references
from labs.course.split import texts
from labs.course.verdicts import Hang

LOOPS = 8
LOWER = 5                # by how much the judge's nice value is higher than that of the loops
# Tests with many hand-offs, long computations, and timed waits, which were the first to fail under load.
CASES = {"06": ["two_hundred_calls"], "08": ["together"], "19": ["real_threads"], "20": ["trainings"]}
ANSWER = 'n=$(head -c 4096 <&$1 | grep -a -A1 kit.nonce | tail -1); ' \
         'b=$(printf "kit.status s 4\\ndone\\nkit.message s 0\\n\\n"; echo x); b=${b%x}; ' \
         'printf "LABS %s %d\\n%s" "$n" "${#b}" "$b" >&$2; '


def chosen():
    """(lab, names of tests, driver of the solution) of each case; builds before the load begins."""
    words = os.environ.get("LABS", "")
    cases = dict.fromkeys(words.split(",")) if words else CASES
    for number, names in cases.items():
        lab, = select(number)
        driver, _ = build(lab, texts(lab, True), references(lab))
        for name in names or [t[0] for t in lab.tests()]:
            yield lab, next(t for t in lab.tests() if t[0] == name), driver


class Busy:
    @classmethod
    def setUpClass(cls):
        cls.prepare()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        cls.loops = [subprocess.Popen([sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"])
                     for _ in range(LOOPS)]
        os.nice(LOWER)

    @classmethod
    def prepare(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        for loop in cls.loops:
            loop.kill()
            loop.wait()


class Verdicts(Busy, unittest.TestCase):
    def ended(self, script, deadline):
        """Runs a script in place of a driver. Returns (its reply, its verdict)."""
        program = pathlib.Path(PLACE) / "program"
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o755)
        limits = {"deadline": deadline, "memory_mib": 512}
        reply = runner.run(program, "x", {}, limits)
        try:
            runner._judge(reply)
        except Hang as hang:
            return reply, str(hang)
        return reply, "done"

    def test_a_slow_run_is_no_hang(self):
        # More seconds by the wall clock than its deadline and its grace have, but fewer of processor time.
        reply, verdict = self.ended("while ((SECONDS < 8)); do :; done; " + ANSWER, deadline=4)
        self.assertEqual(verdict, "done")
        self.assertGreater(reply.seconds, 4 + runner.GRACE)
        self.assertLess(reply.granted, 4)

    def test_a_sleeper_hangs(self):
        reply, verdict = self.ended("sleep 3600", deadline=2)
        self.assertIn("no answer after", verdict)
        self.assertLess(reply.granted, 2 + runner.GRACE + 3)
        self.assertLess(reply.seconds, 120)

    def test_a_loop_hangs(self):
        reply, verdict = self.ended("while :; do :; done", deadline=1)
        self.assertIn("no answer after", verdict)
        self.assertLess(reply.granted, 1 + runner.GRACE + 3)
        self.assertLess(reply.seconds, runner.LONGEST)


class Models(Busy, unittest.TestCase):
    @classmethod
    def prepare(cls):
        cls.cases = list(chosen())

    def test_model_solutions_get_full_points(self):
        for lab, test, driver in self.cases:
            with self.subTest(lab=lab.slug, test=test[0]):
                begun = time.monotonic()
                result = _one(lab, driver, test, None)
                print(f"  {lab.number} {test[0]:20} {result.status}, {time.monotonic() - begun:.1f} s", flush=True)
                self.assertEqual((result.status, result.message), ("pass", ""))


if __name__ == "__main__":
    unittest.main()
