"""Hidden tests of lab 09: worlds, bucket sizes, orders, unused parameters, no_sync, and the clock."""
import math
import pathlib

from labs.course import overlap as meter
from labs.course.lab import load_module
from labs.course.testing import WORLDS, Wrong, expect, lab_test
from labs.course.verdicts import AuthorError

HIDDEN_SEED = 47120936
public = load_module(pathlib.Path(__file__).with_name("public.py"))
Model, train, expect_buckets = public.Model, public.train, public.expect_buckets


@lab_test
def worlds(lab):
    """Every world from 1 to 8, also if the parameters were wrapped before; a NaN of one rank is a
    NaN on all."""
    for world in (*WORLDS, 6):
        model = Model([7, 2, 11, 3], world)
        for again in (0, 1):
            expect_buckets(train(lab, model, "cs", 40, again=again), model, 40)
        rank = lab.random.randrange(world)
        for poison in (math.nan, math.inf, -math.inf):
            seen = train(lab, model, "s", 40, check=False, poisoned_rank=rank, poison=poison)
            for other in range(world):
                at = -1
                for p, n in enumerate(model.sizes):
                    at += n
                    got = seen[f"grads.{other}"][at]
                    expect.that(got == poison or math.isnan(poison) and math.isnan(got), f"rank {rank} has {poison} at the end "
                                f"of layer{p}.weight's gradient; rank {other} must too, and has {got}", seen)


@lab_test
def bucket_sizes(lab):
    """Limits of 0, 1 and more than all bytes; a parameter larger than a bucket; lengths of 0, 1 and primes."""
    for sizes in ([1], [13, 1, 7], [2, 97, 2], [1, 0, 3], [5, 5, 5, 5, 5, 5, 5], [128, 1, 1, 129]):
        for limit in (0, 1, 20, 1 << 40):
            world = lab.random.choice((2, 4))
            model = Model(sizes, world)
            expect_buckets(train(lab, model, "cszss", limit), model, limit, 3)  # the last step adds to an average


@lab_test
def hook_orders(lab):
    """Gradients arrive in a different order on every rank, and in every step."""
    for world in (2, 3, 4, 8):
        for sizes in ([4] * 6, [3, 1, 4, 1, 5, 9]):
            orders = [lab.random.sample(range(6), 6) for _ in range(world)]
            model = Model(sizes, world, orders=orders)
            model.others = {(rank, 1): lab.random.sample(range(6), 6) for rank in range(world)}
            limit = lab.random.choice((4, 16, 32))
            expect_buckets(train(lab, model, "cszs", limit), model, limit, 2)


@lab_test
def unused(lab):
    """A parameter that some ranks, or all, do not use: no rank waits for it, and no old gradients
    are averaged."""
    sizes, all_of = [4, 3, 2, 5], [3, 2, 1, 0]
    for limit in (1, 20, 1 << 20):
        for missing in ((1,), (0,), (3,), (0, 1, 2, 3)):
            world = lab.random.choice((2, 4))
            some = [[p for p in all_of if p not in missing] if rank else all_of for rank in range(world)]
            none = [[p for p in all_of if p not in missing]] * world
            for orders in (some, none):
                model = Model(sizes, world)  # step 0: all; step 1: some are missing; step 2: all again
                model.others = {(rank, 1): orders[rank] for rank in range(world)}
                script = "cszs" if limit == 20 else "cszszs"
                expect_buckets(train(lab, model, script, limit), model, limit, script.count("s"))
    for missing in range(4):  # no rank has it, in two consecutive steps
        model = Model(sizes, 2)
        model.others = {(rank, step): [p for p in all_of if p != missing] for rank in range(2) for step in (1, 2)}
        expect_buckets(train(lab, model, "cszszs", 20), model, 20, 3)
    for world in (2, 4):  # only one rank has it, or lacks it, from the first step on
        for holders in ({0}, {world - 1}, set(range(world)) - {0}, set(range(world)) - {lab.random.randrange(world)}):
            model, missing = Model(sizes, world), lab.random.randrange(4)
            model.others = {(rank, step): [p for p in all_of if p != missing]
                            for rank in range(world) if rank not in holders for step in (0, 2)}
            expect_buckets(train(lab, model, "cszszs", 20), model, 20, 3)
    # A parameter is used in the pass under no_sync, but not in the synchronising one. Its
    # accumulated gradient still counts.
    model = Model(sizes, 2)
    model.others = {(0, 1): [3, 2], (1, 1): [3, 2, 1]}
    train(lab, model, "zns", 8)
    # Two gradients, 6 and -6, have the average 0. That is an average, too: no rank keeps its own
    # gradient.
    train(lab, Model([1, 3], 2), "s", 8, base=26)


