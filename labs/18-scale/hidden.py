"""Hidden tests of lab 18: every formula with extreme numbers, random jobs and clusters event by event, the museum."""
import array
import bisect
import heapq
import math

from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

HIDDEN_SEED = 90518263
public = load_sibling(__file__, "public")
museum = load_sibling(__file__, "hidden_museum")
WORK, SAVE, RESTART, WAIT, NEVER = public.WORK, public.SAVE, public.RESTART, public.WAIT, public.NEVER
formula, same_phases, same_account = public.formula, public.same_phases, public.same_account
SECOND = 10 ** 9
DAY = 86400 * SECOND


# A second simulator with another method: it jumps from failure to failure.

def ahead(plan, saved, fresh):
    """Yields (kind, length) of the phases from the last save on if there were no failure."""
    work, interval, save, restart = plan
    if fresh:
        yield RESTART, restart
    for _ in range(work - saved, interval, -interval):
        yield WORK, interval
        yield SAVE, save
    if work > saved:
        yield WORK, (work - saved - 1) % interval + 1


def timeline(plan, failures):
    """Returns phases as (kind, begin, end, cut)."""
    phases, saved, begin = [], 0, 0
    for number, at in enumerate([*failures, math.inf]):
        pending = 0
        for kind, length in ahead(plan, saved, number > 0):
            if at < begin + length:
                phases.append((kind, begin, at, 1))
                begin = at
                break
            phases.append((kind, begin, begin + length, 0))
            begin += length
            saved += pending if kind == SAVE else 0
            pending = length if kind == WORK else 0
        else:
            return phases


def account(phases):
    sums = dict.fromkeys(public.FIELDS, 0)
    unsaved = 0
    for kind, begin, end, cut in phases:
        length = end - begin
        if kind == WORK:
            unsaved += length
        elif kind == SAVE:
            sums["lost" if cut else "saving"] += length
        else:
            sums["restarting" if kind == RESTART else "waiting"] += length
        if kind == SAVE or cut:
            sums["lost" if cut else "useful"] += unsaved
            unsaved = 0
    sums["useful"] += unsaved
    return tuple(sums[field] for field in public.FIELDS)


def simulate(plan, machines, spares, repair, draw):
    """Returns (phases, failures as (when, machine, substitute), machines in the order in which they joined)."""
    work, interval, save, restart = plan
    events, number, joined = [], 0, []
    phases, failures = [], []
    free, empty = list(range(machines, machines + spares)), 0

    def schedule(at, what, machine):
        nonlocal number
        number += 1
        heapq.heappush(events, (at, what, number, machine))

    def join(at, machine):
        joined.append(machine)
        schedule(at + draw(machine), 1, machine)

    for machine in range(machines):
        join(0, machine)
    kind, begin, saved, memory = WORK, 0, 0, 0
    while saved < work:
        length = {WORK: min(interval, work - saved), SAVE: save, RESTART: restart, WAIT: math.inf}[kind]
        if begin + length <= events[0][0]:
            phases.append((kind, begin, begin + length, 0))
            begin += length
            if kind == WORK:
                memory = saved + length
                kind = SAVE
                saved = work if memory == work else saved
            else:
                saved = memory if kind == SAVE else saved
                kind = WORK
            continue
        at, what, _, machine = heapq.heappop(events)
        if what == 0 and not empty:
            free.append(machine)
            continue
        if what == 0:
            join(at, machine)
            empty -= 1
            following = WAIT if empty else RESTART
        else:
            schedule(at + repair, 0, machine)
            substitute = free.pop(0) if free and not empty else -1
            failures.append((at, machine, substitute))
            if substitute < 0:
                empty += 1
            else:
                join(at, substitute)
            following = WAIT if empty else RESTART
        if not (kind == WAIT and following == WAIT):
            phases.append((kind, begin, at, int(kind != WAIT)))
            kind, begin = following, at
        memory = saved
    return phases, failures, joined


