#!/usr/bin/env python3
"""A check that cannot fail is useless: plants each kind of fault in a small lesson, and requires
that it is found.

Each case: a name, the change to a correct lesson, and words of the line that must be reported.
"""
import pathlib
import re
import sys
import tempfile

import commands
import compare
import decks
import figures
import ledger
import links
import quotes
import shape
import terms
from lesson import Fault, Lesson

GOOD = """# 06 Test

## The question

What is a **wheel**? See [a file](code.cpp) and [here](#the-code).

## The code

<!-- quote: lessons/06-test/code.cpp twice -->
```cpp
int twice(int x) {
  return 2 * x;
}
```

```console
$ echo 'one 1.5'; echo two
one 1.5
two
```
<!-- holds: row("one")[0] > 1 -->

```console
$ cd lessons/figures
$ export WHICH=ring_3.svg
$ ls $WHICH
ring_3.svg
```

*Measured on a machine, 2026-01-01.*
```console measured
$ echo 'size 4 took 1.5 us'
size 4 took 9.9 us
```

## Words

- **wheel** (wheels): a thing that turns.
"""
CODE = """// Helps.
#include <cstdio>

int twice(int x) {
  return 2 * x;
}
"""
CASES = [
    ("output changed", "\ntwo\n", "\nthree\n", "prints something else"),
    ("line missing", "one 1.5\ntwo\n", "one 1.5\n", "prints something else"),
    ("exit code", "; echo two", "; echo two; exit 3", "exited with 3"),
    ("a loop without end", "; echo two", "; until [ -e . ]; do sleep 1; done; echo two", "this loop never ends"),
    ("another folder", "$ cd lessons/figures\n", "", "exited with 2"),
    ("another environment", "$ export WHICH=ring_3.svg\n", "", "prints something else"),
    ("claim false", "[0] > 1", "[0] > 2", "does not hold"),
    ("claim without its line", 'row("one")', 'row("four")', "no line of the output"),
    ("whole number of a measured block", "size 4 took 9.9", "size 5 took 9.9", "prints something else"),
    ("measured without machine", "*Measured on a machine, 2026-01-01.*", "Measured.", "needs the line above it"),
    ("recorded without machine", "console measured", "console recorded", "needs the line above it"),
    ("unknown mark", "console measured", "console mesured", "unknown mark"),
    ("no prompt", "$ echo 'size", "echo 'size", "begins with '$ COMMAND'"),
    ("other shell block", "```console\n$ echo 'one", "```sh\n$ echo 'one", "write commands as ```console"),
    ("quotation differs", "return 2 * x", "return 3 * x", "reads differently now"),
    ("symbol gone", "code.cpp twice", "code.cpp thrice", "'thrice' is not there any more"),
    ("file gone", "06-test/code.cpp twice", "06-test/gone.cpp twice", "there is no file"),
    ("code without a source", "<!-- quote: lessons/06-test/code.cpp twice -->", "", "code needs <!-- quote"),
    ("dead link", "](code.cpp)", "](gone.cpp)", "dead link"),
    ("dead anchor", "(#the-code)", "(#no-code)", "has no heading"),
    ("dead symbol", "[a file]", "[`gone`]", "has no 'gone'"),
    ("http", "[here](#the-code)", "[here](http://x.org)", "https://"),
    ("used before", "What is a", "A wheel, and wheels. What is a", "used before it is introduced"),
    ("never introduced", "**wheel**?", "wheel?", "nowhere in bold"),
    ("bold without entry", "What is", "**What** is", "bold is for new terms"),
    ("twice in bold", "## The code\n", "## The code\n\nA **wheel** again.\n", "in bold for the second time"),
    ("two sentences", "a thing that turns.", "a thing. It turns.", "in one sentence"),
    ("question without answer", "## Words", "## Questions\n\n1. One?\n2. Two?\n3. Three?\n\n## Words", "one folded answer"),
    ("length", "", "", "without its answers; a lesson has"),
    ("nothing to remember", "", "", "has three lines"),
    ("no lab", "", "", "the last section is"),
    ("sections", "", "", "no section '## The experiment'"),
]


