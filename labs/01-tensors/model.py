"""The judge's own tensors, which store the position of each element's number instead of strides.

    p = Program(lab)
    m = p("empty", 2, 3)              # positions 0 1 2 3 4 5
    column = p("select", m, 1, 2)     # positions 2 5
    p("fill_", column, 9)
    p.run()                           # the driver does the same steps; each is compared

A step that must be refused is detected here as well. Steps have the names of the student's functions, and
`empty` (filled with numbers that tell their origin), `same` (a C++ copy), `drop` (destroys the tensor), `positions`.
"""
import itertools
import math
import operator

MOST = (1 << 63) - 1


class Refused(Exception):
    """This step must be refused; the message says why."""


class Store:
    """Numbers by position. number: the driver's number of the storage; base: position of its first
    number there."""

    def __init__(self, numbers):
        self.numbers, self.number, self.base = dict(enumerate(numbers)), None, None


class Seen:
    """A tensor: its sizes, and the positions of its elements in the order of their indices."""

    def __init__(self, sizes, positions, store):
        self.sizes, self.positions, self.store = list(sizes), list(positions), store
        self.step, self.text, self.strides = None, "", None

    def indices(self):
        return itertools.product(*map(range, self.sizes))

    def numbers(self):
        return [self.store.numbers[p] for p in self.positions]

    @property
    def contiguous(self):
        return self.positions == list(range(self.positions[0], self.positions[0] + len(self.positions))) \
            if self.positions else True

    def pick(self, sizes, source):
        """Returns a view whose element at an index is this tensor's element at source(index)."""
        at = dict(zip(self.indices(), self.positions))
        return Seen(sizes, [at[tuple(source(i))] for i in itertools.product(*map(range, sizes))], self.store)

    def copy(self):
        return Seen(self.sizes, range(len(self.positions)), Store(self.numbers()))


def numel(sizes):
    if min(sizes, default=0) < 0:
        raise Refused("a size is negative")
    if math.prod(max(n, 1) for n in sizes) > MOST:
        raise Refused("that many elements cannot be counted")
    return math.prod(sizes)


def dimension(t, d):
    if not -len(t.sizes) <= d < len(t.sizes):
        raise Refused(f"there is no dimension {d}")
    return d % len(t.sizes)


def transpose(t, a, b):
    a, b = dimension(t, a), dimension(t, b)
    order = list(range(len(t.sizes)))
    order[a], order[b] = b, a
    return permute(t, *order)


def permute(t, *dims):
    dims = [dimension(t, d) for d in dims]
    if sorted(dims) != list(range(len(t.sizes))):
        raise Refused("each dimension must be there once")
    return t.pick([t.sizes[d] for d in dims], lambda i: [i[dims.index(d)] for d in range(len(dims))])


def slice_(t, d, start, stop, step):
    d = dimension(t, d)
    if step < 1:
        raise Refused("the step is not positive")
    places = range(t.sizes[d])[start:stop:step]
    return t.pick(t.sizes[:d] + [len(places)] + t.sizes[d + 1:], lambda i: [*i[:d], places[i[d]], *i[d + 1:]])


def select(t, d, index):
    d = dimension(t, d)
    if not -t.sizes[d] <= index < t.sizes[d]:
        raise Refused(f"there is no index {index}")
    return t.pick(t.sizes[:d] + t.sizes[d + 1:], lambda i: [*i[:d], index % t.sizes[d], *i[d:]])


def expand(t, *sizes):
    new = len(sizes) - len(t.sizes)
    if new < 0:
        raise Refused("there are too few sizes")
    wanted = list(sizes)
    for d, old in enumerate(t.sizes):
        wanted[new + d] = old if sizes[new + d] == -1 else sizes[new + d]
        if old not in (1, wanted[new + d]):
            raise Refused("the sizes do not match")
    numel(wanted)
    return t.pick(wanted, lambda i: [0 if old == 1 else at for old, at in zip(t.sizes, i[new:])])


def resolve(t, sizes):
    if sizes.count(-1) == 1:
        known = numel([1 if n == -1 else n for n in sizes])
        if known == 0:
            raise Refused("-1 could be any size")
        sizes = [len(t.positions) // known if n == -1 else n for n in sizes]
    if numel(sizes) != len(t.positions):
        raise Refused("the number of elements differs")
    return sizes


def can_be_seen_as(positions, sizes):
    """True if some strides give these positions with these sizes. The second element of each
    dimension determines its stride, and all other elements must then match."""
    if not positions:
        return True
    inner = [math.prod(sizes[d + 1:]) for d in range(len(sizes))]
    strides = [positions[inner[d]] - positions[0] if n > 1 else 0 for d, n in enumerate(sizes)]
    return positions == [positions[0] + sum(i * s for i, s in zip(index, strides))
                         for index in itertools.product(*map(range, sizes))]


def view(t, *sizes):
    sizes = resolve(t, list(sizes))
    if not can_be_seen_as(t.positions, sizes):
        raise Refused("it needs a copy")
    return Seen(sizes, t.positions, t.store)


def reshape(t, *sizes):
    sizes = resolve(t, list(sizes))
    return view(t if can_be_seen_as(t.positions, sizes) else t.copy(), *sizes)


def position(t, *index):
    at = dict(zip(t.indices(), t.positions))
    if index not in at:
        raise Refused("there is no such element")
    return at[index]


def write(target, numbers):
    """Writes to the target. numbers: a function from the old numbers to the new ones."""
    if len(set(target.positions)) != len(target.positions):
        raise Refused("the target shows one number at several places")
    for position, number in zip(target.positions, numbers(target.numbers())):
        target.store.numbers[position] = number


STEPS = {
    "transpose": transpose, "permute": permute, "slice": slice_, "select": select, "expand": expand, "view": view,
    "reshape": reshape, "position": position,
    "contiguous": lambda t: Seen(t.sizes, t.positions, t.store) if t.contiguous else t.copy(),
    "same": lambda t: Seen(t.sizes, t.positions, t.store),
    "sum": lambda t: sum(t.numbers()),
    "fill_": lambda t, value: write(t, lambda old: [value] * len(old)),
    "copy_": lambda t, source: write(t, lambda old: expand(source, *t.sizes).numbers()),
    "add_": lambda t, source: write(t, lambda old: map(operator.add, old, expand(source, *t.sizes).numbers())),
}
