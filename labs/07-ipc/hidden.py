"""Hidden tests of lab 07: worlds, counts, slow ranks, many calls, processes, and the calls made on
the way."""
import pathlib

from labs.course.lab import load_module
from labs.course.testing import WORLDS, expect, lab_test

HIDDEN_SEED = 52290613
ring = load_module(pathlib.Path(__file__).with_name("public.py")).ring


@lab_test
def worlds(lab):
    """Every world from 1 to 8."""
    for world in WORLDS:
        ring(lab, world, 5 * world + 3, slots=2, slot_elements=4, calls=2)


@lab_test
def counts(lab):
    """Counts that do not divide, or are smaller than the world; in place."""
    for world, count in [(2, 1), (3, 0), (3, 2), (3, 97), (4, 3), (4, 5), (5, 31)]:
        ring(lab, world, count, slot_elements=lab.random.choice((1, 3, 64)), in_place=lab.random.randrange(2), calls=2)
    for kind in (1, 2):  # T is any type: doubles with infinities, -0 and sums of 0; bytes
        for world in (2, 3):
            seen = lab.run("threads", world=world, count=29, slots=2, slot_elements=3, calls=2, type=kind,
                           in_place=lab.random.randrange(2))
            expect.summed(seen, world, [29, 29], kind)
    ring(lab, 4, 7, slot_elements=2)  # chunks of 2, 2, 2 and 1, not of 1, 1, 1 and 4: one piece each
    # Pieces with more elements than there are threads, and than 2^15. Smaller pieces are allowed:
    # they only need more messages.
    seen = lab.run("threads", world=2, count=180_001, slots=2, slot_elements=40_000)
    expect.each_once(seen, 2, 180_001)


@lab_test
def slow_reader(lab):
    """One rank is late at every flag: it must not be overrun, and its late stores must be waited
    for."""
    for slow in (0, 1, 2):
        ring(lab, 4, 64, slots=2, slot_elements=4, slow=slow, calls=3)


@lab_test
def calls_200(lab):
    """200 calls in succession without a wait, one rank slow; calls of all sizes, two rings, long
    lives."""
    ring(lab, 3, 7, slots=2, slot_elements=3, slow=1, calls=200, deadline=25)
    counts = [10, 0, 3, 97, 1, 2, 40]
    ring(lab, 3, 0, slots=3, slot_elements=5, counts=counts)
    ring(lab, 4, 0, slots=2, slot_elements=3, counts=counts, rings=2, slow=3)
    for lived in (2 ** 31 - 5, 2 ** 32 - 3, 2 ** 40 + 1):  # earlier messages: the counters have 64 bits
        ring(lab, 3, 30, slots=3, slot_elements=4, calls=3, lived=lived)


@lab_test
def between_processes(lab):
    """The same ring between two and three processes: memory by handles, which are closed at the
    end."""
    for world in (2, 3):
        seen = ring(lab, world, 50, how="processes", slots=2, slot_elements=8, calls=5, deadline=15)
        for rank in range(world):
            expect.equal(f"rank {rank}'s handles left open", seen[f"opened.{rank}"] - seen[f"closed.{rank}"], 0, seen)


@lab_test
def nothing_hidden(lab):
    """all_reduce enqueues and returns: it waits for no stream or device, and copies nothing through
    the host."""
    seen = ring(lab, 2, 32, slots=2, slot_elements=8, calls=4)
    expect.equal("waits for a device, stream or event inside all_reduce", seen["syncs"], 0, seen)
    expect.equal("bytes copied from or to the host's memory", seen["staged"], 0, seen)
    # Each rank calls only after the previous rank has enqueued all its calls, so a wait for another
    # rank inside all_reduce never ends, whether it is counted or not.
    ring(lab, 3, 32, slots=2, slot_elements=8, calls=4, in_turns=1)


@lab_test
def flags_in_order(lab):
    """Flags are visible across devices and order their data: system scope, release and acquire (or
    fences)."""
    seen = ring(lab, 3, 50, slots=2, slot_elements=8, calls=2)
    expect.equal("accesses to flags with a scope no wider than the device", seen["narrow"], 0, seen)
    expect.equal("posts of a number that the flag already had: one thread must post, once", seen["again"], 0, seen)
    expect.equal("flags that were changed other than by cuda::atomic_ref", seen["unwatched"], 0, seen)
    expect.equal("flags stored with no release, and no fence between the data and them", seen["bare_posts"], 0, seen)
    expect.equal("flags read with no acquire, and no fence between them and the data", seen["bare_looks"], 0, seen)
