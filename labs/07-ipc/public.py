"""Public tests of lab 07: handles between two processes, and the ring on two and three devices."""
from labs.course.testing import expect, lab_test


def ring(lab, world, count, how="threads", **options):
    """Runs `calls` all-reduces in succession, with elements numbered across all calls, and checks
    them."""
    seen = lab.run(how, world=world, count=count, **options)
    counts = options.get("counts", [count] * options.get("calls", 1))
    expect.each_once(seen, world, sum(counts))
    expect.equal("ranks whose input was changed, although it is not the output", seen.get("changed", 0), 0, seen)
    slot = options.get("slot_elements", 8)  # the smallest of any ring
    allowed = sum((2 * world - 2) * -(-(-(-c // world)) // slot) for c in counts)
    for rank in range(world):
        expect.at_most(f"rank {rank} was sent", seen[f"messages.{rank}"], allowed, "messages", seen)
    pieces = sum(-(-(c // world + (chunk < c % world)) // slot) for c in counts for chunk in range(world))
    expect.at_most("all ranks together were sent", sum(seen[f"messages.{rank}"] for rank in range(world)),
                   (2 * world - 2) * pieces, "messages: a piece without elements needs none", seen)
    return seen


def offers(lab, sizes):
    seen = lab.run("offers", world=2, count=0, sizes=sizes)
    for i in range(len(sizes)):
        for name in ("least.0", "most.0"):
            expect.equal(f"piece {i}, into which the other process writes {100 + i}: its {name[:-2]} element",
                         seen[name][i], 100 + i, seen)
    return seen


@lab_test
def handles(lab):
    """Tasks 1 and 2: another process writes into three pieces of this process's memory, two of them
    in one block."""
    seen = offers(lab, [100, 37, 1 << 20])
    expect.that(seen["opened.1"] > 0, "no handle was opened", seen)
    expect.equal("handles left open", seen["opened.1"] - seen["closed.1"], 0, seen)


@lab_test
def same_process(lab):
    """Task 2: within one process, the pointer itself is used."""
    seen = offers(lab, [8])
    expect.that(seen["same.0"], "open_offer of the process's own offer must return the pointer itself", seen)
    expect.equal("handles opened by the process that offers", seen["opened.0"], 0, seen)


@lab_test
def two_ranks(lab):
    """Tasks 3 to 5: two devices, one message per chunk."""
    ring(lab, 2, 10, slots=2, slot_elements=8)


@lab_test
def three_ranks(lab):
    """Three devices, chunks of several messages; two calls, with no wait in between."""
    ring(lab, 3, 60, slots=4, slot_elements=7, calls=2)
