"""Public tests of lab 15: traces, clocks and sweeps whose answers can be checked on paper."""
import array

from labs.course.testing import expect, lab_test

COMPUTE, COMM, WAIT, FRAME = range(4)
FIELDS = ("step", "compute", "comm", "exposed")
HOUR = 3600 * 10 ** 9


def cases(name, some):
    """Returns a request for several cases, each a list of rows (Cases in driver.cpp)."""
    some = [list(one) for one in some]
    flat = array.array("q", (n for one in some for row in one for n in row))
    return {name: flat, f"{name}.counts": array.array("q", map(len, some))}


def covered(lab, some):
    seen = lab.run("covered", **cases("sets", some))
    return seen["results"], seen


def exposed(lab, some):
    """some: pairs (communication, computation)."""
    seen = lab.run("exposed", **cases("communication", (c for c, _ in some)), **cases("computation", (k for _, k in some)))
    return seen["results"], seen


def measure(lab, some):
    """some: pairs (events, window). Returns a tuple of FIELDS for each."""
    seen = lab.run("measure", windows=array.array("q", (n for _, window in some for n in window)),
                   **cases("events", (events for events, _ in some)))
    return [tuple(seen["times"][at:at + 4]) for at in range(0, 4 * len(some), 4)], seen


def same_times(name, got, want, seen):
    for field, a, b in zip(FIELDS, got, want):
        expect.equal(f"{field} of {name}", a, b, seen)


def hidden(lab, times):
    seen = lab.run("hidden", times=array.array("q", (n for row in times for n in row)))
    return list(seen["fractions"]), list(seen["wins"]), seen


@lab_test
def union_by_hand(lab):
    """Task 1: six intervals, two of them inside another: 14 ns, though the lengths add up to 18; none; an empty one."""
    six = [(20, 25), (4, 9), (23, 24), (2, 6), (21, 22), (9, 11)]
    got, seen = covered(lab, [six, [], [(5, 8), (5, 8)], [(5, 8), (30, 30)]])
    for value, want, what in zip(got, (14, 0, 3, 3), ("six intervals", "no interval", "one given twice", "one and an empty one")):
        expect.equal(f"the time covered by {what}", value, want, seen)


@lab_test
def exposed_by_hand(lab):
    """Task 2: communication whose start, middle, whole, or no part is covered by computation."""
    some = [([(10, 20)], [(5, 14)], 6), ([(10, 20)], [(12, 15)], 7), ([(10, 20)], [(0, 30)], 0),
            ([(10, 20)], [(20, 30), (0, 10)], 10), ([], [(0, 30)], 0), ([(10, 20), (15, 25)], [(24, 40), (12, 16)], 10)]
    got, seen = exposed(lab, [(c, k) for c, k, _ in some])
    for (c, k, want), value in zip(some, got):
        expect.equal(f"what is exposed of {c}, with computation {k}", value, want, seen)


# Two threads of one step. Thread 71 waits for the last bucket inside backward().
STEP = [(FRAME, 71, 0, 100), (COMPUTE, 71, 0, 30), (COMPUTE, 71, 30, 80), (WAIT, 71, 70, 80), (COMPUTE, 71, 80, 90),
        (COMM, 72, 45, 60), (COMM, 72, 60, 78)]


@lab_test
def step_by_hand(lab):
    """Task 3: a step in which 8 of 33 ns are exposed: backward() computes until it waits."""
    got, seen = measure(lab, [(STEP, (0, 100)), (reversed(STEP), (0, 100)), (STEP, (50, 75)), (STEP, (200, 300))])
    for name, time, want in zip(("the step", "the step, given backwards", "the window from 50 to 75", "an empty window"),
                                got, ((100, 80, 33, 8), (100, 80, 33, 8), (25, 20, 25, 5), (100, 0, 0, 0))):
        same_times(name, time, want, seen)
    fractions, wins, seen = hidden(lab, [(100, 80, 33, 8), (100, 80, 0, 0), (100, 20, 70, 65)])
    for name, a, b, share, win in zip(("8 of 33 ns are", "of no communication", "65 of 70 ns are"), fractions, wins,
                                      (25 / 33, 0.0, 5 / 70), (8, 0, 15)):
        expect.near(f"the hidden fraction, exposed {name},", a, share, seen)
        expect.equal(f"the most that hiding can win, exposed {name},", b, win, seen)


