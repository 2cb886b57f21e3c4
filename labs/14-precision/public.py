"""Public tests of lab 14, which a student runs after every save. hidden.py uses the formats and Training too."""
import array
import functools
import math
import struct

from labs.course.testing import expect, floats, lab_test

FORMATS = ("bf16", "f16")
INFINITE = {"bf16": 0x7F80, "f16": 0x7C00}   # code of infinity
QUIET = {"bf16": 0x7FC0, "f16": 0x7E00}      # bits that every quiet NaN has
BEYOND = {"bf16": 2.0 ** 128, "f16": 65536.0}  # would follow the largest finite number
BROKEN = 1000                                # batches from here on are broken
START = (65536.0, 2.0, 0.5, 2000.0, 0.0)     # a scaler: scale, growth_factor, backoff_factor, interval, tracker


def f32(x):
    return floats([x])[0]


def from_bits(bits):
    return array.array("f", array.array("I", bits).tobytes())


def bits_of(values):
    return array.array("I", values.tobytes())


@functools.cache
def values_of(form):
    """Returns the value of each code, from Python: f16 by the module struct, bf16 as the upper half of a float."""
    if form == "f16":
        return struct.unpack("<65536e", array.array("H", range(65536)).tobytes())
    return tuple(from_bits(code << 16 for code in range(65536)))


def encode(form, x):
    """Returns the code of the nearest number by another method than the task's: exact arithmetic in
    double, and Python's round(), which rounds ties to even."""
    sign = 0x8000 if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return sign | QUIET[form]
    if math.isinf(x):
        return sign | INFINITE[form]
    fraction, least = (8, -133) if form == "bf16" else (11, -24)
    quantum = math.ldexp(1, max(math.frexp(x)[1] - fraction, least))
    nearest = round(abs(x) / quantum) * quantum
    if nearest >= BEYOND[form]:
        return sign | INFINITE[form]
    if form == "bf16":
        return sign | bits_of(floats([nearest]))[0] >> 16
    return sign | struct.unpack("<H", struct.pack("<e", nearest))[0]


def show(x):
    return f"{x!r} ({x.hex()})" if math.isfinite(x) else repr(x)


def decodes(lab, form):
    """Checks the floats of all 65,536 codes."""
    seen, want = lab.run("to_floats", f16=form == "f16"), floats(values_of(form))
    got, wrong = seen["values"], []
    for first in (0, 0x8000):
        nans = first + INFINITE[form] + 1
        if got[first:nans].tobytes() != want[first:nans].tobytes():
            wrong += [c for c in range(first, nans) if got[c] != want[c] or math.copysign(1, got[c]) != math.copysign(1, want[c])]
        wrong += [c for c in range(nans, first + 0x8000) if not math.isnan(got[c])]
    if wrong:
        expect.that(False, f"from_{form}({wrong[0]:#06x}) is {got[wrong[0]]!r}, must be {want[wrong[0]]!r}", seen)


def encodes(lab, form, values, want):
    """Checks to_bf16 or to_f16 of `values` (array of float) against the codes `want`, where None is any quiet NaN."""
    seen = lab.run("to_codes", f16=form == "f16", values=values)
    got = array.array("H", seen["codes"])
    expect.equal("the number of codes", len(got), len(want), seen)
    if list(got) == want:
        return
    for at, (code, must) in enumerate(zip(got, want)):
        if must is None:
            bits = bits_of(values)[at]
            expect.that(code & QUIET[form] == QUIET[form],
                        f"to_{form} of the NaN with the bits {bits:#010x} is {code:#06x}, which is not a quiet NaN", seen)
        elif code != must:
            x, a, b = values[at], values_of(form)[code], values_of(form)[must]
            expect.that(False, f"to_{form}({show(x)}) is {code:#06x}, which is {a!r}; must be {must:#06x}, {b!r}", seen)


