"""Public tests of lab 18: three ranks and a few failures, whose answers can be checked on paper."""
import array
import math

from labs.course.testing import expect, lab_test

WORK, SAVE, RESTART, WAIT = range(4)
KINDS = ("work", "save", "restart", "wait")
FIELDS = ("useful", "saving", "restarting", "lost", "waiting")
NEVER = 1 << 62
MOST_CASES, MOST_FAILURES = 12, 6


def formula(lab, name, *rows):
    seen = lab.run("formula", name=name, arguments=array.array("d", (x for row in rows for x in row)))
    expected = 1 if name == "job_mtbf" else len(rows)
    expect.equal(f"the number of results of {name}", len(seen["results"]), expected, seen)
    return seen["results"], seen


def told(row):
    kind, begin, end, cut = row
    word = KINDS[kind] if 0 <= kind < len(KINDS) else f"kind {kind}"
    return f"{word} from {begin} to {end}" + (", cut" if cut else "")


def same_phases(name, got, want, seen):
    """got: the driver's flat array; want: rows. Reports the first phase that differs."""
    rows = [tuple(got[i:i + 4]) for i in range(0, len(got), 4)]
    for number, (a, b) in enumerate(zip(rows, want)):
        expect.that(a == tuple(b), f"phase {number} of {name} is {told(a)}; must be {told(b)}", seen)
    if len(rows) > len(want):
        expect.that(False, f"{name} has {len(rows)} phases, must have {len(want)}: "
                           f"{told(rows[len(want)])} is too much", seen)
    if len(rows) < len(want):
        expect.that(False, f"{name} has {len(rows)} phases, must have {len(want)}: "
                           f"{told(want[len(rows)])} is missing", seen)


def same_account(name, got, want, seen):
    for field, a, b in zip(FIELDS, got, want):
        expect.equal(f"{field} of {name}", a, b, seen)


@lab_test
def rates(lab):
    """Task 1: three ranks that fail every 30 hours; the chance that a job of 10 hours fails."""
    got, seen = formula(lab, "job_mtbf", [30, 30, 30])
    expect.near("the MTBF of three ranks of 30 h", got[0], 10.0, seen)
    got, seen = formula(lab, "job_mtbf", [20, 30, math.inf])
    expect.near("the MTBF of ranks of 20 h, 30 h and one that never fails", got[0], 12.0, seen)
    got, seen = formula(lab, "chance_of_failure", (10, 10), (10, 0), (math.inf, 7))
    for mtbf, duration, value, want in ((10, 10, got[0], 0.632120558829), (10, 0, got[1], 0.0),
                                        (math.inf, 7, got[2], 0.0)):
        expect.near(f"the chance of a failure in {duration} h at an MTBF of {mtbf} h", value, want, seen)


@lab_test
def intervals(lab):
    """Task 2: Young's interval from the lesson, 60 minutes, and the intervals in Daly's paper: 117, 57, 9.1 minutes."""
    got, seen = formula(lab, "young", (3, 600))
    expect.near("Young's interval, saves of 3 minutes, an MTBF of 600", got[0], 60.0, seen)
    got, seen = formula(lab, "daly", (5, 1440), (5, 360), (5, 15), (50, 15))
    for value, mtbf, want, digit in zip(got, (1440, 360, 15), (117, 57, 9.1), (0.5, 0.5, 0.05)):
        expect.that(abs(value - want) <= digit,
                    f"Daly's interval, saves of 5 minutes, an MTBF of {mtbf} is {value:.4g}, must be {want}", seen)
    expect.near("Daly's interval, saves of 50 minutes, an MTBF of 15", got[3], 15.0, seen)


@lab_test
def expectations(lab):
    """Task 3: four hours of work, saved every hour: without failures, and with one every 10 hours."""
    got, seen = formula(lab, "expected_time", (240, 60, 3, 10, math.inf), (240, 60, 3, 10, 600))
    expect.near("the time without failures", got[0], 249.0, seen)
    expect.near("the expected time at an MTBF of 600", got[1], 266.791322174, seen)
    got, seen = formula(lab, "goodput", (60, 3, 10, math.inf), (60, 3, 10, 600))
    expect.near("the goodput without failures", got[0], 60 / 63, seen)
    expect.near("the goodput at an MTBF of 600", got[1], 0.888326286579, seen)