@lab_test
def forms(lab):
    """Tasks 1 to 4 with extreme numbers: 16,384 ranks, rare failures, none, and dominant costs."""
    ranks = [lab.random.uniform(1e4, 1e5) for _ in range(16384)]
    got, seen = formula(lab, "job_mtbf", ranks)
    expect.near("the MTBF of 16,384 different ranks", got[0], 1 / math.fsum(1 / r for r in ranks), seen)
    for some, want in (([], math.inf), ([math.inf] * 3, math.inf), ([7.0], 7.0), ([math.inf, 8.0, math.inf, 8.0], 4.0),
                       ([5e-324, 1.0], 0.0), ([1e308] * 4, 2.5e307)):
        got, seen = formula(lab, "job_mtbf", some)
        expect.near(f"the MTBF of the ranks {some}", got[0], want, seen)
    rows = [(10.0 ** lab.random.uniform(-3, 12), 10.0 ** lab.random.uniform(-6, 4)) for _ in range(40)] + [(1e9, 1e-6)]
    rows += [(5.0, 0.0), (math.inf, 5.0), (math.inf, 0.0), (5.0, math.inf)]
    got, seen = formula(lab, "chance_of_failure", *rows)
    for (mtbf, duration), value in zip(rows, got):
        expect.near(f"the chance of a failure in {duration:g} at an MTBF of {mtbf:g}", value, -math.expm1(-duration / mtbf),
                    seen)
    rows = [(10.0 ** lab.random.uniform(-3, 3), 10.0 ** lab.random.uniform(-1, 6)) for _ in range(60)]
    rows += [(30.0, 15.0), (29.999, 15.0), (0.0, 15.0), (1.0, math.inf)]
    got, seen = formula(lab, "young", *rows)
    for (save, mtbf), value in zip(rows, got):
        expect.near(f"Young's interval, saves of {save:g}, an MTBF of {mtbf:g}", value, math.sqrt(2 * save * mtbf), seen)
    got, seen = formula(lab, "daly", *rows)
    for (save, mtbf), value in zip(rows, got):
        x = math.sqrt(save / (2 * mtbf))
        want = mtbf if save >= 2 * mtbf else math.sqrt(2 * save * mtbf) * (1 + x / 3 + x * x / 9) - save
        expect.near(f"Daly's interval, saves of {save:g}, an MTBF of {mtbf:g}", value, want, seen, 1e-7)
    slow = [(lab.random.uniform(0, 9), lab.random.uniform(0.1, 9), n) for n in (1, 2, 7, 1000, 16384, 100_000)]
    # A logarithm with one or two terms comes close to the sum for many ranks; these are too few.
    slow += [(0.0, lab.random.uniform(0.1, 9), lab.random.randrange(*between))
             for between in ((8, 100), (100, 1000), (1001, 2500))]
    slow += [(0.0, 1.0, 16384), (1.0, 0.0, 16384)]
    got, seen = formula(lab, "expected_slowest", *slow)
    for (base, jitter, n), value in zip(slow, got):
        expect.near(f"the expected step of {n} ranks", value, base + jitter * math.fsum(1 / k for k in range(1, n + 1)), seen)


