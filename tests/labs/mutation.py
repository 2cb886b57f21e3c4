#!/usr/bin/env python3
"""Tests of make mutate: which mutants are made, their stable ids, many mutants in one program, and which mutants are not
excused.

It needs libclang's Python module, which Debian gives to /usr/bin/python3 only; without it the test is skipped (77).
"""
import os
import pathlib
import subprocess
import sys
import types
import unittest

from common import PLACE

from labs.course.lab import select
from labs.course.split import split
from labs.course.verdicts import AuthorError

try:
    from labs.course import mutate, mutators, schema
except AuthorError as error:
    if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])
    print(f"skipped: {error}")
    sys.exit(77)

ANNOTATED = """#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
inline std::optional<int> half(int n) { return n % 2 == 0 ? std::optional(n / 2) : std::nullopt; }
inline int given(int a) { return a + 5; }
inline std::int64_t sum(std::int64_t n, int rank) {
#ifdef SOLUTION
  std::int64_t total = 0;
  for (std::int64_t i = 1; i <= n; ++i) {
    total += i;
    if (total > 1000) break;
  }
  return total - rank;
#else
  return 0;
#endif
}
inline int large_and_even(int n) {
#ifdef SOLUTION
  if (n > 9 && half(n)) return 1;
#endif
  return 0;
}
inline void wait_for_rank(int peer) { (void)peer; }
inline double scaled(double value, double rate, int peer) {
#ifdef SOLUTION
  double result = 0;
  try {
    if (peer > 100)
      result = value + rate;
    else
      result = value * rate;
    wait_for_rank(peer);
    if (rate < 0) throw std::invalid_argument("rank " + std::to_string(peer));
  } catch (...) {
    result = value;
  }
  return result;
#else
  return 0;
#endif
}
inline void publish(std::atomic<int>& flag, int& data) {
#ifdef SOLUTION
  data = 7;
  flag.store(1, std::memory_order_release);
#endif
}
"""
MAIN = """#include "text.hpp"
#include <cstdio>
int main() {
  std::atomic<int> flag = 0;
  int data = 0;
  publish(flag, data);
  std::printf("%d %d %d %d %g", int(sum(4, 1)), data, flag.load(), large_and_even(4), scaled(2, 3, 1));
}
"""


def made(annotated, name="made"):
    folder = PLACE / name
    folder.mkdir(exist_ok=True)
    solution = split(annotated, True)
    (folder / "text.hpp").write_text(solution)
    (folder / "main.cpp").write_text(MAIN)
    source = mutators.Source("text.hpp", solution, mutators.own_lines(annotated, "text.hpp"), folder / "text.hpp")
    flags = ["-std=c++20", "-x", "c++", *mutators.resources()]
    return solution, mutators.mutants_of([source], [(folder / "main.cpp", flags)])


def said(folder, name):
    return subprocess.run([str(folder / name)], capture_output=True, text=True, check=True, timeout=10).stdout


class Mutators(unittest.TestCase):
    def test_what_is_made(self):
        _, mutants = made(ANNOTATED)
        changes = {(m.operator, m.old, m.put) for m in mutants}
        for wanted in [("relation", "<=", "<"), ("relation", ">", ">="), ("constant", "1", "0"),
                       ("narrow", "int64_t", "int16_t"),
                       ("assignment", "+=", "="), ("jump", "break", "continue"), ("rank", "rank", "0"),
                       ("order", "memory_order_release", "memory_order_relaxed"),
                       ("state", "std::int64_t", "static std::int64_t"),
                       ("deleted", "data = 7", "(void)0"), ("variable", "i", "total")]:
            self.assertIn(wanted, changes)
        self.assertTrue(any(m.operator == "moved" and "memory_order" in m.old for m in mutants))
        self.assertFalse([m for m in mutants if "5" in m.old], "a line that the student is given was changed")

    def test_kinds_that_attacks_found(self):
        changes = {(m.operator, m.old, m.put) for m in made(ANNOTATED, "kinds")[1]}
        for wanted in [("exception", "...", "const std::exception&"), ("exception", "invalid_argument", "out_of_range"),
                       ("zero", "result = value * rate", "rate != 0 ? void(result = value * rate) : void()"),
                       ("sign", "value * rate", "((value * rate) + 0)"),
                       ("sign", "value * rate", "((value * rate) + 0 * (value * rate))"),
                       ("wait", "peer", "(peer) + 1"), ("report", "peer", "(peer) + 1")]:
            self.assertIn(wanted, changes)

    def test_ids_last(self):
        ids = [m.id for m in made(ANNOTATED)[1]]
        self.assertEqual(len(ids), len(set(ids)))
        moved = ANNOTATED.replace("#pragma once\n", "#pragma once\n// one line more\n\n")
        self.assertEqual([m.id for m in made(moved, "moved")[1]], ids)
        other = ANNOTATED.replace("return total - rank;", "return total - 2 * rank;")
        lost = set(ids) - {m.id for m in made(other, "other")[1]}
        self.assertTrue(lost and all("return total - rank" in one for one in lost))


