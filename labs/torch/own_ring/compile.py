#!/usr/bin/env python3
"""make own-ring: compiles the ring of lab 06 in work/06-ring to work/06-ring/ring.so, for --schedule work/06-ring.

    compile.py [FOLDER with a ring.hpp]        LAB06=ref: the course's own, in build/labs/own-ring

all_reduce_perf, train_gpt and PyTorch's backend load it, and prove its steps with the checker.
"""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP))

from labs.course.build import CXX, FLAGS  # noqa: E402
from labs.course.commands import submission  # noqa: E402
from labs.course.lab import BUILD, select  # noqa: E402
from labs.course.split import texts  # noqa: E402
from labs.course.verdicts import AuthorError  # noqa: E402


def compile_ring(given=None):
    lab, = select("06")
    if os.environ.get("LAB06") == "ref":
        folder = BUILD / "own-ring"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts(lab, solution=True).items():
            (folder / name).write_text(text)
    else:
        folder = pathlib.Path(given).resolve() if given else lab.work
        if given is None:
            submission(lab)  # raises an error that names missing files
        elif not (folder / "ring.hpp").exists():
            raise AuthorError(f"there is no ring.hpp in {given}")
    made = folder / "ring.so"
    done = subprocess.run([CXX, *FLAGS, "-fPIC", "-shared",
                           f'-DLAB06_RING="{folder / "ring.hpp"}"', "labs/torch/own_ring/object.cpp", "labs/kit/todo.cpp",
                           "-o", str(made)], cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AuthorError(f"{folder / 'ring.hpp'} does not compile:\n{done.stderr}")
    return made


if __name__ == "__main__":
    try:
        print(f"{compile_ring(*sys.argv[1:2])}: for --schedule of all_reduce_perf, train_gpt and labs/torch/train.py")
    except AuthorError as wrong:
        sys.exit(f"own-ring: {wrong}")
