#!/usr/bin/env python3
"""by_name.py TRACE: the cost of each collective of each rank, and which rank is late, from trace.json alone: it
shares no code with the table that the training programs print. The first two steps are left out."""
import collections
import json
import sys


def unite(pieces):
    out = []
    for begin, end in sorted(pieces):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(pieces):
    return sum(end - begin for begin, end in unite(pieces))


def subtract(a, b):
    out = []
    for begin, end in unite(a):
        for hole, until in unite(b):
            if hole < end and until > begin:
                if hole > begin:
                    out.append((begin, hole))
                begin = min(until, end)
        if begin < end:
            out.append((begin, end))
    return out


def spans_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [s for s in json.load(file)["traceEvents"] if s["ph"] == "X"]
    except OSError as error:
        sys.exit(f"by_name.py: cannot read '{path}': {error.strerror}")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"by_name.py: '{path}' is not a trace: give the trace.json that a training program wrote to its --run-dir")


def main():
    if len(sys.argv) != 2:
        sys.exit("by_name.py: name one trace: by_name.py RUN_DIR/trace.json")
    spans = spans_of(sys.argv[1])
    ranks = sorted({s["pid"] for s in spans})
    steps = len([s for s in spans if s["name"] == "step" and s["pid"] == 0]) - 2
    if steps < 1:
        sys.exit(f"by_name.py: '{sys.argv[1]}' has {steps + 2} steps of rank 0: the first two are left out, train for more")
    starts = collections.defaultdict(list)  # of the all-reduces, by rank
    print("rank  collective  a step  ms a step  exposed  hidden")
    for rank in ranks:
        mine = [s for s in spans if s["pid"] == rank]
        begin = sorted(s["ts"] for s in mine if s["name"] == "step")[2]
        by_name, working = collections.defaultdict(list), []
        for thread in {s["tid"] for s in mine}:
            cats = collections.defaultdict(list)
            for s in mine:
                if s["tid"] == thread and s["ts"] >= begin:
                    cats[s["cat"]].append((s["ts"], s["ts"] + s["dur"]))
            working += subtract(cats["compute"] + cats["optim"], cats["comm"] + cats["wait"])
        for s in sorted(mine, key=lambda s: s["ts"]):
            if s["cat"] == "comm" and s["ts"] >= begin:
                by_name[s["name"]].append((s["ts"], s["ts"] + s["dur"]))
        starts[rank] = [b for b, _ in by_name["all_reduce"]]
        for name, calls in sorted(by_name.items()):
            all_of_it, alone = length(calls), length(subtract(calls, working))
            print(f"{rank:4}  {name:10} {len(calls) / steps:7.2f} {all_of_it / steps / 1e3:10.3f} "
                  f"{alone / steps / 1e3:8.3f} {100 * (1 - alone / all_of_it):5.0f} %")
    for rank in ranks:
        late = [sum(max(at) - a for a in at) for at in zip(*starts.values()) if max(zip(at, ranks))[1] == rank]
        print(f"rank {rank} is the last in {len(late)} of {len(starts[0])} all-reduces; "
              f"others wait {sum(late) / steps / 1e3:.3f} ms a step for it")


if __name__ == "__main__":
    main()