def expected(work, interval, save, restart, mtbf):
    saves = -(-work // interval) - 1
    return mtbf * math.exp(restart / mtbf) * ((saves and saves * math.expm1((interval + save) / mtbf))
                                              + math.expm1((work - saves * interval) / mtbf))


@lab_test
def long_jobs(lab):
    """Task 3: rare failures, no last interval, one interval only, intervals that do not divide the work.

    Without a save, an interval or save so long that its exponential is infinite costs nothing."""
    rows = []
    for _ in range(60):
        interval = float(lab.random.randrange(1, 5000))
        work = interval * lab.random.randrange(1, 90) + lab.random.choice((0, 0, lab.random.randrange(1, 5000)))
        rows.append((work, interval, float(lab.random.randrange(0, 900)), float(lab.random.randrange(0, 900)),
                     10.0 ** lab.random.uniform(3, 14)))
    rows += [(100.0, 100.0, 9.0, 5.0, 1000.0), (100.0, 500.0, 9.0, 5.0, 1000.0), (7e6, 1e3, 20.0, 0.0, 1e15)]
    rows += [(5000.0, 700.0, 0.0, 50.0, 3000.0), (5000.0, 700.0, 30.0, 0.0, 3000.0), (5000.0, 700.0, 0.0, 0.0, 3000.0)]
    never = [(100.0, 1e6, 9.0, 5.0, 1000.0), (100.0, 100.0, 1e6, 5.0, 1000.0)]  # e^1000 overflows a double
    got, seen = formula(lab, "expected_time", *rows, *never)
    for row, value in zip([*rows, *never], got):
        expect.near("the expected time of work {:g}, interval {:g}, save {:g}, restart {:g}, MTBF {:g}".format(*row), value,
             expected(*row), seen)
    rows = [(work, interval, save, restart, math.inf) for work, interval, save, restart, _ in rows]
    got, seen = formula(lab, "expected_time", *rows)
    for (work, interval, save, _, _), value in zip(rows, got):
        expect.near(f"the time of work {work:g}, interval {interval:g}, save {save:g} without failures", value,
             work + save * (-(-work // interval) - 1), seen)
    rows = [row[1:] for row in rows] + [(*row[1:4], 10.0 ** lab.random.uniform(3, 14)) for row in rows]
    got, seen = formula(lab, "goodput", *rows)
    for (interval, save, restart, mtbf), value in zip(rows, got):
        want = interval / (interval + save) if math.isinf(mtbf) else \
            interval / (mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf))
        expect.near(f"the goodput of interval {interval:g}, save {save:g}, restart {restart:g}, MTBF {mtbf:g}", value, want,
                    seen)


@lab_test
def statistics(lab):
    """Task 5: huge, nearly equal samples, one sample, pairs; and NaN, which never agrees."""
    for shift, spread in ((0.0, 1.0), (1e15, 40.0), (-3e9, 1e-3), (4e15, 8.0)):
        n = lab.random.randrange(2, 400)
        a = [shift + spread * lab.random.randrange(-1000, 1000) / 8 for _ in range(n)]
        b = [x + spread * lab.random.randrange(-9, 9) / 8 for x in a]
        seen = lab.run("statistics", a=a, b=b)
        for name, values in (("estimate", a), ("difference", [x - y for x, y in zip(a, b)])):
            first = values[0]
            mean = math.fsum(x - first for x in values) / n
            error = math.sqrt(math.fsum((x - first - mean) ** 2 for x in values) / (n - 1) / n)
            case = f"{name} of {n} samples around {shift:g}"
            expect.close(f"the mean of the {case}", [seen[name][0]], [first + mean], 2 * math.ulp(first) + 1e-9 * abs(mean), seen)
            expect.near(f"the error of the {case}", seen[name][1], error, seen, 1e-6 if shift else 1e-9)
    count = 2 ** 24 + 1  # 0, 1, 0, ..., 0
    seen = lab.run("many_samples", count=count)
    ones = count // 2
    expect.near(f"the mean of {count} samples", seen["estimate"][0], ones / count, seen)
    expect.near(f"the error of {count} samples", seen["estimate"][1], math.sqrt(ones * (1 - ones / count) / (count - 1) / count), seen)
    seen = lab.run("statistics", a=[5.0], b=[3.0])
    expect.equal("the estimate and the difference of one sample", [*seen["estimate"], *seen["difference"]],
                 [5.0, math.inf, 2.0, math.inf], seen)
    nan, inf = math.nan, math.inf
    questions = [((10, 1, 12, 2), 1), ((12, 1, 10, 2), 1), ((10, 1, 12.001, 2), 0), ((12.001, 1, 10, 2), 0),
                 ((-10, 1, -12.5, 2), 0), ((10, 0, 10, 2), 1), ((10, 0, 10.5, 2), 0), ((nan, 1, 10, 2), 0),
                 ((10, nan, 10, 2), 0), ((10, 1, nan, 2), 0), ((10, 1, 10, nan), 0), ((10, inf, 10, 2), 0),
                 ((10, 1, inf, 2), 0), ((inf, 1, inf, 2), 0), ((10, 1, 10, inf), 0), ((inf, inf, 10, 2), 0),
                 ((inf, 1e200, 10, 1e200), 0)]
    seen = lab.run("agreement", questions=[float(x) for q, _ in questions for x in q])
    for (q, want), got in zip(questions, seen["answers"]):
        expect.equal("whether {} +- {} agrees with {} within {} errors".format(*q), got, want, seen)


@lab_test
def order(lab):
    """Task 6: thousands of events in two queues, many at the same time; O(log n) comparisons and copies each."""
    for size, keys in ((40, 3), (5000, 7), (5000, 1 << 41), (4096, 1)):
        operations, inside, want = [], ([], []), []
        held = (0, 0)
        wish = [lab.random.randrange(keys) for _ in range(size)]
        if size == 4096:
            wish = [1] * size
        for turn in range(3 * size):
            number = len(operations)
            which = number & 1
            if turn < size or (turn < 2 * size and lab.random.random() < 0.5):
                key = wish[turn % size] if turn % 5 else lab.random.randrange(keys)
                operations.append(key)
                bisect.insort(inside[which], (key, number))
                continue
            which = lab.random.randrange(2) if inside[0] and inside[1] else 0 if inside[0] else 1
            if not inside[which]:
                break
            key, pushed = inside[which].pop(0)
            operations.append(-1 - which)
            want += [key, key, pushed]
        seen = lab.run("queue", operations=operations)
        for at in range(0, len(want), 3):
            expect.equal(f"event {at // 3} that is popped, as (next, key, operation that pushed it)",
                         list(seen["popped"][at:at + 3]), want[at:at + 3], seen)
        expect.equal("whether the queues are empty", list(seen["empty"]), [int(not q) for q in inside], seen)
        limit = len(operations) * (8 * math.log2(size) + 24)
        expect.at_most(f"{len(operations)} pushes and pops with up to {size} events take", seen["work"], limit,
                       "comparisons and copies of keys", seen)
    # More simultaneous events than a 16-bit number can count.
    operations = [7] * 140_000 + [-1] * 70_000
    seen = lab.run("queue", operations=operations)
    got, want = list(seen["popped"][2::3]), list(range(0, 140_000, 2))
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), 0)
    name = f"the operation that pushed event {at} that is popped, of 70,000 at the same moment,"
    expect.equal(name, got[at], want[at], seen)
    operations, inside, want = [], ([], []), []  # few events at a time: the queues are often nearly empty
    while len(operations) < 600:
        number, which = len(operations), lab.random.randrange(2)
        if len(inside[which]) > lab.random.randrange(4):
            key, pushed = inside[which].pop(0)
            operations.append(-1 - which)
            want += [key, key, pushed]
        else:
            operations.append(lab.random.randrange(2))
            bisect.insort(inside[number & 1], (operations[-1], number))
    seen = lab.run("queue", operations=operations)
    for at in range(0, len(want), 3):
        expect.equal(f"event {at // 3} that is popped from a short queue, as (next, key, operation that pushed it)",
                     list(seen["popped"][at:at + 3]), want[at:at + 3], seen)


def jobs(lab, plans, failures):
    return lab.run("timelines", plans=[n for plan in plans for n in plan], counts=[len(f) for f in failures],
                   failures=[at for some in failures for at in some])


def compare(seen, plans, failures):
    at = 0
    for i, (plan, some) in enumerate(zip(plans, failures)):
        want = timeline(plan, some)
        name = f"job {i} (work {plan[0]}, interval {plan[1]}, save {plan[2]}, restart {plan[3]}, failures {some[:9]})"
        length = seen["lengths"][i] if i < len(seen["lengths"]) else 0
        same_phases(name, seen["rows"][4 * at:4 * (at + length)], want, seen)
        at += length


@lab_test
def boundaries(lab):
    """Task 7: a failure at every moment of a short job, and pairs of failures."""
    for plan in ((7, 3, 2, 2), (6, 3, 1, 2), (5, 5, 1, 1), (5, 9, 1, 1), (4, 2, 0, 1), (4, 2, 1, 0), (3, 1, 0, 0)):
        some = [[]] + [[a] for a in range(17)] + [[a, a + b] for a in range(15) for b in range(6)]
        some += [[a, a, a + 1, a + 1] for a in range(12)]
        compare(jobs(lab, [plan] * len(some), some), [plan] * len(some), some)
    compare(jobs(lab, [(0, 1, 1, 1), (0, 5, 0, 0), (1, 1, 1, 1)], [[], [0], [1]]),
            [(0, 1, 1, 1), (0, 5, 0, 0), (1, 1, 1, 1)], [[], [0], [1]])


@lab_test
def weeks(lab):
    """Task 7: random jobs in nanoseconds, up to weeks and hundreds of failures; an interval longer than all work."""
    plans, failures = [], []
    for scale in (10, 1 << 25, 1 << 33, 1 << 41, 1 << 47):
        for _ in range(12):
            interval = lab.random.randrange((scale >> 5) + 1, 30 * scale)  # all saves together stay below 2^62
            plan = (lab.random.randrange(1, 300 * scale), interval, lab.random.randrange(0, 3 * scale),
                    lab.random.randrange(0, 8 * scale))
            some = sorted(lab.random.randrange(0, 600 * scale) for _ in range(lab.random.choice((0, 1, 9, 60))))
            if some and lab.random.random() < 0.5:
                some = sorted(some + lab.random.choices(some, k=3))
            plans.append(plan)
            failures.append(some)
    plans += [(9 << 40, (1 << 63) - 1, 5, 3), (9 << 40, NEVER, NEVER, 3)]
    failures += [[1 << 40, 5 << 40], [7]]
    compare(jobs(lab, plans, failures), plans, failures)


@lab_test
def accounts(lab):
    """Task 8: every nanosecond of random phases belongs to one account; GPU-hours of 54 days on 16,384 ranks."""
    rows, lengths, wants = [], [], []
    for scale in (1, 1 << 30, 1 << 44):
        for _ in range(25):
            plan = tuple(n * scale for n in (lab.random.randrange(1, 90), lab.random.randrange(1, 20),
                                             lab.random.randrange(0, 6), lab.random.randrange(0, 6)))
            if lab.random.random() < 0.5:
                some = sorted(lab.random.randrange(160) * scale for _ in range(lab.random.randrange(9)))
                phases = timeline(plan, some)
            else:
                lives = [[lab.random.randrange(1, 60) * scale for _ in range(3)] for _ in range(4)]
                phases = simulate(plan, 3, 1, lab.random.randrange(1, 90) * scale, drawing(lives)[0])[0]
            rows += [n for row in phases for n in row]
            lengths.append(len(phases))
            wants.append(account(phases))
    seen = lab.run("accounts", rows=rows + [WORK, 5, 9, 0], lengths=[*lengths, 0, 1])
    for i, want in enumerate([*wants, (0, 0, 0, 0, 0), (4, 0, 0, 0, 0)]):
        same_account(f"job {i}", seen["sums"][5 * i:5 * i + 5], want, seen)
    hour = 3600 * SECOND
    times = [54 * DAY, 54 * DAY - 1, hour - 1, hour, 0] + [lab.random.randrange(60 * DAY) for _ in range(30)]
    ranks = [16384, 16384, 1000000, 1, 16384] + [lab.random.choice((1, 3, 16384, 24576, 1000000)) for _ in range(30)]
    for n in (16381, 999983, 7):  # primes: products 1 ns below, at, and 1 ns above whole hours
        times += [pow(n, -1, hour) * (hour - 1) % hour + 40 * hour, hour * n, pow(n, -1, hour)]
        ranks += [n, n, n]
    seen = lab.run("gpu_hours", times=times, ranks=ranks)
    for time, n, got in zip(times, ranks, seen["hours"]):
        expect.equal(f"the GPU-hours of {time} ns on {n} ranks", got, time * n // hour, seen)


def drawing(lives):
    """Returns (draw, drawn): the k-th life of machine m is lives[m][k]; after the last one it never fails."""
    drawn = [0] * len(lives)

    def draw(machine):
        own = lives[machine]
        drawn[machine] += 1
        return own[drawn[machine] - 1] if drawn[machine] <= len(own) else NEVER
    return draw, drawn


def play(lab, plan, machines, spares, repair, lives, **how):
    """Runs a cluster and compares it with the second simulator, event by event."""
    phases, failures, joined = simulate(plan, machines, spares, repair, drawing(lives)[0])
    draws = max((len(own) for own in lives), default=0)
    flat = [n for own in lives for n in (*own, *[NEVER] * (draws - len(own)))]
    seen = lab.run("cluster", plan=list(plan), machines=machines, spares=spares, repair=repair, draws=draws, lives=flat,
                   **how)
    got = seen["failures"]
    for i, want in enumerate(failures):
        expect.equal(f"failure {i}, as (when, machine, substitute)", tuple(got[3 * i:3 * i + 3]), want, seen)
    expect.equal("the number of failures", len(got) // 3, len(failures), seen)
    if plan[0]:  # without work, the joins do not matter
        expect.equal("the machines in the order in which they joined", list(seen["joined"]), joined[:1000], seen)
    if how.get("rows", 1):
        same_phases("the job", seen["rows"], phases, seen)
    same_account("the job", seen["sum"], account(phases), seen)
    expect.equal("the sum of the account", sum(seen["sum"]), seen["end"], seen)
    return seen, failures


@lab_test
def clusters(lab):
    """Task 9: spares that run out, simultaneous repairs, failures in restarts and waits, with and without ties."""
    for _ in range(36):
        machines, spares = lab.random.choice((1, 2, 3, 5)), lab.random.choice((0, 0, 1, 2, 4))
        scale = lab.random.choice((1, 1, 1, 1 << 34))
        few = lab.random.choice((4, 12, 60))  # few values: many ties
        lives = [[lab.random.randrange(1, few) * scale * 3 for _ in range(lab.random.randrange(7))]
                 for _ in range(machines + spares)]
        plan = (lab.random.randrange(1, 150) * scale, lab.random.randrange(1, 30) * scale,
                lab.random.randrange(0, 5) * scale, lab.random.randrange(0, 9) * scale)
        play(lab, plan, machines, spares, lab.random.choice((0, 3, 6, 50, 400)) * scale, lives)


@lab_test
def together(lab):
    """Task 9: several machines fail at the same moment, with too few spares; a tie at the job's end."""
    for spares in (0, 1, 2, 3, 5):
        lives = [[20, 30], [20, 20], [20, 7], [9], [20, 50], *[[11, 5]] * spares]
        play(lab, (100, 10, 2, 4), 5, spares, 15, lives)
        play(lab, (100, 10, 2, 4), 5, spares, 0, lives)
        play(lab, (100, 25, 0, 0), 5, spares, 20, lives)
    play(lab, (30, 10, 2, 4), 2, 0, 5, [[34], [12]])
    play(lab, (10, 10, 2, 4), 2, 1, 5, [[10], [10], []])
    play(lab, (0, 10, 2, 4), 2, 1, 5, [[1], [1], []])


def same_long(one, seen, name, rows):
    """Compares a long answer: its first rows, its length, and its digest (put_long in driver.cpp)."""
    got, digest = seen[name], 0
    for i, row in enumerate(rows):
        if 3 * i < len(got):
            expect.equal(f"{one} {i}", tuple(got[3 * i:3 * i + 3]), row, seen)
        for number in row:
            digest = (31 * digest + number) % (1 << 64)
    expect.equal(f"the number of {name}", seen[name + ".count"] // 3, len(rows), seen)
    expect.equal(f"the digest of all {name} (one behind number {len(got) // 3} is wrong)",
                 seen[name + ".digest"] % (1 << 64), digest, seen)


@lab_test
def crowd(lab):
    """Task 9: 120,000 machines that all fail once: code that looks at all machines at every event does not finish."""
    machines = 120_000
    lives = lab.random.sample(range(1 << 44), machines)
    plan = (1 << 44, (1 << 28) + 1, 1 << 12, 1 << 10)
    seen = lab.run("cluster", plan=list(plan), machines=machines, spares=machines, repair=NEVER // 2, draws=1,
                   lives=array.array("q", lives + [NEVER] * machines), rows=0, deadline=4)
    when = {at: machine for machine, at in enumerate(lives)}
    same_long("failure", seen, "failures", [(at, when[at], machines + i) for i, at in enumerate(sorted(lives))])
    same_account("the job", seen["sum"], account(timeline(plan, sorted(lives))), seen)


@lab_test
def rush(lab):
    """Task 10: two updates of each of 80,000 ranks: code that looks at all ranks at every update does not finish."""
    ranks = 80_000
    times = array.array("q", [lab.random.randrange(1, 1 << 40) for _ in range(2 * ranks)])
    seen = lab.run("steps", times=times, ranks=[ranks], counts=[2 * ranks], wait=0, deadline=4)
    pushes = sorted([(times[r], r) for r in range(ranks)] + [(times[r] + times[ranks + r], r) for r in range(ranks)])
    last, updates = [0] * ranks, []
    for number, (at, rank) in enumerate(pushes):
        updates.append((at, rank, number - last[rank]))
        last[rank] = number + 1
    same_long("update", seen, "updates", updates)


@lab_test
def pace(lab):
    """Task 10: random steps with and without waiting, several tables in one process; the price of removing a rank."""
    times, ranks, counts = [], [], []
    for n in (1, 2, 3, 7, 16):
        for steps in (0, 1, 2, 9):
            few = lab.random.choice((2, 4, 1 << 42))
            ranks.append(n)
            counts.append(n * steps)
            times += [lab.random.randrange(0 if few == 4 else 1, few) for _ in range(n * steps)]
    tables, at = [], 0
    for n, count in zip(ranks, counts):
        tables.append([times[at + i:at + i + n] for i in range(0, count, n)])
        at += count
    seen = lab.run("steps", times=times, ranks=ranks, counts=counts, wait=1)
    for i, (table, got) in enumerate(zip(tables, seen["together"])):
        expect.equal(f"the time of table {i}, {len(table)} steps of {ranks[i]} ranks", got, sum(map(max, table)), seen)
    seen = lab.run("steps", times=times, ranks=ranks, counts=counts, wait=0)
    at = 0
    for i, table in enumerate(tables):
        expect.equal(f"the updates of table {i}", seen["lengths"][i], counts[i], seen)
        ready = [(row, r, 0) for r, row in enumerate(table[0])] if table else []
        pulled, done = [0] * ranks[i], 0
        while ready:
            now, rank, step = event = min(ready)
            ready.remove(event)
            expect.equal(f"update {done} of table {i}, as (when, rank, staleness)",
                         tuple(seen["updates"][3 * at:3 * at + 3]), (now, rank, done - pulled[rank]), seen)
            done, at = done + 1, at + 1
            pulled[rank] = done
            if step + 1 < len(table):
                ready.append((now + table[step + 1][rank], rank, step + 1))
    cases = [(lab.random.randrange(1, 90), lab.random.randrange(1, 90), lab.random.randrange(300),
              lab.random.randrange(20)) for _ in range(200)]
    cases += [(12 * SECOND, 10 * SECOND, 600 * SECOND, 10 ** 6), (11, 10, 0, 0), (10, 10, 0, 0), (9, 10, 0, 0),
              (10 * SECOND + 1, 10 * SECOND, 600 * SECOND + 1, 10 ** 6)]  # beyond a double's precision
    seen = lab.run("worth", cases=[n for case in cases for n in case])
    for (slow, fast, restart, redo), got in zip(cases, seen["from"]):
        want = (restart + redo * fast) // (slow - fast) + 1 if slow > fast else -1
        expect.equal(f"the steps from which it pays off (slow {slow}, fast {fast}, restart {restart}, redo {redo})", got,
                     want, seen)


@lab_test
def refusals(lab):
    """std::invalid_argument for invalid plans, clusters, MTBFs and samples; and valid edge cases."""
    plans = [(10, 0, 1, 1), (10, -1, 1, 1), (-1, 5, 1, 1), (10, 5, -1, 1), (10, 5, 1, -1), (0, 0, 0, 0),
             (0, 1, 0, 0), (10, 5, 0, 0), (10, 50, 1, 1)]
    seen = lab.run("refusals", plans=[n for plan in plans for n in plan],
                   clusters=[0, 1, 1, -1, 1, 1, 1, -1, 1, 1, 1, -1, 1, 0, 0, 3, 2, 1])
    for plan, job, run in zip(plans, seen["jobs"], seen["runs"]):
        bad = plan[1] <= 0 or min(plan) < 0
        expect.equal(f"whether timeline() refuses work, interval, save, restart {plan}", job, int(bad), seen)
        expect.equal(f"whether simulate() refuses work, interval, save, restart {plan}", run, int(bad), seen)
    expect.equal("whether the clusters (0, 1, 1) (-1, 1, 1) (1, -1, 1) (1, 1, -1) (1, 0, 0) (3, 2, 1) are refused",
                 list(seen["clusters"]), [1, 1, 1, 1, 0, 0], seen)
    seen = lab.run("refused_formulas")
    expect.equal("whether job_mtbf refuses 0, -1 and NaN", list(seen["mtbf"]), [1, 1, 1, 1], seen)
    expect.equal("whether estimate() refuses no samples", seen["estimate"], 1, seen)
    expect.equal("whether difference() refuses unequal numbers, and no samples", list(seen["difference"]), [1, 1, 1],
                 seen)


@lab_test
def agrees_with_daly(lab):
    """Simulated means agree with the expected ones within 6 standard errors; no interval beats Daly's by that much."""
    mtbf, work, save, restart = 10800.0, 72000.0, 60.0, 300.0
    best = round(math.sqrt(2 * save * mtbf) * (1 + math.sqrt(save / 2 / mtbf) / 3 + save / 2 / mtbf / 9) - save)
    intervals = [best, best // 4, best // 2, 2 * best, 4 * best]
    failures, counts = [], []
    for _ in range(250):
        at, mine = 0.0, []
        while at < 8 * work:
            at += lab.random.expovariate(1 / mtbf)
            mine.append(int(at * SECOND))
        failures += mine
        counts.append(len(mine))
    ends = {}
    for interval in intervals:
        plan = [int(n) * SECOND for n in (work, interval, save, restart)]
        seen = lab.run("trials", plan=plan, counts=counts, failures=failures)
        ends[interval] = [end / SECOND for end in seen["ends"]]
    for interval in intervals:
        seen = lab.run("statistics", a=ends[interval], b=ends[best])
        (mean, error), (more, error_of_more) = seen["estimate"], seen["difference"]
        want = expected(work, float(interval), save, restart, mtbf)
        expect.that(abs(mean - want) <= 6 * error,
                    f"the mean time at intervals of {interval} s is {mean:.0f} +- {error:.0f} s, expected are {want:.0f}",
                    seen)
        expect.that(error < 0.02 * want, f"{error:.0f} s is not the standard error of 250 trials", seen)
        expect.that(more >= -6 * error_of_more, f"intervals of {interval} s are better than Daly's {best} s", seen)
        if interval in (best // 4, 4 * best):
            expect.that(more > 6 * error_of_more > 0, f"intervals of {interval} s are not worse than Daly's {best} s",
                        seen)


@lab_test
def llama(lab):
    """54 days of 16,384 machines, one failure in 3.09 h as published; saves of 20 s, restarts of 5 minutes (assumed)."""
    machines, hours = 16384, 54 * 24 / 419
    mtbf = hours * 3600 * machines
    lives = [[int(SECOND * lab.random.expovariate(1 / mtbf))] for _ in range(machines)]
    lives += [[int(SECOND * lab.random.expovariate(1 / mtbf)), NEVER] for _ in range(64)]
    interval = round(math.sqrt(2 * 20 * hours * 3600))
    plan = (int(54 * 0.9 * 86400) * SECOND, interval * SECOND, 20 * SECOND, 300 * SECOND)
    seen, failures = play(lab, plan, machines, 64, DAY, lives, rows=0)
    end = seen["end"] / SECOND
    many = end / (hours * 3600)
    expect.that(abs(len(failures) - many) <= 6 * math.sqrt(many), f"{len(failures)} failures in {end:.0f} s", seen)
    good = seen["sum"][0] / seen["end"]
    expect.that(0.88 < good < 0.945, f"a goodput of {good:.4f} does not match the formula", seen)


def visit(lab):
    """Returns (exhibits that were not found, number of false alarms, observation)."""
    cases, seen = public.collection(lab)
    # Two correct simulators: account(timeline()), and the exhibits' simulator without a bug.
    rights = (lambda plan, failures: account(timeline(plan, failures)), museum.exhibit())
    true = [case for case in cases if not any(public.found_by([case], right) for right in rights)]
    missed = [name for name, wrong in museum.EXHIBITS.items() if not public.found_by(true, wrong)]
    return missed, len(cases) - len(true), seen


def museum_test(lab, wanted):
    missed, alarms, seen = visit(lab)
    score = len(museum.EXHIBITS) - len(missed) - alarms
    expect.that(score >= wanted,
                f"{len(museum.EXHIBITS) - len(missed)} of {len(museum.EXHIBITS)} exhibits are found, {alarms} false alarms: "
                f"{score}, {wanted} are needed" + (f"; one that is not found: {lab.random.choice(missed)}" if missed
                                                   else ""), seen)


@lab_test
def ground_floor(lab):
    """Task 11: half of the museum's 28 wrong simulators are found, less a point for each false alarm."""
    museum_test(lab, 14)


@lab_test
def whole_museum(lab):
    """Task 11: 26 of the museum's 28 wrong simulators are found, less a point for each false alarm."""
    museum_test(lab, 26)
