#!/usr/bin/env python3
"""sass.py FILE [NAME] [--marks HMMA,LDGSTS] [--blocks] [--arch N]: what nvcc has generated for each kernel, without
NVIDIA's tools.

FILE is a cubin, or an object file with uncompressed cubins (nvcc -no-compress). For each kernel whose name matches
NAME (a pattern as the shell's; with no wildcard, a part of the name) one line: registers, bytes of stack, bytes of
static shared memory, instructions in all, and the instructions that a warp issues in one pass of the hot loop.

The hot loop is the loop with the most instructions of the first mark; of several such loops, the shortest. A pass is
the path through the loop with the most marked instructions; of several such paths, the shortest. Therefore with the
marks HMMA,LDGSTS a branch for misaligned operands is not counted, and neither is a pass that copies nothing. A loop in
the hot loop is counted once, and the line says so. With "innermost" among the marks only loops without loops count. If
no loop has a mark, the path leads through the whole kernel.

The encoding of instructions is not documented. Each has 16 bytes, and bits 0 to 11 are the opcode. The names here are
those of cuobjdump; an opcode without a name is printed as a number (1 % of our kernels' instructions).
"""
import argparse
import collections
import dataclasses
import fnmatch
import pathlib
import re
import struct
import subprocess

# Arithmetic opcodes: bits 0 to 8. Bits 9 to 11 say which operands are registers, constants or immediate values.
ARITHMETIC = {
    0x02: "MOV", 0x07: "SEL", 0x08: "FSEL", 0x09: "FMNMX", 0x0a: "FSET", 0x0b: "FSETP", 0x0c: "ISETP", 0x10: "IADD3",
    0x11: "LEA", 0x12: "LOP3", 0x13: "IABS", 0x16: "PRMT", 0x17: "IMNMX", 0x19: "SHF", 0x1a: "SGXT", 0x1b: "BMSK",
    0x20: "FMUL", 0x21: "FADD", 0x22: "FSWZADD", 0x23: "FFMA", 0x24: "IMAD", 0x25: "IMAD.WIDE", 0x26: "IDP",
    0x27: "IMAD.HI", 0x28: "DMUL", 0x29: "DADD", 0x2a: "DSETP", 0x2b: "DFMA", 0x30: "HADD2", 0x31: "HFMA2",
    0x32: "HMUL2", 0x33: "HSET2", 0x34: "HSETP2", 0x36: "VIADD", 0x37: "IMMA", 0x3c: "HMMA", 0x3e: "F2FP",
    0x40: "HMNMX2", 0x45: "I2FP", 0x46: "VIADDMNMX", 0x48: "VIMNMX", 0x82: "UMOV", 0x87: "USEL", 0x8c: "UISETP",
    0x90: "UIADD3", 0x91: "ULEA", 0x92: "ULOP3", 0x96: "UPRMT", 0x99: "USHF", 0x9c: "UPLOP3", 0xa4: "UIMAD",
    0xa5: "UIMAD.WIDE", 0xa7: "UIMAD.HI", 0xca: "R2UR", 0x100: "FLO", 0x101: "BREV", 0x104: "F2F", 0x105: "F2I",
    0x106: "I2F", 0x107: "FRND", 0x108: "MUFU", 0x109: "POPC", 0x110: "F2F.64", 0x111: "F2I.64", 0x112: "I2F.64",
}
# The others: all 12 bits.
OTHER = {
    0x31d: "BAR", 0x348: "WARPSYNC", 0x355: "BMOV", 0x356: "BMOV",
    0x35d: "NANOSLEEP", 0x387: "STL", 0x388: "STS", 0x389: "SHFL", 0x38a: "ATOM", 0x38b: "ATOM.CAS", 0x3a8: "ATOMG",
    0x3a9: "ATOMG.CAS", 0x3c2: "R2UR", 0x3c4: "REDUX", 0x51d: "BAR", 0x547: "BRA", 0x589: "SHFL", 0x803: "P2R",
    0x804: "R2P", 0x805: "CS2R", 0x806: "VOTE", 0x81c: "PLOP3", 0x83b: "LDSM", 0x845: "I2FP", 0x886: "VOTEU",
    0x8c3: "S2UR", 0x918: "NOP", 0x919: "S2R", 0x91a: "DEPBAR", 0x941: "BSYNC", 0x942: "BREAK", 0x943: "CALL",
    0x944: "CALL", 0x945: "BSSY", 0x946: "YIELD", 0x947: "BRA", 0x948: "WARPSYNC", 0x949: "BRX", 0x94d: "EXIT",
    0x950: "RET", 0x956: "BMOV", 0x980: "LD", 0x981: "LDG", 0x983: "LDL", 0x984: "LDS", 0x985: "ST", 0x986: "STG",
    0x989: "SHFL", 0x98c: "ATOMS", 0x98e: "RED", 0x98f: "CCTL", 0x992: "MEMBAR", 0x9a8: "ATOMG", 0x9ab: "ERRBAR",
    0x9af: "LDGDEPBAR", 0x9c3: "S2UR", 0x9f0: "HGMMA", 0xab9: "ULDC", 0xac3: "ULDC", 0xb1d: "BAR", 0xb82: "LDC", 0xf89: "SHFL",
    0xfae: "LDGSTS",
}
ENDS = ("EXIT", "RET", "BRX")  # after these, no branch target is known
ALWAYS = 7                     # the number of the predicate that is always true
SIZE = 16                      # bytes of an instruction
CUDA_MACHINE, REGISTERS, STACK = 190, 0x2f, 0x11  # of ELF; attributes in .nv.info


