"""What a student's object may not ask for. A lab is about writing the thing: calling MPI, or the course's own answer,
is no solution; and no lab needs the file system, other processes, or the judge's channel unless its lab.toml allows it.
"""
import functools
import re
import subprocess

from labs.course.lab import LABS, ROOT

# What a symbol is, for the message. Mangled names: _ZN9ringsmith is namespace ringsmith.
GROUPS = [
    (r"P?MPI_\w+|nccl\w+", "calls a finished collective, {}: this lab is about writing it"),
    (r"_Z\w*9ringsmith\w*", "calls the course's runtime, {}: this lab is about writing it"),
    (r"_ZN3kit7channel\w*", "calls the judge's channel, {}"),
    (r"_?_?[eE]xit|quick_exit", "leaves the program by {}, before the judge has its answer"),
    (r"t?g?kill|killpg|pthread_kill|ptrace|getppid|process_vm_\w+|sigqueue", "reaches for other processes by {}"),
    (r"v?fork|clone3?|system|popen|exec[vl]\w*|posix_spawnp?|dlm?open|dlsym|prctl|unshare|setsid|setpgid",
     "starts or loads something by {}"),
    (r"open(at)?(64)?|f(re)?open(64)?|fdopen|creat(64)?|opendir|fdopendir|readlink\w*"
     r"|_ZNSt\d+basic_i?o?f(stream|ilebuf)\w*|_ZNSt10filesystem\w*",
     "opens files by {}: hidden tests and seeds are files"),
    (r"p?readv?(64)?|p?writev?(64)?|dprintf|vdprintf|sendfile(64)?|splice|fcntl(64)?|ioctl|dup[23]?",
     "uses file descriptors by {}: the judge's channel is one"),
    (r"socket|connect|bind|accept4?|shm_open|mmap(64)?|memfd_create", "makes a connection of its own by {}"),
]
# Definitions that would stand before the C library's or the kit's.
OWN = re.compile(r"main|" + "|".join(pattern for pattern, _ in GROUPS[3:]))
ASSEMBLY = re.compile(r"\b(__)?asm(__)?\b")
# The standard library's own semaphores and futures call syscall(): so it is the text that must not.
SYSTEM_CALL = re.compile(r"\bsyscall\b|\bSYS_\w+|\b__NR_\w+|##")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


@functools.cache
def _symbols(path, mtime):
    """(wanted, strongly defined) names of an object or archive."""
    wanted, defined = set(), set()
    for line in subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[-2] in "Uw":
            wanted.add(parts[-1])
        elif len(parts) == 3 and parts[1] in "TDBRWVi":
            defined.add((parts[2], parts[1]))
    return wanted, defined


def symbols(path):
    return _symbols(path, path.stat().st_mtime_ns)


def _readable(symbol):
    done = subprocess.run(["c++filt", symbol], capture_output=True, text=True)
    return re.sub(r"\(.*", "", done.stdout.strip() or symbol)


def _outside(lab, dependencies, folder):
    """Files of the repository that were included, and that the student's file has no business with."""
    allowed = [folder, LABS / "kit", *(lab.folder / d for d in lab.build.get("drivers", ["driver.cpp"]))]
    allowed += [ROOT / path for path in lab.build.get("includes", [])]
    if lab.build.get("vgpu"):
        allowed += [ROOT / "kernels/vgpu", ROOT / "runtime/base"]
    names = dependencies.read_text().replace("\\\n", " ").split()
    for name in names[1:]:
        path = (ROOT / name).resolve()
        if path.is_relative_to(ROOT) and not any(path.is_relative_to(a.resolve()) for a in allowed):
            return str(path.relative_to(ROOT))
        if re.search(r"/(openmpi|mpich)/|/nccl\.h$|/mpi\.h$", str(path)):
            return str(path)
    return None


def look_at_text(lab, text):
    """What can be seen before anything is compiled: None, or a message."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    if ASSEMBLY.search(code):
        return "has inline assembly"
    if SYSTEM_CALL.search(code) and "syscall" not in lab.build.get("allow", []):
        return f"makes system calls directly, or pastes words together ({SYSTEM_CALL.search(code).group()})"
    for name in INCLUDE.findall(code):
        if not name.startswith(("labs/kit/", *lab.build.get("includes", []))) and name not in lab.files:
            return f"includes {name}, which is not part of this lab's kit"
    return None


def look(lab, unit, libraries):
    """None, or what the compiled submission reaches for, as a message."""
    outside = _outside(lab, unit.folder / "needs.d", unit.folder)
    if outside:
        return f"includes {outside}, which is not part of this lab's kit"
    allowed = re.compile("|".join(lab.build.get("allow", [])) or r"(?!)")
    wanted, defined = symbols(unit.object)
    for symbol in sorted(wanted):
        plain = symbol.split("@")[0]
        if allowed.fullmatch(plain):
            continue
        for pattern, what in GROUPS:
            if re.fullmatch(pattern, plain):
                return what.format(_readable(plain))
    kit_defines = {name for path in libraries for name, kind in symbols(path)[1] if kind in "TDB"}
    for symbol, kind in sorted(defined):
        if kind in "TDBRi" and (OWN.fullmatch(symbol) or symbol in kit_defines):
            return f"defines {_readable(symbol)} anew, in place of the judge's or the C library's"
        if kind in "WV" and symbol in kit_defines:
            return f"defines {_readable(symbol)} anew, in place of the kit's"
    return None
