#!/usr/bin/env python3
"""contributing.py [FILE]: checks that everything that CONTRIBUTING.md names in `code` still exists.

  paths      in `...`, in links and in the blocks between ```: a file or folder, from the root or from any folder
             (`types/collective.hpp`); `NN`, `NAME` and `NAME.hpp` are placeholders
  names      in `...`: each C++ name (ModeScope, kParallelGrain, submit) occurs in a source
  the kernel the recipe's files of its example, clamp, exist for softmax, which it says to copy
  targets    ninja's tests_ROOM needs the folder tests/ROOM, lessonNN_NAME the file lessons/NN-*/NAME.cpp

make_targets.py checks `make TARGET`. Exit status 1: something is missing.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE, MODEL = ("clamp", "Clamp"), ("softmax", "Softmax")
PATH = re.compile(r"(?<![\w/$.-])(?:[\w.][\w.-]*/)+[\w.-]*|(?<![\w/$.-])[\w-]+\.(?:hpp|cpp|cu|cuh|py|md|toml|sh)\b")
NAME = re.compile(r"(?<![\w./$-])(?!tests_|lesson\d)[A-Za-z_]\w{2,}(?![\w/-]|\.\w)")
PLACEHOLDER = re.compile(r"\bNN\b|\bNAME\b|\bFOLDER\b")
# Created by a build or a run, or parts of the system.
ELSEWHERE = re.compile(r"(?:build|runs|proc|dev|tmp)(?:/|$)|.*\.o$")


class Tree:
    def __init__(self, root):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
        self.files = listed.stdout.split("\n")[:-1]
        self.places = {p for file in self.files for p in self.suffixes(file)}
        texts = (root / f for f in self.files if f.endswith((".hpp", ".cpp", ".cu", ".cuh", ".h", ".py", ".txt", ".cmake", ".mk"))
                 or "." not in f.rsplit("/", 1)[-1])
        here = pathlib.Path(__file__).resolve()
        self.words = set()
        for text in texts:
            if text.is_file() and text.resolve() != here:
                self.words.update(re.findall(r"\w+", text.read_text(encoding="utf-8", errors="replace")))

    @staticmethod
    def suffixes(file):
        """Yields every path, from any folder on the way, of the file and of its folders."""
        parts = file.split("/")
        for last in range(1, len(parts) + 1):
            for first in range(last):
                yield "/".join(parts[first:last])


def faults_of_code(code, tree):
    """Yields the names in a piece of code that do not exist."""
    for example, model in zip(EXAMPLE, MODEL):
        code = code.replace(example, model)
    for path in PATH.findall(code):
        if not PLACEHOLDER.search(path) and not ELSEWHERE.match(path) and path.rstrip("/.") not in tree.places:
            yield f"there is no {path}"
    for room in re.findall(r"\btests_(\w+)", code):
        folder = "tests/" + re.sub("_cuda$", "/cuda", room)
        if folder not in tree.places:
            yield f"tests_{room}: there is no folder {folder}"
    for number, name in re.findall(r"\blesson(\d\d)_(\w+)", code):
        if not any(re.fullmatch(rf"lessons/{number}-.*/{name}\.cpp", file) for file in tree.files):
            yield f"lesson{number}_{name}: there is no lessons/{number}-.../{name}.cpp"


def faults(page, tree):
    found, block = [], False
    for number, line in enumerate(page.splitlines(), 1):
        here = []
        if line.startswith("```"):
            block = not block
        elif block:
            here += faults_of_code(line.split(" #")[0], tree)
        else:
            here += [f"there is no {target}" for target in re.findall(r"\]\(([^):#]+)", line) if target.rstrip("/") not in tree.places]
            for code in re.findall(r"`([^`]+)`", line):
                here += faults_of_code(code, tree)
                for name in NAME.findall(PATH.sub(" ", code)):
                    for example, model in zip(EXAMPLE, MODEL):
                        name = name.replace(example, model)
                    if not PLACEHOLDER.search(name) and name not in tree.words:
                        here.append(f"no source has the name {name}")
        found += [f"{number}: {fault}" for fault in here]
    return found


def main():
    page = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "CONTRIBUTING.md"
    found = faults(page.read_text(encoding="utf-8"), Tree(ROOT))
    for fault in found:
        print(f"{page.name}:{fault}")
    if not found:
        print(f"{page.name}: everything that it names exists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
