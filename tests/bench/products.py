#!/usr/bin/env python3
"""Compares matrix products on one thread with oneDNN's (Debian, Ubuntu: apt-get install libdnnl-dev).

products.py [BUILD_DIR] [--rounds 5]: uses kernel_bench's shapes, and alternates the programs. A figure is
the median over rounds; a ratio is the median of the ratios within each round, so that a slow minute
affects both.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = re.compile(r"^matmul\s+c = a b(?:, bf16, (\w+))?\s+(\d+x\d+x\d+)\s+\S+\s+(\S+)\s+GFLOP/s\s+(\S+)")


def ours(bench, seconds):
    """Returns {(shape, kind): GFLOP/s}. kind: f32, OpenBLAS (also f32), widened, avx512_bf16, amx_bf16."""
    text = subprocess.run([bench, "matmul", "--no-oracle", "--seconds", str(seconds)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    rates = {}
    for kind, shape, rate, openblas in (found.groups() for found in map(LINE.match, text.splitlines()) if found):
        rates[shape, kind or "f32"] = float(rate)
        if not kind:
            rates[shape, "OpenBLAS"] = float(openblas)
    return rates


def theirs(program, seconds, shapes):
    text = subprocess.run([program, str(seconds), *shapes], check=True, text=True, stdout=subprocess.PIPE).stdout
    return {(shape, kind): float(rate) for shape, kind, rate in map(str.split, text.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", nargs="?", default=str(ROOT / "build/release"), help="build folder")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program, alternating [5]")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds per product [0.1]")
    options = parser.parse_args()
    bench, peer = pathlib.Path(options.build, "bin/kernel_bench"), pathlib.Path(options.build, "peers/products_dnnl")
    if not bench.exists():
        sys.exit(f"products.py: no {bench}: run make build first")
    peer.parent.mkdir(exist_ok=True)
    built = subprocess.run(["c++", "-std=c++17", "-O2", "-fopenmp", ROOT / "tests/bench/peers/products_dnnl.cpp", "-o", peer,
                            "-ldnnl"], stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(f"products.py: oneDNN's program cannot be built (apt-get install libdnnl-dev):\n{built.stderr}")
    rounds = []
    for _ in range(options.rounds):
        mine = ours(bench, options.seconds)
        rounds.append((mine, theirs(peer, options.seconds, sorted({shape for shape, _ in mine}))))
    pairs = [("f32", "f32"), ("f32", "OpenBLAS")]
    pairs += [(kind, peer_kind) for kind in ("widened", "avx512_bf16", "amx_bf16") for peer_kind in ("bf16", "bf16-packed")]
    print(f"# GFLOP/s on one thread, medians of {options.rounds} rounds; bf16-packed: its second operand is packed before the clock starts")
    print(f"{'shape':14} {'ours':12} {'GFLOP/s':>8}   {'against':12} {'GFLOP/s':>8} {'ratio':>6}")
    for shape, kind in rounds[0][0]:
        for peer_kind in (p for k, p in pairs if k == kind):
            both = [(mine[shape, kind], (mine if peer_kind == "OpenBLAS" else dnnl)[shape, peer_kind]) for mine, dnnl in rounds]
            a, b = (statistics.median(column) for column in zip(*both))
            ratio = statistics.median(x / y for x, y in both)
            name = peer_kind if peer_kind == "OpenBLAS" else f"oneDNN {peer_kind.removeprefix('bf16-')}"
            print(f"{shape:14} {kind:12} {a:8.1f}   {name:12} {b:8.1f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
