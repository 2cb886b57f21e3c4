"""Hidden tests of lab 00: files left behind, ranks that arrive too late, and large jobs."""
from labs.course.lab import load_sibling
from labs.course.testing import WORLDS, expect, lab_test

HIDDEN_SEED = 64083519
public = load_sibling(__file__, "public")


@lab_test
def stale(lab):
    """Task 1: an earlier job was killed and left its files. The next job meets its own ranks
    only."""
    public.whole(lab, [2, 2], stale=1, late=[300], deadline=12)  # rank 0's old card exists before its new one
    seen = lab.run("succession", hesitate=60)
    expect.equal("files that a job still had, and whose names began with the name that claim_name gave to another one",
                 seen["taken.1"], 0, seen)


@lab_test
def too_late(lab):
    """Task 3: a rank that arrives after the others have given up does not continue alone."""
    seen = lab.run("meet", world=3, ranks=[0, 1, 2], late=[0, 0, -1], patience=300, deadline=5)
    for rank in range(3):
        error = seen[f"error.{rank}"]
        expect.that("rank 2 never came" in error, f"rank 2 arrived after the others had given up, and rank {rank} "
                    f"was told {error or 'that all are present'!r}, not that rank 2 never came", seen)


@lab_test
def one_answer(lab):
    """Task 3: all ranks that wait for the same job get the same error, or none of them gets one."""
    seen = lab.run("meet", world=3, ranks=[0, 1], late=[0, -1], patience=300, deadline=5)  # rank 2 never arrives
    errors = [seen[f"error.{i}"] for i in (0, 1)]
    expect.that("rank 1 never came" in errors[0] and errors[1] == errors[0],
                f"all must get the same error, and rank 0 was told {errors[0]!r}, rank 1 {errors[1]!r}", seen)
    for late in (195, 203):  # at the moment when the others lose patience; either outcome is right if all share it
        seen = lab.run("meet", world=4, ranks=[0, 1, 2, 3], late=[0, 5, 10, late], patience=200, deadline=5)
        errors = [bool(seen[f"error.{rank}"]) for rank in range(4)]
        expect.that(len(set(errors)) == 1, f"ranks {[r for r in range(4) if not errors[r]]} continue, and ranks "
                    f"{[r for r in range(4) if errors[r]]} have given up", seen)
    # Rank 0 gives up, but announces it late. Meanwhile rank 1 arrives, and rank 2, with a later
    # deadline, sees all cards.
    seen = lab.run("meet", world=3, ranks=[0, 1, 2], late=[0, 220, 130], patience=150, hesitate=200, deadline=5)
    errors = [bool(seen[f"error.{rank}"]) for rank in range(3)]
    expect.that(len(set(errors)) == 1, f"ranks {[r for r in range(3) if not errors[r]]} continue, and ranks "
                f"{[r for r in range(3) if errors[r]]} have given up", seen)


@lab_test
def given_twice(lab):
    """Task 3: two processes were told the same rank. One of them is refused, and told why."""
    for ranks, late, blank in (([0, 1, 1, 2], [0, 0, 60, 120], -1), ([0, 1, 2, 0], [0, 0, 0, 300], -1),
                               ([0, 1, 1, 2], [0, 0, 60, 120], 1)):  # both have an empty card
        seen = lab.run("meet", world=3, ranks=ranks, late=late, blank=blank, patience=900, deadline=5)
        twice = max(ranks, key=ranks.count)
        errors = [seen[f"error.{i}"] for i, rank in enumerate(ranks) if rank == twice]
        expect.that(any(f"rank {twice} was given twice" in e for e in errors),
                    f"two processes are rank {twice}, and neither was told 'rank {twice} was given twice': {errors}",
                    seen)
        lists = {seen[f"cards.{i}"] for i in range(4)} - {""}
        expect.that(len(lists) <= 1, f"two processes are rank {twice}, and the ranks met different ones", seen)
    for late in ([0, 0, 60, 120], [120, 0, 60, 0]):  # only one process is refused; the others meet
        seen = lab.run("meet", world=3, ranks=[0, 1, 1, 2], late=late, patience=15_000)
        errors = [seen[f"error.{i}"] for i in range(4)]
        refused = [i for i in range(4) if "rank 1 was given twice" in errors[i]]
        expect.that(len(refused) == 1 and refused[0] in (1, 2) and errors.count("") == 3,
                    f"two processes are rank 1: one of them must be refused, and the others must meet: {errors}", seen)


