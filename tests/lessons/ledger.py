#!/usr/bin/env python3
"""The ledger of claims: what five tutorials say about DDP, which claims are right, and the tests that show it.

    ledger.py --build build/release       the table; exit 1 while claims are open, or a reference has no target
    ledger.py --references                exit 1 only if a reference has no target (open claims are counted)
    ledger.py --ran build/release/tests.xml       and the tests that the last `make test-all` did not run
    ledger.py --sources FOLDER            also compare quoted lines of other projects with their sources
    ledger.py --update                    write lessons/CLAIMS.md

lessons/claims.toml has the claims. Each is settled by references that must exist:

    test, case         a TEST_CASE of a file under tests/, which an entry of `make test-all` runs
    entry              an entry of `make test-all` (ctest -N lists them)
    page, run          a command of a page; in a lesson, the entry `lessons` runs it and compares its output
    page, says         words of a page;  page, heading: a section of it
    source, version, file, line, says     a line of another project's source, and words of that line;
                       `--sources FOLDER` compares them with FOLDER/PROJECT-VERSION/FILE, if it is unpacked there

Tests and commands show what ringsmith does, and those of PYTORCH compare it with PyTorch. So a claim about a tool of
others (OTHERS) needs a source or one of these tests, and every claim needs more than words of our own pages.

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
KINDS = ({"test", "case"}, {"entry"}, {"page", "run"}, {"page", "says"}, {"page", "heading"},
         {"source", "version", "file", "line", "says"})
# Where projects publish their sources.
SOURCES = {"PyTorch": "https://github.com/pytorch/pytorch/blob/v{version}/{file}#L{line}",
           "NCCL": "https://github.com/NVIDIA/nccl/blob/v{version}/{file}#L{line}"}
# Tests that compare with the numbers or the calls of a real PyTorch.
PYTORCH = re.compile(r"tests/(reference|torch)/|tests/multi/strict_test\.cpp")
OTHERS = re.compile(r"NCCL|Gloo|FSDP|torchrun|c10d|chrome://")
LESSON = re.compile(r"lessons/\d\d-[^/]+/README\.md")


def squeezed(text):
    return " ".join(text.split())


class Ledger:
    """The claims and the possible targets of their references."""

    def __init__(self, root, build, sources=None):
        self.root, self.sources = root, sources
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
            raise Fault("a reference has test and case, entry, page and one of run, says, heading, or source, version, file, "
                        f"line and says; this one: {ref}")
        if "source" in ref:
            return [], self.line_of(ref)
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

    def line_of(self, ref):
        """Returns a link to a line of another project's source; compares the line if the source is unpacked."""
        project, line = f"{ref['source']}-{ref['version']}", ref["line"]
        if ref["source"] not in SOURCES:
            raise Fault(f"the source of {ref['source']} is at no known address: {', '.join(SOURCES)}")
        if not isinstance(line, int) or line < 1 or not ref["says"].strip() or not ref["version"].strip():
            raise Fault(f"a source needs a version, the number of a line and words of that line; this one: {ref}")
        if self.sources and (self.sources / project).is_dir():
            path = self.sources / project / ref["file"]
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            if ref["says"] not in "".join(lines[line - 1:line]):
                raise Fault(f"line {line} of {ref['file']} of {project} does not say '{ref['says']}'")
        url = SOURCES[ref["source"]].format(**ref)
        return f"[{ref['source']} {ref['version']}, {ref['file']}]({url}): `{ref['says']}`"

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
    """Returns {name: (tests_ROOM or None, Catch2's test spec)} for the entries that ctest runs
    without a configuration (-C)."""
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
    """Returns whether Catch2 runs a case with this name and these tags when it is started with this
    test spec."""
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
    """Returns (line, whether a check runs it, text) for the command that equals `text`, or else of
    the first that begins with it."""
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


