"""Public tests of lab 02: one friendly case for each kernel. Inputs are small multiples of 1/4 or of
a large power of two, so that no sum rounds: every order of addition, and every fused multiply-add,
gives the same bits.
"""
import math

from labs.course.testing import expect, floats, lab_test


def numbers(lab, count, unit=0.25):
    return floats(unit * lab.random.randrange(-32, 33) for _ in range(count))


def axpy(lab, n, blocks, threads, change=lambda x, y: None, a=None, **how):
    a, x, y = lab.random.randrange(-9, 10) / 4 if a is None else a, numbers(lab, n), numbers(lab, n)
    change(x, y)
    want = floats(a * xi + yi for xi, yi in zip(x, y))
    seen = lab.run("axpy", n=n, a=a, x=x, y=y, blocks=blocks, threads=threads, **how)
    expect.same_bits("y", seen["y"], want, seen)


def largest_of(row):
    return math.nan if any(math.isnan(v) for v in row) else max(row, default=-math.inf)


def rows(lab, count, cols, blocks, threads, change=lambda x: None, unit=0.25):
    x = numbers(lab, count * cols, unit)
    change(x)
    split = [x[r * cols:(r + 1) * cols] for r in range(count)]
    seen = lab.run("rows", rows=count, cols=cols, x=x, blocks=blocks, threads=threads)
    expect.same_bits("largest", seen["largest"], floats(map(largest_of, split)), seen)
    expect.same_bits("sum", seen["sum"], floats(map(sum, split)), seen)
    expect.at_most("elements of x that the blocks loaded", seen["loads"], 2 * count * cols, "loads", seen)


def matmul(lab, m, n, k, change=lambda a, b: None):
    a, b = numbers(lab, m * k), numbers(lab, k * n)
    change(a, b)
    columns = [b[j::n] if k else [] for j in range(n)]
    want = floats(sum(map(float.__mul__, a[i * k:(i + 1) * k], column)) for i in range(m) for column in columns)
    seen = lab.run("matmul", m=m, n=n, k=k, a=a, b=b)
    expect.same_bits("c", seen["c"], want, seen)
    return seen


def sgd(lab, n, blocks=2, threads=32, rates=(0.5, 2.0, 0.25), change=lambda g, p, v: None, **offsets):
    """Checks one step. The rates (lr, momentum, decay) must be powers of two or 0, so that the results are exact."""
    lr, momentum, decay = rates
    g, p, v = numbers(lab, n), numbers(lab, n), numbers(lab, n)
    change(g, p, v)
    want_v = floats(momentum * vi + (gi + decay * pi) for gi, pi, vi in zip(g, p, v))
    want_p = floats(pi - lr * vi for pi, vi in zip(p, want_v))
    seen = lab.run("sgd", n=n, lr=lr, momentum=momentum, decay=decay, g=g, p=p, v=v, blocks=blocks, threads=threads,
                   **offsets)
    expect.same_bits("v", seen["v"], want_v, seen)
    expect.same_bits("p", seen["p"], want_p, seen)
    return seen


@lab_test
def axpy_first(lab):
    """Task 1: axpy of 256 elements, by a grid of 4 blocks of 64 threads."""
    axpy(lab, 256, blocks=4, threads=64)


@lab_test
def rows_first(lab):
    """Task 2: four rows of 128, one block each, in which 64 threads combine their results."""
    rows(lab, 4, 128, blocks=4, threads=64)


@lab_test
def matmul_first(lab):
    """Task 3: a product of 32 x 48 and 48 x 32, sizes that tiles of 16 divide, in several orders of
    the threads."""
    for _ in range(3):
        matmul(lab, 32, 32, 48)


@lab_test
def sgd_first(lab):
    """Task 4: one step on 256 aligned elements, four at a time."""
    seen = sgd(lab, 256)
    expect.equal("sgd_width of three aligned arrays", seen["width"], 4, seen)
