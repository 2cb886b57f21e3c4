"""Public tests of lab 12, which a student runs after every save."""
from labs.course.testing import expect, lab_test

ELEMENT = 12  # bytes of the elements that count contributions


@lab_test
def messages(lab):
    """Tasks 1 and 2: messages of many lengths arrive whole and in order, and are answered."""
    lengths = [64, 1, 0, 7, 63, 64, 0, 20, 3] * 3
    for echo in (0, 1):
        seen = lab.run("messages", world=2, slot_bytes=64, slots=4, lengths=lengths, echo=echo)
        expect.equal("the lengths of the messages that arrived", list(seen["lengths"]), lengths, seen)
        expect.equal("bytes that differ from those sent", seen["wrong"], 0, seen)
    expect.equal("bytes of the answers on the same channel that differ from those sent", seen["wrong_echo"], 0, seen)


@lab_test
def three_ranks(lab):
    """Task 3: all_reduce of three ranks and twelve elements, with chunks as long as a slot."""
    expect.each_once(lab.run("ring", world=3, count=12, slot_bytes=4 * ELEMENT, slots=4), world=3, count=12)


@lab_test
def two_machines(lab):
    """Task 4: two machines with two ranks each."""
    seen = lab.run("hierarchy", world=4, nodes=2, local=2, count=16)
    expect.each_once(seen, world=4, count=16)
