"""Public tests of lab 05: the formulas at numbers that can be checked on paper."""
from labs.course.testing import expect, lab_test


def near(name, got, want, seen):
    expect.that(abs(got - want) <= 1e-9 * abs(want), f"{name} is {got:.10g}, must be {want:.10g}", seen)


@lab_test
def message(lab):
    """Task 1: alpha + S beta."""
    seen = lab.run("messages", alpha=5.0, beta=0.5, bytes=[0.0, 1.0, 6.0])
    for got, want in zip(seen["times"], (5.0, 5.5, 8.0)):
        near("the time of a message", got, want, seen)


@lab_test
def by_hand(lab):
    """Tasks 2 to 4: three ranks, six numbers, as in the lesson: 44, 44, 28; and eight ranks."""
    how = {"alpha": 5.0, "beta": 1.0, "gamma": 0.0, "element": 1}
    for name, three, eight in (("flat", 44.0, 182.0), ("tree", 44.0, 78.0), ("ring", 28.0, 84.0)):
        seen = lab.run("formulas", only=name, worlds=[3, 8], counts=[6, 8], **how)
        near(f"the time of {name} on 3 ranks, 6 bytes", seen[name][0], three, seen)
        near(f"the time of {name} on 8 ranks, 8 bytes", seen[name][1], eight, seen)


@lab_test
def rounds(lab):
    """Task 3: the rounds of a tree, for every number of ranks."""
    seen = lab.run("formulas", only="tree", worlds=[1, 2, 3, 4, 5, 7, 8], counts=[1] * 7, alpha=1.0, beta=1.0,
                   element=4)
    for world, got, want in zip((1, 2, 3, 4, 5, 7, 8), seen["rounds"], (0, 1, 2, 2, 3, 3, 3)):
        expect.equal(f"tree_rounds({world})", got, want, seen)


@lab_test
def adding(lab):
    """Tasks 2 to 4: only the first half adds."""
    for name, want in (("flat", 3 * 8.0), ("tree", 2 * 8.0), ("ring", 3 * 2.0)):
        seen = lab.run("formulas", only=name, worlds=[4], counts=[8], alpha=0.0, beta=0.0, gamma=1.0, element=1)
        near(f"the time of {name} on 4 ranks that only costs adding", seen[name][0], want, seen)
