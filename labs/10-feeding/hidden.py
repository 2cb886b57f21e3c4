"""Hidden tests of lab 10: PyTorch's sampler index by index, edge cases, resume, the loader's
guarantees."""
import json
import random

from labs.course.lab import ROOT, load_sibling
from labs.course.testing import WORLDS, expect, lab_test
from labs.course.verdicts import AuthorError

HIDDEN_SEED = 31907254
distinct = load_sibling(__file__, "public").distinct


def pytorch_randperm(n, seed):
    """Returns the result of torch.randperm. Python's generator is MT19937, too; only its seeding differs."""
    words = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + i) & 0xFFFFFFFF)
    engine = random.Random()
    engine.setstate((3, (*words, 624), None))
    order = list(range(n))
    for i in range(n - 1):
        j = i + engine.getrandbits(32) % (n - i)
        order[i], order[j] = order[j], order[i]
    return order


def pytorch_share(samples, world, rank, shuffle, seed, epoch, drop_last, used=0):
    """Returns the result of torch.utils.data.DistributedSampler, or the rest of its order if `used`
    places are done."""
    order = pytorch_randperm(samples, seed + epoch) if shuffle else range(samples)
    left = max(samples - used, 0)
    size = left // world if drop_last else -(-left // world)
    return [order[(used + rank + i * world) % samples] for i in range(size)]


def vectors_of_pytorch():
    """Returns samplers' indices that PyTorch computed (tests/reference). Raises AuthorError if the two
    functions above compute others."""
    folder = ROOT / "tests" / "reference" / "data"
    if not (folder / "sampler.json").exists():
        return []
    rows = json.loads((folder / "sampler.json").read_text())
    for row in json.loads((folder / "randperm.json").read_text()):
        if "perm" in row and row["perm"] != pytorch_randperm(row["n"], row["seed"]):
            raise AuthorError(f"the judge's randperm({row['n']}) of seed {row['seed']} is not PyTorch's")
    for row in rows:
        mine = [pytorch_share(row["n"], row["replicas"], rank, row["shuffle"], row["seed"], row["epoch"],
                              row["drop_last"])
                for rank in range(row["replicas"])]
        if mine != row["indices"]:
            raise AuthorError(f"the judge's sampler is not PyTorch's: {row}")
    return rows


def compare(lab, samples, world, shuffle, seed, drop_last, epochs, used=None, ranks=None):
    used, ranks = used or [0] * len(epochs), ranks or list(range(world))
    seen = lab.run("shares", samples=samples, world=world, shuffle=shuffle, sampler_seed=seed, drop_last=drop_last,
                   epochs=epochs, used=used, ranks=ranks)
    for i, (epoch, done) in enumerate(zip(epochs, used)):
        for rank in ranks:
            want = pytorch_share(samples, world, rank, shuffle, seed, max(epoch, 0), drop_last, done)
            got, case = list(seen[f"share.{i}.{rank}"]), f"rank {rank}, epoch {epoch}, {done} used"
            expect.equal(f"the number of samples of {case}", len(got), len(want), seen)
            expect.equal(f"size() of {case}", seen[f"size.{rank}"][i], len(want), seen)
            wrong = next((p for p in range(len(want)) if got[p] != want[p]), None)
            expect.that(wrong is None, f"{case}: index {wrong} is sample {got[wrong] if wrong is not None else 0}, "
                                       f"PyTorch's is {want[wrong] if wrong is not None else 0}", seen)


@lab_test
def pytorch(lab):
    """Index by index PyTorch's: real vectors, and random arguments; seeds beyond 32 bits, and
    beyond a double's 53."""
    rows = vectors_of_pytorch()
    for row in lab.random.sample(rows, min(12, len(rows))):
        compare(lab, row["n"], row["replicas"], int(row["shuffle"]), row["seed"], int(row["drop_last"]), [row["epoch"]])
    for _ in range(12):
        compare(lab, lab.random.randrange(1, 400), lab.random.choice(WORLDS), 1, lab.random.randrange(1 << 40),
                lab.random.randrange(2),
                [-1, *lab.random.sample(range(1000), 2)])
    compare(lab, 50, 2, 1, (1 << 62) + 5, 0, [0, 1])


