"""Hidden tests of lab 20: every world, units of every size, accumulation, budgets, refusals, long pipelines."""
import itertools
import math

from labs.course.lab import load_sibling
from labs.course.testing import WORLDS, floats, lab_test

HIDDEN_SEED = 59031774
public = load_sibling(__file__, "public")
Training = public.Training


def one_f_one_b_of(p, m, most=1 << 30):
    stages = []
    for s in range(p):
        warm = min(p - 1 - s, most - 1, m)
        tasks = [i + 1 for i in range(warm)]
        for i in range(warm, m):
            tasks += [i + 1, -(i - warm) - 1]
        stages.append(tasks + [-i - 1 for i in range(m - warm, m)])
    return stages


def awkward(rng):
    """Returns a number that reveals the order of a sum or of a division, or exceeds 2^24, 2^31 or 2^40."""
    return rng.choice([1e8, -1e8, 1.0, -1.0, 0.1, 2.0 ** 24 + 2, 2.0 ** 31, -2.0 ** 40, 1e-30, rng.uniform(-10, 10), 3e38, -3e38])


def shapes(rng, most=4):
    """Returns the tensors of some units: sizes 0 and 1, too, and sometimes a unit without any parameter."""
    return [[rng.choice((0, 1, 2, 3, 5, 8, 13)) for _ in range(rng.randrange(0, 4))] for _ in range(rng.randrange(1, most + 1))]


@lab_test
def units_everywhere(lab):
    """Tasks 1 to 4: every world, counts from 0 to beyond 2^53, NaN and infinity, calls in any order."""
    rng = lab.random
    public.check_shards(lab, (*WORLDS, 6), [0, 1, 3, 6, 11, 97, 2 ** 24 + 1, 2 ** 31 - 1, 2 ** 32 + 5, 2 ** 40 + 3, 2 ** 53 + 1, 2 ** 64 - 1 >> 1])
    for world in (*WORLDS, 6):
        for sizes in ([], [0], [1], [world - 1], [world], [world + 1], [2, 0, 3], [0, 2 * world + 1, 1]):
            count = sum(sizes)
            script = "".join(rng.choice(("s", "g", "p", "l", "r", "gv", "lv")) for _ in range(12))
            rows = [[[awkward(rng) for _ in range(count)] for _ in range(world)] for _ in range(script.count("r"))]
            public.check_unit(lab, world, sizes, [rng.uniform(-9, 9) for _ in range(count)], script, rows,
                              capacity=rng.choice((0, 1, 3)), jitter=1.0)
    for bad in (math.inf, -math.inf, math.nan):
        rows = [[1.0, 2.0, 3.0, 4.0, 5.0] for _ in range(3)]
        rows[rng.randrange(3)][rng.randrange(5)] = bad
        public.check_unit(lab, 3, [3, 2], [1.0, bad, 2.0, -0.0, 3.0], "grpl", [rows])


@lab_test
def trainings(lab):
    """Tasks 5 to 10: random models on every world, with and without prefetch and keep, accumulation, states."""
    rng = lab.random
    for world in (*WORLDS, 6):
        for _ in range(2):
            run = Training(rng, world, shapes(rng), slope=rng.choice((0.0, 0.3, -1.5)))
            for _ in range(rng.randrange(4, 9)):
                act = rng.choice("FFFSSWVL")
                if act == "F":
                    run.train(rng.random() < 0.6, rng.random() < 0.3, scale=rng.choice((0.01, 8.0, 1e6)))
                if act == "S":
                    run.step(rng.choice((0.0, 0.1, 1.0)), rng.choice((0.0, 0.5, 0.9)))
                if act == "W":
                    run.whole()
                if act == "V":
                    run.save()
                if act == "L":
                    other = Training(rng, rng.choice(WORLDS), run.units)
                    other.momentum = [[public.f32(rng.uniform(-1, 1)) for _ in flat] for flat in other.value]
                    saved = [(r, other.world, *other.shard(r)) for r in range(other.world)]
                    rng.shuffle(saved)
                    run.load(saved)
            run.save()
            run.check(lab, capacity=rng.choice((0, 1, 3)), jitter=1.0)
    # Numbers that reveal the order of the accumulation: the large one first, last, and in the middle.
    for large in range(3):
        run = Training(rng, 2, [[3], [2, 2]], slope=0.0)
        for call in range(3):
            run.train(scale=1e9 if call == large else 1.0)
        run.step(0.5, 0.5)
        run.train()
        run.step(0.5, 0.5)
        run.check(lab)
    # A load copies: -0 remains -0.
    run, other = Training(rng, 2, [[3], [2, 2]]), Training(rng, 3, [[3], [2, 2]])
    other.value = other.momentum = [[-0.0] * n for n in other.counts]
    run.load([(r, 3, *other.shard(r)) for r in range(3)])
    run.save()
    seen = run.check(lab)
    for rank in range(2):
        public.expect.same_bits(f"the saved shard on rank {rank} after a load", seen[f"saved.{rank}"], floats(run.saved[rank]), seen)


