"""Checks a deck, slides/NN-slug.md, without drawing it. (slides/overflow.mjs checks the drawn ones.)

12 to 25 slides; pictures are the lessons' figures; blocks of code and output (all except ```text) are also in the
lesson, which is executed; at least five notes for the speaker begin with 'Ask:', and each slide's note has its minutes.
"""
import re

from lesson import Lesson, ROOT


def slides_of(lines):
    """Returns the slides, each a list of lines. Skips the front matter; splits at ---."""
    end = next((n for n in range(1, len(lines)) if lines[n] == "---"), 0) if lines and lines[0] == "---" else -1
    slides, fenced = [[]], False
    for line in lines[end + 1:]:
        fenced ^= line.startswith("```")
        if line.strip() == "---" and not fenced:
            slides.append([])
        else:
            slides[-1].append(line)
    return slides


def check(deck, root=ROOT):
    faults, slides = [], slides_of(deck.lines)
    if not any(line == "theme: ringsmith" for line in deck.lines[:12]) or deck.lines[0] != "---":
        faults.append(f"{deck.name}: begins with the front matter of slides/README.md (marp: true, theme: ringsmith)")
    if not 12 <= len(slides) <= 25:
        faults.append(f"{deck.name}: {len(slides)} slides; a deck has 12 to 25")
    text = "\n".join(deck.lines)
    if len(re.findall(r"<!--\s*Ask:", text)) < 5:
        faults.append(f"{deck.name}: at least five notes for the speaker say what to ask the room: <!-- Ask: ... -->")
    for number, slide in enumerate(slides, 1):
        if not any(re.search(r"\b\d+ min", note) for note in re.findall(r"<!--(.*?)-->", "\n".join(slide), re.S)):
            faults.append(f"{deck.name}: slide {number}: no note with its minutes")
    if "](../lessons/figures/" not in text:
        faults.append(f"{deck.name}: no figure of the lessons")
    for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text):
        if not target.startswith("../lessons/figures/"):
            faults.append(f"{deck.name}: {target}: pictures come from ../lessons/figures/, so that they cannot differ")
    path = root / "lessons" / deck.slug / "README.md"
    if not path.exists():
        return faults + [f"{deck.name}: there is no lessons/{deck.slug}"]
    lesson = Lesson(path)
    blocks = [[line.strip() for line in f.body] for f in lesson.fences]
    for fence in deck.fences:
        if fence.language == "text":  # a text picture
            continue
        part = []
        for line in [line.strip() for line in fence.body] + ["..."]:
            if line not in ("...", "// ..."):
                part.append(line)
                continue
            if part and not any(part == b[i:i + len(part)] for b in blocks for i in range(len(b) - len(part) + 1)):
                faults.append(f"{deck.where(fence.start)}: these lines are in no block of the lesson: "
                              f"{part[0]!r} ...")
            part = []
    return faults
