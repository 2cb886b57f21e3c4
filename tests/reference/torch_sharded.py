#!/usr/bin/python3
"""Creates tests/reference/data/sharded: a small GPT that PyTorch trains with FSDP and with tensor parallelism.

    /usr/bin/python3 tests/reference/torch_sharded.py [--out tests/reference/data/sharded] [--only NAME...]

Needs PyTorch 2.6 (Debian 13's python3-torch) and a loopback interface: torch.distributed.tensor.parallel over gloo on
CPUs does not exist in Debian 12's 1.13. tests/reference/sharded_test.cpp repeats the runs. The sums have other orders
there, so the results are equal up to rounding. A set takes a minute on two cores.

RUN.json: {"kind": "fsdp", "tensor" or "sequence" (tensor parallel, and norms by tokens), "world", "options" of the GPT,
  "optimizer", "clip", "rows", "inputs": [step][rank] flat tokens, "targets": the same, "init": {name: flat},
  "steps": [{"loss": [rank], "norm": before clipping}], "gradients": of the first step before clipping, "params": at the end}
The ranks of a tensor-parallel run share the tokens of rank 0. FSDP's runs were made twice, by FULL_SHARD (ZeRO-3) and by
SHARD_GRAD_OP (ZeRO-2), and had to agree.
"""
import argparse, json, os, socket, sys, traceback

SGD = {"name": "sgd", "lr": 0.2, "momentum": 0.9}
# With a small eps, Adam turns the rounding errors of gradients that are 0 (of the keys' biases) into steps.
ADAMW = {"name": "adamw", "lr": 0.02, "weight_decay": 0.1, "eps": 1e-3}
STEPS = 4
VOCABULARY, CONTEXT = 12, 12