class Schema(unittest.TestCase):
    def test_each_mutant_behaves_as_it_does_alone(self):
        solution, mutants = made(ANNOTATED, "schema")
        numbered = [(n, m) for n, m in enumerate(mutants, 1) if m.form]
        folder = PLACE / "schema"
        files, left_out = schema.schema({"text.hpp": solution}, numbered)
        (folder / "text.hpp").write_text(files["text.hpp"])
        program = folder / "all"
        subprocess.run(["g++", "-std=c++20", "-w", str(folder / "main.cpp"), "-o", str(program)], check=True)
        self.assertEqual(said(folder, "all"), "9 7 1 0 6")
        for operator, old, put in [("relation", "<=", "<"), ("deleted", "data = 7", "(void)0"), ("rank", "rank", "0")]:
            number, mutant = next(i for i in numbered if (i[1].operator, i[1].old, i[1].put) == (operator, old, put))
            self.assertNotIn(number, left_out)
            os.link(program, folder / f"m{number}")
            (folder / "text.hpp").write_text(mutant.apply({"text.hpp": solution})["text.hpp"])
            subprocess.run(["g++", "-std=c++20", "-w", str(folder / "main.cpp"), "-o", str(folder / "alone")],
                           check=True)
            self.assertNotEqual(said(folder, "alone"), "9 7 1 0 6")
            self.assertEqual(said(folder, f"m{number}"), said(folder, "alone"))

    def test_what_is_reached(self):
        solution, mutants = made(ANNOTATED, "reached")
        numbered = [(n, m) for n, m in enumerate(mutants, 1) if m.form]
        folder = PLACE / "reached"
        files, left_out = schema.schema({"text.hpp": solution}, numbered)
        (folder / "text.hpp").write_text(files["text.hpp"])
        subprocess.run(["g++", "-std=c++20", "-w", str(folder / "main.cpp"), "-o", str(folder / "reach")], check=True)
        printed = said(folder, "reach")
        self.assertTrue(printed.endswith("9 7 1 0 6"), printed)
        reached = set(map(int, schema.REACHED.findall(printed)))
        for text, wanted in (("data = 7;", True), ("result = value * rate;", True), ("result = value;", False),
                             ("result = value + rate;", False)):
            found = [n in reached for n, m in numbered if m.line == text and n not in left_out]
            self.assertTrue(found and all(one == wanted for one in found), (text, found))

    def test_two_files_in_one_program(self):
        solution, mutants = made(ANNOTATED, "two")
        folder = PLACE / "two"
        files, _ = schema.schema({"text.hpp": solution, "more.hpp": "#pragma once\n"}, [(1, next(m for m in mutants if m.form))])
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "both.cpp").write_text('#include "more.hpp"\n#include "main.cpp"\n')
        subprocess.run(["g++", "-std=c++20", "-w", "-fsyntax-only", str(folder / "both.cpp")], check=True)

    def test_the_compiler_blames_whoever_it_was(self):
        text = "/*1*/ a\ncapture([&, (\n/*2*/which ? b :\n(c))] {\nreturn d;"
        for line, blamed in ((1, {1}), (2, {2}), (3, {2}), (5, {2})):
            for words in (" error: no", "   required from here"):
                self.assertEqual(schema.culprits({"a.hpp": text}, f"/tmp/a.hpp:{line}:9:{words}"), blamed, line)


class Report(unittest.TestCase):
    def test_a_survivor_needs_a_reason_and_a_reason_its_survivor(self):
        _, mutants = made(ANNOTATED)
        one, other = mutants[:2]
        found = [(one, mutate.Outcome("survived")), (other, mutate.Outcome("wrong", "a_test"))]
        lab = types.SimpleNamespace(slug="00-none")
        def trouble(on_file):
            return mutate.report(lab, mutants, found, on_file, 1.0)[1]
        self.assertIn("no test fails", trouble({})[0])
        self.assertEqual(trouble({one.id: "a reason"}), [])
        self.assertIn("is killed by a test", trouble({one.id: "a reason", other.id: "a reason"})[0])
        self.assertIn("is no longer a mutant", trouble({one.id: "a reason", "123456 old": "a reason"})[0])

    def test_reasons_on_file_are_words(self):
        lab = types.SimpleNamespace(slug="00-none", folder=PLACE)
        pathlib.Path(PLACE / "survivors.toml").write_text('[[survivor]]\nreason = "hard"\nmutants = ["x"]\n')
        with self.assertRaises(AuthorError):
            mutate.survivors_on_file(lab)
        for lab in select(""):
            mutate.survivors_on_file(lab)


if __name__ == "__main__":
    unittest.main()
