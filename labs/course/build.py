"""From a student's files to a driver: preprocess, look at the text, compile, look at the object, link. Each step of a
compiler that sees a student's text is in a sandbox, and has a deadline.

Everything lands in build/labs/cache/KEY, where KEY is the hash of all that went in. The same text is compiled once,
and a mutant that was judged yesterday starts at once.
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
from labs.course.split import texts
from labs.course.verdicts import AuthorError, Cheat, Crash

CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wshadow", "-ffp-contract=off", "-D_GLIBCXX_ASSERTIONS",
         "-fno-strict-aliasing", "-I."]  # relative, in ROOT: so the cache serves every copy of the course
LIBRARIES = ["-pthread"]
# CUDA code without a GPU: the emulator, compiled by the same compiler ([build] vgpu = true in lab.toml).
VGPU = {"patterns": ["kernels/vgpu/*.[ch]pp", "runtime/base/error.[ch]pp"],
        "flags": ["-Ikernels/vgpu/include", "-DRINGSMITH_VGPU", "-Wno-unknown-pragmas"],
        "link": ["-lboost_context", "-lfmt"]}
LONGEST = 300 * PATIENCE    # seconds of one step of the compiler; sandbox.py limits its processor time
MOST_WORDS = 1 << 20        # characters that are read of what it says
_making = collections.defaultdict(threading.Lock)    # one at a time makes a library
_compilers = threading.Semaphore(max(2, os.cpu_count() or 2))  # of libraries, at the same time


class Broken(Crash):
    """The student's file does not compile. The message is the compiler's."""
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
    """A folder that nobody else has. What a judge that was killed has left there goes."""
    sandbox.sweep(place, ".new")
    new = pathlib.Path(tempfile.mkdtemp(dir=place, prefix=f".new-{os.getpid()}-"))
    new.chmod(0o755)
    return new


def _in_place(folder, make):
    """Makes a folder once: others see it complete or not at all."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = _new(folder.parent)
    try:
        make(new)
        new.rename(folder)
    except OSError:
        if not folder.exists():  # another process was faster otherwise
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _units(sources):
    """Texts that include all sources, at most eleven in each: what takes long are the standard headers, once a unit."""
    count = -(-len(sources) // 11)
    return ["".join(f'#include "{path.relative_to(ROOT)}"\n' for path in sources[at::count]) for at in range(count)]


class Library:
    """A static library of the kit, or of what a lab links. Two of its files can't have the same name for two things."""

    def __init__(self, name, patterns, flags):
        self.name, self.flags = name, flags
        self.sources = [p for p in sources_of(patterns) if p.suffix in (".cpp", ".cu", ".c")]
        texts_in = [p.read_bytes() for p in sources_of(patterns + ["labs/kit/*.hpp"])]
        self.folder = BUILD / "cache" / f"{name}-{_hash(_compiler(), FLAGS, flags, *texts_in)}"
        self.file = self.folder / f"lib{name}.a"

    def make(self):
        with _making[self.folder]:  # labs that are judged at the same time want the same
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
            objects = list(pool.map(compile_one, *zip(*enumerate(_units(self.sources)))))
        subprocess.run(["ar", "rcs", str(new / self.file.name), *objects], check=True)


def _built_vgpu():
    """The emulator as `make build` left it, if nothing is newer; else nothing."""
    newest = max(p.stat().st_mtime for p in sources_of(VGPU["patterns"]))
    for built in sorted(ROOT.glob("build/*/libringsmith_vgpu.a")):
        base = built.with_name("libringsmith_base.a")
        if "release" in str(built) and built.stat().st_mtime > newest and base.exists():
            return [built, base]
    return []


def libraries_of(lab):
    """What a lab's driver is linked with: files, and those of them that are still to be made: its own, the kit."""
    wanted = [Library(name, patterns, flags_of(lab)) for name, patterns in lab.build.get("libraries", {}).items()]
    wanted.append(Library("kit", ["labs/kit/*.cpp"], []))
    built = _built_vgpu() if lab.build.get("vgpu") else []
    if lab.build.get("vgpu") and not built:
        wanted.insert(0, Library("vgpu", VGPU["patterns"], VGPU["flags"]))  # takes longest
    return [library.file for library in wanted] + built, wanted


def make_all(libraries, units=()):
    """All at the same time: a student waits."""
    with concurrent.futures.ThreadPoolExecutor(len(libraries) + len(units) + 1) as pool:
        jail = pool.submit(sandbox.here)  # it compiles a little too, and no unit is compiled outside
        jobs = [pool.submit(library.make) for library in libraries]
        jail.result()
        jobs += [pool.submit(unit.make) for unit in units]
        for job in jobs:
            job.result()


def swapped_in(lab):
    """Files of earlier labs that this one uses: the student's own, or the reference's with LAB06=ref."""
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
        chosen = texts(earlier, True) if reference else {f: p.read_text() for f, p in own.items()}
        found.append((earlier, chosen))
    return found


def flags_of(lab):
    """Flags of lab.toml; {root} stands for this folder's place."""
    return [flag.replace("{root}", str(ROOT)) for flag in lab.build.get("flags", [])]


def _includes(lab):
    """Headers of the lab's own that drivers and students include."""
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
        raise Broken("\n".join(output.splitlines()[:30]))
    return folder / "driver", output


def _included(driver, parts):
    """Which of the students' files a driver's text reaches: (owner, name, text), by macro, then by name."""
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
    """What decides whether a text is compiled, as bytes: a cached verdict is as old as these."""
    files = ["apart.py", "forbidden.py", "sandbox.py", "symbols.txt"]
    return b"".join(pathlib.Path(__file__).with_name(name).read_bytes() for name in files)


# What a compiler says when it runs into a limit of ours, and what a student is told.
LIMITS = [(r"(CPU time limit exceeded|Killed) signal terminated", "the compiler was not done after "
           f"{sandbox.COMPILER['processor']} s of processor time: a template or a constant that does not end?"),
          (r"(cc1plus|as|ld|LLVM ERROR): .*out of memory|virtual memory exhausted|: Cannot allocate memory",
           f"the compiler needs more than {sandbox.COMPILER['memory'] >> 30} GiB: a template that does not end?"),
          (r"File size limit exceeded|File too large", "what the compiler writes is larger than "
           f"{sandbox.COMPILER['file'] >> 20} MiB: a large array with a value in it?")]


def _step(words, reads, own, name):
    """One step of a compiler. (whether it went well, what it said); its words are limited like its files."""
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
            raise Broken(f"the compiler was not done after {LONGEST:g} s") from None  # not cached: a busy machine?
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


class Unit:
    """One translation unit: a driver with the students' files that it includes. Made once for the same text."""

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
        """Leaves unit.o, and what the compiler said; or, without unit.o, why there is none: cheat.txt or its words."""
        _in_place(self.folder, self._make)

    def _reads(self):
        """What a compiler may read beside the system."""
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
            # All of the students' text comes where the driver includes the first of their files.
            (new / "empty.hpp").write_text("#pragma once\n")
            first = next(iter(self._asked(macros)), None)
            options += [f'-D{m}="{new / ("clean.hpp" if m == first else "empty.hpp")}"' for m in macros]
            language = ["-x", "c++"] if self.source.suffix == ".cu" else []
            source = str(self.source.relative_to(ROOT))
            well, said = _step([CXX, *FLAGS, *self.flags, *options, *language, "-MD", "-MF", str(new / "needs.d"), "-c",
                                source, "-o", str(new / "unit.o")], [*self._reads(), self.source], new, "said")
            if not well:
                (new / "unit.o").unlink(missing_ok=True)
            if (new / "needs.d").exists():  # the student's files are where the cache has them now
                (new / "needs.d").write_text((new / "needs.d").read_text().replace(str(new), str(self.folder)))
        if cheat:
            (new / "cheat.txt").write_text(cheat)
        (new / "compiler.txt").write_text(said or "")

    def _asked(self, macros):
        """The macros by which the driver includes students' files, in its order."""
        return [m for m in re.findall(r"^\s*#\s*include\s+(\w+)", self.source.read_text(), re.M) if m in macros]

    def _apart(self, new, options, macros):
        """Writes clean.hpp. (why that cannot be, or None; what makes it a cheat, or None)."""
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
        return None, forbidden.look_at_text(self.lab, text)

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
    if cheat:
        (new / "cheat.txt").write_text(cheat)
    (new / "compiler.txt").write_text(output)
