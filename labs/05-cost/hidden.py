"""Hidden tests of lab 05: every world, awkward counts, and predictions against a network that plays
the messages."""
import math

from labs.course.testing import WORLDS, counts_for, expect, lab_test

HIDDEN_SEED = 58230419


def rounds_of(world):
    return (world - 1).bit_length()


def costs(world, count, element, alpha, beta, gamma):
    size, part = count * element, -(-count // world) * element
    level = rounds_of(world)
    return (2 * (world - 1) * (alpha + size * beta) + (world - 1) * size * gamma,
            2 * level * (alpha + size * beta) + level * size * gamma,
            2 * (world - 1) * (alpha + part * beta) + (world - 1) * part * gamma)


def machine(lab):
    return {"alpha": lab.random.uniform(1e-6, 5e-5), "beta": lab.random.uniform(1e-11, 1e-9),
            "gamma": lab.random.uniform(1e-11, 1e-10)}


def calls_of(name, world, count):
    """Returns the messages of an algorithm as (rank, to, out, from, in): lengths only, no data and no sums."""
    found = []
    if name == "flat":
        for r in range(1, world):
            found += [(r, 0, count, -1, 0), (0, -1, 0, r, count)]
        for r in range(1, world):
            found += [(0, r, count, -1, 0), (r, -1, 0, 0, count)]
    elif name == "tree":
        pairs = [(r, r - (1 << k)) for k in range(rounds_of(world)) for r in range(world) if r & -r == 1 << k]
        for child, parent in pairs:
            found += [(child, parent, count, -1, 0), (parent, -1, 0, child, count)]
        for child, parent in reversed(pairs):
            found += [(parent, child, count, -1, 0), (child, -1, 0, parent, count)]
    else:
        part = [count // world + (c < count % world) for c in range(world)]
        for step in range(2 * (world - 1)):
            for r in range(world):
                found.append((r, (r + 1) % world, part[(r - 1 - step) % world], (r - 1) % world,
                              part[(r - 2 - step) % world]))
    return [number for call in found for number in call]


@lab_test
def worlds(lab):
    """The three times for every world and awkward counts, from 0 to more than 2^40; each price
    dominates once."""
    small = [(world, count) for world in (*WORLDS, 6, 64, 1000) for count in counts_for(world)]
    large = [(world, count) for world in (1, 2, 3, 7, 1000) for count in (2 ** 24 + 1, 2 ** 31 + 1, 2 ** 40 + 3)]
    many = [(2 ** 16, 5), (2 ** 16 + 1, 2 ** 33 + 1)]  # not for a ring: playing its steps takes world^2 operations
    m = machine(lab)
    sizes = [0.0, 1.0, 2.0 ** 24 + 1, 2.0 ** 31 + 1, 2.0 ** 40 + 3, 1e300]
    for change in ({}, {"alpha": 0.0}, {"beta": 0.0}):
        prices = {**m, **change}
        seen = lab.run("messages", alpha=prices["alpha"], beta=prices["beta"], bytes=sizes)
        for size, got in zip(sizes, seen["times"]):
            expect.near(f"the time of a message of {size:.17g} bytes", got, prices["alpha"] + size * prices["beta"], seen)
    for name, at in (("flat", 0), ("tree", 1), ("ring", 2)):
        for element, change in ((2, {}), (4, {"alpha": 0.0}), (8, {"beta": 0.0}), (1, {"gamma": 3e-9, "alpha": 0.0})):
            m, cases = {**machine(lab), **change}, small + large + (many if name != "ring" else [])
            # Powers of two and their neighbours: log 2^29 / log 2 is a bit more than 29, and an int has no 2^31.
            cases += [(world, 9) for k in range(4, 32) for world in (2 ** k - 1, 2 ** k, 2 ** k + 1)
                      if name == "tree" and world < 2 ** 31]
            seen = lab.run("formulas", only=name, worlds=[w for w, _ in cases], counts=[c for _, c in cases],
                           element=element, **m)
            for i, (world, _) in enumerate(cases if name == "tree" else []):
                expect.equal(f"tree_rounds({world})", seen["rounds"][i], rounds_of(world), seen)
            for (world, count), got in zip(cases, seen[name]):
                expect.near(f"the time of {name} on {world} ranks, {count} elements of {element} bytes", got,
                     costs(world, count, element, **m)[at], seen)


@lab_test
def predicts(lab):
    """Predictions against a network that plays every message on its own clock."""
    for world in (1, 2, 3, 4, 5, 7, 8):
        for count in (0, 1, world + 1, 24 * world, 24 * world + 5):
            alpha, beta = lab.random.uniform(1, 9), lab.random.uniform(0.01, 1)
            only = lab.random.choice(("flat", "tree", "ring"))
            said = lab.run("formulas", worlds=[world], counts=[count], element=4, alpha=alpha, beta=beta, only=only)
            seen = lab.run("play", world=world, calls=calls_of(only, world, count), alpha=alpha, beta=beta)
            took = max(seen["finish"])
            case = f"{only} on {world} ranks, {count} elements of 4 bytes, alpha {alpha:.3f}, beta {beta:.3f}"
            expect.near(f"the prediction of {case}", said[only][0], took, said)


@lab_test
def cheapest(lab):
    """Task 5: the cheapest algorithm, over eight powers of ten, and where whole elements decide."""
    near_by = [(world, count) for world in (1, 2, 3, 4, 5, 7, 8, 9, 33) for count in range(60)]
    far = [(world, 10 ** k) for world in (1, 2, 3, 4, 8, 64, 1000) for k in range(9)]
    for m, cases in [(machine(lab), far), ({**machine(lab), "beta": 0.0}, far),
                     ({"alpha": lab.random.uniform(1, 9), "beta": 0.2, "gamma": 0.1}, near_by),
                     ({"alpha": lab.random.uniform(1, 9), "beta": 0.0, "gamma": 0.3}, near_by),
                     ({"alpha": 0.0, "beta": 0.4, "gamma": 0.0}, near_by),
                     ({"alpha": 0.0, "beta": 0.0, "gamma": 0.2}, near_by),  # flat needs three times as many additions
                     ({"alpha": 0.0, "beta": 0.0, "gamma": 0.0}, near_by),  # all cost the same: nothing
                     # 8 ranks, 8 elements: tree and ring cost the same at alpha 17
                     ({"alpha": 17 * (1 + 3e-8), "beta": 1.0, "gamma": 0.0}, near_by),
                     ({"alpha": 17 * (1 - 3e-8), "beta": 1.0, "gamma": 0.0}, near_by)]:
        seen = lab.run("formulas", only="cheapest", worlds=[w for w, _ in cases], counts=[c for _, c in cases],
                       element=4, **m)
        for (world, count), got in zip(cases, seen["cheapest"]):
            times = costs(world, count, 4, **m)
            expect.that(0 <= got <= 2 and times[got] <= min(times) * (1 + 1e-9),
                        f"{world} ranks, {count} elements: {('flat', 'tree', 'ring')[got]} is reported as the cheapest: "
                        f"flat {times[0]:.4g} s, tree {times[1]:.4g} s, ring {times[2]:.4g} s", seen)


@lab_test
def crossover(lab):
    """Task 6: where tree and ring cost the same; 0 for up to three ranks, infinity if a byte costs
    nothing."""
    cases = [1, 2, 3, 4, 5, 6, 7, 8, 64, 1000]
    for change in ({}, {"gamma": 0.0}, {"beta": 0.0}, {"beta": 0.0, "gamma": 0.0}, {"alpha": 0.0},
                   {"alpha": 0.0, "beta": 0.0, "gamma": 0.0}, {"gamma": 7e-9}):
        m = {**machine(lab), **change}
        seen = lab.run("formulas", only="crossover", worlds=cases, counts=[1] * len(cases), element=4, **m)
        for world, got in zip(cases, seen["crossover"]):
            level = rounds_of(world)
            dearer = m["alpha"] * (2 * (world - 1) - 2 * level)
            cheaper = m["beta"] * (2 * level - 2 * (world - 1) / world) + m["gamma"] * (level - (world - 1) / world)
            want = 0.0 if dearer <= 0 else dearer / cheaper if cheaper > 0 else math.inf
            expect.near(f"the crossover of {world} ranks", got, want, seen)


@lab_test
def least(lab):
    """Task 7: the lower bound; no prediction is below it."""
    element = lab.random.choice((2, 8))
    m = machine(lab)
    cases = [(world, count) for world in (*WORLDS, 1000) for count in (0, 1, 1000, 2 ** 24 + 1, 10 ** 8, 2 ** 40 + 3)]
    seen = lab.run("formulas", worlds=[w for w, _ in cases], counts=[c for _, c in cases], element=element, **m)
    for i, (world, count) in enumerate(cases):
        want = 2 * (world - 1) / world * element * count * m["beta"]
        expect.near(f"the bound for {world} ranks and {count} elements", seen["least"][i], want, seen)
        for name in ("flat", "tree", "ring"):
            expect.that(seen[name][i] >= want * (1 - 1e-9),
                        f"{name} on {world} ranks is faster than any algorithm can be", seen)


@lab_test
def fits(lab):
    """Task 8: alpha and beta from messages on the fabric and from noisy messages, by relative
    errors, in any order."""
    alpha, beta = lab.random.uniform(2, 9), lab.random.uniform(0.01, 0.5)
    sizes, times = [], []
    for count in (0, 1, 10, 100, 1000):
        seen = lab.run("play", world=2, calls=[0, 1, count, -1, 0, 1, -1, 0, 0, count], alpha=alpha, beta=beta)
        sizes.append(4.0 * count)
        times.append(max(seen["finish"]))
    seen = lab.run("fits", bytes=sizes, seconds=times)
    expect.near("alpha from five messages", seen["alpha"], alpha, seen, 1e-6)
    expect.near("beta from five messages", seen["beta"], beta, seen, 1e-6)
    seen = lab.run("fits", bytes=[1.0, 2.0, 4.0], seconds=[1.0, 3.0, 7.0])  # the best fit may have a negative alpha
    expect.near("alpha from messages whose line begins below 0", seen["alpha"], -1.0, seen, 1e-6)
    expect.near("beta from messages whose line begins below 0", seen["beta"], 2.0, seen, 1e-6)
    alpha, beta = 5e-6, 1e-10
    for sizes in ([float(1 << k) for k in range(6, 27, 2)], [8.0] * 5 + [3e5, 3e5, 2.0 ** 33, 1.0, 0.0, 8.0]):
        lab.random.shuffle(sizes)
        times = [(alpha + beta * s) * lab.random.uniform(0.9, 1.1) for s in sizes]
        xs, ys = [1 / t for t in times], [s / t for s, t in zip(sizes, times)]
        xx, xy, yy = (sum(a * b for a, b in zip(p, q)) for p, q in ((xs, xs), (xs, ys), (ys, ys)))
        over = xx * yy - xy * xy
        wanted = (sum(xs) * yy - sum(ys) * xy) / over, (xx * sum(ys) - xy * sum(xs)) / over
        seen = lab.run("fits", bytes=sizes, seconds=times)
        expect.near("alpha from noisy messages", seen["alpha"], wanted[0], seen, 1e-5)
        expect.near("beta from noisy messages", seen["beta"], wanted[1], seen, 1e-5)
        expect.equal("gamma, which no message determines", seen["gamma"], 0.0, seen)