@lab_test
def slowest(lab):
    """Task 4: a step of one rank, and of three ranks that wait for each other."""
    got, seen = formula(lab, "expected_slowest", (10, 6, 1), (10, 6, 3))
    expect.near("the expected step of 1 rank", got[0], 16.0, seen)
    expect.near("the expected step of 3 ranks", got[1], 21.0, seen)


@lab_test
def samples(lab):
    """Task 5: a mean, its standard error, and disagreement."""
    seen = lab.run("statistics", a=[1.0, 2.0, 3.0, 6.0], b=[1.0, 1.0, 2.0, 5.0])
    for name, got, want in (("the mean", seen["estimate"][0], 3.0), ("the error", seen["estimate"][1], 1.08012344974),
                            ("the mean difference", seen["difference"][0], 0.75),
                            ("the error of the difference", seen["difference"][1], 0.25)):
        expect.near(f"{name} of the samples", got, want, seen)
    seen = lab.run("agreement", questions=[10.0, 1.0, 12.0, 2.0, 10.0, 1.0, 13.0, 2.0, math.nan, 1.0, 10.0, 2.0])
    expect.equal("whether 10 +- 1 agrees with 12, with 13, and NaN with 10, within 2 errors",
                 list(seen["answers"]), [1, 0, 0], seen)


@lab_test
def queue(lab):
    """Task 6: events are popped by time, and simultaneous events in the order in which they were pushed."""
    seen = lab.run("queue", operations=[30, 9, 10, 9, 20, 9, 10, -1, -1, -1, -2, -2])
    expect.equal("the popped events, as (next, key, operation that pushed it)", list(seen["popped"]),
                 [10, 10, 2, 10, 10, 6, 20, 20, 4, 9, 9, 1, 9, 9, 3], seen)
    expect.equal("whether the queues are empty", list(seen["empty"]), [0, 0], seen)
    expect.that(seen["refuses"], "pop of an empty queue must throw std::out_of_range", seen)


# The lesson's job of three ranks, in minutes: 240 of work, saved every 60, saves of 3, restarts of 10.
BY_HAND = [(WORK, 0, 60, 0), (SAVE, 60, 63, 0), (WORK, 63, 100, 1), (RESTART, 100, 105, 1), (RESTART, 105, 115, 0),
           (WORK, 115, 175, 0), (SAVE, 175, 178, 0), (WORK, 178, 238, 0), (SAVE, 238, 239, 1), (RESTART, 239, 249, 0),
           (WORK, 249, 309, 0), (SAVE, 309, 312, 0), (WORK, 312, 372, 0)]


@lab_test
def by_hand(lab):
    """Task 7: four hours of work; failures in work, in a restart and in a save."""
    seen = lab.run("timelines", plans=[240, 60, 3, 10], counts=[0], failures=[])
    same_phases("a job without failures", seen["rows"],
                [(WORK, 0, 60, 0), (SAVE, 60, 63, 0), (WORK, 63, 123, 0), (SAVE, 123, 126, 0), (WORK, 126, 186, 0),
                 (SAVE, 186, 189, 0), (WORK, 189, 249, 0)], seen)
    seen = lab.run("timelines", plans=[240, 60, 3, 10], counts=[4], failures=[100, 105, 239, 372])
    same_phases("a job with failures at 100, 105 and 239", seen["rows"], BY_HAND, seen)


