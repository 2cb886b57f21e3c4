"""Hidden tests of lab 17: every world, uneven counts, NaNs, two of everything, and refusals."""
import array
import math

from labs.course.lab import load_sibling
from labs.course.testing import WORLDS, expect, floats, lab_test

HIDDEN_SEED = 17502931
public = load_sibling(__file__, "public")
Adam, Buckets, Joined, Sharded, f32 = public.Adam, public.Buckets, public.Joined, public.Sharded, public.f32


def awkward(rng):
    """Returns a number that reveals the order of a sum, exceeds 2^24, 2^31 or 2^40, or is midway between two bf16."""
    return rng.choice([1e8, -1e8, 1.0, -1.0, 0.1, 2.0 ** 24 + 2, 2.0 ** 31, -2.0 ** 40, 257.0, 259.0, 1.00390625, 1e-30,
                       rng.uniform(-10, 10), 3e38, -3e38, 16777217.0])


@lab_test
def hooks_everywhere(lab):
    """Tasks 1 and 2: all worlds, buckets of all sizes, numbers that reveal the order of a sum, infinities and NaNs."""
    for hook in ("average", "bf16"):
        for world in (*WORLDS, 6):
            sizes = [lab.random.choice((0, 1, world - 1, world, world + 1, 17)) for _ in range(3)] + [0, 23]
            calls = [(0, i % 2, [[awkward(lab.random) for _ in range(size)] for _ in range(world)]) for i, size in enumerate(sizes)]
            Buckets(hook, calls).check(lab, capacity=lab.random.choice((0, 1, 3)), jitter=2.0)
        for bad in (math.inf, -math.inf, math.nan):
            rows = [[1.0, 2.0, 3.0, 4.0, 5.0] for _ in range(3)]
            rows[lab.random.randrange(3)][lab.random.randrange(5)] = bad
            Buckets(hook, [(0, 0, rows)]).check(lab)
        # Small numbers reveal a division before the rounding, and flushed subnormals.
        Buckets(hook, [(0, 0, [[1e-39, 3e-41, 1.5e-45, 2.0 ** -126]] * 3)]).check(lab)


