"""Public tests of lab 09, which a student runs at every save. hidden.py uses Model and train() too."""
from labs.course.testing import Wrong, expect, floats, lab_test


def made_up(step, rank, p, i, base):
    """Returns a whole number, so that sums are exact. driver.cpp has the same formula."""
    return (i * 7 + p * 13 + rank * 29 + step * 31 + base) % 41 - 20


class Model:
    """The toy model, and the expected results of a run. orders[rank] lists parameters in the order
    of their gradients."""

    def __init__(self, sizes, world, frozen=(), tied=(), orders=None, coupling=0.0):
        self.sizes, self.world, self.frozen, self.tied = list(sizes), world, frozen, tied
        natural = [p for p in reversed(range(len(sizes))) if p not in frozen]
        natural = [p for p in tied] + natural  # the first use that backward reaches
        self.orders = orders or [natural] * world
        self.others = {}  # (rank, step): another order in that step
        self.coupling = coupling

    def request(self, **more):
        values = {"sizes": self.sizes, "frozen": [int(p in self.frozen) for p in range(len(self.sizes))],
                  "tied": list(self.tied) or [], "world": self.world, "coupling": self.coupling,
                  "seconds": [1.0] * len(self.sizes), "speed": [1.0] * self.world, **more}
        values.update({f"order.{r}": list(self.orders[r]) for r in range(self.world)})
        values.update({f"order.{r}.{s}": list(order) for (r, s), order in self.others.items()})
        return values

    def buckets(self, limit):
        """Returns the number of elements of each bucket, by tasks 1 and 2."""
        out, filled = [], None
        for p in reversed([p for p in range(len(self.sizes)) if p not in self.frozen]):
            if filled is None:
                out, filled = out + [0], 0
            out[-1] += self.sizes[p]
            filled += 4 * self.sizes[p]
            filled = None if filled >= limit else filled
        return out

    def expected(self, script, base):
        """Returns the values and gradients after a script, computed by one process in Python. A missing
        gradient is None."""
        values = [[float(made_up(77, 0, p, i, base)) for i in range(n)] for p, n in enumerate(self.sizes)]
        speed = [[0.0] * n for n in self.sizes]
        local = [[None] * len(self.sizes) for _ in range(self.world)]
        step = 0

        def backward():
            for rank in range(self.world):
                seen = {}
                for p in self.others.get((rank, step), self.orders[rank]):
                    part = seen[p] = seen.get(p, -1) + 1
                    have = local[rank][p] or [0.0] * self.sizes[p]
                    local[rank][p] = [g + made_up(step, rank, p, i, base) + part + self.coupling * v
                                      for i, (g, v) in enumerate(zip(have, values[p]))]

        def average():
            for p, n in enumerate(self.sizes):
                if any(grads[p] is not None for grads in local):
                    mean = [sum(grads[p][i] if grads[p] else 0.0 for grads in local) / self.world for i in range(n)]
                    for grads in local:
                        grads[p] = list(mean)

        for deed in script:
            for _ in range({"s": 1, "n": 1, "m": 2, "u": 2, "t": 1, "i": 1}.get(deed, 0)):
                backward()
                step += 1
            if deed == "s":
                average()
            if deed in "zti":
                local = [[None] * len(self.sizes) for _ in range(self.world)]
            if deed == "o":
                for p, grad in enumerate(local[0]):
                    for i, g in enumerate(grad or []):
                        speed[p][i] = 0.5 * speed[p][i] + g
                        values[p][i] -= 0.25 * speed[p][i]
        return values, local


def train(lab, model, script, limit=1 << 20, check=True, base=None, **how):
    """Runs a script and compares values and gradients of every rank with one process that has all
    the data."""
    base = lab.random.randrange(1000) if base is None else base
    seen = lab.run("train", script=script, bucket_bytes=limit, base=base, **model.request(**how))
    if not check:
        return seen
    values, local = model.expected(script, base)
    for rank in range(model.world):
        at = 0
        for p, n in enumerate(model.sizes):
            name = f"layer{p}.weight"
            same(f"{name} on rank {rank}", seen[f"values.{rank}"][at:at + n], values[p], model, seen)
            at += n
        at = 0
        for p, n in enumerate(model.sizes):
            name, want = f"the gradient of layer{p}.weight on rank {rank}", local[rank][p]
            has = seen[f"has.{rank}"][p] if n else n
            if want is None:
                expect.that(not has, f"{name} must be none: no rank has one", seen)
            else:
                expect.equal(f"the length of {name}", has, n, seen)
                same(name, seen[f"grads.{rank}"][at:at + n], want, model, seen)
            at += has
    for rank in range(1, model.world):
        expect.same_bits(f"rank {rank}'s parameters compared with rank 0's", seen[f"values.{rank}"], seen["values.0"], seen)
    return seen


def same(name, got, want, model, seen):
    """Checks for equality if the division by the number of ranks is exact, else within a few roundings of a float."""
    exact = model.world in (1, 2, 4, 8) and not model.coupling
    if exact:
        expect.same_bits(name, got, floats(want), seen)
    else:
        expect.close(name, got, want, 1e-4 if model.coupling else 3e-5, seen)


def reduces(seen):
    return [n for kind, n in zip(seen["kinds"], seen["elements"]) if kind == 1]


