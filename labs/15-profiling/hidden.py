"""Hidden tests of lab 15: random traces, clocks, tables and models against slow, obvious versions of all tasks."""
import array
from fractions import Fraction

from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

HIDDEN_SEED = 61840927
public = load_sibling(__file__, "public")
COMPUTE, COMM, WAIT, FRAME, HOUR = public.COMPUTE, public.COMM, public.WAIT, public.FRAME, public.HOUR
cases, same_times = public.cases, public.same_times
SHIFTS = (0, -40, -(1 << 55), 1 << 33, 1 << 60, -(1 << 60) + (1 << 42))


def total(points, holds):
    """Returns the time between the first and the last point during which holds(moment) is true. Its
    value changes only at points."""
    points = sorted(set(points))
    return sum(b - a for a, b in zip(points, points[1:]) if holds(a))


def inside(at, intervals):
    return any(begin <= at < end for begin, end in intervals)


def ends(*lists):
    return [n for intervals in lists for interval in intervals for n in interval]


def some_intervals(random, most, unit, shift):
    some = []
    for _ in range(random.randrange(most)):
        begin = random.randrange(40) * unit
        some.append((begin + shift, begin + shift + random.choice((0, 1, 1, 2, 3, 5, 20, -3)) * unit))
    return some + random.choices(some, k=random.randrange(3)) if some else some


@lab_test
def sets(lab):
    """Tasks 1 and 2: touching, nested, equal, empty and inverted intervals in any order, on every scale."""
    some, pairs = [], []
    for shift in SHIFTS:
        for unit in (1, 7, 1 << 30, 1 << 36):
            for most in (2, 4, 9, 25):
                some.append(some_intervals(lab.random, most, unit, shift))
                pairs.append((some_intervals(lab.random, most, unit, shift), some_intervals(lab.random, most, unit, shift)))
    some += [[(-(1 << 60), 1 << 60)], [(5, 9), (-(1 << 60), -(1 << 60) + 1), ((1 << 60) - 1, 1 << 60)]]
    pairs += [([(-(1 << 60), 1 << 60)], [(3, 4)]), ([(3, 4)], [(-(1 << 60), 1 << 60)]), ([(2, 9), (30, 31)], [])]
    got, seen = public.covered(lab, some)
    for one, value in zip(some, got):
        want = total(ends(one), lambda at: inside(at, one))
        expect.equal(f"the time covered by {one}", value, want, seen)
    got, seen = public.exposed(lab, pairs)
    for (comm, work), value in zip(pairs, got):
        want = total(ends(comm, work), lambda at: inside(at, comm) and not inside(at, work))
        expect.equal(f"what is exposed of {comm}, with computation {work}", value, want, seen)


def measured(events, window):
    """Returns the four times, by evaluating every moment at which anything changes."""
    threads = {thread for _, thread, _, _ in events}

    def are(at, kinds, own):
        return any(kind in kinds and thread in own and begin <= at < end for kind, thread, begin, end in events)

    def computes(at):
        return any(are(at, (COMPUTE,), (t,)) and not are(at, (COMM, WAIT), (t,)) for t in threads)

    def communicates(at):
        return are(at, (COMM,), threads)

    points = [min(max(n, window[0]), window[1]) for event in events for n in event[2:]] + list(window)
    return (window[1] - window[0], total(points, computes), total(points, communicates),
            total(points, lambda at: communicates(at) and not computes(at)))


