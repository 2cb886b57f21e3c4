#!/usr/bin/env python3
"""step_table.py STEP_COUNTS [--rules]: predicts a training step of GPT-2 on an H100: 124 M parameters, 163 M with the
head as a separate matrix (as in tests/bench/gpt2.sh), in bf16, of 4 and 32 sequences of 1,024 tokens. RESULTS.md
compares an H200's measurements with its predictions (profile.py).

    counts    STEP_COUNTS (step_counts.cpp) trains small GPTs on the emulator, and prints FLOP, bytes and launches
    rules     the counts of an operation are a sum of TERMS of the shape. RULES says of which; the factors are solved
              exactly from some of the SHAPES, and must give the counts of the others (--rules prints them)
    slots     instructions that warps issue: SLOTS says how often a hot loop runs. Its length is in budgets.txt, which
              `make nvcc-check` compares with the compiled kernels
    times     of an operation: the longest of bytes / bandwidth, FLOP / tensor cores and slots / issue rate, plus
              its launches. h100.py has the machine's figures, and the share of them that is reached

The model ignores the cache (50 MB, larger than many operands of 4 sequences), blocks of different length (causal
attention), and everything that a run of many steps adds: data, logs, evaluation.
"""
import argparse
import collections
import dataclasses
import fractions
import math
import pathlib
import re
import subprocess

import all_reduce_table
import budgets
import h100


