#!/usr/bin/env python3
"""compiled.py FOLDER [--update]: checks the code that nvcc has generated for the kernels; called by `make
nvcc-check`.

FOLDER contains for each .cu file the object file (NAME.cu.o) and ptxas's output (NAME.cu.ptxas), and the PTX of the
rings' kernels (NAME.cu.ptx).

1. The rings' kernels neither spill nor use a stack: while one waits for another, a spill costs a memory access.
2. Their hand-offs are at system scope. The emulator cannot see scopes: there, device scope works as well.
3. The ring's kernels are compiled for blocks as large as station.hpp allows: a launch with more registers fails.
4. Registers by kernel are as in REGISTERS.md, if that is from the same nvcc.
5. Each kernel in budgets.txt keeps its budget of registers, stack and issued instructions, if budgets.txt is for the
   same nvcc. A table shows them (--only-budgets: nothing else), and for products on an H100 the TFLOP/s that the
   instructions allow, if warps issue as often as h100.py assumes.
6. The figures of lesson 02's table of matrix products are those of its kernels (--update writes them), if the lesson
   names the same nvcc.
7. The ring has one system fence per message (check_hand_offs), direct kernels divide nothing, and a line of packets is
   one access.

Then it plants mistakes in a copy of its input, and must detect each of them.
"""
import argparse
import collections
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import h100
import sass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = HERE / "REGISTERS.md"
BUDGETS = HERE / "budgets.txt"
LESSON = ROOT / "lessons/02-kernels/LADDER.md"
RINGS = "runtime/comm/device/"
# The only access at device scope: it selects the first of a rank's blocks to report, all of which
# are on one device.
INSIDE = "atom.cas.relaxed.gpu.b64"
FLOP_OF_HMMA = 2 * 16 * 8 * 16


def stop(message):
    raise SystemExit(f"nvcc-check: {message}")


def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, out.splitlines()))


def plain(name):
    """Returns a kernel's name without namespaces, template arguments and parameters."""
    # c++filt cannot demangle nvcc's names of lambdas within lambdas.
    if name.startswith("_ZN"):
        at, last = 3, ""
        while number := re.match(r"\d+", name[at:]):
            at += number.end() + int(number[0])
            last = name[at - int(number[0]):at]
        return last
    name = re.sub(r"\((anonymous namespace|int|bool|unsigned int|long|unsigned long)\)", "", name.replace("void ", "", 1))
    depth, kept = 0, ""
    for c in name:
        depth += c == "<"
        if depth == 0:
            if c == "(":
                break
            kept += c
        depth -= c == ">"
    return kept.split("::")[-1]


def kernels_of(folder):
    """Returns {(file, mangled name, architecture): (registers, stack, spilled bytes)}."""
    found = {}
    for said in sorted(folder.rglob("*.cu.ptxas")):
        file = str(said.relative_to(folder)).removesuffix(".ptxas")
        entry = stack = spilled = None
        for line in said.read_text().splitlines():
            if m := re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w*'", line):
                entry = m.groups()
            elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
                stack, spilled = int(m[1]), int(m[2]) + int(m[3])
            elif (m := re.search(r"Used (\d+) registers", line)) and entry:
                found[(file, entry[0], int(entry[1]))] = (int(m[1]), stack or 0, spilled or 0)
                entry = stack = spilled = None
    return found


def check_spills(found):
    rings = [(key, cost) for key, cost in found.items() if key[0].startswith(RINGS)]
    if not rings:
        stop(f"ptxas said nothing of a kernel in {RINGS}")
    for (file, name, arch), (_, stack, spilled) in rings:
        if stack or spilled:
            stop(f"{file}: {demangled([name])[name]} for sm_{arch} keeps {stack} bytes on the stack and spills {spilled}")
    return len(rings)


