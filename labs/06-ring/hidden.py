"""Hidden tests of lab 06: every world, awkward counts, hostile delays, budgets."""
import math
import re

from labs.course.lab import load_sibling
from labs.course.testing import WORLDS, Cheat, Hang, counts_for, expect, floats, lab_test

HIDDEN_SEED = 77206112
public = load_sibling(__file__, "public")
between_processes, expect_pieces = public.between_processes, public.expect_pieces


def whole(lab, world, count, **how):
    seen = lab.run("counted", world=world, count=count, **how)
    expect.each_once(seen, world, count)
    expect.equal("guard elements overwritten", sum(seen["guards"]), 0, seen)
    return seen


@lab_test
def worlds(lab):
    """Every world from 1 to 8, powers of two or not."""
    for world in (*WORLDS, 6):
        whole(lab, world, 24 * world)
        whole(lab, world, 24 * world + 1, capacity=1)


@lab_test
def counts(lab):
    """Counts that the world does not divide: 0, 1, world - 1, world + 1, primes; misaligned, guarded."""
    for world in (2, 3, 5, 8):
        for count in counts_for(world):
            whole(lab, world, count, offset=lab.random.choice((0, 1)))
    for world in (3, 4):
        count = 3 * world + 2
        seen = lab.run("counted", collective="reduce_scatter", world=world, count=count)
        first = 0
        for rank in range(world):
            length = count // world + (rank < count % world)
            expect.counted(seen, f"out.{rank}", world, first, length, [1] * world)
            first += length


@lab_test
def in_place_or_not(lab):
    """In place, and out of place, where the input must not change."""
    for world in (1, 2, 3, 4):
        for count in (0, 1, 10):
            whole(lab, world, count, in_place=1)
            for mirrored in (0, 1):
                seen = whole(lab, world, count, in_place=0, mirrored=mirrored)
                for rank, kept in enumerate(seen["unchanged"]):
                    expect.that(kept, f"rank {rank}'s input was changed, although it is not the output", seen)


