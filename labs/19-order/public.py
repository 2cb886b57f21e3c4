"""Public tests of lab 19: the smallest program of each hand-off, in all its executions."""
from labs.course.testing import expect, lab_test


def right(lab, task, *numbers):
    """Runs one program of the driver; driver.cpp explains the numbers at letters(), slots(), ..."""
    seen = lab.run("executions", task=task, numbers=list(numbers))
    text = "" if not seen["failure"] else \
        f"{seen['failure']}, in execution {seen['executions'] + 1}{expect.where(seen)}:\n{seen['execution']}"
    expect.that(not text, text)
    expect.that(seen["complete"], f"{task} has more executions than can be tried: more operations than are needed?", seen)
    return seen


def weakest(lab, task, programs):
    """Checks that each order of the task is necessary: with any weaker one, one of the programs fails."""
    seen = lab.run("weaker_orders", task=task, arity=len(programs[0]), numbers=[n for p in programs for n in p])
    expect.equal(f"the first failure of {task}, before any order is made weaker", seen["failure"], "", seen)
    expect.that(seen["tried"] > 0, f"{task} asks for no order", seen)
    enough = seen["enough"].splitlines()
    expect.that(not enough, f"{task} is right in all executions with a weaker order, too: {'; '.join(enough)}", seen)


@lab_test
def letter(lab):
    """Task 1: the letter arrives, with everything written before it."""
    right(lab, "Letter", 0, 7)


@lab_test
def weakest_letter(lab):
    """Task 1: each requested order is necessary."""
    weakest(lab, "Letter", [(0, 7), (1, 7)])


@lab_test
def slots(lab):
    """Task 2: three messages through two slots, each once, in order."""
    right(lab, "Slots", 0, 2, 3, 0)


@lab_test
def no_waiting(lab):
    """Task 2: no unnecessary waiting: one thread fills all slots, then empties them, twice."""
    right(lab, "Slots", 2, 2, 0, 0)


@lab_test
def meeting(lab):
    """Task 3: three threads meet, and the last one adds all their numbers."""
    right(lab, "Meeting", 3, 1, 0)


@lab_test
def bell(lab):
    """Task 4: a piece of work, and the sleeper is always woken; right answers for one thread that posts and sleeps."""
    right(lab, "Bell", 1, 0, 0)
    right(lab, "Bell", 0, 1, 0)


@lab_test
def record(lab):
    """Task 5: two numbers of one write, or nullopt; nullopt only during a write."""
    right(lab, "Record", 1, 3, 2, 1)
    right(lab, "Record", 0, 1, 1, 1)
