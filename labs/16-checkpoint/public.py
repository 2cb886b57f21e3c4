"""Public tests of lab 16, which a student runs after every save."""
from labs.course.testing import expect, floats, lab_test

NOTHING, NAMES, TORN, DATA, EVERYTHING, ZEROS, RANDOM = range(7)  # disk.hpp, Disk::After
AFTER = ["nothing that was not synced is there", "names are there, bytes are not", "files are torn",
         "bytes are there, names are not", "everything is there", "zeros are where bytes should be",
         "some of it is there"]


def request(step, tensors, texts):
    """Returns the request that describes a snapshot: tensors and texts by name."""
    out = {"step": step, "tensors": len(tensors), "lines": len(texts)}
    for i, (name, values) in enumerate(tensors.items()):
        out.update({f"tensor.{i}": name, f"floats.{i}": floats(values)})
    for i, (name, text) in enumerate(texts.items()):
        out.update({f"name.{i}": name, f"text.{i}": text})
    return out


def packed(lab, step, tensors, texts, damage=0):
    seen = lab.run("packing", damage=damage, **request(step, tensors, texts))
    expect.equal("the step", seen["step"], step, seen)
    expect.equal("the number of arrays", seen["tensors"], len(tensors), seen)
    expect.equal("the number of texts", seen["lines"], len(texts), seen)
    for name, values in tensors.items():
        expect.same_bits(f"'{name}'", seen[f"floats.{len(values)}"], floats(values), seen)
    expect.that(seen["same"], "unpack does not return the data given to pack", seen)
    expect.that(seen["again"], "unpack does not return the data of a second snapshot given to pack", seen)
    if damage:
        expect.that(not seen["accepted"], f"unpack accepts {len(seen['accepted'])} damaged files, for "
                    f"instance one damaged at byte {list(seen['accepted'])[:1]} of {seen['bytes']}", seen)
        expect.that(not seen["other"], f"{len(seen['other'])} damaged files make unpack throw something other than Damaged",
                    seen)


def cuts(lab, steps, keep, afters, depth=0):
    """Checks that every row of power_cuts loads the step whose save() returned, or the step being saved, intact.

    If the steps do not ascend, the newest by number is loaded, whichever was saved last.
    """
    ascending = steps == sorted(set(steps))
    seen = lab.run("power_cuts", steps=steps, keep=keep, afters=afters, depth=depth)
    rows = list(seen["rows"])
    for at in range(0, len(rows), 9):
        cut, second, after, promised, saving, step, right, then, files = rows[at:at + 9]
        where = f"power cut before operation {cut}" + (
            f", and again before operation {second} of the next start" if second >= 0 else "") + f"; {AFTER[after]}"
        there = (promised, saving) if ascending else steps
        expect.that(step in there or (promised == -1 and step == -1),
                    f"{where}: step {promised} was saved, step {step} is loaded (-1: none)", seen)
        expect.that(right, f"{where}: step {step} is loaded with a content that it never had, or no longer has", seen)
        expect.equal(f"{where}: loaded after one more save", then, max(step, 0) + 1, seen)
        expect.at_most(f"{where}: after one more save the disk has", files, keep, "files", seen)


def trained(lab, worlds, steps, saves, samples=10, **more):
    return lab.run("train", world=worlds[0], worlds=worlds, steps=steps, saves=saves, samples=samples,
                   run_seed=more.pop("run_seed", lab.random.randrange(1000)), **more)


def same_as_undisturbed(lab, world, stop_at, steps, samples):
    seed = lab.random.randrange(1000)
    whole = trained(lab, [world], [steps], [-1], samples, run_seed=seed, undisturbed=1)
    seen = trained(lab, [world, world], [stop_at + 1, steps - stop_at], [stop_at, -1], samples, run_seed=seed)
    for rank in range(world):
        for phase in (0, 1):
            expect.equal(f"what rank {rank} throws in run {phase}", seen[f"error.{phase}.{rank}"], "", seen)
        expect.that(not seen[f"resumed.0.{rank}"], f"rank {rank} says it has resumed, but nothing was saved", seen)
        expect.that(seen[f"untouched.0.{rank}"], f"nothing was saved, but resume changes rank {rank}'s training", seen)
        expect.that(seen[f"resumed.1.{rank}"], f"rank {rank} says there was no checkpoint", seen)
        expect.equal(f"the step from which rank {rank} continues", seen[f"first.1.{rank}"], stop_at, seen)
        expect.equal(f"the samples of rank {rank} after the stop", list(seen[f"ids.1.{rank}"]),
                     list(whole[f"ids.0.{rank}"])[stop_at:], seen)
        expect.equal(f"the noise of rank {rank} after the stop",
                     list(seen[f"noises.0.{rank}"]) + list(seen[f"noises.1.{rank}"]), list(whole[f"noises.0.{rank}"]), seen)
        expect.same_bits(f"rank {rank}'s parameters after step {steps}", seen[f"parameters.1.{rank}"],
                         whole[f"parameters.0.{rank}"], seen)
        expect.equal(f"rank {rank}'s whole state after step {steps}", seen[f"state.1.{rank}"], whole[f"state.0.{rank}"],
                     seen)


@lab_test
def round_trip(lab):
    """Task 1: unpack() restores the snapshot bit for bit; a truncated or changed file is Damaged."""
    packed(lab, 20, {"w": [1.5, -2.0, 3.25], "m": [0.1]}, {"epoch": "3", "used": "7"})
    packed(lab, 21, {"w": [1.5]}, {"epoch": "3"}, damage=1)


@lab_test
def old_or_new(lab):
    """Task 2: whenever the power is cut, the file is either the old one or the new one."""
    cuts(lab, [10, 20], 1, [NOTHING, NAMES, DATA, EVERYTHING])


@lab_test
def newest(lab):
    """Task 3: the newest by number is loaded, damaged ones are skipped; `keep` of them stay."""
    seen = lab.run("history", keep=2, script="lsslsldl", numbers=[0, 8, 9, 0, 10, 0, 10, 0], rooms=[])
    expect.equal("the steps that load_newest found", list(seen["found"]), [-1, 9, 10, 9], seen)
    expect.equal("skipped", seen["skipped"], "\n\n\nstep-10 \n", seen)
    expect.equal("the folder after the third save", seen["listed"].splitlines()[4],
                 "notes.tmp notes.txt step-007 step-10 step-9 step-x step-x.tmp ", seen)
    expect.equal("the folder after step 10 was damaged and skipped", seen["listed"].splitlines()[7],
                 "notes.tmp notes.txt step-007 step-10 step-9 step-x step-x.tmp ", seen)


@lab_test
def same_run(lab):
    """Task 4: three ranks, ten samples, killed after the save: later steps are bitwise equal to the undisturbed run."""
    for stop_at in (0, 2, 3, 5):
        same_as_undisturbed(lab, 3, stop_at, 9, 10)


@lab_test
def fewer_ranks(lab):
    """Task 5: ten samples, three ranks, killed, resumed on two: each sample once, all replicas equal."""
    seen = trained(lab, [3, 2], [3, 2], [2, -1])
    got = sorted(i for p, w in ((0, 3), (1, 2)) for r in range(w) for i in seen[f"ids.{p}.{r}"] if i >= 0)
    expect.equal("the samples of the epoch, sorted", got, list(range(10)), seen)
    expect.same_bits("rank 1's parameters, against rank 0's", seen["parameters.1.1"], seen["parameters.1.0"], seen)
