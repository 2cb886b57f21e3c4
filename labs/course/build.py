"""From a student's files to a driver: compile, look at what the object wants from outside, link.

Everything lands in build/labs/cache/KEY, where KEY is the hash of all that went in. The same text is compiled once,
and a mutant that was judged yesterday starts at once.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

from labs.course import forbidden
from labs.course.lab import BUILD, ROOT, select
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
_kit_lock = threading.Lock()


class Broken(Crash):
    """The student's file does not compile. The message is the compiler's."""
    status = "does not compile"


def _hash(*parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]


def _compiler():
    try:
        done = subprocess.run([CXX, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise AuthorError(f"no compiler: {CXX} does not run (Debian, Ubuntu: apt install g++)") from None
    return done.stdout.splitlines()[0]


def _sources(patterns):
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def _in_place(folder, make):
    """Makes a folder once: others see it complete or not at all."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        make(new)
        new.rename(folder)
    except OSError:
        if not folder.exists():  # another process was faster otherwise
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _object(path):
    """Two folders may have an error.cpp each."""
    return "-".join(path.relative_to(ROOT).with_suffix(".o").parts)


def library(name, patterns, flags=()):
    """A static library of the kit (or of what a lab links), compiled once, two files at a time."""
    sources = [p for p in _sources(patterns) if p.suffix in (".cpp", ".cu", ".c")]
    texts_in = [p.read_bytes() for p in _sources(patterns + ["labs/kit/*.hpp"])]
    folder = BUILD / "cache" / f"{name}-{_hash(_compiler(), FLAGS, flags, *texts_in)}"

    def make(new):
        def compile_one(path):
            language = ["-x", "c++"] if path.suffix == ".cu" else []
            return subprocess.Popen([CXX, *FLAGS, *flags, *language, "-c", str(path), "-o",
                                     str(new / _object(path))], cwd=ROOT, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
        for i in range(0, len(sources), 2):
            for job in [compile_one(path) for path in sources[i:i + 2]]:
                output, _ = job.communicate()
                if job.returncode:
                    raise AuthorError(f"{name} does not compile:\n{output}")
        objects = [str(new / _object(p)) for p in sources]
        subprocess.run(["ar", "rcs", str(new / f"lib{name}.a"), *objects], check=True)

    with _kit_lock:
        _in_place(folder, make)
    return folder / f"lib{name}.a"


def kit():
    return library("kit", ["labs/kit/*.cpp"])


def vgpu():
    """The emulator as `make build` left it, if nothing is newer; else compiled here, once (a minute or two)."""
    newest = max(p.stat().st_mtime for p in _sources(VGPU["patterns"]))
    for built in sorted(ROOT.glob("build/*/libringsmith_vgpu.a")):
        base = built.with_name("libringsmith_base.a")
        if "release" in str(built) and built.stat().st_mtime > newest and base.exists():
            return [built, base]
    return [library("vgpu", VGPU["patterns"], VGPU["flags"])]


def swapped_in(lab):
    """Files of earlier labs that this one uses: the student's own, or the reference's with LAB06=ref."""
    found = []
    for number in lab.build.get("uses", []):
        earlier, = select(number)
        reference = os.environ.get(f"LAB{number}") == "ref"
        own = {f: earlier.work / f for f in earlier.files}
        if not reference and not all(p.exists() for p in own.values()):
            raise AuthorError(f"lab {lab.number} builds on your lab {number}, which is not in {earlier.work}: "
                              f"make lab N={number}, or LAB{number}=ref for the course's")
        chosen = texts(earlier, True) if reference else {f: p.read_text() for f, p in own.items()}
        found.append((earlier, chosen))
    return found


def _flags(lab):
    """Flags of lab.toml; {root} stands for this folder's place."""
    return [flag.replace("{root}", str(ROOT)) for flag in lab.build.get("flags", [])]


def build(lab, files, swapped=None):
    """Compiles {name: text} into a driver. Returns its path and the compiler's warnings."""
    trouble = forbidden.look_at_text(lab, "\n".join(files.values()))
    if trouble:
        raise Cheat(trouble)
    used = swapped_in(lab) if swapped is None else swapped
    kit_library = kit()
    libraries = [kit_library]
    if lab.build.get("vgpu"):
        libraries += vgpu()
    for name, patterns in lab.build.get("libraries", {}).items():
        libraries.append(library(name, patterns, _flags(lab)))
    drivers = [lab.folder / name for name in lab.build.get("drivers", ["driver.cpp"])]
    parts = [(lab, files), *used]
    key = _hash(_compiler(), FLAGS, lab.build, pathlib.Path(forbidden.__file__).read_bytes(), *libraries,
                *(d.read_bytes() for d in drivers),
                *(f"{owner.slug}/{n}\n{t}" for owner, own in parts for n, t in own.items()))
    folder = BUILD / "cache" / f"{lab.slug}-{key}"
    _in_place(folder, lambda new: _build_into(new, lab, parts, drivers, libraries))
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


class Unit:
    """One translation unit: a driver with the students' files that it includes. Compiled once for the same text."""

    def __init__(self, lab, source, parts, flags):
        self.lab, self.source, self.flags = lab, source, flags
        self.files = _included(source, parts)
        linked = [p for group in lab.build.get("libraries", {}).values() for p in group]
        headers = [p.read_bytes() for p in _sources(["labs/kit/*.hpp", *linked]) if p.suffix in (".hpp", ".h")]
        self.key = _hash(_compiler(), FLAGS, flags, source.read_bytes(), *headers,
                         *(f"{owner.slug}/{name}\n{text}" for owner, name, text in self.files))
        self.folder = BUILD / "cache" / f"unit-{self.key}"

    def start(self):
        """The compiler, running; None when there is nothing to do."""
        if self.folder.exists():
            return None
        self.new = pathlib.Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".new-"))
        options = []
        for owner, name, text in self.files:
            (self.new / owner.slug).mkdir(exist_ok=True)
            (self.new / owner.slug / name).write_text(text)
            options.append(f'-D{owner.macro(name)}="{self.new / owner.slug / name}"')
            options.append(f"-ffile-prefix-map={self.new}/=work/")
        language = ["-x", "c++"] if self.source.suffix == ".cu" else []
        return subprocess.Popen([CXX, *FLAGS, *self.flags, *options, *language, "-MD", "-MF", str(self.new / "needs.d"),
                                 "-c", str(self.source.relative_to(ROOT)), "-o", str(self.new / "unit.o")],
                                cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, job):
        if job is not None:
            output = job.communicate()[1]
            (self.new / "compiler.txt").write_text(output.replace(f"{self.new}/", "work/"))
            needs = self.new / "needs.d"
            if needs.exists():  # the student's files are where the cache has them now
                needs.write_text(needs.read_text().replace(str(self.new), str(self.folder)))
            try:
                self.new.rename(self.folder)
            except OSError:  # another process was faster
                shutil.rmtree(self.new)
        return (self.folder / "compiler.txt").read_text()

    @property
    def object(self):
        return self.folder / "unit.o"


def _build_into(new, lab, parts, drivers, libraries):
    flags, link = _flags(lab), list(lab.build.get("link", []))
    if lab.build.get("vgpu"):
        flags, link = VGPU["flags"] + flags, VGPU["link"] + link
    units = [Unit(lab, source, parts, flags) for source in drivers]
    jobs = [unit.start() for unit in units]  # at the same time: a student waits
    output = "".join(unit.finish(job) for unit, job in zip(units, jobs))
    if all(unit.object.exists() for unit in units):
        trouble = next(filter(None, (forbidden.look(lab, unit, libraries) for unit in units)), None)
        if trouble:
            (new / "cheat.txt").write_text(trouble)
        else:
            done = subprocess.run([CXX, *(str(unit.object) for unit in units), "-Wl,--start-group",
                                   *map(str, libraries), "-Wl,--end-group", *LIBRARIES, *link, "-o",
                                   str(new / "driver")], capture_output=True, text=True)
            output += done.stderr
    (new / "compiler.txt").write_text(output)
