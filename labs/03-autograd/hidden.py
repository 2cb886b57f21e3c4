"""Hidden tests of lab 03: random graphs, frozen and unused leaves, the second backward, depth,
memory."""
import math

from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

HIDDEN_SEED = 40417853
_public = load_sibling(__file__, "public")
Program, check_grads, grads_of, run = _public.Program, _public.check_grads, _public.grads_of, _public.run
ADD, MUL, SUM, RELU, MIX = range(5)
EXACT = 2.0 ** 50  # every integer below it is exact in a double, so sums do not depend on the order


def by_chance(random):
    """Returns a random graph of small integers with much sharing, some frozen leaves and some unused results."""
    p = Program()
    length = random.choice((1, 2, 3))
    for _ in range(random.randrange(2, 6)):
        p.leaf([random.randrange(-3, 4) for _ in range(length)], needs=random.random() < 0.75)
    p.needs[0] = 1
    alive = list(range(len(p.leaves)))
    for _ in range(random.randrange(3, 14)):
        kind = random.choice((ADD, ADD, MUL, MUL, RELU, MIX))
        alive.append(p.op(kind, random.choice(alive[-5:]), random.choice(alive)))
        if max(abs(v) for v in p.forward()[0][-1]) > 1000:
            alive.pop()
    root = p.sum(p.add(alive[-1], p.mul(0, 0)))  # leaf 0 is always reached
    p.sum(p.mul(alive[-2], alive[-1]))           # an unused result
    return p, root


@lab_test
def random_graphs(lab):
    """Random graphs: all gradients, and each hook once, when its leaf is complete."""
    for _ in range(40):
        p, root = by_chance(lab.random)
        wanted = p.gradients(root)
        if any(abs(v) > EXACT for one in wanted.values() for v in one):
            continue
        learning = [i for i, needs in enumerate(p.needs) if needs]
        seen = run(lab, p, root, hooked=learning)
        log = [seen["log"][i:i + 4] for i in range(0, len(seen["log"]), 4)]
        expect.equal("the leaves whose hooks ran", sorted(row[2] for row in log), sorted(wanted), seen)
        for n, row in enumerate(log):
            got = grads_of(seen, f"hook{n}")[row[2]]
            expect.that(got == wanted[row[2]], f"when the hook of leaf {row[2]} ran, its gradient was {got}, must be "
                        f"{wanted[row[2]]}", seen)
    p = Program()  # infinite values, and an infinite gradient
    x, far = p.leaf([2]), p.leaf([math.inf], needs=False)
    run(lab, p, p.sum(p.relu(p.mul(x, far))))