@functools.cache
def at_every_code(form):
    """Returns each finite number of a format, its midpoint to the next, and the floats next to the
    midpoint: (bits, codes)."""
    value = values_of(form)[:INFINITE[form]]
    middle = bits_of(floats(a / 2 + b / 2 for a, b in zip(value, [*value[1:], BEYOND[form]])))
    bits = [b for exact, half in zip(bits_of(floats(value)), middle) for b in (exact, half - 1, half, half + 1)]
    codes = [c for code in range(INFINITE[form]) for c in (code, code, code + code % 2, code + 1)]
    return bits + [1 << 31 | b for b in bits], codes + [0x8000 | c for c in codes]


NANS = [sign << 31 | 0x7F800000 | payload for sign in (0, 1)
        for payload in (*(1 << n for n in range(23)), 0x7FFFFF, 0x3FFFFF, 0xFFFF, 0x1FFF, 0x2001, 0x400001)]


def rounding(lab, form, examples):
    decodes(lab, form)
    encodes(lab, form, floats(x for x, _ in examples), [encode(form, x) for x, _ in examples])
    for x, y in examples:
        assert values_of(form)[encode(form, x)] == y
    bits, codes = at_every_code(form)
    encodes(lab, form, from_bits(bits), codes)
    beyond = [2.0 ** 16, 2.0 ** 24, 2.0 ** 31, 2.0 ** 40, 3e38, math.inf, 1e-8, 2.0 ** -40, 2.0 ** -126, 2.0 ** -149]
    values = floats(x for b in beyond for x in (b, -b))
    encodes(lab, form, values, [encode(form, x) for x in values])
    encodes(lab, form, from_bits(NANS), [None] * len(NANS))


@lab_test
def bf16(lab):
    """Task 1: all codes of bf16, values between two of them, infinities and NaNs."""
    rounding(lab, "bf16", [(0.0, 0.0), (1.0, 1.0), (-2.5, -2.5), (256.0, 256.0), (257.0, 256.0), (258.0, 258.0),
                           (259.0, 260.0), (1.00390625, 1.0), (3.4e38, math.inf)])


@lab_test
def f16(lab):
    """Task 2: all codes of f16, including subnormal ones, values between two of them, infinities and NaNs."""
    rounding(lab, "f16", [(0.0, 0.0), (1.0, 1.0), (-2.5, -2.5), (2048.0, 2048.0), (2049.0, 2048.0), (2051.0, 2052.0),
                          (65504.0, 65504.0), (65519.0, 65504.0), (65520.0, math.inf), (2.0 ** -24, 2.0 ** -24),
                          (2.0 ** -25, 0.0), (2.0 ** -26, 0.0), (3 * 2.0 ** -25, 2.0 ** -23)])


class Scaler:
    """Reference for lab14::GradScaler. state: a list of the five numbers of ScalerState."""

    def __init__(self, state=START):
        self.state, self.looked, self.found = list(state), False, False

    def scale(self, loss):
        return f32(f32(loss) * self.state[0])

    def unscale(self, gradients):
        """Unscales a list of values in place. Returns whether any was not finite."""
        inverse = f32(1 / self.state[0])
        self.looked, self.found = True, not all(math.isfinite(g) for g in gradients)
        gradients[:] = [f32(g * inverse) for g in gradients]
        return self.found

    def update(self):
        self.looked = False
        if self.found:
            self.state[4] = 0.0
            self.state[0] = f32(self.state[0] * self.state[2])
            return
        self.state[4] += 1
        if self.state[4] == self.state[3]:
            self.state[4] = 0.0
            grown = f32(self.state[0] * self.state[1])
            self.state[0] = grown if math.isfinite(grown) else self.state[0]


NAMES = ("the scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker")


