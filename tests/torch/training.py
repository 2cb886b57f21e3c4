#!/usr/bin/python3
"""PyTorch's DDP trains an MLP, a CNN and a GPT on this backend; the losses are compared with gloo's.

    training.py [--worlds 2,3,4] [--short] [--only KINDS]

In gloo's order of sums (algorithm gloo_ring) every loss and every parameter must have gloo's bits. In the backend's own
order they may differ by rounding, but not more. Neither buckets in communication memory nor `overlap` change the bits,
and steps with such buckets fault in no more pages than others.
A kind that hangs or fails over gloo itself is reported, and not compared: at most one.
Then it compares other features with gloo: ZeroRedundancyOptimizer, a join of uneven inputs, hooks, broadcast buffers.
On PyTorch 2, FullyShardedDataParallel trains the GPT, too. On two ranks it must have gloo's bits, because a sum of two
has one order; on more, it may differ by rounding.
"""
import argparse
import functools
import hashlib
import json
import re
import resource
import sys

import ranks

STEPS = 12
MODELS = ("mlp", "cnn", "gpt")
EXTRAS = ("zero", "join", "fp16_hook", "power_sgd", "batch_norm", "no_sync", "fsdp")


def models():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            later = torch.ones(length, length).triu(1).bool()
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self, tokens=64, width=32, length=24):
            super().__init__()
            self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
            self.norm = nn.LayerNorm(width)

        def forward(self, x):
            x = self.token(x) + self.place(torch.arange(x.shape[1]))
            # The weight is tied, so its gradient is a sum of two.
            return self.norm(self.blocks(x)) @ self.token.weight.t()

    def mlp():
        return nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))

    def cnn():
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(),
                             nn.Linear(16 * 3 * 3, 10))

    def normed():
        return nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))

    def batch_of(name, g):
        if name == "gpt":
            text = torch.randint(0, 64, (4, 25), generator=g)
            return text[:, :-1], text[:, 1:]
        shape = (8, 1, 12, 12) if name == "cnn" else (16, 40)
        return torch.randn(shape, generator=g), torch.randint(0, 10, (shape[0],), generator=g)

    def loss_of(y, target):
        return F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))

    return {"mlp": mlp, "cnn": cnn, "gpt": GPT, "normed": normed}, batch_of, loss_of