def faults_of(folder):
    lesson = Lesson(folder / "lessons" / "06-test" / "README.md")
    found = quotes.check(lesson, root=folder)[0] + links.check(lesson, root=folder)[0] + shape.check(lesson)
    return found + terms.check([lesson])[0] + commands.check(lesson, folder / "build")[0]


def plant(folder, text):
    place = folder / "lessons" / "06-test"
    place.mkdir(parents=True, exist_ok=True)
    (folder / "build" / "bin").mkdir(parents=True, exist_ok=True)
    (place / "README.md").write_text(text)
    (place / "code.cpp").write_text(CODE)


def check_lessons(folder):
    bad = []
    plant(folder, GOOD)
    small = ("a lesson has", "no section", "no picture", "three questions", "there is no slides", "have a section", "has three lines",
             "the last section is")
    for fault in faults_of(folder):
        if not any(words in fault for words in small):
            bad.append(f"a right lesson: {fault}")
    for name, old, new, words in CASES:
        if old not in GOOD:
            bad.append(f"{name}: the case changes nothing")
            continue
        plant(folder, GOOD.replace(old, new, 1) if old else GOOD)
        found = faults_of(folder)
        if not any(words in fault for fault in found):
            bad.append(f"{name}: not found; found only: {found}")
    return bad


def check_update(folder):
    """--update fixes outputs and quotations, and nothing else."""
    bad = []
    plant(folder, GOOD.replace("\ntwo\n", "\n2\n").replace("return 2 * x", "return x + x"))
    lesson = Lesson(folder / "lessons" / "06-test" / "README.md")
    quotes.check(lesson, update=True, root=folder)
    commands.check(lesson, folder / "build", update=True)
    if (folder / "lessons" / "06-test" / "README.md").read_text() != GOOD:
        bad.append("--update did not bring back the right lesson")
    return bad


MEASURED = """*Measured on a machine, 2026-01-02.*

```console measured
$ echo run >> ~/NAME; echo runs $(wc -l < ~/NAME).0
runs 1.0
```
<!-- KIND: row("runs")[0] > LEAST -->
"""


def check_claims(folder):
    """A block whose timed claims do not hold runs again, twice at most; other claims must hold in the first run."""
    bad = []
    for kind, least, holds in [("timed", 0, True), ("timed", 2, True), ("timed", 3, False), ("holds", 0, True), ("holds", 1, False)]:
        text = MEASURED.replace("KIND", kind).replace("NAME", f"{kind}.{least}").replace("LEAST", str(least))
        plant(folder, GOOD + "\n" + text)
        found = [fault for fault in faults_of(folder) if "does not hold" in fault]
        if bool(found) == holds:
            bad.append(f"a claim '{kind}' that holds after run {least}: found {found}")
    return bad


def check_clashes(folder):
    """Two lessons must not make the same folder; plain files may have the same name."""
    lessons = []
    for slug, made in [("03-one", "mine both"), ("04-two", "both yours"), ("05-three", "ours")]:
        place = folder / "lessons" / slug
        place.mkdir(parents=True)
        (place / "README.md").write_text(f"# {slug}\n\n```console\n$ mkdir {made}; echo > log\n```\n")
        lessons.append(Lesson(place / "README.md"))
        commands.check(lessons[-1], folder / "build")
    found = commands.clashes(lessons)
    return [] if len(found) == 1 and "04-two" in found[0] and "'both'" in found[0] else [f"folders of two lessons: {found}"]


def check_order(folder):
    """Detects a term that is used in an earlier lesson than the one that introduces it."""
    plant(folder, GOOD)
    later = Lesson(folder / "lessons" / "06-test" / "README.md")
    place = folder / "lessons" / "05-before"
    place.mkdir()
    text = "# 05 Before\n\nIt has wheels. But [the wheel](../06-test/README.md) may be linked.\n"
    (place / "README.md").write_text(text)
    found = terms.check([Lesson(place / "README.md"), later])[0]
    return [] if len(found) == 1 and "lesson 06 introduces it" in found[0] else [f"terms across lessons: {found}"]


