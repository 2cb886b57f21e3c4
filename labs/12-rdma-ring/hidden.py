"""Hidden tests of lab 12: credits, pieces, every world, a rank that dies, what crosses between machines."""
from labs.course.testing import WORLDS, counts_for, expect, lab_test

HIDDEN_SEED = 17446902

ELEMENT = 12


def whole(lab, world, count, **how):
    seen = lab.run("ring", world=world, count=count, **how)
    expect.each_once(seen, world, count)
    expect.that(not seen["trouble"], f"the device: {(seen['trouble'] or ' ').splitlines()[0]}", seen)
    return seen


def at_once(lab, slots, deeds, late=0, old=0):
    """Uses two channels whose messages and credits arrive immediately. deeds: 0 or 1: end 0 or 1
    sends; 2 or 3: end 0 or 1 receives."""
    lengths = [lab.random.randrange(9) for _ in deeds]
    seen = lab.run("at_once", slots=slots, slot_bytes=8, deeds=deeds, lengths=lengths, late=late, old=old)
    waiting, sent = ([], []), [0, 0]
    for number, (deed, got) in enumerate(zip(deeds, seen["results"])):
        side = deed % 2
        there = waiting[side if deed < 2 else 1 - side]
        if deed < 2:
            want = int(len(there) < slots)
            what = f"try_send on end {side}, with {len(there)} of {slots} slots taken,"
            if want:
                there.append(lengths[sent[side]])
                sent[side] += 1
        else:
            what = f"try_receive on end {side}, with {len(there)} messages there,"
            want = there.pop(0) if there else -1
        expect.that(got == want, f"call {number}: {what} returns {got}, must return {want} (1: sent, 0: not; else a length, -1: "
                                 "nothing)", seen)
    expect.equal("bytes that differ from those sent", seen["wrong"], 0, seen)


@lab_test
def credits(lab):
    """A slow receiver: no slot is written before it is free, and all slots are used."""
    for slots, size in [(1, 16), (2, 64), (4, 64), (3, 5)]:
        lengths = [lab.random.randrange(1, size + 1) for _ in range(30)]
        seen = lab.run("messages", world=2, slot_bytes=size, slots=slots, lengths=lengths, pause=50)
        expect.equal("bytes that differ from those sent", seen["wrong"], 0, seen)
        expect.equal("the lengths of the messages that arrived", list(seen["lengths"]), lengths, seen)
        # slots + 1, because the receiver counts a message only after try_receive has returned.
        expect.at_most("messages sent and not yet taken", seen["most"], slots + 1, "messages", seen)
        expect.that(seen["most"] >= slots, f"never more than {seen['most']} of {slots} slots in use", seen)
        expect.that(seen["refused"] > 0, "try_send never reported that no slot is free: it waits, or it overwrites", seen)
    lengths = [70_000, 65_536, 1, 65_537, 0, 69_999]  # lengths that need more than 16 bits
    seen = lab.run("messages", world=2, slot_bytes=70_000, slots=2, lengths=lengths)
    expect.equal("the lengths of the messages that arrived", list(seen["lengths"]), lengths, seen)
    expect.equal("bytes that differ from those sent", seen["wrong"], 0, seen)
    for slots, size, count in [(1, 8, 20), (3, 40, 60), (7, 3, 270)]:
        lengths = [lab.random.choice((0, size, lab.random.randrange(size + 1))) for _ in range(count)]
        seen = lab.run("both_ways", world=2, slot_bytes=size, slots=slots, lengths=lengths)
        expect.equal("bytes or lengths of messages in both directions that differ from those sent", seen["wrong"], 0,
                     seen)
        expect.that(not seen["trouble"], f"the device: {(seen['trouble'] or ' ').splitlines()[0]}", seen)
    for slots in (1, 2):  # a credit behind a message, a message behind a credit: either must be noticed
        at_once(lab, slots, [0, 1, 3, 0, 2, 1, 2, 3])
        for late in (0, 1):
            at_once(lab, slots, [lab.random.randrange(4) for _ in range(200)], late)


