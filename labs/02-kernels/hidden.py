"""Hidden tests of lab 02: grids of any size, awkward shapes, NaN, counted loads, misaligned
addresses."""
import math
import pathlib

from labs.course.lab import load_module
from labs.course.testing import Crash, expect, floats, lab_test

HIDDEN_SEED = 30418857
ODD = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)
friendly = load_module(pathlib.Path(__file__).with_name("public.py"))


@lab_test
def axpy_grids(lab):
    """Any n with any grid: fewer threads than elements, more, or an idle last block; misaligned."""
    for n, blocks, threads in [(0, 1, 32), (1, 1, 32), (1000, 1, 32), (1000, 3, 1), (257, 5, 64), (7, 9, 128),
                               (4099, 2, 1024), (70001, 33000, 2)]:
        friendly.axpy(lab, n, blocks, threads, offset=lab.random.randrange(4))

    def odd(x, y):
        pairs = [(p, q) for p in ODD for q in ODD]
        x[:len(pairs)], y[:len(pairs)] = floats(p for p, _ in pairs), floats(q for _, q in pairs)
    for a in (1.0, -2.0, 0.0, -0.0, math.inf):
        friendly.axpy(lab, 70, 2, 16, odd, a)


@lab_test
def rows_shapes(lab):
    """Any shape: more rows than blocks, short rows, long rows, empty ones; all numbers negative, or some -0."""
    def negative(x):
        for i, value in enumerate(x):
            x[i] = -1 - abs(value)

    def zeros(x):
        negative(x)
        for at in (7, 40, 87):  # one in each row, in several threads
            x[at] = -0.0
    friendly.rows(lab, 3, 32, 2, 8, zeros)
    for count, cols, blocks, threads in [(1, 1, 1, 1), (9, 100, 2, 64), (5, 3, 8, 32), (3, 0, 1, 32), (7, 257, 3, 256),
                                         (40, 33, 1, 16), (0, 5, 1, 32), (4, 9, 3, 1), (2, 1, 1, 256), (6, 64, 2, 2),
                                         (33001, 1, 2, 1), (1, 33001, 1, 32)]:
        friendly.rows(lab, count, cols, blocks, threads, unit=lab.random.choice((0.25, 2.0 ** 30)))
        friendly.rows(lab, count, cols, blocks, threads, negative)


@lab_test
def nan_wins(lab):
    """A NaN in a row makes this row's results NaN, and no other row's; infinities are numbers."""
    for _ in range(3):
        for where in (0, 31, 32, 99):
            def spoil(x, where=where):
                x[2 * 100 + where] = math.nan
                x[4 * 100 + where] = math.inf
                x[5 * 100 + where] = -math.inf
            friendly.rows(lab, 6, 100, 2, 32, spoil)

    def endless(x):
        x[0:50] = floats([-math.inf] * 50)       # all of row 0
        x[60], x[92] = math.inf, -math.inf       # row 1, in one thread: the largest is infinite, the sum NaN
    friendly.rows(lab, 3, 50, 1, 16, endless)


@lab_test
def matmul_odd(lab):
    """Sizes that are no multiple of a tile, single rows and columns, empty sums."""
    for m, n, k in [(1, 1, 1), (17, 15, 16), (16, 16, 17), (33, 5, 47), (1, 40, 3), (40, 1, 31), (3, 3, 0), (48, 31, 1),
                    (33001, 1, 1), (1, 33001, 1), (1, 1, 33001)]:
        friendly.matmul(lab, m, n, k)
    for m, n, k in [(5, 3, 17), (18, 33, 40), (16, 17, 1)]:  # infinities at edges of tiles stay in their rows and columns
        def positive(a, b, n=n, k=k):
            for x in (a, b):
                for i, value in enumerate(x):
                    x[i] = 1 + abs(value)
            a[min(k, 16) - 1] = a[-1] = b[-n] = b[(min(k, 16) - 1) * n] = math.inf
        friendly.matmul(lab, m, n, k, positive)


@lab_test
def matmul_loads(lab):
    """Each element that a block loads serves 16 threads: a and b are read once per tile, not once
    per product."""
    for m, n, k in [(32, 32, 32), (40, 24, 20), (5, 50, 17), (1, 1, 33)]:
        seen = friendly.matmul(lab, m, n, k)
        down, across = -(-m // 16), -(-n // 16)
        for name, got, least in [("a", seen["loads"][0], m * k * across), ("b", seen["loads"][1], k * n * down)]:
            expect.at_most(f"elements of {name} loaded from memory", got, least, "loads", seen)


@lab_test
def sgd_misaligned(lab):
    """Arrays at any address, any n, grids of any size; momentum, decay or rate are 0, or large."""
    rates = [(0.5, 0.0, 0.25), (0.25, 0.5, 0.0), (0.0, 0.5, 2.0), (8.0, 0.5, 0.25), (0.5, 8.0, 0.25), (0.25, 0.5, 8.0)]
    for _ in range(2):
        for offsets in [(1, 0, 0), (0, 2, 0), (0, 0, 3), (1, 1, 1)]:
            n = lab.random.choice((0, 1, 3, 4, 5, 127, 255, 258))
            given = dict(zip(("offset_g", "offset_p", "offset_v"), offsets))
            seen = friendly.sgd(lab, n, blocks=lab.random.choice((1, 2, 9)), threads=lab.random.choice((1, 32, 64)),
                                rates=lab.random.choice(rates), **given)
            expect.equal(f"sgd_width at {offsets} elements behind multiples of 16 bytes", seen["width"], 1, seen)
    for k, n in enumerate((0, 1, 2, 3, 4, 5, 6, 7, 9, 127, 258, 1024)):
        seen = friendly.sgd(lab, n, *((1, 1), (2, 32), (9, 64))[k % 3], rates=rates[k % 6])
        expect.equal("sgd_width of three aligned arrays", seen["width"], 4, seen)

    def odd(g, p, v):
        triples = [(a, b, c) for a in ODD for b in ODD for c in ODD]
        for at, three in enumerate(triples):
            g[at], p[at], v[at] = three
    for offset in (0, 2):  # with a setting of 0, too: 0 times infinity is NaN
        for given in ((0.5, 2.0, 0.25), *rates[:4]):
            friendly.sgd(lab, 350, 2, 32, given, odd, offset_v=offset)
    for offset in (0, 1):
        friendly.sgd(lab, 140003, 33000, 2, rates=rates[0], offset_p=offset)
    for name in ("g", "p", "v"):  # the kernel must stop; if it does not, it moves one float at a time
        message = ""
        try:
            lab.run("wide", misaligned=name)
        except Crash as crash:
            message = str(crash)
        expect.that("misaligned address" in message, f"sgd<4> runs through although {name} begins 4 bytes behind a multiple "
                    "of 16: it does not move four floats by one load or store")
    places = [64 * p + o for p, o in ((9, 0), (3, 4), (5, 8), (7, 12))] + [2 ** 40 + 16, 2 ** 40 + 8]
    seen = lab.run("widths", places=places)
    for at, got in enumerate(seen["widths"]):
        three = [places[at // 36], places[at // 6 % 6], places[at % 6]]  # there are six places
        expect.equal(f"sgd_width of arrays at addresses {three}", got, 1 if any(p % 16 for p in three) else 4, seen)