@dataclasses.dataclass
class Instruction:
    name: str
    conditional: bool
    target: int | None  # index of the instruction that a branch leads to


@dataclasses.dataclass
class Block:
    first: int  # index of its first instruction
    instructions: list
    next: list = dataclasses.field(default_factory=list)  # numbers of blocks


@dataclasses.dataclass
class Loop:
    first: int  # address of its first instruction
    issued: collections.Counter
    inner: int  # loops within, which are counted once

    def count(self):
        return sum(self.issued.values())

    def busy_tensor_cores(self, arch):
        """The percentage of the tensor cores' peak that is left if a scheduler issues an instruction in each cycle. A
        16 x 8 x 16 product takes a scheduler's tensor core 4 cycles on an H100 and 8 on an A100."""
        return min(100.0, 100 * (4 if arch >= 90 else 8) * self.issued["HMMA"] / max(1, self.count()))


def opcode(number):
    arithmetic = ARITHMETIC.get(number & 0x1ff) if number >> 9 else None
    return OTHER.get(number) or arithmetic or f"x{number:03x}"


def decoded(code, arch):
    out = []
    for at in range(0, len(code) - SIZE + 1, SIZE):
        low, high = struct.unpack_from("<QQ", code, at)
        name, target = opcode(low & 0xfff), None
        if name == "BRA":
            distance = low >> 34 | (high & 0x3ffff) << 30  # 48 bits, in units of 4 bytes
            distance -= (distance & 1 << 47) << 1
            if arch >= 90:  # 8 bits more, lower ones
                distance = distance << 8 | low >> 16 & 0xff
            target = (at + SIZE + 4 * distance) // SIZE
        # A branch depends on the predicate that every instruction has, and on a second one.
        conditional = low >> 12 & 0xf != ALWAYS or (name == "BRA" and high >> 23 & 0xf != ALWAYS)
        out.append(Instruction(name, conditional, target))
    return out


