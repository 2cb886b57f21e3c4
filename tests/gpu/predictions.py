#!/usr/bin/env python3
"""predictions.py STEP_COUNTS [--update]: checks the predictions for GPUs (step_table.py, all_reduce_table.py), which are
a test because the code that they predict changes:

1. What the emulator counts follows the rules, and the step of GPT-2 is within its budget of milliseconds.
2. FIRST_TEN_MINUTES.md has the predicted figures (--update writes them).
3. Planted mistakes are refused: a kernel more, a byte more, a kernel and an operation without a rule, a slower step.
"""
import argparse
import copy
import pathlib

import all_reduce_table
import h100
import step_table

PAGE = pathlib.Path(__file__).resolve().parent / "FIRST_TEN_MINUTES.md"
BEGIN, END = "<!-- predictions: tests/gpu/predictions.py STEP_COUNTS --update -->\n", "<!-- end of the predictions -->\n"


def step_section(model):
    columns = []
    for batch in step_table.BATCHES:
        shape = step_table.gpt2(batch)
        columns.append((shape, step_table.predict(model, shape)))
    head = " | ".join(f"{s.batch} x 1,024 tokens, ms | limited by" for s, _ in columns)
    lines = [f"| part of a step of GPT-2, bf16 | launches | {head} |", "|---|---|---|---|---|---|"]
    for parts in zip(*[p for _, p in columns]):
        cells = " | ".join(f"{p.seconds * 1e3:.2f} | {p.bound}" for p in parts)
        lines.append(f"| {parts[0].name} | {parts[0].launches:.0f} | {cells} |")
    sums, reduced = [], []
    for shape, parts in columns:
        seconds, _, tokens, mfu = step_table.summary(shape, parts)
        sums.append(f"{seconds * 1e3:.1f} | {tokens / 1e3:.0f},000 tokens/s, {100 * mfu:.0f} % of the peak")
        total, waits = step_table.all_reduced(shape, parts, 8)
        reduced.append(f"{(seconds + waits) * 1e3:.1f} | {total * 1e3:.1f} ms on the links, {waits * 1e3:.1f} not hidden")
    launches = sum(p.launches for p in columns[0][1])
    lines.append(f"| **sum** | {launches:.0f} | {' | '.join(sums)} |")
    lines.append(f"| with all-reduce on 8 devices | | {' | '.join(reduced)} |")
    return lines


def all_reduce_section():
    lines = ["| all-reduce of floats on 8 devices | predicted | busbw | by | limited by | NCCL | predicted / NCCL |",
             "|---|---|---|---|---|---|---|"]
    for size, us, busbw, how, bound, theirs, source, ratio, nvls in all_reduce_table.rows():
        star = "" if source == "published" else " *"
        lines.append(f"| {all_reduce_table.human(size)} | {us:.0f} us | {busbw:.0f} GB/s | {how} | {bound} | "
                     f"{theirs:.0f} us{star} | {ratio:.2f}{f', {nvls:.2f} with NVLS' if star else ''} |")
    return lines


def block(model):
    share = {n: f.value for n, f in h100.PRODUCTS.items()}
    notes = [
        "Products: cuBLASLt is assumed to reach "
        + " and ".join(f"{100 * x:.0f} % of 989 TFLOP/s with {n:,} tokens" for n, x in share.items())
        + f". Warps issue in {h100.ISSUE.value} of the cycles; kernels reach "
        + ", ".join(f"{f.value:.2f} ({kind})" for kind, f in h100.SHARES.items())
        + " of 3.35 TB/s. `tests/gpu/h100.py` has all assumptions with their reasons.",
        f"llm.c trains GPT-2 124M at {step_table.LLM_C_TOKENS / 1e3:.0f},000 tokens/s per H100, measured on 8 "
        "([its discussion 481](https://github.com/karpathy/llm.c/discussions/481), "
        "[modded-nanogpt's first record](https://github.com/KellerJordan/modded-nanogpt): 10^10 tokens in 45 minutes).",
        "NCCL: up to 1 MiB measured by [sglang](https://github.com/sgl-project/sglang/pull/22734); * from that latency and "
        "370 GB/s of the ring, or 480 with NVLink SHARP "
        "([nccl#1455](https://github.com/NVIDIA/nccl/issues/1455), "
        "[nccl-tests#212](https://github.com/NVIDIA/nccl-tests/issues/212)).",
    ]
    return "\n".join([*step_section(model), "", *all_reduce_section(), "", "\n\n".join(notes)]) + "\n"


def refused(what, attempt):
    try:
        attempt()
    except SystemExit:
        return
    raise SystemExit(f"predictions.py: {what} was planted and not refused")


def plant_mistakes(counts, model):
    def changed(change):
        other = copy.deepcopy(counts)
        change(other[-2])
        return lambda: step_table.Model(other)

    refused("a launch of a shape", changed(lambda c: c.launches.update({"GELU, forward": 1})))
    refused("a byte of a shape", changed(lambda c: c.bytes.update(gelu=c.bytes["gelu"] + 1)))
    refused("an operation that a shape lacks", changed(lambda c: c.calls.pop("gelu")))
    refused("a kernel without a part", lambda: step_table.part_of("void surprise<float>"))

    def widened():  # GELU in floats, between kernels that widen and round
        for c in (slower := copy.deepcopy(counts)):
            for name, factor in (("gelu", 5), ("GeluBackward", 5)):
                c.bytes[name] *= factor
        step_table.check_budget(step_table.Model(slower))

    def launched():  # a launch for each cast of each layer's 16 parameters, and as many copies
        for shape, c in zip(step_table.SHAPES, slower := copy.deepcopy(counts)):
            c.launches["casts of parameters and gradients"] += 32 * shape.layers
        step_table.check_budget(step_table.Model(slower))

    refused("a GELU that moves five times its bytes", widened)
    refused("32 launches more per layer", launched)
    step_table.check_budget(model)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("step_counts", type=pathlib.Path)
    p.add_argument("--update", action="store_true", help="write the figures into FIRST_TEN_MINUTES.md")
    a = p.parse_args()
    counts = step_table.counted(a.step_counts)
    model = step_table.Model(counts)
    plant_mistakes(counts, model)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    new = block(model)
    if a.update:
        PAGE.write_text(before + BEGIN + new + END + after)
    elif old != new:
        raise SystemExit(f"{PAGE.name} has other figures than are predicted now: run tests/gpu/predictions.py "
                         f"{a.step_counts} --update, and say in the commit why they changed\n{new}")
    print(f"predictions.py: {len(step_table.SHAPES)} shapes follow the rules, and the step is within its budget")


main()
