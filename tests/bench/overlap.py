#!/usr/bin/env python3
"""overlap.py [BUILD_DIR]: measures the benefit of overlap on a link where the gradients take as long as
backward.

Two network namespaces, one rank in each (as root). First a training run with negligible communication
measures how long backward takes; then the link is shaped so that the gradients take as long (or
--slower times that). One more run corrects the rate, because a processor that idles between steps
is slower within them. Then training runs follow in which every second step overlaps (train_gpt --overlap
alternate): each step is compared with its neighbour, since a shared machine's speed drifts by more than
a tenth within a minute. The batch is large so that the processor time of TCP, which a real network card
would save, is small compared with the gradients' time on the link. Prints medians:

    off   forward | backward | ===== gradients ===== | optimizer
    on    forward | backward ........... |== tail ==| optimizer
                    ===== gradients =====

  speed-up   the step's time without overlap divided by its time with it
  ideal      the speed-up if only the first bucket's computation and the last one's transfer were exposed
  exposed    from the trace: communication while nothing computes. Its difference between two
             neighbours should be the difference of their times.
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
WARMUP = 4  # steps that are not counted


class Nodes(Link):
    """Trains on the two nodes."""

    def __init__(self, options, work):
        super().__init__(options, work)
        self.text = os.path.join(work, "text")
        with open(os.path.join(HERE, "../../README.md"), "rb") as source, open(self.text, "wb") as copy:
            copy.write(source.read(20000))

    def train(self, overlap):
        """Returns the rows of metrics.jsonl without the first ones, and the number of the
        model's parameters."""
        folder = os.path.join(self.work, f"run{self.runs}")
        self.on_all_ranks([os.path.join(self.bin, "train_gpt"), "--data", self.text, *MODEL,
                           "--batch", str(self.options.batch), "--bucket-cap-mb", str(self.options.bucket),
                           "--overlap", overlap, "--steps", str(self.options.steps + WARMUP), "--run-dir", folder])
        with open(os.path.join(folder, "metrics.jsonl")) as lines:
            rows = [json.loads(line) for line in lines]
        return rows[WARMUP:], os.path.getsize(os.path.join(folder, "model.safetensors")) / 4


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def shape(nodes, options):
    """Slows the link until exchanging the gradients takes as long as backward, times
    options.slower."""
    rows, parameters = nodes.train("off")
    rate = parameters * 4 * 8 / (median(rows, "backward_ms") / 1e3) / options.slower
    print(f"# {parameters * 4 / 2**20:.2f} MiB of gradients, buckets of {options.bucket} MiB; a step alone: forward "
          f"{median(rows, 'forward_ms'):.1f} ms, backward {median(rows, 'backward_ms'):.1f}, optimizer "
          f"{median(rows, 'optimizer_ms'):.1f}", flush=True)
    nodes.cluster("shape", "all", "--rate", f"{rate / 1e3:.0f}kbit")
    rows, _ = nodes.train("off")
    rate *= median(rows, "comm_ms") / median(rows, "backward_ms") / options.slower
    nodes.cluster("shape", "all", "--rate", f"{rate / 1e3:.0f}kbit")
    print(f"# the link: {rate / 1e6:.0f} Mbit/s", flush=True)


def measure(nodes, options):
    """Returns [{off: row, on: row}]: pairs of neighbouring steps of each training. Odd steps do not
    overlap."""
    pairs = []
    print(f"# {'round':>5} {'overlap':>8} {'step':>8} {'forward':>8} {'backward':>9} {'gradients':>10} {'exposed':>8}  ms")
    for number in range(options.rounds):
        rows, _ = nodes.train("alternate")
        two = {"off": [r for r in rows if r["step"] % 2], "on": [r for r in rows if not r["step"] % 2]}
        for overlap, some in two.items():
            cells = [median(some, key + "_ms") for key in ("step", "forward", "backward", "comm", "exposed")]
            print(f"  {number + 1:>5} {overlap:>8} {cells[0]:>8.1f} {cells[1]:>8.1f} {cells[2]:>9.1f} {cells[3]:>10.1f} "
                  f"{cells[4]:>8.1f}", flush=True)
        pairs += [dict(zip(two, both)) for both in zip(*two.values())]
    return pairs


def verdict(pairs, options):
    def over_pairs(value):
        return statistics.median(value(pair["off"], pair["on"]) for pair in pairs)
    speedup = over_pairs(lambda off, on: off["step_ms"] / on["step_ms"])
    saved = over_pairs(lambda off, on: off["step_ms"] - on["step_ms"])
    exposed = over_pairs(lambda off, on: off["exposed_ms"] - on["exposed_ms"])
    ratio = over_pairs(lambda off, on: off["comm_ms"] / off["backward_ms"])
    ideal = over_pairs(lambda off, on: off["step_ms"] / (off["step_ms"] - min(off["comm_ms"], off["backward_ms"])))
    agree = abs(exposed / saved - 1) if saved > 0 else float("inf")
    print(f"# gradients take {ratio:.2f} times as long as backward; speed-up x{speedup:.2f} (everything hidden: "
          f"x{ideal:.2f}); medians of {len(pairs)} pairs of steps")
    print(f"# saved a step: {saved:.1f} ms by the clock, {exposed:.1f} ms of exposed communication by the trace")
    good = [(speedup >= options.least, f"overlap makes a step at least x{options.least:g} faster: x{speedup:.2f}"),
            (agree <= 0.15, f"the trace agrees with the clock within 15 %: {agree:.0%}")]
    for passed, what in good:
        print(f"{'PASS' if passed else 'FAIL'}  {what}")
    return all(passed for passed, _ in good)


def main():
    here = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_options(here)
    here.add_argument("--steps", type=int, default=16, help="measured steps of each training run")
    here.add_argument("--batch", type=int, default=128, help="windows per step and rank")
    here.add_argument("--bucket", type=float, default=0.25, help="MiB of gradients in one all-reduce")
    here.add_argument("--slower", type=float, default=1.0, help="time of the all-reduces, as a multiple of backward's")
    here.add_argument("--least", type=float, default=1.35, help="minimum speed-up")
    options = here.parse_args()
    need_root()
    with tempfile.TemporaryDirectory() as work:
        nodes = Nodes(options, work)
        nodes.cluster("up", "2")
        try:
            shape(nodes, options)
            good = verdict(measure(nodes, options), options)
        finally:
            nodes.cluster("down")
    return 0 if good or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
