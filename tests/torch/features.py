#!/usr/bin/python3
"""Tries the features of torch.distributed one after the other over gloo and over this backend, and compares.

    features.py [--worlds 2,3,4] [--only REGEX] [--list FILE]
    features.py --table FILE...     a table with a column per list: Markdown

A feature that passes over gloo must pass here, unless REFUSED has the reason. A feature that this version of PyTorch
does not have fails over both, and says nothing. Each feature compares its result with the expected one.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings

import ranks

# Features that gloo has and this backend refuses, and why.
REFUSED = {
    "monitored_barrier": "PyTorch before 2.14 allows it only for gloo; ringsmith_torch.monitored_barrier() does it",
    "timeout_set_later": "PyTorch before 2.14 allows it only for gloo and nccl; ringsmith_torch.set_timeout() does it",
}

# Tried with TORCH_DISTRIBUTED_DEBUG=DETAIL, too.
DETAIL = ("functional_all_gather_tensor", "zero_redundancy_optimizer", "fsdp", "sparse_sum", "bit_operations")

FEATURES = {}


def feature(function):
    FEATURES[function.__name__] = function
    return function


def ramp(rank, n=4):
    """Returns rank, rank + 1, ..."""
    import torch
    return torch.arange(float(n)) + rank


def equal(got, wanted):
    import torch
    got = got * 1  # waits for the result of a functional collective
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), f"{got} is not {wanted}"


def close(got, wanted):
    import torch
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


def all_ramps(world, n=4):
    return [ramp(r, n) for r in range(world)]


# ---- collectives: collectives.py has all types and sizes ----
@feature
def all_reduce(rank, world, dist, torch):
    for op, wanted in (("SUM", sum(all_ramps(world))), ("MIN", ramp(0)), ("MAX", ramp(world - 1))):
        got = ramp(rank)
        dist.all_reduce(got, getattr(dist.ReduceOp, op))
        equal(got, wanted)


@feature
def all_reduce_avg(rank, world, dist, torch):
    got = ramp(rank)
    dist.all_reduce(got, dist.ReduceOp.AVG)
    close(got, sum(all_ramps(world)) / world)


@feature
def all_reduce_bfloat16(rank, world, dist, torch):
    got = ramp(rank).bfloat16()
    dist.all_reduce(got)
    equal(got, sum(all_ramps(world)).bfloat16())


@feature
def all_reduce_bool(rank, world, dist, torch):
    got = torch.tensor([rank == 0, False])
    dist.all_reduce(got)
    equal(got.int(), torch.tensor([1, 0], dtype=torch.int32))


@feature
def all_reduce_complex(rank, world, dist, torch):
    got = torch.complex(ramp(rank), ramp(0))
    dist.all_reduce(got)
    equal(got, torch.complex(sum(all_ramps(world)), world * ramp(0)))


@feature
def all_reduce_strided(rank, world, dist, torch):
    got = torch.zeros(8)[::2]
    got.copy_(ramp(rank))
    dist.all_reduce(got)
    equal(got.contiguous(), sum(all_ramps(world)))


@feature
def all_reduce_coalesced(rank, world, dist, torch):
    tensors = [ramp(rank, n) for n in (3, 0, 5)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        equal(tensor, sum(all_ramps(world, len(tensor))))


@feature
def reduce(rank, world, dist, torch):
    got = ramp(rank)
    dist.reduce(got, world - 1)
    if rank == world - 1:
        equal(got, sum(all_ramps(world)))


@feature
def reduce_scatter(rank, world, dist, torch):
    got = torch.zeros(4)
    dist.reduce_scatter(got, [ramp(rank + p) for p in range(world)])
    equal(got, sum(ramp(r + rank) for r in range(world)))


@feature
def reduce_scatter_tensor(rank, world, dist, torch):
    got = torch.zeros(4)
    dist.reduce_scatter_tensor(got, ramp(rank, 4 * world))
    equal(got, sum(all_ramps(world, 4 * world)).chunk(world)[rank])


@feature
def broadcast(rank, world, dist, torch):
    got = ramp(rank)
    dist.broadcast(got, world - 1)
    equal(got, ramp(world - 1))


@feature
def all_gather(rank, world, dist, torch):
    got = [torch.zeros(4) for _ in range(world)]
    dist.all_gather(got, ramp(rank))
    for r in range(world):
        equal(got[r], ramp(r))


@feature
def all_gather_of_different_sizes(rank, world, dist, torch):
    got = [torch.zeros(r + 1) for r in range(world)]
    dist.all_gather(got, ramp(rank, rank + 1))
    for r in range(world):
        equal(got[r], ramp(r, r + 1))


@feature
def all_gather_into_tensor(rank, world, dist, torch):
    got = torch.zeros(4 * world)
    dist.all_gather_into_tensor(got, ramp(rank))
    equal(got, torch.cat(all_ramps(world)))


@feature
def all_gather_coalesced(rank, world, dist, torch):
    got = [[torch.zeros(2), torch.zeros(3)] for _ in range(world)]
    dist.all_gather_coalesced(got, [ramp(rank, 2), ramp(rank, 3)])
    for r in range(world):
        equal(got[r][1], ramp(r, 3))


@feature
def gather(rank, world, dist, torch):
    got = [torch.zeros(4) for _ in range(world)] if rank == 0 else None
    dist.gather(ramp(rank), got)
    for r in range(world if rank == 0 else 0):
        equal(got[r], ramp(r))


@feature
def scatter(rank, world, dist, torch):
    got = torch.zeros(4)
    dist.scatter(got, all_ramps(world) if rank == 0 else None)
    equal(got, ramp(rank))


@feature
def all_to_all(rank, world, dist, torch):
    got = [torch.zeros(r + 1) for r in range(world)]  # rank r sends r + 1 elements to each rank
    dist.all_to_all(got, [ramp(rank + p, rank + 1) for p in range(world)])
    for r in range(world):
        equal(got[r], ramp(r + rank, r + 1))


@feature
def all_to_all_single(rank, world, dist, torch):
    got = torch.zeros(world)
    dist.all_to_all_single(got, torch.full((world,), float(rank)))
    equal(got, torch.arange(float(world)))


@feature
def barrier(rank, world, dist, torch):
    dist.barrier()


@feature
def barrier_async(rank, world, dist, torch):
    dist.barrier(async_op=True).wait()


# ---- functional collectives ----
@feature
def functional_all_reduce(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    equal(fc.all_reduce(ramp(rank), "sum", dist.group.WORLD), sum(all_ramps(world)))


@feature
def functional_all_gather_tensor(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    equal(fc.all_gather_tensor(ramp(rank), 0, dist.group.WORLD), torch.cat(all_ramps(world)))


@feature
def functional_reduce_scatter_tensor(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    for op in ("sum", "max"):
        wanted = torch.stack(all_ramps(world, 3 * world))
        wanted = wanted.sum(0) if op == "sum" else wanted.amax(0)
        equal(fc.reduce_scatter_tensor(ramp(rank, 3 * world), op, 0, dist.group.WORLD), wanted.chunk(world)[rank])


@feature
def functional_coalesced(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    a, b = fc.all_gather_into_tensor_coalesced([ramp(rank), ramp(rank, 2)], dist.group.WORLD)
    equal(a, torch.cat(all_ramps(world)))
    equal(b, torch.cat(all_ramps(world, 2)))
    a, b = fc.reduce_scatter_tensor_coalesced([ramp(rank, 2 * world), ramp(rank, world)], "sum", [0, 0], dist.group.WORLD)
    equal(a, sum(all_ramps(world, 2 * world)).chunk(world)[rank])
    equal(b, sum(all_ramps(world, world)).chunk(world)[rank])
    a, b = fc.all_reduce_coalesced([ramp(rank), ramp(rank, 3)], "sum", dist.group.WORLD)
    equal(a, sum(all_ramps(world)))
    equal(b, sum(all_ramps(world, 3)))


@feature
def functional_all_to_all(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    equal(fc.all_to_all_single(torch.arange(float(world)), None, None, dist.group.WORLD), torch.full((world,), float(rank)))


@feature
def functional_broadcast(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    equal(fc.broadcast(ramp(rank), world - 1, dist.group.WORLD), ramp(world - 1))


@feature
def functional_gradients(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc
    x = ramp(rank).requires_grad_()
    fc.all_gather_tensor_autograd(x, 0, dist.group.WORLD).sum().backward()
    equal(x.grad, torch.full((4,), float(world)))
    x = torch.ones(4 * world, requires_grad=True)
    fc.reduce_scatter_tensor_autograd(x, "sum", 0, dist.group.WORLD).sum().backward()
    equal(x.grad, torch.ones(4 * world))


@feature
def coalescing_manager(rank, world, dist, torch):
    from torch.distributed.distributed_c10d import _coalescing_manager
    tensors = [ramp(rank, n) for n in (3, 5)]
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        equal(tensor, sum(all_ramps(world, len(tensor))))
    outs = [torch.zeros(n * world) for n in (2, 3)]
    with _coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.all_gather_into_tensor(out, ramp(rank, len(out) // world))
    manager.wait()
    for out in outs:
        equal(out, torch.cat(all_ramps(world, len(out) // world)))
    outs = [torch.zeros(n) for n in (2, 3)]
    with _coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.reduce_scatter_tensor(out, ramp(rank, len(out) * world))
    manager.wait()
    for out in outs:
        equal(out, sum(all_ramps(world, len(out) * world)).chunk(world)[rank])


@feature
def compiled_all_reduce(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc

    @torch.compile(backend="eager", fullgraph=True)
    def twice(x):
        return fc.all_reduce(x + 1, "sum", dist.group.WORLD) * 2
    equal(twice(torch.ones(2)), torch.full((2,), 4.0 * world))


@feature
def compiled_by_inductor(rank, world, dist, torch):
    from torch.distributed import _functional_collectives as fc

    @torch.compile(fullgraph=True)
    def gathered(x):
        return fc.all_gather_tensor(fc.all_reduce(x + 1, "sum", dist.group.WORLD) * 2, 0, dist.group.WORLD) + 1
    equal(gathered(torch.ones(2)), torch.full((2 * world,), 4.0 * world + 1))


# ---- messages ----
@feature
def batch_isend_irecv(rank, world, dist, torch):
    got = torch.zeros(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, ramp(rank), (rank + 1) % world),
                                        dist.P2POp(dist.irecv, got, (rank - 1) % world)]):
        work.wait()
    equal(got, ramp((rank - 1) % world))


@feature
def recv_from_any_source(rank, world, dist, torch):
    for tag in (0, 5):
        if rank:
            dist.send(ramp(rank), 0, tag=tag)
            continue
        seen = set()
        for _ in range(world - 1):
            got = torch.zeros(4)
            source = dist.recv(got, tag=tag)
            equal(got, ramp(source))
            seen.add(source)
        assert seen == set(range(1, world)), seen


@feature
def recv_from_any_source_and_by_name(rank, world, dist, torch):
    if rank:
        for k in range(3):
            dist.send(ramp(10 * rank + k), 0)
        return
    got = torch.zeros(4)
    first = dist.recv(got)
    equal(got, ramp(10 * first))
    for peer in range(1, world):  # the others' messages are still there, in order
        for k in range(1 if peer == first else 0, 3):
            dist.recv(got, peer)
            equal(got, ramp(10 * peer + k))


@feature
def object_collectives(rank, world, dist, torch):
    every = [None] * world
    dist.all_gather_object(every, {"rank": rank})
    assert every == [{"rank": r} for r in range(world)]
    mine = [None]
    dist.scatter_object_list(mine, list(range(world)) if rank == 0 else None)
    assert mine == [rank]
    if rank == 0:
        dist.send_object_list([1, "two"], 1)
    if rank == 1:
        got = [None, None]
        dist.recv_object_list(got, 0)
        assert got == [1, "two"]


# ---- reductions ----
@feature
def bit_operations(rank, world, dist, torch):
    for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8):
        for op, by in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or), ("BXOR", torch.bitwise_xor)):
            parts = [(torch.arange(67) * (2 * r + 3) % 127).to(dtype) for r in range(world)]
            wanted = parts[0]
            for part in parts[1:]:
                wanted = by(wanted, part)
            got = parts[rank].clone()
            dist.all_reduce(got, getattr(dist.ReduceOp, op))
            equal(got, wanted)
            got = parts[rank].clone()
            dist.reduce(got, world - 1, getattr(dist.ReduceOp, op))
            if rank == world - 1:
                equal(got, wanted)


@feature
def sparse_sum(rank, world, dist, torch):
    for entries in ([[rank, 4]], [[]] if rank else [[2, 2]]):  # different rows, the same row, none, one twice
        indices = torch.tensor(entries, dtype=torch.int64).reshape(1, -1)
        values = torch.ones(indices.shape[1], 3) * (rank + 1)
        mine = torch.sparse_coo_tensor(indices, values, (7, 3))
        parts = [None] * world
        dist.all_gather_object(parts, mine.to_dense())
        dist.all_reduce(mine)
        equal(mine.to_dense(), sum(parts))


@feature
def ddp_with_a_sparse_embedding(rank, world, dist, torch):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
    model(torch.tensor([rank, 5])).sum().backward()
    gradient = model.module.weight.grad
    assert gradient.is_sparse
    wanted = torch.zeros(10, 4)
    wanted[5] += 1
    for r in range(world):
        wanted[r] += 1 / world
    close(gradient.to_dense(), wanted)


# ---- parallel training ----
def two_layers(torch, world):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 12 * world), torch.nn.ReLU(), torch.nn.Linear(12 * world, 8))


@feature
def dtensor(rank, world, dist, torch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    full = torch.randn(8, 6)
    rows, columns = distribute_tensor(full, mesh, [Shard(0)]), distribute_tensor(full.t().contiguous(), mesh, [Shard(1)])
    equal(rows.full_tensor(), full)
    close((rows @ columns).redistribute(mesh, [Replicate()]).to_local(), full @ full.t())
    equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), full)


@feature
def tensor_parallel(rank, world, dist, torch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    model, alone = two_layers(torch, world), two_layers(torch, world)
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    split = parallelize_module(model, init_device_mesh("cpu", (world,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    split(x).square().sum().backward()
    alone(x).square().sum().backward()
    close(split(x), alone(x))
    close(split[0].weight.grad.full_tensor(), alone[0].weight.grad)


@feature
def sequence_parallel(rank, world, dist, torch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), *two_layers(torch, world))
    x = torch.randn(2, 4 * world, 8, generator=torch.Generator().manual_seed(1))
    wanted = model(x)
    split = parallelize_module(model, init_device_mesh("cpu", (world,)), {
        "0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)})
    close(split(x.chunk(world, 1)[rank].contiguous()).full_tensor(), wanted)


@feature
def mesh_of_two_dimensions(rank, world, dist, torch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    shape = (world // 2, 2) if world % 2 == 0 else (1, world)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    model, alone = two_layers(torch, world), two_layers(torch, world)
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.ones(2, 8)
    close(model(x), alone(x))
    total = torch.ones(1)
    dist.all_reduce(total, group=mesh["data"].get_group())
    equal(total, torch.full((1,), float(shape[0])))


@feature
def fsdp(rank, world, dist, torch):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model, alone = two_layers(torch, world), two_layers(torch, world)
    sharded = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    for net in (sharded, alone):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    for name, value in sharded.state_dict().items():
        close(value, alone.state_dict()[name])


@feature
def fsdp2(rank, world, dist, torch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = two_layers(torch, world)
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    model(torch.ones(3, 8)).sum().backward()


@feature
def checkpoint(rank, world, dist, torch):
    import torch.distributed.checkpoint as dcp
    folder = os.environ["STORE"] + "-checkpoint"
    dcp.save({"same": ramp(0), "count": 3}, checkpoint_id=folder)
    loaded = {"same": torch.zeros(4), "count": 0}
    dcp.load(loaded, checkpoint_id=folder)
    equal(loaded["same"], ramp(0))
    assert loaded["count"] == 3


@feature
def pipelines(rank, world, dist, torch):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4) for _ in range(world)]
    x = torch.randn(4 * world, 4, generator=torch.Generator().manual_seed(1))
    for schedule in (ScheduleGPipe, Schedule1F1B):
        stage = PipelineStage(layers[rank], rank, world, torch.device("cpu"))
        run = schedule(stage, 2 * world, loss_fn=lambda out, target: (out - target).square().mean())
        layers[rank].zero_grad()
        if rank == 0:
            run.step(x)
        elif rank == world - 1:
            out = run.step(target=x)
            close(out, torch.nn.Sequential(*layers)(x))
        else:
            run.step()
        assert layers[rank].weight.grad is not None
        dist.barrier()


@feature
def zero_redundancy_optimizer(rank, world, dist, torch):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model, alone = torch.nn.parallel.DistributedDataParallel(two_layers(torch, world)), two_layers(torch, world)
    x = torch.ones(2, 8)
    for net, optimizer in ((model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)),
                           (alone, torch.optim.Adam(alone.parameters(), lr=0.1))):
        for _ in range(3):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    for mine, wanted in zip(model.parameters(), alone.parameters()):
        close(mine, wanted)


@feature
def join_of_uneven_inputs(rank, world, dist, torch):
    from torch.distributed.algorithms.join import Join
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    with Join([model]):
        for _ in range(rank + 1):
            model(torch.ones(1, 2)).sum().backward()


@feature
def communication_hooks(rank, world, dist, torch):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    for state, hook in ((None, default_hooks.fp16_compress_hook), (powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
                                                             powerSGD_hook.powerSGD_hook)):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
        model.register_comm_hook(state, hook)
        for _ in range(4):
            model(torch.ones(2, 64)).sum().backward()
        assert model.module.weight.grad.isfinite().all()


@feature
def compiled_ddp(rank, world, dist, torch):
    model = torch.compile(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4)), backend="eager")
    model(torch.ones(2, 4)).sum().backward()


# ---- groups ----
@feature
def subgroups(rank, world, dist, torch):
    group, _ = dist.new_subgroups(1)
    one = torch.ones(1)
    dist.all_reduce(one, group=group)
    equal(one, torch.ones(1))


@feature
def timeout_set_later(rank, world, dist, torch):
    import datetime
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=1), group)
    begin = time.monotonic()
    if rank == 0:
        try:
            dist.recv(torch.zeros(4), 1, group=group)
        except Exception:
            pass  # of another class in each backend
        assert time.monotonic() - begin < 10, "the group's first timeout, 20 s, still applies"


@feature
def split_group(rank, world, dist, torch):
    dist.split_group(dist.group.WORLD, [list(range(world))])


@feature
def monitored_barrier(rank, world, dist, torch):
    dist.monitored_barrier()


def words_of(error):
    return f"{type(error).__name__}: {error}".split("\n")[0][:200]


def rank_main(backend, names):
    """Tries the features in one job, up to the first that fails in communication.

    Prints {feature: "" or the first line of the error}.
    """
    warnings.simplefilter("ignore")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    rank, world = ranks.join(backend, timeout=20)
    import torch
    import torch.distributed as dist
    said = {}
    for name in names.split(","):
        said[name] = ""
        print("TRIES", name, flush=True)
        try:
            try:
                FEATURES[name](rank, world, dist, torch)
            except (ImportError, AttributeError) as error:  # this PyTorch lacks it: on all ranks, before any communication
                said[name] = words_of(error)
            dist.barrier()
        except Exception as error:
            said[name] = said[name] or words_of(error)
            break
    print("SAID", json.dumps(said), flush=True)
    os._exit(0)  # gloo's destructor may hang


def verdicts(world, backend, names, **more):
    """Returns {feature: "" or the first error of any rank}. A failure may break the group, so a new job tests the rest."""
    result, left = {}, list(names)
    while left:
        done = ranks.run(world, __file__, "--rank", backend, ",".join(left), limit=900, quiet=150, **more)
        if any(end.status for end in done):  # a rank has crashed, or hung: in the feature that it tried last
            tried = [re.findall(r"^TRIES (\w+)", end.text, re.M) for end in done]
            if not all(tried):
                ranks.expect_success(done, f"features over {backend}")
            name = min((names[-1] for names in tried), key=left.index)
            result.update(dict.fromkeys(left[:left.index(name)], ""))
            result[name] = "; ".join(f"rank {rank} ended with {end.status}" for rank, end in enumerate(done) if end.status)
            left = left[left.index(name) + 1:]
            continue
        said = [json.loads(line[5:]) for end in done for line in end.text.splitlines() if line.startswith("SAID ")]
        assert len(said) == world, [end.text for end in done]
        tried = min((list(one)[-1] for one in said), key=left.index)  # the last that all ranks have tried
        for name in left[:left.index(tried) + 1]:
            result[name] = next((one[name] for one in said if one.get(name)), "")
        left = left[left.index(tried) + 1:]
    return result


def compare(world, names, words, listed, **more):
    """Prints a line per feature; returns the number of those that fail here and pass over gloo, without a reason."""
    gloo, ours = (verdicts(world, backend, names, **more) for backend in ("gloo", "ringsmith"))
    wrong = 0
    for name in names:
        if not ours[name]:
            verdict = "ok, but fails over gloo" if gloo[name] else "ok"
        elif gloo[name]:
            verdict = f"fails over both: {gloo[name]}"
        elif name in REFUSED:
            verdict = f"refused: {REFUSED[name]}"
        else:
            verdict, wrong = f"FAILED, and passes over gloo: {ours[name]}", wrong + 1
        print(f"{world} ranks{words}  {name:34} {verdict}", flush=True)
        listed.append({"world": world, "how": words, "name": name, "gloo": gloo[name], "ours": ours[name]})
    return wrong


def table(lists):
    """Prints a row per feature: whether it works over gloo and here, for all numbers of ranks of the list."""
    said = [json.loads(pathlib.Path(path).read_text()) for path in lists]
    print("| feature | " + " | ".join(f"{one['version'].split('+')[0]}: gloo | ringsmith" for one in said) + " |")
    print("|---|" + "---|---|" * len(said))
    for name in dict.fromkeys(result["name"] for one in said for result in one["results"]):
        cells = []
        for one in said:
            of = [result for result in one["results"] if result["name"] == name]
            for way in ("gloo", "ours"):
                bad = [f"{r['world']}{r['how']}" for r in of if r[way]]
                cells.append("" if not of else "yes" if not bad else "no" if len(bad) == len(of) else f"not on {'; '.join(bad)}")
        print(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,3,4")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", help="a file for the results")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print a table of these lists")
    parser.add_argument("--rank", nargs=2, help="(internal) be a rank")
    args = parser.parse_args()
    if args.rank:
        return rank_main(*args.rank)
    if args.table:
        return table(args.table)
    ranks.leave_if_impossible()
    names = [name for name in FEATURES if re.search(args.only, name)]
    wrong, listed = 0, []
    for world in map(int, args.worlds.split(",")):
        wrong += compare(world, names, "", listed)
        # PyTorch then wraps every group, and compares the ranks' calls itself.
        wrong += compare(world, [name for name in names if name in DETAIL], ", DETAIL", listed,
                         TORCH_DISTRIBUTED_DEBUG="DETAIL")
    if args.list:
        version = subprocess.run([ranks.PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                                 check=True).stdout.strip()
        pathlib.Path(args.list).write_text(json.dumps({"version": version, "results": listed}, indent=1) + "\n")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