class Kernel:
    def __init__(self, name, arch, registers, stack, shared, code):
        self.name, self.arch, self.registers, self.stack, self.shared = name, arch, registers, stack, shared
        self.instructions = decoded(code, arch)
        while self.instructions and self.instructions[-1].name == "NOP":  # the padding at the end
            self.instructions.pop()
        self.blocks = self._blocks()

    def _blocks(self):
        starts, n = {0}, len(self.instructions)
        for i, instruction in enumerate(self.instructions):
            if instruction.name == "BRA" or instruction.name in ENDS:
                starts |= {i + 1, instruction.target}
        order = sorted(s for s in starts if s is not None and 0 <= s < n)
        number = {first: b for b, first in enumerate(order)}
        blocks = [Block(a, self.instructions[a:z]) for a, z in zip(order, order[1:] + [n])]
        for b, block in enumerate(blocks):
            last = block.instructions[-1]
            if last.target in number:
                block.next.append(number[last.target])
            if (last.name != "BRA" and last.name not in ENDS or last.conditional) and b + 1 < len(blocks):
                block.next.append(b + 1)
        return blocks

    def _backward(self):
        """Edges of a depth-first search that lead back to a block on its path: {(from, to)}."""
        edges, done, path = set(), set(), []
        stack = [(0, iter(self.blocks[0].next))] if self.blocks else []
        on_path = {0}
        while stack:
            b, rest = stack[-1]
            for to in rest:
                if to in on_path:
                    edges.add((b, to))
                elif to not in done:
                    on_path.add(to)
                    stack.append((to, iter(self.blocks[to].next)))
                    break
            else:
                stack.pop()
                on_path.discard(b)
                done.add(b)
        return edges

    def _path(self, body, first, last, backward, marks):
        """The path in `body` from block `first` to one of `last` with the most marks, then the fewest instructions."""
        best = {}

        def cost(b):
            names = [i.name for i in self.blocks[b].instructions]
            return sum(n in marks for n in names), -len(names)

        for b in self._sorted(body, backward):
            if b == first:
                best[b] = (cost(b), [b])
                continue
            before = [best[p] for p in body if b in self.blocks[p].next and (p, b) not in backward and p in best]
            if before:
                (marked, length), path = max(before, key=lambda x: x[0])
                mine = cost(b)
                best[b] = ((marked + mine[0], length + mine[1]), path + [b])
        ends = [best[b] for b in last if b in best]
        return max(ends, key=lambda x: x[0])[1] if ends else []

    def _sorted(self, body, backward):
        """The blocks of `body` so that each follows its predecessors."""
        waits = collections.Counter(to for b in body for to in set(self.blocks[b].next)
                                    if to in body and (b, to) not in backward)
        ready = [b for b in body if waits[b] == 0]
        while ready:
            b = ready.pop()
            yield b
            for to in set(self.blocks[b].next):
                if to in body and (b, to) not in backward:
                    waits[to] -= 1
                    if waits[to] == 0:
                        ready.append(to)

    def _body(self, head, tail):
        """The blocks from which `tail` can be reached without passing `head`."""
        before = collections.defaultdict(set)
        for b, block in enumerate(self.blocks):
            for to in block.next:
                before[to].add(b)
        body, todo = {head, tail}, [tail] if tail != head else []
        while todo:
            for b in before[todo.pop()]:
                if b not in body:
                    body.add(b)
                    todo.append(b)
        return body

    def hot_loop(self, marks, innermost=False):
        backward = self._backward()
        loops = []
        for tail, head in backward:
            body = self._body(head, tail)
            if 0 in body and head != 0:
                continue  # not a loop with one entry
            path = self._path(body, head, [tail], backward, marks)
            issued = collections.Counter(i.name for b in path for i in self.blocks[b].instructions)
            inner = sum(t in path and h in path and (t, h) != (tail, head) and h != head for t, h in backward)
            loops.append(Loop(self.blocks[head].first * SIZE, issued, inner))
        innermost = innermost or "innermost" in marks
        loops = [loop for loop in loops if loop.issued[marks[0]] and not (innermost and loop.inner)]
        if loops:
            return max(loops, key=lambda x: (x.issued[marks[0]], -x.count()))
        ends = [b for b, block in enumerate(self.blocks) if block.instructions[-1].name == "EXIT"]
        path = self._path(set(range(len(self.blocks))), 0, ends, backward, marks)
        return Loop(0, collections.Counter(i.name for b in path for i in self.blocks[b].instructions),
                    sum(t in path and h in path for t, h in backward))


def plain(name):
    """A demangled name without return type, the project's namespaces, casts and parameters: forward<64>."""
    name = re.sub(r"\((anonymous namespace|int|bool|unsigned int|long|unsigned long|short)\)(::)?", "", name)
    name = re.sub(r"^void ", "", name).replace("ringsmith::", "").replace("kernels::cuda::", "")
    depth = 0
    for at, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:at]
    return name


