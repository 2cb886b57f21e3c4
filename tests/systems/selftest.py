#!/usr/bin/env python3
"""Tests of the checks in tests/systems, and of our refusal of systems that are too old: selftest.py [-v] [Name]."""
import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import commands  # noqa: E402
import contributing  # noqa: E402
import includes  # noqa: E402


def names(script):
    return [name for _, name in commands.Shell(script).commands()]


class Commands(unittest.TestCase):
    def test_where_commands_stand(self):
        for script, wanted in [
            ("a | b && c; d & e || f\ng", "abcdefg"),
            ("x=$(a | b) y=`c` d --e f", "abcd"),
            ("if a; then b; elif ! c; then d; else e; fi", "abcde"),
            ("for i in 1 2; do a; done; while b; do c; done < d", "abc"),
            ("for ((i = 0; i < n; ++i)); do a; done; (( x += 1 )); b $((c + d))", "ab"),
            ('case $x in a | b) c ;; "d)") e ;; *) f ;; esac; g', "cefg"),
            ("a 'b; c' \"d; $(e \"f\")\" # g; h\ni", "eai"),
            ("a << END\nb; c\nEND\nd <<- 'E'\n\tf\n\tE\ng", "adg"),
            ("f() { a; }; f; b=(c d $(e)) g", "aeg"),
            ("A=1 env -i B=2 c; sudo -n d; timeout --kill-after=5 9 e; unshare -m --propagation private f", "cdef"),
            ("bash -c 'a | b'; trap 'c; d' EXIT; exec e > f 2>&1", "abcde"),
            ("diff <(a) <(b) > c; ${D:-e} f; ./g; /h; $i; \"$j\"/k", "ab"),
            ("[ -f a ] && [[ b == c ]] && echo d | e", "e"),
        ]:
            found = [n for n in names(script) if n not in ("env", "sudo", "timeout", "unshare", "bash", "diff")]
            self.assertEqual("".join(found), wanted, script)

    def test_makefiles_documents_and_python(self):
        self.assertEqual(commands.of_makefile("A := $(shell x)\nb: c\n\t@d $(if $(E),f) && \\\n\t  g\n\n\t-h\n"),
                         [(3, "d"), (3, "g"), (6, "h")])
        self.assertEqual(commands.of_markdown("```console\n$ a | b\nc\n$ d \\\n    e\n```\n```cpp\n$ f\n```\n"),
                         [(2, "a"), (2, "b"), (4, "d")])
        self.assertEqual(commands.of_python("import subprocess\nsubprocess.run(['a', b])\nrun(c)\nrun('d | e', shell=True)\n"),
                         [(2, "a"), (4, "d"), (4, "e")])
        self.assertEqual(commands.of_cpp('run_program({"a", "b"}, 9);\n{"sh", "-c",\n  "c; \\"$x\\" | d" + e}; popen(("f " + g).c_str(), "r");'),
                         [(1, "a"), (2, "c"), (2, "d"), (3, "f")])

    def test_what_a_script_looks_for_is_no_fault(self):
        self.assertEqual(commands.looked_for("command -v a > b || c\nfor x in d e; do\n  command -v $x || f\ndone\n"), {"a", "d", "e"})

    def test_a_forgotten_package_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {"Makefile": "PACKAGES := g++\na:\n\t@.ci/deps $(PACKAGES)\n", ".ci/deps": "#!/bin/sh\n",
                               "labs/course/labs.mk": "", "labs/apps/perf/programs.cpp": "",
                               "lessons/01-x/README.md": "```console\n$ seq 3 | paste -sd+ | bc\n6\n```\n"}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            subprocess.run(["git", "init", "-q", name], check=True)

            def check():
                done = subprocess.run([sys.executable, HERE / "commands.py", "--root", name], capture_output=True, text=True)
                return done.returncode, done.stdout.strip()
            self.assertEqual(check(), (1, "lessons/01-x/README.md:2: bc: no list has its package, bc"))
            (root / "Makefile").write_text("PACKAGES := g++ bc\n")
            self.assertEqual(check()[0], 0)


class Includes(unittest.TestCase):
    def test_a_missing_header_is_found_and_added(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "a.hpp").write_text("#pragma once\n\n#include <vector>\n\nstd::vector<std::uint8_t> a();\n")
            (root / "b.cpp").write_text('#include "a.hpp"\n\n// std::map\nauto b = std::make_unique<int>(a().size()); std::uint8_t c;\n')
            subprocess.run(["git", "init", "-q", name], check=True)
            sources = includes.Sources(root)
            self.assertEqual(sources.missing("a.hpp"), ["cstdint"])
            self.assertEqual(sources.missing("b.cpp"), ["cstdint", "memory"])
            if shutil.which("clang-format"):
                subprocess.run([sys.executable, HERE / "includes.py", "--fix", "--root", name], check=True, capture_output=True)
                self.assertIn("#include <cstdint>\n#include <vector>\n", (root / "a.hpp").read_text())
                self.assertIn("#include <memory>\n", (root / "b.cpp").read_text())
                self.assertNotIn("cstdint", (root / "b.cpp").read_text())


    def test_a_name_of_another_version_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            (pathlib.Path(name) / "a.cpp").write_text('auto a = Catch::Contains("x");\n')
            subprocess.run(["git", "init", "-q", name], check=True)
            done = subprocess.run([sys.executable, HERE / "includes.py", "--root", name], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout.split(": ")[:2]), (1, ["a.cpp", "Catch::Contains"]))


