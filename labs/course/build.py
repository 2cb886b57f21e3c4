"""Builds a driver from a student's files: preprocess, check the text, compile, check the object, link.
Each compiler step that reads a student's text runs in a sandbox and has a deadline.

All results are stored in build/labs/cache/KEY, where KEY is the hash of all inputs. The same text is
compiled only once, so a mutant that was judged yesterday starts immediately.
"""
import collections
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

from labs.course import apart, forbidden, sandbox
from labs.course.lab import BUILD, PATIENCE, ROOT, select
from labs.course.reading import read_files
from labs.course.split import texts
from labs.course.verdicts import AuthorError, Cheat, Crash

CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", "-ffp-contract=off", "-D_GLIBCXX_ASSERTIONS",
         "-fno-strict-aliasing", "-I."]  # relative to ROOT, so that all copies of the course can share the cache
LIBRARIES = ["-pthread"]
COMPILED = (".cpp", ".cu", ".c")
# CUDA code without a GPU: the emulator, compiled by the same compiler ([build] vgpu = true in lab.toml).
VGPU = {"patterns": ["kernels/vgpu/*.[ch]pp", "runtime/base/error.[ch]pp"],
        "flags": ["-Ikernels/vgpu/include", "-DRINGSMITH_VGPU", "-Wno-unknown-pragmas"],
        "link": ["-lboost_context", "-lfmt"]}
LONGEST = 1800 * PATIENCE   # seconds per compiler step by the wall clock; sandbox.py limits its processor time
MOST_WORDS = 1 << 20        # maximum number of characters read of a compiler's output
_making = collections.defaultdict(threading.Lock)    # one thread at a time makes a library
_compilers = threading.Semaphore(max(2, os.cpu_count() or 2))  # for the libraries' units that compile simultaneously


class Broken(Crash):
    """The student's file does not compile. The message is the compiler's output."""
    status = "does not compile"


def _hash(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]