def check_compare():
    bad = []
    for want, got, marks, same in [
            (["a", "...", "z"], ["a", "b", "c", "z"], [], True), (["a", "...", "z"], ["a", "z"], [], True),
            (["a", "...", "z"], ["a", "b"], [], False), (["...", "m", "..."], ["a", "b"], [], False),
            (["b", "a"], ["a", "b"], ["unordered"], True), (["b", "a"], ["a", "a"], ["unordered"], False),
            (["x 1.5"], ["x 2.25"], ["measured"], True), (["x 1.5"], ["x nan"], ["measured"], False),
            (["n 15"], ["n 16"], ["measured"], False), (["pid 15 0.1 s"], ["pid 7 2.0 s"], ["stamps"], True),
            (["x 1.5"], ["x 1.6"], ["stamps"], False), (["n 15"], ["n 16"], ["numbers"], True),
            (["a  b"], ["a b"], [], False), ([], ["a"], [], False)]:
        if (compare.difference(want, got, marks) is None) != same:
            bad.append(f"compare: {want} and {got} with {marks} should be {'equal' if same else 'different'}")
    return bad


def check_decks(folder):
    plant(folder, GOOD)
    (folder / "slides").mkdir()
    front = "---\nmarp: true\ntheme: ringsmith\n---\n"
    good = front + "\n---\n".join(["# x\n<!-- Ask: y? 2 minutes. -->\n![a](../lessons/figures/a.svg)\n```console\n$ echo\n```\n"
                                    .replace("$ echo", "one 1.5\ntwo")] * 12)
    bad = []
    for words, text in [(None, good), ("a deck has", front + "# one"), ("what to ask", good.replace("Ask:", "ask")),
                        ("slide 1: no note with its minutes", good.replace("2 minutes", "a while", 1)),
                        ("slide 12: no note", good[::-1].replace("setunim 2", "", 1)[::-1]),
                        ("front matter", good.replace("theme: ringsmith\n", "")),
                        ("are in no block", good.replace("two", "three")),
                        ("pictures come from", good.replace("figures/", ""))]:
        path = folder / "slides" / "06-test.md"
        path.write_text(text)
        found = decks.check(Lesson(path), root=folder)
        if (words is None) != (not found) or (words and not any(words in f for f in found)):
            bad.append(f"deck, {words or 'a right one'}: found {found}")
    return bad


def check_figures(folder):
    plant(folder, GOOD)
    place = folder / "lessons" / "figures"
    place.mkdir()
    svg = "<svg>prefers-color-scheme</svg>"
    listed = '[[figure]]\nfile = "a.svg"\ncommand = "printf %s \'<svg>prefers-color-scheme</svg>\' > OUT"\n'
    shown = GOOD.replace("## Words", "![a](../figures/a.svg)\n\n## Words")
    caption = shown.replace("a.svg)", "a.svg)\n\n*On another machine, 2026-02-02.*")
    stamp = 'measured = "another machine, 2026-02-02"\n'
    bad = []
    for words, plan, files, text in [
            (None, listed, {"a.svg": svg}, GOOD), ("draws now", listed, {"a.svg": svg + " "}, GOOD),
            ("draws now", listed, {}, GOOD), ("how it is made", listed, {"a.svg": svg, "b.svg": svg}, GOOD),
            ("failed", listed.replace("printf", "false"), {"a.svg": svg}, GOOD),
            ("unreadable there", listed.replace("prefers", ""), {"a.svg": svg.replace("prefers", "")}, GOOD),
            (None, listed + stamp, {"a.svg": svg + " "}, caption),
            ("caption must say", listed + stamp, {"a.svg": svg}, shown), ("is missing", listed + stamp, {}, GOOD),
            ("MACHINE", listed + 'measured = "yesterday"\n', {"a.svg": svg}, GOOD)]:
        for old in place.glob("*"):
            old.unlink()
        (place / "figures.toml").write_text(plan)
        for name, content in files.items():
            (place / name).write_text(content)
        plant(folder, text)
        found = figures.check(folder / "build", [Lesson(folder / "lessons" / "06-test" / "README.md")], root=folder)[0]
        if (words is None) != (not found) or (words and not any(words in f for f in found)):
            bad.append(f"figures, {words or 'right ones'}: found {found}")
    return bad


