"""make mine: lab 13's trainer, with everything that a student wrote, on three spirals; then kill -9,
resume, and the runtime.

    2 ranks train; the loss as a curve           one rank is killed, the job starts again: the same bits
    the ring's schedule in a file, proved        train_gpt reduces its gradients by it, if it is built
"""
import math
import random
import subprocess

from labs.course import runner
from labs.course.build import build
from labs.course.commands import submission
from labs.course.lab import BUILD, LABS, ROOT, load_module, select
from labs.course.record import floats
from labs.course.verdicts import AuthorError, Verdict

WORLD, CLASSES, SAMPLES, WIDTHS = 2, 3, 240, [2, 24, 24, 3]
STEPS, BATCH, SAVE_EVERY = 600, 24, 50


def spirals(rng):
    """Points on three arms, a third of a turn apart: no straight line separates them."""
    x, targets = [], []
    for i in range(SAMPLES):
        arm, out = i % CLASSES, 0.1 + 0.9 * (i // CLASSES) / (SAMPLES // CLASSES)
        angle = 2 * math.pi * arm / CLASSES + 4 * out + rng.gauss(0, 0.08)
        x.append(list(floats([2 * out * math.cos(angle), 2 * out * math.sin(angle)])))
        targets.append(arm)
    return x, targets


def job(rng):
    x, targets = spirals(rng)
    values = [w for a, b in zip(WIDTHS, WIDTHS[1:])
              for w in [rng.gauss(0, 1.4 / math.sqrt(a)) for _ in range(a * b)] + [0.0] * b]
    return {"world": WORLD, "widths": WIDTHS, "values": floats(values), "x": floats(v for row in x for v in row),
            "targets": targets, "batch": BATCH, "steps": STEPS, "sampler_seed": 13, "bucket_bytes": 1024,
            "optimizer": "adamw", "lr": 0.003, "frozen": [], "seed": 1}, x, targets


def curve(losses, width=64, height=10):
    """The mean losses of equal intervals of the training run, as lines of text. The axis is linear
    from 0."""
    parts = [losses[i * len(losses) // width:(i + 1) * len(losses) // width] for i in range(width)]
    means = [sum(part) / len(part) for part in parts]
    top = max(means)
    rows = [round((height - 1) * (1 - m / top)) for m in means]
    lines = ["".join("*" if row == y else " " for row in rows).rstrip() for y in range(height)]
    return [f"  {top * (1 - y / (height - 1)):6.3f} |{line}" for y, line in enumerate(lines)] + [
        f"         +{'-' * width}", f"          step 0{f'step {len(losses)}':>{width - 6}}"]


def right(values, x, targets):
    network = load_module(LABS / "04-modules" / "public.py").Network(WIDTHS, list(values))
    return sum(max(range(CLASSES), key=row.__getitem__) == t for row, t in zip(network.forward(x), targets))


def under_the_runtime(schedule):
    program = ROOT / "build/release/bin/train_gpt"
    if not program.exists():
        print(f"train_gpt is not built here; in the repository, after make build:\n"
              f"  mpirun -n {WORLD} build/release/bin/train_gpt --schedule {schedule}")
        return True
    command = [str(program), "--schedule", str(schedule), "--steps", "20", "--run-dir", str(BUILD / "mine-run")]
    done = subprocess.run([str(ROOT / "tests/support/mpirun.sh"), str(WORLD), *command], cwd=ROOT, capture_output=True,
                          text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    print(f"train_gpt, 20 steps, its gradients added up by your ring: {'done' if done.returncode == 0 else 'FAILED'}")
    print("\n".join("  " + line for line in said[-3:]))
    return done.returncode == 0


def mine():
    lab, = select("13")
    try:
        driver, _ = build(lab, submission(lab))
        rng = random.Random(13)
        request, x, targets = job(rng)
        limits = {**lab.limits, "deadline": 100}

        whole = runner.observe(driver, "train", request, limits)
        losses = list(whole["losses.0"])
        print(f"{WORLD} ranks, {STEPS} steps of {BATCH} samples, three spirals; all of it yours. The loss:")
        print("\n".join(curve(losses)))
        print(f"from {losses[0]:.3f} to {losses[-1]:.3f}; {right(whole['values.0'], x, targets)} of {SAMPLES} points right")
        same = whole["hashes.0"] == whole["hashes.1"]
        print(f"after each step, rank 1's parameters are rank 0's, bit for bit: {'yes' if same else 'NO'}")

        again = runner.observe(driver, "train", {**request, "save_every": SAVE_EVERY, "kill_rank": 1,
                                                 "kill_after": rng.randrange(20000, 40000)}, limits)
        equal = again["values.0"].tobytes() == whole["values.0"].tobytes()
        print(f"kill -9 for rank 1, {'in mid-training' if again['killed'] else 'too late'}; resumed at step "
              f"{again['saves'] * SAVE_EVERY}; the parameters at the end are the same: {'yes' if equal else 'NO'}")

        schedule = BUILD / "mine.schedule"
        schedule.parent.mkdir(parents=True, exist_ok=True)
        schedule.write_text(runner.observe(driver, "schedule_text", {"world": WORLD}, limits)["text"])
        print(f"the schedule of your ring: {schedule}")
        return same and equal and under_the_runtime(schedule)
    except Verdict as verdict:
        raise AuthorError(f"{verdict.status}: {verdict}\nFirst: make check N=13") from None
