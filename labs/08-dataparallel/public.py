"""Public tests of lab 08: what a student runs at every save. hidden.py uses train() too."""
from labs.course.testing import expect, floats, lab_test


def filled(rows, width, salt):
    """driver.cpp has the same formula: whole numbers, so that sums are exact."""
    return [[(i * 7 + salt * 13) % 19 - 9 for i in range(r * width, (r + 1) * width)] for r in range(rows)]


def parts_of(rows, devices):
    each = -(-rows // devices)
    parts = [(first, min(each, rows - first)) for first in range(0, rows, each)] if rows else []
    return parts or [(0, 0)]


def expected(rows, inputs, outputs, steps):
    """Output and gradients of the last step, on one device, with Python's numbers."""
    w, b = filled(outputs, inputs, 1), filled(1, outputs, 2)
    for step in steps:
        x, dy = filled(rows, inputs, 10 + step), filled(rows, outputs, 20 + step)
        y = [[b[0][o] + sum(p * q for p, q in zip(w[o], row)) for o in range(outputs)] for row in x]
        dw = [[sum(dy[r][o] * x[r][i] for r in range(rows)) for i in range(inputs)] for o in range(outputs)]
        db = [[sum(dy[r][o] for r in range(rows)) for o in range(outputs)]]
        w = [[p - d for p, d in zip(*both)] for both in zip(w, dw)]
        b = [[p - d for p, d in zip(*both)] for both in zip(b, db)]
    flat = [floats(n for row in m for n in row) for m in (y, dw, db)]
    return flat[0], flat[1:]


def train(lab, devices, rows, inputs=3, outputs=2, steps=1, **how):
    """Runs steps on some devices and holds output and gradients against one device."""
    seen = lab.run("train", devices=devices, rows=rows, inputs=inputs, outputs=outputs, steps=steps,
                   replicas=len(parts_of(rows, devices)), **how)
    skipped = 1 if "fail" in how else 0  # a step that ends in an exception changes no parameter
    expect.that(skipped or not seen["said"], seen["said"], seen)
    expect.that(not seen["alone"], "a replica computed alone for 3 s: the others must run at the same time", seen)
    output, gradients = expected(rows, inputs, outputs, range(skipped, steps))
    expect.equal("the device of the output", seen["output_device"], 0, seen)
    expect.same_bits("the output", seen["output"], output, seen)
    for p, gradient in enumerate(gradients):
        expect.same_bits(f"the gradient of parameter {p}", seen[f"gradient.{p}"], gradient, seen)
    return seen


@lab_test
def split(lab):
    """Task 1: ceil(rows / devices) rows for each, and no part for a device without work."""
    for rows, devices in [(8, 4), (10, 4), (5, 4), (3, 8), (1, 2), (7, 1), (0, 3), (9, 8), (16, 5), (97, 8)]:
        seen = lab.run("split", rows=rows, devices=devices)
        got = list(zip(seen["parts"][::2], seen["parts"][1::2]))
        expect.equal(f"the parts of {rows} rows on {devices} devices", got, parts_of(rows, devices), seen)


@lab_test
def one_device(lab):
    """Everything on the root: nothing to send."""
    train(lab, 1, 4)


@lab_test
def two_devices(lab):
    """Forward and backward of eight rows on two devices, both at the same time."""
    train(lab, 2, 8)


@lab_test
def uneven(lab):
    """Batches that do not divide, and batches of fewer rows than devices."""
    for devices in (2, 3, 4, 5, 8):
        for rows in sorted({1, devices - 1, devices, devices + 1, 2 * devices + 1, 13}):
            train(lab, devices, rows)
