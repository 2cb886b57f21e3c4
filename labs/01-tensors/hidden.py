"""Hidden tests of lab 01: no elements, one, too many; overlapping tensors; costs; random
sequences."""
import math

from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

HIDDEN_SEED = 51730964
_public = load_sibling(__file__, "public")
Program, ask = _public.Program, _public.ask
BIG = (1 << 20) + 4  # BIG * BIG is no multiple of 2^32


@lab_test
def no_elements(lab):
    """Sizes of 0 are legal and contiguous; there is nothing to read, to refuse or to select."""
    p = Program(lab, budget=True)
    none, m = p("empty", 2, 0, 3), p("empty", 2, 3)
    for sizes in ((0,), (3, 0), (0, 7, 5), (2, 3, 0, 1)):
        p("view", none, *sizes)
        p("reshape", p("transpose", none, 0, 2), *sizes)
    parts = [p("slice", m, 1, 3, 3, 1), p("slice", m, 0, 2, 1, 1), p("slice", p("transpose", m, 0, 1), 1, 1, 1, 2),
             p("expand", p("slice", m, 0, 0, 1, 1), 0, 3), p("expand", none, 4, 2, 0, 3), p("slice", m, 0, 9, 12, 2)]
    for t in (none, *parts):
        p("sum", t)
        p("fill_", t, 1)
        p("contiguous", t)
        p("copy_", t, p("same", t))
        p("add_", t, t)
        p("positions", t)
    p("select", none, 1, 0)
    p("select", none, 1, -1)
    p("view", none, 1)
    p("view", m, 0)
    p("select", p("select", none, 0, 1), -1, 2)
    p("copy_", p("slice", m, 0, 0, 0, 1), p("empty", 1, 3))  # one row, copied to no rows
    p("sum", m)
    p.run()


@lab_test
def ones(lab):
    """Sizes of 1: their stride is never used, so it can neither prevent nor permit a view."""
    p = Program(lab)
    m = p("empty", 3, 4)
    column = p("slice", m, 1, 2, 3, 1)       # sizes [3, 1]: strided
    row = p("slice", m, 0, 1, 2, 1)          # sizes [1, 4]: contiguous
    for t in (column, row, p("transpose", column, 0, 1), p("transpose", row, 0, 1), p("slice", row, 1, 2, 3, 1),
              p("expand", p("empty"), 1, 1, 1), p("slice", p("empty", 5, 3), 0, 0, 1, 7), p("view", row, 4, 1, 1)):
        p("contiguous", t)
        p("view", t, 1, -1)
        p("view", t, -1, 1, 1)
    p("view", column, 3)
    p("view", p("transpose", row, 0, 1), 2, 1, 2)
    stack = p("empty", 2, 1, 3, 1, 4)
    inner = p("slice", stack, 2, 0, 2, 1)    # sizes [2, 1, 2, 1, 4]: the first dimension has a gap
    p("view", inner, 2, 8)
    p("view", inner, 4, 4)
    p("reshape", inner, 4, 1, 4)
    p("view", p("permute", p("slice", p("empty", 2, 3, 4), 0, 0, 1, 1), 1, 0, 2), 12)  # [3, 1, 4], strides [4, 12, 1]
    p("fill_", p("expand", p("select", m, 0, 0), 1, 1, 4), 3)  # expanded, but no number is shown twice
    p.run()


@lab_test
def single_numbers(lab):
    """No dimension: one element, which can be read, written and viewed; there is no dimension to
    name."""
    p = Program(lab)
    one, m = p("empty"), p("empty", 2, 3)
    number = p("select", p("select", m, 1, -1), 0, -2)
    for t in (one, number):
        for name, *how in (("view", 1, 1), ("view", -1), ("view",), ("expand", 2, 2), ("expand",), ("contiguous",),
                           ("sum",), ("fill_", 8), ("add_", one), ("positions",), ("permute",)):
            p(name, t, *how)
        for name, *how in (("transpose", 0, 0), ("select", 0, 0), ("select", -1, 0), ("slice", 0, 0, 1, 1),
                           ("view", 2)):
            p(name, t, *how)
    p("reshape", p("slice", m, 0, 0, 1, 1), 3)
    p("reshape", p("slice", p("select", m, 1, 1), 0, 1, 2, 1))
    p.run()


