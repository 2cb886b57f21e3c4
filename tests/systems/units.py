#!/usr/bin/env python3
"""units.py BUILD_DIR: checks that no name in an unnamed namespace has two meanings in one unit of compilation.

Several sources are compiled as one unit (CMakeLists.txt, ringsmith_unity). Two functions of the same name in unnamed
namespaces of two sources are then overloads, and a call may silently choose the other file's; the compiler refuses
only equal signatures. Exit status 77: the build compiles each source separately.
"""
import json
import pathlib
import re
import sys

DEFINITION = re.compile(r"^(?!return|using|else|case|if|for|while|struct|class|enum|namespace|template|#|//|.*__launch_bounds__)"
                        r"[A-Za-z_][\w:<>,&*\[\] ]*?[ &*>](\w+)\((?!\*)", re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.M | re.S)
INCLUDED = re.compile(r'^#include "([^"]+\.(?:cpp|cu))"', re.M)


def names(source):
    return {name for block in UNNAMED.findall(source.read_text()) for name in DEFINITION.findall(block)}


def main():
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    units = sorted({pathlib.Path(c["file"]) for c in commands if "/Unity/unity_" in c["file"]})
    if not units:
        print("NOT RUN: this build compiles each source alone")
        return 77
    faults = set()
    for unit in units:
        of = {}
        for source in dict.fromkeys(INCLUDED.findall(unit.read_text())):
            if pathlib.Path(source).exists():
                for name in names(pathlib.Path(source)):
                    of.setdefault(name, []).append(source)
        for name, sources in of.items():
            if len(sources) > 1:
                faults.add(f"{name}() is in the unnamed namespaces of {' and '.join(sources)}, which are compiled as one unit: "
                           "give each a name of its own, or share it")
    print("\n".join(sorted(faults)) or f"{len(units)} units: every name is one file's")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
