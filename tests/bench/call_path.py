#!/usr/bin/env python3
"""call_path.py: lists the files and functions that every all_reduce between two processes executes after
start-up, from ProcessGroup::all_reduce to the kernel that adds. Fails if there are more files, or more
folders, than the limits below. Uses a coverage build (a few minutes).

A rank that waits long sleeps, and then executes more files. That depends on the machine's load, so
the call is measured several times, and such files are listed separately.

  call_path.py [--build build/coverage] [--bytes 1048576]
"""
import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FILES, MOST_FOLDERS = 25, 9  # lower these when the path gets shorter
RUNS = 5


def executed(build, size):
    """Returns {file: names of its functions} of one call."""
    for old in build.rglob("*.gcda"):
        old.unlink()
    subprocess.run([ROOT / "tests/support/mpirun.sh", "2", build / "bin/call_path", size], check=True, stderr=subprocess.DEVNULL)
    functions = {}  # file -> names
    with tempfile.TemporaryDirectory() as folder:
        for data in build.rglob("*.gcda"):
            subprocess.run(["gcov", "--json-format", str(data)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for report in pathlib.Path(folder).glob("*.gcov.json.gz"):
                for file in json.loads(gzip.open(report).read())["files"]:
                    path = os.path.relpath(os.path.join(build, file["file"]), ROOT) if not os.path.isabs(file["file"]) else os.path.relpath(file["file"], ROOT)
                    if path.startswith("..") or path.startswith("tests/"):
                        continue
                    hit = {f["demangled_name"] for f in file["functions"] if f["execution_count"] > 0}
                    if hit:
                        functions.setdefault(path, set()).update(hit)
                report.unlink()
    return functions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/coverage")
    parser.add_argument("--bytes", default=str(1 << 20), help="bytes of the message")
    args = parser.parse_args()
    build = ROOT / args.build
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DRINGSMITH_ARCH=x86-64-v3",
                    "-DCMAKE_CXX_FLAGS=--coverage -g0", "-DCMAKE_CXX_FLAGS_DEBUG=-O0"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, "call_path"], check=True)
    runs = [executed(build, args.bytes) for _ in range(RUNS)]
    functions = {path: set.union(*(run[path] for run in runs)) for path in set.intersection(*map(set, runs))}
    sometimes = sorted(set.union(*map(set, runs)) - set(functions))
    total = 0
    for path in sorted(functions):
        lines = (ROOT / path).read_text().count("\n")
        total += lines
        print(f"{lines:5} {len(functions[path]):3} functions  {path}")
    folders = len({os.path.dirname(path) for path in functions})
    if sometimes:
        print(f"only in some of {RUNS} runs, when a rank sleeps: {', '.join(sometimes)}")
    units = len({path.rsplit(".", 1)[0] for path in functions})
    print(
        f"{len(functions)} files ({units} if a header and its source count once) in {folders} folders, {total} lines, "
        f"{sum(map(len, functions.values()))} functions"
    )
    if not functions:
        sys.exit("call_path.py: gcov has found no function of the path; is it g++'s own gcov?")
    if len(functions) > MOST_FILES or folders > MOST_FOLDERS:
        sys.exit(f"call_path.py: an all_reduce may execute {MOST_FILES} files in {MOST_FOLDERS} folders at most")


if __name__ == "__main__":
    main()
