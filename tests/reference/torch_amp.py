#!/usr/bin/python3
"""Creates tests/reference/data/amp: PyTorch's mixed precision on the CPU.

    /usr/bin/python3 tests/reference/torch_amp.py [--out tests/reference/data/amp]

Needs Debian's python3-torch (1.13). Floats are printed with nine digits, which identify a float32 exactly.

ops.json: operators on bf16 tensors: [{"name", "op", "attrs", "inputs", "output", "grad_output", "grads"}]. The loss of
  the gradients is sum(output * grad_output). A bf16 tensor has "bits" for "data": its codes. Computed by PyTorch's bf16
  kernels if these round once; for the operators in ROUND_INSIDE by its float kernels, whose results are rounded to bf16.
train.json: an MLP with f32 parameters, trained with SGD under torch.autocast("cpu", bfloat16): "init", "x", "target",
  "losses" and "params" after the last step; "f32_losses" are without autocast. "losses" are with a linear layer that rounds
  once (RoundedLinear), "autocast_losses" with PyTorch's own, which rounds inside.
gpt.json: 20 steps of AdamW of a small GPT, from the values that manual_seed("seed") draws: "losses", "autocast_losses"
  and "f32_losses" as in train.json. Layers round once, as RoundedLinear does; attention, GELU and the embeddings compute in
  float, and the first two round their results; normalisation, residuals and the loss are floats, as under CUDA's autocast.
gpt_heads_of_64.json: the same with heads as long as GPT-2's, a context that is no whole number of tiles, and gradients
  clipped to the norm "clip". "spread": the largest distance of the losses from those of PERTURBED_RUNS runs, in which
  each initial value is changed by one unit in its last place.
scaler.json: runs of torch.cuda.amp.GradScaler: "options" and "steps" of {"grads": [optimizer][values], "scale",
  "tracker", "stepped": [optimizer]}. "values" are gradients before unscaling; scale and tracker are the values after update().
  The class is PyTorch's own. Its two kernels exist only for CUDA, so they are registered for the CPU here, as defined in
  aten/src/ATen/native/cuda/AmpKernels.cu.
"""
import argparse, json, math, os, types
import torch
from torch.nn import functional as F

torch.set_num_threads(1)
BF16 = torch.bfloat16


def floats(t):
    return [json.loads("%.9g" % x) if math.isfinite(x) else str(x) for x in t.detach().float().flatten().tolist()]


def entry(t):
    if t.dtype == torch.int64:
        return {"shape": list(t.shape), "dtype": "i64", "data": t.flatten().tolist()}
    if t.dtype == BF16:
        bits = t.detach().contiguous().view(torch.int16).int() & 0xffff
        return {"shape": list(t.shape), "dtype": "bf16", "bits": bits.flatten().tolist()}
    return {"shape": list(t.shape), "dtype": "f32", "data": floats(t)}