@lab_test
def frozen_and_unused(lab):
    """Frozen leaves get no gradient; unused ones keep theirs, or none, and their hooks do not
    run."""
    p = Program()
    x, w = p.leaf([2, 3], name="x"), p.leaf([4, 5], name="w")
    frozen, unused = p.leaf([6, 7], needs=False, name="frozen"), p.leaf([8, 9], name="unused")
    p.leaf([], name="empty")
    h = p.mul(p.mul(x, frozen), w)
    loss = p.sum(h)
    side = p.sum(p.mul(w, unused))  # computed, but no part of loss
    constant = p.sum(p.mul(frozen, frozen))
    seen = run(lab, p, loss, hooked=[x, w, unused])
    expect.equal("the leaves whose hooks ran", sorted(seen["log"][2::4]), [x, w], seen)
    needs = {h: True, loss: True, side: True, constant: False}
    for var, want in needs.items():
        expect.equal("whether a result needs a gradient", bool(seen["needs"][var]), want, seen)
    none = p.relu(p.leaves.index([]))
    for root, why in ((constant, "no leaf of the result needs a gradient"), (h, "the result has two elements"),
                      (none, "the result has no element")):
        seen = lab.run("program", **p.request([root]))
        expect.that(seen["error.0"] == "invalid_argument",
                    f"{why}: backward must throw std::invalid_argument, and threw {seen['error.0'] or 'nothing'}", seen)
        check_grads(p, seen, 0, {}, "after a backward that was refused")
    # Leaves that one backward does not reach keep the gradients of another one.
    seen = lab.run("program", **p.request([side, loss]))
    first, second = p.gradients(side), p.gradients(loss)
    both = {**first, **second, w: [a + b for a, b in zip(first[w], second[w])]}
    check_grads(p, seen, 1, both, "after a backward from each of two results")
    # A dead branch: its gradient is 0, which differs from none, and the hook runs.
    p = Program()
    x, w = p.leaf([-2], name="x, below a relu that is off"), p.leaf([1], name="w")
    seen = run(lab, p, p.add(p.relu(x), w), hooked=[x, w])
    expect.equal("the leaves whose hooks ran", sorted(seen["log"][2::4]), [x, w], seen)
    p = Program()  # a leaf of no elements has a gradient of no elements, which differs from none
    x, w = p.leaf([], name="x, which has no elements"), p.leaf([1], name="w")
    seen = run(lab, p, p.add(p.sum(p.relu(p.add(x, x))), w), hooked=[x, w])
    expect.equal("the leaves whose hooks ran", sorted(seen["log"][2::4]), [x, w], seen)
    p = Program()  # the result is itself a leaf
    x = p.leaf([5], name="x, result and leaf at once")
    seen = lab.run("program", **p.request([x], hooked=[x]))
    check_grads(p, seen, 0, {x: [1.0]}, "after backward")
    expect.equal("the number of calls of its hook", len(seen["log"]) // 4, 1, seen)


@lab_test
def second_backward(lab):
    """Without retain it is refused and changes nothing; with retain it adds the same gradients again."""
    p = Program()
    x, w, v = p.leaf([2], name="x"), p.leaf([3], name="w"), p.leaf([7], name="v")
    h = p.mul(x, w)
    g = p.mul(h, h)
    loss = p.add(g, h)
    late, later = p.add(p.mul(v, v), g), p.add(g, p.mul(v, v))  # both share g with loss, but not v
    wanted, times = p.gradients(loss), lambda n: {k: [n * e for e in grad] for k, grad in p.gradients(loss).items()}
    seen = lab.run("program", **p.request([loss, loss, late, later, -1, loss], hooked=[w, v]))
    check_grads(p, seen, 0, wanted, "after the first backward")
    shares = "a backward from a result that shares a node with it"
    for k, what in ((1, "a second backward through the same graph"), (2, shares), (3, shares),
                    (5, "another one, after zero_grad")):
        error = seen[f"error.{k}"]
        expect.that(error == "logic_error",
                    f"{what}, without retain, must throw std::logic_error, and threw {error or 'nothing'}", seen)
        check_grads(p, seen, k, {} if k == 5 else wanted, f"after {what}, which was refused")
    expect.equal("the number of calls of all hooks", len(seen["log"]) // 4, 1, seen)

    seen = lab.run("program", **p.request([loss, loss], retain=[0, 1]))
    expect.equal("the error of a backward with retain after one without", seen["error.1"], "logic_error", seen)
    check_grads(p, seen, 1, wanted, "after a backward with retain through a used-up graph, which was refused")

    seen = lab.run("program", **p.request([loss, loss, loss, loss], retain=[1, 1, 0, 0], hooked=[w]))
    for k in range(3):
        error = seen[f"error.{k}"]
        expect.that(error == "", f"after a backward with retain another one must do, and threw {error}", seen)
        check_grads(p, seen, k, times(k + 1), f"after {k + 1} backwards, the first two with retain")
    expect.equal("the error of a backward after one without retain", seen["error.3"], "logic_error", seen)
    expect.equal("in which backwards the hook ran", list(seen["log"][0::4]), [0, 1, 2], seen)
    check_grads(p, seen, "hook1", times(2), "when the hook ran the second time")
    seen = lab.run("program", **p.request([loss, -1, loss], retain=[1, 0, 1]))
    check_grads(p, seen, 1, {}, "after zero_grad")
    check_grads(p, seen, 2, wanted, "after zero_grad and one more backward")

    p = Program()  # a hook throws while gradients are pending in two branches; then a graph that shares x
    x, y, z = p.leaf([2], name="x"), p.leaf([3], name="y"), p.leaf([5], name="z")
    first, other = p.add(p.add(p.mul(x, x), y), p.mul(x, x)), p.mul(z, p.mul(z, x))
    for throws_int in (0, 1):
        seen = lab.run("program", throws_int=throws_int, **p.request([first, -1, other], hooked=[y, z], throwing=0))
        expect.equal("what backward throws when a hook does", seen["error.0"], "the hook's own", seen)
        expect.equal("what the backward of another graph throws then", seen["error.2"], "", seen)
        check_grads(p, seen, 2, p.gradients(other), "after a backward whose hook threw, zero_grad, and another graph's")
        expect.equal("in which backwards the hooks ran", list(seen["log"][0::4]), [0, 2], seen)

    lengths = [lab.random.randrange(1, 9) for _ in range(60)]  # graphs whose nodes are where those of earlier graphs were
    seen = lab.run("successive", lengths=lengths)
    expect.equal("what a backward of a new graph throws", seen["error"], "", seen)
    expect.equal("the gradients in graphs that follow each other", list(seen["grads"]), [n + 1.0 for n in lengths], seen)


@lab_test
def in_time(lab):
    """A hook runs as soon as its leaf is complete: nothing below has received a gradient yet."""
    for left in (False, True):
        p = Program()
        x = p.leaf([1, 2], needs=False)
        weights = [p.leaf([k + 2, 1], name=f"the weight of layer {k}") for k in range(6)]
        h = x
        for w in weights:
            h = p.relu(p.mul(w, h) if left else p.mul(h, w))
        seen = run(lab, p, p.sum(h), hooked=weights)
        expect.equal("the order in which the layers' hooks ran", [weights.index(w) for w in seen["log"][2::4]],
                     list(range(5, -1, -1)), seen)
        for n, leaf in enumerate(seen["log"][2::4]):
            for below in weights[:weights.index(leaf)]:
                expect.that(grads_of(seen, f"hook{n}")[below] is None,
                            f"when the hook of {p.names[leaf]} ran, {p.names[below]} had its gradient already: "
                            "too late to overlap anything", seen)


@lab_test
def deep(lab):
    """A chain of 300,000 operations of one kind, too deep for any recursion."""
    for operation, length in ((ADD, 1), (ADD, 300000), (MUL, 300000), (SUM, 300000), (RELU, 300000)):
        seen = lab.run("chain", length=length, operation=operation)
        expect.equal("the value", seen["value"], float(length if operation == ADD else 1), seen)
        expect.equal("the gradient of the weight", seen["grad"], float(length if operation in (ADD, MUL) else 1), seen)
        expect.equal("the number of calls of its hook", seen["fired"], 1, seen)


@lab_test
def no_leak(lab):
    """A graph is freed with its results, whether or not backward went through it."""
    seen = lab.run("memory", size=10000, steps=24)
    early, late = max(seen["allocated"][2:4]), min(seen["allocated"][-2:])
    expect.at_most("what is allocated after 24 steps, more than after 4", (late - early) / 1000, 100, "kB", seen)
