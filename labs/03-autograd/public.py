"""Public tests of lab 03, which a student runs at every save."""
from labs.course.testing import expect, lab_test

ADD, MUL, SUM, RELU, MIX, OUTER = range(6)  # the driver records the last two itself
BINARY = (ADD, MUL, MIX, OUTER)


class Program:
    """A graph as the driver builds it, whose derivatives are computed by another method: forward,
    one direction at a time."""

    def __init__(self):
        self.leaves, self.needs, self.operations, self.names = [], [], [], []

    def leaf(self, values, needs=True, name=None):
        assert not self.operations, "leaves first"
        self.leaves.append([float(v) for v in values])
        self.needs.append(int(needs))
        self.names.append(name or f"leaf {len(self.leaves) - 1}")
        return len(self.leaves) - 1

    def op(self, kind, a, b=0):
        self.operations += [kind, a, b]
        return len(self.leaves) + len(self.operations) // 3 - 1

    def add(self, a, b):
        return self.op(ADD, a, b)

    def mul(self, a, b):
        return self.op(MUL, a, b)

    def sum(self, a):
        return self.op(SUM, a)

    def relu(self, a):
        return self.op(RELU, a)

    def mix(self, a, b):
        """Records 3 a + 5 b + 2 a: three inputs, two of them the same variable."""
        return self.op(MIX, a, b)

    def outer(self, a, b):
        return self.op(OUTER, a, b)

    def rows(self):
        return [self.operations[i:i + 3] for i in range(0, len(self.operations), 3)]

    def forward(self, leaf=None, element=0):
        """Returns all values, and their derivatives in the direction of one element of one leaf."""
        values = [list(v) for v in self.leaves]
        slopes = [[float(i == leaf and j == element) for j in range(len(v))] for i, v in enumerate(self.leaves)]
        for kind, a, b in self.rows():
            x, y, dx, dy = values[a], values[b], slopes[a], slopes[b]
            if kind == ADD:
                values.append([p + q for p, q in zip(x, y)])
                slopes.append([p + q for p, q in zip(dx, dy)])
            elif kind == MUL:
                values.append([p * q for p, q in zip(x, y)])
                slopes.append([dp * q + p * dq for p, dp, q, dq in zip(x, dx, y, dy)])
            elif kind == MIX:
                values.append([5 * p + 5 * q for p, q in zip(x, y)])
                slopes.append([5 * dp + 5 * dq for dp, dq in zip(dx, dy)])
            elif kind == OUTER:
                values.append([p * q for p in x for q in y])
                slopes.append([dp * q + p * dq for p, dp in zip(x, dx) for q, dq in zip(y, dy)])
            elif kind == SUM:
                values.append([sum(x)])
                slopes.append([sum(dx)])
            else:
                values.append([max(p, 0.0) for p in x])
                slopes.append([dp if p > 0 else 0.0 for p, dp in zip(x, dx)])
        return values, slopes

    def reaches(self, root):
        """Returns the leaves that need a gradient and on which root depends."""
        needs = [bool(n) for n in self.needs]
        for kind, a, b in self.rows():
            needs.append(needs[a] or (kind in BINARY and needs[b]))
        todo, seen = [root], set()
        while todo:
            at = todo.pop()
            if at in seen or not needs[at]:
                continue
            seen.add(at)
            if at >= len(self.leaves):
                kind, a, b = self.rows()[at - len(self.leaves)]
                todo += [a, b] if kind in BINARY else [a]
        return sorted(i for i in seen if i < len(self.leaves))

    def gradients(self, root):
        """Returns {leaf: gradient} of a backward from root."""
        return {leaf: [self.forward(leaf, e)[1][root][0] for e in range(len(self.leaves[leaf]))]
                for leaf in self.reaches(root)}

    def request(self, roots=(), retain=None, hooked=(), throwing=-1):
        return {"values": [v for leaf in self.leaves for v in leaf] or [0.0], "lengths": list(map(len, self.leaves)),
                "needs": self.needs, "operations": self.operations, "roots": list(roots),
                "retain": list(retain or [0] * len(roots)), "hooked": list(hooked), "throwing": throwing}


def grads_of(seen, suffix):
    """Returns the gradients of the leaves, each a list or None."""
    flat, at, found = list(seen[f"grads.{suffix}"]), 0, []
    for length in seen[f"grad_lengths.{suffix}"]:
        found.append(None if length < 0 else flat[at:at + length])
        at += max(length, 0)
    return found