@lab_test
def serial_run(lab):
    """Task 3: a run whose communication never overlaps computation hides 0; one that overlaps all of it hides 1."""
    backward = [(COMPUTE, 1, 0, 100)]
    runs = [
        ("all-reduce after backward, on the same thread", backward + [(COMM, 1, 100, 120)], 0),
        ("all-reduce after backward, as long as backward", backward + [(COMM, 2, 100, 200)], 0),
        ("all-reduce called inside backward, which then continues", backward + [(COMM, 1, 30, 50), (COMM, 1, 80, 100)], 0),
        ("backward waits for another thread's all-reduce", backward + [(WAIT, 1, 60, 100), (COMM, 2, 60, 100)], 0),
        ("the step encloses all", backward + [(FRAME, 1, 0, 200), (FRAME, 2, 0, 200), (COMM, 2, 100, 190)], 0),
        ("the additions of an all-reduce on its own thread", backward + [(COMM, 2, 100, 190), (COMPUTE, 2, 110, 180)], 0),
        ("one thread waits, another one computes", backward + [(WAIT, 1, 0, 100), (COMPUTE, 3, 0, 100), (COMM, 2, 0, 100)],
         1),
        ("all-reduce inside backward, on another thread", backward + [(COMM, 2, 30, 90)], 1),
    ]
    got, seen = measure(lab, [(events, (0, 200)) for _, events, _ in runs])
    fractions, _, _ = hidden(lab, got)
    for (name, _, want), time, share in zip(runs, got, fractions):
        comm = time[2]
        expect.equal(f"exposed, of {comm} ns ({name}),", time[3], 0 if want else comm, seen)
        expect.equal(f"the hidden fraction ({name})", share, float(want), seen)


@lab_test
def pings(lab):
    """Task 4: a clock 1000 ns ahead, and one behind; the shortest round trip decides, not the mean."""
    ahead = [(0, 1010, 1015, 25)]
    rounds = [("one exchange", ahead, (1000, 10, 1010)),
              ("a slow way there", [(0, 1500, 1510, 520), (1000, 2010, 2900, 1910), (3000, 4900, 4901, 4911)],
               (1000, 10, 2010)),
              ("a clock that is behind, and an odd round trip", [(5007, 5004, 5006, 5016)], (-7, 4, 5004))]
    seen = lab.run("offsets", **cases("pings", (some for _, some, _ in rounds)))
    for i, (name, _, want) in enumerate(rounds):
        for field, a, b in zip(("offset", "uncertainty", "at"), seen["offsets"][3 * i:3 * i + 3], want):
            expect.equal(f"{field} of {name}", a, b, seen)


@lab_test
def drift(lab):
    """Task 4: a clock 100 ns ahead at 1000 and 300 ns at 5000: before, between, after; and a clock hours ahead."""
    rows = [(1000, 900), (3000, 2800), (5000, 4700), (9000, 8500), (0, -50)]
    far = 1_700_000_000 * 10 ** 9 + 123
    seen = lab.run("stamps", rows=[n for stamp, _ in rows for n in (stamp, 100, 1000, 300, 5000)]
                   + [far, -3 * HOUR, far - 10, -3 * HOUR, far + 10])
    for (stamp, want), got in zip([*rows, (far, far + 3 * HOUR)], seen["stamps"]):
        expect.that(abs(got - want) <= 1, f"the clock's {stamp} is {got} on rank 0's, must be {want}", seen)


def lateness(lab, tables, ranks):
    how = {"ranks": ranks, **cases("arrivals", ([(n,) for row in table for n in row] for table in tables))}
    rows, seen = lab.run("lateness", rows=1, **how)["rows"], lab.run("lateness", rows=0, **how)
    found, at = [], 0
    for n in ranks:
        found.append([tuple(rows[at + 3 * r:at + 3 * r + 3]) for r in range(n)])
        at += 3 * n
    return found, [tuple(seen["stragglers"][i:i + 2]) for i in range(0, 2 * len(ranks), 2)], seen


