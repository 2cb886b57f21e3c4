"""A lab on disk: labs/NN-slug/lab.toml and the files next to it."""
import importlib.util
import math
import os
import pathlib
import re
import sys
import tomllib

from labs.course.reading import printable
from labs.course.verdicts import AuthorError


def positive(name, otherwise, kind=int):
    """Returns the positive number in an environment variable. Ends the program with one line if it is none."""
    text = os.environ.get(name) or str(otherwise)
    try:
        value = kind(text)
        if 0 < value and math.isfinite(value):
            return value
    except (ValueError, OverflowError):
        pass
    print(f"{name}={printable(text)} is not a positive {'whole ' * (kind is int)}number", file=sys.stderr)
    sys.exit(2)


ROOT = pathlib.Path(__file__).resolve().parents[2]
LABS = ROOT / "labs"
WORK = pathlib.Path(os.environ.get("LABS_WORK", ROOT / "work"))
BUILD = pathlib.Path(os.environ.get("LABS_BUILD", ROOT / "build" / "labs")).resolve()  # independent of cwd
PATIENCE = positive("LABS_PATIENCE", 1, float)  # factor for every deadline, for slow or busy machines
NAME = re.compile(r"(\d\d)-[a-z0-9-]+")


def load_module(path):
    """Imports a test file. Its folder's name, such as 06-ring, is not a valid Python name."""
    spec = importlib.util.spec_from_file_location(path.parent.name.replace("-", "_") + "_" + path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_sibling(file, stem):
    """Imports a file next to `file`, e.g. public.py for hidden.py."""
    return load_module(pathlib.Path(file).with_name(stem + ".py"))


class Lab:
    def __init__(self, folder):
        self.folder = folder
        self.slug = folder.name
        self.number = folder.name[:2]
        with open(folder / "lab.toml", "rb") as file:
            try:
                self.config = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise AuthorError(f"{folder.name}/lab.toml: {error}") from None
        self.title = self.config["title"]
        self.files = self.config["files"]
        self.points = self.config["points"]
        self.build = self.config.get("build", {})
        self.limits = {"deadline": 10, "memory_mib": 2048, "at_once": 1, "vgpu": self.build.get("vgpu", False),
                       **self.config.get("limits", {})}
        self.hints = self.config.get("hints", [])
        self.signatures = self.config.get("signature", [])
        self.work = WORK / self.slug

    def macro(self, file):
        """The macro by which the driver includes a student's file: LAB06_RING for ring.hpp of lab
        06."""
        return f"LAB{self.number}_" + re.sub(r"\W", "_", pathlib.Path(file).stem).upper()

    @property
    def has_solution(self):
        return (self.folder / self.files[0]).exists()  # a handout has skeleton/ instead

    def tests(self):
        """Every test, public ones first, as (name, function, whether it is hidden)."""
        found = []
        for stem in ("public", "hidden"):
            path = self.folder / f"{stem}.py"
            if not path.exists():
                continue
            module = load_module(path)
            for name, value in vars(module).items():
                if getattr(value, "is_lab_test", False):
                    value.seed = getattr(module, "HIDDEN_SEED", None)
                    found.append((name, value, stem == "hidden"))
        return found

    def problems(self):
        """Returns the mistakes that can be found without running anything."""
        found = []
        tests = {name: hidden for name, _, hidden in self.tests()}
        complete = (self.folder / "hidden.py").exists()
        if sum(self.points.values()) != 100:
            found.append(f"the points of lab.toml add up to {sum(self.points.values())}, not 100")
        found += [f"test {name} has no points in lab.toml" for name in tests if name not in self.points]
        if complete:
            found += [f"lab.toml gives points to {name}, which is not a test" for name in self.points if name not in tests]
        if not self.hints:
            found.append("lab.toml has no hints")
        return [f"{self.slug}: {text}" for text in found]


def all_labs():
    return [Lab(p.parent) for p in sorted(LABS.glob("[0-9][0-9]-*/lab.toml"))]


def select(wanted):
    """The labs that N=06, N=6 or N=06-ring select; all labs without N."""
    labs = all_labs()
    if not wanted:
        return labs
    key = wanted.zfill(2) if wanted.isdigit() else wanted
    chosen = [lab for lab in labs if key in (lab.number, lab.slug)]
    if not chosen:
        raise AuthorError(f"there is no lab {printable(wanted)}; the labs are: {', '.join(lab.slug for lab in labs)}")
    return chosen


def mutants(lab):
    path = lab.folder / "mutants.toml"
    if not path.exists():
        return []
    with open(path, "rb") as file:
        return tomllib.load(file)["mutant"]
