"""Public tests of lab 01, which a student runs at every save."""
from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

_program = load_sibling(__file__, "program")
Program, observe = _program.Program, _program.observe


def ask(lab, sizes, row_major=True):
    how = {"row_major": 1} if row_major else {}
    return lab.run("shapes", sizes=sizes, **how)


def strides_of(sizes):
    found, stride = [], 1
    for n in reversed(sizes):
        found.insert(0, stride)
        stride *= max(n, 1)
    return found


@lab_test
def row_by_row(lab):
    """Task 1: the number of elements, and the strides of elements that are stored row by row."""
    for sizes in ([2, 3], [5], [4, 1, 3], [], [2, 3, 4, 5], [0], [2, 0, 3], [3, 0], [2, 300, 500], [3, 70000, 70001],
                  [2, 5, 1 << 40]):
        seen = ask(lab, sizes)
        expect.that("refused.numel" not in seen, f"numel_of({sizes}) was refused: {seen.get('refused.numel')}")
        count = 1
        for n in sizes:
            count *= n
        expect.equal(f"numel_of({sizes})", seen["numel"], count)
        expect.equal(f"row_major({sizes})", list(seen["strides"]), strides_of(sizes))
    p = Program(lab)
    for sizes in ([2, 3], [], [4, 0]):
        p("empty", *sizes)
    p.run()


@lab_test
def positions(lab):
    """Task 2: the position of each element; which tensors are contiguous; indices out of range are
    refused."""
    p = Program(lab)
    m = p("empty", 2, 3)
    for sizes in ((2, 3), (4,), (2, 1, 3), ()):
        p("positions", p("same", p("empty", *sizes)))
    p("position", m, 1, 2)
    for index in ((2, 0), (0, 3), (-1, 0), (1,), (1, 1, 1)):
        p("position", m, *index)
        p("position", m, 1, 1)
    p.run()


@lab_test
def views(lab):
    """Task 3: transposed, permuted, sliced, selected and expanded tensors, also of each other."""
    p = Program(lab)
    m = p("empty", 3, 4)
    p("transpose", m, 0, 1)
    column = p("select", m, 1, 2)
    p("slice", m, 1, 1, 4, 2)
    p("slice", column, 0, 1, 3, 1)
    p("slice", column, 0, -2, 99, 1)
    p("select", p("slice", m, 0, -99, -1, 1), -1, -1)
    p("transpose", m, -1, -2)
    p("expand", p("select", m, 0, 1), 2, 4)
    cube = p("empty", 2, 3, 4)
    turned = p("permute", cube, 2, 0, 1)
    p("select", p("slice", turned, 0, 1, 4, 2), 2, 1)
    p("expand", p("slice", cube, 1, 1, 2, 1), 2, 5, 4)
    for t in (turned, column):
        p("positions", t)
    p.run()


@lab_test
def same_numbers(lab):
    """A view shares the storage: all other tensors see the numbers written through it."""
    p = Program(lab)
    m = p("empty", 3, 4)
    turned = p("transpose", m, 0, 1)
    p("fill_", p("select", m, 1, 2), 9)
    p("fill_", p("slice", turned, 0, 0, 4, 3), 7)
    p("fill_", p("view", m, 2, 6), 1)
    p("sum", p("same", turned))
    p.run()


@lab_test
def view_or_copy(lab):
    """Task 4: view refuses if it needs a copy, and says why; reshape copies; contiguous copies if
    it must."""
    p = Program(lab)
    m = p("empty", 2, 6)
    for sizes in ((12,), (3, 4), (2, 3, 2), (1, 12, 1), (-1, 4)):
        p("view", m, *sizes)
        p("reshape", m, *sizes)
    turned = p("transpose", m, 0, 1)
    p("view", turned, 12)
    p("view", turned, 3, 2, 2)
    p("view", p("slice", m, 1, 0, 3, 1), 6)
    p("reshape", turned, 12)
    p("contiguous", m)
    p("contiguous", turned)
    p.run()


@lab_test
def flat(lab):
    """Task 5: sum, fill_, copy_ and add_ of columns, of transposed and of expanded tensors."""
    p = Program(lab)
    m = p("empty", 3, 4)
    column, row = p("select", m, 1, 3), p("select", m, 0, 1)
    other = p("empty", 4, 3)
    for t in (m, row, column, p("transpose", m, 0, 1), p("slice", m, 1, 0, 4, 2), p("expand", row, 5, 4)):
        p("sum", t)
    p("copy_", p("transpose", other, 0, 1), m)
    p("add_", column, p("select", other, 0, 0))
    p("add_", m, p("empty", 4))
    p("copy_", p("slice", m, 0, 0, 3, 2), p("select", other, 1, 0))  # two rows, and [4] is copied to each
    p("fill_", p("slice", m, 1, 1, 4, 2), 0)
    ends = p("select", p("empty", 2, 3), 1, 0)  # positions 0 and 3
    p("fill_", ends, 5)
    p("sum", p("expand", ends, 2, 2))           # as many numbers as the range 0 to 3, but different ones
    part = p("slice", p("empty", 2, 3, 4), 2, 0, 2, 1)  # a gap after each row
    p("fill_", part, 7)
    p("sum", part)
    p.run()


@lab_test
def outlives(lab):
    """A row outlives its matrix; when the row is gone too, the storage is freed."""
    p = Program(lab)
    m = p("empty", 2, 3)
    row = p("select", m, 0, 1)
    p("drop", m)
    p("sum", row)
    p("fill_", row, 4)
    part = p("slice", row, 0, 1, 3, 1)
    p("drop", row)
    p("sum", part)
    p("drop", part)
    p.run()
