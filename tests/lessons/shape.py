"""The shape of a lesson: 150 to 350 lines without its folded answers, and the sections that every lesson has, in order."""
import re

SECTIONS = ["The question", "The idea by hand", "The mathematics", "The code", "The experiment", "What goes wrong",
            "Questions", "Remember", "Papers", "Words", "Now lab"]
LINES = range(150, 351)
FOLD = "<details><summary>Answer</summary>"


def check(lesson):
    faults = []
    read = len(lesson.lines) - sum(end - start + 1 for start, end in _folded(lesson))
    read -= sum(len(_section(lesson, name)) + 1 for name in ("Remember", "Now lab"))
    if read not in LINES:
        faults.append(f"{lesson.name}: {read} lines without its answers; a lesson has {LINES[0]} to {LINES[-1]}")
    headings = [h[3:] for _, h in lesson.headings() if h.startswith("## ")]
    if not re.match(rf"# {lesson.number} \S", lesson.lines[0]):
        faults.append(f"{lesson.where(0)}: the first line is '# {lesson.number} Title'")
    at = 0
    for section in SECTIONS:
        found = next((n for n in range(at, len(headings)) if headings[n].startswith(section)), None)
        if found is None:
            faults.append(f"{lesson.name}: no section '## {section}' (in this order: {', '.join(SECTIONS)})")
        else:
            at = found + 1
    boxed = any(h.startswith("What the tutorials say") for h in headings)
    if lesson.number in ("06", "07", "08", "09", "10") and not boxed:
        faults.append(f"{lesson.name}: chapters 06 to 10 have a section '## What the tutorials say'")
    if not any("](../figures/" in line for line in lesson.lines):
        faults.append(f"{lesson.name}: no picture: link one of ../figures/*.svg")
    if not any(f.language == "console" for f in lesson.fences):
        faults.append(f"{lesson.name}: no command: a lesson shows an experiment with its real output")
    faults += _check_questions(lesson)
    if sum(1 for line in _section(lesson, "Remember") if line.startswith("- ")) != 3:
        faults.append(f"{lesson.name}: '## Remember' has three lines, each begins with '- '")
    if not any(f"](../../labs/{lesson.slug}/README.md)" in line for line in _section(lesson, f"Now lab {lesson.number}")):
        faults.append(f"{lesson.name}: the last section is '## Now lab {lesson.number}', with a link to the lab")
    if not (lesson.path.parents[2] / "slides" / f"{lesson.slug}.md").exists():
        faults.append(f"{lesson.name}: there is no slides/{lesson.slug}.md")
    return faults + check_width(lesson)


def _check_questions(lesson):
    """Each question is followed by one folded answer."""
    questions = _section(lesson, "Questions")
    kinds = ["question" if re.match(r"\d+\. ", line) else "answer" for line in questions
             if re.match(r"\d+\. ", line) or line.strip() == FOLD]
    if kinds.count("question") < 3:
        return [f"{lesson.name}: '## Questions' has three questions or more, as a list 1. 2. 3."]
    if kinds != ["question", "answer"] * (len(kinds) // 2):
        return [f"{lesson.name}: each question has one folded answer: '{FOLD}'"]
    return []


def _folded(lesson):
    """Yields the first and last line of each folded part."""
    start = None
    for n, line in enumerate(lesson.lines):
        if line.strip().startswith("<details>"):
            start = n
        elif line.strip() == "</details>" and start is not None:  # with the empty lines around it
            yield start - (lesson.lines[start - 1] == ""), n + (lesson.lines[n + 1] == "")
            start = None


def check_width(lesson):
    faults = []
    for n, line in enumerate(lesson.lines):
        quoted = any(f.start < n < f.end for f in lesson.fences) or line.startswith(("|", "!", "<!--"))
        if len(line) > 120 and not quoted:
            faults.append(f"{lesson.where(n)}: {len(line)} characters; prose has lines of up to 120")
    return faults


def _section(lesson, name):
    start = next((n for n, h in lesson.headings() if h.startswith("## " + name)), None)
    if start is None:
        return []
    end = next((n for n, h in lesson.headings() if n > start and h.startswith("## ")), len(lesson.lines))
    return lesson.lines[start + 1:end]