@lab_test
def refused(lab):
    """Missing dimensions, lists that are no permutation, sizes that do not match: refused, with no effect."""
    p = Program(lab)
    m, row = p("empty", 2, 3), p("empty", 3)
    for name, *how in (
            ("transpose", 0, 2), ("transpose", -3, 0), ("permute", 0), ("permute", 0, 0), ("permute", 0, 1, 1),
            ("permute", 0, -2), ("permute", 1, -2), ("slice", 2, 0, 1, 1), ("slice", 0, 0, 1, 0),
            ("slice", 0, 0, 1, -1), ("select", 0, 2), ("select", 0, -3), ("select", 1, -3), ("expand", 3),
            ("expand", 3, 3), ("expand", -1, 2, 3), ("expand", 2, -1), ("expand", 4, 2, 3), ("expand", 2, -2),
            ("expand", 4, 3), ("expand", 2, 6), ("view", 7), ("view", 2, 2), ("view", -2, -3), ("reshape", 5),
            ("view",), ("reshape", 0)):
        p(name, m, *how)
    for name in ("copy_", "add_"):
        p(name, m, p("empty", 2))           # [2] does not match rows of 3
        p(name, m, p("empty", 1, 2, 3))     # too many dimensions: a source is expanded, never the target
        p(name, row, m)
        p(name, p("expand", row, 2, 3), m)  # a target that shows each number twice
        p(name, p("expand", row, 2, 3), p("expand", row, 2, 3))
        p(name, m, p("expand", row, 2, 3))
    p("fill_", p("expand", row, 4, 3), 1)
    p("fill_", p("transpose", p("expand", p("empty", 3, 1), 3, 2), 0, 1), 1)
    p.run()


@lab_test
def minus_one(lab):
    """A size of -1 is the remaining size, if that is one whole number and the only -1."""
    p = Program(lab)
    m, none = p("empty", 4, 6), p("empty", 0, 3)
    for t in (m, p("transpose", m, 0, 1), none):
        for sizes in ((-1,), (3, -1), (-1, 8), (2, -1, 3), (24, -1), (-1, 5), (-1, -1), (0, -1), (-1, 0, 2), (48, -1),
                      (-1, -2), (1, -1, 1)):
            p("reshape", t, *sizes)
            p("view", t, *sizes)
    p.run()