@lab_test
def crowd(lab):
    """Tasks 2 and 3: many more ranks than cores, one of them late. Ranks must not poll."""
    world, late = 40, 400
    seen = public.whole(lab, [24, 16], patience=15_000, late=[0] * 7 + [late])
    for rank in range(world):
        requests, seconds = seen[f"requests.{rank}.0"], seen[f"seconds.{rank}.0"]
        expect.at_most(f"requests of rank {rank} to the folder, {world} ranks, {seconds:.1f} s", requests,
                       20 * world + int(200 * seconds), "requests", seen)


@lab_test
def whole_job(lab):
    """All tasks: jobs of every size on one, two and three nodes; local rank is not rank; a process meets for several jobs."""
    for world in WORLDS:
        counts = [world] if world < 3 else [world - world // 2, world // 2] if world < 5 else [1, world - 3, 2]
        public.whole(lab, counts)
    seen = lab.run("meet", world=4, ranks=[2, 0, 3, 1], late=[0, 20, 0, 40], patience=15_000, blank=3)  # an empty card
    public.met(seen, {0: 2, 1: 0, 2: 3, 3: 1})
    for more in ("\nrank 1 never came", "\n\n", " " * 9, "\0\t", "x" * 9000, "\ncard.0"):  # a card is any text
        seen = lab.run("meet", world=3, ranks=[2, 0, 1], late=[0, 20, 0], patience=15_000, more=list(more.encode()))
        cards = "".join(seen[f"card.{i}"] + "\n--\n" for i in (1, 2, 0))
        for i in range(3):
            error = seen[f"error.{i}"]
            expect.that(not error, f"cards of {len(more)} more characters, and meet throws: {error}", seen)
            expect.that(seen[f"cards.{i}"] == cards, f"process {i} got cards that are not those given: they end with {more[:40]!r}",
                        seen)
    seen = lab.run("meet", world=1, ranks=[0], late=[0], patience=0)  # no rank is missing
    expect.that(not seen["error.0"], f"the only rank of a job, which need not wait, has no patience: {seen['error.0']}", seen)
    for hosts in ("a_b a a_b a", "_ a _ _", "a a_ a a_", "10 1 10 01", "n.a n.b n.a n n.b", "a-1 a-2 a a-1", "A a A", "a/1 a/2 a/1",
                  "a:1 a:2 a", ".a .b ."):  # any names, whatever separates their parts
        seen = lab.run("place", hosts=hosts)
        expect.equal("the places on hosts with blanks in their names (here _)", list(seen["places"]),
                     public.places_of(hosts.split()), seen)
    seen = lab.run("meet_again")
    for turn in (0, 1, 3):
        cards = [seen[f"card.{turn}.{(rank - turn) % 3}"] for rank in range(3)]
        for i in range(3):
            error = seen[f"error.{turn}.{i}"]
            expect.that(not error, f"process {i} meets for a job after {turn} others, and meet throws: {error}", seen)
            expect.equal(f"the cards that process {i} got in meeting {turn} of one process", seen[f"cards.{turn}.{i}"].splitlines(),
                         cards, seen)
    for i in (1, 2):
        error, seconds = seen[f"error.2.{i}"], seen[f"seconds.2.{i}"]
        expect.that(seconds < 2.3, f"process {i} was to wait for 0.3 s in its third meeting, but its error was thrown after "
                    f"{seconds:.1f} s", seen)
        expect.that("rank 2 never came" in error, f"rank 2 did not arrive at the third meeting, and process {i} was told "
                    f"{error or 'that all are present'!r}", seen)
