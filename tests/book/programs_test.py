#!/usr/bin/env python3
"""Compares the programs behind the book's live figures with answers that share no code with them.

    programs_test.py build/release       exits 0, or 1 with a line for each fault

Strides are compared with nested loops over Python lists, the tape with finite differences, buckets with the
timetable of lesson 09 (computed here), and the race with the guarantees of a barrier. Numbers are packed by Python's
struct, pipelines are played here, and the other programs are compared with the formulas of their lessons.
`make test-book` tests the pages.
"""
import itertools
import json
import math
import pathlib
import random
import struct
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


# ---- the lessons' formulas ----

def near(a, b, tolerance=1e-6):
    return abs(a - b) <= tolerance * max(1, abs(a), abs(b))


def refuses(program, *cases):
    for arguments in cases:
        code, _, err = run(program, *arguments)
        expect(code == 6 and err.count("\n") == 1, f"{program} {arguments}: exit code {code}: {err!r}")


def check_costs():
    for world, alpha, bandwidth, adding in ((2, 5, 10, 20), (8, 5, 10, 20), (6, 0.5, 25, 1000), (100, 50, 0.1, 1)):
        data = data_of("book_costs", "--world", world, "--alpha", alpha, "--bandwidth", bandwidth, "--adding", adding)
        beta, gamma = 1e-3 / bandwidth, 1e-3 / adding  # microseconds a byte
        rounds = math.ceil(math.log2(world))
        core = 2 ** math.floor(math.log2(world))
        for size, (flat, tree, ring, halving) in zip(data["bytes"], data["times"]):
            part = size / world
            inside = 2 * math.log2(core) * alpha + (core - 1) / core * size * (2 * beta + gamma)
            outside = 2 * (alpha + size * beta) + size * gamma if core < world else 0
            expected = ((world - 1) * (2 * (alpha + size * beta) + size * gamma), 2 * rounds * (alpha + size * beta) + rounds * size * gamma,
                        2 * (world - 1) * (alpha + part * beta) + (world - 1) * part * gamma, inside + outside)
            for name, is_, should in zip(data["names"], (flat, tree, ring, halving), expected):
                expect(near(is_, should, 2e-3), f"book_costs, {world} ranks, {size} bytes, {name}: {is_}, not {should}")
    refuses("book_costs", ["--world", "1"], ["--bandwidth", "0"], ["--alpha", "x"])


def check_window():
    for slots, size, delay, bandwidth in ((1, 65536, 5, 10), (2, 16384, 5, 10), (8, 65536, 5, 10), (3, 4096, 50, 1)):
        data = data_of("book_window", "--slots", slots, "--bytes", size, "--delay", delay, "--bandwidth", bandwidth)
        on_link = size / (bandwidth * 1e3)
        speed = min(bandwidth, slots * size / (on_link + 2 * delay) * 1e-3)
        expect(near(data["speed"], speed, 0.01), f"book_window {slots} {size}: {data['speed']} GB/s, not {speed}")
        for n, m in enumerate(data["first"]):
            free = data["first"][n - slots]["credit"] if n >= slots else 0
            link = data["first"][n - 1]["end"] if n else 0
            expect(near(m["begin"], max(free, link), 1e-3), f"book_window {slots} {size}: message {n} begins at {m['begin']}")
    refuses("book_window", ["--slots", "0"], ["--bytes", "1"], ["--delay", "-1"])


def bf16_bits(x):
    """Rounds by comparing with both neighbours, in exact arithmetic; x is finite."""
    down = struct.unpack(">I", struct.pack(">f", x))[0] >> 16
    value = [struct.unpack(">f", struct.pack(">I", (down + step) << 16))[0] for step in (0, 1)]
    if down & 0x7fff == 0x7f7f:  # the neighbour is infinity, which counts as 2^128 here
        value[1] = math.copysign(2.0 ** 128, x)
    low, high = abs(x - value[0]), abs(value[1] - x)
    return down + (high < low or (high == low and down & 1))


