"""Splits one annotated source into two texts: the skeleton and the solution.

The source marks the differences with `#ifdef SOLUTION`, `#else`, `#endif`, each on a separate line.
unifdef could do this; this short file needs no package to install, and rejects input that it does not understand
instead of guessing.
"""
import re

from labs.course.verdicts import AuthorError

MARK = re.compile(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b\s*(\w*)")


def split(text, solution, name="source"):
    kept = []
    open_ifs = []  # one entry per open #if: None unless it tests SOLUTION, else whether its lines are kept
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        mark = MARK.match(line)
        word = mark.group(1) if mark else None
        keep = all(entry in (None, True) for entry in open_ifs)
        if word == "ifdef" and mark.group(2) == "SOLUTION":
            open_ifs.append(solution)
        elif word in ("ifdef", "ifndef", "if"):
            if "SOLUTION" in line:
                raise AuthorError(f"{name}:{number}: only '#ifdef SOLUTION' is understood")
            open_ifs.append(None)
            kept += [line] if keep else []
        elif word in ("else", "elif", "endif"):
            if not open_ifs:
                raise AuthorError(f"{name}:{number}: #{word} without #if")
            if open_ifs[-1] is None:
                kept += [line] if keep else []
            elif word == "elif":
                raise AuthorError(f"{name}:{number}: #elif belongs to '#ifdef SOLUTION': use #else")
            else:
                open_ifs[-1] = not open_ifs[-1]
            if word == "endif":
                open_ifs.pop()
        elif keep:
            kept.append(line)
    if open_ifs:
        raise AuthorError(f"{name}: {len(open_ifs)} #if without #endif")
    return "".join(kept)


def texts(lab, solution):
    """{file name: text} of a lab's deliverables. A handout contains ready-made skeletons."""
    found = {}
    for file in lab.files:
        ready = lab.folder / "skeleton" / file
        if ready.exists() and not solution:
            found[file] = ready.read_text()
        elif (lab.folder / file).exists():
            found[file] = split((lab.folder / file).read_text(), solution, f"{lab.slug}/{file}")
        else:
            raise AuthorError(f"{lab.slug}: the {'solution' if solution else 'skeleton'} of {file} is missing")
    return found
