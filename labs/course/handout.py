"""make handout builds the archive for students; make instructor builds the archive for instructors.

A handout is assembled from a list of files, never by excluding files. It is then scanned for content that must not be
in it, unpacked into an empty folder, built there from scratch without the repository, and graded, which must give zero
points.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from labs.course import manifest
from labs.course.lab import ROOT, all_labs
from labs.course.split import MARK, texts
from labs.course.verdicts import AuthorError

COURSE = ["__init__", "__main__", "apart", "build", "commands", "expect", "forbidden", "grading", "granted", "lab", "manifest",
          "mine", "overlap", "reading", "record", "reports", "runner", "sandbox", "split", "terminal", "testing", "verdicts"]
MAKEFILE = """# The labs of the course. `make` prints the commands.
.DEFAULT_GOAL := help
include labs/course/words.mk
help: ## this list
\t@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \\1|\\2/' | \\
\t  awk -F'|' '{printf "%-17s %s\\n", $$1, $$2}'
include labs/course/labs.mk
"""
README = """# The labs

    make lab N={first}        copy the skeleton of a lab to work/, where you edit it
    make check N={first}      build it and run the public tests
    make hint N={first}       the next hint
    make watch N={first}      make check whenever you save
    make grade N={first}      the tests that are here, with points; the others are your instructor's
    make progress        your progress in all labs

Needed: g++ 12 or newer (or CXX=clang++), make, Python 3.11, binutils. No GPU, no adapter, no root.{packages}
With bubblewrap installed (`apt install bubblewrap`), or on a kernel with Landlock, your code is compiled and run in a
sandbox.

`labs/NN-slug/README.md` is the task, and `lessons/NN-slug` in it is the chapter that explains the ideas. The chapters
are not in this archive: you get them from your instructor. Only files in `work/` are yours: the others are sealed
(`labs/MANIFEST.sha256`).