@lab_test
def steps(lab):
    """Task 3: random events of several threads, nested and not, cut by the window; and the resulting fractions."""
    some = []
    for shift in SHIFTS:
        for unit in (1, 1 << 31, 1 << 35):
            for _ in range(8):
                threads = lab.random.sample((0, 1, -1, 2, 7, 139_872_345_098_240, 1 << 33, 1 << 34, -(1 << 62)),
                                            lab.random.randrange(1, 5))
                events = []
                for _ in range(lab.random.randrange(1, 16)):
                    begin = lab.random.randrange(60)
                    length = lab.random.choice((0, 1, 2, 3, 5, 8, 20, 60, -2))
                    events.append((lab.random.choice((COMPUTE, COMPUTE, COMPUTE, COMM, COMM, WAIT, FRAME)),
                                   lab.random.choice(threads), begin * unit + shift, (begin + length) * unit + shift))
                begin = lab.random.choice((0, 10, 25))
                window = (begin * unit + shift, (begin + lab.random.choice((0, 10, 30, 80))) * unit + shift)
                some.append((events, window))
    some += [([], (0, 50)), ([(COMM, 3, 0, 10)], (0, 50)), ([(COMPUTE, 3, -5, 60)], (0, 50)),
             ([(COMM, 3, -(1 << 60), 1 << 60), (COMPUTE, 4, 0, 9)], (-(1 << 60), 1 << 60))]
    got, seen = public.measure(lab, some)
    for (events, window), time in zip(some, got):
        same_times(f"{events} in the window {window}", time, measured(events, window), seen)
    times = [measured(*one) for one in some]
    times += [(1 << 61, 5, (1 << 60) + 1, 1 << 60), (1 << 61, 1 << 60, 1 << 60, 1), (9, 4, 4, 4), (9, 5, 4, 4), (9, 3, 4, 4),
              (9, 0, 5, 5), (1 << 41, (1 << 40) - 1, 1 << 40, 1 << 40), (9, 5, 4, 0), (1 << 41, 5, 3 ** 25, 7 ** 13)]
    fractions, wins, seen = public.hidden(lab, times)
    for (step, compute, comm, rest), share, win in zip(times, fractions, wins):
        case = f"compute {compute}, comm {comm}, exposed {rest}"
        want = float(1 - Fraction(rest, comm)) if comm else 0.0
        expect.that(abs(share - want) <= 1e-12, f"the hidden fraction is {share!r}, must be {want!r} ({case})", seen)
        if rest == comm:
            expect.equal(f"the hidden fraction ({case})", share, 0.0, seen)
        best = comm - compute if comm > compute else 0  # remains exposed at best
        expect.equal(f"the most that hiding can win ({case})", win, rest - best, seen)


def swept(events):
    """Returns, for events (begin, end, key), {set of keys: time during which exactly these keys are active}."""
    changes = sorted([(b, 1, k) for b, e, k in events if e > b] + [(e, -1, k) for b, e, k in events if e > b])
    counts, last, times = {}, None, {}
    for at, change, key in changes:
        now = frozenset(k for k, n in counts.items() if n)
        if now:
            times[now] = times.get(now, 0) + at - last
        counts[key] = counts.get(key, 0) + change
        last = at
    return times


def mixed(some):
    """Returns the elements in a different order; cheaper than shuffle()."""
    return [some[i * 7919 % len(some)] for i in range(len(some))]


