"""Hidden tests of lab 08: several steps, failing replicas, the traffic of the root's links, the
root's memory."""
import math
import pathlib

from labs.course.lab import load_module
from labs.course.testing import expect, floats, lab_test

public = load_module(pathlib.Path(__file__).with_name("public.py"))
train, parts_of, filled = public.train, public.parts_of, public.filled

HIDDEN_SEED = 61907733


@lab_test
def steps(lab):
    """The optimizer writes to the root's parameters: every forward begins with new copies."""
    for devices, rows in ((2, 4), (3, 7), (4, 3)):
        train(lab, devices, rows, inputs=1, outputs=1, steps=2)
    rows = [-0.0, math.inf, math.nan, -math.inf, 1e-45, 0.0, -1e-45]  # numbers are copied bit by bit
    seen = lab.run("pieces", devices=3, rows=7, width=1, parts=[0, 3, 3, 3, 6, 1], x=floats(rows))
    expect.same_bits("the result of gather", seen["whole"], floats(rows), seen)
    for at in range(4):
        for dy in (math.inf, -math.inf, math.nan, 3e38):
            grads = [1.0] * 4
            grads[at] = dy
            seen = lab.run("train", devices=4, rows=4, inputs=1, outputs=1, steps=1, replicas=4, x=floats([1.0] * 4),
                           dy=floats(grads))
            for p in range(2):
                expect.same_bits(f"the gradient of parameter {p}", seen[f"gradient.{p}"], floats([sum(floats(grads))]), seen)


@lab_test
def failures(lab):
    """A replica that throws is named, whatever its message; all are waited for; the next step
    works."""
    for replicas, failing, words in ((1, [0], "x"), (12, [11, 2, 10], "no memory"), (5, [4], ""),
                                     (3, [0, 2], ""), (2, [1], "replica 0: no memory\ntwo lines")):
        public.apply(lab, replicas, failing, words)
    for when in "fb":
        for devices, failing in ((2, [1]), (4, [2]), (4, [3, 1]), (3, [0, 1, 2]), (8, [7])):
            seen = train(lab, devices, 2 * devices, steps=2, fail=when, failing=failing)
            first = min(failing)
            expect.equal("the error that the caller gets", seen["said"], f"replica {first}: out of memory on device {first}", seen)
            for device in range(1, devices):
                expect.equal(f"bytes held on device {device} after the second step", seen["held"][device], 0, seen)


def wires(seen, devices):
    table = [list(seen["wires"][devices * i:devices * (i + 1)]) for i in range(devices)]
    return table, [row[0] for row in table]


@lab_test
def traffic(lab):
    """A step's bytes: (N-1) P from the root and (N-1) P back, and each row once in each direction it needs."""
    inputs, outputs = 5, 7
    size = 4 * outputs * (inputs + 1)
    for devices in (1, 2, 3, 4, 8):
        for rows in (devices, 2 * devices + 1, 1):
            parts = parts_of(rows, devices)
            seen = train(lab, devices, rows, inputs, outputs)
            out, back = wires(seen, devices)
            for i in range(1, devices):
                count = parts[i][1] if i < len(parts) else 0
                used = int(i < len(parts))
                expect.equal(f"bytes from the root to device {i}", out[0][i], used * size + 4 * count * (inputs + outputs), seen)
                expect.equal(f"bytes from device {i} to the root", back[i], used * size + 4 * count * outputs, seen)
                expect.equal(f"bytes from device {i} to other devices", sum(out[i][1:]), 0, seen)
            rows_bytes = 4 * sum(count for _, count in parts[1:]) * (inputs + 2 * outputs)
            expect.equal("bytes over the root's links", sum(out[0]) + sum(back),
                         2 * (len(parts) - 1) * size + rows_bytes, seen)
    batches = (3, 3, 2, 6, 3)  # forwards without a backward: each sends the parameters again
    seen = lab.run("by_turns", devices=[3, 1], ops=[n for rows in batches for n in (0, 0, rows, 5, len(parts_of(rows, 3)))],
                   inputs=inputs, outputs=outputs)
    out, back = wires(seen, 3)
    for i in (1, 2):
        counts = [parts_of(rows, 3)[i][1] for rows in batches if i < len(parts_of(rows, 3))]
        expect.equal(f"bytes from the root to device {i} in {len(batches)} forwards", out[0][i],
                     len(counts) * size + 4 * sum(counts) * inputs, seen)
        expect.equal(f"bytes from device {i} to the root in {len(batches)} forwards", back[i], 4 * sum(counts) * outputs, seen)