REFERENCES = {
    1: '{ test = "tests/room/a_test.cpp", case = "one works" }',
    2: '{ test = "tests/room/a_test.cpp", case = "two works" }',
    3: '{ entry = "script" }',
    4: '{ page = "lessons/06-test/README.md", run = "echo \'one 1.5\'" }',
    5: '{ page = "lessons/06-test/README.md", says = "What is a **wheel**? See" }, { entry = "script" }',
    6: '{ page = "lessons/06-test/README.md", heading = "The code" }, { entry = "room" }',
    7: '{ source = "NCCL", version = "2.0", file = "src/a.cc", line = 2, says = "second" }',
}
CLAIMS = '[[part]]\ntitle = "All"\nfirst = 1\n' + "".join(
    f'[[claim]]\nnumber = {n}\nclaim = "It is so."\nverdict = "wrong"\nnote = "It is not."\n' +
    (f"settled_by = [{REFERENCES[n]}]\n" if n in REFERENCES else 'open = "a feature"\n') for n in range(1, 167))
SOURCE = 'TEST_CASE("one works", "[a]") {\nTEST_CASE("two "\n          "works",\n          "[a][.slow]") {\n'
ENTRIES = """add_test([=[room]=] "/b/bin/tests_room")
add_test([=[slow]=] "/mpirun.sh" "2" "/b/bin/tests_room" "--transport" "tcp" "[b],[.slow]")
add_test([=[script]=] "/script.sh" "build")
add_test([=[lessons]=] "check.py" "commands")
if(CTEST_CONFIGURATION_TYPE MATCHES "x")
  add_test([=[long]=] "/script.sh" "long")
endif()
"""
LOG = "<testsuite>" + "".join(f'<testcase name="{e}" status="run"/>' for e in ("room", "slow", "script", "lessons"))
LEDGER_CASES = [
    ("claim missing", "claims", "number = 7\n", "number = 8\n", "missing: 7"),
    ("claim twice", "claims", "number = 7\n", "number = 8\n", "claim 8 is there 2 times"),
    ("no such claim", "claims", "number = 7\n", "number = 167\n", "there is no claim 167"),
    ("verdict", "claims", '"wrong"', '"false"', "the verdict 'false'"),
    ("no correction", "claims", 'note = "It is not."\n', "", "no note"),
    ("no sentence", "claims", "It is so.", "It is so", "ends with a full stop"),
    ("unknown key", "claims", "note =", "nota =", "unknown: nota"),
    ("settled by nothing", "claims", 'open = "a feature"\n', "", "settled by nothing"),
    ("open without a reason", "claims", '"a feature"', '""', "what is missing?"),
    ("no TOML", "claims", "[[part]]", "[[part", "claims.toml: "),
    ("case gone", "source", "one works", "one fails", "no test case 'one works'"),
    ("file gone", "claims", "a_test.cpp", "b_test.cpp", "there is no file"),
    ("hidden case", "source", "[a]", "[a][.]", "it is hidden"),
    ("case of no entry", "entries", r"(?s)\btests_room.*tests_room", "tests_hall", "none starts tests_room"),
    ("case that is not selected", "entries", 'tests_room")', 'tests_room" "~[a]")', "none selects it"),
    ("entry gone", "entries", "[=[script]=]", "[=[skript]=]", "no entry 'script'"),
    ("entry of a configuration", "claims", '"script"', '"long"', "no entry 'long'"),
    ("page gone", "claims", "06-test/README.md", "07-test/README.md", "there is no page"),
    ("command gone", "page", "echo 'one 1.5'", "echo 'two'", "has no command"),
    ("commands that nothing runs", "entries", "[=[lessons]=]", "[=[texts]=]", "no entry 'lessons'"),
    ("words gone", "page", "? See", ". See", "does not say"),
    ("heading gone", "page", "## The code", "## The files", "has no heading"),
    ("reference of no kind", "claims", "entry =", "entries =", "a reference has"),
    ("source of no known project", "claims", '"NCCL"', '"MCCL"', "the source of MCCL is at no known address"),
    ("source without a version", "claims", 'version = "2.0", ', "", "a reference has"),
    ("source without a line", "claims", "line = 2", "line = 0", "a source needs a version, the number of a line"),
    ("source without words", "claims", '"second"', '" "', "and words of that line"),
    ("another line of a source", "claims", "line = 2", "line = 1", "line 1 of src/a.cc of NCCL-2.0 does not say 'second'"),
    ("a source without that line", "claims", "line = 2", "line = 9", "line 9 of src/a.cc of NCCL-2.0 does not say"),
    ("a claim on NCCL that only ringsmith shows", "claims", r"number = 1\nclaim = \"It", r'number = 1\nclaim = "NCCL', "claim 1: it is about NCCL"),
    ("a claim on torchrun that only ringsmith shows", "claims", r"number = 3\nclaim = \"It", r'number = 3\nclaim = "torchrun', "give a source"),
    ("settled by our own words", "claims", ', { entry = "room" }', "", "claim 6: shown on nothing"),
    ("page of old claims", "claims", "It is so.", "It is thus.", "make ledger UPDATE=1"),
    ("entry skipped", "log", '"script" status="run"', '"script" status="notrun"', "did not run: script (notrun)"),
    ("entry failed", "log", '"slow" status="run"', '"slow" status="fail"', "failed in the last run: slow"),
    ("entry not in the log", "log", '"lessons"', '"lesson"', "lessons (not in the log)"),
]


