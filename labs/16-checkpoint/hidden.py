"""Hidden tests of lab 16: every crash point, every byte, full disks, changing numbers of ranks."""
from labs.course.lab import load_sibling
from labs.course.testing import expect, floats, lab_test

HIDDEN_SEED = 51870233
public = load_sibling(__file__, "public")
ALL = list(range(7))


@lab_test
def any_bits(lab):
    """NaN, infinity, -0, the smallest numbers; empty and long arrays; blanks, newlines, zeros in names; large steps."""
    nan, inf = float("nan"), float("inf")
    cases = [(0, {}, {}), (1, {"": []}, {"": ""}), (2**40 + 3, {"w": [nan, inf, -inf, -0.0, 1e-45, 3.4e38]}, {"a b": "x y\n"}),
             (2**62, {"a": [1.0], "b\n": [2.0, 3.0], " ": [4.0] * 3000}, {"n": "a\0b\nc", "a": "|" * 5000, "b=c": "1;2"}),
             (8, {"more than 16 bits can count": [0.5] * 70_000}, {}),
             (9, {"a\0b": [1.0], "a": [2.0, 3.0], "\0": [4.0] * 3}, {"a\0c": "x", "a": "y", "\0": "z"}),
             (7, {"a": [0.1], "a ": [0.2, 0.3]}, {"a": "b", "a b": "", "b": "a"})]
    for step, tensors, texts in cases:
        public.packed(lab, step, tensors, texts)


@lab_test
def every_byte(lab):
    """A file that is truncated, extended, or changed at any byte is Damaged, and never anything else."""
    public.packed(lab, 0, {}, {}, damage=1)
    public.packed(lab, 2**33, {"w": [0.0] * 9, "": []}, {"t": "zeros\0\0\0", "": ""}, damage=1)


@lab_test
def every_cut(lab):
    """The power is cut before every operation; the disk is in its worst states; keep 1 to 3, steps saved again."""
    for steps, keep in [([10, 20, 30], 1), ([5, 9, 10, 11], 2), ([99, 100, 101, 102, 103], 3), ([20, 10, 20], 2),
                        ([7, 7, 7], 1)]:
        public.cuts(lab, steps, keep, ALL)
    for _ in range(6):
        public.cuts(lab, [1, 2, 3], lab.random.choice((1, 2)), [public.RANDOM])


@lab_test
def cut_twice(lab):
    """The power is cut again while the restarted program saves."""
    public.cuts(lab, [10, 20], 1, ALL, depth=1)
    public.cuts(lab, [8, 9, 10], 2, ALL, depth=1)


@lab_test
def keeps(lab):
    """Damaged checkpoints do not count towards `keep`; files of other names stay, and so does a neighbour's folder."""
    for keep, script, numbers, found, skipped, listed in [
            (2, "sssl", [30, 10, 20, 0], [30], [], "step-20 step-30"),
            (2, "sssdlsl", [8, 9, 10, 10, 0, 11, 0], [9, 11], ["step-10"], "step-10 step-11 step-9"),
            (1, "stlsl", [99, 99, 0, 50, 0], [-1, 50], ["step-99"] * 2, "step-50 step-99"),
            (3, "ssssdell", [1, 2, 30, 4, 30, 4, 0, 0], [2, 2], ["step-30 step-4"] * 2, "step-2 step-30 step-4"),
            (2, "ssdoso", [5, 6, 6, 0, 6, 0], [5, 6], ["step-6"], "step-5 step-6"),
            (1, "ssdosso", [5, 6, 6, 0, 6, 7, 0], [-1, 7], ["step-6"], "step-7"),
            (1, "ssslsl", [3 * 2**40, 2**33, 10, 0, 2**42, 0], [3 * 2**40, 2**42], [], f"step-{2**42}"),
            (2, "ssdodos", [5, 6, 6, 0, 6, 0, 7], [5, 6], ["step-6"], "step-6 step-7"),  # changed, then changed back
            (2, "sdl", [10**6, 10**6, 0], [-1], ["step-1000000"], "step-1000000"),  # not the neighbour's
            (2, "ssl", [2**33, 10, 0], [2**33], [], f"step-10 step-{2**33}"),
            (2, "ssteol", [0, 1, 0, 1, 0, 0], [-1, -1], ["step-1 step-0"] * 2, "step-0 step-1"),
            (5, "sssssksl", [9, 10, 2, 100, 30, 2, 200, 0], [200], [], "step-100 step-200")]:
        seen = lab.run("history", keep=keep, script=script, numbers=numbers, rooms=[])
        expect.equal("the steps that load_newest found", list(seen["found"]), found, seen)
        got = [line.strip() for line in seen["skipped"].splitlines() if line.strip()]
        expect.equal("skipped", got, skipped, seen)
        expect.equal("the folder at the end", sorted(set(seen["listed"].splitlines()[-1].split())),
                     sorted(set(listed.split()) | {"notes.tmp", "notes.txt", "step-007", "step-x", "step-x.tmp"}), seen)
        expect.equal("the folder of another training, of which 2 are kept", seen["neighbour"],
                     "step-1000000 step-11 ", seen)


