"""The seal of a handout: the SHA-256 of every file that students do not write. A test or a header of the
kit that was edited is reported by name and makes the grade zero.
"""
import hashlib
import os

from labs.course.lab import LABS, ROOT
from labs.course.verdicts import AuthorError

NAME = "labs/MANIFEST.sha256"
# The repository has no seal: git records all changes there.


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sealed_files(root):
    """Every file of a handout except the seal itself and the files that students create."""
    skip = ("work/", "build/", NAME)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*")
                  if p.is_file() and not str(p.relative_to(root)).startswith(skip) and "__pycache__" not in p.parts)


def seal(root):
    lines = [f"{digest(root / name)}  {name}\n" for name in sealed_files(root)]
    (root / NAME).write_text("".join(lines))


def read(root):
    path = root / NAME
    if not path.exists():
        return None
    pairs = [line.split("  ", 1) for line in path.read_text().splitlines()]
    return {name: value for value, name in pairs}


def broken(root=ROOT, seal_of=None):
    """Describes sealed files that are missing, changed or added. Returns None if nothing is sealed.

    seal_of: the manifest to trust, the instructor's; by default the one in root.
    """
    known = read(root) if seal_of is None else seal_of
    if known is None:
        return None
    found = []
    for name, value in known.items():
        path = root / name
        if not os.path.lexists(path):
            found.append(f"{name} is missing")
        elif path.is_symlink() or not path.is_file() or digest(path) != value:
            found.append(f"{name} was changed")
    new = [p for p in LABS.rglob("*") if p.is_file() and p.suffix in (".py", ".toml", ".hpp", ".cpp")
           and str(p.relative_to(ROOT)) not in known] if root == ROOT else []
    return found + [f"{p.relative_to(ROOT)} was added" for p in new]


def require_whole(root=ROOT):
    """Returns a message about edited tests, which make the grade zero, or None."""
    found = broken(root)
    if found:
        return f"the tests or the kit were edited: {'; '.join(found[:5])}"
    return None


def for_handout(path):
    if not path.is_dir():
        raise AuthorError(f"{path} is not an unpacked handout")
    return read(path)