class Deeds:
    """A script for the driver's two scalers, A and B, and the expected results."""

    def __init__(self):
        self.scalers = {"A": Scaler(), "B": Scaler()}
        self.request = {"deeds": "", "states": [], "gradients": [], "losses": [], "shapes": []}
        self.said, self.want_unscaled, self.want_scaled = [], [], []

    def note(self, deed, thrown="", found=-1):
        self.request["deeds"] += deed
        self.said.append((deed, thrown, found, [*self.scalers["A"].state, *self.scalers["B"].state]))

    def load(self, state, who="A", refused=False):
        self.request["states"] += [float(x) for x in state]
        if not refused:
            self.scalers[who].state = [f32(float(state[0])), *(float(x) for x in state[1:])]
        self.note(who + "l", "invalid_argument" if refused else "")

    def transfer(self):
        self.scalers["B"].state = list(self.scalers["A"].state)
        self.note("Bt")

    def scale(self, loss, who="A"):
        self.request["losses"].append(float(loss))
        self.want_scaled.append(self.scalers[who].scale(loss))
        self.note(who + "x")

    def unscale(self, *parameters, who="A"):
        scaler, values = self.scalers[who], [f32(float(g)) for one in parameters for g in one]
        self.request["shapes"] += [len(parameters), *(len(one) for one in parameters)]
        self.request["gradients"] += values
        if scaler.looked:
            self.note(who + "u", "logic_error")
        else:
            self.note(who + "u", found=int(scaler.unscale(values)))
        self.want_unscaled += values

    def update(self, who="A"):
        scaler = self.scalers[who]
        if scaler.looked:
            scaler.update()
            self.note(who + "p", "runtime_error" if scaler.state[0] == 0 else "")
        else:
            self.note(who + "p", "logic_error")

    def check(self, lab):
        seen = lab.run("scaler", deeds=self.request["deeds"], states=array.array("d", self.request["states"] or [0.0]),
                       gradients=floats(self.request["gradients"]), losses=floats(self.request["losses"]),
                       shapes=self.request["shapes"])
        thrown, long_name = seen["thrown"].split(" "), {"l": "load", "u": "unscale", "p": "update", "x": "scale", "t": "load"}
        for at, (deed, error, found, states) in enumerate(self.said):
            call = f"call {at + 1}, {long_name[deed[1]]} of scaler {deed[0]},"
            if thrown[at] != error:
                expect.that(False, f"{call} throws {thrown[at] or 'nothing'}, must throw {error or 'nothing'}", seen)
            if not error:
                expect.equal(f"{call} says that a gradient is not finite: it", seen["found"][at], found, seen)
            for who, first in (("A", 0), ("B", 5)):
                for name, got, want in zip(NAMES, seen["states"][10 * at + first:], states[first:first + 5]):
                    expect.that(got == want, f"after {call} {name} of scaler {who} is {got!r}, must be {want!r}", seen)
        expect.same_bits("the scaled losses", seen["scaled"], floats(self.want_scaled), seen)
        expect.same_bits("the unscaled gradients", seen["unscaled"], floats(self.want_unscaled), seen)


@lab_test
def scaler(lab):
    """Tasks 3 and 4: a non-finite step halves the scale, three good steps in a row double it."""
    do = Deeds()
    do.scale(3)
    do.load((8, 2, 0.5, 3, 0))
    do.scale(1.5)
    for bad in (None, None, math.inf, None, None, None, None, -math.inf, math.nan, None):
        do.unscale([8, -16, 0.5], [1e30 if bad is None else bad])
        do.update()
    do.transfer()
    for who in "AB":
        for _ in range(4):
            do.unscale([1], who=who)
            do.update(who=who)
    do.check(lab)