@lab_test
def memory(lab):
    """The root holds parameters, their gradient, one that arrives, and rows: not the gradients of
    all replicas."""
    inputs, outputs = 64, 32
    size = 4 * outputs * (inputs + 1)
    for devices in (2, 4, 8):
        rows = devices
        seen = train(lab, devices, rows, inputs, outputs)
        data = 4 * rows * (2 * inputs + 4 * outputs)
        expect.at_most("the root holds at most", seen["most"][0], 3 * size + data, "bytes", seen)
        # All buffers are on the heap. The rest of the heap is on no device: for example, gradients in a std::vector.
        expect.at_most("memory outside of all devices", seen["heap"] - sum(seen["most"]), 2 * size, "bytes", seen)
        for device in range(1, devices):
            expect.at_most(f"device {device} holds at most", seen["most"][device], 2 * size + data, "bytes", seen)
            expect.equal(f"bytes held on device {device} after the step", seen["held"][device], 0, seen)
    # Forward passes without a backward pass: each one frees the data that the previous one kept.
    seen = lab.run("by_turns", devices=[3, 1], ops=[0, 0, 3, 5, 3] * 4, inputs=inputs, outputs=outputs)
    for device in (1, 2):
        expect.at_most(f"device {device} holds at most, in four forwards", seen["most"][device],
                       2 * size + 4 * 3 * (2 * inputs + 4 * outputs), "bytes", seen)


@lab_test
def by_turns(lab):
    """Two objects in one process, batches of different sizes: backward belongs to the last forward
    of its object."""
    counts = (lab.random.choice((3, 4)), lab.random.choice((2, 5)))
    plan = [(0, 0, 7), (1, 0, 3), (0, 1, 7), (0, 0, 2), (0, 0, 5), (1, 1, 3), (0, 1, 5), (1, 0, 11), (0, 0, 1),
            (1, 1, 11), (0, 1, 1), (0, 0, 9), (1, 0, 0), (0, 1, 9), (1, 1, 0)]
    ops = [(one, kind, rows, 30 + k, len(parts_of(rows, counts[one]))) for k, (one, kind, rows) in enumerate(plan)]
    inputs, outputs = 2, 3
    seen = lab.run("by_turns", devices=counts, ops=[n for op in ops for n in op], inputs=inputs, outputs=outputs)
    expect.that(not seen["alone"], "a replica computed alone for 3 s: the others must run at the same time", seen)
    models = [public.OneDevice(inputs, outputs), public.OneDevice(inputs, outputs)]
    for k, (one, kind, rows, salt, _) in enumerate(ops):
        if kind == 0:
            want = models[one].forward(filled(rows, inputs, salt))
            expect.same_bits(f"the output of call {k}, object {one}, {rows} rows", seen[f"y.{k}"], want, seen)
            continue
        for p, gradient in enumerate(models[one].backward(filled(rows, outputs, salt))):
            name = f"call {k}, object {one}: the gradient of parameter {p}"
            expect.that(f"g.{k}.{p}" in seen, f"{name} is missing from the result of backward", seen)
            expect.same_bits(name, seen[f"g.{k}.{p}"], gradient, seen)


@lab_test
def order_of_sums(lab):
    """Gradients are added from the lowest replica upwards: 1e9 - 1e9 + 1 is 1, and 1 - 1e9 + 1e9 is
    not."""
    for dy in ([1e9, -1e9, 1.0], [1e9, -1e9, 1.0, 2.0], [2e9, -1e9, -1e9, 1.0, 2.0]):
        n = len(dy)
        seen = lab.run("train", devices=n, rows=n, inputs=1, outputs=1, steps=1, replicas=n, x=floats([1.0] * n),
                       dy=floats(dy))
        for p in range(2):
            expect.same_bits(f"the gradient of parameter {p}", seen[f"gradient.{p}"], floats([sum(dy)]), seen)