def make_gpt(torch, o):
    """The same function as runtime/nn/gpt.hpp, with a Linear each for queries, keys and values."""
    nn, F = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(o["dim"], o["dim"]) for _ in range(4))

        def forward(self, x):
            heads = lambda y: y.unflatten(-1, (-1, o["dim"] // o["heads"])).transpose(1, 2)  # the heads of this rank
            y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), is_causal=True)
            return self.out(y.transpose(1, 2).flatten(2))

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(o["dim"], 4 * o["dim"]), nn.Linear(4 * o["dim"], o["dim"])

        def forward(self, x):
            return self.down(F.gelu(self.up(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.attention, self.norm2, self.mlp = nn.LayerNorm(o["dim"]), Attention(), nn.LayerNorm(o["dim"]), MLP()

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(o["vocabulary"], o["dim"]), nn.Embedding(o["context"], o["dim"])
            self.start = nn.Identity()  # where tensor parallelism by tokens begins
            self.blocks = nn.ModuleList(Block() for _ in range(o["layers"]))
            self.norm, self.head = nn.LayerNorm(o["dim"]), nn.Linear(o["dim"], o["vocabulary"], bias=False)

        def forward(self, tokens):
            x = self.start(self.tok(tokens) + self.pos(torch.arange(tokens.size(1))))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(7)
    return GPT()


def as_ours(torch, tensors):
    """Names and tensors as runtime/nn/gpt.hpp has them."""
    out = {}
    for name, t in tensors.items():
        name = name.replace("_fsdp_wrapped_module.", "").replace(".mlp.", ".")
        if ".attention.q." in name:
            parts = [tensors[n] for n in tensors if n.replace("_fsdp_wrapped_module.", "") in
                     [name.replace(".q.", f".{part}.") for part in "qkv"]]
            assert len(parts) == 3
            out[name.replace(".q.", ".qkv.")] = torch.cat(parts)
        elif ".attention.k." not in name and ".attention.v." not in name:
            out[name] = t
    return {name: t.detach().flatten().tolist() for name, t in out.items()}


def split(torch, model, kind, world):
    """Tensor parallelism, as PyTorch's documentation plans it for a transformer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
    mesh = init_device_mesh("cpu", (world,))
    tokens = Shard(1)
    if kind == "tensor":
        block = {f"attention.{n}": ColwiseParallel() for n in "qkv"}
        block |= {"attention.out": RowwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
    else:
        enter = lambda: PrepareModuleInput(input_layouts=(tokens,), desired_input_layouts=(Replicate(),))
        block = {f"attention.{n}": ColwiseParallel() for n in "qkv"}
        block |= {"norm1": SequenceParallel(), "attention": enter(), "attention.out": RowwiseParallel(output_layouts=tokens),
                  "norm2": SequenceParallel(), "mlp": enter(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=tokens)}
        parallelize_module(model, mesh, {
            "start": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(tokens,), use_local_output=True),
            "norm": SequenceParallel(), "head": ColwiseParallel(input_layouts=tokens, output_layouts=Replicate())})
    for each in model.blocks:
        parallelize_module(each, mesh, block)
    return model


def worker(rank, world, port, run, queue):
    try:
        queue.put((rank, *train_on_rank(rank, world, port, run)))
    except BaseException:
        queue.put((rank, traceback.format_exc()))


def train_on_rank(rank, world, port, run):
    import torch, torch.distributed as dist
    import torch.nn.functional as F
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), USE_LIBUV="0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = make_gpt(torch, run["options"])
    init = as_ours(torch, model.state_dict())
    whole = lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t
    if run["kind"] == "fsdp":
        from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        net = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({type(model.blocks[0])}), use_orig_params=True,
                   sharding_strategy=ShardingStrategy[run["strategy"]], device_id=torch.device("cpu"))
        def gradients():
            with FSDP.summon_full_params(net, with_grads=True):
                return as_ours(torch, {n: p.grad.clone() for n, p in net.named_parameters()})
        def state():
            with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig()):
                return as_ours(torch, net.state_dict())
        clip = lambda: net.clip_grad_norm_(run["clip"])
    else:
        net = split(torch, model, run["kind"], world)
        gradients = lambda: as_ours(torch, {n: whole(p.grad) for n, p in net.named_parameters()})
        state = lambda: as_ours(torch, {n: whole(t) for n, t in net.state_dict().items()})
        # torch.nn.utils.clip_grad_norm_ refuses a mixture of DTensors and plain tensors, so by its formula. Gradients of norms
        # are sums over a rank's tokens, Partial. They are summed first: 2.6's mul_ of a Partial DTensor gives wrong values.
        def clip():
            for p in net.parameters():
                p.grad = p.grad.redistribute(placements=p.placements) if hasattr(p, "placements") else p.grad
            norm = torch.stack([whole(p.grad).square().sum() for p in net.parameters()]).sum().sqrt()
            for p in net.parameters():
                p.grad.mul_(min(1.0, run["clip"] / (norm.item() + 1e-6)))
            return norm
    options = {k: v for k, v in run["optimizer"].items() if k != "name"}
    optimizer = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[run["optimizer"]["name"]](net.parameters(), foreach=False, **options)
    steps, first = [], None
    for step in range(STEPS):
        seen = rank if run["kind"] == "fsdp" else 0
        inputs, targets = (torch.tensor(run[k][step][seen]).view(run["rows"], -1) for k in ("inputs", "targets"))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        first = gradients() if step == 0 else first
        steps.append((loss.item(), clip().item()))
        optimizer.step()
    params = state()
    dist.barrier()
    dist.destroy_process_group()
    return init, steps, first, params


def on_ranks(run, world):
    import torch.multiprocessing as mp
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(worker, args=(world, port, run, queue), nprocs=world, join=False)
    got = []
    for _ in range(world):
        got.append(queue.get())
        if len(got[-1]) == 2:
            sys.exit(f"rank {got[-1][0]}: {got[-1][1]}")
    got.sort(key=lambda g: g[0])
    while not context.join():
        pass
    for g in got:  # whole tensors, so the same on all ranks
        assert g[3] == got[0][3] and g[4] == got[0][4], f"rank {g[0]} differs"
    return {"init": got[0][1], "steps": [{"loss": [g[2][i][0] for g in got], "norm": got[0][2][i][1]} for i in range(STEPS)],
            "gradients": got[0][3], "params": got[0][4]}


def distance(a, b):
    if isinstance(a, dict):
        return max(distance(a[k], b[k]) for k in a)
    return max(map(distance, a, b)) if isinstance(a, list) else abs(a - b)


def train(run, world):
    import random
    draw = random.Random(f"{run['kind']} {world}")
    tokens = lambda: [[[draw.randrange(VOCABULARY) for _ in range(run["rows"] * CONTEXT)] for _ in range(world)] for _ in range(STEPS)]
    run = {**run, "world": world, "inputs": tokens(), "targets": tokens()}
    if run["kind"] != "fsdp":
        return {**run, **on_ranks(run, world)}
    zero3, zero2 = (on_ranks({**run, "strategy": s}, world) for s in ("FULL_SHARD", "SHARD_GRAD_OP"))
    assert distance(zero3, zero2) < 1e-6, distance(zero3, zero2)
    return {**run, **zero3}


def runs():
    gpt = lambda dim, heads: {"options": {"vocabulary": VOCABULARY, "context": CONTEXT, "layers": 2, "dim": dim, "heads": heads}, "clip": 0.5, "rows": 2}
    for name, optimizer in (("sgd", SGD), ("adamw", ADAMW)):
        for world in (2, 3, 5):
            yield f"fsdp_{name}_w{world}", {"kind": "fsdp", **gpt(6, 2), "optimizer": optimizer}, world
    for kind in ("tensor", "sequence"):
        for world, dim in ((2, 8), (3, 6), (4, 8)):
            yield f"{kind}_w{world}", {"kind": kind, **gpt(dim, dim // 2 if world < 3 else world), "optimizer": SGD}, world


def rounded(v):
    if isinstance(v, list):
        return [rounded(e) for e in v]
    if isinstance(v, dict):
        return {k: rounded(e) for k, e in v.items()}
    return float("%.9g" % v) if isinstance(v, float) else v


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "sharded"))
    ap.add_argument("--only", nargs="*", help="names of runs")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name, run, world in runs():
        if args.only and name not in args.only:
            continue
        path = os.path.join(args.out, name + ".json")
        result = rounded(train(run, world))
        with open(path, "w") as f:
            json.dump(result, f, separators=(",", ":"))
        print(path, os.path.getsize(path), "bytes", flush=True)