def op_cases(g):
    N = lambda *s: torch.randn(s, generator=g).to(BF16)
    U = lambda *s: (torch.rand(s, generator=g) + 0.5).to(BF16)
    I = lambda hi, *s: torch.randint(hi, s, generator=g)
    yield "add", "add", {}, {"a": N(5, 37), "b": N(5, 37)}, {}, lambda a, b: a + b
    yield "add_broadcast", "add", {}, {"a": N(5, 37), "b": N(37)}, {}, lambda a, b: a + b
    yield "sub", "sub", {}, {"a": N(5, 37), "b": N(5, 37)}, {}, lambda a, b: a - b
    yield "mul", "mul", {}, {"a": N(5, 37), "b": N(5, 37)}, {}, lambda a, b: a * b
    yield "div", "div", {}, {"a": N(5, 37), "b": U(5, 37)}, {}, lambda a, b: a / b
    yield "pow2", "pow", {"exponent": 2.0}, {"x": N(5, 37)}, {}, lambda x: x ** 2
    for name, f in (("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", F.relu)):
        yield name, name, {}, {"x": N(5, 37)}, {}, f
    for name, f in (("log", torch.log), ("sqrt", torch.sqrt)):
        yield name, name, {}, {"x": U(5, 37)}, {}, f
    yield "gelu_erf", "gelu", {"approximate": "none"}, {"x": 2 * N(5, 37)}, {}, F.gelu
    yield "gelu_tanh", "gelu", {"approximate": "tanh"}, {"x": 2 * N(5, 37)}, {}, lambda x: F.gelu(x, approximate="tanh")
    yield "softmax", "softmax", {"dim": -1}, {"x": 3 * N(5, 37)}, {}, lambda x: x.softmax(-1)
    yield "log_softmax", "log_softmax", {"dim": -1}, {"x": 3 * N(5, 37)}, {}, lambda x: x.log_softmax(-1)
    yield ("layernorm", "layernorm", {"eps": 1e-5}, {"x": 2 * N(5, 40) + 1, "weight": N(40), "bias": N(40)}, {},
           lambda x, weight, bias: F.layer_norm(x, (40,), weight, bias, 1e-5))
    yield "sum", "sum", {"dim": 1, "keepdim": False}, {"x": N(5, 37)}, {}, lambda x: x.sum(1)
    yield "mean", "mean", {"dim": 1, "keepdim": False}, {"x": N(5, 37)}, {}, lambda x: x.mean(1)
    yield "max", "max", {"dim": 1}, {"x": N(5, 37)}, {}, lambda x: x.max(1)[0]
    yield ("linear", "linear", {}, {"x": N(9, 70), "weight": N(33, 70), "bias": N(33)}, {},
           lambda x, weight, bias: F.linear(x, weight, bias))
    yield "matmul", "matmul", {}, {"a": N(9, 70), "b": N(70, 33)}, {}, lambda a, b: a @ b
    yield "matmul_batched", "matmul", {}, {"a": N(2, 3, 9, 20), "b": N(2, 3, 20, 11)}, {}, lambda a, b: a @ b
    yield ("conv2d", "conv2d", {"stride": 1, "padding": 1, "dilation": 1, "groups": 1},
           {"x": N(2, 3, 7, 6), "weight": N(4, 3, 3, 3), "bias": N(4)}, {},
           lambda x, weight, bias: F.conv2d(x, weight, bias, 1, 1))
    yield ("maxpool", "maxpool2d", {"kernel": 2, "stride": 2, "padding": 0}, {"x": N(2, 2, 6, 8)}, {},
           lambda x: F.max_pool2d(x, 2, 2))
    yield "embedding", "embedding", {}, {"weight": N(11, 6)}, {"index": I(11, 3, 7)}, lambda weight, index: F.embedding(index, weight)


# Operators whose bf16 kernels in PyTorch 1.13 round intermediate results (products round after
# every addition on processors without AVX-512).
ROUND_INSIDE = {"gelu", "softmax", "log_softmax", "layernorm", "linear", "matmul", "conv2d", "embedding"}


def make_ops():
    g = torch.Generator().manual_seed(5)
    out = []
    for name, op, attrs, inputs, indices, f in op_cases(g):
        inside = torch.float32 if op in ROUND_INSIDE else BF16
        leaves = {k: v.to(inside, copy=True).requires_grad_() for k, v in inputs.items()}
        y = f(*leaves.values(), *indices.values())
        assert y.dtype == inside, name
        dy = torch.randn(y.shape, generator=g).to(BF16)
        y.backward(dy.to(inside))
        y = y.to(BF16)
        for leaf in leaves.values():
            leaf.grad = leaf.grad.to(BF16).to(inside)
        out.append({"name": name, "op": op, "attrs": attrs,
                    "inputs": {k: entry(v) for k, v in {**inputs, **indices}.items()}, "output": entry(y),
                    "grad_output": entry(dy), "grads": {k: entry(v.grad.to(BF16)) for k, v in leaves.items()}})
    return out