@lab_test
def worlds(lab):
    """Every world, two channels to the same rank among them; counts that do not divide."""
    for world in WORLDS:
        for count in lab.random.sample(counts_for(world), 3):
            whole(lab, world, count, slot_bytes=8 * ELEMENT, slots=2)
    whole(lab, 2, 9, slot_bytes=64, slots=1)
    whole(lab, 3, 2000, slot_bytes=700 * ELEMENT, slots=2)  # a slot of more than 2^13 bytes


@lab_test
def pieces(lab):
    """Chunks longer than a slot, slots that are no multiple of an element, one slot only."""
    for world, count, size, slots in [(2, 40, ELEMENT, 1), (3, 50, ELEMENT + 5, 2), (3, 100, 3 * ELEMENT + 1, 4),
                                      (5, 77, 2 * ELEMENT + 11, 1), (4, 64, 100, 3)]:
        seen = whole(lab, world, count, slot_bytes=size, slots=slots)
        longest = -(-count // world) * ELEMENT
        for rank in range(world):
            expect.at_most(f"rank {rank} sends", seen["bytes"][rank], 2 * (world - 1) * longest, "bytes", seen)
    for kind in (1, 2):  # T is any type: doubles with infinities, -0 and sums of 0; bytes, and slots of 21 of them
        for world in (2, 3):
            seen = lab.run("ring", world=world, count=50, slot_bytes=21, slots=2, calls=2, type=kind)
            expect.summed(seen, world, [50], kind)


@lab_test
def calls(lab):
    """Many calls on the same channels, and on others in turn; messages beyond 2^16 and 2^32: no counter starts over."""
    for world in (2, 3, 5):
        whole(lab, world, 23, slot_bytes=2 * ELEMENT, slots=3, calls=12)
        for one, other in ((1, 4), (4, 1)):
            whole(lab, world, 23, slot_bytes=one * ELEMENT, slots=3, calls=3, other_slot_bytes=other * ELEMENT)
            whole(lab, world, 23, slot_bytes=one * ELEMENT, slots=3, calls=2, other_slot_bytes=other * ELEMENT)
    seen = lab.run("both_ways", world=2, slot_bytes=3, slots=3, lengths=[m % 4 for m in range(66_000)])
    expect.equal("bytes or lengths of 66,000 messages in both directions that differ from those sent", seen["wrong"], 0,
                 seen)
    at_once(lab, 3, [0, 0, 3, 3] * 25, old=1)  # the messages before and after number 2^32 are in flight together


@lab_test
def dies(lab):
    """A rank leaves mid-step: all others end with an exception instead of waiting forever."""
    for world in (2, 3, 4):
        for dead in sorted({0, world // 2, world - 1}):
            seen = lab.run("ring", world=world, count=400, slot_bytes=2 * ELEMENT, slots=2, calls=2, dies=dead)
            for rank in range(world):
                told = seen[f"error.{rank}"]
                expect.that(rank == dead or "gone" in told or "retry" in told or "Flushed" in told,
                            f"rank {rank} says {told!r}, but rank {dead} is gone", seen)
    for takes in range(3):  # neighbours that fall silent, with no device to report it
        for gives in range(3):
            for foreign in (0, 1):
                seen = lab.run("silence", takes=takes, gives=gives, foreign=foreign)
                what = "a type that is no std::exception" if foreign else "std::runtime_error"
                expect.equal(f"what all_reduce throws when the third idle() throws 'rank 2 is gone', {what},", seen["told"],
                             "rank 2 is gone", seen)


@lab_test
def hierarchy(lab):
    """Task 4: various numbers of machines and ranks; a rank sends only its own part between machines."""
    for nodes, local in [(1, 4), (4, 1), (2, 3), (3, 2), (2, 4), (1, 1)]:
        world = nodes * local
        for count in (0, 1, local - 1, world, 24 * world, 24 * world + 5):
            seen = lab.run("hierarchy", world=world, nodes=nodes, local=local, count=count,
                           before=lab.random.choice((0, 7 * world + 3)))
            expect.each_once(seen, world, count)
            part = -(-count // local)
            for rank in range(world):
                expect.at_most(f"rank {rank} sends to other machines", seen["across"][rank],
                               2 * (nodes - 1) * -(-part // nodes), "elements", seen)
                expect.at_most(f"rank {rank} sends inside its machine", seen["inside"][rank], 2 * (local - 1) * part,
                               "elements", seen)