@lab_test
def late(lab):
    """Task 5: rank 2 pauses once, rank 1 is often late, rank 0 is never late and waits longest."""
    tables = [[(10, 14, 9), (20, 23, 21), (30, 31, 80), (90, 95, 92)], [(7, 7, 7)], [(5, 5, 3), (9, 9, 9)]]
    rows, who, seen = lateness(lab, tables, [3, 3, 3])
    wants = [[(62, 0, 0), (49, 22, 3), (10, 99, 1)], [(0, 0, 0)] * 3, [(0, 2, 1), (0, 0, 0), (2, 0, 0)]]
    for name, got, want in zip(("four collectives", "all together", "two ranks last together"), rows, wants):
        for r in range(3):
            expect.equal(f"waited, caused and times_last of rank {r} ({name})", got[r], want[r], seen)
    for name, got, want in zip(("four collectives", "all together", "two ranks last together"), who,
                               ((2, 1), (-1, -1), (0, -1))):
        expect.equal(f"the straggler and the persistent straggler ({name})", got, want, seen)


def skewed_trace(lab, ranks, slow, offsets, ppm):
    """Runs a step of several ranks whose clocks are wrong, and compares it with the true times."""
    def clock(rank, true):
        return true + offsets[rank] + true * ppm[rank] // 10 ** 6

    def exchange(rank, at):
        there, answer, back = 900 + lab.random.randrange(200), lab.random.randrange(5000), 900 + lab.random.randrange(200)
        if lab.random.random() < 0.7:  # a delay in one direction only
            there += lab.random.randrange(10 ** 6)
        arrived = at + there
        return at, clock(rank, arrived), clock(rank, arrived + answer), arrived + answer + back

    start = lab.random.randrange(10 ** 9, 10 ** 10)
    end = start + 2 * 10 ** 8
    rounds = [[exchange(rank, at + i * 10 ** 7) for i in range(20)] + [(at, clock(rank, at + 1000), clock(rank, at + 1000),
                                                                        at + 2000)]
              for rank in range(1, ranks) for at in (start - 10 ** 9, end)]
    collectives = [start + 10 ** 7 * (i + 1) for i in range(12)]
    arrivals = [[at + lab.random.randrange(10 ** 5) + (10 ** 6 if r == slow else 0) for r in range(ranks)]
                for at in collectives]
    events, windows, wants = [], [], []
    for r in range(ranks):
        ends = [max(row) + 500_000 for row in arrivals]
        own = [(COMPUTE, 5, clock(r, a), clock(r, b)) for a, b in zip([start] + ends, [row[r] for row in arrivals])]
        own += [(COMM, 5, clock(r, row[r]), clock(r, b)) for row, b in zip(arrivals, ends)]
        lab.random.shuffle(own)
        events.append(own)
        windows.append((clock(r, start), clock(r, end)))
        computes, comms = ([b - a for kind, _, a, b in own if kind == k] for k in (COMPUTE, COMM))
        wants.append((windows[r][1] - windows[r][0], sum(computes), sum(comms), sum(comms)))
    seen = lab.run("trace", ranks=ranks, windows=[n for w in windows for n in w],
                   arrivals=[clock(r, row[r]) for row in arrivals for r in range(ranks)],
                   **cases("pings", rounds), **cases("events", events))
    for r in range(ranks):
        same_times(f"rank {r}, whose clock is {offsets[r]} ns ahead", seen["times"][4 * r:4 * r + 4], wants[r], seen)
    for i, (got, true) in enumerate(zip(seen["arrivals"], (at for row in arrivals for at in row))):
        expect.that(abs(got - true) <= 2500, f"on rank 0's clock, rank {i % ranks} arrives at collective {i // ranks} at "
                                             f"{got}, must be {true} within 2.5 us", seen)
    expect.equal("the straggler", seen["straggler"], slow, seen)


@lab_test
def skewed(lab):
    """Tasks 3 to 5: three ranks whose clocks differ by hours; the slow last rank is always first by its own clock."""
    skewed_trace(lab, 3, 2, [0, 3 * HOUR, -2 * HOUR], [0, 40, -70])


