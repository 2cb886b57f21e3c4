#!/usr/bin/env python3
"""Compares the programs behind the book's live figures with answers that share no code with them.

    programs_test.py build/release       exits 0, or 1 with a line for each fault

Strides are compared with nested loops over Python lists, the tape with finite differences, buckets with the
timetable of lesson 09 (computed here), and the race with the guarantees of a barrier. `make test-book` tests the
pages.
"""
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys

faults = []


def expect(holds, text):
    if not holds:
        faults.append(text)


def run(program, *arguments):
    done = subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def data_of(program, *arguments):
    code, out, err = run(program, *arguments, "--json")
    expect(code == 0, f"{program} {arguments}: exit code {code}: {err}")
    return json.loads(out)


# ---- strides: a tensor is {index: value} ----

def elements(sizes):
    return dict(zip(itertools.product(*map(range, sizes)), itertools.count()))


def values(tensor):
    return [tensor[index] for index in sorted(tensor)]


def check_strides():
    base = elements([3, 4])
    transposed = {(j, i): v for (i, j), v in base.items()}
    cases = {
        ("transpose:0,1",): transposed,
        ("select:1,2",): {(i,): v for (i, j), v in base.items() if j == 2},
        ("slice:1,1,4,2",): {(i, j // 2): v for (i, j), v in base.items() if j % 2 == 1},
        ("transpose:0,1", "reshape:2,6"): dict(zip(elements([2, 6]), values(transposed))),
        ("unsqueeze:0", "expand:2,-1,-1"): {(r, i, j): v for (i, j), v in base.items() for r in range(2)},
        ("view:2,2,3", "permute:2,0,1"): {(k, i, j): v for (i, j, k), v in elements([2, 2, 3]).items()},
    }
    for operations, tensor in cases.items():
        last = data_of("book_strides", "--sizes", "3,4", *operations)["tensors"][-1]
        expect(last["values"] == values(tensor), f"book_strides {operations}: {last['values']}, not {values(tensor)}")
        copied = "reshape:2,6" in operations
        expect(last["view"] != copied, f"book_strides {operations}: view is {last['view']}")
        if last["view"]:  # each position of the base holds its own number
            expect(last["places"] == last["values"], f"book_strides {operations}: places {last['places']}")
    for arguments in (["--sizes", "0"], ["--sizes", "3,x"], ["--sizes", "300"], ["turn:1"], ["slice:0,1"], ["transpose:0,5"],
                      ["transpose:0,1", "view:-1"], ["--sizes", "1,16", "expand:17,16"]):
        code, _, err = run("book_strides", *arguments)
        expect(code == 6 and err.count("\n") == 1, f"book_strides {arguments}: exit code {code}: {err!r}")


# ---- the tape: compared with finite differences in double precision ----

def check_tape():
    expressions = {"(w*x + b)*(w*x + b)*w": lambda w, x, b: (w * x + b) ** 2 * w,
                   "tanh(w*x) - b/x": lambda w, x, b: math.tanh(w * x) - b / x,
                   "exp(-w) + sqrt(x)*log(b)": lambda w, x, b: math.exp(-w) + math.sqrt(x) * math.log(b),
                   "sigmoid(w) + relu(x*b)": lambda w, x, b: 1 / (1 + math.exp(-w)) + max(0, x * b),
                   "w*w*w + 0.5*x + b": lambda w, x, b: w ** 3 + 0.5 * x + b}
    at = {"w": 1.5, "x": 0.75, "b": 2.0}
    for text, function in expressions.items():
        data = data_of("book_tape", text, *[f"{name}={value}" for name, value in at.items()])
        label = {i: v["label"] for i, v in enumerate(data["values"])}
        expect(abs(float(data["values"][-1]["value"]) - function(**at)) < 1e-4, f"book_tape '{text}': its value")
        hooks = {label[m["item"]]: float(m["arrived"]) for m in data["moments"] if m["name"] == "hook"}
        for name in at:
            up, down = ({**at, name: at[name] + step} for step in (1e-5, -1e-5))
            slope = (function(**up) - function(**down)) / 2e-5
            expect(abs(hooks[name] - slope) < 2e-3 * max(1, abs(slope)), f"book_tape '{text}': {name} gets {hooks[name]}, not {slope}")
        # A hook fires once, after all contributions to its leaf's gradient.
        names = [m["item"] for m in data["moments"] if m["name"] == "hook"]
        expect(len(names) == len(set(names)) == 3, f"book_tape '{text}': hooks of {names}")
        for n, moment in enumerate(data["moments"]):
            fired = {m["item"] for m in data["moments"][:n] if m["name"] == "hook"}
            late = [i for i in data["values"][moment["item"]]["inputs"] if i in fired]
            expect(not late, f"book_tape '{text}': a hook fired before its leaf had everything")
    for arguments in (["w+"], ["(w", "w=1"], ["w*q", "w=1"], ["w", "w=x"], ["f(w)", "w=1"], ["2+3"], ["w w", "w=1"], ["-" * 70 + "w", "w=1"]):
        code, _, err = run("book_tape", "--", *arguments)
        expect(code == 6 and err.count("\n") == 1, f"book_tape {arguments}: exit code {code}: {err!r}")


# ---- buckets: the start of each all-reduce, computed here ----

def expected_step(gradients, first, cap, world, forward, backward, slow, alpha, bandwidth):
    buckets, open_one, limit = [], [], first
    for g in reversed(range(len(gradients))):
        open_one.append(g)
        if sum(gradients[i] for i in open_one) >= limit:
            buckets.append(open_one)
            open_one, limit = [], cap
    if open_one:
        buckets.append(open_one)
    factors = [1] * (world - 1) + [slow]
    ready = [[f * (forward + backward * sum(gradients[min(bucket):]) / sum(gradients)) for f in factors] for bucket in buckets]
    free, times = 0, []
    for bucket, when in zip(buckets, ready):
        begin = max(free, *when)
        kib = sum(gradients[g] for g in bucket)
        # ms: 2(N-1) messages of 1/N of the bucket
        seconds = 2 * (world - 1) * (alpha * 1e-6 + math.ceil(kib * 256 / world) * 4 / (bandwidth * 1e9))
        free = begin + 1e3 * seconds
        times.append((begin, free))
    hidden = []
    for rank, factor in enumerate(factors):
        waits, before = 0, 0
        exposed = 0
        for (_, end), when in zip(times, ready):
            start = max(before, when[rank])
            waits += end - start
            exposed += max(0, end - max(start, factor * (forward + backward)))
            before = end
        hidden.append(1 - exposed / waits if waits else 0)
    return buckets, times, hidden


def check_buckets():
    source = random.Random(7)
    for _ in range(12):
        gradients = [source.choice([64, 256, 1024, 2048]) for _ in range(source.randint(1, 14))]
        first, cap = source.choice([1, 128, 1024]), source.choice([64, 1024, 4096])
        world, slow = source.choice([2, 4, 8]), source.choice([1, 1.3, 2])
        alpha, bandwidth = source.choice([0, 20, 200]), source.choice([0.5, 2, 25])
        arguments = ["--gradients", ",".join(map(str, gradients)), "--first", first, "--cap", cap, "--world", world, "--slow", slow,
                     "--alpha", alpha, "--bandwidth", bandwidth, "--forward", 4, "--backward", 8]
        buckets, times, hidden = expected_step(gradients, first, cap, world, 4, 8, slow, alpha, bandwidth)
        data = data_of("book_buckets", *arguments)
        shown = [r["gradients"] for r in data["reductions"]]
        expect(shown == buckets, f"book_buckets {arguments}: buckets {shown}, not {buckets}")
        if shown != buckets:
            continue
        for r, (begin, end) in zip(data["reductions"], times):
            expect(abs(r["begin"] / 1e6 - begin) < 1e-3 and abs(r["end"] / 1e6 - end) < 1e-3,
                   f"book_buckets {arguments}: a bucket from {r['begin'] / 1e6} to {r['end'] / 1e6} ms, not {begin} to {end}")
        for rank, (r, share) in enumerate(zip(data["ranks"], hidden)):
            expect(abs(r["hidden"] - share) < 1e-3, f"book_buckets {arguments}: rank {rank} hides {r['hidden']}, not {share}")
    for arguments in (["--gradients", "0"], ["--gradients", "4,x"], ["--slow", "0.5"], ["--bandwidth", "0"], ["--world", "0"]):
        code, _, err = run("book_buckets", *arguments)
        expect(code == 6 and err.count("\n") == 1, f"book_buckets {arguments}: exit code {code}: {err!r}")


# ---- the race ----

def check_race():
    orders = set()
    for seed in (1, 2, 3, 4):
        waited, ran = (data_of("book_race", "--threads", 4, "--seed", seed, *more) for more in (["--barrier"], []))
        expect(waited["wrong"] == 0, f"book_race --seed {seed} --barrier: {waited['wrong']} read too early")
        last_write = max(n for n, m in enumerate(waited["moments"]) if m["what"] == "writes")
        first_read = min(n for n, m in enumerate(waited["moments"]) if m["what"] == "reads")
        expect(last_write < first_read, f"book_race --seed {seed} --barrier: somebody reads before all have written")
        expect(ran["wrong"] > 0, f"book_race --seed {seed}: nobody reads too early")
        written = {}
        for m in ran["moments"]:
            if m["what"] == "writes":
                written[m["place"]] = m["value"]
            else:
                expect(m["stale"] == (m["place"] not in written), f"book_race --seed {seed}: {m}")
        orders.add(tuple(m["thread"] for m in ran["moments"]))
        expect(run("book_race", "--seed", seed)[1] == run("book_race", "--seed", seed)[1], f"book_race --seed {seed}: not the same twice")
    expect(len(orders) > 1, "book_race: every seed gives the same order")


BIN = pathlib.Path(sys.argv[1]).resolve() / "bin"
for check in (check_strides, check_tape, check_buckets, check_race):
    check()
for fault in faults:
    print(fault, file=sys.stderr)
print(f"book: the figures' programs, {len(faults)} faults")
sys.exit(1 if faults else 0)
