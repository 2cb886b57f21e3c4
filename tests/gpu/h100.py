"""The figures of an H100 (SXM, 80 GB) from which step_table.py and all_reduce_table.py predict times, with their
sources; and the assumptions about how much of them is reached. None was measured with this code."""
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

# ---- assumptions: what kernels reach ----
ISSUE = Figure(0.6, "of the schedulers' cycles issue an instruction",
               "assumed: kernels of 8 to 16 warps that wait for shared memory and tensor cores")
LAUNCH = Figure(1.5e-6, "s from the end of a kernel to the first loads of the next",
                "assumed: 0.9 us between kernels of a stream (NVIDIA, Getting started with CUDA graphs), and the ramp")
HOST = Figure(5e-6, "s of the host per launch", "assumed: the driver's 2 to 3 us, allocator, tape")
PRODUCTS = {  # tokens of a batch: share of TENSOR
    4096: Figure(0.53, "of the tensor cores' peak",
                 "assumed of cuBLASLt at 4,096 rows and 768 to 3,072 columns: 2 to 5 waves of tiles, K = 768"),
    32768: Figure(0.68, "of the tensor cores' peak", "assumed of cuBLASLt at 32,768 rows"),
}
SHARES = {  # of MEMORY, by kind of kernel
    "stream": Figure(0.80, "of the memory's bandwidth", "assumed: a copy reaches 0.78 to 0.90"),
    "norm": Figure(0.70, "of the memory's bandwidth", "assumed: reductions with a block per multiprocessor"),
    "norm backward": Figure(0.55, "of the memory's bandwidth", "assumed: 245 registers, 8 warps per multiprocessor"),
    "classifier": Figure(0.65, "of the memory's bandwidth", "assumed"),
    "optimizer": Figure(0.87, "of the memory's bandwidth", "assumed: long streams, no reduction"),
}

# ---- assumptions about hand-offs between devices ----
FENCE = Figure(1.0e-6, "s of a fence at system scope", "assumed: until the stores of a block have arrived at the peer")
HOP = Figure(1.0e-6, "s from a store until the peer could load it", "assumed")
BARRIERS = Figure(1.3e-6, "s of barriers and polls of a hand-off", "assumed")
REMOTE_LOAD = Figure(1.6e-6, "s of a load over NVLink", "assumed")
LOCAL_LOAD = Figure(0.8e-6, "s of a load from the device's memory", "assumed")
KERNEL = Figure(3.0e-6, "s from a launch until all blocks of a kernel run, and its end", "assumed")
AGREEMENT = Figure(8e-6, "s of the hosts per call: agreement of 8 processes in shared memory, launch", "assumed")


def issue_rate(sms=SMS.value):
    """Instructions per second of all warps on `sms` multiprocessors."""
    return sms * SCHEDULERS.value * CLOCK.value * ISSUE.value


def product_share(tokens):
    """Linear in log(tokens) between the two assumptions, constant outside."""
    (a, low), (b, high) = PRODUCTS.items()
    x = min(max((math.log(tokens) - math.log(a)) / (math.log(b) - math.log(a)), 0), 1)
    return low.value + x * (high.value - low.value)
