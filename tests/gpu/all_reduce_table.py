#!/usr/bin/env python3
"""all_reduce_table.py [--world N]: predicts an all-reduce of floats in place on N H100s (8) over NVLink by the kernel
engine, next to published times of NCCL. Nothing was measured with this code.

A time is the sum of

    launch      h100.KERNEL; or the hosts' part of a call, if that is longer
    hand-offs   a fence, a hop of the flag, barriers and polls: h100.FENCE + HOP + BARRIERS each
    data        the longest of: bytes over NVLink; loads in flight of the blocks; instructions that the blocks issue

The number of hand-offs, messages and their sizes follow the code: the constants are read from the headers named in
SOURCES, and the instructions per loop from budgets.txt, which `make nvcc-check` compares with the compiled kernels.
Buffers are in communication memory, as DDP's buckets are.
"""
import argparse
import functools
import math
import pathlib
import re

import budgets
import h100

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEVICE = "runtime/comm/device/"
SOURCES = {  # name: (file, pattern of the value)
    "channels": (DEVICE + "station.hpp", r"kMostChannels = (\d+);"),
    "threads": (DEVICE + "station.hpp", r"kMostThreads = (\d+);"),
    "slots_per_piece": (DEVICE + "layout.hpp", r"kSlotsPerPiece = (\d+);"),
    "least_message_kib": (DEVICE + "layout.hpp", r"kLeastMessageBytes = std::size_t\{(\d+)\} << 10;"),
    "slot_kib": (DEVICE + "whereabouts.cpp", r"kMostThreads,\s+std::size_t\{(\d+)\} << 10"),
    "unroll": (DEVICE + "kernel.cuh", r"kUnroll = kAdds && sizeof\(T\) == 1 \? 1 : (\d+);"),
    "packets_kib": ("runtime/comm/schedule/select.hpp", r"kMostInPackets = std::size_t\{(\d+)\} << 10;"),
    "two_hops_mib": ("runtime/comm/schedule/select.hpp", r"kMostInTwoHops = std::size_t\{(\d+)\} << 20;"),
}
SIZES = [1 << n for n in range(16, 29)]
PACK = 16  # bytes of a thread's access
WARP = 32

# Published times of NCCL on devices with NVLink 4, in seconds, by bytes.
# Up to 1 MiB: github.com/sgl-project/sglang/pull/22734, "torch eager", one node (its two nodes have 8 H200 each).
NCCL_PUBLISHED = {64 << 10: 18.81e-6, 128 << 10: 19.33e-6, 256 << 10: 19.50e-6, 512 << 10: 19.81e-6, 1 << 20: 25.88e-6}
NCCL_RING = h100.Figure(370e9, "bytes/s of bus bandwidth, ring, large messages",
                        "github.com/NVIDIA/nccl/issues/1455, nccl-tests/issues/212")
NCCL_NVLS = h100.Figure(480e9, "bytes/s of bus bandwidth, NVLink SHARP, several GiB", "the same")


def constant(file, pattern):
    """A number of the source code."""
    found = re.search(pattern, (ROOT / file).read_text())
    if not found:
        raise SystemExit(f"{file} no longer has {pattern}: a prediction depends on it")
    return int(found[1])


@functools.cache
def constants():
    return {name: constant(*where) for name, where in SOURCES.items()}


HAND_OFF = h100.FENCE.value + h100.HOP.value + h100.BARRIERS.value


def bus_factor(world):
    return 2 * (world - 1) / world


def seconds_of_loads(bytes_of_block, in_flight, latency):
    """A block that waits for `in_flight` bytes of loads before it stores them and loads the next."""
    return math.ceil(bytes_of_block / in_flight) * latency


def direct(size, world, c):
    """Two-shot: meet; load the own chunk from all ranks, store the sum to all; meet."""
    chunk = size / world
    blocks = min(c["channels"], math.ceil(chunk / (PACK * c["threads"])))
    share = chunk / blocks
    links = bus_factor(world) * size / h100.NVLINK_DATA.value  # each way: loads and stores of all ranks
    # A thread has a pack of every rank in flight.
    turns = seconds_of_loads(share, PACK * c["threads"], h100.REMOTE_LOAD.value)
    packs = chunk / PACK / WARP
    issued = packs * budgets.issued("*::direct<float>") / h100.issue_rate(blocks)
    data = max(links, turns, issued)
    bound = {links: "NVLink", turns: "loads in flight", issued: "issue slots"}[data]
    return h100.KERNEL.value + 2 * HAND_OFF + data, "direct", bound


