#!/usr/bin/env python3
"""nodes.py [BUILD_DIR]: the ring, the pairwise two-shot and the hierarchical all-reduce on two nodes of four
ranks with a slow link between them (network namespaces, as root). Runs in turn, medians; what each sends over the
link follows from its schedule (runtime/comm/schedule/hierarchical.hpp), and tests/nodes/run.sh bytes counts it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from link import HERE, PORT, Link

ALGORITHMS = ("ring", "direct", "hierarchical")


class Nodes(Link):
    def all_reduce(self, algorithm, size, per_node):
        """Seconds of one, by the slowest rank."""
        self.runs += 1
        secret = os.path.join(self.work, f"secret{self.runs}")
        subprocess.run([os.path.join(self.bin, "ringrun"), "--make-secret", secret], check=True)
        out = self.on_both([[os.path.join(self.bin, "ringrun"), "--nnodes", "2", "--node-rank", str(node), "--no-prefix",
                             "--master-addr", "10.88.0.1", "--master-port", str(PORT + self.runs), "--secret-file", secret,
                             "--nproc-per-node", str(per_node), "--", os.path.join(self.bin, "all_reduce_perf"),
                             "-b", str(size), "-n", "3", "-w", "1", "--place", "in", "--memory", "user",
                             "--algorithm", algorithm, "--json"] for node in (0, 1)])[0]
        report = json.loads(out[out.index("{"):])
        if report["out_of_bounds"] != 0:
            sys.exit("nodes.py: wrong values")
        return report["results"][0]["in_place"]["time_us"] / 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", nargs="?", default=os.path.join(HERE, "../../build/release"), help="build folder")
    p.add_argument("--rate", default="1gbit", help="of the link")
    p.add_argument("--delay", default="500us", help="one way")
    p.add_argument("--size", type=int, default=16, help="of the message, MiB")
    p.add_argument("--per-node", type=int, default=4, help="ranks of each of the two nodes")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--strict", action="store_true", help="exit with 1 unless hierarchical is faster than the ring")
    options = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("nodes.py: network namespaces need root")
    with tempfile.TemporaryDirectory() as work:
        nodes = Nodes(options, work)
        nodes.cluster("up", "2", "--rate", options.rate, "--delay", options.delay)
        try:
            times = {a: [] for a in ALGORITHMS}
            for _ in range(options.rounds):
                for algorithm in ALGORITHMS:
                    times[algorithm].append(nodes.all_reduce(algorithm, options.size << 20, options.per_node))
        finally:
            nodes.cluster("down")
    m = options.per_node
    # Messages' worth of bytes that one node sends to the other in an all-reduce.
    each_way = {"ring": (2 * m - 1) / m, "direct": m, "hierarchical": 1}
    print(f"# 2 nodes of {m} ranks, {options.rate}, {options.delay} each way, {options.size} MiB, "
          f"medians of {options.rounds} rounds:")
    median = {a: statistics.median(t) for a, t in times.items()}
    for a in ALGORITHMS:
        print(f"{a:13} {median[a] * 1e3:8.1f} ms   over the link {each_way[a] * options.size:6.1f} MiB each way, "
              f"{each_way[a] * (options.size << 20) * 8 / median[a] / 1e6:5.0f} Mbit/s   "
              f"{median['ring'] / median[a]:5.2f} x the ring's speed")
    good = median["hierarchical"] < median["ring"]
    print(f"{'PASS' if good else 'FAIL'}  hierarchical is faster than the ring")
    return 0 if good or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
