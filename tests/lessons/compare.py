"""Compares an output with the lesson. The marks of a block define the permitted differences.

    (none)      nothing: a deterministic program
    stamps      `pid 4711`, dates, times of day, ports, seconds as in `0.2 s`
    measured    stamps, and numbers with a decimal point. Whole numbers (sizes, counts, errors) and words
                must match; runs of blanks and of dashes count as one
    numbers     any number
    unordered   the order of the lines
A line `...` stands for any number of lines, including none. The host's name is always `node0`, the
folder of the run `/home/you/ringsmith`.
"""
import difflib
import re

MARKS = {"stamps", "measured", "numbers", "unordered", "recorded"}
STAMP = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?")


def mask(line, marks):
    line = line.rstrip()
    if {"stamps", "measured", "numbers"} & set(marks):
        line = STAMP.sub("<date>", line)
        line = re.sub(r"\bpid +\d+", "pid <n>", line)
        line = re.sub(r"(\d+\.\d+\.\d+\.\d+):\d+", r"\1:<port>", line)
        line = re.sub(r"\b\d+\.\d+ s\b", "<seconds>", line)
    if {"measured", "numbers"} & set(marks):
        line = re.sub(r"-?\b\d+\.\d+(e[-+]?\d+)?\b", "<d>", line)
        if "numbers" in marks:
            line = re.sub(r"-?\b\d[\d,]*\b", "<d>", line)
        line = re.sub(r"-{3,}", "---", re.sub(r"\s+", " ", line)).strip()
    return line


def segments(lines):
    """Returns the lines between `...` lines."""
    parts = [[]]
    for line in lines:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def difference(expected, actual, marks):
    """Returns None if they agree, otherwise a readable diff."""
    want = [mask(line, marks) if line.strip() != "..." else "..." for line in expected]
    got = [mask(line, marks) for line in actual]
    if "unordered" in marks:
        if "..." in want:
            rest = list(got)
            lost = [line for line in want if line != "..." and (line not in rest or rest.remove(line))]
            return "\n".join(f"- {line}" for line in lost) or None
        want, got = sorted(want), sorted(got)
    if _matches(segments(want), got):
        return None
    return "\n".join(list(difflib.unified_diff(want, got, "the lesson", "this run", lineterm="", n=1))[:40])


def _matches(parts, got):
    if len(parts) == 1:
        return parts[0] == got
    first, last, at = parts[0], parts[-1], len(parts[0])
    if got[:at] != first or len(got) < at + len(last) or (last and got[-len(last):] != last):
        return False
    stop = len(got) - len(last)
    for part in parts[1:-1]:
        at = next((i + len(part) for i in range(at, stop - len(part) + 1) if got[i:i + len(part)] == part), None)
        if at is None:
            return False
    return True


def renewed(expected, actual, marks):
    """Returns the lesson's lines with this run's text. `...` stays where it was, as far as possible."""
    parts = segments(expected)
    if len(parts) == 1:
        return list(actual)
    out, at = [], 0
    for n, part in enumerate(parts):
        if n == len(parts) - 1:
            start = max(at, len(actual) - len(part)) if part else len(actual)
        elif n == 0:
            start = 0
        else:
            start = max(range(at, max(at + 1, len(actual) - len(part) + 1)), default=at,
                        key=lambda i: sum(difflib.SequenceMatcher(None, mask(a, marks), mask(b, marks)).ratio()
                                          for a, b in zip(part, actual[i:i + len(part)])))
        out += (["..."] if n else []) + actual[start:start + len(part)]
        at = start + len(part)
    return out
