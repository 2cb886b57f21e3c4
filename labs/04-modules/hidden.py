"""Hidden tests of lab 04: extreme logits, PyTorch's trajectories over 20 steps, decoupled decay, training."""
import json
import math
import pathlib

from labs.course.lab import load_sibling
from labs.course.testing import expect, floats, lab_test

HIDDEN_SEED = 55190467
_public = load_sibling(__file__, "public")
softmax_loss, follow, close = _public.softmax_loss, _public.follow, _public.close
some, flat, train, optimize = _public.some, _public.flat, _public.train, _public.optimize


@lab_test
def large_logits(lab):
    """Task 3: logits of 1000 and -1000 give finite losses; a NaN gives a NaN; impossible targets are refused."""
    rows = [[1000.0, 0.0, -1000.0], [-1000.0, 1000.0, 999.0], [5000.0, 5000.0, 5000.0], [-90.0, 10.0, 0.0]]
    for targets in ([0, 1, 2, 1], [2, 0, 0, 0]):
        seen = lab.run("cross_entropy", rows=4, classes=3, logits=floats(flat(rows)), targets=targets)
        loss, grad = softmax_loss(rows, targets)
        close("the loss", [seen["loss"]], [loss], seen)
        close("the gradient of the logits", seen["grad"], flat(grad), seen, 1e-6)
    rows = [[1000.0 * (j == top) for j in range(4)] for top in range(4)]  # the largest at each place
    rows += [[-1000.0 * (j != top) for j in range(4)] for top in range(4)]
    for classes, given, targets in ((4, rows, [0, 1, 2, 3, 1, 2, 3, 0]), (40000, [[0.0] * 40000], [39999])):
        seen = lab.run("cross_entropy", rows=len(given), classes=classes, logits=floats(flat(given)), targets=targets)
        loss, grad = softmax_loss(given, targets)
        close("the loss", [seen.get("loss", math.nan)], [loss], seen)
        close("the gradient of the logits", seen["grad"], flat(grad), seen, 1e-6)
    for place in range(4):
        logits = [1.0, 2.0, 3.0, 0.0]
        logits[place] = math.nan
        seen = lab.run("cross_entropy", rows=2, classes=2, logits=floats(logits), targets=[0, 1])
        loss = seen["loss"]
        expect.that(math.isnan(loss), f"logit {place} is NaN, and the loss is {loss}, must be NaN", seen)
    for targets, what in (([0, 3], "target 3 of 3 classes"), ([-1, 0], "target -1"), ([0], "one target for two rows"),
                          ([0, 1, 2], "three targets for two rows"), ([0, 1 << 32], "target 2^32 of 3 classes"),
                          ([1, 3 << 32], "target 3 * 2^32 of 3 classes"), ([1, 1 << 16], "target 65536 of 3 classes")):
        seen = lab.run("cross_entropy", rows=2, classes=3, logits=floats([1, 2, 3, 4, 5, 6]), targets=targets)
        expect.that("refused" in seen, f"{what}: must be refused with std::invalid_argument, and was accepted", seen)
    seen = lab.run("cross_entropy", rows=0, classes=3, logits=floats([0]), targets=[])
    expect.that("refused" in seen, "no rows: must be refused with std::invalid_argument, and was accepted", seen)


def torch_runs(lab, kind, names):
    """Compares twenty steps with those of torch 1.13 (torch.json, from the runtime's reference data in
    tests/reference/data/optim)."""
    with open(pathlib.Path(__file__).with_name("torch.json"), encoding="ascii") as file:
        runs = json.load(file)["runs"]
    for name in names:
        run = runs[name]
        expect.that(len(run["grads"]) == 20, f"torch.json: {name} has {len(run['grads'])} steps, not 20")
        follow(lab, kind, run["options"], run["values"], run["lengths"], run["grads"], [run["options"]["lr"]] * 20,
               run["trajectory"])


@lab_test
def torch_sgd(lab):
    """Task 4: PyTorch's own values over 20 steps of SGD: plain, decay, momentum, dampening."""
    torch_runs(lab, "sgd", ("sgd", "sgd_wd", "momentum", "momentum_dampening_wd"))


@lab_test
def torch_adamw(lab):
    """Task 5: PyTorch's own values over 20 steps of AdamW."""
    torch_runs(lab, "adamw", ("adamw", "adamw_wd"))