def sweep(lab, what, models, networks, caps=()):
    seen = lab.run("sweep", what=what, networks=[n for network in networks for n in network], caps=list(caps),
                   **cases("gradients", models))
    return list(seen["results"]), seen


FOUR = [(10, 100), (20, 100), (30, 100), (40, 100)]


@lab_test
def sweep_by_hand(lab):
    """Task 6: four gradients, alpha 5 ns, 0.1 ns per byte; a gradient larger than a bucket; gradients out of order."""
    caps = [400, 100, 300, 200]
    got, seen = sweep(lab, "last_end", [FOUR], [(5, 100)], caps)
    for cap, value, want in zip(caps, got, (85, 70, 80, 70)):
        expect.equal(f"the last end of four gradients of 100 bytes, cap {cap},", value, want, seen)
    got, seen = sweep(lab, "best_cap", [FOUR], [(5, 100)], caps)
    expect.equal("the best cap", got[0], 200, seen)
    got, seen = sweep(lab, "last_end", [[(5, 1000), (8, 10), (9, 10)], [(50, 100), (20, 100)], []], [(5, 100)] * 3, [50, 200])
    for name, value, want in zip(("a large gradient first, cap 50,", "the same, cap 200,", "the later one first, cap 50,",
                                  "the same, cap 200,", "no gradient, cap 50,", "no gradient, cap 200,"), got,
                                 (117, 117, 80, 75, 0, 0)):
        expect.equal(f"the last end of {name}", value, want, seen)


@lab_test
def bound(lab):
    """Task 7: the bound that no bucket size can beat, set by the first gradient, the last, or one in the middle."""
    models = [FOUR, [(0, 1000), (90, 100)], [(0, 100), (500, 100)], [(0, 10), (50, 1000), (60, 10)], []]
    got, seen = sweep(lab, "earliest_end", models, [(5, 100)] * 5)
    for model, value, want in zip(models, got, (55, 115, 515, 156, 0)):
        expect.equal(f"the earliest end of {model}", value, want, seen)


def roof(lab, lists, machines):
    return lab.run("roof", machines=[float(x) for machine in machines for x in machine], **cases("kernels", lists))


@lab_test
def roof_by_hand(lab):
    """Task 8: 1 Tflop/s and 100 GB/s, ridge at 10; kernels below, above and at it, a copy, one without traffic."""
    kernels = [(2 * 10 ** 9, 10 ** 9, 2 * 10 ** 7), (10 ** 10, 10 ** 8, 12_500_000), (0, 10 ** 9, 10 ** 7),
               (10 ** 9, 0, 10 ** 6), (10 ** 9, 10 ** 8, 500_000)]
    seen = roof(lab, [kernels], [(1e12, 1e11)])
    expect.near("the ridge", seen["ridges"][0], 10.0, seen)
    wants = [(1e7, 2e11, 0.5, 1), (1e7, 1e12, 0.8, 0), (1e7, 0.0, 1.0, 1), (1e6, 1e12, 1.0, 0), (1e6, 1e12, 2.0, 0)]
    for i, (kernel, want) in enumerate(zip(kernels, wants)):
        case = "of {} operations and {} bytes in {} ns".format(*kernel)
        for name, field, value in zip(("the least time", "the attainable rate", "the share of the roof"),
                                      ("least", "rates", "shares"), want):
            expect.near(f"{name} {case}", seen[field][i], value, seen)
        expect.equal(f"the limit (compute 0, memory 1) {case}", seen["limits"][i], want[3], seen)


@lab_test
def tune(lab):
    """Task 9: a short kernel far below its roof, a long one near its roof: which to tune first?"""
    lists = [[(10 ** 7, 10 ** 6, 100_000), (8 * 10 ** 9, 10 ** 6, 10 ** 7)], [(10 ** 9, 0, 10 ** 6), (0, 10 ** 8, 900_000)],
             []]
    seen = lab.run("first_to_tune", machines=[1e12, 1e11] * 3, **cases("kernels", lists))
    expect.equal("the kernels to tune first", list(seen["found"]), [1, -1, -1], seen)
