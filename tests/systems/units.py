#!/usr/bin/env python3
"""units.py BUILD_DIR: checks that no name in an unnamed namespace has two meanings in one unit of compilation.

Several sources are compiled as one unit (CMakeLists.txt, ringsmith_unity; for the labs' judge, labs/course/build.py).
Two functions of the same name in unnamed namespaces of two sources are then overloads, and a call may silently choose
the other file's; the compiler refuses only equal signatures. The judge chooses the sources of a unit by their number,
so a name must be unique in its whole library. Exit status 77: the build compiles each source
separately, and the judge's libraries have no fault.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from labs.course import build  # noqa: E402: after the path is set
from labs.course.lab import all_labs  # noqa: E402

DEFINITION = re.compile(r"^(?!return|using|else|case|if|for|while|struct|class|enum|namespace|template|#|//|.*__launch_bounds__)"
                        r"[A-Za-z_][\w:<>,&*\[\] ]*?[ &*>](\w+)\((?!\*)", re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.M | re.S)
INCLUDED = re.compile(r'^#include "([^"]+\.(?:cpp|cu))"', re.M)


def names(source):
    return {name for block in UNNAMED.findall(source.read_text()) for name in DEFINITION.findall(block)}


def faults_of(sources, where):
    of = {}
    for source in sources:
        for name in names(ROOT / source):
            of.setdefault(name, []).append(str(source))
    return {f"{name}() is in the unnamed namespaces of {' and '.join(files)}, {where}: give each a name of its own, or share it"
            for name, files in of.items() if len(files) > 1}


def judged():
    """Yields (name, patterns of the sources) of each library that the labs' judge compiles."""
    for lab in all_labs():
        for name, patterns in lab.build.get("libraries", {}).items():
            yield name, patterns
    yield "kit", ["labs/kit/*.cpp"]
    yield "vgpu", build.VGPU["patterns"]


def main():
    if len(sys.argv) != 2:
        sys.exit("units.py: name a build folder: units.py build/release")
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    units = sorted({pathlib.Path(c["file"]) for c in commands if "/Unity/unity_" in c["file"]})
    faults = set()
    for unit in units:
        sources = map(pathlib.Path, dict.fromkeys(INCLUDED.findall(unit.read_text())))
        faults |= faults_of([s for s in sources if s.exists()], "which are compiled as one unit")
    libraries = dict(judged())
    for name, patterns in libraries.items():
        sources = [p for p in build.sources_of(patterns) if p.suffix in build.COMPILED]
        if not sources:
            sys.exit(f"units.py: no sources in the judge's library {name}: have its patterns changed?")
        faults |= faults_of([p.relative_to(ROOT) for p in sources], f"which are in the judge's library {name}")
    if not units and not faults:
        print("NOT RUN: this build compiles each source alone; the judge's libraries have no fault")
        return 77
    print("\n".join(sorted(faults)) or f"{len(units)} units, {len(libraries)} libraries of the judge: every name is one file's")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
