#!/usr/bin/env python3
"""units.py BUILD_DIR: checks that no name in an unnamed namespace has two meanings in one unit of compilation.

Several sources are compiled as one unit: in a build (CMakeLists.txt, ringsmith_unity), and in other groups when a lab
makes its libraries (labs/course/build.py). In a repository with a build, labs link the build's emulator, so only a
handout would notice that the other groups do not compile. Two functions of the same name in unnamed namespaces of two
sources of a unit are overloads, and a call may silently choose the other file's; the compiler refuses only equal
signatures. Exit status 77: the build compiles each source separately, and the labs' units have no fault.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from labs.course import build
from labs.course.lab import all_labs

DEFINITION = re.compile(r"^(?!return|using|else|case|if|for|while|struct|class|enum|namespace|template|#|//|.*__launch_bounds__)"
                        r"[A-Za-z_][\w:<>,&*\[\] ]*?[ &*>](\w+)\((?!\*)", re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.M | re.S)
INCLUDED = re.compile(r'^#include "([^"]+\.(?:cpp|cu))"', re.M)


def names(source):
    return {name for block in UNNAMED.findall(source.read_text()) for name in DEFINITION.findall(block)}


def labs_units():
    """Yields the text of each unit of the libraries that labs make."""
    patterns = [build.VGPU["patterns"], *(p for lab in all_labs() for p in lab.build.get("libraries", {}).values())]
    for group in {tuple(p) for p in patterns}:
        yield from build.units_of([p for p in build.sources_of(group) if p.suffix in build.COMPILED])


def faults(unit):
    """Returns a message for each name that two sources of a unit, a text of #include lines, define for themselves."""
    of = {}
    for source in dict.fromkeys(INCLUDED.findall(unit)):
        if (ROOT / source).exists():
            for name in names(ROOT / source):
                of.setdefault(name, []).append(source)
    return {f"{name}() is in the unnamed namespaces of {' and '.join(sources)}, which are compiled as one unit: "
            "give each a name of its own, or share it" for name, sources in of.items() if len(sources) > 1}


def main():
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    units = sorted({pathlib.Path(c["file"]) for c in commands if "/Unity/unity_" in c["file"]})
    texts = [*(unit.read_text() for unit in units), *labs_units()]
    found = set().union(*map(faults, texts))
    if found:
        print("\n".join(sorted(found)))
        return 1
    if not units:
        print("NOT RUN: this build compiles each source alone")
        return 77
    print(f"{len(texts)} units, of which {len(texts) - len(units)} are of the labs' libraries: every name is one file's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
