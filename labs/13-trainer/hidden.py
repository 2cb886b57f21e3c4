"""Hidden tests of lab 13: worlds, epochs, the prediction and its measurement, kill -9 at any moment."""
from labs.course.lab import PATIENCE, load_sibling
from labs.course.testing import NotVerified, Wrong, expect, floats, lab_test

HIDDEN_SEED = 31820457
_public = load_sibling(__file__, "public")
Job, train, resumed, lab04 = _public.Job, _public.train, _public.resumed, _public.lab04


@lab_test
def worlds(lab):
    """One to five ranks, buckets of any size, one layer and four, frozen parameters, both optimizers."""
    for world, widths, bucket, frozen, kind in ((2, (3, 5, 4, 4, 2), 1, (), "adamw"), (3, (6, 2), 1 << 20, (), "sgd"),
                                                (4, (3, 7, 3), 40, (0, 3), "adamw"), (5, (2, 3, 3), 64, (1,), "sgd")):
        job = Job(lab.random, widths=widths, batch=2 * world, samples=7 * world + 1, steps=9, kind=kind, frozen=frozen)
        seen = train(lab, job, world, bucket_bytes=bucket)
        at = 0
        for p, length in enumerate(n for a, b in zip(widths, widths[1:]) for n in (a * b, b)):
            if p in frozen:
                expect.same_bits(f"frozen parameter {p} at the end", seen["values.0"][at:at + length],
                                 floats(job.values[at:at + length]), seen)
            at += length
    job = Job(lab.random, batch=4, steps=2)
    small, large = (train(lab, job, 2, bucket_bytes=limit)["messages.0"] for limit in (1, 1 << 20))
    expect.that(small > large, f"rank 0 sends {small} messages with buckets of 1 byte and {large} with one for all "
                "gradients: bucket_bytes must matter")


@lab_test
def epochs(lab):
    """Many epochs, each in its own order; batches of one sample per rank; a batch that is the whole data."""
    for world, samples, batch, steps in ((2, 5, 2, 11), (1, 4, 4, 5), (3, 3, 3, 4), (2, 9, 4, 10), (1, 3, 1, 4)):
        train(lab, Job(lab.random, samples=samples, batch=batch, steps=steps), world)
    train(lab, Job(lab.random, widths=(2, 3, 2), samples=40_000, batch=4, steps=2), 2)
    # The second training run in these processes, with settings different from the first.
    train(lab, Job(lab.random, samples=9, batch=4, steps=5), 2, first_batch=2)


