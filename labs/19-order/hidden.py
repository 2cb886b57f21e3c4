"""Hidden tests of lab 19: larger programs, counters near overflow, no order too strong, and real atomics."""
from labs.course.lab import load_sibling
from labs.course.testing import expect, lab_test

HIDDEN_SEED = 37106629
public = load_sibling(__file__, "public")
right, weakest = public.right, public.weakest
LIVES = (1, 2 ** 8 - 1, 2 ** 16 - 2, 2 ** 31 - 1, 2 ** 32 - 1, 2 ** 40 + 1, 2 ** 53)


@lab_test
def letters(lab):
    """Any number; two letters in opposite orders; a letter about a letter."""
    for text in (0, -1, 2 ** 24 + 1, 2 ** 40 + 1, -2 ** 62):
        right(lab, "Letter", 0, text)
    right(lab, "Letter", 1, 5)
    right(lab, "Letter", 2, 5)


@lab_test
def messages(lab):
    """1 to 4 slots, more messages than slots; messages back and forth."""
    for count, most in ((1, 3), (2, 5), (3, 4), (4, 6)):
        right(lab, "Slots", 0, count, most, 0)
    for count in (1, 2, 3, 4):
        right(lab, "Slots", 1, count, 3, 0)
        right(lab, "Slots", 2, count, 0, 0)


@lab_test
def long_lives(lab):
    """After 255, 2^31, 2^32, 2^40 messages, rounds and pieces of work."""
    for lived in LIVES:
        right(lab, "Slots", 0, 3, 4, lived)
        right(lab, "Slots", 2, 3, 0, lived)
        right(lab, "Meeting", 3, 2, lived)
        right(lab, "Bell", 0, 1, lived)
        right(lab, "Bell", 1, 0, lived)


@lab_test
def meetings(lab):
    """1 to 4 threads, several rounds: each has exactly one last thread, which sees all numbers."""
    for threads, rounds in ((1, 3), (2, 1), (2, 3), (3, 2), (4, 1)):
        right(lab, "Meeting", threads, rounds, 0)


@lab_test
def bells(lab):
    """Two pieces of work, with late wakes."""
    right(lab, "Bell", 0, 2, 0)
    right(lab, "Bell", 0, 2, 2 ** 32 - 1)


@lab_test
def records(lab):
    """Two writes, two reads; two readers; many consecutive writes."""
    right(lab, "Record", 0, 2, 1, 1)
    right(lab, "Record", 0, 1, 2, 1)
    right(lab, "Record", 0, 1, 1, 2)
    right(lab, "Record", 1, 40, 3, 1)


@lab_test
def weakest_others(lab):
    """No order of tasks 2 to 5 is stronger than necessary."""
    weakest(lab, "Slots", [(0, 2, 3, 0), (0, 1, 2, 0), (1, 1, 2, 0)])
    weakest(lab, "Meeting", [(2, 2, 0), (3, 1, 0)])
    weakest(lab, "Bell", [(0, 1, 0), (1, 0, 0)])
    weakest(lab, "Record", [(0, 1, 1, 1), (0, 2, 1, 1), (1, 2, 1, 1)])


@lab_test
def real_threads(lab):
    """The same text on the processor's atomics: 2,000 numbers back and forth between two threads."""
    for count in (1, 3):
        seen = lab.run("real_threads", messages=2000, slots=count)
        expect.equal("the first number that is wrong", next(
            ((m, got) for m, got in enumerate(seen["got"]) if got != m * m + 1), None), None, seen)
        expect.equal("numbers that were returned", len(seen["got"]), 2000, seen)