@lab_test
def large(lab):
    """Tasks 1 to 3 and 7: 100,000 intervals, events, threads, gradients; a quadratic solution does not finish."""
    n = 100_000
    span = 1 << 45
    nested = mixed([(i, 3 * n - i) for i in range(n)])
    apart = mixed([(10 * i, 10 * i + 4) for i in range(n)])
    spread, other = ([(b, b + lab.random.randrange(1 << 32)) for b in (lab.random.randrange(span) for _ in range(n // 5))]
                     for _ in range(2))
    got, seen = public.covered(lab, [nested, apart, spread])
    for name, value, want in zip(("nested", "separate", "random"), got,
                                 (3 * n, 4 * n, sum(swept([(b, e, 0) for b, e in spread]).values()))):
        expect.equal(f"the time covered by many {name} intervals", value, want, seen)
    holes = [(10 * i + 2, 10 * i + 3) for i in range(n)]
    whole = [(0, 10 * n)]
    got, seen = public.exposed(lab, [(spread, other), (apart, holes), (whole, holes)])
    times = swept([(b, e, "comm") for b, e in spread] + [(b, e, "work") for b, e in other])
    for name, value, want in zip(("random", "separate", "one"), got, (times[frozenset(["comm"])], 3 * n, 9 * n)):
        expect.equal(f"what is exposed of {name} intervals, with many of computation", value, want, seen)
    few = [(COMPUTE, 9, 0, 100 * n)] + [(WAIT, 9, 100 * i + 20, 100 * i + 50) for i in range(n)]
    few += [(COMM, 8, 100 * i + 10, 100 * i + 60) for i in range(n)]
    many = [(COMPUTE, 1000 + i, 100 * i, 100 * i + 90) for i in range(n)]
    many += [(WAIT, 1000 + i, 100 * i + 40, 100 * i + 80) for i in range(n)] + [(COMM, 7, 50, 100 * n)]
    got, seen = public.measure(lab, [(mixed(few), (0, 100 * n)), (mixed(many), (0, 100 * n))])
    same_times(f"a step with {n} waits on one thread", got[0], (100 * n, 70 * n, 50 * n, 30 * n), seen)
    same_times(f"a step with {n} threads", got[1], (100 * n, 50 * n, 100 * n - 50, 50 * n - 10), seen)
    model = [(lab.random.randrange(1 << 40), lab.random.randrange(1 << 20)) for _ in range(n)]
    got, seen = public.sweep(lab, "earliest_end", [model], [(5000, 80)])
    left, want = 0, 0
    for ready, size in sorted(model, reverse=True):
        left += size
        want = max(want, ready + 5000 - (-left * 80 // 1000))
    expect.equal(f"the earliest end of {n} gradients", got[0], want, seen)


@lab_test
def clocks(lab):
    """Task 4: offsets of any size and sign, one-way delays, equal round trips, long answers; lines exact to 1 ns."""
    rounds, wants = [], []
    for scale in (4, 1000, 1 << 33):
        for start in (0, -7, 1_790_000_000 * 10 ** 9, -(1 << 58)):
            for offset in (0, 3, -3, 5 * HOUR + 1, -7 * HOUR, -1_700_000_000 * 10 ** 9, 1 << 59):
                some = []
                for _ in range(lab.random.choice((1, 1, 2, 9))):
                    start += lab.random.randrange(10 ** 6)
                    there, back = (lab.random.randrange(scale) for _ in range(2))
                    answer = lab.random.choice((0, 1, lab.random.randrange(8 * scale)))
                    arrived = start + there
                    some.append((start, arrived + offset, arrived + answer + offset, arrived + answer + back))
                some += lab.random.choices(some, k=lab.random.randrange(2))
                if len(some) > 2:  # the same round trip as the first, a different offset
                    sent, arrived, answered, back = some[0]
                    some.append((sent + 10 ** 7, arrived + 10 ** 7 + 1, answered + 10 ** 7 + 1, back + 10 ** 7))
                rounds.append(some)
                bounds = [(answered - back, arrived - sent) for sent, arrived, answered, back in some]
                low, high = min(bounds, key=lambda pair: pair[1] - pair[0])
                middle = (low + high) // 2
                wants.append((middle, max(middle - low, high - middle), some[bounds.index((low, high))][1]))
    most = (1 << 62) - 1  # one clock near its least time, the other near its greatest: the sum of the bounds has 65 bits
    for sent, arrived in ((-most, most - 9), (10 - most, most - 2), (most - 5, -most), (most - 9, -most)):
        rounds.append([(sent, arrived, arrived + 2, sent + 5)])
        wants.append((arrived - sent - 2, 2, arrived))  # the bounds are 3 ns apart
    seen = lab.run("offsets", **cases("pings", rounds))
    for i, (some, want) in enumerate(zip(rounds, wants)):
        for field, a, b in zip(("offset", "uncertainty", "at"), seen["offsets"][3 * i:3 * i + 3], want):
            expect.equal(f"{field} of the exchanges {some}", a, b, seen)
    rows = []
    for at in (0, 5 * 10 ** 9, 1_700_000_000 * 10 ** 9 + 1, -(1 << 59)):
        for offset in (0, -2 * HOUR, 9 * HOUR + 5, 1 << 58):
            for length in (1, 1000, 10 ** 9, HOUR, 24 * HOUR):
                for skew in (0, 1, -1, 200, -200):
                    after = offset + (length * skew // 10 ** 6 or lab.random.choice((-1, 0, 1)))
                    two = [(offset, at), (after, at + length)]
                    lab.random.shuffle(two)
                    rows += [(at + lab.random.randrange(-2 * length, 3 * length + 1), *two[0], *two[1]) for _ in range(2)]
            rows.append((at + 77, offset, at, offset + 1000, at))
            rows.append((at - 10 ** 15, offset, at, offset - 10 ** 9, at))
    seen = lab.run("stamps", rows=[n for row in rows for n in row])
    for (stamp, first, at, second, then), got in zip(rows, seen["stamps"]):
        want = stamp - first - (Fraction((second - first) * (stamp - at), then - at) if then != at else 0)
        expect.that(abs(got - want) <= 1, f"the clock's {stamp} is {got} on rank 0's, must be {round(want)}: ahead by {first} "
                                          f"at {at}, by {second} at {then}", seen)


@lab_test
def stragglers(lab):
    """Task 5: random tables of 1 to 64 ranks, ties, exactly half of the collectives; and skewed clocks of eight ranks."""
    tables, sizes = [], []
    for ranks in (1, 2, 3, 5, 8, 64):
        for scale in (1, 3, 1 << 33, 1 << 40):
            for collectives in (0, 1, 2, 7, 20):
                slow, shift = lab.random.randrange(ranks), lab.random.choice((0, 1 << 59, -(1 << 59)))
                table = []
                for c in range(collectives):
                    row = [c * 9 * scale + scale * lab.random.randrange(4) + shift for _ in range(ranks)]
                    row[slow] += scale * lab.random.choice((0, 2, 2, 5))
                    table.append(row)
                if table and lab.random.random() < 0.3:
                    table[0][-1] += 300 * scale
                tables.append(table)
                sizes.append(ranks)
    tables += [[(1, 2), (3, 4), (7, 6), (9, 8)], [(1, 2), (3, 4), (7, 6)], [(1, 2), (3, 3), (4, 4)], [(0, 0, 5), (9, 4, 4)],
               [(1, 2), (3, 3)] * 20_000]
    sizes += [2, 2, 2, 3, 2]
    rows, who, seen = public.lateness(lab, tables, sizes)
    for table, ranks, got, found in zip(tables, sizes, rows, who):
        waited, caused, last = [0] * ranks, [0] * ranks, [0] * ranks
        for row in table:
            blamed = row.index(max(row))
            for rank, at in enumerate(row):
                waited[rank] += row[blamed] - at
                caused[blamed] += row[blamed] - at
            last[blamed] += min(row) < max(row)
        case = f"{len(table)} collectives of {ranks} ranks: {[list(row)[:8] for row in table[:7]]}"
        for rank in range(ranks):
            expect.equal(f"waited, caused and times_last of rank {rank} in {case}", got[rank],
                         (waited[rank], caused[rank], last[rank]), seen)
        often = [rank for rank in range(ranks) if 2 * last[rank] > len(table)]
        expect.equal(f"the straggler and the persistent straggler in {case}", found,
                     (caused.index(max(caused)) if any(caused) else -1, often[0] if often else -1), seen)
    offsets = [0] + [lab.random.randrange(-9 * HOUR, 9 * HOUR) for _ in range(7)]
    public.skewed_trace(lab, 8, lab.random.randrange(4, 8), offsets, [0] + [lab.random.randrange(-90, 90) for _ in range(7)])
    public.skewed_trace(lab, 5, 0, [0] + [lab.random.randrange(1 << 58) for _ in range(4)], [0, 90, -90, 20, 0])


def simulated(model, alpha, beta, cap):
    """Fills the buckets first, then sends them."""
    buckets = [[]]
    for gradient in model:
        if sum(size for _, size in buckets[-1]) >= cap:
            buckets.append([])
        buckets[-1].append(gradient)
    now = 0
    for bucket in buckets:
        if bucket:
            now = max([now] + [ready for ready, _ in bucket])
            now += alpha - (-beta * sum(size for _, size in bucket) // 1000)
    return now


@lab_test
def sweeps(lab):
    """Tasks 6 and 7: random models, empty gradients, caps at and next to their sums, gradients of 2^41 bytes, ties."""
    models, networks = [], []
    for scale in (1, 1000, 1 << 22, 1 << 41):
        for alpha in (0, 3, 5000, 1 << 34):
            for count in (1, 2, 5, 12):
                at, model = 0, []
                for _ in range(count):
                    at += lab.random.choice((0, 1, 9, 400, 1 << 33))
                    model.append((at, lab.random.choice((0, 1, 2, 3, 5, 40)) * scale))
                if lab.random.random() < 0.5:
                    lab.random.shuffle(model)
                models.append(model)
                networks.append((alpha, lab.random.choice((0, 1, 80, 1000, 99_999 if scale < 1 << 41 else 999))))
    models += [[], [(0, 0)], [(7, 0), (7, 0), (3, 0)], [(1 << 58, 1), (5, 1 << 40)], [(0, 3)] * 100]
    networks += [(5, 80)] * 5
    caps = [1, 2, 3, 5, 6, 9, 40, 999, 1000, 1001, 3000, 6000, (1 << 22) - 1, 1 << 22, 3 << 22, (3 << 22) + 1, 1 << 31, 1 << 32,
            1 << 41, (1 << 41) + 1, 5 << 41, 1 << 62, 4, 10]
    lab.random.shuffle(caps)
    wants = [[simulated(model, *network, cap) for cap in caps] for model, network in zip(models, networks)]
    got, seen = public.sweep(lab, "last_end", models, networks, caps)
    for i, (model, network, want) in enumerate(zip(models, networks, wants)):
        case = f"{model}, alpha {network[0]}, beta {network[1]}"
        for cap, a, b in zip(caps, got[i * len(caps):], want):
            expect.equal(f"the last end of {case}, cap {cap},", a, b, seen)
    for some in (caps, caps[::-1], caps[:1]):
        got, seen = public.sweep(lab, "best_cap", models, networks, some)
        for model, network, want, value in zip(models, networks, wants, got):
            by_cap = dict(zip(caps, want))
            least = min(by_cap[cap] for cap in some)
            expect.equal(f"the best of the caps {some} for {model}, alpha {network[0]}, beta {network[1]},", value,
                         max(cap for cap in some if by_cap[cap] == least), seen)
    got, seen = public.sweep(lab, "earliest_end", models, networks)
    for model, (alpha, beta), value in zip(models, networks, got):
        want = max((t + alpha - (-beta * sum(size for ready, size in model if ready >= t) // 1000) for t, _ in model), default=0)
        expect.equal(f"the earliest end of {model}, alpha {alpha}, beta {beta},", value, want, seen)


@lab_test
def roofs(lab):
    """Tasks 8 and 9: kernels beyond 2^40 and 2^60 operations, at and near the ridge, without work, above the roof."""
    lists, machines = [], []
    for peak, bandwidth in ((989e12, 3.35e12), (2.0 ** 40, 2.0 ** 30), (1.0, 1.0), (7.5, 3e9), (6e10, 2.5e10)):
        some = [(0, 0, 5), (0, 1 << 50, 10 ** 7), (1 << 60, 0, 10 ** 9), (1 << 60, 1 << 60, 1), (1, 1, 1 << 50)]
        for _ in range(30):
            size = lab.random.randrange(1, 1 << lab.random.randrange(1, 50))
            flops = int(size * peak / bandwidth * lab.random.choice((1e-3, 0.9, 0.999, 1.001, 1.1, 900)))
            some.append((min(flops, 1 << 62), size, lab.random.randrange(1, 1 << lab.random.randrange(1, 60))))
        if peak == 2.0 ** 40:
            some += [(1024 * n, n, 7) for n in (1, 3, 1 << 33, (1 << 40) + 1)]
            some += [(1024 * n + d, n, 7) for n in (1, 3, 1 << 20) for d in (-1, 1)]
        lists.append(some)
        machines.append((peak, bandwidth))
    seen = public.roof(lab, lists, machines)
    least_times, at = [], 0
    for (peak, bandwidth), some, ridge in zip(machines, lists, seen["ridges"]):
        expect.near(f"the ridge of {peak:g} and {bandwidth:g}", ridge, peak / bandwidth, seen)
        for flops, size, time in some:
            compute, memory = Fraction(flops) / Fraction(peak), Fraction(size) / Fraction(bandwidth)
            least = max(compute, memory)
            case = f"of {flops} operations and {size} bytes in {time} ns, peak {peak:g}, bandwidth {bandwidth:g}"
            expect.near(f"the least time {case}", seen["least"][at], float(least * 10 ** 9), seen)
            expect.near(f"the attainable rate {case}", seen["rates"][at], float(flops / least) if flops else 0.0, seen)
            expect.near(f"the share of the roof {case}", seen["shares"][at], float(least * 10 ** 9 / time), seen)
            if peak == 2.0 ** 40 or abs(compute - memory) > Fraction(least, 10 ** 9) or not least:
                expect.equal(f"the limit (compute 0, memory 1) {case}", seen["limits"][at], int(compute < memory), seen)
            least_times.append(float(least * 10 ** 9))
            at += 1
    tuned, how, wants = [], [], []
    for _ in range(60):
        some = []
        for _ in range(lab.random.randrange(1, 9)):
            flops, size = lab.random.randrange(10 ** 12), lab.random.randrange(10 ** 9)
            least = max(flops / 1e12, size / 1e11) * 1e9
            some.append((flops, size, int(least * lab.random.choice((0.2, 0.5, 1.02, 1.5, 3, 40))) + 1))
        if lab.random.random() < 0.3:
            some += some
        tuned.append(some)
        how += [1e12, 1e11]
        wins = [time - max(flops / 1e12, size / 1e11) * 1e9 for flops, size, time in some]
        wants.append(wins.index(max(wins)) if max(wins) > 0 else -1)
    many = [(0, 0, 1)] * 40_000 + [(0, 0, 2)]
    tuned += [[(0, 0, 5), (0, 0, 1 << 41)], [(0, 0, 1 << 33), (0, 0, 5)], [(10 ** 12, 0, 10 ** 9)], [(9500, 0, 10)], many,
              [(0, 0, 1 << 30), (0, 0, (1 << 30) + 1)], [(0, 0, 0), (10 ** 9, 0, 0), (10 ** 9, 0, 5 * 10 ** 6)],
              [(10 ** 9, 0, 0), (0, 0, 0)]]  # a measured time of 0 must not make the list invalid
    seen = lab.run("first_to_tune", machines=how + [1e12, 1e11] * 8, **cases("kernels", tuned))
    for some, got, want in zip(tuned, seen["found"], [*wants, 1, 0, -1, 0, 40_000, 1, 2, -1]):
        expect.equal(f"the kernel to tune first of {some[:9]}{'...' if len(some) > 9 else ''}, 1 Tflop/s, 100 GB/s,", got,
                     want, seen)


@lab_test
def refusals(lab):
    """Tasks 4 to 6 and 8: inputs that must throw std::invalid_argument, and inputs that must not."""
    good = (0, 5, 6, 10)
    rounds = [([], 1), ([good], 0), ([(0, 5, 4, 10)], 1), ([(0, 5, 16, 10)], 1), ([(10, 5, 5, 9)], 1), ([good, (0, 5, 4, 10)], 1),
              ([(0, 5, 16, 10), good], 1), ([(3, 0, 0, 3)], 0), ([(0, 5, 15, 10)], 0), ([(10, 8, 7, 9), good], 1)]
    sizes = [(0, 1, 0), (0, 3, 0), (6, 3, 0), (7, 3, 1), (2, 3, 1), (0, 0, 1), (4, 0, 1), (4, -2, 1), (0, -1, 1)]
    caps, times = [(1, 0), (0, 1), (-5, 1), (1 << 40, 0)], [(1, 0), (0, 1), (-1, 1), (1 << 40, 0)]
    seen = lab.run("refusals", sizes=[n for a, b, _ in sizes for n in (a, b)], caps=[c for c, _ in caps],
                   times=[t for t, _ in times], **cases("pings", (some for some, _ in rounds)))
    for (some, want), got in zip(rounds, seen["offsets"]):
        expect.equal(f"whether estimate_offset refuses {some}", got, want, seen)
    for i, (arrivals, ranks, want) in enumerate(sizes):
        for name, got in zip(("lateness", "straggler", "persistent_straggler"), seen["tables"][3 * i:3 * i + 3]):
            expect.equal(f"whether {name} refuses {arrivals} arrivals of {ranks} ranks", got, want, seen)
    wants = [want for _, want in caps for _ in range(2)] + [1]
    names = [f"last_end refuses the cap {cap} {what}" for cap, _ in caps for what in ("", "without gradients")]
    for name, got, want in zip([*names, "best_cap refuses no cap"], seen["caps"], wants):
        expect.equal(f"whether {name}", got, want, seen)
    for (time, want), got in zip(times, seen["times"]):
        expect.equal(f"whether roof_share refuses a time of {time} ns", got, want, seen)