@lab_test
def disk_full(lab):
    """No room: DiskFull, the old files stay, no unfinished file is left; with room again, saving works."""
    seen = lab.run("history", keep=2, script="ssflsl", numbers=[8, 9, 10, 0, 10, 0], rooms=[0, 1, 20, 60])
    expect.equal("errors other than DiskFull", seen["errors"], "", seen)
    expect.equal("the steps that load_newest found", list(seen["found"]), [9, 10], seen)
    lines = seen["listed"].splitlines()
    expect.equal("the folder after the failure", lines[2], lines[1], seen)
    seen = lab.run("history", keep=2, script="ssuf", numbers=[8, 9, 4, 10], rooms=[0, 1, 20, 60])
    lines = seen["listed"].splitlines()
    expect.equal("the folder after a failure, when something unfinished was there", lines[3], lines[2], seen)
    seen = lab.run("history", keep=2, script="sssdlfsl", numbers=[5, 6, 7, 7, 0, 7, 8, 0], rooms=[0, 1, 20, 60])
    expect.equal("the steps that load_newest found", list(seen["found"]), [6, 8], seen)
    expect.equal("the folder, when step 7 was damaged, skipped, not saved again, and step 8 was saved",
                 seen["listed"].splitlines()[-1],
                 "notes.tmp notes.txt step-007 step-6 step-7 step-8 step-x step-x.tmp ", seen)
    for world in (1, 3, 4):
        seen = public.trained(lab, [world, world], [4, 3], [2, -1], full=[1, 0])
        for rank in range(world):
            expect.that(seen[f"error.0.{rank}"].startswith("save: "), f"the disk of rank 0 is full, but rank {rank} of "
                        f"{world} is not told", seen)
            expect.that(not seen[f"resumed.1.{rank}"], f"rank {rank} has resumed from a state that was never saved", seen)
        seen = public.trained(lab, [world] * 3, [3, 3, 1], [2, 2, -1], full=[1, 0, 0])
        for rank in range(world):
            expect.equal(f"what rank {rank} throws when it saves after a save that failed", seen[f"error.1.{rank}"], "", seen)
            expect.that(seen[f"resumed.2.{rank}"], f"rank {rank} has not resumed from the state saved after a failure", seen)
        whole = public.trained(lab, [world], [4], [-1], undisturbed=1, run_seed=7)
        again = public.trained(lab, [world], [4], [2], full=[1], run_seed=7)
        for rank in range(world):
            expect.equal(f"rank {rank}'s state two steps after a save that failed", again[f"state.0.{rank}"],
                         whole[f"state.0.{rank}"], again)


