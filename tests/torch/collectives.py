#!/usr/bin/python3
"""Compares every collective of the backend with two others: gloo's result, and the result computed from the inputs of
all ranks.

    collectives.py [--worlds 1,2,3,4] [--short]

Inputs are small integers in every type, so that a sum has the same bits in any order: results are compared bit by bit.
Values that round are added in gloo's order (algorithm gloo_ring), and must then have gloo's bits.
"""
import argparse
import itertools
import pathlib
import re
import sys
import threading
import time

import ranks

SIZES = [0, 1, 2, 3, 7, 16, 127, 1000, 4097, 65537]
SHORT_SIZES = [0, 1, 7, 4097]
# gloo cannot sum some types, which differ between versions, or send bool; then only the second oracle is used.
NOT_IN_GLOO = ("bfloat16", "bool")


def rank_main(short):
    import functools
    import operator
    import warnings

    import torch
    import torch.distributed as dist

    import ringsmith_torch

    warnings.simplefilter("ignore")  # from PyTorch: deprecated calls
    rank, world = ranks.join()
    gloo = dist.new_group(backend="gloo")
    sizes = SHORT_SIZES if short else SIZES
    types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8,
             torch.int8, torch.bool]
    checked = 0

    def values(n, dtype, r, salt=0):
        """Returns the input of rank r. Products and sums of four ranks are exact in every type (and
        wrap around in the same way)."""
        g = torch.Generator().manual_seed(7919 * r + n + salt)
        whole = torch.randint(1, 4, (n,), generator=g)
        return (whole % 2).bool() if dtype == torch.bool else whole.to(dtype)

    def same(got, wanted, what):
        nonlocal checked
        checked += 1
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what}: {got.dtype} {got.shape}"
        different = got.contiguous().view(-1) != wanted.contiguous().view(-1)
        assert not different.any(), (f"{what}: {int(different.sum())} of {got.numel()} elements differ, the first at "
                                     f"{int(different.nonzero()[0])}")

    def layouts(n, dtype):
        """Yields (name, tensor): memory for n elements in the layouts that programs use."""
        yield "contiguous", torch.zeros(n, dtype=dtype)
        yield "one element on", torch.zeros(n + 1, dtype=dtype)[1:]
        yield "every other", torch.zeros(2 * n, dtype=dtype)[::2]
        if n:
            raw = bytearray(n * torch.zeros(0, dtype=dtype).element_size() + 1)
            yield "misaligned", torch.frombuffer(raw, dtype=dtype, offset=1, count=n)
        if n % 7 == 0 and n:
            yield "transposed", torch.zeros(7, n // 7, dtype=dtype).t()
        yield "communication memory", ringsmith_torch.zeros(n, dtype=dtype)

    def gloo_sums(dtype):
        try:
            dist.all_reduce(torch.ones(1, dtype=dtype), group=gloo)
        except RuntimeError as error:  # before it communicates, on all ranks
            if "scalar type" not in str(error):
                raise
            return False
        return str(dtype).split(".")[1] not in NOT_IN_GLOO

    def fold(op, parts):
        by = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum}[op]
        if parts[0].dtype == torch.bool:
            by = {"SUM": torch.logical_or, "PRODUCT": torch.logical_and, "MIN": torch.logical_and,
                  "MAX": torch.logical_or}[op]
        return functools.reduce(by, parts)

    # ---- sums ----
    summed_by_gloo = {dtype for dtype in types if gloo_sums(dtype)}
    for dtype, n, op in itertools.product(types, sizes, ("SUM", "PRODUCT", "MIN", "MAX")):
        name = f"{dtype}, {n} elements, {op}"
        reduce_op = getattr(dist.ReduceOp, op)
        inputs = [values(n, dtype, r) for r in range(world)]
        wanted = fold(op, inputs)
        if dtype in summed_by_gloo and n:
            theirs = inputs[rank].clone()
            dist.all_reduce(theirs, reduce_op, group=gloo)
            same(theirs, wanted, f"gloo's all_reduce of {name}")
        for layout, tensor in layouts(n, dtype):
            tensor.copy_(inputs[rank].view(tensor.t().shape).t() if layout == "transposed" else inputs[rank])
            dist.all_reduce(tensor, reduce_op)
            same(tensor.t().reshape(-1) if layout == "transposed" else tensor, wanted, f"all_reduce of {name}, {layout}")
        root = (n + 1) % world
        tensor = inputs[rank].clone()
        dist.reduce(tensor, root, reduce_op)
        if rank == root:
            same(tensor, wanted, f"reduce of {name} to {root}")
        parts = [values(n, dtype, rank, 100 + p) for p in range(world)]
        wanted = fold(op, [values(n, dtype, r, 100 + rank) for r in range(world)])
        out = torch.empty(n, dtype=dtype)
        dist.reduce_scatter(out, parts, reduce_op)
        same(out, wanted, f"reduce_scatter of {name}")
        out = torch.empty(n, dtype=dtype)
        dist.reduce_scatter_tensor(out, torch.cat(parts), reduce_op)
        same(out, wanted, f"reduce_scatter_tensor of {name}")
    for dtype, n in itertools.product([t for t in types if t.is_floating_point], sizes):
        tensor = values(n, dtype, rank) * world
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        wanted = functools.reduce(operator.add, [values(n, dtype, r) * world * torch.tensor(1 / world, dtype=dtype)
                                                 for r in range(world)], torch.zeros(n, dtype=dtype))
        if world in (1, 2, 4):  # with 3 ranks, 1/3 would round
            same(tensor, wanted, f"average of {n} {dtype}")
        else:
            torch.testing.assert_close(tensor, wanted)

    # ---- copies ----
    for dtype, n in itertools.product([*types, torch.int16, torch.complex64], sizes):
        name = f"{dtype}, {n} elements"
        mine = values(n, dtype, rank)
        all_of = [values(n, dtype, r) for r in range(world)]
        in_gloo = dtype in summed_by_gloo and n
        for root in {0, world - 1}:
            for layout, tensor in layouts(n, dtype):
                source = all_of[root].view(tensor.t().shape).t() if layout == "transposed" else all_of[root]
                if rank == root:
                    tensor.copy_(source)
                dist.broadcast(tensor, root)
                same(tensor, source.contiguous(), f"broadcast of {name}, {layout}")
            got = [torch.zeros(n, dtype=dtype) for _ in range(world)]
            dist.gather(mine, got if rank == root else None, root)
            if rank == root:
                for r in range(world):
                    same(got[r], all_of[r], f"gather of {name}, from {r}")
            out = torch.zeros(n, dtype=dtype)
            dist.scatter(out, [values(n, dtype, root, 50 + p) for p in range(world)] if rank == root else None, root)
            same(out, values(n, dtype, root, 50 + rank), f"scatter of {name}")
        got = [torch.zeros(2 * n, dtype=dtype)[::2] for _ in range(world)]
        dist.all_gather(got, mine)
        for r in range(world):
            same(got[r], all_of[r], f"all_gather of {name}, from {r}")
        if in_gloo:
            theirs = [torch.zeros(n, dtype=dtype) for _ in range(world)]
            dist.all_gather(theirs, mine, group=gloo)
            for r in range(world):
                same(got[r].contiguous(), theirs[r], f"gloo's all_gather of {name}")
        out = torch.zeros(n * world, dtype=dtype)
        dist.all_gather_into_tensor(out, mine)
        same(out, torch.cat(all_of), f"all_gather_into_tensor of {name}")
        out = torch.zeros(n * world, dtype=dtype)
        dist.all_to_all_single(out, torch.cat([values(n, dtype, rank, 60 + p) for p in range(world)]))
        same(out, torch.cat([values(n, dtype, r, 60 + rank) for r in range(world)]), f"all_to_all_single of {name}")
        # Rank r sends n // 8 + 3 p + r elements to rank p.
        length = lambda r, p: n // 8 + p * 3 + r  # noqa: E731
        part = lambda r, p: values(length(r, p), dtype, r, 70 + p)  # noqa: E731
        to_each, from_each = [part(rank, p) for p in range(world)], [part(r, rank) for r in range(world)]
        out = torch.zeros(sum(map(len, from_each)), dtype=dtype)
        dist.all_to_all_single(out, torch.cat(to_each), [len(t) for t in from_each], [len(t) for t in to_each])
        same(out, torch.cat(from_each), f"all_to_all_single by sizes of {name}")
        got = [torch.zeros_like(t) for t in from_each]
        dist.all_to_all(got, to_each)
        for r in range(world):
            same(got[r], from_each[r], f"all_to_all of {name}")
        tensors = [values(n + k, dtype, rank, k) for k in range(3)]
        got = [[torch.zeros(n + k, dtype=dtype) for k in range(3)] for _ in range(world)]
        dist.all_gather_coalesced(got, tensors)
        for r, k in itertools.product(range(world), range(3)):
            same(got[r][k], values(n + k, dtype, r, k), f"all_gather_coalesced of {name}")
    many = [values(n, torch.float32, rank) for n in (3, 0, 5000, 64)]
    dist.all_reduce_coalesced(many)
    for n, tensor in zip((3, 0, 5000, 64), many):
        same(tensor, fold("SUM", [values(n, torch.float32, r) for r in range(world)]), "all_reduce_coalesced")

    # ---- bit operations, and sums of sparse tensors: compared with gloo, and computed from all inputs ----
    for dtype, n, op in itertools.product((torch.int8, torch.int32, torch.int64, torch.uint8), sizes, ("BAND", "BOR", "BXOR")):
        by = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op]
        bits = lambda r, salt=0: torch.randint(-128, 128, (n,), generator=torch.Generator().manual_seed(  # noqa: E731
            31 * r + n + salt)).to(dtype)  # noqa: B023
        wanted = functools.reduce(by, [bits(r) for r in range(world)])
        reduce_op = getattr(dist.ReduceOp, op)
        for layout, tensor in layouts(n, dtype):
            tensor.copy_(bits(rank).view(tensor.t().shape).t() if layout == "transposed" else bits(rank))
            dist.all_reduce(tensor, reduce_op)
            same(tensor.t().reshape(-1) if layout == "transposed" else tensor, wanted, f"{op} of {n} {dtype}, {layout}")
        if n and dtype in summed_by_gloo:
            theirs = bits(rank)
            dist.all_reduce(theirs, reduce_op, group=gloo)
            same(theirs, wanted, f"gloo's {op} of {n} {dtype}")
        tensor = bits(rank)
        dist.reduce(tensor, world - 1, reduce_op)
        same(tensor, wanted if rank == world - 1 else bits(rank), f"reduce by {op} of {n} {dtype}")
        wanted = functools.reduce(by, [bits(r, 100 + rank) for r in range(world)])
        parts = [bits(rank, 100 + p) for p in range(world)]
        out = torch.empty(n, dtype=dtype)
        dist.reduce_scatter(out, parts, reduce_op)
        same(out, wanted, f"reduce_scatter by {op} of {n} {dtype}")
        out = torch.empty(n, dtype=dtype)
        dist.reduce_scatter_tensor(out, torch.cat(parts), reduce_op)
        same(out, wanted, f"reduce_scatter_tensor by {op} of {n} {dtype}")
    for rows, entries, dense in ((1, 0, ()), (1, 1, ()), (7, 3, ()), (50, 30, (5,)), (1000, 400, (2, 3))):
        def sparse(r):
            g = torch.Generator().manual_seed(100 * r + rows)
            count = max(entries - r, 0)  # another number on each rank; rows repeat
            indices = torch.randint(0, rows, (1, count), generator=g)
            return torch.sparse_coo_tensor(indices, torch.randint(-4, 5, (count, *dense), generator=g).float(), (rows, *dense))
        wanted = sum(sparse(r).to_dense() for r in range(world))
        ours, theirs = sparse(rank), sparse(rank)
        dist.all_reduce(ours)
        same(ours.to_dense(), wanted, f"sum of sparse tensors with {rows} rows")
        if entries:
            dist.all_reduce(theirs, group=gloo)
            same(theirs.to_dense(), wanted, f"gloo's sum of sparse tensors with {rows} rows")

    # ---- sums that round, in gloo's order ----
    strict = dist.new_group(backend="ringsmith", pg_options=ringsmith_torch.Options(algorithm="gloo_ring"))
    for dtype, n in itertools.product((torch.float32, torch.float64), [*sizes, 100003]):
        if n == 0:
            continue
        mine = torch.randn(n, dtype=dtype, generator=torch.Generator().manual_seed(31 * rank + n))
        ours, theirs = mine.clone(), mine.clone()
        dist.all_reduce(ours, group=strict)
        dist.all_reduce(theirs, group=gloo)
        same(ours, theirs, f"gloo_ring's sum of {n} random {dtype} against gloo's")

    # ---- many concurrent operations, futures, objects ----
    tensors = [values(1000 + k, torch.float32, rank, k) for k in range(50)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    futures = [w.get_future().then(lambda f: f.value()[0] * 2) for w in works]
    for k in reversed(range(50)):
        wanted = fold("SUM", [values(1000 + k, torch.float32, r, k) for r in range(world)])
        works[k].wait()
        same(tensors[k], wanted, f"asynchronous all_reduce {k}")
        same(futures[k].wait(), wanted * 2, f"what hangs on the future of all_reduce {k}")
        assert works[k].is_completed() and works[k].is_success()
    # A callback of a future may make calls and wait, and so may the callback of that call's future, because the
    # notifying thread is replaced.
    def again(depth):
        def then(future):
            value = future.value()[0] if isinstance(future.value(), list) else future.value()
            return dist.all_reduce(value, async_op=True).get_future().then(again(depth - 1)).wait() if depth else value
        return then
    chain = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(again(4))
    same(chain.wait(), torch.full((10,), float(world**5)), "all_reduces in what hangs on futures of all_reduces")
    # After calls for which their caller waited, no thread is woken: it looks for calls itself, and must find this one.
    for calls in (1, 10, 1000):
        for _ in range(calls):
            dist.all_reduce(torch.ones(8))
        tensor = values(1000, torch.float32, rank)
        work, deadline = dist.all_reduce(tensor, async_op=True), time.monotonic() + 30
        while not work.is_completed():
            assert time.monotonic() < deadline, f"an asynchronous all_reduce after {calls} others has not run"
            time.sleep(0.001)
        wanted = fold("SUM", [values(1000, torch.float32, r) for r in range(world)])
        same(tensor, wanted, f"asynchronous all_reduce after {calls} others")
        same(work.get_future().wait()[0], wanted, f"a late future of the all_reduce after {calls} others")
    # The profiler's record of a call ends before the call's future is complete: a program that has waited for the future
    # may stop the profiler, which frees the record. A callback keeps the call's thread from coming any further.
    large = [torch.ones(4_000_000) for _ in range(dist.get_world_size())]
    stopped, began = threading.Event(), time.monotonic()
    with torch.profiler.profile() as profile:
        first = dist.all_gather(large, large[0], async_op=True)  # the next call waits for its turn
        future = dist.all_reduce(torch.ones(8), async_op=True).get_future()
        late = future.then(lambda f: stopped.wait(30))
        future.wait()
        took = time.monotonic() - began
        time.sleep(0.5)
    stopped.set()
    late.wait()
    first.wait()
    records = [event.time_range.elapsed_us() * 1e-6 for event in profile.events() if event.name == "ringsmith:all_reduce"]
    assert len(records) == 1 and 3e-6 < records[0] < took + 0.25, f"a record of {records} s for an all_reduce of {took} s"
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(world)]
    word = [f"from {rank}"]
    dist.broadcast_object_list(word, src=world - 1)
    assert word == [f"from {world - 1}"]
    dist.barrier()

    # ---- messages: both send first; tags out of order; large ones ----
    if world > 1:
        to, of = (rank + 1) % world, (rank - 1) % world
        for n in (0, 1, 1000, 3_000_001):
            out, got = values(n, torch.float32, rank), torch.zeros(n)
            works = [dist.isend(out, to), dist.irecv(got, of)]
            for work in works:
                work.wait()
            same(got, values(n, torch.float32, of), f"a message of {n}")
        sends = [dist.isend(torch.full((5,), float(tag)), to, tag=tag) for tag in range(6)]
        got = {tag: torch.zeros(10)[::2] for tag in range(6)}
        for tag in (5, 0, 4, 1, 3, 2):
            dist.recv(got[tag], of, tag=tag)
            same(got[tag], torch.full((5,), float(tag)), f"a message of tag {tag}")
        for work in sends:
            work.wait()
        if rank == 0:  # from any source: each rank's messages in order, all of them, with the right source
            left = dict.fromkeys(range(1, world), 0)
            for _ in range(20 * (world - 1)):
                one = torch.zeros(1)
                source = dist.recv(one, tag=9)
                same(one, torch.full((1,), 100.0 * source + left[source]), f"a message from any source, here {source}")
                left[source] += 1
            assert set(left.values()) == {20}
            one = torch.zeros(1)  # posted before it is sent, and with other recv()s pending
            work, by_name = dist.irecv(one, tag=11), [dist.irecv(torch.zeros(1), r, tag=12) for r in range(1, world)]
            dist.barrier()
            work.wait()
            same(one, torch.full((1,), 7.0), "a message from any source, posted early")
            for other in by_name:
                other.wait()
        else:
            for k in range(20):
                dist.send(torch.full((1,), 100.0 * rank + k), 0, tag=9)
            dist.barrier()
            dist.send(torch.full((1,), 1.0), 0, tag=12)
            if rank == 1:
                dist.send(torch.full((1,), 7.0), 0, tag=11)
        for k in range(200):  # messages with one tag arrive in order
            dist.isend(torch.tensor([k]), to)
        for k in range(200):
            one = torch.zeros(1, dtype=torch.int64)
            dist.recv(one, of)
            assert int(one) == k, f"message {k} of one tag is {int(one)}"
        checked += 200

    # ---- calls for which their caller waits: they wake no thread. With other ranks, waits for them would count, too ----
    if world == 1:
        def switches():
            return sum(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.M)[1])
                       for status in pathlib.Path("/proc/self/task").glob("*/status"))
        before, calls = switches(), 4000
        for _ in range(calls):
            dist.all_reduce(tensors[0])
        assert switches() - before < calls / 8, f"{calls} calls, and {switches() - before} times a thread has slept"

    # ---- groups of some ranks ----
    for members in [list(range(world))[::-1], list(range(0, world, 2)), [world - 1]]:
        group = dist.new_group(members, backend="ringsmith")
        if rank in members:
            tensor = values(1000, torch.float32, rank)
            dist.all_reduce(tensor, group=group)
            same(tensor, fold("SUM", [values(1000, torch.float32, r) for r in members]), f"all_reduce in {members}")
            tensor = values(9, torch.int64, rank)
            dist.broadcast(tensor, members[-1], group=group)
            same(tensor, values(9, torch.int64, members[-1]), f"broadcast in {members}")

    # ---- refused calls: named on the calling rank; the group must still work afterwards ----
    def refused(text, call):
        nonlocal checked
        checked += 1
        try:
            call()
        except ringsmith_torch.UsageError as error:
            assert text in str(error), f"'{error}' does not say '{text}'"
            return
        raise AssertionError(f"not refused: {text}")

    x = torch.ones(4)
    refused("BAND, BOR and BXOR need an integral type, got Float", lambda: dist.all_reduce(x, dist.ReduceOp.BAND))
    refused("BAND, BOR and BXOR need an integral type, got Float", lambda: dist.reduce(x, 0, dist.ReduceOp.BXOR))
    refused("AVG needs a floating type, got Int", lambda: dist.all_reduce(x.int(), dist.ReduceOp.AVG))
    refused("the only operation on sparse tensors is SUM",
            lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX))
    refused("call tensor.clone()", lambda: dist.all_reduce(torch.ones(1).expand(4)))
    refused("reduce: tensors of type ComplexFloat cannot be reduced",
            lambda: dist.reduce(torch.ones(2, dtype=torch.complex64), 0))
    refused("tensors of the same size are needed, got 5 and 4 elements", lambda: dist.all_gather([torch.ones(5)] * world, x))
    refused("must hold world size", lambda: dist.all_gather_into_tensor(torch.zeros(4 * world + 1), x))
    refused("split sizes must add up", lambda: dist.all_to_all_single(x, x, [9] * world, [9] * world))
    refused("overlap='yes' is unknown; choose 'auto', 'on' or 'off'",
            lambda: ringsmith_torch.DistributedDataParallel(torch.nn.Linear(1, 1), overlap="yes"))
    if world == 1:
        refused("the group has no other rank", lambda: dist.recv(x))
    same(values(3, torch.float32, 0), values(3, torch.float32, 0), "the oracle itself")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(world)), "all_reduce after refusals")
    print(f"rank {rank} of {world}: {checked} results")
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="1,2,3,4")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rank", action="store_true", help="(internal) be a rank")
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.short)
    ranks.leave_if_impossible()
    for world in map(int, args.worlds.split(",")):
        done = ranks.run(world, __file__, "--rank", *(["--short"] if args.short else []), limit=600)
        ranks.expect_success(done, "collectives")
        print(f"collectives: {world} ranks in {max(r.seconds for r in done):.1f} s: {done[0].text.splitlines()[-1]}")


if __name__ == "__main__":
    sys.exit(main())