class RoundedLinear(torch.autograd.Function):
    """The bf16 linear layer of processors and GPUs that sum in float: each result is rounded
    once."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x.float(), weight.float(), bias.float()).to(BF16)

    @staticmethod
    def backward(ctx, dy):
        x, weight = (t.float() for t in ctx.saved_tensors)
        dy = dy.float()
        return (dy @ weight).to(BF16), (dy.t() @ x).to(BF16), dy.sum(0).to(BF16)


def make_training():
    g = torch.Generator().manual_seed(6)
    rows, width, hidden, classes, lr, steps = 32, 20, 40, 5, 0.2, 30
    init = [torch.randn(s, generator=g) * scale for s, scale in
            (((hidden, width), 0.2), ((hidden,), 0.1), ((classes, hidden), 0.15), ((classes,), 0.1))]
    x, target = torch.randn(rows, width, generator=g), torch.randint(classes, (rows,), generator=g)

    def rounded_linear(x, weight, bias):
        return RoundedLinear.apply(x.to(BF16), weight.to(BF16), bias.to(BF16))

    def train(enabled, linear=F.linear):
        params = [p.clone().requires_grad_() for p in init]
        losses = []
        for _ in range(steps):
            with torch.autocast("cpu", BF16, enabled=enabled):
                y = linear(torch.tanh(linear(x, params[0], params[1])), params[2], params[3])
                assert y.dtype == (BF16 if enabled else torch.float32)
                loss = F.cross_entropy(y.float(), target)
            grads = torch.autograd.grad(loss, params)
            assert all(d.dtype == torch.float32 for d in grads)
            losses.append(loss.item())
            for p, d in zip(params, grads):
                p.data -= lr * d
        return losses, params

    losses, params = train(True, rounded_linear)
    return {"lr": lr, "init": [entry(p) for p in init], "x": entry(x), "target": entry(target), "losses": losses,
            "params": [entry(p) for p in params], "autocast_losses": train(True)[0], "f32_losses": train(False)[0]}


# ---- a small GPT ----

GPT = {"vocabulary": 61, "context": 32, "layers": 2, "dim": 64, "heads": 2, "batch": 2, "batches": 4, "steps": 20,
       "lr": 3e-3, "weight_decay": 0.01, "seed": 11}
GPT_HEADS_OF_64 = {**GPT, "vocabulary": 131, "context": 72, "dim": 128, "lr": 2e-3, "clip": 1.0}
PERTURBED_RUNS = 8


def rounded(f, x):
    """Computes f in float on bf16 values and rounds the result; the gradients as well."""
    return f(x.float()).to(BF16)


def make_gpt(shape):
    from torch import nn
    c, h = shape["dim"], shape["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.qkv, self.out = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
            self.n2, self.up, self.down = nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(shape["vocabulary"], c), nn.Embedding(shape["context"], c)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, shape["vocabulary"], bias=False)

    def attention(qkv):
        b, t, _ = qkv.shape
        q, k, v = (z.view(b, t, h, c // h).transpose(1, 2) for z in qkv.split(c, 2))
        s = (q @ k.transpose(-2, -1)) / math.sqrt(c // h)
        mask = torch.tril(torch.ones(t, t)).bool()
        return (s.masked_fill(~mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

    def rounded_linear(x, layer):
        bias = layer.bias if layer.bias is not None else torch.zeros(layer.weight.shape[0])
        flat = RoundedLinear.apply(x.reshape(-1, x.shape[-1]).to(BF16), layer.weight.to(BF16), bias.to(BF16))
        return flat.view(*x.shape[:-1], -1)

    def plain_linear(x, layer):
        return F.linear(x, layer.weight, layer.bias)

    g = torch.Generator().manual_seed(12)
    tokens = torch.randint(shape["vocabulary"], (shape["batches"], shape["batch"], shape["context"] + 1), generator=g)

    def train(how, nudge=None):
        linear = rounded_linear if how == "rounded" else plain_linear
        inside = rounded if how == "rounded" else lambda f, x: f(x)
        torch.manual_seed(shape["seed"])
        model = Model()
        if nudge is not None:
            random = torch.Generator().manual_seed(nudge)
            for p in model.parameters():
                up = torch.rand(p.shape, generator=random) < 0.5
                p.data = torch.nextafter(p.data, torch.where(up, 9.0, -9.0))
        optimizer = torch.optim.AdamW(model.parameters(), lr=shape["lr"], weight_decay=shape["weight_decay"], foreach=False)
        losses = []
        for step in range(shape["steps"]):
            batch = tokens[step % shape["batches"]]
            with torch.autocast("cpu", BF16, enabled=how == "autocast"):
                x = model.tok(batch[:, :-1]) + model.pos.weight
                for m in model.blocks:
                    x = x + linear(inside(attention, linear(m.n1(x), m.qkv)), m.out)
                    gelu = inside(lambda y: F.gelu(y, approximate="tanh"), linear(m.n2(x), m.up))
                    x = x + linear(gelu, m.down)
                logits = linear(model.norm(x), model.head)
                assert logits.dtype == (torch.float32 if how == "f32" else BF16)
                loss = F.cross_entropy(logits.float().view(-1, shape["vocabulary"]), batch[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            if "clip" in shape:
                nn.utils.clip_grad_norm_(model.parameters(), shape["clip"])
            optimizer.step()
            losses.append(loss.item())
        return losses

    out = {**shape, "tokens": tokens.tolist(), "losses": train("rounded"), "autocast_losses": train("autocast"),
           "f32_losses": train("f32")}
    if "clip" in shape:
        runs = [train("rounded", run) for run in range(PERTURBED_RUNS)]
        out["spread"] = max(abs(a - b) for losses in runs for a, b in zip(out["losses"], losses))
    return out


# ---- GradScaler ----

def unscale(grads, found_inf, inv_scale):
    for grad in grads:
        if not torch.isfinite(grad).all():
            found_inf.fill_(1.0)
        if inv_scale.item() != 1.0:
            grad.mul_(inv_scale)


def update_scale(scale, tracker, found_inf, growth, backoff, interval):
    if found_inf.item():
        scale.fill_(torch.tensor(scale.item() * backoff, dtype=torch.float32))
        tracker.fill_(0)
    elif tracker.item() + 1 == interval:
        grown = torch.tensor(scale.item() * growth, dtype=torch.float64).float()
        if torch.isfinite(grown):
            scale.copy_(grown)
        tracker.fill_(0)
    else:
        tracker.add_(1)
    return scale


def make_scaler():
    library = torch.library.Library("aten", "IMPL")
    library.impl("_amp_foreach_non_finite_check_and_unscale_", unscale, "CPU")
    library.impl("_amp_update_scale_", update_scale, "CPU")
    torch.cuda.amp.grad_scaler.amp_definitely_not_available = lambda: False
    # The replicator asserts that the scale is on a GPU, and copies it to others.
    torch.cuda.amp.grad_scaler._MultiDeviceReplicator = lambda t: types.SimpleNamespace(
        get=lambda device: t, _per_device_tensors={t.device: t})
    inf, nan = float("inf"), float("nan")
    runs = []
    plans = [({"init_scale": 65536.0, "growth_interval": 3}, "....x..x....xxx......"),
             ({"init_scale": 4.0, "growth_interval": 1}, "...x.x...n.n"),
             ({"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2}, "..x....n...x.."),
             ({"init_scale": 1e38, "growth_interval": 1}, ".....x."),
             ({"init_scale": 1e-36, "growth_interval": 2}, "x....")]
    for options, plan in plans:
        scaler = torch.cuda.amp.GradScaler(**options)
        # scale() itself requires a CUDA tensor
        scaler._lazy_init_scale_growth_tracker(torch.device("cpu"))
        params = [torch.zeros(3, requires_grad=True), torch.zeros(2, requires_grad=True)]
        optimizers = [torch.optim.SGD([p], lr=1.0) for p in params]
        steps = []
        for i, kind in enumerate(plan):
            grads = []
            for k, p in enumerate(params):
                p.grad = torch.full_like(p, 0.5) * scaler.get_scale() * (i + k + 1)
                if kind != "." and k == i % 2:  # one of the two optimizers
                    p.grad[-1] = inf if kind == "x" else nan
                grads.append(floats(p.grad))
            before = [p.detach().clone() for p in params]
            if i % 3 == 0:
                scaler.unscale_(optimizers[0])
            for o in optimizers:
                scaler.step(o)
            scaler.update()
            steps.append({"grads": grads, "params": [floats(p) for p in params],
                          "stepped": [not torch.equal(a, b) for a, b in zip(before, params)],
                          "scale": floats(scaler._scale)[0], "tracker": scaler._get_growth_tracker()})
        runs.append({"options": options, "steps": steps})
    return runs


parser = argparse.ArgumentParser()
parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data/amp"))
folder = parser.parse_args().out
os.makedirs(folder, exist_ok=True)
for name, make in (("ops", make_ops), ("train", make_training), ("gpt", lambda: make_gpt(GPT)),
                   ("gpt_heads_of_64", lambda: make_gpt(GPT_HEADS_OF_64)), ("scaler", make_scaler)):
    text = json.dumps(make(), separators=(",", ":"))  # first: a failure leaves the old file
    with open(os.path.join(folder, name + ".json"), "w") as f:
        f.write(text)
        f.write("\n")