def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [plain(line) for line in out.splitlines()]


def attributes(info, registers, stack):
    """Reads {symbol: value} of registers and stack from the section .nv.info."""
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind != 4:  # the value is in `size`
            continue
        if attribute in (REGISTERS, STACK) and size >= 8:
            symbol, value = struct.unpack_from("<II", info, at)
            (registers if attribute == REGISTERS else stack)[symbol] = value
        at += size


def kernels_of_cubin(data, begin):
    """The kernels of the cubin at data[begin:]."""
    table, = struct.unpack_from("<Q", data, begin + 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, begin + 0x3a)
    flags, = struct.unpack_from("<I", data, begin + 0x30)
    arch = flags >> 8 & 0xff if data[begin + 8] >= 8 else flags & 0xff  # of the ABI of CUDA 13, or older
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, begin + table + i * entry) for i in range(count)]

    def content(s):
        return data[begin + s[4]:begin + s[4] + s[5]]

    def text(strings, at):
        return strings[at:strings.index(b"\0", at)].decode()

    titles = [text(content(sections[names]), s[0]) for s in sections]
    registers, stack, shared, code, symbols = {}, {}, {}, {}, {}
    for title, s in zip(titles, sections):
        if title == ".nv.info":
            attributes(content(s), registers, stack)
        elif title.startswith(".nv.shared."):
            shared[title.removeprefix(".nv.shared.")] = s[5]
        elif title.startswith(".text."):
            code[title.removeprefix(".text.")] = content(s)
        elif title == ".symtab":
            strings, table = content(sections[s[6]]), content(s)
            symbols = {text(strings, struct.unpack_from("<I", table, 24 * i)[0]): i for i in range(len(table) // 24)}
    for (mangled, body), name in zip(code.items(), demangled(list(code)) if code else []):
        symbol = symbols.get(mangled)
        if symbol in registers:
            yield Kernel(name, arch, registers[symbol], stack.get(symbol, 0), shared.get(mangled, 0), body)


def kernels_of(path, arch=None):
    """The kernels of a cubin or an object file, for one architecture or for all."""
    data = pathlib.Path(path).read_bytes()
    for match in re.finditer(rb"\x7fELF\x02\x01", data):
        if struct.unpack_from("<H", data, match.start() + 18)[0] == CUDA_MACHINE:
            for kernel in kernels_of_cubin(data, match.start()):
                if arch in (None, kernel.arch):
                    yield kernel


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", type=pathlib.Path)
    p.add_argument("name", nargs="?", default="*")
    p.add_argument("--marks", default="HMMA,LDGSTS", help="opcodes that the hot loop and its path contain")
    p.add_argument("--blocks", action="store_true", help="print the instructions of each basic block, too")
    p.add_argument("--arch", type=int, help="only this architecture, e.g. 90")
    a = p.parse_args()
    pattern = a.name if "*" in a.name else f"*{a.name}*"
    found = [k for k in kernels_of(a.file, a.arch) if fnmatch.fnmatchcase(k.name, pattern)]
    if not found:
        raise SystemExit(f"sass.py: no kernel {a.name} in {a.file} (compressed? nvcc -no-compress)")
    for k in found:
        loop = k.hot_loop(a.marks.split(","))
        print(f"sm_{k.arch} {k.name}: {k.registers} registers, {k.stack} stack, {k.shared} shared, {len(k.instructions)} "
              f"instructions, {loop.count()} issued in a pass of the loop at {loop.first:#x}"
              + (f", {loop.inner} inner loops counted once" if loop.inner else ""))
        print("   " + " ".join(f"{name}:{n}" for name, n in loop.issued.most_common(24)))
        for b, block in enumerate(k.blocks if a.blocks else []):
            names = collections.Counter(i.name for i in block.instructions)
            print(f"   {b}: {block.first * SIZE:#x} {len(block.instructions)} -> {block.next} "
                  + " ".join(f"{name}:{n}" for name, n in names.most_common(12)))


if __name__ == "__main__":
    main()
