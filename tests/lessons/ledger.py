#!/usr/bin/env python3
"""The ledger of claims: what five tutorials say about DDP, which claims are right, and the tests that show it.

    ledger.py --build build/release       the table; exit 1 while claims are open, or a reference has no target
    ledger.py --references                exit 1 only if a reference has no target (open claims are counted)
    ledger.py --ran build/release/tests.xml       and the tests that the last `make test-all` did not run
    ledger.py --update                    write lessons/CLAIMS.md

lessons/claims.toml has the claims. Each is settled by references that must exist:

    test, case         a TEST_CASE of a file under tests/, which an entry of `make test-all` runs
    entry              an entry of `make test-all` (ctest -N lists them)
    page, run          a command of a page; in a lesson, the entry `lessons` runs it and compares its output
    page, says         words of a page;  page, heading: a section of it

The entries are read from CMake's files in the build folder: it must be configured, not built.
Exit codes: 0 all is well, 1 faults or open claims, 6 wrong call.
"""
import argparse
import collections
import functools
import pathlib
import re
import sys
import textwrap
import xml.etree.ElementTree as xml
try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(f"lessons: this needs Python 3.11 or newer: python3 is {sys.version.split()[0]}")

import commands
from lesson import Fault, Lesson, ROOT, anchor_of

CLAIMS = 166
VERDICTS = ("holds", "holds with a condition", "wrong", "not applicable")
KEYS = {"number", "claim", "verdict", "note", "open", "settled_by"}
KINDS = ({"test", "case"}, {"entry"}, {"page", "run"}, {"page", "says"}, {"page", "heading"})
LESSON = re.compile(r"lessons/\d\d-[^/]+/README\.md")


def squeezed(text):
    return " ".join(text.split())


class Ledger:
    """The claims and the possible targets of their references."""

    def __init__(self, root, build):
        self.root = root
        try:
            data = tomllib.loads((root / "lessons" / "claims.toml").read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise Fault(f"lessons/claims.toml: {error}") from None
        self.parts, self.claims = data.get("part", []), data.get("claim", [])
        self.entries = read_entries(build)

    @functools.cache
    def page(self, name):
        path = self.root / name
        if not path.is_file():
            raise Fault(f"there is no page {name}")
        return Lesson(path)

    @functools.cache
    def cases(self, name):
        if not (self.root / name).is_file():
            raise Fault(f"there is no file {name}")
        return test_cases((self.root / name).read_text(encoding="utf-8"))

    def resolve(self, ref):
        """Returns (entries of `make test-all`, one of which must run, Markdown link); raises
        Fault if there is no target."""
        if set(ref) not in KINDS:
            raise Fault(f"a reference has test and case, entry, or page and one of run, says, heading; this one: {ref}")
        if "entry" in ref:
            if ref["entry"] not in self.entries:
                raise Fault(f"`make test-all` has no entry '{ref['entry']}'")
            return [ref["entry"]], f"test `{ref['entry']}`"
        if "test" in ref:
            return self.entries_of_case(ref["test"], ref["case"]), f"[{ref['case']}](../{ref['test']})"
        page = self.page(ref["page"])
        kind = next(k for k in ("run", "says", "heading") if k in ref)
        line, runs, shown = {"run": find_command, "says": find_words, "heading": find_heading}[kind](page, ref[kind])
        heading = next((h for n, h in reversed(page.headings()) if n <= line), "# " + page.slug)
        target = ref["page"].removeprefix("lessons/") if ref["page"].startswith("lessons/") else "../" + ref["page"]
        where = page.number if LESSON.fullmatch(ref["page"]) else ref["page"].removesuffix("/README.md")
        link = f"[{where}, {heading.lstrip('# ')}]({target}#{anchor_of(heading)})"
        if kind == "run":
            link += f": `{shown}`"
        if runs and LESSON.fullmatch(ref["page"]):
            if "lessons" not in self.entries:
                raise Fault("`make test-all` has no entry 'lessons', which runs the lessons' commands")
            return ["lessons"], link
        return [], link

    def entries_of_case(self, file, case):
        if case not in self.cases(file):
            raise Fault(f"{file} has no test case '{case}'")
        tags = self.cases(file)[case]
        program = "tests_" + "_".join(pathlib.PurePath(file).parts[1:-1])
        starting = {name: spec for name, (p, spec) in self.entries.items() if p == program}
        running = [name for name, spec in starting.items() if selects(spec, case, tags)]
        if not running:
            why = f"none starts {program}" if not starting else "it is hidden" if hidden(tags) else "none selects it"
            raise Fault(f"no entry of `make test-all` runs '{case}' of {file}: {why}")
        return running


def read_entries(build):
    """{name: (tests_ROOM or None, Catch2's test spec)} of the entries that ctest runs without a
    configuration (-C)."""
    files = sorted(build.glob("**/CTestTestfile.cmake"))
    if not files:
        raise Fault(f"{build} is not configured: make configure, or --build FOLDER")
    entries = {}
    for line in "\n".join(f.read_text() for f in files).splitlines():
        if not line.startswith("add_test("):  # the lines of a configuration are indented
            continue
        words = [a or b for a, b in re.findall(r'\[=\[(.*?)\]=\]|"((?:\\.|[^"\\])*)"', line)]
        at = next((n for n, w in enumerate(words) if n and pathlib.PurePath(w).name.startswith("tests_")), None)
        spec, options = "", iter(words[at + 1:] if at else [])
        for word in options:
            if word.startswith("--"):
                next(options, None)
            else:
                spec = word
        entries[words[0]] = (pathlib.PurePath(words[at]).name if at else None, spec)
    return entries


def test_cases(text):
    """Returns {name: tags} for the test cases of a source."""
    strings = r'((?:"(?:\\.|[^"\\])*"\s*)+)'
    found = re.findall(rf"^(?:TEMPLATE_)?TEST_CASE\(\s*{strings}(?:,\s*{strings})?", text, re.M)

    def joined(literals):
        return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals)).replace('\\"', '"')
    return {joined(name): re.findall(r"\[([^\]]+)\]", joined(tags)) for name, tags in found}


