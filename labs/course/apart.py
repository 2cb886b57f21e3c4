"""Separates a student's text from the driver: the text is preprocessed alone, read as the compiler reads
it, and written again without macros. The driver includes the result.

    ring.hpp  --g++ -E-->  tokens of ring.hpp, tokens of <vector>, ...  --this file-->  #include <vector>
                                                                                        tokens of ring.hpp

So no #define of the student reaches the kit's headers or the driver, and no line splice, digraph, comment
or string hides a word, because the compiler's own preprocessor has resolved them. -dD and -dI keep #define
and #include at their places.

Forging a line marker is useless: text attributed to a header is dropped, and text attributed to the student is checked.
"""
import dataclasses
import re

from labs.course.verdicts import Crash

MOST = 4 << 20  # maximum number of characters of a student's own text after preprocessing

MARK = re.compile(r'^# (\d+) "((?:[^"\\\n]|\\.)*)"((?: \d)*)[ \r]*\n', re.M)
TOKEN = re.compile(r"""
    (?P<space>[ \t\f\v\r\n]+)
  | (?P<raw>(?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)")
  | (?P<text>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<word>(?:[^\W\d]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})(?:\w|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*)
  | (?P<mark>%:%:|%:|\#\#?|<:(?!:[^:>])|:>|<%|%>|::|->|[-+*/%^&|~!=<>(){}\[\];:,.?])
    """, re.X | re.S)
DIGRAPHS = {"<:": "[", ":>": "]", "<%": "{", "%>": "}", "%:": "#", "%:%:": "##"}
DIRECTIVE = re.compile(r"#[ \t]*(\w+)[ \t]*(.*)")
DEFINED = re.compile(r"^#(define|undef) (\w+)(\(?)([^\n]*)", re.M)


class Unreadable(Crash):
    """The text must not be compiled; the message gives the reason."""
    status = "does not compile"


@dataclasses.dataclass
class Text:
    """The contents of a student's files."""
    clean: str = ""                                     # the text to compile
    words: list = dataclasses.field(default_factory=list)      # tokens without spaces; digraphs are resolved
    includes: list = dataclasses.field(default_factory=list)   # as written: <vector>, "labs/kit/link.hpp"
    macros: list = dataclasses.field(default_factory=list)     # names of macros that the text defines
    pragmas: list = dataclasses.field(default_factory=list)


def read(preprocessed, own):
    """preprocessed: the output of -E -dD -dI. own(name): true for the name of a student's file."""
    text, parts, files, at = Text(), ["#pragma once\n"], [], 0
    while at < len(preprocessed):
        mark = MARK.match(preprocessed, at)
        if mark:
            line, name, flags = mark.groups()
            if "1" in flags or not files:
                files.append(name)
            elif "2" in flags:
                files[-2:] = [name]
            at = mark.end()
            if own(files[-1]):
                parts.append(f'# {line} "{files[-1]}"\n')
        elif own(files[-1]):
            at = _students(preprocessed, at, own, text, parts)
        else:
            following = MARK.search(preprocessed, at)
            at = following.start() if following else len(preprocessed)
    text.clean = "".join(parts) + "\n"
    if len(text.clean) > MOST:
        raise Unreadable(f"after preprocessing it has {len(text.clean) >> 20} MiB; at most {MOST >> 20} are allowed")
    _no_late_macro(preprocessed, text)
    return text


def _students(source, at, own, text, parts):
    """Reads the student's text from `at` to the next line marker; returns the marker's position."""
    begun, line_starts = at, True
    while at < len(source):
        if line_starts and source[at] == "#":
            if MARK.match(source, at):
                break
            parts.append(source[begun:at])
            end = source.find("\n", at) + 1 or len(source)
            parts.append(_directive(source[at:end].rstrip(), own, text))
            at = begun = end
            continue
        found = TOKEN.match(source, at)
        if not found:
            raise Unreadable(f"stray {source[at]!r} in the text")
        kind, word = found.lastgroup if found.lastgroup != "end" else "raw", found.group()
        if kind == "mark" and DIGRAPHS.get(word, word) in ("#", "##"):
            raise Unreadable("stray # in the text: macros cannot form a directive")
        if kind != "space":
            text.words.append(DIGRAPHS.get(word, word))
        line_starts = word.endswith("\n") if kind == "space" else False
        at = found.end()
    parts.append(source[begun:at])
    return at


def _directive(line, own, text):
    """Returns the part of a directive that is to be compiled."""
    found = DIRECTIVE.match(line)
    kind, rest = found.groups() if found else ("", line)
    rest = rest.split("/* clang -E")[0].strip()
    if kind in ("include", "include_next", "import"):
        if own(rest[1:-1]):
            return "\n"  # its tokens follow
        text.includes.append(rest)
        return f"#include {rest}\n"
    if kind == "define":
        name = re.match(r"\w+", rest)
        text.macros.append(name.group())
        return "\n"
    if kind == "undef":  # of a header's macro, which must not exist in the driver either
        return "\n" if rest in text.macros else f"#undef {rest}\n"
    if kind == "pragma":
        text.pragmas.append(rest)
        return line + "\n"
    raise Unreadable(f"stray #{kind} in the text")


def _no_late_macro(preprocessed, text):
    """Rejects remaining calls of a header's macro: the driver would expand them to unchecked
    words."""
    calls = {name for name, following in zip(text.words, text.words[1:]) if following == "("}
    late = set()
    for kind, name, call, rest in DEFINED.findall(preprocessed):
        if name in calls:
            (late.add if kind == "define" and call and not re.search(rf"\b{name}\b", rest) else late.discard)(name)
    for name in late.difference(text.macros):
        raise Unreadable(f"{name}( is a macro of a header, formed by other macros")