@lab_test
def too_many(lab):
    """Products that do not fit into an int64 are refused, and not taken modulo 2^64."""
    fine = ([1 << 62], [1 << 31, 1 << 31, 1], [7, (1 << 63) // 7], [1, 1 << 40, 1], [3037000499, 3037000499])
    for sizes in fine:
        seen = ask(lab, sizes, row_major=False)
        expect.that("refused.numel" not in seen, f"numel_of({sizes}) was refused: {seen.get('refused.numel')}")
        expect.equal(f"numel_of({sizes})", seen["numel"], math.prod(sizes))
    for sizes in ([1 << 32, 1 << 32], [1 << 62, 2], [1 << 31, 1 << 31, 4], [3037000500, 3037000500], [1 << 62, 1 << 62],
                  [-1], [-2, -3], [0, -1], [2, -1, 3], [1 << 21, 1 << 21, 1 << 21, 3]):
        seen = ask(lab, sizes, row_major=False)
        expect.that("numel" not in seen, f"numel_of({sizes}) is {seen.get('numel')}, must be refused")
    for sizes, elements, want in (([2, -1], 6, [2, 3]), ([-1], 0, [0]), ([3, 0], 0, [3, 0]), ([-2, -3], 6, None),
                                  ([-2, -3, -1], 6, None), ([-1, -1], 1, None), ([1 << 32, 1 << 32], 0, None),
                                  ([0, -1], 0, None), ([4, -1], 6, None)):
        seen = lab.run("shapes", sizes=sizes, elements=elements)
        got = list(seen["resolved"]) if "resolved" in seen else None
        expect.that(got == want, f"resolve({sizes}, {elements}) is {got or 'refused'}, must be {want or 'refused'}", seen)
    p = Program(lab)
    none, six = p("empty", 0, 3), p("empty", 6)
    for t in (none, six):
        for sizes in ((1 << 32, 1 << 32), (1 << 32, 1 << 32, -1), (1 << 62, 4, 1), (6, 1 << 32, 1 << 32, -1)):
            p("view", t, *sizes)
            p("reshape", t, *sizes)
    p("expand", p("empty"), 1 << 32, 1 << 32)
    p("expand", p("empty", 1, 1), 1 << 33, 1 << 31)
    p("empty", 1 << 32, 1 << 32)
    for step in ((1 << 63) - 1, (1 << 63) - 6, 1 << 62):  # only the first element, whatever the step is
        p("slice", six, 0, 0, 6, step)
        p("slice", six, 0, 5, 6, step)
    p.run()


@lab_test
def overlap(lab):
    """Copies between overlapping tensors: the old numbers count, in whatever order the numbers
    move."""
    for size in (2, 3, 5):
        for name in ("copy_", "add_"):
            p = Program(lab)
            m, row = p("empty", size, size), p("empty", 4 * size)
            p(name, m, p("transpose", m, 0, 1))
            p(name, m, p("select", m, 0, size - 1))                     # the last row to every row
            p(name, p("select", m, 0, 1), p("select", m, 1, 0))         # a column to a row that it crosses
            p(name, p("select", m, 1, 0), p("select", m, 0, size - 1))
            p(name, m, m)
            p(name, p("slice", row, 0, 1, 99, 1), p("slice", row, 0, 0, -1, 1))  # shifted by one place
            p(name, p("slice", row, 0, 0, -1, 1), p("slice", row, 0, 1, 99, 1))  # shifted back by one place
            p(name, row, p("slice", row, 0, 3, 4, 1))                   # one number everywhere
            p(name, p("slice", row, 0, 0, 99, 2), p("slice", row, 0, -2 * size, 99, 1))
            p.run()
            for forward in (True, False):  # equal strides, and neither the first nor the last element moves first
                p = Program(lab)
                wide = p("empty", size + 1, size + 1)
                parts = [p("transpose", p("slice", p("slice", wide, 0, a, a + size, 1), 1, 1 - a, 1 - a + size, 1), 0, 1)
                         for a in (0, 1)]
                p(name, *(parts if forward else reversed(parts)))
                p.run()
    for value in (-0.0, math.inf, -math.inf, math.nan):  # numbers move bit by bit
        p = Program(lab)
        m, other = p("empty", 2, 3), p("empty", 3, 2)
        p("fill_", p("select", m, 1, 1), value)
        p("copy_", other, p("transpose", m, 0, 1))
        p("contiguous", p("transpose", m, 0, 1))
        p("reshape", p("transpose", m, 0, 1), 6)
        p("copy_", m, m)
        p("add_", m, p("transpose", other, 0, 1))
        p("fill_", m, 0.0)
        p("add_", m, p("transpose", other, 0, 1))
        p("copy_", p("select", other, 0, 0), p("select", other, 0, 1))
        p.run()


@lab_test
def budget(lab):
    """Views, and contiguous() of a contiguous tensor, cost nothing; a copy reads and writes each
    element once."""
    p = Program(lab, budget=True)
    m, cube = p("empty", 4, 6), p("empty", 2, 3, 4)
    turned, wide = p("transpose", m, 0, 1), p("expand", p("slice", m, 0, 1, 2, 1), 3, 6)
    for t in (m, p("slice", m, 0, 1, 3, 1), turned, p("select", m, 1, 2), wide, p("permute", cube, 2, 0, 1)):
        p("contiguous", t)
        p("reshape", t, -1)
        p("reshape", t, *t.sizes)
        p("contiguous", p("contiguous", t))
        p("sum", t)
    for t in (m, turned, p("slice", m, 1, 0, 6, 3)):
        p("fill_", t, 2)
        p("copy_", t, p("empty", *t.sizes))
        p("add_", t, p("empty", 1))
    many = p("empty", 2, 40000)  # more than an int16 can count
    p("view", many, 2, 4, 10000)
    p("sum", p("transpose", many, 0, 1))
    for name, *how in (("view", 6, 2, 2), ("slice", 1, 0, 9, 2), ("expand", 9, 4, 6), ("same",), ("positions",)):
        p(name, m, *how)
    p.run()


@lab_test
def no_loops(lab):
    """2^40 elements, all of them the same number: operations that read no numbers end immediately."""
    steps = [("empty 1 1", None), (f"expand t0 {BIG} {BIG}", [BIG, BIG]), ("transpose t1 0 1", [BIG, BIG]),
             (f"slice t1 0 0 {BIG} 3", [-(-BIG // 3), BIG]), ("select t3 1 -1", [-(-BIG // 3)]),
             (f"view t1 {BIG * BIG}", [BIG * BIG]), (f"reshape t2 {2 * BIG} -1 2", [2 * BIG, BIG // 4, 2]),
             (f"expand t5 3 {BIG * BIG}", [3, BIG * BIG]),
             (f"slice t7 1 -{BIG * BIG - 5} {BIG * BIG - 1} 7", [3, (BIG * BIG - 6) // 7 + 1])]
    words = [*(words for words, _ in steps), "fill_ t1 5", "copy_ t7 t0", "position t6 9 8 1"]
    seen = _public.observe(lab, [f"t{k} = {step} # in t{k} = {step}" for k, step in enumerate(words)], deadline=3)
    for k, (words, sizes) in list(enumerate(steps))[1:]:
        expect.equal(f"{words}: outcome", seen[f"how.{k}"], "done", seen)
        expect.equal(f"{words}: sizes", list(seen[f"sizes.{k}"]), sizes, seen)
        expect.equal(f"{words}: storage, offset, numel, contiguous", list(seen[f"tensor.{k}"]),
                     [0, 0, math.prod(sizes), 0], seen)
    for k, words in ((9, "fill_ of an expanded tensor"), (10, "copy_ to an expanded tensor")):
        expect.equal(f"{words}: outcome", seen[f"how.{k}"], "refused", seen)
    expect.equal("position of an element of it", seen["number.11"], 0, seen)


def some_sizes(random, count):
    """Returns sizes whose product is count, some of them 1; sometimes with a -1, sometimes wrong."""
    sizes, left = [], count
    while left > 1 and len(sizes) < 4:
        part = random.choice([n for n in range(1, left + 1) if left % n == 0])
        sizes.append(part)
        left //= part
    sizes += [left] if left != 1 or not sizes else []
    if random.random() < 0.3:
        sizes.insert(random.randrange(len(sizes) + 1), 1)
    if random.random() < 0.3:
        sizes[random.randrange(len(sizes))] = -1
    if random.random() < 0.05:
        sizes[random.randrange(len(sizes))] += 1
    return sizes


def step_by_chance(p, random):
    t = random.choice(p.alive[-5:])
    dims, kind = len(t.sizes), random.randrange(16)
    d = random.randrange(-dims, dims) if dims and random.random() < 0.97 else dims
    n = t.sizes[d] if -dims <= d < dims else 3
    if kind < 2:
        return p("transpose", t, d, random.randrange(-dims, dims) if dims else 0)
    if kind == 2:
        return p("permute", t, *(random.choice((i, i - dims)) for i in random.sample(range(dims), dims)))
    if kind < 6:
        start, stop = random.randrange(-n - 2, n + 1), random.randrange(-n, n + 3)
        return p("slice", t, d, start, stop, random.choice((1, 1, 2, 3)))
    if kind == 6:
        return p("select", t, d, random.randrange(-n, n) if n else 0)
    if kind == 7:
        sizes = [random.choice((2, 3, -1)) if size == 1 else size for size in t.sizes]
        sizes = random.choice(([], [2], [1])) + sizes
        return p("expand", t, *sizes) if len(t.positions) < 60 else None
    if kind < 10:
        return p("view", t, *some_sizes(random, len(t.positions)))
    if kind == 10:
        return p("reshape", t, *some_sizes(random, len(t.positions)))
    if kind == 11:
        return p("contiguous", t)
    if kind == 12:
        return p("sum", t)
    if kind == 13:
        return p("fill_", t, random.randrange(-9, 9))
    if kind == 14:
        others = [o for o in p.alive if o.sizes == t.sizes[dims - len(o.sizes):]] or [t]
        return p(random.choice(("copy_", "add_")), t, random.choice(others))
    return p("drop", t) if len(p.alive) > 1 else p("positions", t)


@lab_test
def by_chance(lab):
    """Sixty random sequences of 25 steps; tensors are made and dropped in any order."""
    for _ in range(60):
        p = Program(lab)
        for _ in range(2):
            p("empty", *(lab.random.choice((1, 2, 2, 3, 3, 4, 5, 0)) for _ in range(lab.random.randrange(5))))
        for _ in range(25):
            step_by_chance(p, lab.random)
        p.run()
