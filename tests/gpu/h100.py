"""The figures of an H100 (SXM, 80 GB) from which step_table.py and all_reduce_table.py predict times, with their
sources; and how much of them kernels reach. Those marked H200 were measured with this code on an H200 (RESULTS.md), which
is the same processor with a memory of 4.8 TB/s; nothing was measured on an H100."""
import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Figure:
    value: float
    unit: str
    source: str


# ---- what NVIDIA states ----
DATA_SHEET = "NVIDIA, H100 data sheet"
PAPER = "NVIDIA, H100 architecture, white paper"

MEMORY = Figure(3.35e12, "bytes/s", DATA_SHEET)
TENSOR = Figure(989.4e12, "FLOP/s in bf16, dense", DATA_SHEET)
SMS = Figure(132, "multiprocessors", PAPER)
SCHEDULERS = Figure(4, "schedulers per multiprocessor, an instruction per cycle each", PAPER)
CLOCK = Figure(1.83e9, "Hz", "from the data sheet: 989.4 TFLOP/s are 132 x 4 tensor cores x 1,024 FLOP a cycle")
NVLINK = Figure(450e9, "bytes/s each way", DATA_SHEET)
NVLINK_DATA = Figure(370e9, "bytes/s each way without headers", "an engineer of NVIDIA, github.com/NVIDIA/nccl-tests/issues/212")

MMA = Figure(0.63, "of the tensor cores' peak by mma.sync, which all our kernels use",
             "Luo et al., Dissecting the NVIDIA Hopper architecture through microbenchmarking, 2024")

# ---- what kernels reach ----
H200 = "H200, one kernel at a time, 2026-11-27"
ISSUE = Figure(0.7, "of the schedulers' cycles issue an instruction", f"{H200}: 0.68 to 0.74, GELU and the classifier")
ATTENTION = {  # operation: share, instead of ISSUE
    "attention_qkv": Figure(0.38, "of the schedulers' cycles issue an instruction of the hot loop", H200),
    "AttentionQkvBackward": Figure(0.28, "of the schedulers' cycles issue an instruction of the hot loop",
                                   f"{H200}: 8 warps per multiprocessor wait for shared memory and tensor cores"),
}
LAUNCH = Figure(1.5e-6, "s from the end of a kernel to the first loads of the next",
                "assumed: 0.9 us between kernels of a stream (NVIDIA, Getting started with CUDA graphs), and the ramp")
HOST = Figure(5e-6, "s of the host per launch", "assumed: the driver's 2 to 3 us, allocator, tape")
PRODUCTS = {  # tokens of a batch: share of TENSOR
    4096: Figure(0.63, "of the tensor cores' peak", f"{H200}: 0.66; in a long run clocks are 5 % lower"),
    32768: Figure(0.70, "of the tensor cores' peak", f"{H200}: 0.74; in a long run clocks are 5 % lower"),
}
SHARES = {  # of MEMORY, by kind of kernel
    "stream": Figure(0.79, "of the memory's bandwidth", f"{H200}: sums of the residual stream"),
    "norm": Figure(0.78, "of the memory's bandwidth", H200),
    "norm backward": Figure(0.69, "of the memory's bandwidth", f"{H200}: 128 registers, 16 warps per multiprocessor"),
    "classifier": Figure(0.70, "of the memory's bandwidth", f"{H200}: the gradient; instructions limit the sums"),
    "optimizer": Figure(0.80, "of the memory's bandwidth", H200),
}

# ---- assumptions about hand-offs between devices ----
FENCE = Figure(1.0e-6, "s of a fence at system scope", "assumed: until the stores of a block have arrived at the peer")
HOP = Figure(1.0e-6, "s from a store until the peer could load it", "assumed")
BARRIERS = Figure(1.3e-6, "s of barriers and polls of a hand-off", "assumed")
REMOTE_LOAD = Figure(1.6e-6, "s of a load over NVLink", "assumed")
LOCAL_LOAD = Figure(0.8e-6, "s of a load from the device's memory", "assumed")
KERNEL = Figure(3.0e-6, "s from a launch until all blocks of a kernel run, and its end", "assumed")
AGREEMENT = Figure(8e-6, "s of the hosts per call: agreement of 8 processes in shared memory, launch", "assumed")


def issue_rate(sms=SMS.value, share=ISSUE.value):
    """Instructions per second of all warps on `sms` multiprocessors."""
    return sms * SCHEDULERS.value * CLOCK.value * share


def product_share(tokens):
    """Linear in log(tokens) between the two assumptions, constant outside."""
    (a, low), (b, high) = PRODUCTS.items()
    x = min(max((math.log(tokens) - math.log(a)) / (math.log(b) - math.log(a)), 0), 1)
    return low.value + x * (high.value - low.value)
