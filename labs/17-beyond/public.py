"""Public tests of lab 17, which a student runs after every save. hidden.py uses the oracles too.

The oracles compute with Python's numbers, rounded to float after every operation.
"""
import array
import functools
import math
import struct

from labs.course.testing import expect, floats, lab_test


def f32(x):
    return floats([x])[0]


def total(row):
    """Returns the float sum in rank order."""
    return functools.reduce(lambda a, b: f32(a + b), row)


def same(name, got, want, seen):
    """Compares bit for bit, except for the sign of a zero."""
    expect.same_bits(name, array.array(got.typecode, [x + 0.0 for x in got]),
                     array.array(got.typecode, [x + 0.0 for x in want]), seen)


def collectives(seen):
    return seen["calls"].splitlines()


def expect_collectives(seen, most, what):
    calls = collectives(seen)
    expect.that(len(calls) <= most, f"{what}: {len(calls)} collectives, at most {most} allowed: {'; '.join(calls[:8])}", seen)


# --- hooks ---------------------------------------------------------------------------------------

def average(columns):
    """Returns the average of one element, given each rank's gradient of it."""
    return total([f32(g / len(columns)) for g in columns])


def to_bf16(x):
    """Returns the nearest bf16, ties to even, as a float, by exact arithmetic without bit operations."""
    if not math.isfinite(x) or x == 0:
        return x
    quantum = math.ldexp(1, max(math.frexp(x)[1] - 8, -133))
    nearest = round(x / quantum) * quantum
    return nearest if abs(nearest) < 2.0 ** 128 else math.copysign(math.inf, x)


def bf16_average(columns):
    return to_bf16(average([to_bf16(g) for g in columns]))


def chosen(values, k):
    """Returns the places that task 3 must return, by sorting."""
    order = sorted(range(len(values)), key=lambda i: (not math.isnan(values[i]), 0 if math.isnan(values[i]) else -abs(values[i]), i))
    return sorted(order[:k])


class Feedback:
    """Reference for lab17::TopK."""

    def __init__(self, k):
        self.k, self.residuals = k, {}

    def compress(self, index, gradient):
        """Returns {place: value} to send."""
        before = self.residuals.get(index, [])
        if len(before) != len(gradient):
            before = [0.0] * len(gradient)
        whole = [f32(r + g) for r, g in zip(before, gradient)]
        sent = {i: whole[i] for i in chosen(whole, self.k)}
        self.residuals[index] = [0.0 if i in sent else x for i, x in enumerate(whole)]
        return sent