@lab_test
def no_sync(lab):
    """Nothing is sent under no_sync, nested or not; afterwards, also if the body threw, the
    state is as before."""
    sizes, limit = [4, 3, 2], 12
    for world in (1, 2, 3, 4):
        model = Model(sizes, world)
        seen = train(lab, model, "cnnm", limit)
        expect.equal("the number of collectives under no_sync", len(seen["kinds"]), 0, seen)
        expect_buckets(train(lab, model, "cnns", limit), model, limit)
        expect_buckets(train(lab, model, "cmszns", limit), model, limit, 2)
        expect_buckets(train(lab, model, "ctszs", limit), model, limit, 2)
        expect_buckets(train(lab, model, "cszts", limit), model, limit, 2)
        expect_buckets(train(lab, model, "cus", limit), model, limit)
        expect_buckets(train(lab, model, "ciszs", limit), model, limit, 2)  # the body throws an int
        expect_buckets(train(lab, model, "cszis", limit), model, limit, 2)


def ready_times(model, limit, seconds):
    """Returns the time at which each bucket is complete if gradients arrive from the last parameter to the first."""
    ready, now, members = [], 0.0, iter(reversed(range(len(model.sizes))))
    for length in model.buckets(limit):
        while length > 0:
            p = next(members)
            now += seconds[p]
            length -= model.sizes[p]
        ready.append(now)
    return ready


@lab_test
def overlap(lab):
    """A slow link: communication overlaps with backward wherever possible. A serialised run scores
    0."""
    world, count, sizes = 4, 8, [100] * 8
    for label, alpha, beta, limit in (("a bucket takes half as long as its gradients", 0.0, 0.5 / 600, 800),
                                      ("as long", 0.02, 0.94 / 600, 400),
                                      ("three times as long", 0.0, 3.0 / 600, 400)):
        model, seconds = Model(sizes, world), [1.0] * count
        serial = lab.run("serial", world=world, seconds=seconds, sizes=model.buckets(limit), alpha=alpha, beta=beta)
        if abs(meter.hidden(serial)) > 1e-12:
            raise AuthorError(f"the overlap meter says {meter.hidden(serial)} of a serialised run")
        seen = train(lab, model, "cs", limit, alpha=alpha, beta=beta, seconds=seconds)
        expect_buckets(seen, model, limit)
        expect.equal("seconds of computation", seen["computed"][0], float(count), seen)
        buckets = model.buckets(limit)
        flags = 2 * (world - 1) * (alpha + beta * 4 * count / world)  # the all-reduce of the flags
        end = meter.best(world, alpha, beta, ready_times(model, limit, seconds), buckets)
        sending = meter.communication(serial)
        possible = 1 - (end - count) / sending
        got = meter.hidden(seen)
        if not got >= 1 - (end - count + flags) / sending - 1e-9:
            raise Wrong(f"{max(0.0, 100 * got):.0f} % of the communication is hidden behind computation, {100 * possible:.0f} % can be "
                        f"(of a bucket and its gradients, the all-reduce takes {label}){expect.where(seen)}")
    # One rank computes at half the speed: the others wait for it, and for nothing else.
    model = Model(sizes, world)
    seen = train(lab, model, "cs", 800, beta=0.5 / 600, seconds=[1.0] * count, speed=[1.0, 2.0, 1.0, 1.0])
    end = meter.best(world, 0.0, 0.5 / 600, [2 * t for t in ready_times(model, 800, [1.0] * count)], model.buckets(800))
    expect.at_most("with one slow rank the step takes", max(seen["finish"]), end + 0.2, "virtual seconds", seen)
    # The first bucket's gradient arrives after three others, so four buckets may start together.
    model = Model(sizes, world, orders=[[6, 5, 4, 7, 3, 2, 1, 0]] * world)
    seen = train(lab, model, "cs", 400, beta=0.5 / 600, seconds=[1.0] * count)
    end = meter.best(world, 0.0, 0.5 / 600, [4.0] * 4 + [5.0, 6.0, 7.0, 8.0], model.buckets(400))
    expect.at_most("with the first gradient as the fourth the step takes", max(seen["finish"]), end + 0.2,
                   "virtual seconds", seen)
