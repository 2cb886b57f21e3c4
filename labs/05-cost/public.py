"""Public tests of lab 05: the formulas at numbers that can be checked on paper."""
from labs.course.testing import expect, lab_test


@lab_test
def message(lab):
    """Task 1: alpha + S beta."""
    seen = lab.run("messages", alpha=5.0, beta=0.5, bytes=[0.0, 1.0, 6.0])
    for got, want in zip(seen["times"], (5.0, 5.5, 8.0)):
        expect.near("the time of a message", got, want, seen)


@lab_test
def by_hand(lab):
    """Tasks 2 to 4: three ranks, six numbers, as in the lesson: 44, 44, 28; and eight ranks."""
    how = {"alpha": 5.0, "beta": 1.0, "gamma": 0.0, "element": 1}
    for name, three, eight in (("flat", 44.0, 182.0), ("tree", 44.0, 78.0), ("ring", 28.0, 84.0)):
        seen = lab.run("formulas", only=name, worlds=[3, 8], counts=[6, 8], **how)
        expect.near(f"the time of {name} on 3 ranks, 6 bytes", seen[name][0], three, seen)
        expect.near(f"the time of {name} on 8 ranks, 8 bytes", seen[name][1], eight, seen)


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
        expect.near(f"the time of {name} on 4 ranks that only costs adding", seen[name][0], want, seen)


@lab_test
def decides(lab):
    """Tasks 5 and 6: the ring for 6 bytes on three ranks, the tree for 8 bytes on eight ranks;
    crossover at 160/17."""
    how = {"worlds": [3, 8], "counts": [6, 8], "alpha": 5.0, "beta": 1.0, "element": 1}
    seen = lab.run("formulas", only="cheapest", **how)
    expect.equal("the cheapest on 3 ranks, 6 bytes, and on 8 ranks, 8 bytes (flat 0, tree 1, ring 2)",
                 list(seen["cheapest"]), [2, 1], seen)
    seen = lab.run("formulas", only="crossover", **how)
    for world, got, want in zip((3, 8), seen["crossover"], (0.0, 160 / 17)):
        expect.near(f"the crossover of {world} ranks", got, want, seen)


@lab_test
def bound_and_fit(lab):
    """Tasks 7 and 8: the bound for three ranks and six bytes is 8 s; two messages determine alpha 5
    and beta 1."""
    seen = lab.run("formulas", only="least", worlds=[3], counts=[6], alpha=5.0, beta=1.0, element=1)
    expect.near("the bound for 3 ranks and 6 bytes", seen["least"][0], 8.0, seen)
    seen = lab.run("fits", bytes=[0.0, 6.0], seconds=[5.0, 11.0])
    expect.near("alpha from two messages", seen["alpha"], 5.0, seen)
    expect.near("beta from two messages", seen["beta"], 1.0, seen)