@lab_test
def selection(lab):
    """Task 3: ties, many NaNs, adjacent magnitudes, k of all sizes; and half a million of a million in time."""
    for size in (1, 2, 17, 64):
        for _ in range(3):
            values = [lab.random.choice((-2.0, 2.0, 1.0, -1.0, 0.0, 1.5, math.nan, math.inf, -math.inf)) for _ in range(size)]
            public.selects(lab, values, sorted({0, 1, size // 2, size - 1, size, size + 1, 2 ** 31, 2 ** 40}))
    public.selects(lab, [1.0] * 9, [0, 1, 4, 9])
    public.selects(lab, [math.nan] * 5 + [math.inf] * 4, [1, 4, 5, 6])
    # NaNs with different bits count as equal.
    nans = array.array("f", array.array("I", [0x7FC00000, 0xFFC00001, 0x7FFFFFFF, 1, 0x7FC00300]).tobytes())
    public.selects(lab, nans, range_of(6))
    public.selects(lab, [16777216.0, -16777218.0, 16777216.0, 2.0 ** 40, -2.0 ** 40, 1e-45, -1e-45, 0.0], range_of(8))
    count = 1000003
    values = floats(float(i * 7919 % count) * (-1 if i % 3 else 1) for i in range(count))
    seen = lab.run("top_k", values=values, k=[500000], deadline=4)
    want = [i for i in range(count) if i * 7919 % count >= count - 500000]
    expect.that(list(seen["places"]) == want, f"the places of the 500000 largest of {count} magnitudes, all of them different, are not those", seen)
    seen = lab.run("top_k", values=floats((1.0, -1.0)) * (count // 2), k=[500000], deadline=4)
    expect.that(list(seen["places"]) == list(range(500000)), f"the places of 500000 of {count - 1} equal magnitudes are not "
                "the lowest", seen)


def range_of(most):
    return list(range(1, most + 1))


@lab_test
def long_feedback(lab):
    """Tasks 4 and 5: many steps, several buckets, two hooks, every k; NaNs and infinities are sent, and then gone."""
    for _ in range(4):
        k = (lab.random.randrange(0, 4), lab.random.randrange(0, 8))
        sizes = {index: lab.random.randrange(0, 9) for index in (0, 3, -1, 2 ** 31 - 1)}
        calls = []
        for _ in range(20):
            index = lab.random.choice(list(sizes))
            calls.append((lab.random.randrange(2), index, [awkward(lab.random) for _ in range(sizes[index])]))
        public.compresses(lab, k, calls)
    public.compresses(lab, (1, 2), [(0, 0, [math.nan, 5.0, math.inf]), (0, 0, [1.0, 1.0, 1.0]), (0, 0, [0.0] * 3), (0, 0, [0.0] * 3),
                                    (1, 0, [math.nan, math.nan, math.nan]), (1, 0, [1.0, 2.0, 3.0]), (1, 0, [1.0, 2.0, 3.0])])
    # k is a std::size_t: a k beyond 32 bits sends all values.
    public.compresses(lab, (2 ** 32, 2 ** 40 + 1), [(which, 0, [4.0, -3.0, 2.0]) for which in (0, 1, 1, 0)])
    # One size, another one, and the first one again, whose first residual must be gone. Also an empty bucket.
    public.compresses(lab, (1, 1), [(0, 5, [1.0, 2.0, 3.0]), (0, 5, []), (0, 5, [1.0, 2.0, 3.0]), (0, 5, [4.0]), (0, 6, [3.0, 1.0]),
                                    (0, 5, [9.0, 1.0])])
    for world in (1, 2, 4, 5, 8):
        k = [[lab.random.randrange(0, 5), lab.random.randrange(0, 9)] for _ in range(world)]
        k[lab.random.randrange(world)] = [0, 0]
        sizes = [5, 0, 3, 1]
        calls = [(lab.random.randrange(2), index, [[awkward(lab.random) for _ in range(sizes[index])] for _ in range(world)])
                 for _ in range(4) for index in (0, 1, 2, 3)]
        Buckets("top_k", calls, k=k).check(lab, capacity=lab.random.choice((0, 2)))
    # Only one rank sends values: the lowest, the middle or the highest one.
    for rank in range(3):
        rows = [[1.0, -7.0, 3.0] for _ in range(3)]
        Buckets("top_k", [(0, 0, rows), (0, 0, rows)], k=[[2 * (r == rank), 0] for r in range(3)]).check(lab)
    for rank in range(3):
        rows = [[1.0, -7.0, 3.0] for _ in range(3)]
        rows[rank][2] = math.nan
        Buckets("top_k", [(0, 0, rows), (0, 0, [[0.0, 0.0, 0.0]] * 3)], k=[[1, 0]] * 3).check(lab)


@lab_test
def far(lab):
    """Task 5: places beyond 2^24 arrive exactly, though a float cannot hold them."""
    size = 2 ** 24 + 11
    places = [3, 2 ** 24 + 1, 2 ** 24 + 3, size - 1]
    values = floats([2.0, -4.0, 8.0, 0.5])
    seen = lab.run("far", world=2, size=size, k=3, places=places, values=values, deadline=20)
    for rank in range(2):
        expect.equal(f"the places that are not zero on rank {rank}", list(seen[f"there.{rank}"]), places[:3], seen)
        want = [f32(v / 2 + f32(2 * v) / 2) for v in values[:3]]
        expect.same_bits(f"the values there on rank {rank}", seen[f"found.{rank}"], floats(want), seen)


@lab_test
def uneven(lab):
    """Tasks 6 to 8: any rank is the last, or the first to run out, or has no batch; several epochs; both divisors."""
    for world in (1, 2, 3, 5, 8):
        for by_world in (True, False):
            rounds = []
            for last in sorted({0, world // 2, world - 1}):
                lengths = [lab.random.randrange(3) for _ in range(world)]
                lengths[last] = 4
                rounds.append([lab.random.sample(range(6), n) for n in lengths])
            Joined(lab.random, world, [2, 0, 3], rounds, by_world).check(lab, capacity=lab.random.choice((0, 1)), jitter=1.0)
    # No rank has a batch: all ranks get the highest rank's model, even if models differ. Then some have batches.
    for world in (2, 4):
        Joined(lab.random, world, [3], [[[]] * world, public.batches_of([1] + [0] * (world - 1)), [[]] * world],
               equal=False).check(lab)
    # The ranks start with different models: the last rank with a batch decides.
    for last in range(3):
        lengths = [1, 1, 1]
        lengths[last] = 2
        Joined(lab.random, 3, [1, 2], [public.batches_of(lengths)], False, equal=False).check(lab)
    for world in (3, 4):
        have = [[1] * n + [0] * (6 - n) for n in (lab.random.sample(range(1, 6), world))]
        for by_world in (True, False):
            public.exchanges(lab, [[*row, 0] for row in have], by_world)
    public.exchanges(lab, [[0, 0], [0, 0]], False)
    # A rank may have a batch again: next() knows only its argument.
    public.exchanges(lab, [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0]], False)


@lab_test
def strict(lab):
    """Tasks 6 and 8: throw_on_early_termination: every rank throws in the same step and keeps its own state."""
    for world in (2, 3, 8):
        for first in sorted({0, world // 2, world - 1}):
            lengths = [3] * world
            lengths[first] = 1
            if world > 2:
                lengths[(first + 1) % world] = 1
            for by_world in (True, False):
                Joined(lab.random, world, [2, 1], [public.batches_of([2] * world), public.batches_of(lengths),
                                                   public.batches_of([1] * world)], by_world, strict=True).check(lab)
        Joined(lab.random, world, [2], [public.batches_of([1] + [0] * (world - 1)), [[]] * world], strict=True, equal=False).check(lab)
    public.exchanges(lab, [[1] * 12 + [0], [1] * 12 + [1]], True, strict=True)
    public.exchanges(lab, [[0, 0], [0, 0]], False, strict=True)
    # A next() that throws has not returned true: divisor and authority keep the values of the previous step.
    for last in ((1, 0), (0, 1), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1)):
        for by_world in (True, False):
            for before in ([], [1, 1]):
                public.exchanges(lab, [[*before, have] for have in last], by_world, strict=True)
    # ... and it begins no step: later ones have the same number.
    public.exchanges(lab, [[1, 1, 1, 1, 0], [1, 0, 0, 1, 1]], True, strict=True)
    public.exchanges(lab, [[0, 1, 1, 1, 0, 1], [1, 0, 1, 0, 0, 1], [1, 1, 1, 1, 0, 0]], False, strict=True)


HYPER = [{"lr": 0.5, "beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0}, {"lr": 0.01, "beta1": 0.99, "beta2": 0.5, "weight_decay": 0.0},
         {"lr": 0.1, "beta1": 0.5, "beta2": 0.999, "weight_decay": 0.9}, {"lr": 1.0, "beta1": 0.0, "beta2": 0.9, "eps": 10.0}]


@lab_test
def optimizer_worlds(lab):
    """Tasks 9 to 11: all worlds, empty parameters and shards, each option dominant; norms of 0, huge or NaN."""
    for world in (*WORLDS, 6):
        sizes = [lab.random.choice((0, 1, 2, 5, 9)) for _ in range(4)]
        frozen = [lab.random.randrange(4) == 0 for _ in sizes]
        public.trains(lab, world, sizes, frozen, **lab.random.choice(HYPER))
        public.trains(lab, world, [world - 1, 2 * world + 1], limit=lab.random.choice((0.25, 3.0, 1e9)), steps=2)
    for options in HYPER:
        public.trains(lab, 3, [5, 2], steps=4, **options)
    for sizes, frozen in (([], []), ([0], [0]), ([3, 2], [1, 1]), ([0, 1, 0], [0, 0, 1])):
        public.trains(lab, 3, sizes, frozen, steps=2, limit=1.0)
    # A learning rate of 0: the values stay, but m and v change. Other options that are 0; gradients of 0 between others.
    for options in ({"lr": 0.0}, {"lr": 0.0, "weight_decay": 0.5}, {"lr": 0.5, "eps": 0.0}, {"lr": 0.5, "beta2": 0.0}):
        run = Sharded(2, Adam([3, 2], [0, 0], [1.0, -2.0, 3.0, -4.0, 5.0], **options))
        for row in ([1.0, 2.0, -3.0, 4.0, 5.0], [2.0, -1.0, 1.0, 3.0, 1.0], [1.0, 2.0, 3.0, 1.0, 2.0]):
            run.gradients([row, row])
            run.reduce()
            run.step()
            run.save()
        run.check(lab)
    run = Sharded(2, Adam([3, 2], [0, 0], [1.0, -2.0, 3.0, -4.0, 5.0], lr=0.5))
    for row in ([1.0, 2.0, -3.0, 4.0, 5.0], [0.0] * 5, [1.0, 0.0, 0.0, 1.0, 2.0]):
        run.gradients([row, row])
        run.reduce()
        run.step()
        run.save()
    run.check(lab)
    # The order of the sum, and numbers beyond 2^24, 2^31 and 2^40.
    run = Sharded(3, Adam([4], [0], [1.0, 2.0 ** 24, 2.0 ** 31, -2.0 ** 40], lr=0.25))
    run.gradients([[3e8, 1.0, 2.0 ** 40, 3e38], [3.0, 3.0, 3.0, 3e38], [-3e8, 5.0, -2.0 ** 40, 3e38]])
    run.reduce()
    run.step()
    run.check(lab)
    # A sum of squares that overflows or rounds in float; norms at the limit, just below it, zero, NaN, infinite.
    special = [[4097.0, 4095.0, 1.0, 0.0], [3.0, 4.0, 0.0, 0.0], [0.0] * 4, [1.0, math.nan, 2.0, 0.5], [1.0, 2.0, math.inf, 0.5],
               [2.0 ** 100, -2.0 ** 100, 2.0 ** 60, 0.0], [2.0 ** -20, 0.0, 0.0, 0.0]]
    for row in special:
        for limit in (5.0, 5.0 + 2e-6, 0.0, 2.0 ** -21, 1e-3, 1e9, math.inf):
            run = Sharded(2, Adam([3, 1], [0, 0], [1.0, 2.0, 3.0, 4.0]))
            run.gradients([row, row])
            run.reduce()
            run.clip(limit)
            run.step()
            run.gradients([[1.0, 2.0, 2.0, 4.0]] * 2)
            run.reduce()
            run.clip(1.0)
            run.step()
            run.save()  # Adam's steps hardly depend on a gradient's size; m and v do
            run.check(lab)
    # A frozen parameter's gradient must be ignored.
    for at in range(3):
        frozen = [int(p == at) for p in range(3)]
        run = Sharded(2, Adam([2, 2, 2], frozen, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        row = [math.nan if i // 2 == at else i * 2.0 for i in range(6)]
        for _ in range(2):
            run.gradients([row, row])
            run.reduce()
            run.clip(1.0)
            run.step()
        run.check(lab)
    # Only one rank has gradients that are not zero: the lowest, the middle or the highest one.
    for only in range(3):
        run = Sharded(3, Adam([5], [0], [1.0, 2.0, 3.0, 4.0, 5.0]))
        run.gradients([[3.0 * (r == only)] * 5 for r in range(3)])
        run.reduce()
        run.step()
        run.check(lab)


@lab_test
def two_optimizers(lab):
    """Tasks 10 to 12: two optimizers of two models, calls out of order, states of the wrong size."""
    for world in (1, 2, 3, 5):
        run = Sharded(world, Adam([3, 2], [0, 0], [1.0, 2.0, 3.0, 4.0, 5.0]),
                      Adam([7], [0], [2.0] * 7, lr=0.01, beta1=0.5, weight_decay=0.5))
        rng = lab.random
        run.step()                                  # refused: nothing was reduced
        run.clip(1.0)                               # refused, too
        for _ in range(2):                          # the last average replaces the first
            run.gradients(public.random_rows(rng, world, 5))
            run.reduce()
        run.gradients(public.random_rows(rng, world, 7), who="B")
        run.reduce(who="B")
        run.step(who="B")
        run.step(who="B")                           # refused: reduced once, stepped once
        run.clip(1.0, who="B")
        run.save(who="B")
        run.step()
        run.save()
        run.step()
        good = ([0.5] * 5, [0.25, 0.5, 1.0, 2.0, 4.0])
        run.load(-1, *good)
        run.load(3, good[0][:4], good[1])
        run.load(3, good[0], [*good[1], 1.0])
        run.load(3, good[0][:4], [*good[1], 1.0])  # the total length of m and v is right, but neither of the two is
        run.load(3, [], [])
        run.save()                                  # unchanged
        run.load(2 ** 40, *good)
        run.save()
        run.load(7, *good)
        run.save()
        run.gradients(public.random_rows(rng, world, 5))
        run.reduce()
        run.load(9, *good)                          # does not end a step: the average still counts
        run.step()
        run.step()                                  # refused
        run.load(0, [0.0] * 5, [0.0] * 5)
        for who in "AB":
            for _ in range(2):
                run.gradients(public.random_rows(rng, world, 5 if who == "A" else 7), who=who)
                run.reduce(who)
                run.step(who)
        run.save()
        run.save(who="B")
        run.check(lab, capacity=1, jitter=1.0)
    # The caller writes to the parameters between two steps: the next step starts from the new values.
    for world in (1, 2, 4):
        run = Sharded(world, Adam([3, 1], [0, 0], [1.0, 2.0, 3.0, 4.0]))
        for _ in range(2):
            run.gradients(public.random_rows(lab.random, world, 4))
            run.reduce()
            run.step()
            run.write([lab.random.uniform(-9, 9) for _ in range(4)])
        run.gradients(public.random_rows(lab.random, world, 4))
        run.reduce()
        run.step()
        run.check(lab)
    # From a mid-training state, on every world: the number of ranks that saved it does not matter.
    values, m, v = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0], [0.5, -0.25, 0.125, 1.0, -1.0, 2.0, 0.0], [1.0, 0.5, 0.25, 4.0, 2.0, 1.0, 0.5]
    for world in (1, 3, 4, 8):
        run = Sharded(world, Adam([4, 3], [0, 0], values))
        run.load(41, m, v)
        run.gradients([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]] * world)
        run.reduce()
        run.step()
        run.save()
        run.check(lab)


@lab_test
def smaller_loss(lab):
    """Task 13: at most 8 times DDP's loss, for other models."""
    public.chooses(lab, 8)


@lab_test
def smallest_loss(lab):
    """Task 13: at most twice DDP's loss, for other models."""
    public.chooses(lab, 2)
