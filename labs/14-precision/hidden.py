"""Hidden tests of lab 14: every exponent, a scaler's rules, ranks that agree, groups of all sizes, broken batches."""
import math

from labs.course.lab import load_sibling
from labs.course.testing import expect, floats, lab_test

HIDDEN_SEED = 59330871
public = load_sibling(__file__, "public")
Deeds, Training, train, with_overflow = public.Deeds, public.Training, public.train, public.with_overflow


@lab_test
def every_exponent(lab):
    """Tasks 1 and 2: random floats of all 255 exponents, of both signs; and random NaNs."""
    for form in public.FORMATS:
        bits = [sign << 31 | field << 23 | fraction for sign in (0, 1) for field in range(255)
                for fraction in (0, 1, 0x7FFFFF, *(lab.random.randrange(1 << 23) for _ in range(20)))]
        values = public.from_bits(bits)
        public.encodes(lab, form, values, [public.encode(form, x) for x in values])
        nans = [lab.random.randrange(2) << 31 | 0x7F800000 | lab.random.randrange(1, 1 << 23) for _ in range(500)]
        public.encodes(lab, form, public.from_bits(nans), [None] * len(nans))


@lab_test
def scaler_rules(lab):
    """Task 4: any factors and intervals; a non-finite value anywhere; limits of the scale; calls out of order."""
    for _ in range(3):
        do = Deeds()
        do.load((lab.random.uniform(0.001, 1e6), lab.random.uniform(1.01, 9), lab.random.uniform(0.01, 0.99),
                 lab.random.randrange(1, 6), 0))
        for _ in range(40):
            parameters = [[lab.random.uniform(-9, 9) for _ in range(lab.random.randrange(4))] for _ in range(3)]
            if lab.random.random() < 0.2:
                parameters[lab.random.randrange(3)].insert(0, lab.random.choice([math.inf, -math.inf, math.nan]))
            do.unscale(*parameters)
            do.update()
        do.check(lab)
    do = Deeds()
    do.unscale([1.0], who="B")
    do.update()                       # A has not been unscaled; B has
    do.unscale([64.0])
    do.unscale([math.inf], [3.0])     # refused: neither divided again nor checked
    do.update()
    do.update()
    do.update(who="B")
    do.unscale([math.inf])
    do.unscale([1.0])                 # refused too, so the first call's result still counts
    do.update()
    do.unscale([math.nan])
    do.update()
    do.update()                       # the last result does not count twice
    do.unscale([2.0])
    do.update()
    do.unscale([3.0, math.nan])
    do.update()
    do.unscale()                      # no parameters: all finite, whatever the previous call found
    do.update()
    do.check(lab)
    # A gradient that becomes infinite only by the multiplication was finite. Large gradients are finite too.
    do = Deeds()
    do.load((2.0 ** -20, 2, 0.5, 2, 0))
    for value in (2.0 ** 110, 3e38, -3.4e38, 65504.0, 65536.0, 1e30):
        do.unscale([value])
        do.update()
    do.unscale([3e38, 3e38], [3e38])  # each is finite, though their sum overflows a float
    do.update()
    do.check(lab)
    # A loss or a gradient of -0, 0, infinity or NaN is multiplied like any other.
    do = Deeds()
    do.load((8.0, 2, 0.5, 2, 0))
    special = [-0.0, 0.0, math.inf, -math.inf, 1e-45, -1e-45, 3e38, -3e38]
    for value in special:
        do.scale(value)
        do.unscale([value, -0.0], [0.0])
        do.update()
    do.check(lab)
    # The scale grows to the largest power of two, and stays there while the count restarts. Then a small scale falls
    # through the subnormal floats to 0.
    do = Deeds()
    do.load((2.0 ** 126, 2, 0.5, 2, 1))
    for _ in range(7):
        do.unscale([1.0])
        do.update()
    do.unscale([math.inf])
    do.update()
    do.load((2.0 ** -122, 2, 0.25, 1, 0))
    for _ in range(14):
        do.unscale([-math.inf])
        do.update()
        if not do.scalers["A"].state[0]:
            break
    do.scale(3.0)                     # the scale is 0, and
    do.update()                       # refused: the step has ended although update() threw
    do.load(public.START)             # a reloaded state continues as before
    do.unscale([65536.0])
    do.update()
    do.check(lab)


