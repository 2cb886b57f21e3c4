"""A parsed lesson: its lines, its fenced blocks, its prose, its headings.

Markdown is read line by line. The lines between ``` lines are a Fence; an HTML comment directly
above a fence is its directive (`<!-- quote: ... -->`), one directly below it a claim
(`<!-- holds: ... -->`, or `timed`).
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Fault(Exception):
    """One line for the user: the fault and the remedy."""


@dataclasses.dataclass
class Fence:
    start: int  # index of the line with the opening ```
    end: int    # index of the closing line
    info: str   # text after the opening ```
    body: list  # lines between

    @property
    def language(self):
        return self.info.split()[0] if self.info.split() else ""

    @property
    def marks(self):
        return self.info.split()[1:]


class Lesson:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.lines = self.path.read_text(encoding="utf-8").splitlines()
        self.slug = self.path.parent.name if self.path.name == "README.md" else self.path.stem
        self.number = self.slug[:2]
        self.fences = list(self._fences())

    @property
    def is_lesson(self):
        return self.path.name == "README.md"

    @property
    def name(self):
        try:
            return str(self.path.resolve().relative_to(ROOT))
        except ValueError:
            return str(self.path)

    def where(self, line):
        return f"{self.name}:{line + 1}"

    def _fences(self):
        start = None
        for n, line in enumerate(self.lines):
            if not re.match(r"```[^`]*$", line):
                continue
            if start is None:
                start = n
            elif line.strip() == "```":
                yield Fence(start, n, self.lines[start][3:].strip(), self.lines[start + 1:n])
                start = None
        if start is not None:
            raise Fault(f"{self.where(start)}: this block is never closed with ```")

    def directive(self, fence, name):
        """Returns the text of `<!-- name: text -->` in the line above a fence, or None."""
        above = self.lines[fence.start - 1] if fence.start else ""
        match = re.fullmatch(rf"<!-- {name}: (.*) -->", above.strip())
        return match.group(1) if match else None

    def claims(self, fence):
        """Yields (line index, expression, whether it is about times) of each `<!-- holds: ... -->` and `<!-- timed: ... -->`
        directly below a fence."""
        for n in range(fence.end + 1, len(self.lines)):
            match = re.fullmatch(r"<!-- (holds|timed): (.*) -->", self.lines[n].strip())
            if not match:
                return
            yield n, match.group(2), match.group(1) == "timed"

    def prose(self):
        """Yields (line index, text) without blocks, comments and inline code; link targets are kept."""
        in_fence = set()
        for fence in self.fences:
            in_fence.update(range(fence.start, fence.end + 1))
        in_comment = False
        for n, line in enumerate(self.lines):
            if n in in_fence:
                continue
            if in_comment:
                in_comment = "-->" not in line
                continue
            text = re.sub(r"<!--.*?-->", "", line)
            if "<!--" in text:
                text, in_comment = text.split("<!--")[0], True
            yield n, re.sub(r"`[^`]*`", " ", text)

    def headings(self):
        fenced = {n for f in self.fences for n in range(f.start, f.end + 1)}
        return [(n, line) for n, line in enumerate(self.lines) if n not in fenced and re.match(r"#+ ", line)]

    def replace(self, fence, body):
        """Replaces the lines of a fence. Later fences must be replaced first."""
        self.lines[fence.start + 1:fence.end] = body

    def save(self):
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        self.fences = list(self._fences())


def anchor_of(heading):
    """Returns GitHub's anchor for a heading line."""
    text = re.sub(r"^#+ ", "", heading)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def lessons(only=None, root=ROOT):
    found = sorted((root / "lessons").glob("[0-9][0-9]-*/README.md"))
    if only:
        found = [p for p in found if p.parent.name[:2] == only or p.parent.name == only]
        if not found:
            raise Fault(f"no lesson '{only}': give a number with two digits, as in --only 06")
    return [Lesson(p) for p in found]


def documents(only=None, root=ROOT):
    """Returns the lessons, and the other pages whose commands and quotations are checked in the
    same way."""
    pages = [Lesson(root / "lessons" / f"{page}.md") for page in ("your-own-program", "diagnose-a-trace")]
    named = [p for p in pages if only == p.slug]
    return named or (lessons(only, root) if only else lessons(root=root) + pages)