class Training:
    """The toy model on some ranks, and the expected result of training it, computed with Python's numbers, rounded to
    float after every operation. offset and slope: one list per rank, batches * size numbers."""

    def __init__(self, form, world, masters, offset, slope=None, accumulate=1, lr=0.5, momentum=0.0, state=START):
        self.form, self.world, self.size = form, world, len(masters)
        self.initial = [f32(m) for m in masters]
        self.offset = [[f32(x) for x in row] for row in offset]
        self.slope = [[f32(x) for x in row] for row in slope] if slope else [[0.0] * len(row) for row in offset]
        self.accumulate, self.lr, self.momentum, self.first = accumulate, f32(lr), f32(momentum), state

    def request(self):
        values = {"world": self.world, "size": self.size, "f16": self.form == "f16",
                  "masters": floats(self.initial)}
        for rank in range(self.world):
            values[f"offset.{rank}"], values[f"slope.{rank}"] = floats(self.offset[rank]), floats(self.slope[rank])
        return values

    def gradient(self, rank, batch, weights, factor):
        """Returns the gradients as floats, each rounded to 16 bits."""
        found = []
        for i, code in enumerate(weights):
            at = batch * self.size + i
            g = f32(self.offset[rank][at] + f32(self.slope[rank][at] * values_of(self.form)[code]))
            found.append(values_of(self.form)[encode(self.form, f32(factor * g))])
        return found

    def average(self, grads):
        total = grads[0]
        for other in grads[1:]:
            total = [f32(a + b) for a, b in zip(total, other)]
        return [f32(g / self.world) for g in total]

    def expected(self, epochs):
        """Returns steps made, masters and state of each epoch; calls of backward as (epoch, step, batch, factor, codes)."""
        scaler, masters, velocity = Scaler(self.first), list(self.initial), [0.0] * self.size
        outcomes, calls, self.reductions = [], [], 0
        for epoch, batches in enumerate(epochs):
            made = 0
            for first in range(0, len(batches), self.accumulate):
                group = batches[first:first + self.accumulate]
                factor = f32(f32(1 / len(group)) * scaler.state[0])
                weights = [encode(self.form, m) for m in masters]
                grads = [[0.0] * self.size for _ in range(self.world)]
                for batch in group:
                    calls.append((epoch, first // self.accumulate, batch, factor, weights))
                    if batch >= BROKEN:
                        made = -1
                        break
                    for rank in range(self.world):
                        new = self.gradient(rank, batch, weights, factor)
                        grads[rank] = [f32(a + b) for a, b in zip(grads[rank], new)]
                if made < 0:
                    break
                self.reductions += 1
                mean = self.average(grads)
                if not scaler.unscale(mean):
                    velocity = [f32(f32(self.momentum * v) + g) for v, g in zip(velocity, mean)]
                    masters = [f32(m - f32(self.lr * v)) for m, v in zip(masters, velocity)]
                    made += 1
                scaler.update()
            outcomes.append((made, list(masters), list(scaler.state)))
        return outcomes, calls


def train(lab, training, epochs, **how):
    """Runs the epochs (lists of batches) and compares every rank with the reference, call by call."""
    plan = [b for batches in epochs for b in [*batches, -1]]
    seen = lab.run("train", accumulate=training.accumulate, plan=plan, lr=training.lr, momentum=training.momentum,
                   scaler=array.array("d", training.first), **training.request(), **how)
    outcomes, calls = training.expected(epochs)
    for rank in range(training.world):
        compare_calls(seen, rank, training, calls)
        for epoch, (made, masters, state) in enumerate(outcomes):
            when = f"after epoch {epoch} on rank {rank}"
            for name, got, want in zip(NAMES, seen[f"states.{rank}"][5 * epoch:], state):
                expect.that(got == want, f"{name} {when} is {got!r}, must be {want!r}", seen)
            expect.equal(f"the number of steps made in epoch {epoch} on rank {rank}", seen[f"made.{rank}"][epoch], made, seen)
            part = seen[f"masters.{rank}"][training.size * epoch:][:training.size]
            expect.same_bits(f"the masters {when}", part, floats(masters), seen)
    one_reduction(seen, training.reductions, training.size, training.world)
    return outcomes


def compare_calls(seen, rank, training, calls):
    codes, size = array.array("H", seen[f"weights.{rank}"]), training.size
    for at, (epoch, step, batch, factor, weights) in enumerate(calls[:len(seen[f"batches.{rank}"])]):
        call = f"epoch {epoch}, step {step}, batch {batch} on rank {rank}"
        expect.equal(f"{call}: the batch given to backward", seen[f"batches.{rank}"][at], batch, seen)
        got = list(codes[size * at:size * (at + 1)])
        for i, (a, b) in enumerate(zip(got, weights)):
            value = values_of(training.form)
            expect.that(a == b, f"{call}: weight {i} is {value[a]!r}, must be {value[b]!r}", seen)
        got = seen[f"factors.{rank}"][at]
        expect.that(got == factor, f"{call}: backward is given the factor {got!r}, must be {factor!r}", seen)
    expect.equal(f"the number of batches that rank {rank} computes", len(seen[f"batches.{rank}"]), len(calls), seen)


def one_reduction(seen, steps, size, world):
    if world == 1 and not seen["kinds"]:
        return  # a single rank needs no collective
    expect.equal("the number of all-reduces", f"{len(seen['kinds'])} in {steps} steps", f"{steps} in {steps} steps", seen)
    for at, (kind, elements) in enumerate(zip(seen["kinds"], seen["elements"])):
        expect.that(kind == 1, f"collective #{at} is a broadcast", seen)
        expect.at_most(f"all-reduce #{at}", elements, size + 1, "elements", seen)


PLAIN = (1.0, 2.0, 0.5, 1e9, 0.0)  # a scaler that does nothing


@lab_test
def backward(lab):
    """Tasks 5 and 6: gradients add up in f32; a backward averages them over the ranks unless a NoSync is alive."""
    for form in FORMATS:
        # 256 + 1 + 1 is 258, which bf16 can represent, but not the intermediate 257.
        replica(lab, form, 1, "nns", [[256.0, 1.0, 1.0]])
        for world in (1, 2, 4):
            rows = [[float(2 ** (b % 8 + r) + b) for b in range(9)] for r in range(world)]
            replica(lab, form, world, "szsnsznns" if form == "f16" else "mszns", rows)


def replica(lab, form, world, script, rows):
    """Runs a script of backward passes whose gradients are the rows' (times 1, 3 and -1: three weights)."""
    spread = [[x * k for x in row for k in (1, 3, -1)] for row in rows]
    training = Training(form, world, [1.0, 2.0, 3.0], spread)
    seen = lab.run("replica", script=script, **training.request())
    weights = [encode(form, m) for m in training.initial]
    grads, batch, reductions = [[0.0] * 3 for _ in range(world)], 0, 0
    for at, deed in enumerate(script):
        if deed == "f":  # another model in the other format; reports its gradients once
            other = Training(FORMATS[form == FORMATS[0]], world, training.initial, spread)
            codes = [encode(other.form, m) for m in other.initial]
            mean = other.average([other.gradient(rank, batch, codes, 1.0) for rank in range(world)])
            reductions += 1
        for _ in range({"s": 1, "o": 1, "n": 1, "m": 2, "x": 1}.get(deed, 0)):
            for rank in range(world):
                new = training.gradient(rank, batch, weights, 1.0)
                grads[rank] = [f32(a + b) for a, b in zip(grads[rank], new)]
            batch += 1
        if deed in "so":
            reductions += 1
            grads = [training.average(grads) for _ in range(world)]
        if deed == "z":
            grads = [[0.0] * 3 for _ in range(world)]
        for rank in range(world):
            name = f"grad() on rank {rank} after deed {at} ({deed})"
            if deed == "f":
                name = f"grad() on rank {rank} of another model in the same program ({other.form}, this one {form})"
            want = mean if deed == "f" else grads[rank]
            expect.same_bits(name, seen[f"grads.{rank}"][3 * at:3 * at + 3], floats(want), seen)
    one_reduction(seen, reductions, 3, world)


@lab_test
def masters(lab):
    """Task 7: bf16 cannot represent 256.5, but the masters can: updates of a half add up."""
    train(lab, Training("bf16", 1, [256.0, 1.0, -3.0], [[-1.0, -0.001, 0.25]], state=PLAIN), [[0]] * 6)
    train(lab, Training("f16", 1, [2048.0, 1.0, -3.0], [[-1.0, -0.0001, 0.25]], state=PLAIN), [[0]] * 6)


@lab_test
def small_gradients(lab):
    """Task 7: f16 cannot represent 2^-26. Scaled by 65536, it survives backward."""
    train(lab, Training("f16", 2, [0.0, 0.0], [[2.0 ** -26, 2.0 ** -30], [2.0 ** -25, 2.0 ** -32]]), [[0]] * 2)


@lab_test
def accumulation(lab):
    """Task 8: five batches as 2 + 2 + 1, each group weighted by its size; one all-reduce per step."""
    for world in (1, 2, 4):
        offset = [[float((b * 5 + r * 3 + i) % 13 - 6) for b in range(5) for i in range(2)] for r in range(world)]
        state = (16.0, 2.0, 0.5, 2.0, 0.0)
        train(lab, Training("f16", world, [3.0, 5.0], offset, accumulate=2, state=state), [[0, 1, 2, 3, 4]])
        train(lab, Training("bf16", world, [3.0, 5.0], offset, accumulate=2, state=PLAIN), [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])


def with_overflow(world, size, batches, where, value=1e6):
    """Returns small integer gradients. where: (rank, batch, weight) of a gradient that overflows f16."""
    offset = [[float((b * 7 + r * 3 + i * 5) % 11 - 5) for b in range(batches) for i in range(size)] for r in range(world)]
    for rank, batch, weight in where:
        offset[rank][batch * size + weight] = value
    return offset


@lab_test
def one_rank_overflows(lab):
    """Task 7: one rank's gradient is infinite. No rank makes the step, and the scale is halved on all ranks."""
    for world in (1, 2, 4):
        offset = with_overflow(world, 3, 6, [(world - 1, 2, 1)])
        training = Training("f16", world, [1.0, 2.0, 4.0], offset, state=(8.0, 2.0, 0.5, 3.0, 0.0), momentum=0.5)
        outcomes = train(lab, training, [[0, 1, 2, 3, 4, 5]])
        assert outcomes[0][0] == 5


DIM, STEPS = 1024.0, 400
KINDS = ("fall", "jump", "wave", "spikes")


def gradients(rng, kind):
    """Returns the largest gradient of each step of a training run: noise around a level that falls, jumps, goes up and
    down, or has spikes."""
    level, out = rng.uniform(-14, 4), []
    for step in range(STEPS):
        if kind == "fall":
            level -= 14 / STEPS
        if kind == "jump" and step % 100 == 50:
            level += rng.choice([-6, -4, 4, 6])
        spike = rng.uniform(3, 9) if kind == "spikes" and rng.random() < 0.03 else 0
        wave = 4 * math.sin(step / 40) if kind == "wave" else 0
        out.append(2.0 ** (level + wave + spike + rng.gauss(0, 0.6)))
    return floats(out)


def fault(largest, scale):
    """Returns "skipped", "dim" or "", as task 9 defines them."""
    scaled = values_of("f16")[encode("f16", f32(largest * scale))]
    return "skipped" if math.isinf(scaled) else "dim" if scaled < DIM else ""


def with_grad_scaler(runs, interval, factor):
    """Returns the number of faults with a GradScaler that grows and backs off by this factor."""
    count = 0
    for largest in runs:
        scaler = Scaler((65536.0, factor, 1 / factor, interval, 0.0))
        for x in largest:
            found = fault(x, scaler.state[0])
            count += found != ""
            scaler.unscale([math.inf if found == "skipped" else 1.0])
            scaler.update()
    return count


def chooses(lab, share):
    """Compares the faults in runs of all kinds with the best GradScaler of a grid, chosen with hindsight."""
    runs = [gradients(lab.random, kind) for kind in KINDS]
    best, interval, factor = min((with_grad_scaler(runs, interval, factor), interval, factor)
                                 for interval in (2, 5, 10, 20, 50, 100, 2000) for factor in (2.0, 4.0))
    count, text = 0, []
    for kind, largest in zip(KINDS, runs):
        seen = lab.run("choice", kind=kind, largest=largest)
        expect.equal("the number of scales", len(seen["scales"]), STEPS, seen)
        for step, scale in enumerate(seen["scales"]):
            expect.that(0 < scale < math.inf, f"the scale of step {step} is {scale!r}, must be finite and above 0", seen)
        found = [fault(x, scale) for x, scale in zip(largest, seen["scales"])]
        count += len(found) - found.count("")
        text.append(f"{kind}: {found.count('skipped')} skipped, {found.count('dim')} dim")
    expect.that(count <= share * best,
                f"{count} steps with a fault ({'; '.join(text)}), must be at most {math.floor(share * best)}: {share:g} of the "
                f"{best} of a GradScaler with interval {interval} and factor {factor:g}", seen)


@lab_test
def choice(lab):
    """Task 9: a scale of your own has fewer faults than the best GradScaler."""
    chooses(lab, 1)