def check_bits():
    for number in (0.1, 1, 257, -259, 65504, 65519.9, 65520, 1e-8, 6e-8, -3.3e38, 0.0, 2 ** -24, 2 ** -25):
        single = struct.unpack(">f", struct.pack(">f", number))[0]
        data = data_of("book_bits", f"--number={number!r}")
        f32, bf16, f16 = (int(f["bits"], 2) for f in data["formats"])
        expect(f32 == struct.unpack(">I", struct.pack(">f", single))[0], f"book_bits {number}: f32 {f32:x}")
        expect(bf16 == bf16_bits(single), f"book_bits {number}: bf16 {bf16:x}, not {bf16_bits(single):x}")
        try:
            half = struct.unpack(">H", struct.pack(">e", single))[0]
        except OverflowError:
            half = 0xfc00 if single < 0 else 0x7c00
        expect(f16 == half, f"book_bits {number}: f16 {f16:x}, not {half:x}")
    scaled = data_of("book_bits", "--number=1e-8", "--scale", 65536)["formats"][2]
    expect(abs(float(scaled["value"]) - 1e-8) < 1e-11, f"book_bits, scaled: {scaled}")
    refuses("book_bits", ["--number=x"], ["--number="], [], ["--number=1", "--scale", "0"])


def check_caps():
    for world, alpha, bandwidth, backward in ((16, 50, 12.5, 60), (4, 0, 25, 10), (128, 200, 6, 120)):
        data = data_of("book_caps", "--world", world, "--alpha", alpha, "--bandwidth", bandwidth, "--backward", backward)
        for row in data["rows"]:
            end = 0
            for first in range(0, 96, row["cap"]):
                mib = min(row["cap"], 96 - first)
                ready = backward * (first + mib) / 96
                end = max(ready, end) + 2 * (world - 1) * (alpha * 1e-3 + mib * 2 ** 20 / world / (bandwidth * 1e6))
            expect(near(row["exposed"], end - backward, 1e-3), f"book_caps {world}: cap {row['cap']}: {row['exposed']}, not {end - backward}")
            expect(row["exposed"] >= data["bound"] - 1e-3, f"book_caps {world}: cap {row['cap']} is below the bound")
    refuses("book_caps", ["--world", "1"], ["--backward", "0"], ["--mib", "0"])


def check_crash():
    for way, last, whole in (("--in-place create write fsync", ["old", "new"], False), ("create write rename", ["old", "new", "broken"], False),
                             ("create write fsync rename", ["old", "new"], True), ("create write fsync rename sync-folder", ["new"], True),
                             ("create write fsync sync-folder rename", ["old", "new"], True)):
        moments = data_of("book_crash", *way.split())["moments"]
        expect(moments[0] == ["old"] and moments[-1] == last, f"book_crash {way}: {moments}")
        expect(whole == all(set(m) <= {"old", "new"} for m in moments), f"book_crash {way}: {moments}")
    refuses("book_crash", [], ["jump"], ["write"], ["create"] * 9)


def check_feedback():
    for rate in (0.01, 0.1):
        data = data_of("book_feedback", "--k", 8, "--rate", rate, "--steps", 50)
        for curve in data["curves"]:
            for step, loss in enumerate(curve["losses"]):
                expect(abs(loss - 3.5 * (1 - rate) ** (2 * step)) < 1e-4, f"book_feedback, {curve['name']}, step {step}: {loss}")
    everything, waits, forgotten = (c["losses"][-1] for c in data_of("book_feedback", "--k", 1, "--steps", 1000)["curves"])
    expect(everything < waits < 0.1 and forgotten == 3.5, f"book_feedback --k 1: {everything}, {waits}, {forgotten}")
    refuses("book_feedback", ["--k", "0"], ["--k", "9"], ["--steps", "0"])


