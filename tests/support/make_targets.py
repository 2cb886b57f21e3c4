#!/usr/bin/env python3
"""make_targets.py: checks that every `make TARGET` that a workflow runs, or that a page or script names, is in the
Makefile.

Workflows may also run .ci/SCRIPT, which must exist and be executable. Exits with 1 and a line for each target or
script that is not. Pages also use "make" in prose: there, only code counts (`...`, and blocks between ```).
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Matches only at the start of a command, so that "apt-get install make git" does not match.
COMMAND = re.compile(r"(?:^|[;&|$(]|\brun:|\bsudo) *make(?: +[A-Z][A-Z0-9_]*=\S*| +-\w+)*((?: [a-z][a-z0-9-]*(?![\w.=/-]))+)")


def targets(root):
    """Targets of the Makefile and of the files that it includes."""
    found = set()
    for name in ("Makefile", "labs/course/labs.mk"):
        for line in (root / name).read_text().splitlines():
            if re.match(r"[a-z][a-z0-9 -]*:(?!=)", line):
                found.update(line.split(":")[0].split())
    return found


def named(text):
    """(line, target) of every make command in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", line)  # comments are not arguments
        for command in COMMAND.finditer(line):
            for target in command[1].split():
                yield number, target


def code_of(page):
    """A Markdown page with everything except its code blanked; the line numbers are unchanged."""
    kept, block = [], False
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            block = not block
            kept.append("")
        elif block or line.startswith("    "):
            kept.append(line)
        else:
            kept.append(" | ".join(re.findall(r"`([^`]+)`", line)))
    return "\n".join(kept)


def faults(root, files):
    known, found, seen = targets(root), [], 0
    for name in files:
        text = (root / name).read_text()
        workflow = name.startswith(".github/workflows/")
        for number, target in named(code_of(text) if name.endswith(".md") else text):
            seen += 1
            if target not in known:
                found.append(f"{name}:{number}: make {target}: the Makefile has no such target")
        for script in re.findall(r"(?<!\S)\.ci/[\w-]+", text) if workflow else []:
            if not os.access(root / script, os.X_OK):
                found.append(f"{name}: {script}: no such program")
    return found, seen


def checks_itself():
    """Examples that must be found, and examples that must not."""
    right = "# make it\n- run: make deps && make lint TIDY=1\n"
    assert [t for _, t in named(right)] == ["deps", "lint"]
    assert [t for _, t in named("make PRESET=clang no-such-target")] == ["no-such-target"]
    assert [t for _, t in named("make -j8 train test  # and then rest")] == ["train", "test"]
    assert list(named("cmake test; ./make test; apt install make git; # make none")) == []
    assert [t for _, t in named(code_of("ranks make sums; `make sum`\n```\nmake bad\n```\nmake none\n"))] == ["sum", "bad"]


def main():
    checks_itself()
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", ".github/workflows/*.yml", "*.md"],
                         cwd=ROOT, capture_output=True, text=True)
    files = [f for f in out.stdout.split() if (ROOT / f).exists()]
    if not files:  # an archive without git
        files = [str(p.relative_to(ROOT)) for p in [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md")]
                 if p.relative_to(ROOT).parts[0] != "build" and "node_modules" not in p.parts]
    found, seen = faults(ROOT, files)
    print("\n".join(found) if found else f"{seen} make commands in {len(files)} files: all targets exist")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