def expect_buckets(seen, model, limit, steps=1):
    """Checks that there is one all-reduce per bucket, at most one more per step for flags, and no
    excess numbers."""
    expect.equal("the number of broadcasts after the start", seen["kinds"].count(0), 0, seen)
    want, got = len(model.buckets(limit)), reduces(seen)
    trainable = len(model.sizes) - len(model.frozen)
    expect.that(steps * want <= len(got) <= steps * (want + 1),
                f"{len(got)} all-reduces in {steps} step{'s' * (steps > 1)}, with {want} "
                f"bucket{'s' * (want > 1)} of up to {limit} bytes: must be one per bucket, and one more is allowed", seen)
    expect.at_most("numbers sent in all-reduces", sum(got), steps * (sum(model.buckets(limit)) + trainable), "elements", seen)
    if steps == 1:
        expect_lengths(seen, model, limit, trainable)


def expect_lengths(seen, model, limit, flags):
    """Checks that the gradients of a bucket travel together: one all-reduce each, perhaps with some
    flags in it or in another."""
    want, got = sorted(model.buckets(limit)), sorted(reduces(seen))
    ways = [got] if len(got) == len(want) else [got[:i] + got[i + 1:] for i, n in enumerate(got) if n <= flags]
    expect.that(any(all(w <= g <= w + flags for w, g in zip(want, way)) for way in ways),
                f"all-reduces of {got} elements; the buckets of up to {limit} bytes have {want}", seen)


@lab_test
def plan(lab):
    """Task 1: buckets close when they are full; the gradient that crosses the limit stays in."""
    cases = [([400, 800, 400, 200], 400, [[0], [1], [2], [3]]), ([40, 40, 40, 40], 80, [[0, 1], [2, 3]]),
             ([40, 80, 40], 100, [[0, 1], [2]]), ([], 10, []), ([4, 4, 4], 0, [[0], [1], [2]]), ([4, 8], 1, [[0], [1]]),
             ([4, 8, 12], 1 << 40, [[0, 1, 2]]), ([4000, 4], 100, [[0], [1]]), ([0, 4, 0, 8], 4, [[0, 1], [2, 3]]),
             ([2 ** 32 + 8, 4, 2 ** 31, 2 ** 31, 8], 2 ** 32, [[0], [1, 2, 3], [4]]), ([2 ** 41, 4], 2 ** 40, [[0], [1]])]
    for sizes, limit, want in cases:
        seen = lab.run("plan", bytes=sizes or [], limit=limit)
        got, part = [], []
        for i in seen["buckets"]:
            if i >= 0:
                part.append(i)
            else:
                got, part = got + [part], []
        expect.equal(f"the plan of {sizes} with limit {limit}", got, want, seen)


@lab_test
def broadcast(lab):
    """Task 2: every rank begins with rank 0's values, also of frozen parameters."""
    for world in (1, 2, 3):
        train(lab, Model([5, 3, 4], world, frozen=(1,)), "")


@lab_test
def average(lab):
    """Tasks 3 and 4: gradients are the average over the ranks; the parameters do not change."""
    for world in (1, 2, 4, 3):
        model = Model([6, 1, 7, 2], world)
        for limit in (1 << 20, 16):
            seen = train(lab, model, "cs", limit)
            expect_buckets(seen, model, limit)


@lab_test
def frozen(lab):
    """A frozen parameter gets no gradient and is not sent; its neighbours are."""
    for frozen_ones in ((0,), (2,), (1, 3), (4,), (0, 1, 2, 3, 4)):
        model = Model([3, 4, 2, 5, 1], 2, frozen=frozen_ones)
        for limit in (1 << 20, 12):
            expect_buckets(train(lab, model, "cszs", limit), model, limit, 2)


@lab_test
def tied(lab):
    """A parameter that two modules share is averaged once, after both have added their parts."""
    for limit in (1 << 20, 8):
        model = Model([4, 3, 2], 2, tied=(0,))
        expect_buckets(train(lab, model, "cs", limit), model, limit)
        model = Model([4, 3, 2], 4, tied=(1, 0))
        expect_buckets(train(lab, model, "cszs", limit), model, limit, 2)
    model = Model([4, 3, 2, 5], 2, tied=(0,))  # others are listed after it
    expect_buckets(train(lab, model, "cs", 8, tied_after=1), model, 8)
    model = Model([40, 30, 20], 2, tied=(0,))  # its first place counts: 20 and 30 travel together
    expect_buckets(train(lab, model, "cs", 180), model, 180)


@lab_test
def steps(lab):
    """Five steps with momentum: every rank has the same parameters as one process with the whole
    batch."""
    for world, limit in ((2, 16), (3, 1 << 20), (4, 24)):
        for pointers in (0, 1):  # the same model and group, with other types
            train(lab, Model([5, 4, 3, 2], world, coupling=0.125), "zso" * 5, limit, pointers=pointers)


@lab_test
def kept_local(lab):
    """Task 5: nothing is sent under no_sync; the step after it averages the accumulated
    gradients."""
    model, limit = Model([4, 3, 2], 2), 12
    expect.equal("the number of collectives under no_sync", len(train(lab, model, "cn", limit)["kinds"]), 0)
    expect_buckets(train(lab, model, "cns", limit), model, limit)
    expect_buckets(train(lab, model, "ctzs", limit), model, limit)  # the body threw
