#!/usr/bin/env python3
"""overlap.py [BUILD_DIR]: what overlap is worth on a link that is as slow as backward is long.

Two network namespaces, one rank in each (as root). First a training without communication worth
mentioning says how long backward takes; then the link is shaped so that the gradients take as long
(or --slower times that), and the same training runs without and with overlap, alternating. Printed
are medians over steps, then over rounds:

    off   forward | backward | ===== gradients ===== | optimizer
    on    forward | backward ........... |== tail ==| optimizer
                    ===== gradients =====

  speed-up   the step's time without overlap over that with it
  ideal      the same if all but the first bucket's computing and the last one's travel were hidden
  exposed    what the trace says: communication while nothing computes. Its difference between the two
             runs should be the difference of the steps.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

from link import HERE, Link, need_root, run_options

MODEL = ["--layers", "8", "--dim", "128", "--heads", "4", "--context", "64", "--validation-windows", "2",
         "--sample", "0", "--progress", "off", "--timeout", "20"]


class Nodes(Link):
    """Trainings on the two."""

    def __init__(self, options, work):
        super().__init__(options, work)
        self.text = os.path.join(work, "text")
        with open(os.path.join(HERE, "../../README.md"), "rb") as source, open(self.text, "wb") as copy:
            copy.write(source.read(20000))

    def train(self, overlap, steps):
        """Medians over rank 0's steps, of the columns of metrics.jsonl; and the model's parameters."""
        folder = os.path.join(self.work, f"run{self.runs}")
        self.on_all_ranks([os.path.join(self.bin, "train_gpt"), "--data", self.text, *MODEL,
                           "--batch", str(self.options.batch), "--bucket-cap-mb", str(self.options.bucket),
                           "--overlap", overlap, "--steps", str(steps), "--run-dir", folder])
        with open(os.path.join(folder, "metrics.jsonl")) as lines:
            rows = [json.loads(line) for line in lines]
        rows = [row for row in rows if "step_ms" in row][self.options.warmup:]
        return {key: statistics.median(row[key] for row in rows) for key in rows[0] if key.endswith("_ms")}, \
            os.path.getsize(os.path.join(folder, "model.safetensors")) / 4


def measure(nodes, options):
    plain, parameters = nodes.train("off", options.steps)
    rate = parameters * 4 * 8 / (plain["backward_ms"] / 1e3) / options.slower
    print(f"# {parameters * 4 / 2**20:.2f} MiB of gradients, buckets of {options.bucket} MiB; a step alone: forward "
          f"{plain['forward_ms']:.1f} ms, backward {plain['backward_ms']:.1f}, optimizer {plain['optimizer_ms']:.1f}; "
          f"the link: {rate / 1e6:.0f} Mbit/s", flush=True)
    nodes.cluster("shape", "all", "--rate", f"{rate / 1e6:.0f}mbit")
    rounds = []
    print(f"# {'round':>5} {'overlap':>8} {'step':>8} {'forward':>8} {'backward':>9} {'gradients':>10} {'exposed':>8}  ms")
    for number in range(options.rounds):
        one = {}
        for overlap in ("off", "on"):
            one[overlap], _ = nodes.train(overlap, options.steps)
            m = one[overlap]
            print(f"  {number + 1:>5} {overlap:>8} {m['step_ms']:>8.1f} {m['forward_ms']:>8.1f} {m['backward_ms']:>9.1f} "
                  f"{m['comm_ms']:>10.1f} {m['exposed_ms']:>8.1f}", flush=True)
        rounds.append(one)
    return rounds


def verdict(rounds, options):
    def over_rounds(value):
        return statistics.median(value(one) for one in rounds)
    speedup = over_rounds(lambda r: r["off"]["step_ms"] / r["on"]["step_ms"])
    saved = over_rounds(lambda r: r["off"]["step_ms"] - r["on"]["step_ms"])
    exposed = over_rounds(lambda r: r["off"]["exposed_ms"] - r["on"]["exposed_ms"])
    ratio = over_rounds(lambda r: r["off"]["comm_ms"] / r["off"]["backward_ms"])
    ideal = over_rounds(lambda r: r["off"]["step_ms"] /
                        (r["off"]["step_ms"] - min(r["off"]["comm_ms"], r["off"]["backward_ms"])))
    agree = abs(exposed / saved - 1) if saved > 0 else float("inf")
    print(f"# gradients take {ratio:.2f} times as long as backward; speed-up x{speedup:.2f} (everything hidden: x{ideal:.2f})")
    print(f"# saved a step: {saved:.1f} ms by the clock, {exposed:.1f} ms of exposed communication by the trace")
    good = [(speedup >= options.least, f"overlap makes a step at least x{options.least:g} faster: x{speedup:.2f}"),
            (agree <= 0.15, f"the trace agrees with the clock within 15 %: {agree:.0%}")]
    for passed, what in good:
        print(f"{'PASS' if passed else 'FAIL'}  {what}")
    return all(passed for passed, _ in good)


def main():
    here = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_options(here)
    here.add_argument("--steps", type=int, default=25, help="of each training")
    here.add_argument("--warmup", type=int, default=5, help="steps that do not count")
    here.add_argument("--batch", type=int, default=16, help="windows a step, of each rank")
    here.add_argument("--bucket", type=float, default=0.25, help="MiB of gradients in one all-reduce")
    here.add_argument("--slower", type=float, default=1.0, help="how many times backward the gradients shall take")
    here.add_argument("--least", type=float, default=1.35, help="speed-up to pass")
    options = here.parse_args()
    need_root()
    with tempfile.TemporaryDirectory() as work:
        nodes = Nodes(options, work)
        nodes.cluster("up", "2")
        try:
            good = verdict(measure(nodes, options), options)
        finally:
            nodes.cluster("down")
    return 0 if good or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
