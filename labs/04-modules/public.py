"""Public tests of lab 04, which a student runs at every save."""
import math

from labs.course.testing import expect, floats, lab_test


def close(name, got, want, seen, relative=4e-6):
    """Checks equality within float rounding: the allowed difference is relative to the value, or to
    1 if that is larger."""
    got, want = list(got), list(want)
    expect.that(len(got) == len(want), f"{name} has {len(got)} elements, must have {len(want)}", seen)
    for i, (a, b) in enumerate(zip(got, want)):
        expect.that(a == b or abs(a - b) <= relative * max(1.0, abs(b)) < math.inf,
                    f"element {i} of {name} is {a!r}, must be {b!r}", seen)


# ---- the same computations again, in double and as simply as possible ----
def linear_forward(x, weight, bias):
    return [[sum(a * b for a, b in zip(row, w)) + c for w, c in zip(weight, bias)] for row in x]


def columns(matrix):
    return [list(column) for column in zip(*matrix)]


def flat(matrix):
    return [v for row in matrix for v in row]


def shaped(values, rows, cols):
    return [list(values[r * cols:(r + 1) * cols]) for r in range(rows)]


class Network:
    """Linear layers with ReLU between them. The parameters are in PyTorch's order; W has the shape (out, in)."""

    def __init__(self, widths, values):
        self.widths, self.weights, self.biases, at = widths, [], [], 0
        for ins, outs in zip(widths, widths[1:]):
            self.weights.append(shaped(values[at:at + ins * outs], outs, ins))
            self.biases.append(list(values[at + ins * outs:at + ins * outs + outs]))
            at += ins * outs + outs

    @staticmethod
    def count(widths):
        return sum(outs * (ins + 1) for ins, outs in zip(widths, widths[1:]))

    def values(self):
        return [v for w, b in zip(self.weights, self.biases) for v in flat(w) + b]

    def forward(self, x):
        self.inputs, self.closest = [], math.inf  # closest: smallest magnitude of a relu's input
        for k, (w, b) in enumerate(zip(self.weights, self.biases)):
            if k:
                self.closest = min([self.closest] + [abs(v) for row in x for v in row])
                x = [[v if v > 0 else 0.0 for v in row] for row in x]
            self.inputs.append(x)
            x = linear_forward(x, w, b)
        return x

    def backward(self, d):
        found = []
        for k in range(len(self.weights) - 1, -1, -1):
            dw = [[sum(p * q for p, q in zip(dc, xc)) for xc in columns(self.inputs[k])] for dc in columns(d)]
            found.insert(0, flat(dw) + [sum(dc) for dc in columns(d)])
            d = [[sum(g * w for g, w in zip(row, wc)) for wc in columns(self.weights[k])] for row in d]
            if k:
                d = [[g if v > 0 else 0.0 for g, v in zip(row, xs)] for row, xs in zip(d, self.inputs[k])]
        return [v for one in found for v in one]


def softmax_loss(logits, targets):
    """Returns the mean loss and its gradient."""
    total, grad = 0.0, []
    for row, target in zip(logits, targets):
        top = max(row)
        log_sum = math.log(math.fsum(math.exp(z - top) for z in row))
        total += log_sum - (row[target] - top)
        grad.append([(math.exp(z - top - log_sum) - (j == target)) / len(targets) for j, z in enumerate(row)])
    return total / len(targets), grad


class Sgd:
    def __init__(self, lr, momentum=0.0, dampening=0.0, weight_decay=0.0):
        self.momentum, self.dampening, self.weight_decay, self.buffers = momentum, dampening, weight_decay, None

    def step(self, values, grads, lr):
        d = [g + self.weight_decay * p for p, g in zip(values, grads)]
        self.buffers = d if self.buffers is None else [self.momentum * b + (1 - self.dampening) * e
                                                       for b, e in zip(self.buffers, d)]
        return [p - lr * e for p, e in zip(values, self.buffers if self.momentum else d)]


