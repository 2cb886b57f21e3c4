#!/usr/bin/env python3
"""blanks.py: checks that every command of the build quotes the checkout's path, which may contain a blank.

Configures the checkout by a link whose name has a blank, and splits all commands as a shell does: no argument may end
or begin in the middle of the path. Nothing is compiled. Exit status 77: cmake or ninja is missing.
"""
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def broken(command, before, after):
    """Returns the arguments that contain only a part of a path."""
    words = shlex.split(command)
    return [word for word in words if word.endswith(before) or word.startswith(after)]


def main():
    if not shutil.which("cmake") or not shutil.which("ninja"):
        print("NOT RUN: cmake or ninja is missing")
        return 77
    with tempfile.TemporaryDirectory() as place:
        source, build = pathlib.Path(place) / "one two" / "source", pathlib.Path(place) / "one two" / "build"
        source.parent.mkdir()
        source.symlink_to(ROOT)
        done = subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"],
                              capture_output=True, text=True)
        if done.returncode:
            print(done.stdout + done.stderr)
            return 1
        listed = subprocess.run(["ninja", "-C", build, "-t", "commands", "all"], capture_output=True, text=True, check=True).stdout
    commands = [command for command in listed.splitlines() if "one two" in command]
    faults = [f"{part} in: {command[:300]}" for command in commands for part in broken(command, f"{place}/one", "two/")]
    for fault in faults[:20]:
        print(f"not quoted: {fault}")
    if not commands or not broken(f"g++ -include {place}/one two/x.hpp", f"{place}/one", "two/"):
        print("this check finds nothing: is the path in the commands?")
        return 1
    print(f"{len(commands)} commands of the build name the checkout: {len(faults)} do not quote it")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