@lab_test
def budget(lab):
    """Bytes sent per rank: 2 (N-1)/N of the buffer; messages: 2 (N-1). No rank is a hub."""
    element = 4
    for world in (2, 3, 4, 5, 8):
        for count in (40 * world, 40 * world + 3, world - 1):
            table = floats(1.0 for _ in range(world))
            seen = lab.run("floats", world=world, count=count, period=1, table=table, capacity=4, alpha=1.0, beta=0.0)
            size = element * count
            longest = element * -(-count // world)
            hub = max(seen["received_bytes"])
            if 2 < world <= count and hub >= (world - 1) * size and min(seen["received_bytes"]) < hub:
                root = list(seen["received_bytes"]).index(hub)
                raise Cheat(f"rank {root} receives the whole buffer of every other rank ({hub} bytes): "
                            f"gather-to-root in disguise{expect.where(seen)}")
            for rank in range(world):
                expect.at_most(f"rank {rank} sends", seen["sent_bytes"][rank], 2 * (world - 1) * longest, "bytes", seen)
                expect.at_most(f"rank {rank} sends", seen["messages"][rank], 2 * (world - 1), "messages", seen)
            expect.at_most("virtual time, one second a message", max(seen["finish"]), 4 * (world - 1), "s", seen)
            least, sent = 2 * (world - 1) * size, sum(seen["sent_bytes"])
            expect.that(sent >= least, f"all ranks together send {sent} bytes; without {least} over the link, not every rank "
                        "can have every sum", seen)


@lab_test
def bits_and_nans(lab):
    """All ranks get the same bits; a NaN or an infinity affects its own element only."""
    for world in (2, 3, 5):
        period = 13
        table = floats(lab.random.uniform(-1, 1) for _ in range(world * period))
        for count in (101, world - 1):
            seen = lab.run("floats", world=world, count=count, period=period, table=table)
            for rank in range(1, world):
                expect.same_bits(f"rank {rank}'s output compared with rank 0's", seen[f"out.{rank}"], seen["out.0"], seen)
        exact = floats(lab.random.randrange(-1000, 1000) for _ in range(world * period))
        exact[period * (world - 1) + 3] = math.nan
        exact[5] = math.inf
        exact[7], exact[period + 8] = -math.inf, 3e38
        want = floats(sum(exact[r * period + i % period] for r in range(world)) for i in range(101))
        seen = lab.run("floats", world=world, count=101, period=period, table=exact)
        for rank in range(world):
            expect.same_bits(f"rank {rank}'s output", seen[f"out.{rank}"], want, seen)
        # Sums of -0, whose sign may depend on where a sum begins, but not on the rank.
        seen = lab.run("floats", world=world, count=2 * world + 1, period=1, table=floats([-0.0] * world))
        for rank in range(world):
            expect.same_bits(f"rank {rank}'s sum of -0 compared with rank 0's", seen[f"out.{rank}"], seen["out.0"], seen)
            expect.that(not any(seen[f"out.{rank}"]), f"rank {rank}'s sum of -0 is {list(seen[f'out.{rank}'])}", seen)
    each = floats([-0.0, 1e-45, -math.inf, 0.0, -1e-45, 5.0])  # chunk r is rank r's: all_gather adds nothing
    seen = lab.run("floats", collective="all_gather", world=3, count=6, period=6, table=floats([*each] * 3))
    for rank in range(3):
        expect.same_bits(f"rank {rank}'s output of all_gather", seen[f"out.{rank}"], each, seen)


@lab_test
def delays(lab):
    """Ten calls in succession, of one length or several; messages delayed by seed; 0, 1 and 3
    buffered."""
    for _ in range(4):
        for capacity in (0, 1, 3):
            world = lab.random.choice((2, 3, 4, 5, 7))
            whole(lab, world, lab.random.randrange(60), capacity=capacity, jitter=5.0, calls=10,
                  seed=lab.random.randrange(1 << 30))
    for world in (2, 3):  # an earlier call must not affect a longer one
        whole(lab, world, 211, earlier=[5, 90, 0])


@lab_test
def process_worlds(lab):
    """Task 7 with 1 to 5 processes, counts that the world does not divide, in place and
    misaligned."""
    for world in (1, 2, 3, 4, 5):
        for count in sorted({0, 1, world + 1, 131, 64 * 2 * world + 1}):
            between_processes(lab, world, count, in_place=lab.random.randrange(2), offset=1)
    for world in (2, 4):  # elements of one byte, by send and recv only
        sizes = [1, 0, 257, 256, 1000, 513, 2]
        seen = lab.run("messages", world=world, sizes=sizes)
        want = bytes((29 * i + 7 * k) % 251 for i, size in enumerate(sizes) for k in range(size))
        for rank in (0, world - 1):
            expect.that(seen[f"got.{rank}"] == want, f"rank {rank} did not get the messages that rank "
                        f"{world - 1 - rank} has sent", seen)


@lab_test
def two_hundred_calls(lab):
    """200 calls in succession without a barrier, with processes that pause; and pieces with numbers
    beyond 2^32."""
    for world in (2, 3, 4):
        between_processes(lab, world, 67, calls=200, pauses=world != 4)
    expect_pieces(lab, [n % 256 + 1 for n in range(40)], old=1)
    seen = lab.run("room", world=2)  # a sender waits for one free slot, not for more
    expect.equal("the pieces, when all slots are full before the first is taken", list(seen["got.1"]),
                 list(range(1, len(seen["got.1"]) + 1)), seen)
    # Ranks that wait for each other: the report names who waits for whom. Rank 0 sends, or all receive.
    for sends, verb in ((1, "send"), (0, "recv")):
        report = ""
        try:
            lab.run("stuck", world=3, sends=sends)
        except Hang as hang:
            report = str(hang)
        for rank, peer, word in ((0, 2, verb), (1, 0, "recv"), (2, 1, "recv")):
            expect.that(re.search(rf"rank {rank}: stuck .*: {word}, rank {peer}: waits", report),
                        f"rank {rank} waits for rank {peer} in a {word}, and the report of the hang does not say so: {report}")
        expect.that("wait-for cycle: 0 -> 2 -> 1 -> 0" in report, f"ranks 0, 2 and 1 wait for each other: {report}")
