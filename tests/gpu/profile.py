#!/usr/bin/env python3
"""profile.py CSV [CSV...] [--step-counts PROGRAM] [--memory TB/s]: a step as a GPU has run it, divided into the parts of
step_table.py. Kernels that belong to no part there are counted as "other".

A CSV is the output of Nsight Compute for the last step of train_bench (run.sh, part `profile`):

    ncu --csv --profile-from-start off --metrics gpu__time_duration.sum,dram__bytes.sum,sm__inst_issued.sum \\
      train_bench gpt ...

The first line of a CSV that begins with "batch" gives the number of sequences (run.sh writes it). ncu runs one kernel at a
time, so the sum contains no gaps between kernels, and a kernel finds higher clocks than in a long run.

--step-counts: print the prediction for GPT-2's step beside the measurement, for a memory of --memory TB/s (default: the
H100's; an H200 has 4.8).
"""
import argparse
import collections
import csv
import pathlib
import re
import sys

import h100
import step_table

PRODUCTS = re.compile(r"nvjet|cutlass|cublas|gemm|epilogue::|pipelined<|splitKreduce", re.I)
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "inst": 1}
OTHER = "other"
TIME, BYTES, ISSUED = "gpu__time_duration.sum", "dram__bytes.sum", "sm__inst_issued.sum"


def part_of(name, after_loss):
    """The part to which a kernel belongs. after_loss: the step's backward pass has begun."""
    name = re.sub(r"ringsmith::|kernels::cuda::|<unnamed>::|\(anonymous namespace\)::|unnamed>::", "", name)
    if PRODUCTS.search(name):
        return "products, backward" if after_loss else "products, forward"
    if "UnaryOp<8>" in name or "BinaryOp<9>" in name:  # of steps in which no product computes GELU
        return "GELU, backward" if after_loss else "GELU, forward"
    try:
        part = step_table.part_of(name)
    except SystemExit:  # of another library, or of a changed step
        return OTHER
    return "residual, forward" if part == "residual, backward" and not after_loss else part


def read(path):
    """(sequences, launches in order: {name, metric: value})."""
    lines = path.read_text().splitlines()
    batch = next((int(line.split()[1]) for line in lines if line.startswith("batch ")), None)
    rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    if not rows:
        raise SystemExit(f"profile.py: '{path}' has no row of ncu --csv: its last line is '{lines[-1] if lines else ''}'")
    launches = collections.OrderedDict()
    for row in rows:
        launch = launches.setdefault(int(row["ID"]), {"name": row["Kernel Name"]})
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", "")) * UNITS[row["Metric Unit"]]
    return batch, list(launches.values())


def measured(launches):
    """Part: Counter of launches, seconds, bytes, issued instructions."""
    parts, after_loss = collections.defaultdict(collections.Counter), False
    for launch in launches:
        after_loss = after_loss or "logit_gradient" in launch["name"]
        parts[part_of(launch["name"], after_loss)].update(
            launches=1, seconds=launch[TIME], bytes=launch.get(BYTES, 0), issued=launch.get(ISSUED, 0))
    return parts


def table(path, model):
    batch, launches = read(path)
    parts = measured(launches)
    predicted = {}
    if model is not None:
        if batch is None:
            raise SystemExit(f"profile.py: '{path}' does not say of how many sequences it is: add a line 'batch 4' at its top")
        predicted = {p.name: p.seconds * 1e3 for p in step_table.predict(model, step_table.gpt2(batch))}
    head = f"{'part':33} launches     ms     GB   GB/s  G issued"
    lines = [f"{batch or 'an unknown number of'} sequences", head + ("  predicted ms" if predicted else "")]
    order = [*step_table.PARTS, "fills"]
    for name in sorted(parts, key=lambda n: order.index(n) if n in order else len(order)):
        p = parts[name]
        lines.append(f"{name:33} {p['launches']:8} {p['seconds'] * 1e3:6.2f} {p['bytes'] / 1e9:6.2f} "
                     f"{p['bytes'] / p['seconds'] / 1e9:6.0f} {p['issued'] / 1e9:9.2f}"
                     + (f"  {predicted.get(name, 0):12.2f}" if predicted else ""))
    total = sum((p for p in parts.values()), collections.Counter())
    lines.append(f"{'sum':33} {total['launches']:8} {total['seconds'] * 1e3:6.2f} {total['bytes'] / 1e9:6.2f} "
                 f"{total['bytes'] / total['seconds'] / 1e9:6.0f} {total['issued'] / 1e9:9.2f}"
                 + (f"  {sum(predicted.values()):12.2f}" if predicted else ""))
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("csv", type=pathlib.Path, nargs="+")
    p.add_argument("--step-counts", type=pathlib.Path, help="the program whose counts the prediction is made from")
    p.add_argument("--memory", type=float, help="TB/s of the device's memory, by its data sheet")
    a = p.parse_args()
    if a.memory is not None:
        h100.MEMORY = h100.Figure(a.memory * 1e12, "bytes/s", "--memory")
    model = step_table.Model(step_table.counted(a.step_counts)) if a.step_counts else None
    print("\n\n".join(table(path, model) for path in a.csv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