{labs}
"""


def student_files(lab):
    """{path in the archive: text} of one lab."""
    base = f"labs/{lab.slug}"
    found = {f"{base}/skeleton/{name}": text for name, text in texts(lab, solution=False).items()}
    for name in ["README.md", "lab.toml", "public.py", *lab.build.get("drivers", ["driver.cpp"]),
                 *lab.config.get("handout", [])]:
        found[f"{base}/{name}"] = (lab.folder / name).read_text()
    patterns = [p for group in lab.build.get("libraries", {}).values() for p in group] + lab.build.get("includes", [])
    if lab.build.get("vgpu"):
        patterns += ["kernels/vgpu/**/*", "runtime/base/error.[ch]pp", "kernels/half.hpp"]
    for pattern in patterns:
        found |= {str(p.relative_to(ROOT)): p.read_text() for p in ROOT.glob(pattern) if p.is_file()}
    return found


def without_dead_links(name, text, names):
    """Replaces a link to a file outside the archive, e.g. a lesson, with its text."""
    def link(found):
        words, target = found.groups()
        there = os.path.normpath(os.path.join(os.path.dirname(name), target.split("#")[0]))
        known = there in names or any(n.startswith(there + "/") for n in names)
        return found.group() if known or "://" in target or target.startswith("#") else words
    return re.sub(r"\[([^\]\n]+)\]\(([^)\s]+)\)", link, text)


def packages(labs):
    """Names the packages that the CUDA emulator needs, and the labs that use it."""
    numbers = " and ".join(lab.number for lab in labs if lab.build.get("vgpu"))
    if not numbers:
        return ""
    return f"\nFor {numbers} also Boost.Context and fmt (Debian, Ubuntu: libboost-context-dev libfmt-dev)."


def contents(labs):
    found = {}
    for lab in labs:
        found |= student_files(lab)
    for path in sorted((ROOT / "labs/kit").glob("*.[ch]pp")):
        found[f"labs/kit/{path.name}"] = path.read_text()
    for stem in COURSE:
        found[f"labs/course/{stem}.py"] = (ROOT / f"labs/course/{stem}.py").read_text()
    for name in ("confine.cpp", "symbols.txt", "words.mk"):
        found[f"labs/course/{name}"] = (ROOT / f"labs/course/{name}").read_text()
    found["labs/course/labs.mk"] = (ROOT / "labs/course/labs.mk").read_text().split("# For instructors")[0]
    found["Makefile"] = MAKEFILE
    for name in ("LICENSE", "lessons/AI_POLICY.md", "lessons/CHANGELOG.md"):
        if (ROOT / name).exists():
            found[pathlib.Path(name).name] = (ROOT / name).read_text()
    listed = "\n".join(f"- {lab.number} [{lab.title}](labs/{lab.slug}/README.md)" for lab in labs)
    found["README.md"] = README.format(first=labs[0].number, labs=listed, packages=packages(labs))
    pages = {name: without_dead_links(name, text, found) for name, text in found.items() if name.endswith(".md")}
    return found | pages


def solution_lines(labs):
    """{line: lab} of the lines of code that occur only in solutions and are too long to match by
    accident."""
    found = {}
    for lab in labs:
        skeleton = "\n".join(texts(lab, False).values())
        for text in texts(lab, True).values():
            for line in text.splitlines():
                line = line.strip()
                if len(line) > 40 and line not in skeleton and not line.startswith("//"):
                    found[line] = lab.slug
    return found


def scan(folder, labs):
    """Returns sentences about content that a handout must not have."""
    found, lines = [], solution_lines(labs)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            found.append(f"{name}: neither a file nor a folder")
        if path.name in (".git", ".github", ".hg", ".svn", "__pycache__", "work", "build"):
            found.append(f"{name}: history, or a build output")
        if not path.is_file() or ".git" in path.parts:
            continue
        if path.suffix in (".o", ".a", ".so", ".gch", ".pyc", ".d") or path.read_bytes()[:4] in (b"\x7fELF", b"!<ar"):
            found.append(f"{name}: an object file or a program")
            continue
        if path.name.startswith("hidden") or "unusual" in path.parts or \
                path.name in ("mutants.toml", "survivors.toml", "cheats.toml"):
            found.append(f"{name}: a hidden test, mutants, or solutions")
        text = path.read_text(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            mark = MARK.match(line)
            if mark and mark.group(2) == "SOLUTION":
                found.append(f"{name}:{number}: a source that was not split")
            if line.strip() in lines and path.suffix in (".hpp", ".cpp", ".cu", ".cuh", ".h", ".md", ".py", ".toml"):
                found.append(f"{name}:{number}: a line of the solution of {lines[line.strip()]}")
        for seed in seeds(labs):
            if path.suffix == ".py" and re.search(rf"\b{seed}\b", text):
                found.append(f"{name}: the hidden seed {seed}")
    return found


def seeds(labs):
    """Seeds of hidden tests: HIDDEN_SEED = 12345 in a hidden.py."""
    found = set()
    for lab in labs:
        path = lab.folder / "hidden.py"
        if path.exists():
            found |= set(re.findall(r"^HIDDEN_SEED = (\d+)", path.read_text(), re.M))
    return found


def lay_out(labs, folder):
    for name, text in contents(labs).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    manifest.seal(folder)


def prove(archive, labs):
    """Unpacks the archive into an empty folder, and builds and grades each lab, which must score
    zero."""
    with tempfile.TemporaryDirectory(prefix="handout-") as place:
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(place)
        root, = pathlib.Path(place).iterdir()
        leaks = scan(root, labs)
        if leaks:
            raise AuthorError("the handout leaks:\n  " + "\n  ".join(leaks))
        env = {"PATH": os.environ["PATH"], "HOME": place, "CXX": os.environ.get("CXX", "g++")}
        for lab in labs:
            for number in [*lab.build.get("uses", []), lab.number]:
                done = subprocess.run(["make", "-s", "lab", f"N={number}"], cwd=root, env=env, capture_output=True,
                                      text=True)
                if done.returncode:
                    raise AuthorError(f"make lab N={number} fails in the handout:\n{done.stdout}{done.stderr}")
            done = subprocess.run(["make", "-s", "grade", f"N={lab.number}", "UNSAFE=1"], cwd=root, env=env,
                                  capture_output=True, text=True)
            zero = re.search(rf"lab {lab.number}, .*: 0 of (\d+) tests pass, 0 of", done.stdout)
            if not zero or "not attempted" not in done.stdout or int(zero.group(1)) == 0:
                raise AuthorError(f"lab {lab.number} of the handout does not build, or does not score zero:\n"
                                  + done.stdout + done.stderr)
            print(f"  lab {lab.number}: builds from scratch, 0 of {zero.group(1)} tests pass, not attempted")


def pack(folder, archive):
    archive.parent.mkdir(parents=True, exist_ok=True)

    def plain(info):  # no user, group or time of this machine
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=archive.name.removesuffix(".tar.gz"), filter=plain)


def handout(labs, target):
    with tempfile.TemporaryDirectory(prefix="handout-") as place:
        folder = pathlib.Path(place) / "course"
        lay_out(labs, folder)
        leaks = scan(folder, labs)
        if leaks:
            raise AuthorError("the handout leaks:\n  " + "\n  ".join(leaks))
        pack(folder, target)
    prove(target, labs)
    print(f"{target}: {len(labs)} labs, no leak found")


def instructor(labs, target):
    """Packs solutions, hidden tests, mutants, unusual solutions and the whole judge."""
    with tempfile.TemporaryDirectory(prefix="instructor-") as place:
        folder = pathlib.Path(place) / "course"
        shutil.copytree(ROOT / "labs/course", folder / "labs/course", ignore=shutil.ignore_patterns("__pycache__"))
        lay_out(labs, folder)
        (folder / manifest.NAME).unlink()
        for lab in labs:
            shutil.copytree(lab.folder, folder / "labs" / lab.slug, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("__pycache__"))
            shutil.rmtree(folder / "labs" / lab.slug / "skeleton")
            for name, text in texts(lab, solution=True).items():
                (folder / "solutions" / lab.slug).mkdir(parents=True, exist_ok=True)
                (folder / "solutions" / lab.slug / name).write_text(text)
        shutil.copy(ROOT / "labs/course/labs.mk", folder / "labs/course/labs.mk")
        shutil.copy(ROOT / "labs/README.md", folder / "labs/README.md")
        pack(folder, target)
    print(f"{target}: solutions, hidden tests and mutants of {len(labs)} labs. Not for students.")


def with_used(labs):
    """These labs, and the earlier labs that they build on."""
    numbers = {n for lab in labs for n in [lab.number, *lab.build.get("uses", [])]}
    return [lab for lab in all_labs() if lab.number in numbers]


def main(labs, what):
    if not all_labs() or not all(lab.has_solution for lab in labs):
        raise AuthorError("this is a handout: only the repository can make another")
    labs = with_used(labs)
    name = "ringsmith-labs" + ("-instructor" if what == "instructor" else "")
    name += "" if len(labs) == len(all_labs()) else "-" + "-".join(lab.number for lab in labs)
    target = ROOT / "build" / f"{name}.tar.gz"
    {"handout": handout, "instructor": instructor}[what](labs, target)
    sys.stdout.flush()
