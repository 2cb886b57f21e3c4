"""Public tests of lab 06, which a student runs at every save."""
from labs.course.testing import WORLDS, expect, floats, lab_test


@lab_test
def chunks(lab):
    """Task 1: chunks cover the buffer, without gaps, and differ by at most one element."""
    for world, count in [(1, 5), (2, 7), (3, 7), (4, 4), (5, 3), (8, 0), (7, 1000), (3, 2 ** 24 + 1),
                         (5, 2 ** 40 + 3), (3, 2 ** 53 + 5), (7, 2 ** 63 - 1)]:
        seen = lab.run("chunks", world=world, count=count)
        at = 0
        for index, (first, length) in enumerate(zip(seen["first"], seen["length"])):
            expect.equal(f"the first element of chunk {index}", first, at, seen)
            expect.equal(f"the length of chunk {index}", length, count // world + (index < count % world), seen)
            at += length


def follow(seen, world, phase):
    """Checks that every chunk sent at a step is the chunk that its receiver expects at that
    step."""
    rows = seen[phase]
    for step in range(world - 1):
        at = [rows[4 * (step * world + r):4 * (step * world + r) + 4] for r in range(world)]
        for rank, (to, sends, source, receives) in enumerate(at):
            label = f"{phase}, step {step} of rank {rank}"
            expect.that(0 <= to < world and 0 <= source < world, f"{label}: there is no rank {to} or {source}", seen)
            expect.that(0 <= sends < world and 0 <= receives < world,
                        f"{label}: there is no chunk {sends} or {receives}", seen)
            expect.that(at[to][2] == rank, f"{label} sends to rank {to}, which expects rank {at[to][2]}", seen)
            expect.that(at[to][3] == sends,
                        f"{label} sends chunk {sends} to rank {to}, which expects chunk {at[to][3]}", seen)
            expect.that((to - rank) % world in (1, world - 1), f"{label}: rank {to} is not a neighbour", seen)


@lab_test
def schedule(lab):
    """Task 2: at every step, sender and receiver agree on the chunk, and chunk c ends complete on
    rank c."""
    for world in WORLDS:
        seen = lab.run("schedule", world=world)
        for phase in ("reduce_scatter", "all_gather"):
            follow(seen, world, phase)
        holds = [[{r} for _ in range(world)] for r in range(world)]  # ranks whose values are in rank r's chunk c
        for step in range(world - 1):
            rows = [seen["reduce_scatter"][4 * (step * world + r):][:4] for r in range(world)]
            moved = [set(holds[source][receives]) for _, _, source, receives in rows]
            for rank, row in enumerate(rows):
                expect.that(not holds[rank][row[3]] & moved[rank],
                            f"reduce_scatter, step {step}: rank {rank} adds what chunk {row[3]} already has", seen)
                holds[rank][row[3]] |= moved[rank]
        for rank in range(world):
            expect.equal(f"after reduce_scatter the ranks in chunk {rank} on rank {rank}",
                         sorted(holds[rank][rank]), list(range(world)), seen)


@lab_test
def two_ranks(lab):
    """all_reduce of two ranks and ten elements."""
    expect.each_once(lab.run("counted", world=2, count=10), world=2, count=10)


@lab_test
def three_ranks(lab):
    """reduce_scatter, all_gather and all_reduce of three ranks and twelve elements."""
    seen = lab.run("counted", collective="reduce_scatter", world=3, count=12)
    for rank in range(3):
        expect.counted(seen, f"out.{rank}", 3, 4 * rank, 4, [1] * 3)
    seen = lab.run("counted", collective="all_gather", world=3, count=12)
    for rank in range(3):
        for owner in range(3):
            expect.counted(seen, f"out.{rank}", 3, 4 * owner, 4, [int(r == owner) for r in range(3)])
    expect.each_once(lab.run("counted", world=3, count=12), world=3, count=12)


@lab_test
def zero_buffers(lab):
    """Nothing is buffered between ranks: a send ends when it is received."""
    for world in (2, 3, 4):
        expect.each_once(lab.run("counted", world=world, count=4 * world, capacity=0), world=world, count=4 * world)


@lab_test
def mailbox(lab):
    """Task 6: pieces leave a mailbox as they were put in, also if there are more pieces than
    slots."""
    for sizes in ([1], [4, 256, 8], [256] * 20, [n % 256 + 1 for n in range(200)]):
        expect_pieces(lab, sizes, pauses=len(sizes) == 20)
    for in_step in (1, 2):  # each piece is taken before the next one is put; all slots are full before a piece is taken
        expect_pieces(lab, [8, 256, 1] * 4, in_step=in_step)


def expect_pieces(lab, sizes, **how):
    seen = lab.run("pieces", world=2, sizes=sizes, **how)
    for i in range(len(sizes)):
        expect.equal(f"piece {i}, first and last byte", list(seen["got.1"][2 * i:2 * i + 2]), [i + 1] * 2, seen)


@lab_test
def two_processes(lab):
    """Task 7: the ring of part 1 between two and three processes, with messages longer than all slots."""
    for world in (2, 3):
        for count in (10, 2000):
            between_processes(lab, world, count)


def between_processes(lab, world, count, calls=1, **how):
    """Runs all_reduce over mailboxes, and compares it with the serial sum, which is exact for small whole numbers."""
    period = 61
    table = floats(lab.random.randrange(-500, 500) for _ in range(world * period))
    seen = lab.run("processes", world=world, count=count, calls=calls, period=period, table=table, **how)
    sums = [sum(table[r * period + i] for r in range(world)) for i in range(period)]
    want = floats(sums[(i + call) % period] for call in range(calls) for i in range(count))
    for rank in range(world):
        name = f"rank {rank}'s outputs of {calls} calls of {count} elements" if calls > 1 else f"rank {rank}'s output"
        expect.same_bits(name, seen[f"out.{rank}"], want, seen)
        expect.equal(f"guard elements overwritten by rank {rank}", seen[f"guards.{rank}"], 0, seen)
