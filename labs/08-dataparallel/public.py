"""Public tests of lab 08, which a student runs at every save. hidden.py uses train() too."""
from labs.course.testing import expect, floats, lab_test


def filled(rows, width, salt):
    """Returns whole numbers, so that sums are exact. driver.cpp has the same formula."""
    return [[(i * 7 + salt * 13) % 19 - 9 for i in range(r * width, (r + 1) * width)] for r in range(rows)]


def parts_of(rows, devices):
    each = -(-rows // devices)
    parts = [(first, min(each, rows - first)) for first in range(0, rows, each)] if rows else []
    return parts or [(0, 0)]


def flat(matrix):
    return floats(n for row in matrix for n in row)


class OneDevice:
    """The model of driver.cpp on one device, with Python's numbers."""

    def __init__(self, inputs, outputs):
        self.w, self.b = filled(outputs, inputs, 1), filled(1, outputs, 2)

    def forward(self, x):
        self.x = x
        return flat([b + sum(p * q for p, q in zip(w, row)) for w, b in zip(self.w, self.b[0])] for row in x)

    def backward(self, dy):
        """Returns the gradients, and updates the parameters for the next step."""
        over = range(len(self.x))
        dw = [[sum(dy[r][o] * self.x[r][i] for r in over) for i in range(len(w))] for o, w in enumerate(self.w)]
        db = [[sum(dy[r][o] for r in over) for o in range(len(self.w))]]
        self.w = [[p - d for p, d in zip(*both)] for both in zip(self.w, dw)]
        self.b = [[p - d for p, d in zip(*both)] for both in zip(self.b, db)]
        return [flat(dw), flat(db)]


def expected(rows, inputs, outputs, steps):
    """Returns the output and the gradients of the last step, on one device."""
    model = OneDevice(inputs, outputs)
    for step in steps:
        y = model.forward(filled(rows, inputs, 10 + step))
        gradients = model.backward(filled(rows, outputs, 20 + step))
    return y, gradients


def train(lab, devices, rows, inputs=3, outputs=2, steps=1, **how):
    """Runs steps on some devices and compares output and gradients with one device."""
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
    """Task 1: ceil(rows / devices) rows per device, and no part for a device without work."""
    for rows, devices in [(8, 4), (10, 4), (5, 4), (3, 8), (1, 2), (7, 1), (0, 3), (9, 8), (16, 5), (97, 8), (0, 1),
                          (2 ** 24 + 1, 2), (2 ** 24, 4),
                          (2 ** 32 + 5, 3), (2 ** 40 + 3, 8)]:
        seen = lab.run("split", rows=rows, devices=devices)
        got = list(zip(seen["parts"][::2], seen["parts"][1::2]))
        expect.equal(f"the parts of {rows} rows on {devices} devices", got, parts_of(rows, devices), seen)


@lab_test
def pieces(lab):
    """Tasks 2 and 4: part i is on device i, and gather concatenates all parts on the root."""
    for devices, rows, width, parts in [(3, 7, 2, [(0, 3), (3, 3), (6, 1)]), (2, 4, 3, [(0, 4)]), (1, 2, 1, [(0, 2)]),
                                        (4, 9, 2, [(5, 2), (0, 1), (8, 1), (1, 4)]),
                                        (3, 2, 2, [(0, 1), (1, 0), (1, 1)])]:
        seen = lab.run("pieces", devices=devices, rows=rows, width=width, parts=[n for part in parts for n in part])
        expect.equal("the devices of the parts", list(seen["places"]), list(range(len(parts))), seen)
        batch = filled(rows, width, 3)
        taken = [batch[first:first + count] for first, count in parts]
        for i, piece in enumerate(taken):
            expect.same_bits(f"part {i}", seen[f"piece.{i}"], flat(piece), seen)
        expect.same_bits("the result of gather", seen["whole"], flat(row for piece in taken for row in piece), seen)
        expect.equal("the device of gather's result", seen["whole_device"], 0, seen)
        expect.equal("the width of gather's result", seen["width"], width, seen)


def apply(lab, replicas, failing, words="no memory"):
    seen = lab.run("apply", replicas=replicas, failing=failing, words=words)
    expect.that(not seen["alone"], "a replica was inside alone for 3 s: all must run at the same time", seen)
    expect.equal("how often each replica ran", list(seen["ran"]), [1] * replicas, seen)
    expect.equal("replicas that had ended when parallel_apply returned", seen["ended"], replicas, seen)
    want = f"replica {min(failing)}: {words}" if failing else "nothing"
    expect.equal("the error that the caller gets", seen["said"], want, seen)


@lab_test
def together(lab):
    """Task 3: every replica runs once, all simultaneously; the error of the lowest is reported."""
    apply(lab, 4, [])
    apply(lab, 4, [3, 2])
    apply(lab, 3, [0])


@lab_test
def one_device(lab):
    """Everything on the root: nothing to send."""
    train(lab, 1, 4)


@lab_test
def two_devices(lab):
    """Forward and backward of eight rows on two devices, both simultaneously."""
    train(lab, 2, 8)


@lab_test
def uneven(lab):
    """Batches that the devices do not divide, and batches with fewer rows than devices."""
    for devices in (2, 3, 4, 5, 8):
        for rows in sorted({0, 1, devices - 1, devices, devices + 1, 2 * devices + 1, 13}):
            train(lab, devices, rows)