def check_grads(program, seen, suffix, wanted, when):
    """Checks the leaves' gradients. wanted: {leaf: gradient}; all other leaves must have none."""
    for leaf, got in enumerate(grads_of(seen, suffix)):
        want = wanted.get(leaf)
        name = program.names[leaf]
        if want is None:
            expect.that(got is None, f"{when}, {name} has the gradient {got}, must have none", seen)
        else:
            expect.that(got is not None, f"{when}, {name} has no gradient, must have {want}", seen)
            expect.that(got == want, f"{when}, the gradient of {name} is {got}, must be {want}", seen)


def run(lab, program, root, **how):
    """Runs one backward from root and checks values, gradients, and that nothing throws."""
    seen = lab.run("program", **program.request([root], **how))
    expect.that("refused" not in seen, f"an operation threw: {seen.get('refused')}", seen)
    values = [v for one in program.forward()[0] for v in one]
    expect.equal("the values of all variables, one after the other", list(seen["values"]), values, seen)
    expect.that(seen["error.0"] == "", f"backward threw {seen['error.0']}", seen)
    check_grads(program, seen, 0, program.gradients(root), "after backward")
    return seen


@lab_test
def rules(lab):
    """Task 1: the value of each operation alone, and the gradient of each input."""
    for kind, name in ((SUM, "sum"), (MUL, "mul"), (ADD, "add"), (RELU, "relu")):  # all use sum, the last two also mul
        p = Program()
        a = p.leaf([3, -2, 0, 5, -0.5, 2 ** 40 + 1], name=f"the first input of {name}")
        b = p.leaf([7, 11, -1, 0, 2, 3], name=f"the second input of {name}")
        weights = p.leaf([1, 10, 100, -1000, 4, 7], needs=False)
        y = p.op(kind, a, b)
        if kind != SUM:  # a different weight for each element: a gradient of 1 everywhere would hide mistakes
            y = p.sum(p.mul(y, weights))
        run(lab, p, y)
    for length in (0, 1):
        p = Program()
        a, b = p.leaf([4] * length), p.leaf([6] * length)
        run(lab, p, p.sum(p.relu(p.mul(a, p.add(a, b)))))
    for kind in (ADD, MUL):
        for one, other in (([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])):
            p = Program()
            p.op(kind, p.leaf(one), p.leaf(other))
            seen = lab.run("program", **p.request())
            expect.that("refused" in seen,
                        f"{len(one)} and {len(other)} elements must be refused, and were accepted", seen)


@lab_test
def recorded(lab):
    """Task 3: the driver's own operations, by record: three inputs, and a result of another
    length."""
    for frozen in ("neither", "a", "b"):
        p = Program()
        a = p.leaf([3, -2, 2 ** 40], needs=frozen != "a", name="a")
        b = p.leaf([7, 11, -1], needs=frozen != "b", name="b")
        weights = p.leaf([1, 10, 100], needs=False)
        run(lab, p, p.sum(p.mul(p.mix(a, b), weights)), hooked=[a])
    p = Program()
    a, b = p.leaf([3, -2], name="a"), p.leaf([7, 11, -1], name="b")
    weights = p.leaf([1, 10, 100, 1000, 10000, 100000], needs=False)
    product = p.outer(a, b)
    run(lab, p, p.sum(p.mul(p.relu(p.mul(product, weights)), p.outer(a, b))), hooked=[a, b])
    p = Program()
    x, y = p.leaf([2], name="x"), p.leaf([5], name="y")
    h = p.mix(x, y)
    root = p.mul(h, p.mix(h, x))
    names, wanted = {x: "x", y: "y", h: "h"}, {x: 3, y: 1, h: 3}
    request = p.request()
    seen = lab.run("counts", root=root, **{k: request[k] for k in ("values", "lengths", "needs", "operations")})
    for var, count in wanted.items():
        expect.equal(f"the number of contributions to {names[var]}", seen["counts"][var], count, seen)


