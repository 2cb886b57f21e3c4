#!/usr/bin/env python3
"""hooks_test.py: tests .ci/hooks in a temporary repository: the commits that they refuse and accept, and
their speed.

Exit codes: 0 all tests passed, 1 a test failed, 77 not run: no git or no clang-format 14 here.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = "Ranks meet earlier\n\nThe store answered after the deadline.\n"
CLEAN = '#include "runtime/base/error.hpp"\n\nint one() { return 1; }\n'
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
               "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
               "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)


def repository(folder):
    for name in (".ci/lint", ".ci/hooks/pre-commit", ".ci/hooks/commit-msg", ".clang-format", "runtime/base/error.hpp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "runtime/parallel").mkdir()
    (folder / "runtime/parallel/above.hpp").write_text("#pragma once\n")
    git(folder, "init", "-q")
    git(folder, "config", "core.hooksPath", ".ci/hooks")
    git(folder, "add", ".")
    first = git(folder, "commit", "-qm", GOOD)
    assert first.returncode == 0, first.stderr


def commits(folder, text, message=GOOD, *options, path="runtime/base/one.cpp"):
    """Returns (whether it was committed, output)."""
    before = git(folder, "rev-parse", "HEAD").stdout
    if text is not None:
        (folder / path).write_text(text)
        git(folder, "add", path)
    done = git(folder, "commit", "--allow-empty", "-m", message, *options)
    committed = git(folder, "rev-parse", "HEAD").stdout != before
    git(folder, "reset", "-q", "--hard")
    return committed, done.stderr


def main():
    version = shutil.which("clang-format") and subprocess.run(["clang-format", "--version"], capture_output=True, text=True)
    if not shutil.which("git") or not version or "version 14." not in version.stdout:
        print("NOT RUN: no git or no clang-format 14 here (make lint installs it on Debian 12)")
        sys.exit(77)
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "a folder"
        folder.mkdir()
        repository(folder)

        def expect(what, word, *call, **where):
            """Commits, and records a wrong result. word: a word of the refusal, or None if the
            commit must succeed."""
            committed, said = commits(folder, *call, **where)
            if committed != (word is None) or (word or "") not in said:
                wrong.append(f"{what}: {'committed' if committed else 'refused'}, and said: {said.strip() or 'nothing'}")

        expect("a clean file", None, CLEAN)
        expect("a file without format", "not formatted", "int  two( ){return 2;}\n")
        expect("the same, skipped", None, "int  two( ){return 2;}\n", GOOD, "--no-verify")
        expect("an include that points up", "points up", '#include "runtime/parallel/above.hpp"\n', path="runtime/base/three.cpp")
        expect("a note to oneself", "left open", "// " + "TO" + "DO: later\n", path="runtime/base/four.cpp")
        expect("a page", None, "#  no C++\n", path="page.md")
        expect("a long subject", "73 characters", None, "x" * 73 + "\n\nWhy.\n")
        expect("72 characters, not bytes", None, None, "ä" * 72 + "\n\nWhy.\n")
        expect("no body", "no body", None, "Ranks meet earlier\n")
        expect("a body of comments", "no body", None, "Ranks meet earlier\n\n# why\n", "--cleanup=verbatim")
        expect("no empty line", "second line", None, "Ranks meet earlier\nbecause.\n")
        expect("no body, skipped", None, None, "Ranks meet earlier\n", "--no-verify")
        expect("a merge", None, None, "Merge branch 'x'\n")

        # Only staged contents count. Here a clean file is staged, and the work tree has a wrong
        # copy.
        (folder / "runtime/base/five.cpp").write_text(CLEAN)
        git(folder, "add", ".")
        (folder / "runtime/base/five.cpp").write_text("int  five( ){}\n")
        done = git(folder, "commit", "-qm", GOOD)
        if done.returncode != 0:
            wrong.append(f"a staged file that is clean was refused for its copy in the work tree: {done.stderr}")
        git(folder, "reset", "-q", "--hard")

        # Another version of clang-format judges nothing, and the committer reads that.
        tools = pathlib.Path(name) / "tools"
        tools.mkdir()
        for tool in ("clang-format", "clang-format-14"):
            (tools / tool).write_text("#!/bin/sh\necho Debian clang-format version 19.1.7\nexit 1\n")
            (tools / tool).chmod(0o755)
        path = ENVIRONMENT["PATH"]
        ENVIRONMENT["PATH"] = f"{tools}:{path}"
        expect("no format, and clang-format 19", None, "int  two( ){return 2;}\n")
        (folder / "runtime/base/two.cpp").write_text("int  two( ){return 2;}\n")
        git(folder, "add", ".")
        said = git(folder, "commit", "-qm", GOOD).stderr
        if "NOT looked at: clang-format is version 19" not in said:
            wrong.append(f"clang-format 19: the commit does not say that formatting was not looked at: {said.strip()}")
        git(folder, "reset", "-q", "--hard", "HEAD~1")
        ENVIRONMENT["PATH"] = path

        for n in range(40):
            (folder / f"runtime/base/many{n}.cpp").write_text(CLEAN)
        git(folder, "add", ".")
        begin = time.monotonic()
        done = git(folder, "commit", "-qm", GOOD)
        seconds = time.monotonic() - begin
        if done.returncode != 0:
            wrong.append(f"40 clean files were refused: {done.stderr}")
        print(f"40 files: {seconds:.1f} s")
    print("\n".join(wrong) if wrong else "hooks: all holds")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
