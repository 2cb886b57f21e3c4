#!/usr/bin/python3
"""Creates tests/reference/data/features: runs of real PyTorch DDP with hooks, accumulation, join and other features.

    /usr/bin/python3 tests/reference/torch_ddp_features.py [--out tests/reference/data/features] [--only NAME...]

Needs Debian's python3-torch (1.13), Debian's reference BLAS (libblas3) and a loopback interface. Every sum is in
plain scalar order (no vectors, one thread, reference BLAS, no mkldnn, foreach=False), and the all-reduce is gloo's
ring, so that a scalar program has the same bits (tests/reference/features_test.cpp). Floats are printed with nine
digits, which identify a float32 exactly. A set takes ten minutes on two cores.

RUN.json: {"model", "world", "caps": [bytes of the first bucket, of the others], "optimizer", "init": [rank][parameter],
  "buffers": names, "steps": [...], ...}. Parameters are in the order of module.parameters(), flat.
  steps[i]: "micro": [rank][k] row indices of micro-step k ([] if the rank has run out of inputs), "loss": [rank][k],
            "params": after the step, of all ranks that took it; with "local_sgd" [rank] of each;
            "buffers": [rank][buffer], if the model has any
  end:      "params" when join() has ended, the same on all ranks
"""
import argparse, json, os, subprocess, sys

STRICT = {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
          "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3", "GLOO_SOCKET_IFNAME": "lo"}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
ADAMW = {"name": "adamw", "lr": 0.02, "weight_decay": 0.1}
SMALL = {"in": 5, "hidden": 7, "out": 3, "batch": 3, "rows": 40}
WIDE = {"in": 12, "hidden": 16, "out": 4, "batch": 4, "rows": 30}
IMAGES = {"channels": 2, "size": 6, "classes": 3, "batch": 3, "rows": 16}


def micro_steps(run, world):
    """Returns [step][rank][micro-step] row indices, which are counted up modulo the number of rows."""
    groups = run.get("groups") or [1] * run.get("steps", 4)
    counts = run.get("inputs")  # join: number of batches of each rank
    steps, row = [], 0
    for step in range(max(counts[:world]) if counts else len(groups)):
        ranks = []
        for rank in range(world):
            mine = []
            for _ in range(1 if counts else groups[step]):
                mine.append([(row + i) % run["rows"] for i in range(run["batch"])])
                row += run["batch"]
            ranks.append(mine if not counts or step < counts[rank] else [])
        steps.append(ranks)
    return steps


