"""Public tests of lab 10, which a student runs at every save."""
from labs.course.testing import expect, lab_test

# torch.randperm(n), CPU, after torch.manual_seed(seed); PyTorch 1.13. (Later versions draw the same for fewer than
# 214 million samples.)
PYTORCH = {
    (10, 0): [4, 1, 7, 5, 3, 9, 0, 8, 6, 2],
    (10, 1): [5, 6, 1, 2, 0, 8, 9, 3, 7, 4],
    (10, 42): [2, 6, 1, 8, 4, 5, 0, 9, 3, 7],
}


@lab_test
def permutations(lab):
    """Task 1: randperm is PyTorch's, and returns a permutation for every length."""
    cases = sorted(PYTORCH) + [(n, lab.random.randrange(1 << 40)) for n in (0, 1, 2, 3, 100, 1009, 40_000)]
    seen = lab.run("permutations", n=[n for n, _ in cases], seeds=[seed for _, seed in cases])
    for i, (n, seed) in enumerate(cases):
        got = list(seen[f"order.{i}"])
        expect.equal(f"randperm({n}), sorted", sorted(got), list(range(n)), seen)
        if (n, seed) in PYTORCH:
            expect.equal(f"randperm({n}) of seed {seed}", got, PYTORCH[n, seed], seen)


@lab_test
def shares(lab):
    """Task 2: together the ranks get every sample exactly once, by sample id; those used as padding
    twice."""
    for samples, world, shuffle in [(9, 3, 0), (10, 3, 0), (10, 3, 1), (64, 4, 1), (65, 4, 1), (7, 1, 1), (101, 8, 1)]:
        seen = lab.run("shares", samples=samples, world=world, shuffle=shuffle, sampler_seed=5, drop_last=0,
                       epochs=[-1], used=[0])
        size = -(-samples // world)
        times = [0] * samples
        for rank in range(world):
            mine = seen[f"share.0.{rank}"]
            expect.equal(f"the number of rank {rank}'s samples", len(mine), size, seen)
            expect.equal(f"size() on rank {rank}", seen[f"size.{rank}"][0], size, seen)
            for sample in mine:
                expect.that(0 <= sample < samples, f"rank {rank} has sample {sample}; there are {samples}", seen)
                times[sample] += 1
        missing = [s for s, n in enumerate(times) if n == 0]
        expect.that(not missing, f"{len(missing)} samples are on no rank: {missing[:5]}", seen)
        expect.equal("the number of samples that occur twice, as padding", sum(n - 1 for n in times),
                     size * world - samples, seen)


@lab_test
def epochs(lab):
    """Task 3: set_epoch changes the order in the same way on all ranks; the same epoch has the same
    order again."""
    seen = lab.run("shares", samples=40, world=4, shuffle=1, sampler_seed=3, drop_last=0, epochs=[-1, 0, 1, 2, 1],
                   used=[0] * 5)

    def order(i):
        return [seen[f"share.{i}.{place % 4}"][place // 4] for place in range(40)]
    for i in range(5):
        for rank in range(4):
            expect.equal(f"the number of rank {rank}'s samples at call {i}", len(seen[f"share.{i}.{rank}"]), 10, seen)
        expect.equal(f"the samples of all ranks at call {i}, sorted", sorted(order(i)), list(range(40)), seen)
    expect.equal("the order before any set_epoch", order(0), order(1), seen)
    expect.that(order(1) != order(2), "set_epoch(1) leaves the order of epoch 0 as it is", seen)
    expect.that(order(2) != order(3), "set_epoch(2) leaves the order of epoch 1 as it is", seen)
    expect.equal("the order of epoch 1, the second time", order(4), order(2), seen)


@lab_test
def order(lab):
    """Task 5: batches are returned in the sampler's order, although the first is ready last."""
    for workers, ahead, samples, batch in [(1, 2, 12, 3), (2, 2, 13, 3), (3, 6, 31, 4), (2, 4, 2, 5), (2, 3, 0, 4),
                                           (1, 1, 3, 2 ** 40 + 2)]:
        ids = lab.random.sample(range(1000), samples)
        seen = lab.run("load", order=ids, batch=batch, workers=workers, ahead=ahead, throws=[], late=0,
                       late_for=min(workers, -(-samples // batch)) - 1)
        want = [min(batch, samples - at) for at in range(0, samples, batch)]
        expect.equal("the samples that next() gave", list(seen["ids"]), ids, seen)
        expect.equal("the lengths of the batches", list(seen["lengths"]), want, seen)
        expect.equal("next() after the end returns a batch", seen["again"], 0, seen)


def distinct(lab, seeds, epochs, samples):
    """Checks that no two of (seed, epoch, sample) share a seed, and that repeated calls return the same seed."""
    seen = lab.run("seeds", seeds=seeds + seeds, epochs=epochs, samples=samples)
    found = list(seen["seeds"])
    half = len(found) // 2
    expect.that(found[:half] == found[half:], "the same seed, epoch and sample have a different seed the second time", seen)
    first = {}
    for at, value in enumerate(found[:half]):
        if value in first:
            a, b = ((seeds[i // (len(epochs) * len(samples))], epochs[i // len(samples) % len(epochs)],
                     samples[i % len(samples)]) for i in (first[value], at))
            expect.that(False, f"(seed, epoch, sample) {a} and {b} have the same seed", seen)
        first[value] = at


@lab_test
def seeds_first(lab):
    """Task 4: two seeds, two epochs, ten samples give 40 seeds; equal arguments give equal
    seeds."""
    distinct(lab, [0, 1], epochs=[0, 1], samples=list(range(10)))


@lab_test
def stops(lab):
    """Task 6: a loader destroyed in mid-epoch stops its workers, and begins nothing more."""
    for takes in (0, 3):
        ids = lab.random.sample(range(1000), 24)
        seen = lab.run("load", deadline=4, order=ids, batch=2, workers=2, ahead=3, throws=[], takes=takes, slow_us=5000,
                       linger_ms=20)
        expect.equal("the samples that next() gave", list(seen["ids"]), ids[:2 * takes], seen)
        expect.equal("fetches that run when the loader is gone", seen["still_running"], 0, seen)
        expect.equal("fetches that began when the loader was gone", seen["after_the_end"], 0, seen)
