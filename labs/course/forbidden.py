"""Rules for the names and files that a submission may use. A lab is about writing an algorithm, so calling MPI, or the
course's own solution, is not a solution. No lab needs files, other processes or the judge's channel unless its lab.toml
allows them. The text is checked word by word, as apart.py returns it. The object is checked by its symbols: a symbol
that is not in symbols.txt, in the linked libraries or in `allow` of lab.toml is rejected. A symbol that matches GROUPS
cannot be used by accident: it is a cheat.
"""
import functools
import pathlib
import re
import subprocess

from labs.course.lab import LABS, ROOT

# Symbols that no submission would call by mistake, with messages. They are compared without leading underscores and
# without suffixes such as _chk and 64. Mangled names: _ZN9ringsmith is namespace ringsmith.
GROUPS = [
    (r"P?MPI_\w+|nccl\w+", "calls a finished collective, {}: this lab is about writing it"),
    (r"Z\w*9ringsmith\w*", "calls the course's runtime, {}: this lab is about writing it"),
    (r"ZN3kit7channel\w*", "calls the judge's channel, {}"),
    (r"[eE]xit|quick_exit", "ends the program by {}, before the judge has its answer"),
    (r"t?g?kill|killpg|pthread_(kill|sigqueue|cancel)|ptrace|getppid|process_vm_\w+|sigqueue|pidfd_\w+",
     "accesses other processes by {}"),
    (r"v?[fF]ork|forkpty|openpty|login_tty|daemon|clone3?|system|popen|f?exec[vl]\w*|posix_spawn\w*|dlm?open|dlv?sym"
     r"|prctl|unshare|setns|setsid|setpgid|wordexp|glob|ZN5boost7process\w*",
     "starts or loads something by {}"),
    (r"open(at|at2|dir)?|f(re|d)?open|fdopendir|creat|readlink\w*|scandir\w*|n?ftw|fts_\w+|mkstemps?|tmpfile"
     r"|ZN?K?St\d+basic_i?o?f(stream|ilebuf)\w*|ZNK?St10filesystem\w*",
     "opens files by {}: hidden tests and seeds are files"),
    (r"unlink(at)?|remove|rename(at2?)?|f?truncate|rmdir|mkdir(at)?|[fl]?ch(mod|own)(at)?|(sym)?link(at)?|mknod(at)?"
     r"|mkfifo(at)?|utimens?at|f?chdir|chroot|mount|umount2?",
     "changes files by {}"),
    (r"p?readv?2?|p?writev?2?|v?dprintf|sendfile|splice|tee|copy_file_range|fcntl|ioctl|dup[23]?",
     "uses file descriptors by {}: the judge's channel is one"),
    (r"socket(pair)?|connect|bind|listen|accept4?|send(to|m?msg)?|recv(from|m?msg)?|getaddrinfo|gethostby\w+"
     r"|(shm|sem)_(open|unlink)|mq_\w+|shm(get|at|ctl)|msg(get|snd|rcv)|mmap|mremap|mprotect|memfd_create",
     "creates a connection or a mapping by {}"),
]

# Attributes that do not change a name's meaning, unlike alias, ifunc, section, weak, constructor and symver.
ATTRIBUTES = set("""aligned always_inline artificial cold const deprecated fallthrough flatten format gnu_inline hot
    leaf malloc may_alias maybe_unused nodiscard noinline nonnull noreturn nothrow optimize packed pure returns_nonnull
    target tls_model unused vector_size visibility warn_unused_result""".split())
PRAGMAS = re.compile(r"once|(GCC )?unroll\b.*|nounroll|GCC ivdep|(GCC|clang) diagnostic .*|clang loop .*|STDC .*"
                     r"|GCC (push|pop)_options|omp\b.*|message.*")
# Headers of the kit that belong to the judge.
JUDGES = re.compile(r"labs/kit/(channel|driver|outcome|board|guarded|granted|audit|heap/\w+|separate/\w+"
                    r"|(fabric|cluster)/\w+_state|nodes/(staged|whereabouts)|verbs/\w+|explorer/\w+)\.hpp")
COURSES = ("kit", "ringsmith", "explorer")  # namespaces
# Names of the namespace kit that only drivers use. With them, a submission could answer for the driver, or forge the
# results that the driver looks for.
DRIVERS = set("""Audit Cluster Counted Fabric Guarded Line On Processes Registered Separate
    cluster_options counted describe_hangs_with fabric_options runs_of""".split())
# Files that a submission includes only to look for answers.
COURSE = re.compile(r"[/.].*|(labs(?!/kit/)|lessons|slides|tests|runtime|kernels|work|build)/.*|.*\.\./.*"
                    r"|.*\.(py|toml|txt|json)")
KEYWORDS = set("""alignas alignof and and_eq auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await co_return
    co_yield decltype default delete do double dynamic_cast else enum explicit export extern false final float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq override
    private protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while xor xor_eq""".split())


@functools.cache
def _allowed():
    """The symbols of symbols.txt."""
    lines = pathlib.Path(__file__).with_name("symbols.txt").read_text().splitlines()
    return re.compile("|".join(line for line in lines if line and not line.startswith("#")))


