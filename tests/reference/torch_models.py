#!/usr/bin/python3
"""Creates tests/reference/data/models: the first steps of whole models under real PyTorch DDP.

    /usr/bin/python3 tests/reference/torch_models.py [--out tests/reference/data/models] [--only NAME...]

Needs Debian's python3-torch (1.13), Debian's reference BLAS (libblas3) and a loopback interface. Every sum is in
plain scalar order (no vectors, one thread, reference BLAS, no mkldnn, foreach=False), and the all-reduce is gloo's
ring, so that a scalar program has the same bits (tests/reference/models_test.cpp). A set takes five minutes on two cores.

Millions of parameters are too large to store: a tensor is stored as its check, the sum over i of (2 i + 1) bits(element i),
modulo 2^64, in hex; integers are treated as floats. Everything is drawn from seeds: the model of rank r after
manual_seed(100 + r), the images after manual_seed(1000).

RUN.json: {"model", "options", "world", "image": [c, h, w] or "tokens": per row, "batch", "lr", "momentum", "x": check of the images, "y": labels,
  "names": of parameters, then of buffers; "shapes"; "init": [rank][parameter] checks,
  "steps": [{"loss": [rank], "params": checks after the step, "buffers": [rank] checks}]}
Rank r uses the rows (world * step + r) * batch ... of step `step`.
"""
import os

from torch_ddp_features import main


def resnet(depth, classes, channels, width, small_stem):
    """Built like torchvision's, which is not in Debian 12."""
    import torch
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inplanes, planes, stride, downsample):
            super().__init__()
            if depth < 50:
                shape = [(planes, 3, stride), (planes, 3, 1)]
            else:
                shape = [(planes, 1, 1), (planes, 3, stride), (4 * planes, 1, 1)]
            self.convs = len(shape)
            for i, (out, kernel, s) in enumerate(shape, 1):
                setattr(self, f"conv{i}", nn.Conv2d(inplanes, out, kernel, s, kernel // 2, bias=False))
                setattr(self, f"bn{i}", nn.BatchNorm2d(out))
                inplanes = out
            self.relu = nn.ReLU(inplace=True)
            self.downsample = downsample

        def forward(self, x):
            y = x
            for i in range(1, self.convs + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                if i < self.convs:
                    y = self.relu(y)
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inplanes = width
            if small_stem:
                self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
            else:
                self.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
            for i, blocks in enumerate([2, 2, 2, 2] if depth == 18 else [3, 4, 6, 3]):
                setattr(self, f"layer{i + 1}", self.make_layer(width * 2**i, blocks, 1 if i == 0 else 2))
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(self.inplanes, classes)
            for m in self.modules():
                if isinstance(m, nn.Conv2d):
                    nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                elif isinstance(m, nn.BatchNorm2d):
                    nn.init.constant_(m.weight, 1)
                    nn.init.constant_(m.bias, 0)

        def make_layer(self, planes, blocks, stride):
            out = planes * (4 if depth >= 50 else 1)
            downsample = None
            if stride != 1 or self.inplanes != out:
                downsample = nn.Sequential(nn.Conv2d(self.inplanes, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            layers = [Block(self.inplanes, planes, stride, downsample)]
            self.inplanes = out
            layers += [Block(out, planes, 1, None) for _ in range(1, blocks)]
            return nn.Sequential(*layers)

        def forward(self, x):
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    return ResNet()


def make_model(run):
    import torch
    nn = torch.nn
    if run["model"] == "resnet":
        return resnet(**run["options"])
    if run["model"] == "tied":  # as in a language model, the token table is also the head's weight
        class Tied(nn.Module):
            def __init__(self, classes, dim):
                super().__init__()
                self.tok, self.up, self.head = nn.Embedding(classes, dim), nn.Linear(dim, dim), nn.Linear(dim, classes, bias=False)
                self.head.weight = self.tok.weight
            def forward(self, x):
                return self.head(torch.relu(self.up(self.tok(x))))
        return Tied(**run["options"])
    c, h, w = run["image"]
    return nn.Sequential(nn.Conv2d(c, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(64 * ((h - 4) // 2) * ((w - 4) // 2), run["options"]["classes"]))


def check(t):
    import numpy as np
    bits = t.detach().float().contiguous().numpy().reshape(-1).view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        return "%x" % int(np.sum(bits * (2 * np.arange(bits.size, dtype=np.uint64) + 1), dtype=np.uint64))


def worker(rank, world, port, run, queue):
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(1000)
    rows = run["batch"] * world * run["steps"]
    classes = run["options"]["classes"]
    if "image" in run:
        x, y = torch.randn(rows, *run["image"]), torch.randint(classes, (rows,))
    else:
        x, y = torch.randint(classes, (rows, run["tokens"])), torch.randint(classes, (rows, run["tokens"]))
    torch.manual_seed(100 + rank)
    model = make_model(run)
    checks = lambda tensors: [check(t) for t in tensors]
    init = checks(model.parameters())
    ddp = DDP(model)
    opt = torch.optim.SGD(ddp.parameters(), lr=run["lr"], momentum=run["momentum"], foreach=False)
    steps = []
    for step in range(run["steps"]):
        first = (world * step + rank) * run["batch"]
        mine = slice(first, first + run["batch"])
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x[mine]).flatten(0, -2), y[mine].flatten())
        loss.backward()
        opt.step()
        steps.append((loss.item(), checks(model.parameters()), checks(model.buffers())))
    named = [*model.named_parameters(), *model.named_buffers()]
    queue.put((rank, init, steps, check(x), y.flatten().tolist(), [n for n, _ in named], [list(t.shape) for _, t in named]))
    dist.barrier()


def run_ddp(run, world, port):
    import torch.multiprocessing as mp
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(worker, args=(world, port, run, queue), nprocs=world, join=False)
    got = sorted((queue.get() for _ in range(world)), key=lambda g: g[0])
    while not context.join():
        pass
    for g in got:  # the replicas must agree, bit for bit
        assert [s[1] for s in g[2]] == [s[1] for s in got[0][2]], f"rank {g[0]} diverged"
    steps = [{"loss": [float("%.9g" % g[2][i][0]) for g in got], "params": got[0][2][i][1], "buffers": [g[2][i][2] for g in got]}
             for i in range(run["steps"])]
    _, _, _, x, y, names, shapes = got[0]
    return {**run, "world": world, "x": x, "y": y, "names": names, "shapes": shapes, "init": [g[1] for g in got], "steps": steps}


def runs():
    common = {"lr": 0.05, "momentum": 0.9, "steps": 2}
    small = {"classes": 10, "channels": 3, "width": 64, "small_stem": True}
    large = {"classes": 1000, "channels": 3, "width": 64, "small_stem": False}
    return {
        "tied": {"model": "tied", "options": {"classes": 19, "dim": 8}, "tokens": 5, "batch": 3, **common},
        "small_cnn": {"model": "small_cnn", "options": {"classes": 10}, "image": [1, 12, 11], "batch": 4, **common},
        "resnet18": {"model": "resnet", "options": {"depth": 18, **small}, "image": [3, 8, 8], "batch": 3, **common},
        "resnet34": {"model": "resnet", "options": {"depth": 34, **large}, "image": [3, 32, 32], "batch": 2, "worlds": [2], **common, "steps": 1},
        "resnet50": {"model": "resnet", "options": {"depth": 50, **large}, "image": [3, 32, 32], "batch": 2, "worlds": [1], **common, "steps": 1},
    }


if __name__ == "__main__":
    main(__doc__, "models", runs, run_ddp)
