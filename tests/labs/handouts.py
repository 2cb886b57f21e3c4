#!/usr/bin/env python3
"""Tests of handouts: nothing leaks, sealed files stay sealed, and a student can work in one without the
repository.

`make handout` goes further: it builds every lab of the archive from scratch.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from common import PLACE, RING, ROOT, make

from labs.course import handout, manifest, reports
from labs.course.lab import all_labs
from labs.course.split import texts


class Handout(unittest.TestCase):
    def setUp(self):
        # A student may unpack it into any folder: the compiler escapes blanks and # in the list of a unit's includes.
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=PLACE)) / "my #1 course (ä)"
        self.labs = [lab for lab in all_labs()]
        handout.lay_out(self.labs, self.folder)

    def test_clean(self):
        self.assertEqual(handout.scan(self.folder, self.labs), [])

    def test_what_the_public_tests_import_is_there(self):
        load = "from labs.course.lab import all_labs; print(sum(len(lab.tests()) > 0 for lab in all_labs()))"
        done = subprocess.run([sys.executable, "-B", "-c", load], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), (f"{len(self.labs)}\n", ""))

    def test_what_the_drivers_include_is_there(self):
        for source in self.folder.rglob("*.[ch]*"):
            for name in re.findall(r'^\s*#\s*include\s+"((?:labs|kernels|runtime)/[^"]+)"', source.read_text(), re.M):
                self.assertTrue((self.folder / name).exists(), f"{source}: {name}")

    def test_no_dead_link(self):
        for page in self.folder.rglob("*.md"):
            for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text()):
                self.assertTrue("://" in target or (page.parent / target).exists(), f"{page}: {target}")

    def test_the_first_page(self):
        """Its commands exist, its lines fit, and it says where the chapters are that the tasks refer to."""
        page = (self.folder / "README.md").read_text()
        targets = re.findall(r"^    make ([a-z]+) ", page, re.M)
        self.assertIn("check", targets)
        offered = make("help", root=self.folder)[1]
        for target in targets:
            self.assertRegex(offered, rf"(?m)^  {target} ")
        self.assertEqual([line for line in page.splitlines() if len(line) > 120], [])
        task = (self.folder / "labs/06-ring/README.md").read_text()
        self.assertIn("`lessons/06-ring`", task)
        self.assertIn("`lessons/NN-slug`", page)

    def test_what_a_lab_builds_on_comes_with_it(self):
        for number, wanted in (("06", "06"), ("12", "06 11 12"), ("13", "01 03 04 05 06 09 10 13")):
            with unittest.mock.patch.object(handout, "handout") as made:
                handout.main([lab for lab in self.labs if lab.number == number], "handout")
            self.assertEqual(" ".join(lab.number for lab in made.call_args.args[0]), wanted)

    def test_every_planted_leak_is_found(self):
        self.folder, self.labs = self.folder.with_name("alone"), [RING]
        handout.lay_out(self.labs, self.folder)
        line = max(handout.solution_lines([RING]), key=len)
        for path, what, said in (("labs/kit/link.hpp", f"\n{line}\n", "a line of the solution"),
                                 ("labs/06-ring/hidden.py", "pass\n", "hidden test"),
                                 ("labs/06-ring/public.py", "\nseed = 77206112\n", "hidden seed"),
                                 ("labs/06-ring/unusual/x.hpp", "int x;\n", "hidden test"),
                                 ("labs/06-ring/ring.hpp", "#ifdef SOLUTION\n#endif\n", "not split"),
                                 ("labs/kit/fabric.o", "x", "an object file"),
                                 ("labs/kit/driver", "\x7fELF", "an object file"),
                                 (".git/HEAD", "ref", "history"),
                                 ("labs/course/__pycache__/lab.pyc", "x", "a build output")):
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
        """The skeleton scores zero; edited tests are reported as cheating; the workflow's
        commands run as written."""
        env = {"LABS_WORK": str(self.folder / "work")}
        self.assertEqual(make("lab", "N=06", root=self.folder, env=env)[0], 0)
        code, said = make("grade", "N=06", root=self.folder, env=env)
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"0 of \d+ tests pass, 0 of \d+ points \(\d+ points of 100 are given by tests that are "
                               "not here")
        self.assertIn("not attempted", said)
        self.assertIn("not in a handout", make("soak", root=self.folder, env=env)[1] + self.run_course("soak"))
        for name, text in texts(RING, True).items():
            (self.folder / "work/06-ring" / name).write_text(text)
        for command in workflow():
            done = subprocess.run(["bash", "-e", "-c", command], cwd=self.folder, env={**os.environ, **env},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads((self.folder / "build/reports/06/results.json").read_text())
        self.assertEqual(reports.schema_problems(results), [])
        tests = self.folder / "labs/06-ring/public.py"
        tests.write_text(tests.read_text() + "\n# edited\n")
        code, said = make("grade", "N=06", root=self.folder, env=env)
        self.assertIn("CHEAT: the tests or the kit were edited: labs/06-ring/public.py was changed", said)
        self.assertIn(", 0 of", said)
        self.assertNotEqual(code, 0)

    def run_course(self, word):
        done = subprocess.run([sys.executable, "-B", "-m", "labs.course", word], cwd=self.folder,
                              capture_output=True, text=True)
        return done.stderr


def workflow():
    """Returns the commands of classroom.yml, as written there."""
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


if __name__ == "__main__":
    unittest.main()
