"""Checks that every term is explained before it is used; generates lessons/GLOSSARY.md from the lessons.

A lesson ends with `## Words`, one line for each new term, in one sentence:

    - **chunk** (chunks): a range of elements of the buffer that travels in one message.

In parentheses: its other forms, which count as the term. In the text above, the term is in bold where it
is introduced, and only there. The check reads the lessons in order, without code, headings and links to
later lessons, and finds terms that are used before they are introduced. A term in capitals (QP) must
match in case.
"""
import dataclasses
import re

from lesson import ROOT, anchor_of

ENTRY = re.compile(r"- \*\*([^*]+)\*\*(?: \(([^)]*)\))?: (.+)")


@dataclasses.dataclass
class Term:
    name: str
    forms: list
    sentence: str
    lesson: object
    line: int
    place: tuple = None  # (line, column, heading) where it is introduced

    def pattern(self):
        forms = sorted([self.name, *self.forms], key=len, reverse=True)
        alternatives = [r"\s+".join(map(re.escape, f.split())) if any(c.isupper() for c in f[1:])
                        else "(?i:" + r"\s+".join(map(re.escape, f.split())) + ")" for f in forms]
        return re.compile(r"(?<![\w-])(" + "|".join(alternatives) + r")(?![\w])")


def words_line(lesson):
    return next((n for n, h in lesson.headings() if h.strip() == "## Words"), len(lesson.lines))


def read(lesson):
    """Returns (terms, faults) of a lesson's last section. An entry may continue in lines that
    begin with blanks."""
    terms, faults, start = [], [], words_line(lesson)
    text, entries = lesson.lines, []
    for n in range(start + 1, len(text)):
        if text[n].startswith("- "):
            entries.append([n, text[n]])
        elif text[n].startswith("  ") and entries:
            entries[-1][1] += " " + text[n].strip()
    for n, entry in entries:
        match = ENTRY.fullmatch(entry)
        if not match:
            faults.append(f"{lesson.where(n)}: write terms as '- **term** (other, forms): One sentence.'")
            continue
        name, forms, sentence = match.groups()
        if not sentence.endswith(".") or re.search(r"[.!?] [A-Z]", sentence):
            faults.append(f"{lesson.where(n)}: '{name}' is explained in one sentence that ends with a full stop")
        terms.append(Term(name, [f.strip() for f in forms.split(",")] if forms else [], sentence, lesson, n))
    return terms, faults


def readable(lesson):
    """(line, text) before `## Words` that counts as a use: without headings, pictures and links
    to later lessons."""
    stop = words_line(lesson)
    for n, text in lesson.prose():
        if n >= stop:
            return
        if re.match(r"#+ ", text):
            continue
        text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)

        def link(match):
            later = re.search(r"\.\./(\d\d)-", match.group(2))
            return " " if later and later.group(1) > lesson.number else match.group(1)
        yield n, re.sub(r"\[([^\]]*)\]\(([^)]*)\)", link, text)


def check(lessons):
    """Returns the faults of all lessons together, and their terms."""
    faults, terms, seen = [], [], {}
    for lesson in lessons:
        found, wrong = read(lesson)
        faults += wrong
        for term in found:
            for form in [term.name, *term.forms]:
                if form in seen and seen[form].lesson is not lesson:
                    faults.append(f"{lesson.where(term.line)}: '{form}' is a term of {seen[form].lesson.slug} already")
                seen.setdefault(form, term)
        terms += found
    texts = {id(lesson): list(readable(lesson)) for lesson in lessons}
    for term in terms:
        faults += _introduced(term, texts[id(term.lesson)])
    for lesson in lessons:
        faults += _bold(lesson, texts[id(lesson)], [t for t in terms if t.lesson is lesson])
        for term in terms:
            if term.lesson.number < lesson.number or (term.lesson is lesson and term.place is None):
                continue
            for n, text in texts[id(lesson)]:
                for match in term.pattern().finditer(text.replace("**", "  ")):
                    if term.lesson is not lesson:
                        faults.append(f"{lesson.where(n)}: '{match.group(0)}' is used, but lesson {term.lesson.number} "
                                      "introduces it")
                    elif (n, match.start()) < term.place[:2]:
                        faults.append(f"{lesson.where(n)}: '{match.group(0)}' is used before it is introduced in line "
                                      f"{term.place[0] + 1}")
    return faults, terms


def _introduced(term, text):
    for n, line in text:
        for match in re.finditer(r"\*\*([^*]+)\*\*", line):
            if term.pattern().fullmatch(match.group(1)):
                heading = next((h for m, h in reversed(term.lesson.headings()) if m < n), "")
                term.place = (n, match.start() + 2, heading)
                return []
    return [f"{term.lesson.where(term.line)}: '{term.name}' is nowhere in bold in the text above: "
            "mark the place that explains it"]


def _bold(lesson, text, terms):
    faults, done = [], set()
    for n, line in text:
        for match in re.finditer(r"\*\*([^*]+)\*\*", line):
            term = next((t for t in terms if t.pattern().fullmatch(match.group(1))), None)
            if term is None:
                faults.append(f"{lesson.where(n)}: bold is for new terms, and '{match.group(1)}' is not in '## Words'; "
                              "to stress something write *...*")
            elif term.name in done:
                faults.append(f"{lesson.where(n)}: '{term.name}' is in bold for the second time")
            else:
                done.add(term.name)
    return faults


def glossary(terms):
    """Returns the lines of lessons/GLOSSARY.md."""
    head = ["# Glossary", "", "Every term of the course in one sentence, with the lesson that introduces it.",
            "Made from the lessons' last sections by `make lessons UPDATE=1`: change those, not this file.", ""]
    body = []
    for term in sorted(terms, key=lambda t: (t.name.lower(), t.name)):
        forms = f" ({', '.join(term.forms)})" if term.forms else ""
        anchor = "#" + anchor_of(term.place[2]) if term.place else ""
        title = re.sub(r"^#+ ", "", term.place[2]) if term.place else "?"
        body.append(f"- **{term.name}**{forms}: {term.sentence} "
                    f"[{term.lesson.number}, {title}]({term.lesson.slug}/README.md{anchor})")
    return head + body


def check_glossary(terms, update=False, root=ROOT):
    """Lines may be in any order, so that two branches that add terms merge without a conflict
    (.gitattributes)."""
    path, lines = root / "lessons" / "GLOSSARY.md", glossary(terms)
    if update:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return []
    have = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if sorted(have) == sorted(lines):
        return []
    differ = sorted(set(lines) ^ set(have))
    what = differ[0][:90] if differ else "a line twice"
    return [f"lessons/GLOSSARY.md is not what the lessons say (--update makes it): {what}"]
