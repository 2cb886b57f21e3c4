#!/usr/bin/env python3
"""nodes.py [BUILD_DIR]: compares the ring, the pairwise two-shot and the hierarchical all-reduce on two nodes of
four ranks with a slow link between them (network namespaces, as root). Runs alternate; figures are medians. The
bytes that each algorithm sends over the link follow from its schedule (runtime/comm/schedule/hierarchical.hpp);
`tests/nodes/run.sh bytes` counts them.
"""
import argparse
import statistics
import sys
import tempfile

from link import Link, link_options, need_root

ALGORITHMS = ("ring", "direct", "hierarchical")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    link_options(p)
    p.add_argument("--per-node", type=int, default=4, help="ranks of each of the two nodes")
    options = p.parse_args()
    need_root()
    with tempfile.TemporaryDirectory() as work:
        nodes = Link(options, work)
        nodes.cluster("up", "2", "--rate", options.rate, "--delay", options.delay)
        try:
            times = {a: [] for a in ALGORITHMS}
            for _ in range(options.rounds):
                for algorithm in ALGORITHMS:
                    times[algorithm].append(nodes.all_reduce(algorithm, options.size << 20, per_node=options.per_node, iterations=3))
        finally:
            nodes.cluster("down")
    m = options.per_node
    # Bytes that one node sends to the other in an all-reduce, in units of the message.
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
