"""Reads budgets.txt: the instructions of a pass of a kernel's hot loop, for predictions."""
import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "budgets.txt"


def issued(pattern, arch="sm_90"):
    """The budget of the kernel with this pattern. `make nvcc-check` fails when the kernel needs more."""
    for line in FILE.read_text().splitlines():
        fields = line.split()
        if len(fields) == 7 and not line.startswith("#") and fields[1] == pattern and fields[2] == arch:
            return int(fields[5])
    raise SystemExit(f"{FILE.name} has no kernel {pattern} for {arch}")