def ring(size, world, c):
    """Per pass 2 (world - 1) steps, each of slots_per_piece messages: the second is under way while the first is
    handed over. A complete chunk is stored in the next rank's output, so the last step moves nothing."""
    share = size / world / c["channels"]
    message = min(max(math.ceil(share / c["slots_per_piece"] / PACK) * PACK, c["least_message_kib"] << 10),
                  c["slot_kib"] << 10)
    links = h100.NVLINK_DATA.value / c["channels"]
    in_flight = PACK * c["unroll"] * c["threads"]
    loads = in_flight / h100.LOCAL_LOAD.value
    passes = in_flight / WARP / PACK / c["unroll"]  # of all warps
    issue = in_flight / (passes * budgets.issued("*::ring<float>") / h100.issue_rate(1))
    rate = min(links, loads, issue)
    bound = {links: "NVLink", loads: "loads in flight", issue: "issue slots"}[rate]
    piece = c["slots_per_piece"] * message
    seconds, left = 0.0, share
    while left > 0:
        now = min(piece, left)
        messages = math.ceil(now / message)
        each = now / messages / rate
        step = max(messages * each, each + HAND_OFF)
        if step > messages * each:
            bound = "hand-offs"
        seconds += 2 * (world - 1) * step
        left -= now
    return h100.KERNEL.value + HAND_OFF + seconds, "ring", bound


def predicted(size, world=8):
    """Seconds, algorithm, and what limits it."""
    c = constants()
    if size <= c["packets_kib"] << 10:
        raise ValueError("packets are not modelled")
    seconds, how, bound = (direct if size <= c["two_hops_mib"] << 20 else ring)(size, world, c)
    if h100.AGREEMENT.value > seconds:
        return h100.AGREEMENT.value, how, "hosts"
    return seconds, how, bound


def nccl(size):
    """Published seconds and "published"; or, between the published sizes, latency and bandwidth of the published."""
    if size in NCCL_PUBLISHED:
        return NCCL_PUBLISHED[size], "published"
    seconds = NCCL_PUBLISHED[64 << 10] + bus_factor(8) * size / NCCL_RING.value
    return seconds, "from published latency and ring bandwidth"


def nccl_nvls(size):
    return NCCL_PUBLISHED[64 << 10] + bus_factor(8) * size / NCCL_NVLS.value


# The prediction must not exceed this multiple of NCCL's time, which is NVLS's where the default is NVLS.
MOST_RATIO = 1.3


def check_ratios():
    for size, us, _, how, bound, _, _, ratio, nvls in rows():
        if not max(ratio, nvls) <= MOST_RATIO:
            raise SystemExit(f"all_reduce_table.py: {human(size)} by {how} are predicted to take {us:.0f} us, limited by "
                             f"{bound}: {max(ratio, nvls):.2f} of NCCL's time, the limit is {MOST_RATIO}")


def human(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def rows(world=8):
    """(size, predicted us, busbw GB/s, algorithm, bound, NCCL's us, its source, ratio, ratio to NVLS)."""
    out = []
    for size in SIZES:
        seconds, how, bound = predicted(size, world)
        theirs, source = nccl(size)
        nvls = nccl_nvls(size) if source != "published" else theirs
        out.append((size, seconds * 1e6, bus_factor(world) * size / seconds / 1e9, how, bound, theirs * 1e6, source,
                    seconds / theirs, seconds / nvls))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--world", type=int, default=8)
    a = p.parse_args()
    print("size      predicted     busbw  by      limited by        NCCL us  ratio  to NVLS")
    for size, us, busbw, how, bound, theirs, source, ratio, nvls in rows(a.world):
        beside = f"{theirs:7.1f}  {ratio:5.2f}    {nvls:5.2f}  {source}" if a.world == 8 else ""
        print(f"{human(size):8} {us:8.1f} us {busbw:6.0f} GB/s  {how:6}  {bound:16} {beside}")


if __name__ == "__main__":
    main()