def hidden(tags):
    return any(t.startswith(".") or t == "!hide" for t in tags)


def selects(spec, name, tags):
    """Whether Catch2 runs a case with this name and these tags when it is started with this test
    spec."""
    if not spec:
        return not hidden(tags)
    bare = {t.lstrip(".") for t in tags}
    for way in spec.split(","):
        wanted = re.findall(r"(~?)\[([^\]]+)\]", way)
        if not wanted:
            pattern = ".*".join(map(re.escape, way.strip('"').split("*")))
            if re.fullmatch(pattern, name, re.I):
                return True
            continue
        asked = any(not no for no, _ in wanted)
        if all((tag.lstrip(".") in bare) != bool(no) for no, tag in wanted) and (asked or not hidden(tags)):
            return True
    return False


def find_command(page, text):
    """(line, whether a check runs it, text) of the command that equals `text`, or else of the
    first that begins with it."""
    found = []
    for fence in page.fences:
        if fence.language == "console":
            found += [(squeezed(c.replace("\\\n", " ")), fence.start, "recorded" not in fence.marks)
                      for c, _ in commands.split(fence)]
        elif not fence.language:
            found += [(squeezed(line), fence.start, False) for line in fence.body]
    wanted = squeezed(text)
    for match in (str.__eq__, str.startswith):
        for command, line, runs in found:
            if match(command, wanted):
                return line, runs, wanted + " ..." * (command != wanted)
    raise Fault(f"{page.name} has no command `{text}`")


def find_words(page, text):
    wanted, so_far, begins = squeezed(text), "", []
    for line in page.lines:
        begins.append(len(so_far))
        so_far += squeezed(line) + " " if line.strip() else ""
    at = so_far.find(wanted)
    if at < 0:
        raise Fault(f"{page.name} does not say '{text}'")
    return max(n for n, begin in enumerate(begins) if begin <= at), False, text


def find_heading(page, text):
    for n, heading in page.headings():
        if heading.lstrip("# ") == text:
            return n, False, text
    raise Fault(f"{page.name} has no heading '{text}'")


def check_numbers(claims):
    count = collections.Counter(c.get("number") for c in claims)
    missing = [str(n) for n in range(1, CLAIMS + 1) if n not in count]
    faults = [f"claims.toml: missing: {' '.join(missing)}"] if missing else []
    faults += [f"claims.toml: claim {n} is there {times} times" for n, times in count.items() if times > 1]
    return faults + [f"claims.toml: there is no claim {n!r}: they are 1 to {CLAIMS}" for n in count
                     if n not in range(1, CLAIMS + 1)]


def check_claim(claim):
    number, faults = claim.get("number"), []
    if unknown := set(claim) - KEYS:
        faults.append(f"claim {number}: unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(KEYS))}")
    if claim.get("verdict") not in VERDICTS:
        faults.append(f"claim {number}: the verdict '{claim.get('verdict')}' is none of: {', '.join(VERDICTS)}")
    for key in ("claim", "note"):
        text = claim.get(key, "")
        if not text and (key == "claim" or claim.get("verdict") not in VERDICTS[:1]):
            faults.append(f"claim {number}: no {key}" + ("" if key == "claim" else ": what is right, or the condition?"))
        elif text and not re.fullmatch(r"[^\n]*[^\s.]\.", text):
            faults.append(f"claim {number}: {key} is one line that ends with a full stop")
    if "open" in claim and not claim["open"]:
        faults.append(f"claim {number}: open: what is missing?")
    if "open" not in claim and claim.get("verdict") != "not applicable" and not claim.get("settled_by"):
        faults.append(f"claim {number}: settled by nothing: give references, or say what is open")
    return faults


def read_log(path):
    """Returns {entry: run, fail, notrun or disabled} from the results of `make test-all`."""
    try:
        return {c.get("name"): c.get("status") for c in xml.parse(path).getroot().findall("testcase")}
    except (OSError, xml.ParseError) as error:
        raise Fault(f"{path}: {error}; make test-all writes BUILD/tests.xml") from None