@lab_test
def budgets(lab):
    """All tasks: one unit is much larger than the others, first, in the middle and last; peaks of step, load and save."""
    for at in range(4):
        units = [[20000 + 4000 * u] for u in range(4)]
        units[at] = [150000, 3, 50000]
        public.check_memory(lab, 2 + at % 3, units, [(True, False), (False, False), (True, True)])
    public.check_memory(lab, 4, [[60000]] * 6, [(True, False)] * 2, script="FFSW")
    # A load builds no second model, nor does a step.
    for world, before in ((4, 2), (2, 4), (3, 3)):
        units = [[60000], [50001, 9], [70000]]
        counts = [sum(u) for u in units]
        lengths = [sum(public.shard_of(c, before, r)[1] for c in counts) for r in range(before)]
        zeros = public.floats([0.0] * sum(counts))
        seen = lab.run("peaks", world=world, record=0, units=[len(u) for u in units], sizes=[s for u in units for s in u],
                       values=zeros, slope=1.0, loads=[before, *[x for r, n in enumerate(lengths) for x in (r, before, n, n)]],
                       loaded=public.floats([1.0] * 2 * sum(lengths)), **{f"offset.{r}": zeros for r in range(world)})
        shard = 4 * sum(-(-c // world) for c in counts)
        for rank in range(world):
            for what, got, most in zip(("a step", "a load", "a save"), seen[f"peaks.{rank}"], (8192, 3 * shard + 16384, 6 * shard + 16384)):
                public.expect.at_most(f"new memory while {what} runs on rank {rank} of {world}, whose shards have {shard} bytes,",
                                      got, most, "bytes", seen)


@lab_test
def refusals(lab):
    """Tasks 7 and 10: a load of shards that do not belong together changes nothing; neither does a step without gradients."""
    units = [[4, 3], [2]]
    for world in (1, 2, 3):
        run = Training(lab.random, world, units)
        other = Training(lab.random, 3, units)
        good = [(r, 3, *other.shard(r)) for r in range(3)]
        run.train()
        longer = [(r, 3, [*v, 1.0], m) for r, _, v, m in good]
        moved = [(r, 3, v[:-1] if r == 0 else [*v, 1.0] if r == 1 else v, m) for r, _, v, m in good]
        for bad in ([], good[:2], [*good, good[0]], [good[0], good[1], good[1]], [(r + 1, 3, v, m) for r, _, v, m in good],
                    [(r - 1, 3, v, m) for r, _, v, m in good], [(r, 2, v, m) for r, _, v, m in good],
                    [(r, 4 if r == 2 else 3, v, m) for r, _, v, m in good], longer, moved,
                    [(r, 3, v, m[:-1]) for r, _, v, m in good], [(r, 3, v, [*m, 0.0]) for r, _, v, m in good],
                    [(r, 3, [*v, 1.0], m[:-1]) for r, _, v, m in good],
                    *([good[r] for r in ranks] for ranks in itertools.product(range(3), repeat=3) if len(set(ranks)) < 3),
                    [*good[:2], (2, 3, good[2][2], [])], [(2 - r, 3, v, m) for r, _, v, m in good],
                    [(-2147483648, 3, *good[0][2:]), *good[1:]]):
            run.load(bad, good=False)
        run.save()
        run.step()                  # the gradient is still there
        run.load(good[:1], good=False)
        run.step()                  # refused
        run.load([good[2], good[0], good[1]])
        run.step()                  # refused: a load sets the gradients to zero, and nothing was computed since
        run.train()
        run.load(good)
        run.step()                  # refused
        run.train()
        run.step()
        run.save()
        run.check(lab)


@lab_test
def schedules(lab):
    """Tasks 11 to 15: one to twelve stages, none to forty microbatches, all limits."""
    cases = [(p, m) for p in (1, 2, 3, 5, 8, 12) for m in (0, 1, 2, 3, 7, 16, 40)]
    public.check_gpipe(lab, cases)
    public.check_one_f_one_b(lab, cases)
    limited = [(p, m, most) for p in (1, 2, 3, 5, 8) for m in (0, 1, 2, 7, 16) for most in (1, 2, 3, 4, 7, 8, 100, 2 ** 31 - 1)]
    ours = {case: public.Pipeline(one_f_one_b_of(*case), case[1], "ours") for case in limited}
    public.check_within(lab, {case: (line.time(1, 1), line.time(1, 2)) for case, line in ours.items()})
    rng = lab.random
    shares = [(p, share) for p in (1, 2, 3, 8, 64) for share in (1e-6, 0.01, 0.0625, 1 / 3, 0.5, 0.99, 1.0, 2.0, 1e300)]
    shares += [(p, public.share_of(p, m)) for p in (2, 3, 5, 8, 17) for m in (1, 2, 6, 7, 49, 1000, 12345)]
    shares += [(p, math.nextafter(public.share_of(p, m), 0)) for p in (2, 3, 8) for m in (1, 2, 6, 7, 49, 1000)]
    shares += [(rng.randrange(2, 40), rng.uniform(0.001, 0.9)) for _ in range(20)]
    public.check_bubbles(lab, [case for case in cases if case[1]] + [(2, 2 ** 31 - 2), (2 ** 30, 2 ** 30), (2 ** 31 - 1, 2 ** 31 - 1)], shares)


@lab_test
def stages_everywhere(lab):
    """Task 16: every world, with GPipe, 1F1B, limited and reversed schedules, wide messages, no buffers and many."""
    rng = lab.random
    for p in (1, 2, 3, 4, 5, 8):
        for m in (0, 1, p, 9):
            for most in (rng.choice((1, 2, 3)), 100):
                public.runs_pipeline(lab, one_f_one_b_of(p, m, most), m, rng.choice((1, 2, 5)), capacity=rng.choice((0, 0, 1, 4)),
                                     jitter=2.0)
        for m in (2, 5):
            public.runs_pipeline(lab, public.gpipe_of(p, m), m, 1)
            backwards = [[i + 1 for i in range(m)] + [-i - 1 for i in reversed(range(m))]] * p
            public.runs_pipeline(lab, backwards, m, 2)
    public.runs_pipeline(lab, one_f_one_b_of(3, 4), 4, 700)