@lab_test
def decay(lab):
    """Task 5: the decay is decoupled: it does not enter m and v, and precedes the update."""
    zeros = [[0.0] * 5] * 4
    follow(lab, "adamw", {"lr": 0.5, "weight_decay": 0.5}, some(lab.random, 5), (5,), zeros, [0.5] * 4)
    follow(lab, "adamw", {"lr": 0.5, "weight_decay": 0.5}, some(lab.random, 5), (2, 3),
           [some(lab.random, 5) for _ in range(4)], [0.5, 0.25, 0.25, 0.125])
    follow(lab, "sgd", {"lr": 0.0, "momentum": 0.9, "weight_decay": 0.5}, some(lab.random, 5), (5,),
           [some(lab.random, 5) for _ in range(3)], [0.0] * 3)
    # Learning rates of 0 between others: the values stay, but the state changes. Options that are 0 or at their defaults.
    for kind, options in (("sgd", {"lr": 0.5}), ("sgd", {"lr": 0.5, "momentum": 0.75}),
                          ("sgd", {"lr": 0.5, "momentum": 0.5, "dampening": 0.5, "weight_decay": 0.25}),
                          ("adamw", {"lr": 0.5}), ("adamw", {"lr": 0.5, "beta1": 0.0}), ("adamw", {"lr": 0.5, "beta2": 0.0}),
                          ("adamw", {"lr": 0.5, "eps": 0.0, "weight_decay": 0.5})):
        for lrs in ([0.5, 0.0, 0.0, 0.25, 0.0, 0.5], [0.0, 0.5, 0.5, 0.0, 0.5, 0.5]):
            follow(lab, kind, options, some(lab.random, 5), (2, 3), [some(lab.random, 5) for _ in lrs], lrs)
    # Infinite gradients, and gradients of -0: a state must preserve both bit for bit.
    grads = [[-0.0, 1.0, -0.0, math.inf, -1.0], [-0.0, -0.0, 1.0, 1.0, -math.inf], [-0.0, -0.0, -0.0, -1.0, 2.0]]
    for kind, options in (("sgd", {"lr": 0.5, "momentum": 0.5}), ("adamw", {"lr": 0.5, "weight_decay": 0.0})):
        values, lrs = [-0.0, -0.0, 0.0, 1.0, 2.0], [0.5] * 3
        whole = optimize(lab, kind, options, values, (2, 3), grads, lrs)
        for at in (1, 2):
            seen = optimize(lab, kind, options, values, (2, 3), grads, lrs, resume_at=at)
            expect.same_bits(f"the trajectory with a new optimizer before step {at + 1}", seen["trajectory"],
                             whole["trajectory"], seen)
    for kind in ("sgd", "adamw"):  # 0 times infinity is NaN
        seen = optimize(lab, kind, {"lr": 0.0}, [1.0, 2.0], (2,), [[math.inf, 1.0]], [0.0])
        expect.same_bits("the parameters after a step with a learning rate of 0 and an infinite gradient",
                         seen["trajectory"], floats([math.nan, 2.0]), seen)


@lab_test
def training(lab):
    """Task 6: 20 steps over batches of 6, 6 and 4: every loss and the final parameters, against
    double precision."""
    for kind, options in (("sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
                          ("adamw", {"lr": 0.02, "eps": 1e-2, "weight_decay": 0.1})):
        train(lab, kind, options, 16, ([6, 6, 4] * 7)[:20])
    # Infinities in a layer, and zeros that meet them: 0 times infinity is NaN.
    inf = math.inf
    for x, weight, dy in (([0.0, 1.0], [inf, 2.0], [1.0]), ([inf, -inf], [0.0, 1.0], [1.0]), ([1.0, 2.0], [inf, 1.0], [0.0]),
                          ([inf, 1.0], [1.0, 1.0], [0.0]), ([1.0, 2.0], [3.0, 4.0], [-inf])):
        seen = lab.run("linear", rows=1, out=1, repeats=1, weight=floats(weight), bias=floats([1]), x=floats(x),
                       dy=floats(dy), **{"in": 2})
        expect.same_bits("y", seen["y"], floats([1 + x[0] * weight[0] + x[1] * weight[1]]), seen)
        expect.same_bits("the gradient of x", seen["dx"], floats(0 + dy[0] * w for w in weight), seen)
        expect.same_bits("the gradient of the weight", seen["dweight"], floats(0 + dy[0] * v for v in x), seen)
    seen = lab.run("train", optimizer="sgd", widths=[1, 2], values=floats([0, 0, -inf, 0]), x=floats([1]), targets=[0],
                   batches=[1], lr=0.5)
    expect.equal("the loss of a step with a logit of -infinity", list(seen["losses"]), [inf], seen)