@lab_test
def bit_for_bit(lab):
    """Any number of ranks, a stop at any step, in any epoch, also with fewer samples than ranks."""
    for world, samples in [(1, 10), (2, 7), (3, 3), (4, 10), (5, 2), (5, 11)]:
        for stop_at in lab.random.sample(range(9), 3):
            public.same_as_undisturbed(lab, world, stop_at, 10, samples)
    far = [2 ** 24 + 1, 2 ** 31 + 1, 2 ** 32 + 1, 2 ** 40 + 3, 2 ** 53 + 1]  # not exact in float, int, unsigned, double
    nan, inf = float("nan"), float("inf")
    numbers = floats([-0.0, nan, inf, -inf, 1e-45, 3.4e38])
    for begins in [*([n, 0, 0] for n in far), *([0, n, 0] for n in far), *([0, 0, n] for n in far), [5, 2 ** 24 + 1, 7]]:
        for more in ({}, {"numbers": numbers}):
            seen = public.trained(lab, [2, 2], [0, 0], [0, -1], begins=begins, **more)
            for rank in range(2):
                expect.equal(f"rank {rank}'s whole state, saved and resumed in epoch {begins[0]}, {begins[1]} samples used, step "
                             f"{begins[2]}", seen[f"state.1.{rank}"], seen[f"state.0.{rank}"], seen)


@lab_test
def come_and_go(lab):
    """3 ranks, 2, 3, 5, 1, 5; and 12: each sample once per epoch, no noise twice, a returning rank continues."""
    for worlds in ([3, 2, 3], [1, 4, 2, 4], [3, 2, 3, 5, 1, 5], [5, 3, 1, 2, 5], [2, 12, 1, 12]):
        samples = lab.random.choice((10, 13, 31))
        seed = lab.random.randrange(1000)
        steps = [3] * len(worlds)
        saves = [2] * (len(worlds) - 1) + [-1]
        seen = public.trained(lab, worlds, steps, saves, samples, run_seed=seed)
        ids, noises = [], {}
        for phase, world in enumerate(worlds):
            rows = [list(seen[f"ids.{phase}.{rank}"]) for rank in range(world)]
            ids += [i for step in zip(*rows) for i in step if i >= 0]
            for rank in range(world):
                noises.setdefault(rank, []).extend(seen[f"noises.{phase}.{rank}"])
                expect.same_bits(f"rank {rank}'s parameters in phase {phase}, against rank 0's",
                                 seen[f"parameters.{phase}.{rank}"], seen[f"parameters.{phase}.0"], seen)
        for at in range(0, len(ids) - samples + 1, samples):
            expect.equal(f"the samples of epoch {at // samples}, sorted", sorted(ids[at:at + samples]),
                         list(range(samples)), seen)
        most = max(worlds)
        alone = public.trained(lab, [most], [40], [-1], 1000, run_seed=seed, undisturbed=1)
        for rank in range(most):
            want = list(alone[f"noises.0.{rank}"])[:len(noises[rank])]
            expect.equal(f"the noise of rank {rank}, over all phases {worlds}", noises[rank], want, seen)


@lab_test
def another_model(lab):
    """Every rank refuses a checkpoint with a different number of parameters; the training is then unchanged."""
    for world, sizes in [(1, [6, 5]), (3, [6, 7]), (3, [6, 1]), (2, [1, 6])]:
        seen = public.trained(lab, [world, world], [2, 0], [2, -1], sizes=sizes)
        for rank in range(world):
            expect.that(seen[f"error.1.{rank}"].startswith("resume: "),
                        f"rank {rank} resumes from a model of {sizes[0]} parameters into one of {sizes[1]}", seen)
            expect.that(seen[f"untouched.1.{rank}"], f"rank {rank}'s training was changed by a refused checkpoint", seen)
    seen = public.trained(lab, [3, 3, 2], [3, 3, 1], [2, 2, -1], fresh=[0, 0, 1])
    for rank in range(2):
        expect.that(not seen[f"resumed.2.{rank}"] and seen[f"untouched.2.{rank}"],
                    f"the disk is empty, but rank {rank} resumes from another disk's state", seen)