class Buckets:
    """Calls of a hook on all ranks: (object, index, the gradients of each rank), and the expected results."""

    def __init__(self, hook, calls, k=None):
        self.hook, self.calls = hook, [(which, index, [[f32(g) for g in row] for row in rows]) for which, index, rows in calls]
        self.world = len(calls[0][2])
        self.k = k or [[0, 0]] * self.world

    def expected(self):
        """Returns one list of numbers per call; sets self.sent to the total number of values that each rank sends."""
        objects = [[Feedback(k) for k in row] for row in self.k]
        outcomes, self.sent = [], [0] * self.world
        for which, index, rows in self.calls:
            if self.hook != "top_k":
                one = average if self.hook == "average" else bf16_average
                outcomes.append([one(columns) for columns in zip(*rows)])
                continue
            sums = [0.0] * len(rows[0])
            for rank, row in enumerate(rows):
                sent = objects[rank][which].compress(index, row)
                self.sent[rank] += len(sent)
                for place, value in sent.items():
                    sums[place] = f32(sums[place] + f32(value / self.world))
            outcomes.append(sums)
        return outcomes

    def check(self, lab, **how):
        request = {"gradients.%d" % r: floats(g for _, _, rows in self.calls for g in rows[r]) for r in range(self.world)}
        request |= {"k.%d" % r: list(self.k[r]) for r in range(self.world)}
        seen = lab.run("hooks", hook=self.hook, world=self.world, objects=[c[0] for c in self.calls],
                       indices=[c[1] for c in self.calls], sizes=[len(c[2][0]) for c in self.calls], **request, **how)
        outcomes = self.expected()
        for rank in range(self.world):
            at = 0
            for number, want in enumerate(outcomes):
                got = seen[f"averages.{rank}"][at:at + len(want)]
                at += len(want)
                same(f"bucket {self.calls[number][1]} on rank {rank} after call {number}", got, floats(want), seen)
            expect.equal(f"floats next to its buckets that rank {rank} has changed", seen[f"outside.{rank}"], 0, seen)
        per_call = {"average": 1, "bf16": 2, "top_k": 3}[self.hook]
        expect_collectives(seen, per_call * len(self.calls), f"{len(self.calls)} buckets")
        for rank in range(self.world):
            expect.at_most(f"rank {rank} sends", seen["sent_bytes"][rank], self.budget(rank), "bytes", seen)
        return seen

    def budget(self, rank):
        others = self.world - 1
        if self.hook == "top_k":
            return others * 8 * (len(self.calls) + self.sent[rank])
        size = 4 if self.hook == "average" else 2
        return sum(2 * others * -(-len(rows[0]) // self.world) * size for _, _, rows in self.calls)


@lab_test
def average_hook(lab):
    """Task 1: the average of three ranks, and of five; several buckets, one of them empty."""
    Buckets("average", [(0, 0, [[3, 6, -9, 0.75], [6, 0, 3, 1.5], [0, 3, 12, 3]])]).check(lab)
    rows = [[[100.0 * r + i, 1.0, 0.1][:size] for r in range(5)] for i, size in enumerate((3, 1, 0, 2))]
    Buckets("average", [(0, i, row) for i, row in enumerate(rows)]).check(lab)
    Buckets("average", [(0, 0, [[3e38, 1e8, 1.0], [3e38, 1.0, 3.0], [3e38, -1e8, 5.0]])]).check(lab)
    Buckets("average", [(0, 0, [[1.0, 2.0]])]).check(lab)


@lab_test
def bf16_hook(lab):
    """Task 2: bf16 on the wire: rounded, divided, summed in float, and rounded again."""
    Buckets("bf16", [(0, 0, [[1, 2, -3, 256], [3, 2, 5, 512]])]).check(lab)
    Buckets("bf16", [(0, 0, [[257, 0.1, -259, 1e-3, 7], [258, 0.2, 1, 1e3, 7], [1, 0.3, 3, -1e3, 7]])]).check(lab)
    Buckets("bf16", [(0, 1, [[256.0, 1.0], [1.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), (0, 2, [[], [], [], []]),
                     (0, 1, [[5.0], [6.0], [7.0], [9.0]])]).check(lab)


def selects(lab, values, ks):
    values = floats(values)
    seen = lab.run("top_k", values=values, k=ks)
    at = 0
    for k, length in zip(ks, seen["lengths"]):
        got, want = list(seen["places"][at:at + length]), chosen(values, k)
        at += length
        shown = f"top_k of {list(values[:9])}{'...' if len(values) > 9 else ''}, k = {k}"
        expect.that(got == want, f"{shown} is {got[:12]}, must be {want[:12]}", seen)


@lab_test
def top_k(lab):
    """Task 3: the largest magnitudes; ties go to the lower place, NaN before infinity."""
    selects(lab, [1, -5, 3, 0, 4], [0, 1, 2, 3, 5, 9])
    selects(lab, [2, -2, 2, 1, -2, 2], [1, 2, 3, 4, 6])
    selects(lab, [1, math.inf, math.nan, -math.inf, 1e38, math.nan], [1, 2, 3, 4, 5])
    selects(lab, [], [0, 3])


def compresses(lab, k, calls):
    """calls: (object, index, gradient). Checks sent values, residual, and that together they are the gradient."""
    calls = [(which, index, [f32(g) for g in gradient]) for which, index, gradient in calls]
    seen = lab.run("compress", k=list(k), objects=[c[0] for c in calls], indices=[c[1] for c in calls],
                   sizes=[len(c[2]) for c in calls], gradients=floats(g for c in calls for g in c[2]))
    objects, at, left = [Feedback(k[0]), Feedback(k[1])], 0, 0
    for number, (which, index, gradient) in enumerate(calls):
        sent = objects[which].compress(index, gradient)
        call = f"call {number} (bucket {index} of {len(gradient)} elements, k = {k[which]})"
        places, values = seen["lengths"][2 * number:2 * number + 2]
        expect.that(places == values, f"{call} sends {places} places and {values} values", seen)
        expect.equal(f"the places sent in {call}", list(seen["places"][at:at + places]), list(sent), seen)
        same(f"the values sent in {call}", seen["values"][at:at + places], floats(sent.values()), seen)
        at += places
        width = seen["widths"][number]
        same(f"the residual after {call}", seen["residuals"][left:left + width], floats(objects[which].residuals[index]), seen)
        left += width
        expect.equal("the residual of a bucket that never arrived: its size", seen["unknown"][number], 0, seen)


@lab_test
def feedback(lab):
    """Task 4: values not sent are added to the next gradient; sent + residual is exactly the sum."""
    compresses(lab, (1, 2), [(0, 0, [4, -3, 2]), (0, 0, [0, -1, 2]), (0, 0, [0, 0, 0]), (0, 0, [0, 0, 0])])
    # Two buckets, two hooks: four residuals.
    calls = [(which, index, [which + 1.0, -index - 3.0, 0.3, 0.7]) for _ in range(3) for which in (0, 1) for index in (0, 7)]
    compresses(lab, (1, 2), calls)
    # Rounding: 1e8 + 1 is 1e8 in float. Sent values and residual have the bits of the sum.
    compresses(lab, (1, 0), [(0, 0, [1.0, 3.0]), (0, 0, [1e8, 0.5]), (0, 0, [0.25, 1e-8])] * 2)
    # A new size restarts from zeros.
    compresses(lab, (1, 1), [(0, 3, [1, 2, 3]), (0, 3, [1, 2]), (0, 3, [1, 2]), (0, 3, [1, 2, 3, 4])])


@lab_test
def sparse(lab):
    """Task 5: the hook: three ranks that send one, two and no values; the residual arrives later."""
    grads = [[[4, -3, 2, 0], [1, 1, 5, -6], [9, 9, 9, 9]], [[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]],
             [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]]
    Buckets("top_k", [(0, 0, rows) for rows in grads], k=[[1, 0], [2, 0], [0, 0]]).check(lab)
    Buckets("top_k", [(0, 0, rows) for rows in grads], k=[[4, 0], [9, 0], [5, 0]]).check(lab)
    rows = [[1e8, 1.0], [1.0, 1e8], [-1e8, -1e8], [3.0, 3.0]]
    Buckets("top_k", [(0, 0, rows), (1, 0, rows), (0, 1, rows), (0, 0, rows)], k=[[2, 1]] * 4).check(lab)


# --- join ----------------------------------------------------------------------------------------

def exchanges(lab, have, by_world, strict=False):
    """Calls Join::next on all ranks and checks the results. have: a list of 1 and 0 for each rank."""
    world, rounds = len(have), list(zip(*have))
    seen = lab.run("exchange", world=world, by_world=int(by_world), strict=int(strict), **{f"have.{r}": list(h) for r, h in enumerate(have)})
    rows, thrown, step = [[-1, world, world - 1]], [], 0
    for now in rounds:
        if any(now) and not all(now) and strict:
            thrown.append(f"no batch for step {step} on ranks " + " ".join(str(r) for r, h in enumerate(now) if not h))
            rows.append([-1, *rows[-1][1:]])
        elif any(now):
            rows.append([1, world if by_world else sum(now), max(r for r, h in enumerate(now) if h)])
            step += 1
        else:
            rows.append([0, *rows[-1][1:]])
    for rank in range(world):
        expect.equal(f"what rank {rank} throws", seen[f"thrown.{rank}"], "; ".join(thrown), seen)
        for call, want in enumerate(rows):
            got = list(seen[f"rows.{rank}"][3 * call:3 * call + 3])
            when = f"after {call} calls of next()" if call else "before any next()"
            expect.that(got == want, f"{when} on rank {rank}: next() returned, divisor, authority (-1: threw, or no call) are "
                        f"{got}, must be {want}", seen)
    expect_collectives(seen, len(rows) - 1, f"{len(rows) - 1} calls of next()")


@lab_test
def announce(lab):
    """Task 6: which ranks have a batch, the divisor, the authority; all ranks throw, or none."""
    for by_world in (True, False):
        exchanges(lab, [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]], by_world)
        exchanges(lab, [[1, 1, 0], [1, 0, 0]], by_world, strict=True)
        exchanges(lab, [[1, 1, 0], [1, 1, 0]], by_world, strict=True)
    exchanges(lab, [[0], [0], [0]], False)


class Joined:
    """Consecutive training runs of the toy model: rounds of batches, a list for each rank."""

    def __init__(self, rng, world, buckets, rounds, by_world=True, strict=False, equal=True):
        self.world, self.buckets, self.rounds, self.by_world, self.strict = world, buckets, rounds, by_world, strict
        self.size = sum(buckets)
        most = 1 + max([b for batches in rounds for row in batches for b in row], default=0)
        self.offset = [[f32(rng.uniform(-8, 8)) for _ in range(most * self.size)] for _ in range(world)]
        first = [[f32(rng.uniform(-4, 4)) for _ in range(self.size)] for _ in range(world)]
        self.state = [[*(first[0] if equal else first[r]), float(r)] for r in range(world)]
        self.slope, self.lr = f32(0.3), f32(0.1)

    def backward(self, rank, batch):
        row, state = self.offset[rank][batch * self.size:][:self.size], self.state[rank]
        state[-1] = f32(0.5 * state[-1] + row[0])
        return [f32(o + f32(self.slope * p)) for o, p in zip(row, state)]

    def expected(self):
        """Returns, for each round, the steps (-1: thrown), the exception and the states; and the
        actions of each rank."""
        self.deeds, outcomes, self.calls = [""] * self.world, [], 0
        for batches in self.rounds:
            steps, thrown, active = 0, "", []
            authority = self.world - 1
            for step in range(max(len(row) for row in batches) + 1):
                self.calls += 1
                active = [r for r in range(self.world) if step < len(batches[r])]
                if not active:
                    break
                if self.strict and len(active) < self.world:
                    thrown = f"no batch for step {step} on ranks " + " ".join(str(r) for r in range(self.world) if r not in active)
                    steps = -1
                    break
                authority, steps = max(active), steps + 1
                self.calls += len(self.buckets)
                divisor = self.world if self.by_world else len(active)
                grads = {r: self.backward(r, batches[r][step]) for r in active}
                for r in active:
                    self.deeds[r] += f"b{batches[r][step]} s "
                columns = [[f32(grads[r][i] / divisor) if r in grads else 0.0 for r in range(self.world)] for i in range(self.size)]
                for r in active:
                    for i, column in enumerate(columns):
                        self.state[r][i] = f32(self.state[r][i] - f32(self.lr * total(column)))
            if steps >= 0:
                self.calls += 1
                for r in range(self.world):
                    self.state[r] = list(self.state[authority])
            outcomes.append((steps, thrown, [list(s) for s in self.state]))
        return outcomes

    def check(self, lab, **how):
        request = {f"batches.{r}.{n}": list(row) for n, batches in enumerate(self.rounds) for r, row in enumerate(batches)}
        request |= {f"offset.{r}": floats(self.offset[r]) for r in range(self.world)}
        request |= {f"state.{r}": floats(self.state[r]) for r in range(self.world)}
        seen = lab.run("join", world=self.world, buckets=list(self.buckets), rounds=len(self.rounds), slope=self.slope,
                       lr=self.lr, by_world=int(self.by_world), strict=int(self.strict), **request, **how)
        outcomes = self.expected()
        for rank in range(self.world):
            for number, (steps, thrown, states) in enumerate(outcomes):
                has = ", ".join(f"rank {r} has {len(row)}" for r, row in enumerate(self.rounds[number]))
                when = f"after training {number} (batches: {has}) on rank {rank}"
                expect.equal(f"what is thrown {when}", seen[f"thrown.{rank}"].split("\n")[number], thrown, seen)
                expect.equal(f"the number of steps {when}", seen[f"steps.{rank}"][number], steps, seen)
                expect.equal(f"gradients in the model's buckets that have changed since its last step, {when}",
                             seen[f"touched.{rank}"][number], 0, seen)
                size = self.size + 1
                part = seen[f"states.{rank}"][number * size:][:size]
                same(f"the state {when}, whose last element is the running statistic,", part, floats(states[rank]), seen)
            expect.equal(f"what rank {rank}'s model did (b: a batch, s: a step)", seen[f"deeds.{rank}"], self.deeds[rank], seen)
        expect_collectives(seen, self.calls, f"{len(self.rounds)} trainings")
        return seen


def batches_of(lengths):
    return [list(range(n)) for n in lengths]


@lab_test
def join(lab):
    """Tasks 7 and 8: three ranks with three, one and two batches; equal numbers; the next epoch."""
    for by_world in (True, False):
        Joined(lab.random, 3, [2, 3], [batches_of([3, 1, 2])], by_world).check(lab)
        Joined(lab.random, 2, [4], [batches_of([2, 2]), batches_of([0, 2]), batches_of([1, 0])], by_world).check(lab)
    Joined(lab.random, 3, [1], [batches_of([2, 2, 1])], strict=True).check(lab)


# --- the sharded optimizer -----------------------------------------------------------------------

def shards_of(count, world):
    each = -(-count // world)
    firsts = [min(count, each * r) for r in range(world)]
    return firsts, [min(each, count - first) for first in firsts]


@lab_test
def shards(lab):
    """Task 9: 7 elements on 3 ranks are 3, 3 and 1; 4 are 2, 2 and 0."""
    for world in (1, 2, 3, 4, 8):
        counts = [0, 1, 2, 4, 5, 7, 8, 9, 1000, 2 ** 24 + 1, 2 ** 31 + 7, 2 ** 40 + 3, 2 ** 53 + 1]
        seen = lab.run("shards", world=world, counts=counts)
        for number, count in enumerate(counts):
            part = slice(number * world, (number + 1) * world)
            firsts, lengths = shards_of(count, world)
            expect.equal(f"the lengths of {count} elements on {world} ranks", list(seen["lengths"][part]), lengths, seen)
            expect.equal(f"the beginnings of {count} elements on {world} ranks", list(seen["firsts"][part]), firsts, seen)


class Adam:
    """One plain AdamW of all trainable elements, by the arithmetic of adamw() in zero.hpp."""

    def __init__(self, sizes, frozen, values, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01):
        self.sizes, self.frozen, self.values = sizes, frozen, [f32(x) for x in values]
        self.options = [f32(x) for x in (lr, beta1, beta2, eps, weight_decay)]
        owner = [p for p, size in enumerate(sizes) for _ in range(size)]
        self.trainable = [i for i, p in enumerate(owner) if not frozen[p]]
        self.m, self.v, self.steps, self.grad = [0.0] * len(self.trainable), [0.0] * len(self.trainable), 0, None

    def reduce(self, grads):
        """grads: for each rank, a row of all elements."""
        self.grad = [average([row[i] for row in grads]) for i in self.trainable]

    def clip(self, limit):
        norm = math.sqrt(math.fsum(g * g for g in self.grad)) if all(map(math.isfinite, self.grad)) else \
            (math.nan if any(map(math.isnan, self.grad)) else math.inf)
        factor = limit / (norm + 1e-6)
        if not factor > 1:
            self.grad = [f32(g * f32(factor)) for g in self.grad]
        return norm

    def step(self):
        lr, beta1, beta2, eps, decay = self.options
        self.steps += 1
        correct1, correct2 = f32(1 - beta1 ** self.steps), f32(1 - beta2 ** self.steps)
        for n, (i, g) in enumerate(zip(self.trainable, self.grad)):
            self.m[n] = f32(f32(beta1 * self.m[n]) + f32(f32(1 - beta1) * g))
            self.v[n] = f32(f32(beta2 * self.v[n]) + f32(f32(1 - beta2) * f32(g * g)))
            kept = f32(self.values[i] - f32(f32(lr * decay) * self.values[i]))
            under = f32(f32(math.sqrt(f32(self.v[n] / correct2))) + eps)
            self.values[i] = f32(kept - f32(f32(lr * f32(self.m[n] / correct1)) / under))


class Sharded:
    """A script for the optimizers A and B on some ranks, and the expected results."""

    def __init__(self, world, a, b=None):
        self.world, self.of = world, {"A": a, **({"B": b} if b else {})}
        self.script, self.grads, self.limits, self.loads, self.loaded = "", [[] for _ in range(world)], [], [], []
        self.values, self.norms, self.m, self.v, self.steps, self.thrown, self.most, self.sent = [], [], [], [], [], "", 0, 0
        self.written, self.clips = [], []
        self.request = {}
        for name, one in self.of.items():
            self.request |= {f"sizes{name}": list(one.sizes), f"frozen{name}": [int(f) for f in one.frozen],
                             f"options{name}": floats(one.options), f"values{name}": floats(one.values)}

    def note(self, deed, thrown="", collectives=0, elements=0):
        self.script += deed
        self.thrown += thrown + " "
        self.most += collectives
        self.sent += elements

    def each(self, who):
        return -(-len(self.of[who].trainable) // self.world)

    def gradients(self, rows, who="A"):
        """Sets each rank's gradients of all elements, including frozen ones. reduce() averages them later."""
        self.given = [[f32(g) for g in row] for row in rows]
        for rank, row in enumerate(self.given):
            self.grads[rank] += row
        self.note(who + "g")

    def write(self, values, who="A"):
        """Writes to the parameters between two steps, as a checkpoint or the end of train_joined does."""
        self.of[who].values = [f32(x) for x in values]
        self.written += self.of[who].values
        self.note(who + "v")

    def reduce(self, who="A"):
        self.of[who].reduce(self.given)
        self.note(who + "r", collectives=1, elements=self.each(who))

    def clip(self, limit, who="A"):
        self.limits.append(float(limit))
        if self.of[who].grad is None:
            self.note(who + "c", "logic_error")
            return
        self.norms.append(self.of[who].clip(limit))
        self.clips.append(f"clip({float(limit)!r}) of a norm of {self.norms[-1]!r}")
        self.note(who + "c", collectives=1, elements=4)

    def step(self, who="A"):
        one = self.of[who]
        if one.grad is None:
            self.note(who + "s", "logic_error")
        else:
            one.step()
            one.grad = None
            self.note(who + "s", collectives=1, elements=self.each(who))
        self.values += one.values

    def save(self, who="A"):
        one = self.of[who]
        self.steps += [one.steps, len(one.m), len(one.v)]
        self.m += one.m
        self.v += one.v
        self.note(who + "S", collectives=3, elements=2 * self.each(who) + 2)

    def load(self, steps, m, v, who="A"):
        self.loads += [steps, len(m), len(v)]
        self.loaded += [*m, *v]
        one = self.of[who]
        if steps < 0 or len(m) != len(one.m) or len(v) != len(one.v):
            self.note(who + "L", "invalid_argument")
        else:
            one.steps, one.m, one.v = steps, [f32(x) for x in m], [f32(x) for x in v]
            self.note(who + "L")

    def check(self, lab, **how):
        seen = lab.run("zero", world=self.world, script=self.script, norms=array.array("d", self.limits),
                       loads=self.loads, loaded=floats(self.loaded), written=floats(self.written),
                       **{f"grads.{r}": floats(g) for r, g in enumerate(self.grads)}, **self.request, **how)
        clipped = f" (with {', '.join(self.clips[:3])}{', ...' if len(self.clips) > 3 else ''})" if self.clips else ""
        for rank in range(self.world):
            expect.equal(f"what the calls throw on rank {rank}", seen[f"thrown.{rank}"].split(" "), self.thrown.split(" "), seen)
            expect.equal(f"gradients of parameters that rank {rank} has changed: calls", seen[f"changed.{rank}"], 0, seen)
            same(f"the norms on rank {rank}", seen[f"norms.{rank}"], array.array("d", self.norms), seen)
            at, steps = 0, [d for d in zip(self.script[::2], self.script[1::2]) if d[1] == "s"]
            for number, (who, _) in enumerate(steps):
                size = len(self.of[who].values)
                same(f"rank {rank}'s parameters of optimizer {who} after step {number}, all together{clipped},",
                     seen[f"values.{rank}"][at:at + size], floats(self.values[at:at + size]), seen)
                at += size
            expect.equal(f"steps, and the sizes of m and v, in the states on rank {rank}", list(seen[f"steps.{rank}"]), self.steps, seen)
            same(f"m of the states on rank {rank}{clipped}", seen[f"m.{rank}"], floats(self.m), seen)
            same(f"v of the states on rank {rank}{clipped}", seen[f"v.{rank}"], floats(self.v), seen)
            expect.at_most(f"rank {rank} sends", seen["sent_bytes"][rank], 4 * (self.world - 1) * self.sent, "bytes", seen)
        expect_collectives(seen, self.most, f"the script {self.script}")
        return seen


def random_rows(rng, world, size, low=-2.0, high=2.0):
    return [[rng.uniform(low, high) for _ in range(size)] for _ in range(world)]


def trains(lab, world, sizes, frozen=None, steps=3, limit=None, **options):
    size = sum(sizes)
    run = Sharded(world, Adam(sizes, frozen or [0] * len(sizes), [lab.random.uniform(-3, 3) for _ in range(size)], **options))
    for _ in range(steps):
        # Multiples of 1/4, because the sum of their squares is exact in double, in any order.
        run.gradients([[lab.random.randrange(-64, 64) / 4 * world for _ in range(size)] for _ in range(world)]
                      if limit else random_rows(lab.random, world, size))
        run.reduce()
        if limit:
            run.clip(limit)
        run.step()
    return run.check(lab)


@lab_test
def sharded(lab):
    """Tasks 9 and 10: 7 elements on 3 ranks, frozen parameters, more ranks than elements: equal to one optimizer."""
    trains(lab, 3, [7])
    trains(lab, 2, [3, 4, 2])
    trains(lab, 3, [2, 3, 2], frozen=[0, 1, 0])
    trains(lab, 4, [2, 1], steps=2)


@lab_test
def clip(lab):
    """Task 11: the norm over all ranks' shards, each element once; and a limit that is not reached."""
    trains(lab, 3, [7, 2], limit=1.0)
    trains(lab, 2, [3, 5], frozen=[1, 0], limit=0.5)
    trains(lab, 3, [4], limit=1e6)
    trains(lab, 4, [1, 1], limit=2.0)
    for row in ([3.0, 4.0], [3.0, 0.0]):  # the limit is reached exactly: the quotient is below 1; and not reached
        run = Sharded(2, Adam([2], [0], [1.0, 2.0]))
        run.gradients([row, row])
        run.reduce()
        run.clip(5.0)
        run.step()
        run.save()  # a step hardly depends on a gradient's size; m and v do
        run.check(lab)


@lab_test
def memory(lab):
    """Tasks 9 and 10: between steps the optimizer holds its shard's numbers, not all."""
    for world, size, parts in ((2, 40000, 3), (3, 60001, 7), (4, 80002, 2)):
        seen = lab.run("memory", world=world, size=size, parts=parts)
        for rank in range(world):
            length = shards_of(size, world)[1][rank]
            for step, held in enumerate(seen[f"bytes.{rank}"]):
                when = f"after {step} steps" if step else "after its constructor"
                expect.at_most(f"{when} the optimizer of rank {rank}, with a shard of {length} of {size} elements, holds", held,
                               12 * length + 128 * parts + 64 * world + 2048, "bytes", seen)


@lab_test
def state(lab):
    """Task 12: saved by three ranks, loaded by two, then by four: the training continues bit for bit."""
    sizes, frozen = [4, 2, 3], [0, 1, 0]
    one = Adam(sizes, frozen, [lab.random.uniform(-3, 3) for _ in range(9)])
    for world in (3, 2, 4):
        saved = (one.steps, list(one.m), list(one.v))
        fresh = Adam(sizes, frozen, one.values)
        run = Sharded(world, fresh)
        run.load(*saved)
        run.save()
        for _ in range(2):
            run.gradients(random_rows(lab.random, world, 9))
            run.reduce()
            run.step()
        run.save()
        run.check(lab)
        one = fresh


# --- a hook of one's own -------------------------------------------------------------------------

RANKS, SIZE, STEPS, BUDGET, RATE = 4, 1000, 60, 240, 0.1
KINDS = ("few", "all", "slopes", "apart")


class Quadratic:
    """A model whose loss is a quadratic, and the noise and the bias of its ranks' gradients. choice.cpp has the formula.

    few: few parameters have far to go.  all: all have.  slopes: their curvatures differ, from 1/32 to 2.
    apart: the ranks' gradients are far from each other, and only their average is small.
    """

    def __init__(self, rng, kind):
        far = [kind != "few" or rng.random() < 0.03 for _ in range(SIZE)]
        self.curvature = floats(2.0 ** rng.uniform(-5, 1) if kind == "slopes" else 1.0 for _ in range(SIZE))
        self.target = floats(rng.gauss(0, (30 if kind == "few" else 3) if yes else 0.1) for yes in far)
        self.noise = floats(rng.gauss(0, 1) for _ in range(16381))
        rows = [[rng.gauss(0, 6) if kind == "apart" else 0.0 for _ in range(SIZE)] for _ in range(RANKS)]
        means = [sum(column) / RANKS for column in zip(*rows)]
        self.bias = [floats(x - mean for x, mean in zip(row, means)) for row in rows]

    def loss(self, values):
        return sum(h * (w - t) ** 2 / 2 for h, w, t in zip(self.curvature, values, self.target)) / SIZE

    def with_ddp(self):
        """Returns the loss that DDP reaches, with all gradients in every step."""
        values, period = [0.0] * SIZE, len(self.noise)
        for step in range(STEPS):
            firsts = [(1009 * step + 4001 * rank) % period for rank in range(RANKS)]
            for i, (w, h, t) in enumerate(zip(values, self.curvature, self.target)):
                noise = sum(self.noise[(first + i) % period] for first in firsts) / RANKS
                values[i] = w - RATE * (h * (w - t) + noise)
        return self.loss(values)

    def request(self):
        return {"curvature": self.curvature, "target": self.target, "noise": self.noise} | {
            f"bias.{rank}": row for rank, row in enumerate(self.bias)}


def spends(seen):
    """Checks what every rank has sent after every step, as the driver has counted it where the bytes move, and that results are equal."""
    for step in range(STEPS):
        for rank in range(RANKS):
            sent, may = seen[f"sent.{rank}"][step], BUDGET * (step + 1)
            expect.that(sent <= may, f"after {step + 1} steps rank {rank} has sent {sent} bytes, at most {may} allowed", seen)
            expect.that(seen[f"hashes.{rank}"][step] == seen["hashes.0"][step],
                        f"in step {step} the gradients after the hook differ between ranks 0 and {rank}", seen)


def chooses(lab, most):
    """Trains all kinds of models; the geometric mean of the losses, divided by DDP's, is at most this."""
    product, text = 1.0, []
    for kind in KINDS:
        model = Quadratic(lab.random, kind)
        seen = lab.run("choice", kind=kind, world=RANKS, budget=BUDGET, steps=STEPS, lr=RATE, **model.request())
        spends(seen)
        losses = [model.loss(seen[f"values.{rank}"]) for rank in range(RANKS)]
        expect.that(all(math.isfinite(loss) for loss in losses), f"the loss is {losses[0]} at the end", seen)
        share = max(losses) / model.with_ddp()
        product *= share
        text.append(f"{kind}: {share:.2f}")
    mean = product ** (1 / len(KINDS))
    expect.that(mean <= most, f"the loss is {mean:.2f} times DDP's ({', '.join(text)}), must be at most {most:g} times; "
                f"{BUDGET} bytes a step", seen)


@lab_test
def choice(lab):
    """Task 13: with 240 bytes a step instead of 6,000, a loss of at most 20 times DDP's."""
    chooses(lab, 20)