def check_ledger(folder):
    """Checks a correct ledger with 7 settled claims, then each of LEDGER_CASES."""
    paths = {"claims": folder / "lessons" / "claims.toml", "page": folder / "lessons" / "06-test" / "README.md",
             "source": folder / "tests" / "room" / "a_test.cpp", "entries": folder / "build" / "CTestTestfile.cmake",
             "log": folder / "tests.xml", "other": folder / "sources" / "NCCL-2.0" / "src" / "a.cc"}
    right = {"claims": CLAIMS, "page": GOOD, "source": SOURCE, "entries": ENTRIES, "log": LOG + "</testsuite>",
             "other": "first\nsecond\n"}

    def faults_after(file=None, old="", new="", update=False):
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(re.sub(old, new, right[name], count=1) if name == file and old else right[name])
        try:
            book = ledger.Ledger(folder, folder / "build", folder / "sources")
            return ledger.check(book, ledger.read_log(paths["log"]), update)
        except Fault as error:
            return [str(error)], {}

    bad = []
    found, runs = faults_after(update=True)
    if found or [n for n in runs if runs[n]] != [1, 2, 3, 4, 5, 6]:
        bad.append(f"a right ledger: found {found}, runs {[n for n in runs if runs[n]]}")
    for name, file, old, new, words in LEDGER_CASES:
        old = old if "\\" in old else re.escape(old)
        if not re.search(old, right[file]):
            bad.append(f"ledger, {name}: the case changes nothing")
        found = faults_after(file, old, new)[0]
        if not any(words in fault for fault in found):
            bad.append(f"ledger, {name}: not found; found only: {found}")
    for spec, name, tags, runs in [
            ("", "x", ["a"], True), ("", "x", ["."], False), ("", "x", [".slow"], False), ("[a]", "x", ["a"], True),
            ("[a],[b]", "x", ["b"], True), ("[a][b]", "x", ["b"], False), ("[a]~[b]", "x", ["a", "b"], False),
            ("~[b]", "x", ["a"], True), ("~[b]", "x", ["a", "."], False), ("[.slow]", "x", [".slow"], True),
            ("x*", "x and y", [], True), ("x*", "y", [], False)]:
        if ledger.selects(spec, name, tags) != runs:
            bad.append(f"ledger: '{spec}' should {'' if runs else 'not '}select '{name}' {tags}")
    return bad


def main():
    bad = check_compare()
    for check in (check_lessons, check_claims, check_clashes, check_update, check_order, check_decks, check_figures, check_ledger):
        with tempfile.TemporaryDirectory(prefix="selftest.") as name:
            bad += check(pathlib.Path(name))
    print("\n".join(bad) if bad else f"lessons: {len(CASES) + len(LEDGER_CASES)} planted faults found")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