@lab_test
def padding(lab):
    """Remainders: padded from the order's beginning, or cut with drop_last; strided either way."""
    for world in WORLDS:
        for samples in (world, world + 1, 2 * world - 1, 5 * world + world // 2):
            for drop_last in (0, 1):
                compare(lab, samples, world, 0, 0, drop_last, [0])
        compare(lab, 3 * world + 1, world, 1, 11, 0, [0, 4])
    compare(lab, (1 << 24) + 1, 1 << 22, 0, 0, 0, [-1], ranks=[5])  # 2^24 + 1 is not exact in float


@lab_test
def small(lab):
    """Fewer samples than ranks, one sample, none: every rank still has the same number of
    samples."""
    for world in (2, 3, 5, 7, 8):
        for samples in sorted({0, 1, 2, 3, world - 1}):
            for drop_last in (0, 1):
                compare(lab, samples, world, 1, 7, drop_last, [0, 3])


@lab_test
def resume(lab):
    """A job that stops in mid-epoch and resumes, with the same world or another, uses the remaining
    places."""
    for before, after, samples, drop_last in [(2, 2, 20, 0), (4, 4, 30, 0), (3, 3, 11, 1), (4, 2, 40, 0),
                                              (2, 3, 31, 0), (8, 5, 100, 1),
                                             (4, 1, 9, 0), (1, 8, 30, 0), (2, 4, 10, 1)]:
        size = samples // before if drop_last else -(-samples // before)
        for steps in sorted({0, 1, size // 2, size}):
            compare(lab, samples, after, 1, 9, drop_last, [6, 6, 7], [0, steps * before, 0])
    compare(lab, 100_000, 8, 1, 9, 0, [40_000, 70_000], [66_000, 99_992])  # beyond 2^15, and 2^16


@lab_test
def ahead(lab):
    """The loader fetches ahead during the step, with all workers simultaneously, never further than
    allowed."""
    for workers, most, rest_after in [(1, 1, 0), (1, 4, 2), (2, 2, 3), (3, 5, 0), (4, 4, 1)]:
        ids = lab.random.sample(range(1000), 60)
        seen = lab.run("load", order=ids, batch=2, workers=workers, ahead=most, throws=[], together=workers,
                       rest_after=rest_after, rest=rest_after + most, slow_us=2000)
        expect.equal("the samples that next() gave", list(seen["ids"]), ids, seen)
        expect.equal(f"batches begun after {rest_after} were given, while the step runs", seen["begun_at_rest"],
                     rest_after + most, seen)
        expect.at_most("begun and not given", seen["most_ahead"], most, "batches", seen)
        expect.equal("fetches at the same time", seen["most_running"], workers, seen)
    for workers, most, awaited in [(2, 2, 0), (2, 3, 4), (3, 5, 0), (4, 4, 7)]:  # while next() waits, nothing is given yet
        ids = lab.random.sample(range(1000), 60)
        seen = lab.run("load", order=ids, batch=2, workers=workers, ahead=most, throws=[], awaited=awaited)
        expect.equal("the samples that next() gave", list(seen["ids"]), ids, seen)
        begun, name = seen["begun_while_awaited"], f"batches begun while next() waits for batch {awaited}"
        expect.at_most(name, begun, awaited + most, "batches", seen)
        if most <= workers:  # with more, each worker may have a queue, whose next batch waits for this one
            expect.equal(name, begun, awaited + most, seen)


@lab_test
def errors(lab):
    """An exception from fetch is thrown by the next() for its batch; the other batches are unaffected.
    No data race."""
    for workers, failing, plain in [(1, [0], 0), (2, [3, 8], 1), (3, [2, 3, 4, 9], 0), (2, [9], 0)]:
        ids = lab.random.sample(range(1000), 20)
        seen = lab.run("load", order=ids, batch=2, workers=workers, ahead=workers + 1, throws=failing,
                       throws_plain=plain, slow_us=500, rest_always=10)
        left = [s for b in range(10) if b not in failing for s in ids[2 * b:2 * b + 2]]
        want = "".join(f"{b}: sample {ids[2 * b]} cannot be read\n" for b in failing)
        expect.equal("the errors that next() threw", seen["errors"], want, seen)
        want = [min(b + workers + 1, 10) for b in range(10)]
        expect.equal("batches begun before each next(), while the step runs", list(seen["begun_at"]), want, seen)
        expect.equal("the samples that next() gave", list(seen["ids"]), left, seen)
    for workers, failing in [(2, [0, 1]), (3, [0, 1, 2, 4])]:  # afterwards there are as many workers as before
        seen = lab.run("load", order=lab.random.sample(range(1000), 20), batch=2, workers=workers, ahead=workers + 1,
                       throws=failing, meeting=6, guests=workers)
        expect.equal(f"fetches that ran simultaneously after {len(failing)} others had thrown", seen["met"], workers, seen)
    for workers, takes in [(1, 30), (3, 30), (3, 4)]:
        seen = lab.run("races", order=lab.random.sample(range(1000), 60), workers=workers, ahead=workers + 1, takes=takes)
        expect.equal("batches given, or thrown for", seen["given"], takes, seen)
        expect.that(not seen["race"], f"a data race, in the loader's memory: {seen['race']}, and nothing orders the accesses", seen)


@lab_test
def ends(lab):
    """drop_last; a loader destroyed in mid-epoch stops its workers and begins nothing more; four
    slow epochs."""
    for samples, batch in [(13, 4), (12, 4), (3, 4)]:
        ids = lab.random.sample(range(1000), samples)
        seen = lab.run("load", order=ids, batch=batch, workers=2, ahead=2, throws=[], drop_last=1)
        expect.equal("the samples that next() gave with drop_last", list(seen["ids"]), ids[:samples - samples % batch],
                     seen)
    for workers, takes in [(1, 0), (2, 3), (4, 5), (3, 20)]:
        ids = lab.random.sample(range(1000), 60)
        seen = lab.run("load", deadline=4, order=ids, batch=2, workers=workers, ahead=workers + 1, throws=[],
                       takes=takes, slow_us=5000,
                       linger_ms=20)
        expect.equal("the samples that next() gave", list(seen["ids"]), ids[:2 * takes], seen)
        expect.equal("fetches that run when the loader is gone", seen["still_running"], 0, seen)
        expect.equal("fetches that began when the loader was gone", seen["after_the_end"], 0, seen)
        expect.at_most("batches begun", seen["begun"], takes + workers + 1, "batches", seen)
    ids = lab.random.sample(range(1000), 40)  # destroyed while the first fetch takes about a tenth of a second
    seen = lab.run("load", deadline=4, order=ids, batch=2, workers=1, ahead=9, throws=[], takes=0, slow_us=200_000)
    expect.at_most("begun by a loader that is destroyed immediately and may begin 9", seen["begun"], 7, "batches", seen)
    for workers, takes in [(1, 0), (3, 2)]:  # all permitted batches are fetched, and the workers sleep
        ids = lab.random.sample(range(1000), 40)
        seen = lab.run("load", deadline=4, order=ids, batch=2, workers=workers, ahead=workers + 2, throws=[],
                       takes=takes, idle_at=takes + workers + 2)
        expect.equal("the batches begun", seen["begun"], takes + workers + 2, seen)
    ids = lab.random.sample(range(10_000), 3000)
    seen = lab.run("two_loaders", order=ids, batch=[3, 2])
    for name, batch in (("first", 3), ("second", 2)):
        want = [n for at in range(0, len(ids), batch) for n in (-batch, *ids[at:at + batch])]
        expect.that(list(seen[name]) == want, f"two loaders at a time: the {name} gives different batches than alone", seen)
    for _ in range(4):
        ids = lab.random.sample(range(1000), 50)
        seen = lab.run("load", order=ids, batch=lab.random.choice((1, 3, 7)), workers=4,
                       ahead=lab.random.choice((4, 9)), throws=[], slow_us=2000)
        expect.equal("the samples that next() gave", list(seen["ids"]), ids, seen)


@lab_test
def sample_seeds(lab):
    """Task 4: all seeds of three seeds, five epochs and 400 samples differ, also with large
    arguments; equal arguments give equal seeds. So do all of 300,000, which 32 bits would not ensure:
    among 300,000 random 32-bit numbers, about ten pairs are equal."""
    distinct(lab, [0, 1, lab.random.randrange(1 << 40)], epochs=list(range(5)), samples=list(range(400)))
    large = [0, 1, 1 << 16, 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 40]
    distinct(lab, [*large, -(1 << 63)], large, large)
    distinct(lab, [lab.random.randrange(1 << 40)], epochs=[0, 1, 2], samples=list(range(100_000)))
    # In a sum such as 1000003 epoch + sample, with any factor below 2^30, two of these meet; likewise with ^.
    steps = [*range(1 << 15), *range(1 << 15, 1 << 30, 1 << 15)]
    distinct(lab, [lab.random.randrange(1 << 40)], epochs=[0, 1], samples=steps)
    distinct(lab, [0, 1], epochs=[0], samples=steps)
    distinct(lab, [0, 1], epochs=steps, samples=[0])