def train(kind, group, wrap, steps=STEPS):
    """Returns the losses of this rank, and a digest of its parameters at the end."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    make, batch_of, loss_of = models()
    name = {"batch_norm": "normed", "fsdp": "gpt"}.get(kind, kind if kind in make else "mlp")
    rank = dist.get_rank()
    # Different values: DDP must use rank 0's. FSDP does not make them equal on a CPU.
    torch.manual_seed(0 if kind == "fsdp" else rank)
    # PyTorch's PowerSGD hook makes calls in callbacks of futures. With several buckets, their order depends on each rank's
    # timing: ranks then make different calls. gloo does not compare them, and closes the connection if the sizes differ.
    cap = 25 if kind == "power_sgd" else 0.1  # MB; 25: one bucket
    if kind == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        model = make[name]()
        net = FullyShardedDataParallel(model, process_group=group, device_id=torch.device("cpu"),
                                       auto_wrap_policy=ModuleWrapPolicy({type(model.blocks[0])}))
    else:
        net = wrap(make[name](), process_group=group, bucket_cap_mb=cap, gradient_as_bucket_view=kind in ("gpt", "zero"))
    if kind == "zero":
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01, process_group=group)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    if kind == "fp16_hook":
        net.register_comm_hook(group, default_hooks.fp16_compress_hook)
    if kind == "power_sgd":
        net.register_comm_hook(powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2),
                               powerSGD_hook.powerSGD_hook)
    g = torch.Generator().manual_seed(1000 + rank)
    losses = []

    def step(sync=True):
        x, target = batch_of(name, g)
        loss = loss_of(net(x), target)
        loss.backward()
        if sync:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())

    if kind == "join":
        with Join([net]):
            for _ in range(steps + 2 * rank):
                step()
    else:
        for n in range(steps):
            if kind == "no_sync" and n % 3:
                with net.no_sync():
                    step(sync=False)
            else:
                step()
    state = b"".join(p.detach().numpy().tobytes() for p in net.state_dict().values())
    return [x.hex() for x in losses], hashlib.sha256(state).hexdigest()


def rank_main(kinds):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ringsmith_torch
    rank, _ = ranks.join()
    ways = {
        "gloo": (dist.new_group(backend="gloo"), DistributedDataParallel),
        "strict": (dist.new_group(backend="ringsmith", pg_options=ringsmith_torch.Options(algorithm="gloo_ring")),
                   DistributedDataParallel),
        "own": (dist.new_group(backend="ringsmith"), DistributedDataParallel),
        "shared": (dist.new_group(backend="ringsmith"),
                   functools.partial(ringsmith_torch.DistributedDataParallel, overlap="on")),
        "serial": (dist.new_group(backend="ringsmith"),
                       functools.partial(ringsmith_torch.DistributedDataParallel, overlap="off")),
    }
    if kinds == ["heap"]:
        return check_heap({way: ways[way] for way in ("shared", "serial", "own")})
    for kind in kinds:
        if kind == "fp16_hook" and not sums_float16(ways["gloo"][0]):
            continue
        for way, (group, wrap) in ways.items():
            if way not in ways_of(kind):
                continue
            print("TRAINS", kind, "over", way, flush=True)
            losses, digest = train(kind, group, wrap)
            print("RESULT", json.dumps({"kind": kind, "way": way, "rank": rank, "losses": losses, "digest": digest}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def check_heap(ways):
    """Gradients keep their pages from step to step, also where the buckets are not in the heap (memory.cpp).

    Buckets in plain memory come last: when they are freed, the heap keeps more memory for the other ways, too. For the
    same reason, this runs in processes that train nothing else.
    """
    import torch
    faults = {}
    for way, (group, wrap) in ways.items():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(n, m) for n, m in ((784, 1024), (1024, 1024), (1024, 10))]
        net = wrap(torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]), process_group=group)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        for step in range(16):
            if step == 6:
                begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            optimizer.zero_grad(set_to_none=True)
            net(torch.ones(64, 784)).sum().backward()
            optimizer.step()
        faults[way] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin) / 10
    for way in ("shared", "serial"):
        assert faults[way] < faults["own"] + 100, f"page faults of a step over {way}, and in plain memory: {faults}"


def sums_float16(group):
    import torch
    import torch.distributed as dist
    try:
        dist.all_reduce(torch.ones(1, dtype=torch.float16), group=group)
    except RuntimeError as error:  # gloo of PyTorch 2.14, before it communicates, on all ranks
        if "scalar type" not in str(error):
            raise
        return False
    return True


def ways_of(kind):
    return ("gloo", "own") if kind == "fsdp" else ("gloo", "strict", "own", "shared", "serial")


def judge(world, kind, results):
    """Checks the results of all ranks by way, and prints one line per kind."""
    of = {way: sorted((r for r in results if r["kind"] == kind and r["way"] == way), key=lambda r: r["rank"])
          for way in ways_of(kind)}
    if kind == "fp16_hook" and not any(of.values()) and ranks.torch_version() >= (2, 14):
        return f"{world} ranks, {kind:10}: not compared: this version's gloo cannot sum float16"
    for way, rows in of.items():
        assert len(rows) == world, f"{kind}: {way} has {len(rows)} of {world} ranks"
        assert all(len(r["losses"]) >= STEPS for r in rows)
        assert len({r["digest"] for r in rows}) == 1 or kind == "batch_norm", f"{kind}: the ranks of {way} disagree"
    plain = {way: [[x for x in r["losses"]] for r in rows] for way, rows in of.items()}
    digest = {way: rows[0]["digest"] for way, rows in of.items()}
    if kind == "fsdp":
        assert world > 2 or (plain["own"], digest["own"]) == (plain["gloo"], digest["gloo"]), "fsdp: other bits than gloo's"
    else:
        assert plain["strict"] == plain["gloo"], f"{kind}, {world} ranks: losses in gloo's order differ from gloo's"
        assert digest["strict"] == digest["gloo"], f"{kind}, {world} ranks: parameters in gloo's order differ from gloo's"
        assert plain["shared"] == plain["own"], f"{kind}, {world} ranks: buckets in communication memory change losses"
        assert (plain["serial"], digest["serial"]) == (plain["own"], digest["own"]), \
            f"{kind}, {world} ranks: reducing in backward's thread changes losses or parameters"
    value = float.fromhex
    off = max((abs(value(a) - value(b)) / abs(value(b)) for mine, theirs in zip(plain["own"], plain["gloo"])
               for a, b in zip(mine, theirs)), key=lambda d: (d != d, d))  # NaN is the worst
    # Rounding of float sums, amplified by a dozen steps; PowerSGD's orthogonalization amplifies
    # more.
    assert off < (1e-3 if kind == "power_sgd" else 2e-5), f"{kind}, {world} ranks: losses are off by {off:.1e}"
    first, last = value(plain["own"][0][0]), value(plain["own"][0][-1])
    bits = "" if kind == "fsdp" else " gloo's bits in gloo's order;"
    return f"{world} ranks, {kind:10}: loss {first:.4f} to {last:.4f};{bits} own order off by {off:.0e}"


def results_of(world, kinds):
    """Returns the results of all ranks, and the kinds that gloo has trained to their ends: all, or all but one."""
    done = ranks.run(world, __file__, "--rank", ",".join(kinds), limit=900, quiet=120)
    last = {found[-1] for r in done if (found := re.findall(r"^TRAINS (\w+) over (\w+)$", r.text, re.M))}
    if any(r.status for r in done) and len(last) == 1 and (kind := last.pop())[1] == "gloo":
        # All ranks were in a group of gloo's, in which this backend has no part.
        ends = ", ".join("hung" if r.seconds == float("inf") else str(r.status) for r in done)
        text = "\n".join(line for line in done[0].text.splitlines() if not line.startswith("RESULT "))
        print(f"{world} ranks, {kind[0]:10}: NOT COMPARED: it failed over gloo itself (ranks: {ends}). Rank 0:\n{text[-3000:]}",
              flush=True)
        kinds = [other for other in kinds if other != kind[0]]
        done = ranks.run(world, __file__, "--rank", ",".join(kinds), limit=900, quiet=120)
    ranks.expect_success(done, "training")
    return [json.loads(line.split(" ", 1)[1]) for r in done for line in r.text.splitlines() if line.startswith("RESULT ")], kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,3,4")
    parser.add_argument("--short", action="store_true", help="the models alone")
    parser.add_argument("--only", help="kinds, such as mlp,fsdp")
    parser.add_argument("--rank", help="(internal) be a rank, for these kinds")
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.rank.split(","))
    ranks.leave_if_impossible()
    kinds = MODELS if args.short else MODELS + EXTRAS
    if args.only:
        kinds = tuple(args.only.split(","))
    elif ranks.torch_version() < (2, 0):
        kinds = tuple(kind for kind in kinds if kind != "fsdp")
    if not args.only:
        ranks.expect_success(ranks.run(2, __file__, "--rank", "heap", limit=120, quiet=60), "pages of the heap")
        print("2 ranks: steps with buckets in communication memory fault in no more pages than in plain memory", flush=True)
    for world in map(int, args.worlds.split(",")):
        results, compared = results_of(world, kinds)
        for kind in compared:
            print(judge(world, kind, results), flush=True)


if __name__ == "__main__":
    sys.exit(main())