def check_ran(number, running, log):
    failed = [e for e in running if log.get(e) == "fail"]
    if failed:
        return [f"claim {number}: failed in the last run: {', '.join(failed)}"]
    if running and not any(log.get(e) == "run" for e in running):
        return [f"claim {number}: did not run: " + ", ".join(f"{e} ({log.get(e, 'not in the log')})" for e in running)]
    return []


def part_of(parts, number):
    return max((p for p in parts if p["first"] <= number), key=lambda p: p["first"])


def page_of(ledger, links):
    """Returns the lines of lessons/CLAIMS.md."""
    settled = sum("open" not in c for c in ledger.claims)
    lines = ["# What five tutorials claim about DDP", "",
             "This page lists the statements of five tutorials on PyTorch's DistributedDataParallel, with an answer and the evidence",
             f"here. {settled} of {CLAIMS} are settled; an open statement names the missing evidence and the answer that we expect from",
             "PyTorch. `make ledger` checks that each reference exists and is run. Generated from [claims.toml](claims.toml) by",
             "`make ledger UPDATE=1`: change that file, not this one."]
    for part in ledger.parts:
        lines += ["", f"## {part['title']}", "", "| | claim | answer | where |", "|---|---|---|---|"]
        for claim in sorted(ledger.claims, key=lambda c: c["number"]):
            if part_of(ledger.parts, claim["number"]) is not part:
                continue
            answer = f"**{claim['verdict']}.**"
            if "open" in claim:
                answer = f"**open: {claim['open']}.** Expected: {claim['verdict']}."
            answer += " " + claim["note"] if claim.get("note") else ""
            cells = [str(claim["number"]), claim["claim"], answer, "<br>".join(links[claim["number"]])]
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def check(ledger, log=None, update=False):
    """Returns (faults, {number: whether a test that settles it runs})."""
    faults, runs, links = check_numbers(ledger.claims), {}, {}
    for claim in ledger.claims:
        number, wrong = claim.get("number"), check_claim(claim)
        links[number], runs[number] = [], False
        for ref in claim.get("settled_by", []):
            try:
                running, link = ledger.resolve(ref)
            except Fault as error:
                wrong.append(f"claim {number}: {error}")
                continue
            links[number].append(link)
            runs[number] = runs[number] or bool(running)
            wrong += check_ran(number, running, log) if log is not None else []
        faults += wrong
    if faults:
        return faults, runs
    page, path = page_of(ledger, links), ledger.root / "lessons" / "CLAIMS.md"
    if update:
        path.write_text(page, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != page:
        faults.append("lessons/CLAIMS.md is not what claims.toml says now: make ledger UPDATE=1")
    return faults, runs


def show(ledger, runs):
    print(f"{'':44} claims  settled  open")
    for part in ledger.parts:
        mine = [c for c in ledger.claims if part_of(ledger.parts, c["number"]) is part]
        waiting = sum("open" in c for c in mine)
        print(f"{part['title']:44} {len(mine):6} {len(mine) - waiting:8} {waiting or '-':>5}")
    missing = collections.defaultdict(list)
    for claim in ledger.claims:
        if "open" in claim:
            missing[claim["open"]].append(claim)
    for what, waiting in sorted(missing.items(), key=lambda m: (-len(m[1]), m[0])):
        print(f"\nopen, missing: {what}")
        for claim in waiting:
            print(f"{claim['number']:5}  {textwrap.shorten(claim['claim'], 100, placeholder=' ...')}")
    settled = [c for c in ledger.claims if "open" not in c]
    count = collections.Counter(c["verdict"] for c in settled)
    words = [str(c["number"]) for c in settled if c["verdict"] != "not applicable" and not runs[c["number"]]]
    print("\nsettled: " + ", ".join(f"{count[v]} {v}" for v in VERDICTS))
    print(f"by words that nothing runs: {' '.join(words) or 'none'}")
    return len(settled)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="a configured folder")
    parser.add_argument("--references", action="store_true", help="open claims are no failure")
    parser.add_argument("--ran", type=pathlib.Path, metavar="LOG", help="what `make test-all` wrote: BUILD/tests.xml")
    parser.add_argument("--update", action="store_true", help="write lessons/CLAIMS.md")
    args = parser.parse_args()
    try:
        ledger = Ledger(ROOT, args.build)
        faults, runs = check(ledger, read_log(args.ran) if args.ran else None, args.update)
    except Fault as error:
        print(f"ledger: {error}", file=sys.stderr)
        return 6
    if faults:
        print("\n".join(faults), file=sys.stderr)
        print(f"ledger: {len(faults)} faults", file=sys.stderr)
        return 1
    if args.references:
        settled = sum("open" not in c for c in ledger.claims)
        print(f"ledger: every reference of {len(ledger.claims)} claims leads somewhere; {settled} are settled")
        return 0
    settled = show(ledger, runs)
    print(f"ledger: {settled} of {CLAIMS} settled", file=sys.stdout if settled == CLAIMS else sys.stderr)
    return 0 if settled == CLAIMS else 1


if __name__ == "__main__":
    sys.exit(main())