class AdamW:
    def __init__(self, lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
        self.beta1, self.beta2, self.eps, self.weight_decay = beta1, beta2, eps, weight_decay
        self.m = self.v = None
        self.t = 0

    def step(self, values, grads, lr):
        zeros = [0.0] * len(values)
        self.t += 1
        self.m = [self.beta1 * m + (1 - self.beta1) * g for m, g in zip(self.m or zeros, grads)]
        self.v = [self.beta2 * v + (1 - self.beta2) * g * g for v, g in zip(self.v or zeros, grads)]
        c1, c2 = 1 - self.beta1 ** self.t, 1 - self.beta2 ** self.t
        return [p * (1 - lr * self.weight_decay) - lr * (m / c1) / (math.sqrt(v / c2) + self.eps)
                for p, m, v in zip(values, self.m, self.v)]


REFERENCES = {"sgd": Sgd, "adamw": AdamW}


def optimize(lab, kind, options, values, lengths, grads, lrs, frozen=(), **how):
    return lab.run("optimize", optimizer=kind, values=floats(values), lengths=list(lengths), grads=floats(flat(grads)),
                   lrs=[float(lr) for lr in lrs], frozen=list(frozen) or [],
                   **{k: float(v) for k, v in options.items()}, **how)


def follow(lab, kind, options, values, lengths, grads, lrs, wanted=None, frozen=()):
    """Compares the optimizer's values after every step with the formulas (or with `wanted`, step by
    step)."""
    reference, now = REFERENCES[kind](**options), list(values)
    seen = optimize(lab, kind, options, values, lengths, grads, lrs, frozen)
    count = len(values)
    held = [sum(lengths[:p]) + i for p in frozen for i in range(lengths[p])]
    for step, (grad, lr) in enumerate(zip(grads, lrs)):
        now = reference.step(now, grad, lr)
        for i in held:
            now[i] = values[i]
        close(f"the parameters after step {step + 1}", seen["trajectory"][step * count:(step + 1) * count],
              now if wanted is None else wanted[step], seen)


def some(random, count, scale=1.0):
    """Numbers that are exact in float, so the driver receives the same values."""
    return list(floats(random.gauss(0, scale) for _ in range(count)))


def integers(random, count, low=-4, high=4):
    return [float(random.randint(low, high)) for _ in range(count)]


def reference_run(kind, options, widths, values, x, targets, batches):
    """Returns the losses, the final parameters, and the smallest magnitude of a relu's input."""
    optimizer, now, first, losses, closest = REFERENCES[kind](**options), list(values), 0, [], math.inf
    for rows in batches:
        first = 0 if first + rows > len(targets) else first
        network = Network(widths, now)
        loss, grad = softmax_loss(network.forward(x[first:first + rows]), targets[first:first + rows])
        losses.append(loss)
        closest = min(closest, network.closest)
        now = optimizer.step(now, network.backward(grad), options["lr"])
        first += rows
    return losses, now, closest


def train(lab, kind, options, samples, batches):
    """Compares every loss and the final parameters with double precision."""
    widths, closest = [5, 7, 3], 0.0
    while closest < 2e-5:  # near 0, rounding decides the side of a relu, so results cannot be compared
        values = some(lab.random, Network.count(widths), 0.5)
        targets = [lab.random.randrange(3) for _ in range(samples)]
        x = [list(floats(lab.random.gauss(j == t, 0.5) for j in range(5))) for t in targets]
        losses, now, closest = reference_run(kind, options, widths, values, x, targets, batches)
    seen = lab.run("train", optimizer=kind, widths=widths, values=floats(values), x=floats(flat(x)), targets=targets,
                   batches=batches, **{k: float(v) for k, v in options.items()})
    for step, loss in enumerate(losses):
        close(f"the loss of step {step + 1}", [seen["losses"][step]], [loss], seen, 1e-4)
    close(f"the parameters after {len(batches)} steps", seen["values"], now, seen, 2e-4)


# ---- the tests ----
@lab_test
def linear(lab):
    """Task 1: Linear forward and backward, exact on small integers; a second backward adds."""
    for rows, ins, outs, repeats in ((1, 1, 1, 1), (1, 3, 2, 1), (4, 2, 3, 1), (5, 7, 4, 2), (0, 3, 2, 1)):
        weight, bias = integers(lab.random, ins * outs), integers(lab.random, outs)
        x, dy = integers(lab.random, rows * ins), integers(lab.random, rows * outs)
        seen = lab.run("linear", rows=rows, out=outs, repeats=repeats, weight=floats(weight), bias=floats(bias),
                       x=floats(x or [0]), dy=floats(dy or [0]), **{"in": ins})
        expect.equal("the shapes of y and dx", list(seen["shapes"]), [rows, outs, rows, ins], seen)
        w, xs, ds = shaped(weight, outs, ins), shaped(x, rows, ins), shaped(dy, rows, outs)
        expect.equal("y", list(seen["y"]), flat(linear_forward(xs, w, bias)), seen)
        expect.equal("the gradient of x", list(seen["dx"]), [sum(row[o] * w[o][i] for o in range(outs))
                                                             for row in ds for i in range(ins)], seen)
        twice = f", after {repeats} backwards" if repeats > 1 else ""
        expect.equal("the gradient of the bias" + twice, list(seen["dbias"]),
                     [repeats * sum(row[o] for row in ds) for o in range(outs)], seen)
        expect.equal("the gradient of the weight" + twice, list(seen["dweight"]),
                     [repeats * sum(d[o] * row[i] for d, row in zip(ds, xs))
                      for o in range(outs) for i in range(ins)], seen)


@lab_test
def relu(lab):
    """Task 2: ReLU forward and backward: negative, zero, infinite; NaN stays NaN."""
    x = [3.0, -2.0, 0.0, math.inf, -math.inf, 1e-30]
    seen = lab.run("relu", x=floats(x), dy=floats([1, 2, 4, 8, 16, 32]))
    expect.equal("y", list(seen["y"]), [3.0, 0.0, 0.0, math.inf, 0.0, list(floats([1e-30]))[0]], seen)
    expect.equal("the gradient of x", list(seen["dx"]), [1.0, 0.0, 0.0, 8.0, 0.0, 32.0], seen)
    seen = lab.run("relu", x=floats([math.nan, -1.0]), dy=floats([1, 1]))
    expect.that(math.isnan(seen["y"][0]),
                f"relu(NaN) is {seen['y'][0]}, must be NaN: a failed training run would go unnoticed", seen)


@lab_test
def mlp(lab):
    """Task 2: the parameters of an MLP, its output, and all gradients, exactly."""
    for widths, rows in (([3, 2], 2), ([2, 5, 3], 4), ([4, 3, 5, 2], 3)):
        values = integers(lab.random, Network.count(widths), -2, 2)
        x, dy = integers(lab.random, rows * widths[0]), integers(lab.random, rows * widths[-1])
        seen = lab.run("mlp", widths=widths, rows=rows, values=floats(values), x=floats(x), dy=floats(dy), frozen=[])
        expect.equal("the lengths of the parameters", list(seen["lengths"]),
                     [n for ins, outs in zip(widths, widths[1:]) for n in (ins * outs, outs)], seen)
        network = Network(widths, values)
        expect.equal("the output", list(seen["y"]), flat(network.forward(shaped(x, rows, widths[0]))), seen)
        expect.equal("all gradients, one parameter after the other", list(seen["grads"]),
                     network.backward(shaped(dy, rows, widths[-1])), seen)


@lab_test
def hooks(lab):
    """Tasks 1 and 2: hooks run when a gradient is complete, before the layer below begins; hooks of
    frozen parameters do not run."""
    for frozen, repeats in (([], 1), ([], 2), ([0], 1), ([3], 1), ([0, 1, 4], 2), ([4, 5], 1)):
        widths, rows = [3, 4, 2, 3], 3
        values = integers(lab.random, Network.count(widths), 1, 3)  # no relu is off: every gradient is nonzero
        x, dy = integers(lab.random, rows * 3, 1, 4), integers(lab.random, rows * 3, 1, 4)
        seen = lab.run("mlp", widths=widths, rows=rows, values=floats(values), x=floats(x), dy=floats(dy),
                       frozen=frozen, hooked=1, repeats=repeats)
        expect.equal("the names of the parameters", seen["names"],
                     " ".join(f"linear{k}.{what}" for k in range(3) for what in ("weight", "bias")), seen)
        network, lengths = Network(widths, values), list(seen["lengths"])
        network.forward(shaped(x, rows, 3))
        once, log = network.backward(shaped(dy, rows, 3)), list(seen["log"])
        starts = [sum(lengths[:p]) for p in range(6)]
        places = [p for p in range(6) for _ in range(lengths[p])]
        want = [0.0 if places[i] in frozen else repeats * g for i, g in enumerate(once)]
        expect.equal(f"all gradients after {repeats} backwards, frozen parameters {frozen}", list(seen["grads"]), want, seen)
        expect.equal("how often the second callback of the end ran", seen["ends"], repeats, seen)
        free = [p for p in range(6) if p not in frozen]
        expect.equal("how often hooks and callbacks of the end ran", sorted(log), sorted((free + [-1]) * repeats), seen)
        for k in range(repeats):
            part = log[k * (len(free) + 1):(k + 1) * (len(free) + 1)]
            expect.equal("what runs last in a backward", part[-1], -1, seen)
            layers = [p // 2 for p in part[:-1]]
            expect.equal("the layers whose hooks ran, one after the other", layers, sorted(layers, reverse=True), seen)
            for n, p in enumerate(part[:-1]):
                then = seen[f"at.{k * (len(free) + 1) + n}"]
                for q in range(6):
                    got = list(then[starts[q]:starts[q] + lengths[q]])
                    if q == p:
                        done = [(k + 1) * once[i] for i in range(starts[q], starts[q] + lengths[q])]
                        expect.equal(f"when the hook of parameter {p} ran, its gradient", got, done, seen)
                    elif q // 2 < p // 2 and q not in frozen:
                        old = [k * once[i] for i in range(starts[q], starts[q] + lengths[q])]
                        expect.equal(f"when the hook of parameter {p} ran, the gradient of {q}, below it,", got, old, seen)
    values = integers(lab.random, Network.count([3, 4, 3]), 1, 3)
    seen = lab.run("mlp", widths=[3, 4, 3], rows=0, values=floats(values), x=floats([0]), dy=floats([0]), frozen=[], hooked=1)
    expect.equal("hooks and the callback of the end (-1) that ran for a batch of no rows", sorted(seen["log"]), [-1, 0, 1, 2, 3],
                 seen)
    expect.that(not any(seen["grads"]), f"a batch of no rows has the gradients {list(seen['grads'])}", seen)


@lab_test
def state(lab):
    """Tasks 4 and 5: a new optimizer that loads a state continues bit for bit; a frozen parameter
    does not change."""
    for kind, options in (("sgd", {"lr": 0.1}), ("sgd", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
                          ("adamw", {"lr": 0.1, "beta1": 0.5, "weight_decay": 0.25})):
        values, grads = some(lab.random, 7), [some(lab.random, 7) for _ in range(6)]
        lrs = [options["lr"]] * 3 + [options["lr"] / 10] * 3
        whole = optimize(lab, kind, options, values, (4, 0, 3), grads, lrs)
        for at in (0, 1, 2, 5):
            for used in (0, 1):
                seen = optimize(lab, kind, options, values, (4, 0, 3), grads, lrs, resume_at=at, used_before=used)
                expect.same_bits(f"the trajectory with a new optimizer before step {at + 1}", seen["trajectory"],
                                 whole["trajectory"], seen)
        seen = optimize(lab, kind, options, values, (4, 0, 3), grads, lrs, refuse=1)
        expect.same_bits("the trajectory of an optimizer that is to load a state of a number too many before each step",
                         seen["trajectory"], whole["trajectory"], seen)
        for frozen in ((0,), (2,)):
            follow(lab, kind, {**options, "weight_decay": 0.5}, values, (4, 0, 3), grads, lrs, frozen=frozen)
            part = [optimize(lab, kind, options, values, (4, 0, 3), grads, lrs, frozen, resume_at=at) for at in (-1, 2)]
            expect.same_bits(f"the trajectory with a new optimizer before step 3, parameter {frozen[0]} being frozen",
                             part[1]["trajectory"], part[0]["trajectory"], part[1])
        if kind == "sgd" and "momentum" not in options:
            continue  # plain SGD may have no state
        seen = lab.run("strange_state", optimizer=kind, **{k: float(v) for k, v in options.items()})
        expect.that(seen["of_others"], "a state of other parameters: must be refused with std::invalid_argument, and was "
                    "accepted", seen)
        expect.that(not seen["accepted"], f"states of {sorted(set(seen['accepted']))} numbers, where there are none of that "
                    "length: must be refused with std::invalid_argument, and were accepted", seen)


@lab_test
def cross_entropy(lab):
    """Task 3: the mean loss of a batch, and its gradient."""
    for rows, classes in ((1, 2), (3, 4), (8, 10), (5, 1)):
        logits = some(lab.random, rows * classes, 2.0)
        targets = [lab.random.randrange(classes) for _ in range(rows)]
        seen = lab.run("cross_entropy", rows=rows, classes=classes, logits=floats(logits), targets=targets)
        loss, grad = softmax_loss(shaped(logits, rows, classes), targets)
        close("the loss", [seen["loss"]], [loss], seen)
        close("the gradient of the logits", seen["grad"], flat(grad), seen, 1e-6)


@lab_test
def sgd(lab):
    """Task 4: SGD: plain, with momentum, dampening, decay; the learning rate changes during the
    run."""
    for options in ({"lr": 0.5}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "weight_decay": 0.25},
                    {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "weight_decay": 0.1},
                    {"lr": 0.1, "dampening": 0.75}, {"lr": 0.1, "momentum": 0.5, "dampening": 1.0},
                    {"lr": 0.1, "momentum": 0.9, "dampening": 0.75}):
        values, grads = some(lab.random, 7), [some(lab.random, 7) for _ in range(6)]
        if options.get("momentum") == 0.9 and "dampening" in options:
            grads[0] = [0.0] * 7  # still the first step: the next step must not initialize the buffer
        follow(lab, "sgd", options, values, (4, 0, 3), grads, [options["lr"]] * 3 + [options["lr"] / 10] * 3)


@lab_test
def adamw(lab):
    """Task 5: AdamW: the first steps, a large eps, a changing learning rate."""
    for options in ({"lr": 0.1, "weight_decay": 0.0}, {"lr": 0.1},
                    {"lr": 0.1, "eps": 0.1, "beta1": 0.5, "beta2": 0.75}):
        values, grads = some(lab.random, 7), [some(lab.random, 7) for _ in range(6)]
        follow(lab, "adamw", options, values, (4, 0, 3), grads, [0.1] * 3 + [0.01] * 3)


@lab_test
def two_steps(lab):
    """Task 6: two steps over batches of 3 and 2: both losses, and the parameters."""
    train(lab, "sgd", {"lr": 0.1, "momentum": 0.9}, 5, [3, 2])