def check_scopes(folder):
    """Checks that every access with a memory order is at system scope (or is INSIDE), and that each kernel has an
    ordered load."""
    kernels = 0
    for ptx in sorted(folder.glob(RINGS + "*.ptx")):
        for body in re.split(r"(?=\.entry )", ptx.read_text())[1:]:
            name = re.match(r"\.entry (\w+)", body)[1]
            body = body.split("\n.func")[0]
            kernels += 1
            body = re.sub(r"volatile\.(?:global\.)?u8", "u8", body)  # bytes, of misaligned elements: check_bytes()
            ordered = re.findall(r"\b(?:ld|st|atom|red)\.(?:\w+\.)*?(?:relaxed|acquire|release|acq_rel|volatile)[\w.]*", body)
            for access in ordered:
                if ".sys" not in access and access != INSIDE:
                    stop(f"{ptx.name}: {demangled([name])[name]} has '{access}', which is not at system scope")
            if not any(access.startswith("ld.") for access in ordered):
                stop(f"{ptx.name}: {demangled([name])[name]} waits for nobody: no ordered load")
    if kernels == 0:
        stop(f"no PTX of {RINGS} in {folder}")
    return kernels


def check_bounds(folder):
    most = int(re.search(r"\bkMostThreads = (\d+);", (ROOT / RINGS / "station.hpp").read_text())[1])
    ptx = folder / RINGS / "ring.cu.ptx"
    for kernel, name, body in bodies_of(ptx):
        threads = most + 1 if kernel == "ring" else most  # one thread of the ring hands over
        if f".maxntid {threads}, 1, 1" not in body:
            stop(f"{ptx.name}: {name} has no launch bounds of {threads} threads")


def bodies_of(ptx):
    """Yields (plain name, demangled name, PTX) of each kernel."""
    names = re.findall(r"\.entry (\w+)", ptx.read_text())
    said = demangled(names)
    for body in re.split(r"(?=\.entry )", ptx.read_text())[1:]:
        name = re.match(r"\.entry (\w+)", body)[1]
        yield plain(said[name]), said[name], body.split("\n.func")[0]


def check_hand_offs(folder):
    """A fence or a release at system scope costs a microsecond or two: it waits until all of the thread's stores have
    arrived. So a message of the ring has one fence for both of its counters, executed by a thread that does not copy.
    The only release belongs to a report, of 32 bits. A division by a number that is known only when the kernel runs
    takes as long as several loads, and direct kernels would have one per load. A line of packets has 16 bytes."""
    for kernel, name, body in bodies_of(folder / RINGS / "ring.cu.ptx"):
        fences = len(re.findall(r"\b(?:fence|membar)\.", body))
        releases = len(re.findall(r"\bst\.release\.sys\.(?:\w+\.)*[bus]64", body))
        wanted = 1 if kernel == "ring" else 0
        if fences != wanted or releases:
            stop(f"ring.cu: {name} has {fences} fences and {releases} 64-bit releases, not {wanted} and 0")
    for kernel, name, body in bodies_of(folder / RINGS / "direct.cu.ptx"):
        if found := re.search(r"\b(?:div|rem)\.[su](?:32|64)\b", body):
            stop(f"direct.cu: {name} divides: '{found[0]}'")
    for file in "ring.cu.ptx", "direct.cu.ptx":
        for kernel, name, body in bodies_of(folder / RINGS / file):
            if kernel not in ("packet_ring", "one_shot"):
                continue
            for access in "st", "ld":
                if not re.search(rf"\b{access}\.relaxed\.sys\.(?:global\.)?v2\.b64", body):
                    stop(f"{file}: {name} has no {access} of a whole line")
            if re.search(r"\bst\.relaxed\.sys\.(?:global\.)?[bus]64", body):
                stop(f"{file}: {name} stores half a line")


def check_bytes(folder):
    """Buffers may begin at any byte, and a device faults on a misaligned access. So every kernel has, for elements of
    several bytes, accesses of bytes, too. nvcc 13.0 once joined both paths of a store into one of the element's size."""
    for file in "ring.cu.ptx", "direct.cu.ptx":
        for kernel, name, body in bodies_of(folder / RINGS / file):
            if re.search(r"<(?:unsigned|signed) char>", name):
                continue
            for access in "ld", "st":
                if not re.search(rf"\b{access}\.volatile\.global\.u8\b", body):
                    stop(f"{file}: {name} has no {access} of single bytes: it faults if a buffer is misaligned")