def check_goodput():
    source = random.Random(11)
    mtbf, save, restart = 5.8 * 365.25 * 86400 / 65536, 20, 300
    data = data_of("book_goodput", "--gpus", 65536)
    for tau, share in zip(data["intervals"], data["exact"]):
        if not 100 <= tau <= 3000:
            continue
        done = clock = 0
        while done < 3000 * tau:  # a job, failure by failure
            stretch, failure = tau + save, source.expovariate(1 / mtbf)
            if failure >= stretch:
                done, clock = done + tau, clock + stretch
                continue
            clock += failure
            while (failure := source.expovariate(1 / mtbf)) < restart:
                clock += failure
            clock += restart
        expect(abs(share - 100 * done / clock) < 2.5, f"book_goodput, every {tau} s: {share} %, simulated {100 * done / clock:.1f}")
    refuses("book_goodput", ["--gpus", "0"], ["--save", "0"], ["--years", "x"])


def played(schedule, stages, micros, backward, message):
    """Plays GPipe or 1F1B with unlimited room for messages; returns the time of the last stage's end."""
    orders = []
    for s in range(stages):
        ahead = micros if schedule == "gpipe" else min(stages - 1 - s, micros)
        order = []
        for m in range(micros + ahead):
            order += [("F", m)] * (m < micros) + [("B", m - ahead)] * (m >= ahead)
        orders.append(order)
    ends, free = {}, [0.0] * stages
    while any(orders):
        for s, order in enumerate(orders):
            while order:
                kind, m = order[0]
                source = s - 1 if kind == "F" else s + 1
                if 0 <= source < stages and (kind, m, source) not in ends:
                    break
                ready = ends[kind, m, source] + message if 0 <= source < stages else 0
                free[s] = ends[kind, m, s] = max(free[s], ready) + (1 if kind == "F" else backward)
                order.pop(0)
    return max(free)


def check_pipeline():
    for schedule in ("gpipe", "1f1b"):
        for stages, micros, backward in ((1, 3, 2), (3, 4, 1), (4, 8, 2), (8, 3, 1.5)):
            data = data_of("book_pipeline", "--schedule", schedule, "--stages", stages, "--microbatches", micros, "--backward", backward)
            time = played(schedule, stages, micros, backward, 0)
            expect(near(data["time"], time, 1e-3), f"book_pipeline {schedule} {stages} {micros}: {data['time']}, not {time}")
            expect(near(data["bubble"], (stages - 1) / (micros + stages - 1), 1e-3), f"book_pipeline {schedule} {stages} {micros}: bubble {data['bubble']}")
            most = [micros if schedule == "gpipe" else min(micros, stages - s) for s in range(stages)]
            expect(data["stored"] == most, f"book_pipeline {schedule} {stages} {micros}: stores {data['stored']}")
            expect(len(data["events"]) == 2 * stages * micros, f"book_pipeline {schedule}: {len(data['events'])} events")
    refuses("book_pipeline", ["--stages", "0"], ["--schedule", "other"], ["--backward", "0"])


def check_litmus():
    for test, orders, outcomes, executions in (("mp", "relaxed", 4, 4), ("mp", "both", 3, 3), ("sb", "both", 4, 4), ("sb", "seq_cst", 3, 3),
                                               ("update", "relaxed", 8, 12), ("update", "both", 6, 9)):
        _, out, _ = run("lesson19_litmus", test, orders, "told", "--json")
        data = json.loads(out)
        expect(len(data["outcomes"]) == outcomes and data["executions"] == executions, f"lesson19_litmus {test} {orders}: {out[:200]}")
        expect(sum(o["count"] for o in data["outcomes"]) == executions, f"lesson19_litmus {test} {orders}: counts")
        expect(all(o["told"].count("\n") >= 4 for o in data["outcomes"]), f"lesson19_litmus {test} {orders}: an execution is not told")
    code, out, _ = run("lesson19_litmus", "bells", "both", "told", "--json")
    expect(code == 1 and "waits forever" in json.loads(out)["failure"], f"lesson19_litmus bells both: {code}")


BIN = pathlib.Path(sys.argv[1]).resolve() / "bin"
for check in (check_strides, check_tape, check_buckets, check_race, check_costs, check_window, check_bits, check_caps, check_crash,
              check_feedback, check_goodput, check_pipeline, check_litmus):
    check()
for fault in faults:
    print(fault, file=sys.stderr)
print(f"book: the figures' programs, {len(faults)} faults")
sys.exit(1 if faults else 0)