class Contributing(unittest.TestCase):
    def test_what_no_longer_exists(self):
        tree = contributing.Tree(ROOT)
        for line, fault in [
            ("`kernels/clamp.hpp`, `RINGSMITH_KERNEL(clamp, ClampFn)`, `types/collective.hpp`, [x](labs/README.md)", None),
            ("`labs/NN-slug/`, `NAME.hpp`, `build/release/x`, words/and words.md outside of code", None),
            ("`kernel/clamp.hpp`", "there is no kernel/softmax.hpp"),
            ("`.ci/lynt`", "there is no .ci/lynt"),
            ("[x](labs/READ.md#files)", "there is no labs/READ.md"),
            ("`kParallel" + "Grains`", "no source has the name kParallel" + "Grains"),
            ("```\nninja tests_kernel\n```", "tests_kernel: there is no folder tests/kernel"),
            ("`lesson00_whose`", "lesson00_whose: there is no lessons/00-.../whose.cpp"),
        ]:
            found = contributing.faults(line, tree)
            with self.subTest(line):
                self.assertEqual([f.split(": ", 1)[1] for f in found[:1]], [fault] if fault else [])


class Units(unittest.TestCase):
    def test_a_name_of_two_sources_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "Unity").mkdir()
            for name, function in [("a", "f(int x)"), ("b", "f(double x)"), ("c", "g()")]:
                (folder / f"{name}.cpp").write_text("namespace {\n\nint " + function + " { return 1; }\n\n}  // namespace\n")
            for sources, code in [("ac", 0), ("abc", 1)]:
                unit = folder / "Unity/unity_1.cxx"
                unit.write_text("".join(f'#include "{folder}/{name}.cpp"\n' for name in sources))
                (folder / "compile_commands.json").write_text(f'[{{"file": "{unit}"}}]')
                done = subprocess.run([sys.executable, HERE / "units.py", folder], capture_output=True, text=True)
                self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn("f() is in the unnamed namespaces of", done.stdout)


class TooOld(unittest.TestCase):
    def test_a_compiler(self):
        with tempfile.TemporaryDirectory() as name:
            fake = pathlib.Path(name) / "g++"  # reports that it is g++ 11, as on Ubuntu 22.04
            fake.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} -U__GNUC__ -D__GNUC__=11 "$@"\n')
            fake.chmod(0o755)
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("CMAKE_", "CXX", "CC"))}
            done = subprocess.run(["cmake", "-S", ROOT, "-B", f"{name}/build", f"-DCMAKE_CXX_COMPILER={fake}"], env=environment,
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            said = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
            self.assertEqual(len(said), 1, done.stderr)
            self.assertRegex(said[0], r"^g\+\+ 11\.[0-9.]+ is too old: use g\+\+ 12 or clang\+\+ 14 or newer \(CXX=\.\.\.\)$")

    def test_a_python(self):
        """Any version that can parse the file reports that it is too old, before it imports modules that
        old versions lack."""
        for name in ("__init__", "__main__"):
            ast.parse((ROOT / f"labs/course/{name}.py").read_text(), feature_version=(3, 7))
        say = "import sys, runpy; sys.version_info = (3, 10, 12); sys.modules['tomllib'] = None; " \
              "sys.argv = ['labs', 'progress']; runpy.run_module('labs.course', run_name='__main__')"
        done = subprocess.run([sys.executable, "-c", say], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "labs: python3 is 3.10.12, but the labs need 3.11 or newer: put it first in PATH\n")

    def test_a_python_of_the_lessons(self):
        for name, program in (("figures", "check"), ("ledger", "ledger")):
            say = f"import sys, runpy; sys.path.insert(0, 'tests/lessons'); sys.modules['tomllib'] = None; " \
                  f"sys.argv = ['{program}', 'text']; runpy.run_path('tests/lessons/{program}.py', run_name='__main__')"
            done = subprocess.run([sys.executable, "-c", say], cwd=ROOT, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stderr, f"lessons: this needs Python 3.11 or newer: python3 is {sys.version.split()[0]}\n", name)


class Rows(unittest.TestCase):
    def run_sh(self, *words, **more):
        return subprocess.run([HERE / "run.sh", *words], capture_output=True, text=True, **more)

    def test_they_are_listed_and_an_unknown_one_is_one_line(self):
        rows = [line.split()[0] for line in self.run_sh("--list").stdout.splitlines()]
        for row in ("bookworm-g++", "bookworm-clang", "trixie-g++", "trixie-clang", "sid-g++", "sid-clang"):
            self.assertIn(row, rows)
        done = self.run_sh("jessie")
        self.assertEqual((done.returncode, done.stderr), (6, f"systems: no row 'jessie'; there are: {' '.join(rows)}\n"))

    def test_without_root_it_is_one_line(self):
        done = self.run_sh("trixie-g++", env={**os.environ, "BASH_FUNC_id%%": "() { echo 1000; }"})
        self.assertEqual((done.returncode, done.stderr),
                         (6, "systems: needs root to make systems and to enter them: sudo make test-systems\n"))


if __name__ == "__main__":
    unittest.main()