def make_model(run):
    import torch
    nn = torch.nn
    # Every rank uses the head. `extra` is used only where the run says so.
    if run["model"] == "mlp":
        class Mlp(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(run["in"], run["hidden"])
                self.head = nn.Linear(run["hidden"], run["out"])
                if "extra_on" in run:
                    self.extra = nn.Linear(run["hidden"], run["out"])
            def forward(self, x, extra=False):
                h = torch.relu(self.first(x))
                return self.head(h) + self.extra(h) if extra else self.head(h)
        return Mlp()
    c, s = run["channels"], run["size"]
    return nn.Sequential(nn.Conv2d(c, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2),
                         nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * ((s - 3) // 2 + 1) ** 2, run["classes"]))


def make_optimizer(run, parameters):
    import torch
    o = run["optimizer"]
    if o["name"] == "sgd":
        return torch.optim.SGD(parameters, lr=o["lr"], momentum=o["momentum"], foreach=False)
    return torch.optim.AdamW(parameters, lr=o["lr"], weight_decay=o["weight_decay"], foreach=False)


def make_zero(run, parameters):
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    o = dict(run["optimizer"], foreach=False)
    return ZeroRedundancyOptimizer(parameters, optimizer_class={"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[o.pop("name")], **o)


def make_data(run):
    import torch
    torch.manual_seed(1000)
    if run["model"] == "mlp":
        return torch.randn(run["rows"], run["in"]), torch.randn(run["rows"], run["out"])
    x = torch.randn(run["rows"], run["channels"], run["size"], run["size"])
    return x, torch.randint(run["classes"], (run["rows"],))


def register_hook(run, ddp):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    hook = run.get("hook", {"name": "none"})
    if hook["name"] == "allreduce":
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    elif hook["name"] == "fp16_compress":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook["name"] == "power_sgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=hook["rank"], start_powerSGD_iter=hook["start"],
                                            use_error_feedback=hook["error_feedback"], warm_start=hook["warm_start"])
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook["name"] == "post_local_sgd":
        from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
        state = post_localSGD_hook.PostLocalSGDState(None, None, hook["start"], post_local_gradient_allreduce=False)
        ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


def worker(rank, world, port, run, queue):
    import contextlib
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    dist.init_process_group("gloo", rank=rank, world_size=world)
    dist._DEFAULT_FIRST_BUCKET_BYTES = run["caps"][0]
    x, y = make_data(run)
    torch.manual_seed(100 + rank)
    model = make_model(run)
    flat = lambda tensors: [t.detach().flatten().tolist() for t in tensors]
    init = flat(model.parameters())
    ddp = DDP(model, bucket_cap_mb=run["caps"][1] / 2**20, static_graph=run.get("static_graph", False))
    register_hook(run, ddp)
    opt = (make_zero if run.get("zero") else make_optimizer)(run, ddp.parameters())
    loss_of = torch.nn.functional.mse_loss if run["model"] == "mlp" else torch.nn.functional.cross_entropy
    kwargs = {"extra": rank in run["extra_on"]} if "extra_on" in run else {}
    if "local_sgd" in run:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        averager = PeriodicModelAverager(period=run["local_sgd"]["period"], warmup_steps=run["local_sgd"]["warmup_steps"])
    steps = []
    joining = ddp.join(**run["join"]) if "join" in run else contextlib.nullcontext()
    with joining:
        for ranks in micro_steps(run, world):
            mine = ranks[rank]
            if not mine:
                break
            opt.zero_grad()
            losses = []
            for k, rows in enumerate(mine):
                quiet = ddp.no_sync() if k + 1 < len(mine) else contextlib.nullcontext()
                with quiet:
                    loss = loss_of(ddp(x[rows], **kwargs), y[rows]) / len(mine)
                    loss.backward()
                losses.append(loss.item())
            opt.step()
            if "local_sgd" in run:
                averager.average_parameters(ddp.parameters())
            steps.append((losses, flat(model.parameters()), flat(b.float() for b in model.buffers())))
    logging = ddp._get_ddp_logging_data() if run.get("logging") else None
    queue.put((rank, init, steps, flat(model.parameters()), x.flatten().tolist(), y.flatten().tolist(),
               [n for n, _ in model.named_parameters()], logging))
    dist.barrier()


def run_ddp(run, world, port):
    import torch.multiprocessing as mp
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(worker, args=(world, port, run, queue), nprocs=world, join=False)
    got = sorted((queue.get() for _ in range(world)), key=lambda g: g[0])
    while not context.join():
        pass
    micro = micro_steps(run, world)
    steps = []
    for i, ranks in enumerate(micro):
        took = [r for r in range(world) if ranks[r]]
        assert all(len(got[r][2]) > i for r in took)
        for r in took if "local_sgd" not in run else []:  # the replicas must agree, bit for bit
            assert got[r][2][i][1] == got[took[0]][2][i][1], f"rank {r} diverged in step {i}"
        step = {"micro": ranks, "loss": [got[r][2][i][0] if r in took else [] for r in range(world)],
                "params": [g[2][i][1] for g in got] if "local_sgd" in run else got[took[0]][2][i][1]}
        if got[took[0]][2][i][2]:
            step["buffers"] = [got[r][2][i][2] for r in range(world)]
        steps.append(step)
    for g in got if "local_sgd" not in run else []:
        assert g[3] == got[0][3], "the ranks end with different parameters"
    doc = {**{k: v for k, v in run.items() if k not in ("groups", "inputs", "steps", "worlds")}, "world": world,
           "parameters": got[0][6], "x": got[0][4], "y": got[0][5], "init": [g[1] for g in got], "steps": steps}
    if "join" in run:
        doc["end"] = got[0][3]
    if run.get("logging"):
        doc["logging"] = [{k: v for k, v in g[7].items()} for g in got]
    return doc


def run_alone(run, world, port):
    """Returns the results that SyncBatchNorm must give, computed by one process without DDP, because PyTorch's
    SyncBatchNorm runs only on GPUs. All rows go through one BatchNorm2d; the loss is the mean over ranks of the sum
    over their rows, divided by "batch"."""
    import torch
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    x, y = make_data(run)
    torch.manual_seed(100)
    model = make_model(run)
    flat = lambda tensors: [t.detach().flatten().tolist() for t in tensors]
    init = flat(model.parameters())
    opt = make_optimizer(run, model.parameters())
    steps, row = [], 0
    for sizes in run["sizes"]:
        ranks = []
        for rank in range(world):
            ranks.append([[(row + i) % run["rows"] for i in range(sizes[rank])]])
            row += sizes[rank]
        rows = [r for mine in ranks for r in mine[0]]
        opt.zero_grad()
        each = torch.nn.functional.cross_entropy(model(x[rows]), y[rows], reduction="none")
        losses = [part.sum() / run["batch"] for part in each.split(sizes[:world])]
        (sum(losses) / world).backward()
        opt.step()
        steps.append({"micro": ranks, "loss": [[loss.item()] for loss in losses], "params": flat(model.parameters()),
                      "buffers": [flat(b.float() for b in model.buffers())] * world})
    return {**{k: v for k, v in run.items() if k != "sizes"}, "world": world, "parameters": [n for n, _ in model.named_parameters()],
            "x": x.flatten().tolist(), "y": y.flatten().tolist(), "init": [init] * world, "steps": steps}


def runs():
    two_buckets = {"caps": [100, 100]}
    mlp = {"model": "mlp", **SMALL, **two_buckets, "optimizer": SGD}
    # One bucket, because gloo's threads start the second half of PowerSGD's exchange. With several
    # buckets they do so in a different order on each rank, which crashes gloo.
    wide = {"model": "mlp", **WIDE, "caps": [2**20, 2**20], "optimizer": SGD, "steps": 5}
    conv = {"model": "convnet", **IMAGES, "caps": [200, 200], "optimizer": SGD}
    out = {}
    for name, optimizer in (("sgd", SGD), ("adamw", ADAMW)):
        for hook in ("none", "allreduce", "fp16_compress"):
            out[f"hook_{hook}_{name}"] = {**mlp, "optimizer": optimizer, "hook": {"name": hook}}
    for rank, feedback, warm in ((1, True, True), (2, True, True), (1, False, True), (1, True, False)):
        out[f"hook_power_sgd_{rank}{'_feedback' if feedback else ''}{'_warm' if warm else ''}"] = {
            **wide, "worlds": [1, 2, 3], "hook": {"name": "power_sgd", "rank": rank, "start": 2, "error_feedback": feedback, "warm_start": warm}}
    for name, optimizer in (("sgd", SGD), ("adamw", ADAMW)):
        out[f"zero_{name}"] = {**mlp, "optimizer": optimizer, "zero": True}
    out["accumulate_sgd"] = {**mlp, "groups": [3, 3, 1]}
    out["accumulate_adamw"] = {**mlp, "groups": [3, 3, 1], "optimizer": ADAMW}
    # All-reduced in steps 0 and 1, averaged in 2 and 5.
    out["local_sgd"] = {**mlp, "steps": 7, "hook": {"name": "post_local_sgd", "start": 2}, "local_sgd": {"period": 3, "warmup_steps": 2}}
    for divide in (True, False):
        out[f"join_{'initial' if divide else 'active'}"] = {
            **mlp, "inputs": [3, 5, 0, 2, 5], "join": {"divide_by_initial_world_size": divide}}
    out["join_fp16"] = {**mlp, "inputs": [3, 5, 0, 2, 5], "hook": {"name": "fp16_compress"}, "worlds": [2, 3],
                        "join": {"divide_by_initial_world_size": True}}
    out["static_graph"] = {**mlp, "static_graph": True, "extra_on": [0, 3], "worlds": [2, 3, 5]}
    out["logging"] = {**mlp, "logging": True, "worlds": [2]}
    out["batchnorm"] = conv
    out["sync_batchnorm"] = {**conv, "alone": True, "sizes": [[3, 3, 3, 3, 3], [4, 2, 5, 1, 3], [3, 0, 4, 2, 0]]}
    return out


def rounded(v):
    if isinstance(v, list):
        return [rounded(e) for e in v]
    if isinstance(v, dict):
        return {k: rounded(e) for k, e in v.items()}
    return float("%.9g" % v) if isinstance(v, float) else v


def main(doc, folder, runs, compute):
    """Writes the results of compute(run, world, port) to data/FOLDER/NAME_wWORLD.json for all runs(), or for the runs
    in --only."""
    here = os.path.dirname(os.path.abspath(__file__))
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=os.path.join(here, "data", folder))
    ap.add_argument("--only", nargs="*", help="names of runs")
    args = ap.parse_args()
    if os.environ.get("ATEN_CPU_CAPABILITY") != "default":
        sys.exit(subprocess.call([sys.executable, *sys.argv], env={**os.environ, **STRICT}))
    os.makedirs(args.out, exist_ok=True)
    port = 29000 + os.getpid() % 900
    for name, run in runs().items():
        if args.only and name not in args.only:
            continue
        for world in run.pop("worlds", [1, 2, 3, 4, 5]):
            port += 1
            path = os.path.join(args.out, f"{name}_w{world}.json")
            text = json.dumps(compute(run, world, port), separators=(",", ":"))  # first: a failure leaves the old file
            with open(path, "w") as f:
                f.write(text)
            print(path, os.path.getsize(path), "bytes", flush=True)


if __name__ == "__main__":
    main(__doc__, "features", runs,
         lambda run, world, port: rounded((run_alone if run.get("alone") else run_ddp)(run, world, port)))