@lab_test
def scaler_state(lab):
    """Task 3: a state taken mid-interval continues in another scaler; an invalid one is refused and changes nothing."""
    for tracker in range(4):
        do = Deeds()
        do.load((3.0, 3.0, 0.3, 4, 0))
        do.load((2.0 ** 40, 1.5, 0.75, 2, 1), who="B")
        for _ in range(tracker):
            do.unscale([1.0, -2.5])
            do.update()
        do.transfer()
        for bad in (False,) * 5 + (True,) + (False,) * 4:
            for who in "AB":
                do.scale(0.1, who)
                do.unscale([math.inf if bad else 7.0], who=who)
                do.update(who)
        do.check(lab)
    do = Deeds()                      # load() does not end a step: what unscale() has found still counts
    for found in (math.inf, 1.0):
        do.unscale([found])
        do.load((32.0, 2.0, 0.25, 1, 0))
        do.unscale([1.0])             # refused
        do.update()
        do.update()                   # refused
    do.check(lab)
    good = [8.0, 2.0, 0.5, 5, 3]
    do = Deeds()
    do.load(good)
    wrong = {0: (0.0, -1.0, math.inf, math.nan), 1: (1.0, 0.5, -2.0, math.nan, math.inf),
             2: (0.0, 1.0, 1.5, -0.5, math.nan), 3: (0, -3), 4: (-1, 7, 9)}
    for at, values in wrong.items():
        for value in values:
            state = [16.0, 4.0, 0.25, 7, 2]
            state[at] = value
            do.load(state, refused=True)
            do.load(state, who="B", refused=True)
    for state in ((2.0 ** -149, 1.0000001, 1e-300, 1, 0), (3.4e38, 1e300, 0.9999999, 2 ** 52, 2 ** 52 - 1)):
        do.load(state)
        do.load(state, who="B")
    for interval, tracker in ((2 ** 40, 2 ** 40 - 1), (2 ** 32 + 2, 1)):  # in 32 bits the second interval would be 2
        do.load([16.0, 4.0, 0.25, interval, tracker])
        do.unscale([1.0])
        do.update()
    do.check(lab)