@functools.cache
def _symbols(path, mtime):
    """Returns the undefined symbols of an object or archive, and its defined symbols with nm's letters."""
    wanted, defined = set(), set()
    for line in subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[-2] in "Uwv":
            wanted.add(parts[-1])
        elif len(parts) == 3 and parts[1] in "TDBRWVGSCiu":
            defined.add((parts[2], parts[1]))
    return wanted, defined


def symbols(path):
    return _symbols(path, path.stat().st_mtime_ns)


def _readable(symbol):
    done = subprocess.run(["c++filt", symbol], capture_output=True, text=True)
    return re.sub(r"\(.*", "", done.stdout.strip() or symbol)


def _group(symbol):
    """Returns the reason to reject a symbol, or None."""
    bare = re.sub(r"(_2|_chk|64|_nocancel)+$", "", re.sub(r"^_*(libc_)?", "", symbol))
    return next((what for pattern, what in GROUPS if re.fullmatch(pattern, bare)), None)


def not_there(lab, message):
    """Returns a message if the compiler did not find a file that no submission has a reason to
    include."""
    found = re.search(r"error: '?([^\n:']+)'?(: No such file| file not found|: Permission denied|: Is a dir)", message)
    if not found or not COURSE.fullmatch(found.group(1)):
        return None
    return f"includes {found.group(1)}, which is not part of this lab's kit"


def _included(lab, written):
    name = written[1:-1]
    own = (LABS / "kit", *(ROOT / path for path in lab.build.get("includes", [])))
    there = (ROOT / name).resolve()
    outside = there.exists() and not any(there.is_relative_to(path.resolve()) for path in own)
    if COURSE.fullmatch(name) and name not in lab.build.get("includes", []) or outside or JUDGES.fullmatch(name):
        return f"includes {name}, which is not part of this lab's kit"
    return None


@functools.cache
def _kit_words(drivers):
    """Returns the identifiers in the kit's and the drivers' code, except very short ones and those in all capitals."""
    found = set()
    for path in [*(LABS / "kit").rglob("*.hpp"), *drivers]:
        found.update(re.findall(r"[A-Za-z_]\w{2,}", re.sub(r'//[^\n]*|"[^"\n]*"', "", path.read_text())))
    return {word for word in found if not word.isupper()}


def _attributes(words):
    """Yields the names of attributes, __aligned__ as aligned."""
    for i, word in enumerate(words):
        if word in ("__attribute__", "__attribute", "__declspec"):
            depth = 0
            for name in words[i + 1:]:
                depth += (name == "(") - (name == ")")
                if depth == 0:
                    break
                if depth == 2 and re.match(r"\w", name):
                    yield name.strip("_")
        elif word in ("gnu", "clang", "__gnu__") and words[i + 1:i + 2] == ["::"]:
            yield words[i + 2].strip("_")
        elif word == "using" and words[i - 2:i] == ["[", "["]:
            yield "using"


def _specialized(words, at):
    """True if the template <> at `at` specializes a name in one of the course's namespaces."""
    for i in range(at + 3, len(words)):
        if words[i] in "{;(":
            return False
        if words[i] in COURSES and words[i + 1] == "::" and words[i - 1] not in ("<", ",", "const"):
            return True
    return False


def _defines(words, at):
    """True if the class, struct, ... at `at` defines a class in one of the course's namespaces."""
    name = at + 2 if words[at + 1:at + 2] == ["::"] else at + 1
    if words[name:name + 1] == [] or words[name] not in COURSES or words[name + 1:name + 2] != ["::"]:
        return False
    end = next((word for word in words[name + 2:] if word in "{;(,>="), "")
    return end == "{"


def _names_a_member(words, at):
    """True if the declaration that begins with the word template at `at` has &A::B among its template arguments: in a
    specialization, the compiler does not check whether B is private."""
    for i in range(at + 1, len(words) - 2):
        if words[i] in "{;":
            return False
        operand = words[i - 1] == "return" or not re.match(r"[\w)\]>&*]", words[i - 1])
        if words[i] == "&" and operand and "::" in words[i + 1:i + 3]:
            return True
    return False


def refuse_text(text):
    """Returns a message about a construct that can access the driver's internals, else None. It need not be
    intentional, so it is not a cheat."""
    words = ["", "", "", "", *text.words, ""]
    for i, word in enumerate(words):
        if word == "template" and words[i + 1] != "<" and words[i - 1] not in (".", "->", "::"):
            return ("instantiates a template explicitly (template ...;), which may name private members: leave it out, "
                    "the compiler instantiates what is used")
        if word == "template" and _names_a_member(words, i):
            return "has the address of a member (&A::B) among template arguments of a declaration"
        if word not in COURSES:
            continue
        before = i - 1 if words[i - 1] == "::" else i
        if words[before - 1] == "=" and words[before - 3] == "namespace":
            return f"gives the namespace {word} another name: write {word}:: instead"
        if words[i + 1:i + 2] == ["::"] and words[i + 2:i + 3] and words[i + 2] in DRIVERS:
            return f"uses {word}::{words[i + 2]}, which belongs to the judge's driver"
    return None