@lab_test
def shares(lab):
    """Task 8: where the 372 minutes went, and their cost in GPU-hours."""
    seen = lab.run("accounts", rows=[n for row in BY_HAND for n in row], lengths=[len(BY_HAND)])
    same_account("the job of the lesson", seen["sums"], (240, 9, 25, 98, 0), seen)
    hour = 3_600_000_000_000
    seen = lab.run("gpu_hours", times=[hour, hour // 2, 54 * 24 * hour], ranks=[3, 3, 8])
    expect.equal("the GPU-hours of 1 h and half an hour on 3, and of 54 days on 8", list(seen["hours"]),
                 [3, 1, 10368], seen)


@lab_test
def one_spare(lab):
    """Task 9: three machines and a spare; two fail, and the job waits for the first repair."""
    lives = [40, NEVER, 45, NEVER, NEVER, NEVER, NEVER, NEVER]
    seen = lab.run("cluster", plan=[120, 60, 3, 10], machines=3, spares=1, repair=100, draws=2, lives=lives)
    expect.equal("the failures, as (when, machine, substitute)", list(seen["failures"]), [40, 0, 3, 45, 1, -1], seen)
    same_phases("the job", seen["rows"],
                [(WORK, 0, 40, 1), (RESTART, 40, 45, 1), (WAIT, 45, 140, 0), (RESTART, 140, 150, 0), (WORK, 150, 210, 0),
                 (SAVE, 210, 213, 0), (WORK, 213, 273, 0)], seen)


@lab_test
def stragglers(lab):
    """Task 10: two steps of three ranks, which wait for each other or not; when to remove a slow rank."""
    how = {"times": [5, 2, 9, 5, 8, 1], "ranks": [3], "counts": [6]}
    seen = lab.run("steps", wait=1, **how)
    expect.equal("the time of both steps, when all wait for the slowest", list(seen["together"]), [17], seen)
    seen = lab.run("steps", wait=0, **how)
    expect.equal("the updates when no rank waits, as (when, rank, staleness)", list(seen["updates"]),
                 [2, 1, 0, 5, 0, 1, 9, 2, 2, 10, 0, 1, 10, 1, 3, 10, 2, 2], seen)
    seen = lab.run("worth", cases=[12, 10, 30, 5, 10, 10, 30, 5])
    expect.equal("the steps from which excluding a rank pays off", list(seen["from"]), [41, -1], seen)


def collection(lab):
    """Returns the student's cases as [(plan, failures, expected account)]; raises Wrong for invalid ones."""
    seen = lab.run("museum")
    expect.that(0 < len(seen["counts"]) <= MOST_CASES,
                f"there are {len(seen['counts'])} cases; 1 to {MOST_CASES} are allowed", seen)
    found, at = [], 0
    for i, count in enumerate(seen["counts"]):
        expect.at_most(f"case {i}", count, MOST_FAILURES, "failures", seen)
        plan = tuple(seen["plans"][4 * i:4 * i + 4])
        failures = list(seen["failures"][at:at + count])
        at += count
        expect.that(plan[1] > 0 and min(plan) >= 0, f"case {i}: there is no such plan: {plan}", seen)
        expect.that(failures == sorted(failures) and min(failures, default=0) >= 0,
                    f"case {i}: its failures are not in ascending order: {failures}", seen)
        found.append((plan, failures, tuple(seen["expected"][5 * i:5 * i + 5])))
    return found, seen


def found_by(cases, exhibit):
    """True if one of the cases finds a wrong simulator, (plan, failures) -> account."""
    return any(exhibit(plan, failures) != expected for plan, failures, expected in cases)


@lab_test
def first_room(lab):
    """Task 11: the museum's first room: cases are plausible, and find simulators that ignore failures."""
    cases, seen = collection(lab)
    for i, (plan, failures, expected) in enumerate(cases):
        expect.equal(f"useful in case {i} (all work is done in the end)", expected[0], plan[0], seen)
        expect.that(min(expected) >= 0 and expected[4] == 0, f"case {i}: no such account: {expected}", seen)
        if not failures:
            saves = max(0, -(-plan[0] // plan[1]) - 1)
            expect.equal(f"the account of case {i}, which has no failures", expected,
                         (plan[0], saves * plan[2], 0, 0, 0), seen)

    def no_failures(plan, failures):
        return plan[0], max(0, -(-plan[0] // plan[1]) - 1) * plan[2], 0, 0, 0

    def no_saves(plan, failures):
        return plan[0], 0, len(failures) * plan[3], 0, 0

    for name, exhibit in (("ignores all failures", no_failures), ("never saves", no_saves)):
        expect.that(found_by(cases, exhibit), f"no case finds the simulator that {name}", seen)
