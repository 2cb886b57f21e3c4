"""Checks that every link of a lesson has a target: files, folders, anchors, and symbols in `code`
link texts.

Web addresses are not fetched (the tests have no network): only their form is checked.
"""
import re

from lesson import Lesson, ROOT, anchor_of

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def check(document, root=ROOT):
    faults, count = [], 0
    fenced = {n for f in document.fences for n in range(f.start, f.end + 1)}
    for n, line in enumerate(document.lines):
        if n in fenced:
            continue
        for picture, text, target in LINK.findall(line):
            count += 1
            where = document.where(n)
            if re.match(r"[a-z]+:", target):
                if not re.fullmatch(r"https://[\w.-]+\.[a-z]{2,}(/\S*)?", target):
                    faults.append(f"{where}: '{target}' is not an address that begins with https://")
                continue
            file, _, anchor = target.partition("#")
            path = (document.path.parent / file).resolve() if file else document.path.resolve()
            if not path.exists():
                faults.append(f"{where}: dead link: {target}")
                continue
            if root.resolve() not in path.parents and path != root.resolve():
                faults.append(f"{where}: {target} leads out of the repository")
            if picture and not text:
                faults.append(f"{where}: say in the brackets what {target} shows, for those who cannot see it")
            if anchor and path.suffix == ".md":
                anchors = [anchor_of(h) for _, h in Lesson(path).headings()]
                if anchor not in anchors:
                    faults.append(f"{where}: {file or 'this page'} has no heading #{anchor}")
            symbol = re.fullmatch(r"`([A-Za-z_][\w:]*)(\(\))?`", text)
            if symbol and path.is_file() and path.suffix in (".hpp", ".cpp", ".cu", ".cuh", ".h", ".py"):
                for name in symbol.group(1).split("::"):
                    if not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")):
                        faults.append(f"{where}: {file} has no '{name}' any more")
    return faults, count