def shown_on(claim, running):
    """Returns on what a claim is shown. running: for each reference, whether something runs it."""
    kinds = set()
    for ref, runs in zip(claim.get("settled_by", []), running):
        if "source" in ref:
            kinds.add("by reading")
        elif runs:
            kinds.add("PyTorch" if PYTORCH.match(ref.get("test", "")) else "ringsmith")
    return [kind for kind in ("PyTorch", "ringsmith", "by reading") if kind in kinds]


def check_shown(claim, shown):
    number = claim.get("number")
    if "open" in claim or not claim.get("settled_by"):
        return []
    if not shown:
        return [f"claim {number}: shown on nothing: our own words are no evidence; give a test, a command or a source"]
    other = OTHERS.search(claim.get("claim", ""))
    if other and shown == ["ringsmith"]:
        return [f"claim {number}: it is about {other.group()}, but only ringsmith is tested: give a source "
                "(project, version, file, line), or a test against PyTorch"]
    return []


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


def page_of(ledger, links, shown):
    """Returns the lines of lessons/CLAIMS.md."""
    settled = sum("open" not in c for c in ledger.claims)
    lines = ["# What five tutorials claim about DDP", "",
             "This page lists the statements of five tutorials on PyTorch's DistributedDataParallel, with an answer and the evidence",
             f"here. {settled} of {CLAIMS} are settled; an open statement names the missing evidence and the answer that we expect from",
             "PyTorch. `make ledger` checks that each reference exists and is run. Generated from [claims.toml](claims.toml) by",
             "`make ledger UPDATE=1`: change that file, not this one.", "",
             "*Shown on* says what was run or read: *PyTorch*, a test that compares with a real PyTorch; *ringsmith*, a test or a",
             "command of this project only; *by reading*, lines of the sources of PyTorch 1.13.1 (December 2022) or NCCL 2.14.3",
             "(the version in PyTorch 1.13)."]
    for part in ledger.parts:
        lines += ["", f"## {part['title']}", "", "| | claim | answer | shown on | where |", "|---|---|---|---|---|"]
        for claim in sorted(ledger.claims, key=lambda c: c["number"]):
            if part_of(ledger.parts, claim["number"]) is not part:
                continue
            answer = f"**{claim['verdict']}.**"
            if "open" in claim:
                answer = f"**open: {claim['open']}.** Expected: {claim['verdict']}."
            answer += " " + claim["note"] if claim.get("note") else ""
            cells = [str(claim["number"]), claim["claim"], answer, ", ".join(shown[claim["number"]]) or "-",
                     "<br>".join(links[claim["number"]])]
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(lines) + "\n"


def check(ledger, log=None, update=False):
    """Returns (faults, {number: whether a test that settles it runs})."""
    faults, runs, links, shown = check_numbers(ledger.claims), {}, {}, {}
    for claim in ledger.claims:
        number, wrong = claim.get("number"), check_claim(claim)
        links[number], runs[number], started = [], False, []
        for ref in claim.get("settled_by", []):
            try:
                running, link = ledger.resolve(ref)
            except Fault as error:
                wrong.append(f"claim {number}: {error}")
                started.append(True)  # one fault is enough
                continue
            started.append(bool(running))
            links[number].append(link)
            runs[number] = runs[number] or bool(running)
            wrong += check_ran(number, running, log) if log is not None else []
        shown[number] = shown_on(claim, started)
        faults += wrong + check_shown(claim, shown[number])
    if faults:
        return faults, runs
    page, path = page_of(ledger, links, shown), ledger.root / "lessons" / "CLAIMS.md"
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
    print(f"by reading only: {' '.join(words) or 'none'}")
    return len(settled)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="a configured folder")
    parser.add_argument("--references", action="store_true", help="open claims are no failure")
    parser.add_argument("--ran", type=pathlib.Path, metavar="LOG", help="what `make test-all` wrote: BUILD/tests.xml")
    parser.add_argument("--sources", type=pathlib.Path, metavar="FOLDER", help="has unpacked sources, PyTorch-1.13.1 for one")
    parser.add_argument("--update", action="store_true", help="write lessons/CLAIMS.md")
    args = parser.parse_args()
    try:
        ledger = Ledger(ROOT, args.build, args.sources)
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