@functools.cache
def _compiler():
    try:
        done = subprocess.run([CXX, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise AuthorError(f"no compiler: {CXX} does not run (Debian, Ubuntu: apt install g++)") from None
    return done.stdout.splitlines()[0]


def sources_of(patterns):
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def _new(place):
    """Creates a temporary folder, and removes the folders of killed judges."""
    sandbox.sweep(place, ".new")
    new = pathlib.Path(tempfile.mkdtemp(dir=place, prefix=f".new-{os.getpid()}-"))
    new.chmod(0o755)
    return new


def _in_place(folder, make):
    """Creates a folder once. Other processes see it either complete or not at all."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = _new(folder.parent)
    try:
        make(new)
        new.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was faster
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def units_of(sources):
    """Returns texts that together include all sources, at most eleven in each: reading the standard headers takes most
    of the time."""
    count = -(-len(sources) // 11)
    return ["".join(f'#include "{path.relative_to(ROOT)}"\n' for path in sources[at::count]) for at in range(count)]


class Library:
    """A static library of the kit or of a lab. Its units include several files, so file-local names
    must be unique."""

    def __init__(self, name, patterns, flags):
        self.name, self.flags = name, flags
        self.sources = [p for p in sources_of(patterns) if p.suffix in COMPILED]
        texts_in = [p.read_bytes() for p in sources_of(patterns + ["labs/kit/*.hpp"])]
        self.folder = BUILD / "cache" / f"{name}-{_hash(_compiler(), FLAGS, flags, *texts_in)}"
        self.file = self.folder / f"lib{name}.a"

    def make(self):
        with _making[self.folder]:  # labs that are judged simultaneously need the same library
            _in_place(self.folder, self._make)

    def _make(self, new):
        def compile_one(at, text):
            source, target = new / f"{at}.cpp", new / f"{at}.o"
            source.write_text(text)
            with _compilers:
                done = subprocess.run([CXX, *FLAGS, *self.flags, "-c", str(source), "-o", str(target)], cwd=ROOT,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise AuthorError(f"{self.name} does not compile:\n{done.stdout}")
            return str(target)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            objects = list(pool.map(compile_one, *zip(*enumerate(units_of(self.sources)))))
        subprocess.run(["ar", "rcs", str(new / self.file.name), *objects], check=True)


def _built_vgpu():
    """Returns the emulator's libraries from `make build` if they are newer than its sources, else
    []."""
    newest = max(p.stat().st_mtime for p in sources_of(VGPU["patterns"]))
    for built in sorted(ROOT.glob("build/*/libringsmith_vgpu.a")):
        base = built.with_name("libringsmith_base.a")
        if "release" in str(built) and built.stat().st_mtime > newest and base.exists():
            return [built, base]
    return []


def libraries_of(lab):
    """Returns the files that a lab's driver links, and the libraries to be made."""
    wanted = [Library(name, patterns, flags_of(lab)) for name, patterns in lab.build.get("libraries", {}).items()]
    wanted.append(Library("kit", ["labs/kit/*.cpp"], []))
    built = _built_vgpu() if lab.build.get("vgpu") else []
    if lab.build.get("vgpu") and not built:
        wanted.insert(0, Library("vgpu", VGPU["patterns"], VGPU["flags"]))  # takes longest
    return [library.file for library in wanted] + built, wanted


def make_all(libraries, units=()):
    """Makes the libraries and units, several at a time."""
    with concurrent.futures.ThreadPoolExecutor(len(libraries) + len(units) + 1) as pool:
        jail = pool.submit(sandbox.here)  # it compiles confine.cpp; no unit may be compiled outside the sandbox
        jobs = [pool.submit(library.make) for library in libraries]
        jail.result()
        jobs += [pool.submit(unit.make) for unit in units]
        for job in jobs:
            job.result()


def swapped_in(lab):
    """Returns the files of earlier labs that the lab uses: the student's own or, with LAB06=ref, the course's."""
    found = []
    for number in lab.build.get("uses", []):
        earlier, = select(number)
        reference = os.environ.get(f"LAB{number}") == "ref"
        own = {f: earlier.work / f for f in earlier.files}
        if reference and not earlier.has_solution:
            raise AuthorError(f"LAB{number}=ref: the course's lab {number} is not in a handout: make lab N={number}")
        if not reference and not all(p.exists() for p in own.values()):
            raise AuthorError(f"lab {lab.number} builds on your lab {number}, which is not in {earlier.work}: make lab "
                              f"N={number}" + f", or LAB{number}=ref for the course's" * earlier.has_solution)
        chosen = texts(earlier, True) if reference else read_files(earlier.work, earlier.files)
        found.append((earlier, chosen))
    return found


def flags_of(lab):
    """Returns the lab's compiler flags. {root} stands for the repository or handout."""
    return [flag.replace("{root}", str(ROOT)) for flag in lab.build.get("flags", [])]


def _includes(lab):
    """Additional headers for drivers and students."""
    return [ROOT / path for path in lab.build.get("includes", [])]


def build(lab, files, swapped=None):
    """Compiles {name: text} into a driver. Returns its path and the compiler's warnings."""
    used = swapped_in(lab) if swapped is None else swapped
    files_linked, libraries = libraries_of(lab)
    drivers = [lab.folder / name for name in lab.build.get("drivers", ["driver.cpp"])]
    parts = [(lab, files), *used]
    key = _hash(_compiler(), FLAGS, lab.build, _rules(), *files_linked,
                *(p.read_bytes() for p in drivers + _includes(lab)),
                *(f"{owner.slug}/{n}\n{t}" for owner, own in parts for n, t in own.items()))
    folder = BUILD / "cache" / f"{lab.slug}-{key}"
    _in_place(folder, lambda new: _build_into(new, lab, parts, drivers, files_linked, libraries))
    if (folder / "cheat.txt").exists():
        raise Cheat((folder / "cheat.txt").read_text())
    output = (folder / "compiler.txt").read_text()
    if not (folder / "driver").exists():
        for name, text in files.items():
            if not text.strip():  # the compiler complains about the driver, which the student did not write
                raise Broken(f"{name} is empty: make reset N={lab.number} copies the skeleton again, and keeps your files")
        raise Broken("\n".join(output.splitlines()[:30]))
    return folder / "driver", output


def _included(driver, parts):
    """Returns (owner, name, text) of the students' files that a driver's text includes by macro or
    name, directly or not."""
    reached, texts_seen = [], [driver.read_text()]
    for _ in range(3):
        for owner, own in parts:
            for name, text in own.items():
                named = any(owner.macro(name) in t or f'"{name}"' in t for t in texts_seen)
                if named and (owner, name, text) not in reached:
                    reached.append((owner, name, text))
                    texts_seen.append(text)
    return sorted(reached, key=lambda r: (r[0].slug, r[1]))


@functools.cache
def _rules():
    """The rules that decide whether a text is compiled, as bytes. A cached verdict is valid only under the same
    rules."""
    files = ["apart.py", "forbidden.py", "sandbox.py", "symbols.txt"]
    return b"".join(pathlib.Path(__file__).with_name(name).read_bytes() for name in files)


# Compiler output that indicates an exceeded limit, and the message for the student.
LIMITS = [(r"(CPU time limit exceeded|Killed) signal terminated", "the compiler did not finish within "
           f"{sandbox.COMPILER['processor']} s of processor time: an endless template or constant?"),
          (r"(cc1plus|as|ld|LLVM ERROR): .*out of memory|virtual memory exhausted|: Cannot allocate memory",
           f"the compiler needs more than {sandbox.COMPILER['memory'] >> 30} GiB: an endless template?"),
          (r"File size limit exceeded|File too large", "the compiler's output is larger than "
           f"{sandbox.COMPILER['file'] >> 20} MiB: a large initialized array?")]


def _step(words, reads, own, name):
    """Runs one compiler step. Returns (whether it succeeded, its output up to a limit)."""
    said = own / name
    with open(said, "wb") as file:
        process = subprocess.Popen(sandbox.here().compiler(words, reads, own), cwd=ROOT, stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=file, start_new_session=True,
                                   env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "CCACHE_DISABLE": "1",
                                        "LC_ALL": os.environ.get("LC_ALL", "C.UTF-8"),
                                        "TMPDIR": "/tmp" if sandbox.here().private else str(own)})
        try:
            status = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Broken(f"the compiler did not finish within {LONGEST:g} s") from None  # not cached: maybe the machine was busy
    with open(said, errors="replace") as file:
        output = file.read(MOST_WORDS).replace(f"{own}/", "work/")
    said.unlink()
    if status == 0:
        return True, output
    if output.startswith(("bwrap: ", "confine: ")):
        raise AuthorError(f"the sandbox fails: {output.splitlines()[0]}")
    if sandbox.here().ended(status) == -signal.SIGXCPU:
        return False, LIMITS[0][1]
    return False, next((message for pattern, message in LIMITS if re.search(pattern, output)), output)


def needed(rule):
    """Returns the names of the files in a make rule that the compiler has written. In such a rule, a name's blanks have
    backslashes: a checkout may be in a folder such as "my course"."""
    names = re.findall(r"(?:\\[ #]|\S)+", rule.replace("\\\n", " ").partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def share(driver):
    """Lets the users that run submissions execute a driver, also if the judge's umask is 077."""
    if driver.exists():
        driver.chmod(0o755)


class Unit:
    """One translation unit: a driver with the students' files that it includes."""

    def __init__(self, lab, source, parts, flags):
        self.lab, self.source, self.flags = lab, source, flags
        self.files = _included(source, parts)
        linked = [p for group in lab.build.get("libraries", {}).values() for p in group]
        headers = [p.read_bytes() for p in [*sources_of(["labs/kit/*.hpp", *linked]), *_includes(lab)]
                   if p.suffix in (".hpp", ".h")]
        self.key = _hash(_compiler(), FLAGS, flags, lab.build, _rules(), source.read_bytes(), *headers,
                         *(f"{owner.slug}/{name}\n{text}" for owner, name, text in self.files))
        self.folder = BUILD / "cache" / f"unit-{self.key}"

    def make(self):
        """Writes the compiler's output, and unit.o or, for a cheat, cheat.txt."""
        _in_place(self.folder, self._make)

    def _reads(self):
        """Paths that a compiler may read in addition to the system's."""
        found = [ROOT / "labs/kit", *_includes(self.lab)]
        if self.lab.build.get("vgpu"):
            found += [ROOT / "kernels/vgpu", ROOT / "runtime/base", ROOT / "kernels/half.hpp"]  # as in a handout
        for group in self.lab.build.get("libraries", {}).values():
            found += [path for path in sources_of(group) if path.suffix in (".hpp", ".h")]
        kit = ROOT / "labs/kit"
        return sorted({path for path in found if path.exists() and (path == kit or not path.is_relative_to(kit))})

    def _make(self, new):
        options, macros = [f"-ffile-prefix-map={new}/=work/"], {}
        for owner, name, text in self.files:
            (new / owner.slug).mkdir(exist_ok=True)
            (new / owner.slug / name).write_text(text)
            macros[owner.macro(name)] = new / owner.slug / name
        said, cheat = self._apart(new, options, macros)
        if not cheat and said is None:
            # The text of all students' files replaces the first that the driver includes; an empty
            # file replaces the others.
            (new / "empty.hpp").write_text("#pragma once\n")
            first = next(iter(self._asked(macros)), None)
            options += [f'-D{m}="{new / ("clean.hpp" if m == first else "empty.hpp")}"' for m in macros]
            language = ["-x", "c++"] if self.source.suffix == ".cu" else []
            source = str(self.source.relative_to(ROOT))
            well, said = _step([CXX, *FLAGS, *self.flags, *options, *language, "-MD", "-MF", str(new / "needs.d"), "-MT",
                                "unit", "-c", source, "-o", str(new / "unit.o")], [*self._reads(), self.source], new,
                               "said")
            if not well:
                (new / "unit.o").unlink(missing_ok=True)
            if (new / "needs.d").exists():  # names the student's files by their paths in the cache
                names = "\n".join(needed((new / "needs.d").read_text(errors="surrogateescape")))
                (new / "needs.txt").write_text(names.replace(str(new), str(self.folder)), errors="surrogateescape")
        if cheat:
            (new / "cheat.txt").write_text(cheat)
        (new / "compiler.txt").write_text(said or "")

    def _asked(self, macros):
        """The macros by which the driver includes students' files, in the driver's order."""
        return [m for m in re.findall(r"^\s*#\s*include\s+(\w+)", self.source.read_text(), re.M) if m in macros]

    def _apart(self, new, options, macros):
        """Writes clean.hpp. Returns (why it cannot be compiled, why it is a cheat); either is None if it does not
        apply."""
        (new / "all.cpp").write_text("".join(f"#include {macro}\n" for macro in self._asked(macros)))
        names = {path.name for path in macros.values()}
        defines = [f'-D{macro}="{path}"' for macro, path in macros.items()]
        well, said = _step([CXX, *FLAGS, "-w", *self.flags, *options, *defines, "-E", "-dD", "-dI",
                            str(new / "all.cpp"), "-o", str(new / "all.ii")], self._reads(), new, "said")
        if not well:
            return said, forbidden.not_there(self.lab, said)
        try:
            preprocessed = (new / "all.ii").read_text(errors="replace")
            text = apart.read(preprocessed, lambda name: name in names or name.startswith((f"{new}/", "work/")))
        except apart.Unreadable as trouble:
            return str(trouble), None
        finally:
            (new / "all.ii").unlink(missing_ok=True)
        (new / "clean.hpp").write_text(text.clean)
        cheat = forbidden.look_at_text(self.lab, text)
        return None if cheat else forbidden.refuse_text(text), cheat

    @property
    def object(self):
        return self.folder / "unit.o"

    def said(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""


def _build_into(new, lab, parts, drivers, files_linked, libraries):
    flags, link = flags_of(lab), list(lab.build.get("link", []))
    if lab.build.get("vgpu"):
        flags, link = VGPU["flags"] + flags, VGPU["link"] + link
    units = [Unit(lab, source, parts, flags) for source in drivers]
    make_all(libraries, units)
    output = "\n".join(dict.fromkeys(filter(None, (unit.said("compiler.txt") for unit in units))))
    cheat = next(filter(None, (unit.said("cheat.txt") for unit in units)), None)
    if not cheat and all(unit.object.exists() for unit in units):
        trouble, cheats = next(filter(None, (forbidden.look(lab, unit, files_linked) for unit in units)), ("", False))
        if cheats:
            cheat = trouble
        elif trouble:
            output = trouble
        else:
            _, said = _step([CXX, *(str(unit.object) for unit in units), "-Wl,--start-group", *map(str, files_linked),
                             "-Wl,--end-group", *LIBRARIES, *link, "-o", str(new / "driver")],
                            [*(unit.folder for unit in units), *(path.parent for path in files_linked)], new, "said")
            output += said
            share(new / "driver")
    if cheat:
        (new / "cheat.txt").write_text(cheat)
    (new / "compiler.txt").write_text(output)
