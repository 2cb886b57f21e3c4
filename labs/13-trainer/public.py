"""Public tests of lab 13, which a student runs after every save. hidden.py uses most of it too."""
import array
import functools
import math
import random

from labs.course.lab import LABS, load_module
from labs.course.testing import Wrong, expect, floats, lab_test

# Lab 04's judge: naive layers, loss and optimizers in double precision.
lab04 = load_module(LABS / "04-modules" / "public.py")
shaped, flat, close = lab04.shaped, lab04.flat, lab04.close


def bits_of(values):
    return array.array("I", values.tobytes())


# ---- the order of an epoch: torch.randperm(n) after manual_seed(seed), as in lab 10 ----
@functools.cache
def order_of(samples, seed):
    state = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    engine = random.Random()
    engine.setstate((3, (*state, 624), None))
    order = list(range(samples))
    for i in range(samples - 1):
        j = i + engine.getrandbits(32) % (samples - i)
        order[i], order[j] = order[j], order[i]
    return order


class Job:
    """A training run: the request to the driver, and the expected result, computed in one process on whole batches."""

    def __init__(self, rng, widths=(4, 6, 3), samples=30, batch=6, steps=12, kind="sgd", options=None, frozen=()):
        self.widths, self.samples, self.batch, self.steps, self.kind = list(widths), samples, batch, steps, kind
        self.options = options or {"sgd": {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.01},
                                   "adamw": {"lr": 0.05, "eps": 0.01, "weight_decay": 0.1}}[kind]
        self.frozen, self.seed = list(frozen), rng.randrange(1 << 33)
        closest = 0.0
        while closest < 2e-5:  # otherwise rounding decides the side of a relu, and results cannot be compared
            self.values = lab04.some(rng, lab04.Network.count(self.widths), 0.5)
            self.targets = [rng.randrange(widths[-1]) for _ in range(samples)]
            self.x = [list(floats(rng.gauss(j == t, 0.6) for j in range(widths[0]))) for t in self.targets]
            self.losses, self.end, closest = self._alone()

    def batches(self):
        """Yields the samples of each step, epoch after epoch; an incomplete last batch is dropped."""
        in_epoch = self.samples // self.batch
        for step in range(self.steps):
            order = order_of(self.samples, self.seed + step // in_epoch)
            yield order[step % in_epoch * self.batch:][:self.batch]

    def _alone(self):
        lengths = [n for a, b in zip(self.widths, self.widths[1:]) for n in (a * b, b)]
        held = [sum(lengths[:p]) + i for p in self.frozen for i in range(lengths[p])]
        optimizer, now, losses, closest = lab04.REFERENCES[self.kind](**self.options), list(self.values), [], math.inf
        for samples in self.batches():
            network = lab04.Network(self.widths, now)
            loss, grad = lab04.softmax_loss(network.forward([self.x[s] for s in samples]),
                                            [self.targets[s] for s in samples])
            losses.append(loss)
            closest = min(closest, network.closest)
            now = optimizer.step(now, network.backward(grad), self.options["lr"])
            for i in held:
                now[i] = self.values[i]
        return losses, now, closest

    def request(self, world, **more):
        return {"world": world, "widths": self.widths, "values": floats(self.values), "x": floats(flat(self.x)),
                "targets": self.targets, "batch": self.batch, "steps": self.steps, "sampler_seed": self.seed,
                "bucket_bytes": 64, "optimizer": self.kind, "frozen": self.frozen,
                **{k: float(v) for k, v in self.options.items()}, **more}


def check_replicas(seen, job, world, first):
    """Checks that each rank had its part of each batch and logged each step once, and that all
    parameters are the same."""
    for rank in range(world):
        expect.equal(f"the number of samples that rank {rank} learned from in steps {first} to {job.steps - 1}",
                     seen[f"samples.{rank}"], (job.steps - first) * job.batch // world, seen)
        expect.equal(f"the steps reported to rank {rank}'s log", list(seen[f"steps.{rank}"]),
                     list(range(first, job.steps)), seen)
        expect.that(not seen[f"hashes.{rank}"] or seen[f"hashes.{rank}"][-1] == seen[f"end_hash.{rank}"],
                    f"rank {rank}'s log gets the last step before this step has changed the parameters", seen)
        for step, (mine, others) in enumerate(zip(seen["hashes.0"], seen[f"hashes.{rank}"]), first):
            expect.that(mine == others, f"after step {step} the parameters of rank {rank} are not those of rank 0: "
                        "the replicas drift", seen)
        expect.same_bits(f"rank {rank}'s losses compared with rank 0's", seen[f"losses.{rank}"], seen["losses.0"], seen)


def train(lab, job, world, **how):
    """Runs a whole training and compares it with the single process."""
    seen = lab.run("train", **job.request(world, **how))
    check_replicas(seen, job, world, 0)
    for step, loss in enumerate(job.losses):
        close(f"the loss of step {step} on {world} rank{'s' * (world > 1)}", [seen["losses.0"][step]], [loss], seen, 1e-4)
    close("the parameters at the end", seen["values.0"], job.end, seen, 3e-4)
    return seen


def resumed(lab, job, world, whole, **how):
    """Resumes training from a vault. From there on it must be bitwise equal to `whole`,
    which was never interrupted."""
    seen = lab.run("train", **job.request(world, **how))
    first = seen["saves"] * how["save_every"]
    check_replicas(seen, job, world, first)
    for step in range(first, job.steps):
        got, want = seen["losses.0"][step - first], whole["losses.0"][step]
        expect.that(got == want, f"resumed at step {first}: the loss of step {step} is {got!r}; without the "
                    f"interruption it is {want!r}", seen)
        expect.that(seen["hashes.0"][step - first] == whole["hashes.0"][step],
                    f"resumed at step {first}: after step {step} the parameters differ from those of a run without "
                    "the interruption", seen)
    expect.same_bits("the parameters at the end", seen["values.0"], whole["values.0"], seen)
    return seen


@lab_test
def products(lab):
    """Task 1: matrix products of any views, exactly."""
    ways = (0, 1, 2, 3, 4, 8, 7, 15)
    for rows, inner, cols, hows in ((1, 1, 1, ways), (2, 3, 4, ways), (3, 1, 2, ways), (4, 5, 1, ways), (0, 2, 3, ways),
                                    (2, 0, 3, ways), (7, 5, 6, ways), (1, 33_000, 1, [15]), (33_000, 1, 1, [0])):
        for how in hows:
            a = [float(lab.random.randrange(-9, 10)) for _ in range(rows * inner)]
            b = [float(lab.random.choice((lab.random.randrange(-9, 10), 2 ** 35))) for _ in range(inner * cols)]
            seen = lab.run("product", rows=rows, inner=inner, cols=cols, how=how, a=a or [0.0], b=b or [0.0])
            expect.equal("the sizes of the product", list(seen["sizes"]), [rows, cols], seen)
            want = [sum(a[i * inner + k] * b[k * cols + j] for k in range(inner))
                    for i in range(rows) for j in range(cols)]
            expect.equal("the product, row by row", list(seen["c"]), want, seen)
            expect.that(seen["refused"], "inner sizes that differ must be refused, and were accepted", seen)


@lab_test
def operations(lab):
    """Task 2: linear, exactly, and log_softmax: values, and the gradients of all inputs."""
    for rows, ins, outs in ((1, 1, 1), (1, 3, 2), (4, 2, 3), (5, 7, 4), (3, 4, 1), (1, 1, 33_000)):
        x, weight, bias, dy = (lab04.integers(lab.random, n) for n in (rows * ins, ins * outs, outs, rows * outs))
        seen = lab.run("operation", rows=rows, x=x, weight=weight, bias=bias, dy=dy)
        network = lab04.Network([ins, outs], weight + bias)
        expect.equal("y", list(seen["y"]), flat(network.forward(shaped(x, rows, ins))), seen)
        grads = network.backward(shaped(dy, rows, outs))
        dx = [sum(dy[r * outs + o] * weight[o * ins + i] for o in range(outs)) for r in range(rows) for i in range(ins)]
        for i, (name, want) in enumerate((("x", dx), ("the weight", grads[:ins * outs]), ("the bias", grads[ins * outs:]))):
            expect.equal(f"the gradient of {name}", list(seen[f"grad.{i}"]), want, seen)
    for rows, classes, scale in ((1, 2, 1), (3, 4, 2), (2, 1, 1), (4, 5, 900)):
        z = [lab.random.gauss(0, scale) for _ in range(rows * classes)]
        if scale == 900:  # no row may use another row's maximum
            z = [v + (0, 3000, -3000, 0)[i // classes] for i, v in enumerate(z)]
        dy = [lab.random.gauss(0, 1) for _ in range(rows * classes)]
        seen = lab.run("operation", rows=rows, x=z, dy=dy)
        want, grad = [], []
        for row, d in zip(shaped(z, rows, classes), shaped(dy, rows, classes)):
            top = max(row)
            log_sum = top + math.log(math.fsum(math.exp(v - top) for v in row))
            want += [v - log_sum for v in row]
            grad += [g - math.exp(v - log_sum) * sum(d) for v, g in zip(row, d)]
        close("log_softmax", seen["y"], want, seen, 1e-9)
        close("the gradient of log_softmax", seen["grad.0"], grad, seen, 1e-9)
    seen = lab.run("operation", rows=2, x=[1e17, 1e17, -1e300, -1e300], dy=[1.0] * 4)  # 1e17 + log(2) rounds to 1e17
    close("log_softmax of two equal numbers", seen["y"], [-math.log(2)] * 4, seen, 1e-9)
    z = [lab.random.gauss(0, 2) for _ in range(12)]
    seen = lab.run("operation", rows=3, x=z, dy=z, then_rows=2)  # the second call has rows of a different length
    want = [v - math.log(math.fsum(map(math.exp, row))) for row in shaped(z, 2, 6) for v in row]
    close("log_softmax in two rows, after three", seen["then_y"], want, seen, 1e-9)


@lab_test
def gradients(lab):
    """Task 3: loss, gradients, and each hook runs as soon as its gradient is complete."""
    for frozen, repeats in (([], 2), ([0], 1), ([3], 1), ([0, 1, 4], 2)):
        widths, rows = [3, 4, 2, 3], 5
        closest = 0.0
        while closest < 2e-5:
            values = lab04.some(lab.random, lab04.Network.count(widths), 0.7)
            x = lab04.some(lab.random, rows * 3)
            network = lab04.Network(widths, values)
            logits = network.forward(shaped(x, rows, 3))
            closest = network.closest
        targets = [lab.random.randrange(3) for _ in range(rows)]
        loss, grad = lab04.softmax_loss(logits, targets)
        once = network.backward(grad)
        seen = lab.run("learn", widths=widths, values=floats(values), x=floats(x), targets=targets, frozen=frozen,
                       repeats=repeats, then_rows=2)
        close("the loss of each call", seen["losses"], [loss] * repeats, seen)
        lengths = [n for a, b in zip(widths, widths[1:]) for n in (a * b, b)]
        starts = [sum(lengths[:p]) for p in range(6)]
        places = [p for p in range(6) for _ in range(lengths[p])]
        close(f"all gradients after {repeats} calls, frozen parameters {frozen}", seen["grads"],
              [0.0 if places[i] in frozen else repeats * g for i, g in enumerate(once)], seen)
        expect.same_bits("the parameters", seen["values"], floats(values), seen)
        loss, grad = lab04.softmax_loss(network.forward(shaped(x[:6], 2, 3)), targets[:2])
        close("the loss of a smaller batch, after that", [seen["then_loss"]], [loss], seen)
        close("all gradients of a smaller batch, after that", seen["then_grads"],
              [0.0 if places[i] in frozen else g for i, g in enumerate(network.backward(grad))], seen)
        free, log = [p for p in range(6) if p not in frozen], list(seen["log"])
        expect.equal("how often hooks and callbacks of the end ran", sorted(log), sorted((free + [-1, -2]) * repeats), seen)
        for k in range(repeats):
            first = k * (len(free) + 2)
            part = log[first:first + len(free) + 2]
            expect.equal("what runs last in a call", sorted(part[-2:]), [-2, -1], seen)
            layers = [p // 2 for p in part[:-2]]
            expect.equal("the layers whose hooks ran, one after the other", layers, sorted(layers, reverse=True), seen)
            for n, p in enumerate(part[:-2]):
                then = seen[f"at.{first + n}"]
                own = range(starts[p], starts[p] + lengths[p])
                close(f"when the hook of parameter {p} ran, its gradient", [then[i] for i in own],
                      [(k + 1) * once[i] for i in own], seen)
                for q in (q for q in free if q // 2 < p // 2):
                    below = range(starts[q], starts[q] + lengths[q])
                    close(f"when the hook of parameter {p} ran, the gradient of {q}, a layer below,",
                          [then[i] for i in below], [k * once[i] for i in below], seen)


@lab_test
def schedule(lab):
    """Task 5: the schedules of your ring and of a ring in the opposite direction pass the checker."""
    for world in (1, 2, 3, 5, 8):
        seen = lab.run("schedule", world=world)
        for which, what in (("own", "your ring"), ("other", "a ring that turns to the left")):
            expect.equal(f"world, chunks and ranks of the schedule of {what}", list(seen[f"{which}_shape"]),
                         [world] * 3, seen)
            expect.equal(f"the checker's verdict on {what}", seen[f"{which}_fault"], "", seen)
            rows = [list(seen[which][i:i + 6]) for i in range(0, len(seen[which]), 6)]
            expect.equal(f"the number of steps of all ranks together, for {what}", len(rows),
                         2 * (world - 1) * world, seen)
            for rank in range(world):
                adds = [row[5] for row in rows if row[0] == rank]
                expect.equal(f"in which steps rank {rank} adds", adds, [1] * (world - 1) + [0] * (world - 1), seen)
        for at, (rank, to, out, source, into, _) in enumerate(rows):  # of the second ring, the judge's
            s = at % (2 * (world - 1))
            shift = 1 + s if s < world - 1 else s - (world - 1)
            want = [(rank - 1) % world, (rank + shift) % world, (rank + 1) % world, (rank + shift + 1) % world]
            expect.equal(f"to, chunk, from, chunk at step {s} of rank {rank} of a ring that turns to the left",
                         [to, out, source, into], want, seen)


@lab_test
def one_rank(lab):
    """Task 6, stages 1 and 2: one rank repeats lab 04's losses: bit for bit with its model, closely with yours."""
    job = Job(lab.random)
    order = [s for batch in job.batches() for s in batch]
    alone = lab.run("lab04_alone", order=order, **job.request(1))
    close("the losses of lab 04's train_step", alone["losses"], job.losses, alone, 1e-4)
    by_hand = train(lab, job, 1, model="lab 04's")
    expect.same_bits("the losses with lab 04's model", by_hand["losses.0"], alone["losses"], by_hand)
    expect.same_bits("the parameters at the end with lab 04's model", by_hand["values.0"], alone["values"], by_hand)
    own = train(lab, job, 1)
    close("the losses with your own model", own["losses.0"], alone["losses"], own, 2e-5)


def group(lab, world, count):
    """Task 4 alone: checks a sum over the ranks, and then broadcasts from each rank to all ranks, bit for bit."""
    special = [0x80000000, 0x00000001, 0x7FC00123, 0xFF800000, 0x3F800001]  # -0, the smallest float, NaN, -infinity
    data = [array.array("f", array.array("I", [bits ^ rank for bits in special]).tobytes()) for rank in range(world)]
    seen = lab.run("group", world=world, count=count, **{f"data.{rank}": one for rank, one in enumerate(data)})
    for rank in range(world):
        want = [float((i + 1) * world * (world + 1) // 2) for i in range(count)]
        expect.equal(f"the sums of two groups, in process {rank}", list(seen[f"sums.{rank}"]), 2 * want, seen)
        for at in range(2 * world):
            got = seen[f"copies.{rank}"][len(special) * at:][:len(special)]
            expect.equal(f"the bits in process {rank} of what rank {at % world} broadcasts in group {at // world}",
                         [hex(b) for b in bits_of(got)], [hex(b) for b in bits_of(data[at % world])], seen)


@lab_test
def three_ranks(lab):
    """Tasks 4 and 6, stage 3: one, two and three ranks: equal parameters, and the losses of a single process."""
    for world in (1, 2, 3):
        group(lab, world, 11)
    job = Job(lab.random, samples=25)
    one = train(lab, job, 1)
    for world in (2, 3):
        seen = train(lab, job, world)
        close(f"the losses on {world} ranks compared with those on one", seen["losses.0"], one["losses.0"], seen, 1e-5)


@lab_test
def refused(lab):
    """Tasks 5 and 6: a wrong ring, or a batch that cannot be shared, is refused before anything is sent."""
    job = Job(lab.random, steps=2)
    for ring, world, what in ((1, 3, "passes on its own chunk at every step"), (7, 3, "gathers what is not complete"),
                              (2, 3, "sends one chunk where another is expected"), (4, 3, "waits for the wrong side"),
                              (3, 3, "wraps with a bit mask"), (5, 2, "sends to a rank that does not exist"),
                              (8, 3, "gathers the same chunk again and again"), (0, 3, ""), (6, 3, ""), (3, 2, "")):
        seen = lab.run("refused", ring=ring, **job.request(world))
        for rank in range(world):
            if not what:
                expect.equal(f"a ring that is right, but not yours, on rank {rank}", seen[f"why.{rank}"], "", seen)
                expect.equal(f"the steps of rank {rank}", seen[f"trained.{rank}"], 2, seen)
                continue
            why = seen[f"why.{rank}"]
            expect.that(why.startswith("refused"), f"a ring that {what} must be refused with std::invalid_argument, "
                        f"and was accepted on rank {rank}", seen)
            expect.equal(f"messages that rank {rank} had sent when it refused a ring that {what}",
                         seen[f"messages.{rank}"], 0, seen)
            expect.that("rank" in why, f"the refusal of a ring that {what} does not have the checker's words: {why!r}", seen)
    good = job.batch
    for batch, world, what in ((7, 2, "7 samples for 2 ranks"), (0, 1, "no samples"), (60, 2, "60 of 30 samples"),
                               (-6, 2, "-6 samples")):
        job.batch = batch
        for before in ({}, {"before": 1, "batch_before": good}):  # 1: there is a checkpoint
            seen = lab.run("refused", ring=0, **before, **job.request(world, save_every=1))
            for rank in range(world):
                expect.that(seen[f"why.{rank}"].startswith("refused") and not seen[f"messages.{rank}"],
                            f"a batch of {what} must be refused before anything is sent, on rank {rank}", seen)
                expect.equal(f"whether rank {rank}, which refuses a batch of {what}, has changed parameters or the "
                             "optimizer's state", seen[f"changed.{rank}"], 0, seen)


@lab_test
def resume(lab):
    """Task 6, stage 5: a job resumed from a checkpoint, mid-epoch, is bitwise equal to an uninterrupted one."""
    for kind, world, frozen in (("sgd", 2, ()), ("sgd", 2, (0, 3)), ("adamw", 1, (1,))):
        job = Job(lab.random, kind=kind, samples=25, frozen=frozen)
        if 0 in frozen:
            job.values[0] = -0.0  # no step changes it
        whole = lab.run("train", **job.request(world))
        for before in (1, 4, 6, 12):  # the last one leaves nothing to do
            every = 3 if before > 1 else 1
            seen = resumed(lab, job, world, whole, save_every=every, before=before)
            expect.equal(f"the checkpoints of a job of {before} steps that saves every {every}", seen["saves"],
                         before // every, seen)
    resumed(lab, job, world, whole, save_every=3, before=6, then_save_every=0)  # resumes, and saves nothing


__all__ = ["Job", "train", "resumed", "check_replicas", "order_of", "Wrong"]


@lab_test
def network(lab):
    """Task 7: buckets of four floats, each 6 s on a ring of two ranks; one rank alone has nothing to wait for."""
    machine = {"alpha": 1.0, "beta": 0.125, "gamma": 0.25}  # two messages of 2 s, and 2 s to add
    for world, ready, end in ((2, [1.0], 7.0), (2, [1.0, 3.0], 13.0), (2, [1.0, 3.0, 20.0], 26.0), (1, [1.0, 3.0], 3.0)):
        seen = lab.run("prediction", world=world, ready=ready, elements=[4] * len(ready), **machine)
        for time in ("end", "again"):
            expect.equal(f"the end of buckets that are ready after {ready} s, on {world} rank{'s' * (world > 1)},",
                         seen[time], end, seen)