@lab_test
def agreement(lab):
    """Task 7: any rank, any batch of a group, infinities that cancel: all ranks skip the same steps."""
    for world, accumulate in ((2, 3), (4, 2), (8, 1)):
        batches = 2 * accumulate + 1
        for rank in sorted({0, world // 2, world - 1}):
            batch = accumulate + lab.random.randrange(accumulate)
            weight, value = lab.random.randrange(3), lab.random.choice([1e6, -1e6, 3e38])
            offset = with_overflow(world, 3, batches, [(rank, batch, weight)], value)
            training = Training("f16", world, [1.0, -2.0, 4.0], offset, accumulate=accumulate, momentum=0.5, lr=0.25,
                                state=(64.0, 2.0, 0.5, 2.0, 1.0))
            train(lab, training, [list(range(batches)), list(range(accumulate))], meet=rank == 0)
    for world in (2, 4):  # the sum of + and - infinity is NaN, across ranks or batches
        offset = with_overflow(world, 2, 4, [(0, 1, 0)])
        offset[world - 1][2] = -1e6
        train(lab, Training("f16", world, [1.0, 2.0], offset, state=(8.0, 2.0, 0.5, 3.0, 0.0)), [[0, 1, 2, 3]])
        offset = with_overflow(world, 2, 4, [(1, 2, 1)])
        offset[1][1] = -1e6
        training = Training("f16", world, [1.0, 2.0], offset, accumulate=2, state=(8.0, 2.0, 0.5, 3.0, 0.0))
        train(lab, training, [[1, 3, 0, 2, 1], [3, 1]])
    # bf16 overflows too, at larger values. And every step may fail: the scale falls until a gradient fits.
    train(lab, Training("bf16", 2, [1.0], with_overflow(2, 1, 3, [(1, 1, 0)], 3e38), state=(8.0, 2.0, 0.5, 3.0, 0.0)),
          [[0, 1, 2]])
    train(lab, Training("f16", 2, [1.0], [[3.0] * 12, [40.0] * 12], momentum=0.5), [list(range(12))])


@lab_test
def groups(lab):
    """Task 8: groups of 1 batch, of all, of more than exist; empty epochs; and the next epoch starts afresh."""
    for world, cases in ((1, ((3, 7), (8, 4))), (2, ((1, 3), (3, 5), (7, 7), (2 ** 31 - 1, 2))), (8, ((4, 6),)),
                         (3, ((2, 5), (2 ** 31 - 1, 4))), (5, ((4, 6),))):  # a third of 105 is exact, a ninth is not
        for accumulate, count in cases:
            offset = [[105.0 * ((b * 5 + r * 3 + i * 4) % 9 - 4) for b in range(7) for i in range(2)] for r in range(world)]
            form = "f16" if world in (3, 5) else lab.random.choice(public.FORMATS)
            training = Training(form, world, [3.0, 1024.0], offset, accumulate=accumulate, lr=0.125,
                                state=(2.0, 2.0, 0.5, 2.0, 0.0))
            batches = list(range(count))
            train(lab, training, [batches, [], batches[:1], batches[::-1]])
    # The factor is scale(1 / float(n)): a quotient of the scale has other bits, as 13 / 3, 19 / 3 and 5 / 7 show.
    for n, scale in FACTORS:
        rows = [[float(b % 5 - 2) for b in range(2 * n)] for _ in range(2)]
        train(lab, Training("f16", 2, [1.0], rows, accumulate=n, state=(scale, 2.0, 0.5, 1e9, 0.0)), [list(range(2 * n))])
    many = [[float((b * 31 + r) % 17 - 8) for b in range(50)] for r in range(2)]
    train(lab, Training("f16", 2, [0.5], many, accumulate=8, lr=0.001, momentum=0.875,
                        state=(4.0, 2.0, 0.5, 5.0, 0.0)), [list(range(50)), list(range(49, -1, -1))])
    training = Training("f16", 2, [1.0], [[1.0], [2.0]])
    seen = lab.run("refused", accumulate=[0, -1, 1, -(1 << 31), 2, 1 << 30], **training.request())
    want = "invalid_argument invalid_argument  invalid_argument   "
    expect.equal("what a Trainer throws for accumulate of 0, -1, 1, -2^31, 2, 2^30, on each rank", seen["thrown"], want * 2, seen)


@lab_test
def broken_batch(lab):
    """Tasks 6 and 7: a batch throws, under NoSync or not: as if its step had never begun. Two replicas have separate
    NoSyncs, and two models separate formats."""
    for form in public.FORMATS:
        for world in (1, 2, 5):
            rows = [[float((b * 3 + r) % 7 * 5) for b in range(9)] for r in range(world)]
            public.replica(lab, form, world, "tszxsmtznszofs", rows)
    for world in (1, 2, 4):
        for at in range(3):
            group = [0, 1, 2]
            group[at] = public.BROKEN
            offset = with_overflow(world, 2, 6, [])
            training = Training("f16", world, [1.0, 2.0], offset, accumulate=3, momentum=0.5, state=(32.0, 2.0, 0.5, 2.0, 1.0))
            train(lab, training, [group, [3, 4, 5], [0, 1, 2, *group], [3, 4, 5, 0]])
    # An overflow in a step that threw must not cause the next step to be skipped.
    training = Training("f16", 2, [1.0, 2.0], with_overflow(2, 2, 6, [(0, 0, 1)]), accumulate=2, state=(8.0, 2.0, 0.5, 2.0, 0.0))
    train(lab, training, [[0, public.BROKEN], [1, 2], [1, 0], [3, 4]])


@lab_test
def long_training(lab):
    """All together: gradients that depend on the weights, momentum, overflows, several epochs, on 1 to 8 ranks."""
    for world in (1, 2, 8):
        for form in public.FORMATS:
            size, batches = lab.random.choice((1, 3, 5)), 9
            offset = [[lab.random.uniform(-4, 4) for _ in range(size * batches)] for _ in range(world)]
            slope = [[lab.random.uniform(0, 2) for _ in range(size * batches)] for _ in range(world)]
            for _ in range(2):
                offset[lab.random.randrange(world)][lab.random.randrange(size * batches)] = 30000.0
            start = [lab.random.uniform(-300, 300) for _ in range(size)]
            training = Training(form, world, start, offset, slope, accumulate=lab.random.choice((1, 2, 4)), lr=0.05,
                                momentum=0.75, state=(2.0 ** lab.random.randrange(4, 12), 2.0, 0.5, 3.0, 2.0))
            order = list(range(batches))
            train(lab, training, [lab.random.sample(order, batches) for _ in range(4)])
    # Numbers beyond 2^24, 2^31 and 2^40, in bf16: the f32 masters round, too.
    start = floats([2.0 ** 24 + 2, 2.0 ** 31 + 4096, 2.0 ** 40 + 2.0 ** 20, 1e8])
    offset = [[1.0, 2.0 ** 20, 2.0 ** 33, -1e8 + 8.0 * r, 3.0, 2.0 ** 7, 2.0 ** 17, 1.0] for r in range(2)]
    train(lab, Training("bf16", 2, start, offset, accumulate=2, state=public.PLAIN, lr=1.0), [[0, 1], [1], [0]])


@lab_test
def fewer_faults(lab):
    """Task 9: at most half the faults of the best GradScaler, in other runs."""
    public.chooses(lab, 0.5)


@lab_test
def fewest_faults(lab):
    """Task 9: at most 0.4 of the faults of the best GradScaler, in other runs."""
    public.chooses(lab, 0.4)