@lab_test
def prediction(lab):
    """Task 7: the end of the last all-reduce, from your lab 05."""
    for world, ready, elements in ((1, [1.0, 2.0], [10, 20]), (3, [1.0, 2.0, 3.0], [10, 20, 7]), (2, [0.5], [0]),
                                   (4, [1.0, 1.0, 1.0], [1, 2, 3]), (5, [0.0, 9.0, 9.5], [100, 1, 1]),
                                   (3, [2.0, 3.0, 40.0], [1000, 10, 5]), (2, [2.0 ** 31, 2.0 ** 32], [1 << 24, 3]),
                                   (2, [1.0], [(1 << 33) + 2])):
        for free in (None, "alpha", "beta", "gamma"):  # what costs nothing
            machine = {name: lab.random.uniform(0.01, 0.2) for name in ("alpha", "beta", "gamma")}
            machine |= {free: 0.0} if free else {}
            seen = lab.run("prediction", world=world, ready=ready, elements=elements, **machine)
            end = 0.0
            for at, count in zip(ready, elements):
                size = 4 * -(-count // world)
                end = max(end, at) + (world - 1) * (2 * (machine["alpha"] + machine["beta"] * size) + machine["gamma"] * size)
            expect.that(abs(seen["end"] - end) <= 1e-9 * end, f"the predicted end is {seen['end']!r}, must be {end!r}", seen)


def waits(lab, job, world, seconds, alpha, beta, bucket_bytes):
    """Returns (fault or None, observation) of the wait after the last gradient, which load can only lengthen."""
    seen = lab.run("overlap", deadline=10 + 100 * seconds, **job.request(world, bucket_bytes=bucket_bytes), seconds=seconds,
                   alpha=alpha, beta=beta)
    nominal = 2 * seconds + 2 * (world - 1) * (alpha + beta * 4 * -(-8 // world))
    for rank in range(world):
        expect.same_bits(f"rank {rank}'s parameters at the end", seen[f"values.{rank}"], seen["values.0"], seen)
        predicted, exposed, (a, b) = seen[f"predicted.{rank}"], seen[f"exposed.{rank}"], seen[f"machine.{rank}"]
        if not 0.5 * nominal <= predicted <= 2 * nominal:
            return (f"rank {rank} predicts {predicted * 1e3:.1f} ms of waiting, with alpha {a:.2g} s and beta {b:.2g} s as "
                    f"it has measured them; the link's own are {alpha:.2g} and {beta:.2g}"), seen
        if not min(exposed) <= 2 * predicted:
            return (f"rank {rank} waits {min(exposed) * 1e3:.1f} ms after the last gradient in its best step; its own "
                    f"prediction is {predicted * 1e3:.1f} ms: the overlap is missing"), seen
        beside = min(seen[f"beside.{rank}"])
        if not beside <= 2 * predicted:
            return (f"rank {rank} needs {beside * 1e3:.1f} ms more than its gradients take in its best step; its own prediction "
                    f"of what is left after them is {predicted * 1e3:.1f} ms: the overlap is missing"), seen
        if not max(exposed) >= predicted / 2:
            return (f"rank {rank} never waits longer than {max(exposed) * 1e3:.1f} ms; its own prediction is "
                    f"{predicted * 1e3:.1f} ms: was everything sent?"), seen
    return None, seen


@lab_test
def overlap(lab):
    """Stage 4, a slow link: the wait after the last gradient is within a factor of 2 of your prediction."""
    widths, alpha = [12] * 5, 0.001
    for world in (2, 3):
        layer, seconds, tries = 12 * 12 + 12, 0.02 * PATIENCE, 0
        job = Job(lab.random, widths=widths, samples=30, batch=6, steps=3, kind="sgd")
        while True:
            beta = (2 * seconds / (2 * (world - 1)) - alpha) / (4 * -(-layer // world))  # all-reduce time = gradient time
            trouble, seen = waits(lab, job, world, seconds, alpha, beta, 4 * layer)
            if trouble is None:
                break
            # How late the machine woke the ranks shows whether it was busy; then the attempt does not count. All times
            # grow for the next attempt: a missing overlap grows with them, and a delay in the link, which nothing
            # measures, does not.
            late = max(seen[f"late.{rank}"] for rank in range(world))
            tries += late < seconds / 4
            if tries == 3:
                raise Wrong(f"{trouble}{expect.where(seen)}")
            if late >= seconds / 4 and seconds > 1:
                raise NotVerified(f"this machine wakes a process up to {late:.1f} s late: too busy to measure an overlap")
            seconds *= 2


@lab_test
def killed(lab):
    """Stage 5: kill -9 of one rank at any moment, then the same command again: bitwise equal to an undisturbed run."""
    kills = 0
    for kind, world in (("adamw", 2), ("sgd", 3)):
        job = Job(lab.random, kind=kind, samples=31, batch=6, steps=40)
        whole = train(lab, job, world)
        for _ in range(4):
            seen = resumed(lab, job, world, whole, save_every=lab.random.choice((1, 2, 4)),
                           kill_rank=lab.random.randrange(world), kill_after=lab.random.randrange(50, 2500))
            kills += seen["killed"]
        # A different number of ranks may resume: the batches are the same, but the sums have a different order.
        other = 3 if world == 2 else 2
        seen = lab.run("train", **job.request(world, save_every=4, before=6, world_before=other))
        _public.check_replicas(seen, job, world, 4)
        lab04.close("the parameters after continuing with other ranks", seen["values.0"], whole["values.0"], seen, 3e-4)
    expect.that(kills > 0, "no rank was killed while it trained")
