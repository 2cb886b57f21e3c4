#!/usr/bin/env python3
"""predictions.py STEP_COUNTS [--update]: checks the predictions for GPUs (step_table.py, all_reduce_table.py), which are
a test because the code that they predict changes:

1. The emulator's counts follow the rules, the step of GPT-2 is within its budget of milliseconds, and an all-reduce
   within 1.3 of NCCL's published times.
2. FIRST_TEN_MINUTES.md has the predicted figures (--update writes them).
3. Planted mistakes are refused: a kernel more, a byte more, a kernel and an operation without a rule, a slower step,
   slower hand-offs.
"""
import argparse
import copy
import pathlib
import textwrap
import unittest.mock

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
        "Of an H100, as measured on an H200: cuBLASLt reaches "
        + " and ".join(f"{100 * x:.0f} % of 989 TFLOP/s with {n:,} tokens" for n, x in share.items())
        + f"; a scheduler issues an instruction in {100 * h100.ISSUE.value:.0f} % of its cycles, in attention "
        + " and ".join(f"{100 * f.value:.0f} %" for f in h100.ATTENTION.values())
        + " (forward, backward); kernels reach "
        + ", ".join(f"{100 * f.value:.0f} % ({kind})" for kind, f in h100.SHARES.items())
        + " of 3.35 TB/s. [h100.py](h100.py) has every figure with its source. The head is a separate matrix, as in "
        "`gpt2.sh`: 163 M parameters.",
        f"llm.c, measured on 8 H100: {step_table.LLM_C_TOKENS / 1e3:.0f},000 tokens/s on each "
        "(10^10 tokens in 45 minutes: [modded-nanogpt's first record](https://github.com/KellerJordan/modded-nanogpt), "
        "[llm.c's discussion 481](https://github.com/karpathy/llm.c/discussions/481)). This is a measurement; a "
        "prediction contains nothing that goes wrong.",
        "NCCL up to 1 MiB: measured on one node "
        "([sglang#22734](https://github.com/sgl-project/sglang/pull/22734), whose two nodes have 8 H200 each). With a star: this latency, and 370 GB/s of the "
        "ring or 480 GB/s of NVLink SHARP (NVLS), which are published for gigabytes "
        "([nccl#1455](https://github.com/NVIDIA/nccl/issues/1455), "
        "[nccl-tests#212](https://github.com/NVIDIA/nccl-tests/issues/212)).",
    ]
    notes = "\n\n".join(textwrap.fill(n, 120, break_long_words=False, break_on_hyphens=False) for n in notes)
    return "\n".join([*step_section(model), "", *all_reduce_section(), "", notes]) + "\n"


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

    refused("a launch of a shape", changed(lambda c: c.launches.update({"residual, backward": 1})))
    refused("a byte of a shape", changed(lambda c: c.bytes.update(add=c.bytes["add"] + 1)))
    refused("an operation that a shape lacks", changed(lambda c: c.calls.pop("feed_forward")))
    for kernel in ("void surprise<float>", "void map_packs<UnaryOp<(Unary)8>, bf16, bf16>"):  # GELU by a kernel
        refused("a kernel without a part", lambda: step_table.part_of(kernel))

    def widened():  # layer norm between kernels that widen and round
        for c in (slower := copy.deepcopy(counts)):
            for name in ("add_layer_norm", "AddLayerNormBackward"):
                c.bytes[name] *= 3
        step_table.check_budget(step_table.Model(slower))

    def launched():  # a launch for each cast of each layer's 16 parameters, and as many copies
        for shape, c in zip(step_table.SHAPES, slower := copy.deepcopy(counts)):
            c.launches["casts of parameters and gradients"] += 32 * shape.layers
        step_table.check_budget(step_table.Model(slower))

    def two_fences():
        with unittest.mock.patch.object(all_reduce_table, "HAND_OFF", all_reduce_table.HAND_OFF + h100.FENCE.value):
            all_reduce_table.check_ratios()

    def shorter():  # `direct` up to 4 MiB
        with unittest.mock.patch.dict(all_reduce_table.constants(), two_hops_mib=4):
            all_reduce_table.check_ratios()

    refused("a layer norm that moves three times its bytes", widened)
    refused("32 launches more per layer", launched)
    refused("a second fence in each hand-off", two_fences)
    refused("the ring at 8 MiB", shorter)
    step_table.check_budget(model)
    all_reduce_table.check_ratios()


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