@lab_test
def contributions(lab):
    """Task 2: the number of gradients that each variable will receive from a given result."""
    p = Program()
    x, w, frozen = p.leaf([2], name="x"), p.leaf([3], name="w"), p.leaf([5], needs=False, name="frozen")
    square = p.mul(x, x)
    h = p.add(square, w)
    loss = p.mul(h, p.mul(h, p.mul(w, frozen)))
    other = p.add(h, x)          # another result, no part of loss
    q = p.mul(frozen, frozen)    # nothing below needs a gradient
    both = p.add(loss, q)
    names = {x: "x", w: "w", square: "x * x", h: "h", loss: "loss"}
    for root, wanted in ((loss, {x: 2, w: 2, square: 1, h: 2}), (both, {x: 2, w: 2, square: 1, h: 2, loss: 1}),
                         (other, {x: 3, w: 1, square: 1, h: 1}), (square, {x: 2, w: 0, h: 0})):
        request = p.request()
        seen = lab.run("counts", root=root, **{k: request[k] for k in ("values", "lengths", "needs", "operations")})
        for var, count in wanted.items():
            expect.equal(f"the number of contributions to {names[var]}", seen["counts"][var], count, seen)
        expect.equal("the number of contributions to the result itself", seen["counts"][root], 0, seen)
        expect.equal("the number of contributions to a frozen leaf", seen["counts"][frozen], 0, seen)


@lab_test
def diamond(lab):
    """Task 3: a value that is used twice receives the sum, and passes it on once."""
    p = Program()
    x = p.leaf([3, -1], name="x")
    h = p.mul(x, x)
    run(lab, p, p.sum(p.add(p.mul(h, h), p.relu(h))))
    for depth in (3, 60):  # a ladder of diamonds: 2^60 paths, and 60 nodes
        p = Program()
        h = p.leaf([1], name="x")
        for _ in range(depth):
            h = p.add(h, h)
        seen = lab.run("program", deadline=4, **p.request([h]))
        check_grads(p, seen, 0, {0: [2.0 ** depth]}, f"after backward through {depth} times h = h + h")


@lab_test
def tied(lab):
    """Tasks 3 and 4: one weight in two layers gets one gradient, the sum, and one call of its
    hook."""
    p = Program()
    x, w = p.leaf([2, 5, -3], needs=False, name="x"), p.leaf([1, -2, 4], name="the tied weight")
    loss = p.sum(p.mul(p.relu(p.mul(x, w)), w))
    seen = run(lab, p, loss, hooked=[w])
    expect.equal("the number of calls of its hook", len(seen["log"]) // 4, 1, seen)
    check_grads(p, seen, "hook0", p.gradients(loss), "when its hook ran")


@lab_test
def hooks(lab):
    """Task 4: each hook runs once in each backward, after all contributions, in the order of
    registration."""
    p = Program()
    x, w, v = p.leaf([2], name="x"), p.leaf([3], name="w"), p.leaf([-4], name="v")
    h = p.mul(x, w)
    loss = p.add(p.mul(h, w), p.add(p.mul(v, h), p.mul(w, w)))
    wanted = p.gradients(loss)
    seen = run(lab, p, loss, hooked=[w, x, w, v])
    log = [seen["log"][i:i + 4] for i in range(0, len(seen["log"]), 4)]
    for hook, leaf in enumerate([w, x, w, v]):
        calls = [n for n, row in enumerate(log) if row[1] == hook]
        expect.equal(f"the number of calls of hook {hook}, on {p.names[leaf]}", len(calls), 1, seen)
        got = grads_of(seen, f"hook{calls[0]}")[leaf]
        expect.that(got == wanted[leaf], f"when hook {hook} ran, the gradient of {p.names[leaf]} was {got}, "
                    f"must be {wanted[leaf]}: it ran before all contributions had arrived", seen)
        expect.that(log[calls[0]][3], f"hook {hook} was not given the leaf that it was registered on", seen)
    order = [row[1] for row in log if row[2] == w]
    expect.equal("the order of the two hooks on w", order, [0, 2], seen)


@lab_test
def used_up(lab):
    """Task 5: frozen and unused leaves get nothing; a second backward needs retain, and is refused
    without it."""
    p = Program()
    x, w, frozen = p.leaf([2, 3], name="x"), p.leaf([4, 5], name="w"), p.leaf([6, 7], needs=False, name="frozen")
    p.leaf([8, 9], name="unused")
    loss = p.sum(p.mul(p.mul(x, frozen), w))
    run(lab, p, loss, hooked=[w])
    wanted = p.gradients(loss)
    seen = lab.run("program", **p.request([loss, loss, loss], retain=[1, 0, 0]))
    check_grads(p, seen, 1, {k: [2 * e for e in grad] for k, grad in wanted.items()}, "after a second backward")
    expect.equal("the error of a backward after one without retain", seen["error.2"], "logic_error", seen)