def look_at_text(lab, text):
    """Checks an apart.Text. Returns a message about a construct that no submission may use, else
    None."""
    trouble = next(filter(None, (_included(lab, written) for written in text.includes)), None)
    if trouble:
        return trouble
    words, allowed = text.words, lab.build.get("allow", [])
    for i, word in enumerate(words):
        if word in ("asm", "__asm", "__asm__"):
            return "has inline assembly"
        if word == "syscall" and word not in allowed:
            return "makes system calls directly (syscall)"
        if word.startswith("_Z"):
            return f"names a symbol by its mangled name, {word}"
        if word in COURSES and "namespace" in (words[i - 1], words[i - 2] if words[i - 1] == "::" else ""):
            return f"opens the namespace {word}, which is the course's"
        if word in ("class", "struct", "union", "enum") and _defines(words, i):
            return "defines a class of the kit"
        if word == "template" and words[i + 1:i + 3] == ["<", ">"] and _specialized(words, i):
            return "specializes a template of the kit"
    for name in _attributes(words):
        if name not in ATTRIBUTES:
            return f"gives a name another meaning by the attribute {name}"
    for pragma in text.pragmas:
        if not PRAGMAS.fullmatch(pragma):
            return f"changes the compiler by #pragma {pragma}"
    drivers = tuple(lab.folder / d for d in lab.build.get("drivers", ["driver.cpp"]))
    for name in text.macros:
        if name in KEYWORDS or name in _kit_words(drivers):
            return f"defines {name}, a word of the language or of the kit, as a macro"
    return None


def _outside(lab, folder):
    """The first included file that a student's file must not include, or None. folder: the unit's, with needs.txt."""
    allowed = [folder, LABS / "kit", *(lab.folder / d for d in lab.build.get("drivers", ["driver.cpp"]))]
    allowed += [ROOT / path for path in lab.build.get("includes", [])]
    if lab.build.get("vgpu"):
        allowed += [ROOT / "kernels/vgpu", ROOT / "runtime/base"]
    for name in (folder / "needs.txt").read_text(errors="surrogateescape").splitlines():
        path = (ROOT / name).resolve()
        if path.is_relative_to(ROOT) and not any(path.is_relative_to(a.resolve()) for a in allowed):
            return str(path.relative_to(ROOT))
        if re.search(r"/(openmpi|mpich)/|/nccl\.h$|/mpi\.h$", str(path)):
            return str(path)
    return None


WRITABLE = re.compile(r"\.(data|bss|tdata|tbss)(?!\.rel\.ro)")


def _static(lab, unit):
    """The first static variable of the students' files, or None. Const variables that the compiler has initialized do
    not count. Variables of the drivers and the kit are recognized by the words in their names."""
    found = []
    for line in subprocess.run(["objdump", "-t", str(unit.object)], capture_output=True, text=True, check=True
                               ).stdout.splitlines():
        *_, section, size, name = ["", "", "", *line.split()]  # after the address and flags
        if WRITABLE.match(section) and int(size, 16) > 0 and not name.startswith((".", "_ZGV", "DW.")):
            found.append(name)
    readable = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True).stdout.splitlines()
    drivers = tuple(lab.folder / d for d in lab.build.get("drivers", ["driver.cpp"]))
    known = {"std", "__ioinit", "__tls_guard", "anonymous", "namespace"} | _kit_words(drivers)
    for name in readable:
        own = re.search(r"\blab\d\d::", name)
        words = re.findall(r"[A-Za-z_]\w*", name)
        if own or not all(word in known or word.startswith("registered_") for word in words):
            return name
    return None


def look(lab, unit, libraries):
    """Checks a compiled submission. Returns None, or (message, whether it is a cheat)."""
    outside = _outside(lab, unit.folder)
    if outside:
        return f"includes {outside}, which is not part of this lab's kit", True
    allowed = re.compile("|".join(lab.build.get("allow", [])) or r"(?!)")
    wanted, defined = symbols(unit.object)
    linked = {name: kind for path in libraries for name, kind in symbols(path)[1]}
    unknown = None
    for symbol in sorted(wanted):
        plain = symbol.split("@")[0]
        if allowed.fullmatch(plain):
            continue
        group = _group(plain)
        if group:
            return group.format(_readable(plain)), True
        if not _allowed().fullmatch(plain) and (plain not in linked or plain == "main"):
            unknown = unknown or plain
    for symbol, kind in sorted(defined):
        c_name = not symbol.startswith(("_Z", "DW.ref."))
        if kind in "TDBRGSCi" and (c_name or _group(symbol) or linked.get(symbol, "W") in "TDB") or \
                kind in "WVu" and (c_name or linked.get(symbol, "W") in "TDB"):
            return f"defines {_readable(symbol)}, in place of the judge's or the C library's", True
    if unknown:
        return (f"it asks for {_readable(unknown)}, which is not among what a lab may use "
                "(labs/course/symbols.txt)"), False
    static = None if lab.build.get("statics", True) else _static(lab, unit)
    if static:
        return f"it has the static variable {static}; this lab forbids them (its README.md, Rules)", False
    return None