@dataclasses.dataclass(frozen=True)
class GPT:
    layers: int
    dim: int
    heads: int
    vocabulary: int
    batch: int
    context: int

    def padded(self):
        return -(-self.vocabulary // 128) * 128

    def tokens(self):
        return self.batch * self.context

    def arguments(self):
        return [str(getattr(self, f.name)) for f in dataclasses.fields(self)]


# Heads of 64, several sequences, and a vocabulary of two digits of the radix sort, as GPT-2 has. No size is proportional
# to another one in all shapes.
SHAPES = [GPT(1, 64, 1, 290, 2, 64), GPT(2, 64, 1, 600, 2, 48), GPT(1, 128, 2, 300, 3, 32), GPT(2, 128, 2, 517, 3, 32),
          GPT(3, 64, 1, 400, 2, 48), GPT(1, 192, 3, 770, 2, 64), GPT(2, 192, 3, 700, 3, 32), GPT(3, 128, 2, 260, 2, 40),
          GPT(2, 64, 1, 650, 3, 64), GPT(1, 64, 1, 520, 3, 96)]


def gpt2(batch):
    return GPT(12, 768, 12, 50257, batch, 1024)


# Terms of the shape: L layers, N tokens of the batch, T tokens of a sequence, C width (64 per head), v vocabulary, V
# padded vocabulary.
TERMS = {
    "1": lambda s: 1,
    "L": lambda s: s.layers,
    "N": lambda s: s.tokens(),
    "LN": lambda s: s.layers * s.tokens(),
    "NC": lambda s: s.tokens() * s.dim,
    "LNC": lambda s: s.layers * s.tokens() * s.dim,
    "TC": lambda s: s.context * s.dim,
    "LNTC": lambda s: s.layers * s.tokens() * s.context * s.dim,
    "C": lambda s: s.dim,
    "LC": lambda s: s.layers * s.dim,
    "LCC": lambda s: s.layers * s.dim ** 2,
    "VC": lambda s: s.padded() * s.dim,
    "vC": lambda s: s.vocabulary * s.dim,
    "NV": lambda s: s.tokens() * s.padded(),
    "Nv": lambda s: s.tokens() * s.vocabulary,
    "NVC": lambda s: s.tokens() * s.padded() * s.dim,
    "LNCC": lambda s: s.layers * s.tokens() * s.dim ** 2,
}

# The terms of an operation's bytes, and the terms of its FLOP.
RULES = {
    "embedding": ("NC N", "1"),
    "EmbeddingBackward": ("NC N TC vC 1", "NC"),
    "to": ("LCC LC VC", "1"),
    "ToBackward": ("LCC LC VC", "1"),
    "add": ("NC LNC", "NC LNC"),
    "add_layer_norm": ("LNC LN LC", "LNC"),
    "layer_norm": ("LNC NC LN N LC C", "LNC NC"),
    "AddBackward": ("NC LNC TC", "NC LNC TC"),
    "AddLayerNormBackward": ("LNC LN LC", "LNC"),
    "LayerNormBackward": ("LNC NC LN N LC C", "LNC NC"),
    "add gradients": ("LNC", "LNC"),
    "attention_qkv": ("LNC", "LNTC LNC"),
    "AttentionQkvBackward": ("LNC", "LNTC LNC"),
    "linear": ("LNC LCC LC NC VC NV", "LNCC NVC LNC"),
    "LinearBackward": ("LNC LCC LC NC VC NV", "LNCC NVC LNC"),
    "feed_forward": ("LNC LCC LC", "LNCC LNC"),
    "FeedForwardBackward": ("LNC LCC LC", "LNCC LNC"),
    "cross_entropy": ("NV Nv N 1", "NV Nv N 1"),
    "CrossEntropyBackward": ("NV Nv N 1", "NV Nv N 1"),
    "adam_all": ("LCC LC VC vC TC C", "LCC LC VC vC TC C"),
}
# They launch nothing, or almost nothing.
NOTHING = ("fill", "transfer", "slice", "SliceBackward", "reshape", "ReshapeBackward", "AccumulateGrad", "clip_factor")

# Part of the step: its operations, and the share of the memory's bandwidth that their kernels reach (h100.SHARES).
PARTS = {
    "embedding": (["embedding", "EmbeddingBackward"], "stream"),
    "products, forward": (["linear", "feed_forward"], "stream"),
    "products, backward": (["LinearBackward", "FeedForwardBackward"], "stream"),
    "attention, forward": (["attention_qkv"], "stream"),
    "attention, backward": (["AttentionQkvBackward"], "stream"),
    "layer norm, forward": (["add_layer_norm", "layer_norm"], "norm"),
    "layer norm, backward": (["AddLayerNormBackward", "LayerNormBackward"], "norm backward"),
    "residual, forward": (["add"], "stream"),
    "residual, backward": (["AddBackward", "add gradients"], "stream"),
    "classifier": (["cross_entropy", "CrossEntropyBackward"], "classifier"),
    "casts of parameters and gradients": (["to", "ToBackward"], "stream"),
    "optimizer": (["adam_all"], "optimizer"),
}

# The part that launches a kernel, by the kernel's name on the emulator; SPLIT has the kernels of several parts. Launches
# have the terms 1 and L.
LAUNCHED = [
    (r"\b(gather|count_digits|move_uses|place_digits|sum_pieces|join_pieces)\b|sort_uses|check_indices", "embedding"),
    (r"cublasLtMatmul", "products, backward"),
    (r"\bforward<", "attention, forward"),
    (r"backward_keys<|backward_queries<|row_dots", "attention, backward"),
    (r"forward_rows<|forward_any<", "layer norm, forward"),
    (r"backward_rows<|backward_any<|GradientSums<", "layer norm, backward"),
    (r"SumInto<float, float>", "residual, backward"),
    (r"BinaryOp|map_strided<\d+, .*Binary", "residual, backward"),
    (r"copy_runs<\d+, bf16, float>", "residual, backward"),
    (r"copy_runs<\d+, float, bf16>|round_table", "casts of parameters and gradients"),
    (r"logit_|check_targets|Counted<|TotalLoss<|fill<", "classifier"),
    (r"adam_table", "optimizer"),
]
# Launches of the first part that the second part makes: three products of a linear layer, of which one is in the forward
# pass; sums of the forward pass.
SPLIT = [
    ("products, backward", "products, forward", lambda s: 4 * s.layers + 1),
    ("residual, backward", "residual, forward", lambda s: s.layers + 1),
]


def fold_depth(terms):
    """Launches of a fold over the columns of `terms` rows: each reduces kColumnChunk rows to one (fold.cuh)."""
    chunk = all_reduce_table.constant("kernels/cuda/fold.cuh", r"kColumnChunk = (\d+);")
    return 1 if terms <= chunk else 1 + fold_depth(math.ceil(terms / chunk))


def norm_blocks(s):
    """Rows of partial sums that layer norm's backward kernel writes: one per block of eight warps, which hold a row each
    (layernorm.cu)."""
    file = "kernels/cuda/layernorm.cu"
    rows, most, packs = (all_reduce_table.constant(file, rf"{name} = (\d+)")
                         for name in ("kRowsPerWarp", "kMostBlocks", "kWarpPacks"))
    if s.dim > 32 * packs * 4:
        raise SystemExit(f"step_table.py: a warp does not hold a row of {s.dim}: SLOTS and norm_blocks are about warps")
    return min(math.ceil(s.tokens() / (8 * rows)), most)


# Launches that folds need beyond their first, by part. Small shapes need none for layer norm.
DEEPER = {
    "layer norm, backward": lambda s: (2 * s.layers + 1) * (fold_depth(norm_blocks(s)) - 1),
}


def chain(s):
    """Seconds of the loads that follow one another in the embedding's gradient (embedding.cu). For each of two digits, a
    warp reads the counts of all tiles of 256 tokens, kTogether per lane at a time, and a block the totals of the digits. A
    thread adds the rows of a piece."""
    file = "kernels/cuda/embedding.cu"
    together, least = (all_reduce_table.constant(file, rf"{name} = (\d+);") for name in ("kTogether", "kLeastPiece"))
    turns = math.ceil(s.tokens() / 256 / (32 * together))
    return (2 * (turns + 1) + max(least, math.ceil(math.sqrt(s.tokens())))) * h100.LOCAL_LOAD.value


def warps(elements):
    return elements / 32


def tiles(s):
    """Pairs of a tile of 64 queries and a tile of 64 keys that a causal mask leaves, of all heads, layers, batches."""
    n = math.ceil(s.context / 64)
    return s.layers * s.batch * s.heads * n * (n + 1) // 2


# Operation: [(pattern in budgets.txt, passes of the hot loop by all warps)].
SLOTS = {
    "attention_qkv": [("forward<64>", lambda s: 4 * tiles(s))],
    "AttentionQkvBackward": [("backward_keys<64,*", lambda s: 4 * tiles(s)),
                             ("backward_queries<64>", lambda s: 4 * tiles(s))],
    "add_layer_norm": [("forward_rows<true,*<32,*6>,*float,*bf16>", TERMS["LN"])],
    "layer_norm": [("forward_rows<false,*<32,*6>,*float,*bf16>", lambda s: TERMS["LN"](s) + s.tokens())],
    "AddLayerNormBackward": [("backward_rows<true,*<32,*6>,*float,*bf16>", TERMS["LN"])],
    "LayerNormBackward": [("backward_rows<false,*<32,*6>,*float,*bf16>", lambda s: TERMS["LN"](s) + s.tokens())],
    "cross_entropy": [("logit_rows_any<bf16>", lambda s: warps(TERMS["NV"](s) / 8))],
    "CrossEntropyBackward": [("logit_gradient<256,*8,*bf16>", lambda s: warps(TERMS["NV"](s) / 8))],
}


# Operations of products: do they write or read GELU's arguments? cuBLASLt also computes the bias gradients.
PRODUCTS = {"linear": False, "LinearBackward": False, "feed_forward": True, "FeedForwardBackward": True}


class Counts:
    """What STEP_COUNTS prints for a shape."""

    def __init__(self, text):
        self.calls, self.flop, self.bytes, self.launches, self.filled = {}, {}, {}, collections.Counter(), 0
        for line in text.splitlines():
            kind, name, *numbers = line.split("\t")
            if kind == "operation":
                self.calls[name], self.flop[name], self.bytes[name] = (round(float(x)) for x in numbers)
            elif kind == "launch":
                self.launches[part_of(name)] += int(numbers[0])
            elif kind == "copy":
                self.launches["fills"] += int(numbers[0])
                self.filled += int(numbers[1])


def part_of(kernel):
    for pattern, part in LAUNCHED:
        if re.search(pattern, kernel):
            return part
    raise SystemExit(f"step_table.py: the step launches a kernel that LAUNCHED does not have: {kernel}")


def count(program, shape):
    done = subprocess.run([program, *shape.arguments()], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"step_table.py: {program} {' '.join(shape.arguments())} failed: {done.stderr}")
    counts = Counts(done.stdout)
    for name in counts.calls:
        if name not in RULES and (name not in NOTHING or counts.bytes[name] > 1000):
            raise SystemExit(f"step_table.py: the step has an operation without a rule: {name}")
    return counts


def solved(terms, shapes, values, what):
    """The factors of the terms: from as many shapes as there are terms, exactly; the others must agree."""
    rows = [[fractions.Fraction(TERMS[t](s)) for t in terms] + [fractions.Fraction(v)] for s, v in zip(shapes, values)]
    pivots, at = [], 0
    for column in range(len(terms)):
        pivot = next((r for r in range(at, len(rows)) if rows[r][column] != 0), None)
        if pivot is None:
            raise SystemExit(f"step_table.py: SHAPES cannot tell {terms[column]} of {what} from its other terms")
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [x / rows[at][column] for x in rows[at]]
        for r in range(len(rows)):
            if r != at and rows[r][column] != 0:
                rows[r] = [x - rows[r][column] * y for x, y in zip(rows[r], rows[at])]
        pivots.append(at)
        at += 1
    if at == len(rows):
        raise SystemExit(f"step_table.py: no shape is left to verify the rule of {what}")
    for row in rows[at:]:
        if row[-1] != 0:
            raise SystemExit(f"step_table.py: {what} is no sum of {' '.join(terms)}: change RULES, or look at the code")
    return {t: rows[p][-1] for t, p in zip(terms, pivots)}


class Rule:
    def __init__(self, terms, shapes, values, what):
        self.factors = solved(terms, shapes, values, what)

    def of(self, shape):
        return float(sum(f * TERMS[t](shape) for t, f in self.factors.items()))

    def __str__(self):
        return " + ".join(f"{float(f):g} {t}" for t, f in self.factors.items() if f) or "0"


def counted(program):
    return [count(program, s) for s in SHAPES]


class Model:
    """The rules with the factors that the emulator's counts of SHAPES give them."""

    def __init__(self, counts):
        self.bytes, self.flop, self.launches = {}, {}, {}
        for name, (of_bytes, of_flop) in RULES.items():
            def values(kind):
                missing = [s for s, c in zip(SHAPES, counts) if name not in c.calls]
                if missing:
                    raise SystemExit(f"step_table.py: no {name} in a step of {missing[0]}: remove its rule")
                return [getattr(c, kind)[name] for c in counts]
            self.bytes[name] = Rule(of_bytes.split(), SHAPES, values("bytes"), f"the bytes of {name}")
            self.flop[name] = Rule(of_flop.split(), SHAPES, values("flop"), f"the FLOP of {name}")
        for part in [*PARTS, "fills"]:
            launches = [c.launches[part] - DEEPER.get(part, lambda s: 0)(s) for s, c in zip(SHAPES, counts)]
            self.launches[part] = Rule(["1", "L"], SHAPES, launches, f"the launches of {part}")
        self.filled = Rule(["vC", "1"], SHAPES, [c.filled for c in counts], "the bytes of fills")

    def rules(self):
        lines = [f"{name:22} bytes: {self.bytes[name]}; FLOP: {self.flop[name]}" for name in RULES]
        return "\n".join([*lines, f"{'fills':22} bytes: {self.filled}",
                          *[f"{part:34} launches: {rule}" for part, rule in self.launches.items()]])


@dataclasses.dataclass
class Part:
    name: str
    launches: float
    bytes: float
    flop: float
    slots: float
    seconds: float  # with the launches
    bound: str


def issue_rate(operation):
    return h100.issue_rate(share=h100.ATTENTION.get(operation, h100.ISSUE).value)


def operation_times(model, shape, name, share):
    """The seconds of an operation, by what limits it: each of its kernels by one."""
    of_bytes, of_flop = model.bytes[name].of(shape), model.flop[name].of(shape)
    memory = share * h100.MEMORY.value
    if name in PRODUCTS:
        # The tensor cores reach the share of products without GELU. GELU has 4 LNC arguments of 2 bytes.
        gelu = 2 * 4 * TERMS["LNC"](shape) if PRODUCTS[name] else 0
        return {"tensor": of_flop / (h100.product_share(shape.tokens()) * h100.TENSOR.value), "memory": gelu / memory}
    issued = sum(budgets.issued(pattern) * passes(shape) for pattern, passes in SLOTS.get(name, []))
    times = {"memory": of_bytes / memory, "issue": issued / issue_rate(name)}
    if "ttention" in name:
        times["tensor"] = of_flop / (h100.MMA.value * h100.TENSOR.value)
    if name == "EmbeddingBackward":
        times["latency"] = chain(shape)
    bound = max(times, key=times.get)
    return {bound: times[bound]}


def predict(model, shape):
    """The parts of the step."""
    launches = {part: rule.of(shape) + DEEPER.get(part, lambda s: 0)(shape) for part, rule in model.launches.items()}
    for source, to, number in SPLIT:
        launches[source] -= number(shape)
        launches[to] += number(shape)
    out = []
    for part, (operations, kind) in PARTS.items():
        limits = collections.Counter()
        for name in operations:
            limits.update(operation_times(model, shape, name, h100.SHARES[kind].value))
        limits["launch"] += launches[part] * h100.LAUNCH.value
        out.append(Part(part, launches[part], sum(model.bytes[n].of(shape) for n in operations),
                        sum(model.flop[n].of(shape) for n in operations),
                        sum(budgets.issued(p) * passes(shape) for n in operations for p, passes in SLOTS.get(n, [])),
                        sum(limits.values()), limits.most_common(1)[0][0]))
    filled = model.filled.of(shape)
    seconds = filled / (h100.SHARES["stream"].value * h100.MEMORY.value) + launches["fills"] * h100.LAUNCH.value
    out.append(Part("fills", launches["fills"], filled, 0, 0, seconds, "memory"))
    return out


def parameters(shape):
    """Of the model with a separate head, padded."""
    c = shape.dim
    return shape.layers * (12 * c * c + 13 * c) + (shape.vocabulary + shape.padded() + shape.context) * c + 2 * c


def all_reduced(shape, parts, world):
    """Seconds of all-reduce in float, and those that a step waits for: DDP sums buckets of 25 MiB during backward. The
    last bucket, with the gradient of the embedding, is ready when backward ends. Meanwhile the ring's blocks occupy
    multiprocessors."""
    bucket, last = 25 << 20, 4 * (shape.vocabulary + shape.context) * shape.dim
    rest = 4 * parameters(shape) - last
    each = all_reduce_table.predicted(bucket, world)[0]
    of_last = all_reduce_table.predicted(last, world)[0]
    early = rest / bucket * each
    backward = sum(p.seconds for p in parts if "backward" in p.name)
    occupied = all_reduce_table.constants()["channels"] / h100.SMS.value * min(early, backward)
    return early + of_last, max(0.0, early - backward) + of_last + occupied


def flop_per_token(shape):
    """Chowdhery et al., "PaLM", 2022, appendix B; tests/bench/gpt2.sh."""
    products = 12 * shape.layers * shape.dim ** 2 + shape.padded() * shape.dim
    return 6 * products + 12 * shape.layers * shape.dim * shape.context


BATCHES = (4, 32)
# Milliseconds that the prediction must not exceed. Raise one only with a reason.
MOST_MS = {4: 11.6, 32: 66.5}

LLM_C = ("llm.c, measured: 10^10 tokens in 45 minutes on 8 H100 (its discussion 481 says 90 minutes on 8 A100, and "
         "KellerJordan/modded-nanogpt's README 45 on 8 H100, record 1)")
LLM_C_TOKENS = 1e10 / (45 * 60) / 8  # per second and device


def summary(shape, parts):
    seconds, launches = sum(p.seconds for p in parts), sum(p.launches for p in parts)
    tokens = shape.tokens() / seconds
    return seconds, launches, tokens, tokens * flop_per_token(shape) / h100.TENSOR.value


def text_of(shape, parts):
    seconds, launches, tokens, mfu = summary(shape, parts)
    lines = [f"GPT-2, bf16, {shape.batch} x {shape.context} tokens on an H100, predicted",
             f"{'part':34} launches       GB    TFLOP  G slots      ms  bound"]
    lines += [f"{p.name:34} {p.launches:8.0f} {p.bytes / 1e9:8.3f} {p.flop / 1e12:8.3f} {p.slots / 1e9:8.3f} "
              f"{p.seconds * 1e3:7.3f}  {p.bound}" for p in parts]
    lines.append(f"{'sum':34} {launches:8.0f} {sum(p.bytes for p in parts) / 1e9:8.3f} "
                 f"{sum(p.flop for p in parts) / 1e12:8.3f} {sum(p.slots for p in parts) / 1e9:8.3f} {seconds * 1e3:7.3f}  "
                 f"{tokens / 1e3:.0f},000 tokens/s, {100 * mfu:.0f} % of the tensor cores' peak")
    lines.append(f"the host's launches take {launches * h100.HOST.value * 1e3:.1f} ms"
                 + (", behind the device's work" if launches * h100.HOST.value < seconds else ": THE HOST IS THE LIMIT"))
    copies_and_graph = 4  # of the tokens, the targets and the learning rate (tests/nn/cuda/step_graph_test.cpp counts them)
    lines.append(f"as a CUDA graph (--graph), the host queues {copies_and_graph} operations: "
                 f"{copies_and_graph * h100.HOST.value * 1e3:.2f} ms, predicted; the device's work stays the same")
    for world in (2, 4, 8):
        total, waits = all_reduced(shape, parts, world)
        lines.append(f"all-reduce on {world} devices: {total * 1e3:.2f} ms, of which the step waits {waits * 1e3:.2f}: "
                     f"{(seconds + waits) * 1e3:.2f} ms a step")
    lines.append(f"beside: {LLM_C_TOKENS / 1e3:.0f},000 tokens/s and device, {LLM_C}")
    return "\n".join(lines)


def check_budget(model):
    for batch in BATCHES:
        ms = 1e3 * summary(gpt2(batch), predict(model, gpt2(batch)))[0]
        if not ms <= MOST_MS[batch]:
            raise SystemExit(f"step_table.py: {ms:.2f} ms are predicted for {batch} sequences, the budget is {MOST_MS[batch]}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("step_counts", type=pathlib.Path)
    p.add_argument("--rules", action="store_true", help="print the counted factors, too")
    a = p.parse_args()
    model = Model(counted(a.step_counts))
    if a.rules:
        print(model.rules(), end="\n\n")
    print("\n\n".join(text_of(gpt2(b), predict(model, gpt2(b))) for b in BATCHES))


if __name__ == "__main__":
    main()
