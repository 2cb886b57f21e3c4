"""Builds many drivers from texts that differ in one place, for `make mutate`.

`build.py` makes a driver once for a student; this file makes hundreds, with a precompiled header of
all common includes, without debug information, and without a cache (thousands of drivers would fill
the disk). Two texts with the same object code behave the same way, so such a mutant is not a mistake (Papadakis et al.,
Trivial compiler equivalence, ICSE 2015).
"""
import hashlib
import pathlib
import re
import shutil
import subprocess
import threading

from labs.course import build
from labs.course.lab import ROOT
from labs.course.mutants import references

INCLUDE = re.compile(r'^#include (<[^>]+>|"labs/kit/[^"]+")', re.M)


class Quick:
    """The compiler for one lab. A result in a worker's folder is valid until its next compile()."""

    def __init__(self, lab, solution, place):
        self.lab, self.place = lab, pathlib.Path(place)
        self.used = references(lab)
        self.drivers = [lab.folder / name for name in lab.build.get("drivers", ["driver.cpp"])]
        self.flags, self.link = build.flags_of(lab), list(lab.build.get("link", []))
        self.libraries, to_make = build.libraries_of(lab)
        build.make_all(to_make)
        if lab.build.get("vgpu"):
            self.flags, self.link = build.VGPU["flags"] + self.flags, build.VGPU["link"] + self.link
        self.common = [f for f in build.FLAGS if f != "-g1" and not f.startswith("-W")] + ["-w", *self.flags]
        own = [text for text in solution.values()] + [d.read_text() for d in self.drivers]
        self.names = list(dict.fromkeys(name for text in own for name in INCLUDE.findall(text)))
        self.headers, self.lock = {}, threading.Lock()

    def _header(self, level):
        """The options that include the precompiled header of an optimisation level, made at its first use."""
        with self.lock:
            if level not in self.headers:
                self.headers[level] = self._precompiled(level)
            return self.headers[level]

    def _precompiled(self, level):
        header = self.place / f"pch{''.join(level)}" / "common.hpp"
        header.parent.mkdir(parents=True)
        header.write_text("".join(f"#include {name}\n" for name in self.names))
        done = subprocess.run([build.CXX, *self.common, *level, "-x", "c++-header", str(header), "-o", f"{header}.gch"],
                              cwd=ROOT, capture_output=True, text=True)
        return ["-include", str(header)] if done.returncode == 0 else []

    def texts(self, files, folder):
        """Writes the files, and returns the macros by which the drivers include them."""
        options = []
        for owner, own in [(self.lab, files), *self.used]:
            (folder / owner.slug).mkdir(parents=True, exist_ok=True)
            for name, text in own.items():
                (folder / owner.slug / name).write_text(text)
                options.append(f'-D{owner.macro(name)}="{folder / owner.slug / name}"')
        return options

    def _objects(self, files, folder, *options):
        """Compiles all drivers. Returns (objects, "") or (None, the compiler's output)."""
        level = tuple(option for option in options if option.startswith("-O"))
        options = self.texts(files, folder) + [f"-ffile-prefix-map={folder}/=work/", "-frandom-seed=1", *options]
        found, jobs, header = [], [], self._header(level)
        for driver in self.drivers:
            found.append(folder / f"{driver.stem}.o")
            language = ["-x", "c++"] if driver.suffix == ".cu" else []
            jobs.append(subprocess.Popen([build.CXX, *self.common, *header, *options, *language, "-c",
                                          str(driver.relative_to(ROOT)), "-o", str(found[-1])],
                                         cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        said = "".join(job.communicate()[1] for job in jobs)
        return (found, "") if all(job.returncode == 0 for job in jobs) else (None, said)

    def complaints(self, files, folder):
        """The compiler's output if the files do not compile, else ""."""
        return self._objects(files, folder, "-fsyntax-only")[1]

    def code(self, files, folder, *level):
        """The digest of the objects, or None if they do not compile."""
        objects, _ = self._objects(files, folder, *level)
        return objects and self._digest(objects, folder)

    @staticmethod
    def _digest(objects, folder):
        """Hashes the objects without their folder's path, which they contain. The names of folders
        whose objects are compared must have the same length."""
        place = str(folder).encode()
        return hashlib.sha256(b"".join(o.read_bytes().replace(place, bytes(len(place))) for o in objects)).hexdigest()

    def compile(self, files, folder, known=()):
        """Returns (driver, digest, compiler output). The driver is None if it does not compile or the digest is
        known."""
        shutil.rmtree(folder, ignore_errors=True)
        objects, said = self._objects(files, folder)
        if objects is None:
            return None, None, said
        digest = self._digest(objects, folder)
        if digest in known:
            return None, digest, ""
        driver = folder / "driver"
        done = subprocess.run([build.CXX, *map(str, objects), "-Wl,--start-group", *map(str, self.libraries),
                               "-Wl,--end-group", *build.LIBRARIES, *self.link, "-o", str(driver)],
                              cwd=ROOT, capture_output=True, text=True)
        build.share(driver)
        return (driver, digest, "") if done.returncode == 0 else (None, None, done.stderr)
