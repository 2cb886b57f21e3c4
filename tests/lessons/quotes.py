"""Code quoted in a lesson must exist in the sources: found by file and symbol, compared, updated by --update.

    <!-- quote: runtime/comm/schedule/ring.cpp ring_reduce_scatter_step -->
    ```cpp
    ...

The directive: FILE SYMBOL [bare] [from "TEXT" to "TEXT"]. SYMBOL is a function, class, enum or constant, with
`Class::member` for members. Comments directly above belong to it, unless `bare`. from/to select the lines
from the first that contains the one text to the next that contains the other. The lesson must also link to
the file.
"""
import re

from lesson import ROOT, Fault

CODE = ("cpp", "cuda", "python", "c")


def _stripped(line):
    """Returns the line without comments and strings, for counting braces."""
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    line = re.sub(r"'(\\.|[^'\\])'", "' '", line)
    return re.sub(r"//.*", "", line)


def _end(lines, start):
    """Returns the index of the last line of the definition that begins at start: a brace block, or up to ;"""
    depth, parens, opened = 0, 0, False
    for n in range(start, len(lines)):
        for c in _stripped(lines[n]):
            parens += (c == "(") - (c == ")")
            if c == "{":
                depth, opened = depth + 1, True
            elif c == "}":
                depth -= 1
            elif c == ";" and depth == 0 and parens == 0:
                return n
        if opened and depth == 0 and parens == 0:
            rest = _stripped(lines[n]).rstrip()
            if rest.endswith("}") or rest.endswith(";") or ";" in rest:
                return n
    return len(lines) - 1


def _defines(lines, n, name):
    """Returns 2 if the definition of name begins in line n, 1 if a declaration does, otherwise
    0."""
    line = _stripped(lines[n])
    if re.search(rf"\b(struct|class|enum|enum class|union|concept|namespace|using)\s+(\[\[.*?\]\]\s*)?{name}\b", line):
        return 1 if re.search(rf"\b{name}\s*;", line) else 2
    if re.match(rf"\s*#define\s+{name}\b", line) or re.search(rf"\b(const|constexpr)\b.*\b{name}\s*(=|\{{|\[)", line):
        return 2
    match = re.match(rf"\s*([\w:<>,*&\[\]\s~]+[\s*&])?(\w+::)*~?{name}\s*\(", line)
    if not match or re.match(rf"\s*(return|if|while|for|switch|else|throw|co_await|delete|new)\b", line):
        return 0
    last = _stripped(lines[_end(lines, n)]).rstrip()
    if match.group(1) is None and "::" not in match.group(0) and not last.endswith("}"):
        return 0  # this is a call
    return 2 if last.endswith("}") or last.endswith("};") else 1


def find(lines, symbol):
    """(first, last) line of a symbol's definition, or of its declaration if there is no
    definition."""
    outer, _, name = symbol.rpartition("::")
    begin, stop = 0, len(lines)
    if outer:
        direct = [n for n in range(len(lines)) if re.search(rf"\b{symbol}\s*\(", _stripped(lines[n]))
                  and _defines(lines, n, name) == 2]
        if direct:
            return direct[0], _end(lines, direct[0])
        begin, stop = find(lines, outer)
        begin, stop = begin + 1, stop + 1
    for wanted in (2, 1):
        for n in range(begin, stop):
            if _defines(lines, n, re.escape(name)) == wanted:
                return n, _end(lines, n)
    raise Fault(f"'{symbol}' is not there any more")


def find_python(lines, symbol):
    begins = re.compile(rf"\s*(def|class)\s+{symbol}\b|{symbol}\s*=")
    start = next((n for n, line in enumerate(lines) if begins.match(line)), None)
    if start is None:
        raise Fault(f"'{symbol}' is not there any more")
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start
    for n in range(start + 1, len(lines)):
        outside = len(lines[n]) - len(lines[n].lstrip()) <= indent and not lines[n].startswith((")", "]", "}"))
        if lines[n].strip() and outside:
            break
        if lines[n].strip():
            end = n
    return start, end


def extract(directive, root=ROOT):
    """Returns the lines that a directive selects."""
    match = re.fullmatch(r'(\S+) (\S+)( bare)?(?: from "([^"]+)" to "([^"]+)")?', directive)
    if not match:
        raise Fault(f"'{directive}' is not FILE SYMBOL [bare] [from \"TEXT\" to \"TEXT\"]")
    path, symbol, bare, begin, stop = match.groups()
    if not (root / path).is_file():
        raise Fault(f"there is no file {path}")
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    try:
        first, last = find_python(lines, symbol) if path.endswith(".py") else find(lines, symbol)
    except Fault as error:
        raise Fault(f"{path}: {error}") from None
    while first > 0 and lines[first - 1].strip().startswith("template"):
        first -= 1
    if not bare and not begin:
        while first > 0 and lines[first - 1].strip().startswith(("//", "#")) and "#pragma" not in lines[first - 1]:
            first -= 1
    found = lines[first:last + 1]
    if begin:
        at = next((n for n, line in enumerate(found) if begin in line), None)
        to = next((n for n, line in enumerate(found) if at is not None and n >= at and stop in line), None)
        if to is None:
            raise Fault(f"{path}: {symbol} has no lines from \"{begin}\" to \"{stop}\" any more")
        found = found[at:to + 1]
    indent = min((len(line) - len(line.lstrip()) for line in found if line.strip()), default=0)
    return [line[indent:].rstrip() for line in found]


def check(lesson, update=False, root=ROOT):
    faults, changed, count = [], [], 0
    linked = {(lesson.path.parent / target).resolve()
              for target in re.findall(r"\]\(([^)#\s]+)", "\n".join(lesson.lines)) if ":" not in target}
    for fence in lesson.fences:
        if fence.language not in CODE:
            continue
        where = lesson.where(fence.start)
        directive = lesson.directive(fence, "quote")
        if directive is None:
            if "sketch" not in fence.marks:
                faults.append(f"{where}: code needs <!-- quote: FILE SYMBOL --> above it, or the mark 'sketch' where "
                              "it is nobody's code")
            continue
        count += 1
        try:
            body = extract(directive, root)
        except Fault as error:
            faults.append(f"{where}: quotes what has gone: {error}")
            continue
        path = directive.split()[0]
        if (root / path).resolve() not in linked:
            faults.append(f"{where}: quotes {path}, but the lesson does not link it: [...](../../{path})")
        if body != [line.rstrip() for line in fence.body]:
            if update:
                changed.append((fence, body))
            else:
                faults.append(f"{where}: {directive} reads differently now (--update renews it)")
    for fence, body in reversed(changed):
        lesson.replace(fence, body)
    if changed:
        lesson.save()
    return faults, count