# The matrix products of the lesson's table, for sm_90: version, file, kernel, marks, and the multiply-adds of a warp by
# one instruction of the first mark.
LADDER = [
    (1, "naive", "naive", "FFMA,LDG", 32),
    (2, "tiled", "tiled", "FFMA,LDS", 32),
    (3, "blocked", "blocked*float*", "FFMA,LDS", 32),
    (4, "vectorised", "vectorised*", "FFMA,LDS", 32),
    (5, "tensor", "tensor<Tf32>", "HMMA,LDG,STS", 16 * 8 * 4),
    (6, "tensor", "tensor<Bf16>", "HMMA,LDG,STS", 16 * 8 * 16),
    (8, "pipelined", "pipelined<2,*bf16>", "HMMA,LDGSTS,LDSM", 16 * 8 * 16),
    (9, "pipelined", "pipelined<4,*bf16>", "HMMA,LDGSTS,LDSM", 16 * 8 * 16),
    (10, "wgmma", "hopper<true,*true,*bf16>", "HGMMA", 64 * 256 * 16 // 4),  # a warp's share
]


def check_ladder(folder, version, update):
    """Compares the last three cells of the lesson's rows, or writes them: instructions of a pass, those of them that
    multiply, and multiply-adds per instruction."""
    text = LESSON.read_text()
    for number, file, pattern, marks, each in LADDER:
        kernels = [k for k in sass.kernels_of(folder / f"kernels/cuda/matmul_{file}.cu.o", 90)
                   if fnmatch.fnmatchcase(k.name, pattern)]
        rows = re.findall(rf"^\| {number} \|.*$", text, re.M)
        if not kernels or len(rows) != 1:
            stop(f"{len(kernels)} kernels {pattern} for sm_90, {len(rows)} rows of version {number} in {LESSON.name}")
        loop = max((k.hot_loop(marks.split(","), innermost=True) for k in kernels), key=lambda loop: loop.count())
        multiply = loop.issued[marks.split(",")[0]]
        figures = [str(loop.count()), str(multiply), f"{multiply * each / loop.count():.0f}"]
        cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
        if update:
            text = text.replace(rows[0], "| " + " | ".join(cells[:-3] + figures) + " |")
        elif f"nvcc {version}" in text and cells[-3:] != figures:
            stop(f"{LESSON.parent.name}: version {number} has {', '.join(cells[-3:])}, compiled {', '.join(figures)}: "
                 "make nvcc-check UPDATE=1")
    if update:
        LESSON.write_text(text)


class Budget:
    """A line of budgets.txt, and the kernels that it is for."""

    def __init__(self, line):
        fields = line.split()
        if len(fields) != 7 or not re.fullmatch(r"sm_\d+", fields[2]) or not all(f.isdigit() for f in fields[3:6]):
            stop(f"{BUDGETS.name}: not a budget: {line}")
        self.file, self.pattern, self.arch = fields[0], fields[1], int(fields[2][3:])
        self.registers, self.stack, self.issued = map(int, fields[3:6])
        self.marks = fields[6].split(",")
        self.costs = []  # (kernel, hot loop)

    def over(self):
        """Returns a line of text for each number above the budget."""
        return [f"{kernel.name} for sm_{self.arch}: {n} {what}, the budget is {most}"
                for kernel, loop in self.costs
                for what, n, most in [("registers", kernel.registers, self.registers), ("bytes of stack", kernel.stack, self.stack),
                                      ("issued instructions", loop.count(), self.issued)] if n > most]

    def row(self):
        """Returns the row of the table: the costliest of the kernels, and the budget."""
        kernel, loop = max(self.costs, key=lambda c: c[1].count())
        # Known for 16 x 8 x 16 products only, not for TF32's.
        products = 0 if "Tf32" in kernel.name else loop.issued["HMMA"]
        busy = f"{loop.busy_tensor_cores(self.arch):.0f} %" if products else "-"
        rate = min(h100.MMA.value * h100.TENSOR.value, FLOP_OF_HMMA * products / loop.count() * h100.issue_rate())
        predicted = f"{rate / 1e12:.0f}" if products and self.arch == 90 else "-"
        return (f"{self.pattern:<28} sm_{self.arch}  {max(k.registers for k, _ in self.costs):>4} of {self.registers:<4} "
                f"{max(k.stack for k, _ in self.costs):>4} of {self.stack:<4} {kernel.shared:>6}  "
                f"{loop.count():>5} of {self.issued:<5} {loop.inner:>4}  {loop.issued['HMMA']:>4}  {busy:>5}  {predicted:>7}  {self.file}")


def read_budgets(text):
    return [Budget(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def measure(budgets, folder):
    for file in dict.fromkeys(b.file for b in budgets):
        made = folder / f"{file}.o"
        kernels = list(sass.kernels_of(made)) if made.exists() else []
        for budget in (b for b in budgets if b.file == file):
            budget.costs = [(k, k.hot_loop(budget.marks)) for k in kernels
                            if k.arch == budget.arch and fnmatch.fnmatchcase(k.name, budget.pattern)]
            if not budget.costs:
                stop(f"{BUDGETS.name}: {file} has no kernel {budget.pattern} for sm_{budget.arch}")
            for kernel, loop in budget.costs:
                if not loop.issued[budget.marks[0]]:
                    stop(f"{BUDGETS.name}: {kernel.name} has no {budget.marks[0]} on its path: another mark is needed")


def check_budgets(folder, version):
    text = BUDGETS.read_text()
    budgets = read_budgets(text)
    measure(budgets, folder)
    print("kernel                       arch    registers        stack  shared         issued loops  HMMA  share  "
          "TFLOP/s  file")
    print("\n".join(b.row() for b in budgets))
    if f"nvcc {version}" not in text:
        print(f"nvcc-check: {BUDGETS.name} is for another nvcc: nothing was compared with it")
        return len(budgets)
    if over := [line for b in budgets for line in b.over()]:
        stop(f"above the budgets of {BUDGETS.name}:\n" + "\n".join(over))
    plant_growth(text, budgets)
    return len(budgets)


def plant_growth(text, budgets):
    """Every figure of every budget must refuse a kernel that costs one more."""
    for budget in budgets:
        most = [max(k.registers for k, _ in budget.costs), max(k.stack for k, _ in budget.costs),
                max(loop.count() for _, loop in budget.costs)]
        for at, what in enumerate(["registers", "stack", "issued"]):
            kept = getattr(budget, what)
            setattr(budget, what, most[at] - 1)
            if not budget.over():
                stop(f"a budget of {what} below the cost of {budget.pattern} was not refused")
            setattr(budget, what, kept)


# Mistake: files of the rings' kernels, a pattern, and its replacement.
PLANTED = {
    "an acquire of the device's scope": ("*.ptx", r"ld\.acquire\.sys", "ld.acquire.gpu"),
    "a release of the device's scope": ("*.ptx", r"st\.release\.sys", "st.release.gpu"),
    "a volatile load, which orders nothing": ("*.ptx", r"ld\.relaxed\.sys", "ld.volatile"),
    "a compare-and-swap of the block's scope": ("*.ptx", r"atom\.cas\.relaxed\.gpu", "atom.cas.relaxed.cta"),
    "a spill": ("*.ptxas", r"\b0 bytes spill stores", "8 bytes spill stores"),
    "an array on the stack": ("*.ptxas", r"\b0 bytes stack frame", "64 bytes stack frame"),
    "a kernel without launch bounds": ("ring.cu.ptx", r"\.maxntid \d+, 1, 1", ""),
    "launch bounds of a warp": ("ring.cu.ptx", r"\.maxntid \d+", ".maxntid 32"),
    "a second fence": ("ring.cu.ptx", r"fence\.acq_rel\.sys;", "fence.acq_rel.sys; fence.acq_rel.sys;"),
    "no fence": ("ring.cu.ptx", r"fence\.acq_rel\.sys;", ""),
    "a release of a counter": ("ring.cu.ptx", r"st\.relaxed\.sys\.(?=(?:\w+\.)*[bus]64)", "st.release.sys."),
    "a remainder for each load": ("direct.cu.ptx", r"\badd\.s32", "rem.s32"),
    "stores of elements at any address": ("direct.cu.ptx", r"st\.volatile\.global\.u8", "st.global.f32"),
    "a line in two stores": ("*.ptx", r"st\.relaxed\.sys\.global\.v2\.b64", "st.relaxed.sys.global.b64"),
}


def plant_mistakes(folder):
    for what, (files, pattern, instead) in PLANTED.items():
        with tempfile.TemporaryDirectory() as copy:
            rings = pathlib.Path(copy) / RINGS
            shutil.copytree(folder / RINGS, rings)
            file = next(f for f in sorted(rings.glob(files)) if re.search(pattern, f.read_text()))
            everywhere = "any address" in what
            file.write_text(re.sub(pattern, instead, file.read_text(), count=0 if everywhere else 1))
            try:
                check_spills(kernels_of(pathlib.Path(copy)))
                check_scopes(pathlib.Path(copy))
                check_bounds(pathlib.Path(copy))
                check_hand_offs(pathlib.Path(copy))
                check_bytes(pathlib.Path(copy))
            except SystemExit:
                continue
        stop(f"{what} was planted into {file.name} and not refused")


def table_of(found, version):
    names = demangled(sorted({name for _, name, _ in found}))
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for (file, name, arch), cost in found.items():
        rows[(file, plain(names[name]))][arch].append(cost)
    archs = sorted({arch for _, _, arch in found})
    lines = ["# Registers of the kernels", "",
             f"From {version} by `make nvcc-check UPDATE=1`: the most of a kernel's versions (types, widths), and where one",
             "spills, the bytes. Compiled, not run.", "",
             "| file | kernel | versions | " + " | ".join(f"sm_{a}" for a in archs) + " |",
             "|---|---|---|" + "---|" * len(archs)]
    for (file, kernel), by_arch in sorted(rows.items()):
        cells = []
        for arch in archs:
            costs = by_arch.get(arch, [])
            spilled = max((c[2] for c in costs), default=0)
            cells.append(str(max((c[0] for c in costs), default="-")) + (f", spills {spilled}" if spilled else ""))
        lines.append(f"| {file} | {kernel} | {max(len(c) for c in by_arch.values())} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--update", action="store_true", help="write REGISTERS.md")
    p.add_argument("--only-budgets", action="store_true", help="check only budgets.txt; needs only its files")
    a = p.parse_args()
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    version = re.search(r"release ([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout)
    version = version[1] if version else "unknown"
    budgets = check_budgets(a.folder, version)
    if a.only_budgets:
        return
    found = kernels_of(a.folder)
    rings, handed = check_spills(found), check_scopes(a.folder)
    check_bounds(a.folder)
    check_hand_offs(a.folder)
    check_bytes(a.folder)
    plant_mistakes(a.folder)
    check_ladder(a.folder, version, a.update)
    version = f"nvcc {version}"
    table = table_of(found, version)
    if a.update:
        TABLE.write_text(table)
    elif not TABLE.exists() or (f"From {version} by" in TABLE.read_text() and TABLE.read_text() != table):
        stop(f"{TABLE.name} is not what {version} says now: look at the difference that make nvcc-check UPDATE=1 makes")
    print(f"nvcc-check: {len(found)} kernels; the rings' {rings} spill nothing, {handed} hand over at system scope; "
          f"{budgets} budgets kept; {len(PLANTED)} planted mistakes refused")


main()
