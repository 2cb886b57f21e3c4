"""Comparisons that report a failure in one line. NaN equals NaN in same_bits(); in all other comparisons it equals
nothing."""
import array
import math
import struct

from labs.course.verdicts import Wrong

BLANK, MIXED, FORGED = 1 << 40, 2 << 40, 3 << 40  # as in labs/kit/counted.hpp
WIDTH = 11


def where(seen):
    return f" ({seen['kit.case']})" if "kit.case" in seen else ""


def that(truth, message, seen=None):
    if not truth:
        raise Wrong(message + where(seen or {}))


def equal(name, got, want, seen=None):
    that(got == want, f"{name} is {got}, must be {want}", seen)


def at_most(name, got, limit, unit, seen=None):
    that(got <= limit, f"{name}: {got:g} {unit}, at most {limit:g} allowed", seen)


def _counts(times, wanted, world):
    trouble = []
    for rank in range(world):
        if times[rank] < wanted[rank]:
            trouble.append(f"rank {rank} missing")
        elif times[rank] > wanted[rank]:
            often = {1: "but does not belong", 2: "twice"}.get(times[rank], f"{times[rank]} times")
            trouble.append(f"rank {rank} counted {often}")
    return ", ".join(trouble)


def counted(seen, name, world, first, length, wanted, shift=0):
    """Checks that elements [first, first+length) of an output contain each rank `wanted[rank]` times,
    from the right place.

    name: "out.3" is the output of rank 3. shift: place of origin minus place in this buffer.
    """
    runs, end = seen[name], first + length
    covered = first
    label = "rank " + name.rsplit(".", 1)[-1]
    for at in range(0, len(runs), WIDTH):
        start, size, moved, *times = runs[at:at + WIDTH]
        begin, stop = max(start, first), min(start + size, end)
        if begin >= stop:
            continue
        if times[0] == 255:
            raise Wrong(f"element {begin} on {label} was never written{where(seen)}")
        if moved == FORGED:
            raise Wrong(f"element {begin} on {label} holds bytes that are no element: not an input, a sum or a zero"
                        f"{where(seen)}")
        trouble = _counts(times, wanted, world)
        if trouble:
            raise Wrong(f"element {begin} on {label}: {trouble}{where(seen)}")
        if moved == MIXED:
            raise Wrong(f"element {begin} on {label} adds elements from different places{where(seen)}")
        if moved != shift and any(wanted):
            raise Wrong(f"element {begin} on {label} is what belongs at element {begin + moved - shift}{where(seen)}")
        covered = max(covered, stop)
    that(covered >= end or length == 0, f"{label} has only {covered - first} of {length} elements right", seen)


def each_once(seen, world, count):
    """Checks that every element on every rank contains each rank exactly once."""
    for rank in range(world):
        counted(seen, f"out.{rank}", world, 0, count, [1] * world)


def _bits(number):
    return struct.unpack("<q", struct.pack("<d", number))[0]


def _sum_of(kind, world, i):
    """What all ranks' elements i add up to: labs/kit/elements.hpp. Returns the integers that are right."""
    if kind == 2:  # bytes
        return {sum((rank * 9 + i) % 32 for rank in range(world))}
    if i % 11 == 5:  # the sign of a sum of -0 depends on where it begins
        return {_bits(0.0), _bits(-0.0)}
    if i % 11 == 7:
        return {_bits(1e300 if world % 2 else 0.0)}
    return {_bits(-math.inf if i % 11 == 3 else float(world * (world + 1) // 2 * 2 ** 40 + world * i))}


def summed(seen, world, counts, kind):
    """Checks the sums of doubles (kind 1) or of bytes (kind 2) on every rank. counts: lengths of successive calls."""
    name = {1: "a double", 2: "a byte"}[kind]
    for rank in range(world):
        got = seen[f"out.{rank}"]
        equal(f"the number of elements of rank {rank}", len(got), sum(counts), seen)
        for i, bits in enumerate(got):
            if bits not in _sum_of(kind, world, i):
                value = struct.unpack("<d", struct.pack("<q", bits))[0] if kind == 1 else bits
                raise Wrong(f"element {i} on rank {rank}, {name}, is {value!r}, which is not the sum{where(seen)}")


def same_bits(name, got, want, seen=None):
    """Checks that two arrays ('f' or 'd') agree in every bit, and names the first difference."""
    if got.tobytes() == want.tobytes():
        return
    that(len(got) == len(want), f"{name} has {len(got)} elements, must have {len(want)}", seen)
    for i, (a, b) in enumerate(zip(got, want)):
        if array.array(got.typecode, [a]).tobytes() != array.array(want.typecode, [b]).tobytes():
            if math.isnan(a) and math.isnan(b):
                continue  # NaN has many bit patterns; all of them are accepted here
            raise Wrong(f"element {i} of {name} is {a!r}, must be {b!r}{where(seen or {})}")


def near(name, got, want, seen=None, tolerance=1e-9):
    """Checks a number with a relative tolerance. NaN is never near, and only infinity is near
    infinity."""
    that(got == want or abs(got - want) <= tolerance * abs(want) < math.inf, f"{name} is {got:.12g}, must be {want:.12g}",
         seen)


def close(name, got, want, tolerance, seen=None):
    """Checks that |got - want| <= tolerance, in a form that fails for NaN."""
    that(len(got) == len(want), f"{name} has {len(got)} elements, must have {len(want)}", seen)
    for i, (a, b) in enumerate(zip(got, want)):
        if not abs(a - b) <= tolerance:
            raise Wrong(f"element {i} of {name} is {a!r}, must be {b!r} within {tolerance:g}{where(seen or {})}")
