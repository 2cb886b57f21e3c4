"""Generates wrong solutions by rule for `make mutate`. Each mutant replaces one expression or statement.

libclang parses the driver with the solution included, so mutants are made from the syntax tree: an
operator between its operands, an argument of the same type as its neighbour, a variable in scope.
Only lines between #ifdef SOLUTION and #else are changed; the other lines are not the student's.
The operators are the usual ones (Offutt et al., An experimental determination of sufficient mutant
operators, 1996) and the typical mistakes of this course: narrow types, weak memory orders, swapped
statements, ranks, state that persists between calls. Six operators stand for kinds of mistake that attacks on the
grader found again and again:

    exception   a handler for all exceptions that handles one type; a type that is thrown
    narrow      a type that is too small, where the task's other functions have the right one
    zero        a statement that is skipped if a setting is 0
    sign        a result that loses the sign of -0, or turns an infinity into a NaN
    wait        a wait for one more or one less, or for another rank
    report      a wrong number in a message

The following mutants are not generated: changed texts of messages
(mutants.toml covers the messages that a task prescribes), copies of objects that are never modified, and swaps of
arguments whose order does not matter.
"""
import dataclasses
import hashlib
import pathlib
import re

from labs.course.split import split
from labs.course.verdicts import AuthorError

try:
    from clang.cindex import CursorKind as K, Index, TypeKind
except ImportError:
    raise AuthorError("make mutate needs libclang and its Python module: apt install python3-clang-14, and run it by "
                      "that python3 (Debian's: /usr/bin/python3)") from None

SWAPS = {
    "relation": {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!=", "<=", ">="],
                 "!=": ["==", "<", ">"]},
    "arithmetic": {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "<<": [">>"], ">>": ["<<"], "&": ["|"],
                   "|": ["&"], "^": ["|"]},
    "logic": {"&&": ["||"], "||": ["&&"]},
    "assignment": {"+=": ["=", "-="], "-=": ["=", "+="], "*=": ["=", "/="], "/=": ["=", "*="], "%=": ["="],
                   "|=": ["="], "&=": ["="], "<<=": [">>="], ">>=": ["<<="]},
}
NARROW = {"int64_t": ["int32_t", "int16_t"], "uint64_t": ["uint32_t"], "size_t": ["uint32_t"], "double": ["float"],
          "uint32_t": ["uint16_t"], "ptrdiff_t": ["int32_t"]}
THROWN = {"invalid_argument": "out_of_range", "out_of_range": "invalid_argument", "logic_error": "runtime_error",
          "runtime_error": "logic_error"}
WEAKER = {"seq_cst": ["acq_rel", "relaxed"], "acq_rel": ["acquire", "release", "relaxed"], "acquire": ["relaxed"],
          "release": ["relaxed"]}
EITHER_WAY = ("swap", "gcd", "lcm")     # symmetric in their arguments; so are min and max of integers
WHOLE = (K.IF_STMT, K.FOR_STMT, K.WHILE_STMT, K.DO_STMT, K.CXX_FOR_RANGE_STMT, K.COMPOUND_STMT, K.CXX_TRY_STMT,
         K.SWITCH_STMT)
LOOPS = (K.FOR_STMT, K.WHILE_STMT, K.DO_STMT, K.CXX_FOR_RANGE_STMT)


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    operator: str
    start: int      # byte offset in the solution's text
    end: int
    old: str
    put: str
    line: str       # first changed line, stripped: part of the id, which survives edits elsewhere
    number: int     # number of that line in the current text
    ordinal: int    # distinguishes mutants with the same operator, old, put and line
    form: str       # how schema.py embeds it: "expression", "statement", "tail"; "": not embeddable
    whole: tuple    # (start, end) of the enclosing expression or statement

    @property
    def id(self):
        digest = hashlib.sha256("\0".join([self.file, self.operator, self.line, self.old, self.put,
                                           str(self.ordinal)]).encode()).hexdigest()[:6]
        return f"{digest} {self.operator}: {short(self.old)} -> {short(self.put)} | {short(self.line, 70)}"

    def apply(self, files):
        text = files[self.file].encode()
        lines = "\n" * (text[self.start:self.end].count(b"\n") - self.put.count("\n"))
        return {**files, self.file: (text[:self.start] + self.put.encode() + lines.encode() + text[self.end:]).decode()}


def short(text, most=46):
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 3] + "..."


def own_lines(annotated, name):
    """The numbers of the solution's lines that the skeleton does not have."""
    marked = "".join(f"{line}\x01{n}\n" for n, line in enumerate(annotated.splitlines()))
    numbers = [[line.rsplit("\x01", 1)[1] for line in split(marked, side, name).splitlines()] for side in (True, False)]
    skeleton = set(numbers[1])
    return {at for at, n in enumerate(numbers[0], 1) if n not in skeleton}


class Source:
    """One file of the solution, as bytes (clang's offsets are in bytes), and its mutants."""

    def __init__(self, name, text, lines, path):
        self.name, self.text, self.lines, self.path = name, text.encode(), lines, str(path)
        self.found = []

    def at(self, cursor):
        """The (start, end) of an expression or statement spelled out on a line of the solution;
        else None."""
        start, end = cursor.extent.start, cursor.extent.end
        if not start.file or not end.file or start.file.name != self.path or end.file.name != self.path:
            return None
        if start.offset >= end.offset or start.line not in self.lines:
            return None
        return start.offset, end.offset

    def of(self, cursor):
        span = self.at(cursor)
        return self.text[span[0]:span[1]].decode() if span else None

    def change(self, operator, start, end, put, form="", whole=None):
        old = self.text[start:end].decode()
        if old.strip() != put.strip():
            self.found.append((operator, start, end, old, put, form, whole or (start, end)))

    def replace(self, operator, cursor, put, form="expression"):
        span = self.at(cursor)
        if span:
            self.change(operator, *span, put, form)

    def mutants(self):
        seen, made = {}, []
        once = {found[:5]: found for found in self.found}.values()
        for operator, start, end, old, put, form, whole in sorted(once, key=lambda f: (f[1], f[2], f[0], f[4])):
            number = self.text.count(b"\n", 0, start) + 1
            line = self.text.splitlines()[number - 1].decode().strip()
            key = (operator, old, put, line)
            seen[key] = seen.get(key, 0) + 1
            made.append(Mutant(self.name, operator, start, end, old, put, line, number, seen[key], form, whole))
        return made


def plain(cursor_type):
    """A type's name without const, volatile and &."""
    name = cursor_type.get_canonical().spelling
    return re.sub(r"\bconst\b|[&]|\bvolatile\b", "", name).strip()


def is_number(cursor_type):
    kind = cursor_type.get_canonical().kind
    return TypeKind.BOOL.value <= kind.value <= TypeKind.LONGDOUBLE.value


def is_integer(cursor_type):
    """True for an integer type (bool included) or a reference to one."""
    kind = cursor_type.get_canonical()
    kind = kind.get_pointee() if kind.kind == TypeKind.LVALUEREFERENCE else kind
    return is_number(kind) and kind.kind not in (TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGDOUBLE)


def operator_between(source, left, right):
    """The (start, end, spelling) of the operator between two operands, or None."""
    a, b = source.at(left), source.at(right)
    if not a or not b or a[1] > b[0]:
        return None
    between = source.text[a[1]:b[0]].decode()
    found = re.fullmatch(r"([\s)]*)([-+*/%<>=!&|^]+)([\s(]*)", between)
    if not found:
        return None
    start = a[1] + len(found.group(1))
    return start, start + len(found.group(2)), found.group(2)


def binary(source, cursor, left, right):
    place = operator_between(source, left, right)
    if not place:
        return
    start, end, sign = place
    if sign == "+" and "basic_string<" in plain(cursor.type):
        return
    for kind, table in SWAPS.items():
        for other in table.get(sign, []):
            source.change(kind, start, end, other, "expression", source.at(cursor))
    if sign in SWAPS["arithmetic"] or sign in SWAPS["logic"]:
        whole = source.at(cursor)
        a, b = source.at(left), source.at(right)
        if whole and whole[0] <= a[0] and whole[1] >= b[1]:
            source.replace("operand", cursor, source.text[whole[0]:start].decode().strip())
            source.replace("operand", cursor, source.text[end:whole[1]].decode().strip())


def arguments(source, cursor):
    given = [a for a in cursor.get_arguments() if a is not None and source.at(a)]
    if not given:  # a call that depends on a template parameter: the children are the callee and the arguments
        given = [c for c in list(cursor.get_children())[1:] if source.at(c)]
    return given


def call(source, cursor):
    children = [c for c in cursor.get_children() if source.at(c)]
    if cursor.spelling.startswith("operator") and len(children) == 3:
        children.sort(key=lambda c: source.at(c)[0])
        return binary(source, cursor, children[0], children[2])
    given = arguments(source, cursor)
    if re.search("wait|await", cursor.spelling):
        for one in given:
            if is_number(one.type) or "dependent" in plain(one.type):
                source.replace("wait", one, f"({source.of(one)}) + 1")
                source.replace("wait", one, f"({source.of(one)}) - 1")
    if cursor.spelling == "to_string" and len(given) == 1 and is_number(given[0].type):
        source.replace("report", given[0], f"({source.of(given[0])}) + 1")
    for a, b in zip(given, given[1:]):
        same = plain(a.type) == plain(b.type) or (is_number(a.type) and is_number(b.type))
        span_a, span_b = source.at(a), source.at(b)
        if cursor.spelling in EITHER_WAY or (cursor.spelling in ("min", "max") and is_integer(cursor.type)):
            continue
        if same and span_a[1] <= span_b[0]:
            middle = source.text[span_a[1]:span_b[0]].decode()
            source.change("swapped", span_a[0], span_b[1], source.of(b) + middle + source.of(a),
                          "expression", source.at(cursor))
    if cursor.spelling in ("min", "max") and len(given) == 2:
        source.replace("operand", cursor, source.of(given[0]))
        source.replace("operand", cursor, source.of(given[1]))
        text = source.of(cursor)
        if text:
            other = {"min": "max", "max": "min"}[cursor.spelling]
            source.replace("arithmetic", cursor, re.sub(rf"\b{cursor.spelling}\b", other, text, count=1))
    if cursor.spelling in ("load", "store", "fetch_add", "fetch_sub", "exchange") and children:
        text = source.of(cursor)
        if text and text.endswith(")") and "memory_order" not in text:
            put = text[:-1] + ("" if text.endswith("()") else ", ") + "std::memory_order_relaxed)"
            source.replace("order", cursor, put)


def is_real(cursor_type):
    """True for a floating type or a reference to one."""
    kind = cursor_type.get_canonical()
    kind = kind.get_pointee() if kind.kind == TypeKind.LVALUEREFERENCE else kind
    return kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE)


def assigned(source, value, added=False):
    """A floating value that is assigned, added or returned. A sum begins with 0, so it loses the sign of an added -0
    anyway."""
    text = source.of(value)
    if not text or not is_real(value.type) or re.fullmatch(r"[\d.]+[fF]?", text):
        return
    if not added:
        source.replace("sign", value, f"(({text}) + 0)")
    if not re.search(r"[-+]{2}|=|\(", text):  # nothing that must not be evaluated twice
        source.replace("sign", value, f"(({text}) + 0 * ({text}))")


def settings_of(cursor):
    """The numbers on which a statement depends that may be settings: parameters and fields of a floating type."""
    found = []
    for inner in cursor.walk_preorder():
        target = inner.referenced if inner.kind in (K.DECL_REF_EXPR, K.MEMBER_REF_EXPR) else None
        if target is not None and target.kind in (K.PARM_DECL, K.FIELD_DECL) and is_real(target.type):
            found.append(inner)
    return found


def zero(source, cursor):
    """A statement that assigns, guarded by a setting that it uses."""
    if cursor.kind not in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) or not source.of(cursor):
        return
    left, *_ = [source.of(c) for c in cursor.get_children()] or [None]
    if cursor.kind == K.BINARY_OPERATOR and not re.match(r"\s*=[^=]", source.of(cursor)[len(left or ""):]):
        return
    names = dict.fromkeys(filter(None, map(source.of, settings_of(cursor))))
    for name in [n for n in names if n != left and re.fullmatch(r"[\w.]+(->\w+)?", n)][:2]:
        # Not an if, which would take the else of an unbraced statement.
        source.replace("zero", cursor, f"{name} != 0 ? void({source.of(cursor)}) : void()", "statement")


def handler(source, cursor):
    """catch (...) of a solution, which handles only one type after this change."""
    span = source.at(cursor)
    match = span and re.match(rb"catch\s*\(\s*(\.\.\.|const std::exception&)", source.text[span[0]:span[1]])
    if match:
        put = "const std::exception&" if match.group(1) == b"..." else "const std::runtime_error&"
        source.change("exception", span[0] + match.start(1), span[0] + match.end(1), put)


def literal(source, cursor):
    text = source.of(cursor)
    if not text:
        return
    if cursor.kind == K.CXX_BOOL_LITERAL_EXPR:
        source.replace("constant", cursor, {"true": "false", "false": "true"}.get(text, text))
    elif cursor.kind == K.FLOATING_LITERAL:
        source.replace("constant", cursor, "0.0f" if text.endswith("f") else "0.0")
        source.replace("constant", cursor, f"({text} * 2)")
    elif match := re.fullmatch(r"(\d+)([uUlLzZ]*)", text):
        value = int(match.group(1))
        for other in (value + 1, value - 1):
            source.replace("constant", cursor, f"{other}{match.group(2)}" if other >= 0 else "-1")


def statement(source, cursor, parent):
    """A statement in a block, or the unbraced body of an if or a loop."""
    if cursor.kind in (K.DECL_STMT, K.NULL_STMT, K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT):
        if cursor.kind == K.DECL_STMT and parent.kind == K.COMPOUND_STMT and source.at(cursor):
            start = source.at(cursor)[0]
            first = source.text[start:].split(None, 1)[0].decode()
            if first not in ("static", "using", "struct", "constexpr", "thread_local", "__shared__", "typename"):
                source.change("state", start, start + len(first), "static " + first)
        return
    if cursor.kind == K.RETURN_STMT and list(cursor.get_children()):
        return
    if cursor.kind == K.COMPOUND_STMT and parent.kind not in (*LOOPS, K.COMPOUND_STMT, K.IF_STMT):
        return
    zero(source, cursor)
    source.replace("deleted", cursor, "{}" if cursor.kind in WHOLE else "(void)0", "statement")
    if cursor.kind in (K.BREAK_STMT, K.CONTINUE_STMT):
        source.replace("jump", cursor, "continue" if cursor.kind == K.BREAK_STMT else "break", "statement")


def block(source, cursor):
    children = list(cursor.get_children())
    for child in children:
        statement(source, child, cursor)
    unmoved = (K.DECL_STMT, K.RETURN_STMT, K.BREAK_STMT, K.CONTINUE_STMT, K.NULL_STMT)
    for a, b in zip(children, children[1:]):
        span_a, span_b = source.at(a), source.at(b)
        if not span_a or not span_b or b.kind in unmoved or a.kind in unmoved or span_a[1] > span_b[0]:
            continue
        if {a.kind, b.kind} & set(WHOLE):
            def ended(cursor, span):
                return source.of(cursor) + ("" if source.of(cursor).endswith("}") else ";")
            tail = span_b[1] if source.of(b).endswith("}") else source.text.index(b";", span_b[1]) + 1
            source.change("moved", span_a[0], tail, ended(b, span_b) + " " + ended(a, span_a), "statement")
        else:
            middle = source.text[span_a[1]:span_b[0]].decode()
            source.change("moved", span_a[0], span_b[1], source.of(b) + middle + source.of(a), "statement")


def branch(source, cursor):
    children = list(cursor.get_children())
    span = source.at(cursor)
    if not span:
        return
    last = source.at(children[-1])
    before = source.at(children[-2])
    has_else = last and before and re.search(rb"\belse\b", source.text[before[1]:last[0]])
    condition = children[-3] if has_else else children[-2]
    then = children[-2] if has_else else children[-1]
    if has_else:
        at = source.text.rindex(b"else", before[1], last[0])
        source.change("else", at, last[1] + (source.text[last[1]:last[1] + 1] == b";"), "")
    text = source.of(condition)
    if text and condition.kind != K.DECL_STMT and ";" not in text:
        source.replace("condition", condition, f"!({text})")
        source.replace("condition", condition, f"(true || ({text}))")
    for body in [then] + ([children[-1]] if has_else else []):
        if body.kind != K.COMPOUND_STMT:
            statement(source, body, cursor)


def loop(source, cursor):
    children = list(cursor.get_children())
    body = children[0] if cursor.kind == K.DO_STMT else children[-1]
    text = source.of(body)
    if not text:
        return
    if body.kind == K.COMPOUND_STMT:
        end = source.at(body)[1]
        source.change("jump", end - 1, end, "break; }", "tail")
    else:
        source.replace("jump", body, "{ " + text + "; break; }", "statement")
        statement(source, body, cursor)


class Scopes:
    """Variables that can replace another: of the same type, declared earlier in an enclosing
    block."""

    def __init__(self, source):
        self.source, self.variables = source, []

    def declare(self, cursor, scope):
        place, extent = cursor.location, scope.extent
        if place.file and place.file.name == self.source.path and cursor.spelling:
            self.variables.append((place.offset, extent.start.offset, extent.end.offset, plain(cursor.type),
                                   cursor.spelling))

    def others(self, cursor):
        at, kind = cursor.extent.start.offset, plain(cursor.type)
        if "dependent" in kind or not kind:
            return []
        found = [name for place, begin, end, other, name in sorted(self.variables, reverse=True)
                 if place < at and begin <= at < end and other == kind and name != cursor.spelling]
        return list(dict.fromkeys(found))[:2]


def reference(source, cursor, scopes, parent):
    """A use of a variable or a field."""
    text = source.of(cursor)
    target = cursor.referenced
    if not text or target is None or target.kind not in (K.VAR_DECL, K.PARM_DECL, K.FIELD_DECL):
        return
    name = cursor.spelling
    if cursor.kind == K.DECL_REF_EXPR and text == name:
        for other in scopes.others(cursor):
            source.replace("variable", cursor, other)
    elif target.kind == K.FIELD_DECL and text.endswith(name):
        span = source.at(cursor)
        fields = [f.spelling for f in target.semantic_parent.get_children()
                  if f.kind == K.FIELD_DECL and plain(f.type) == plain(target.type) and f.spelling != name]
        for other in fields[:2]:
            source.change("variable", span[1] - len(name), span[1], other, "expression", span)
    if re.search(r"rank|^root$|^me$", name) and is_number(cursor.type) and parent.kind != K.UNARY_OPERATOR:
        source.replace("rank", cursor, "0")
        source.replace("rank", cursor, f"({text} + 1)")


def walk(source, cursor, scopes, parent, scope):
    kind = cursor.kind
    if kind in (K.COMPOUND_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT, K.LAMBDA_EXPR, K.FUNCTION_DECL, K.CXX_METHOD,
                K.CONSTRUCTOR, K.DESTRUCTOR, K.FUNCTION_TEMPLATE):
        scope = cursor
    children = list(cursor.get_children())
    if kind in (K.VAR_DECL, K.PARM_DECL):
        scopes.declare(cursor, scope)
        span, name = source.at(cursor), cursor.spelling.encode()
        if span and cursor.type.kind == TypeKind.LVALUEREFERENCE and name:
            head = source.text[span[0]:cursor.location.offset]
            if head.count(b"&") == 1 and not cursor.type.get_pointee().is_const_qualified():
                source.change("copy", span[0], cursor.location.offset, head.replace(b"&", b" ").decode())
        if span and plain(cursor.type) in ("long", "unsigned long") and parent.kind == K.DECL_STMT:
            head = source.text[span[0]:cursor.location.offset]
            if b"auto" in head:
                source.change("narrow", span[0], cursor.location.offset, head.replace(b"auto", b"int").decode())
    elif kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
        binary(source, cursor, *children)
        place = operator_between(source, *children)
        if place and place[2] in ("=", "+="):
            assigned(source, children[1], place[2] == "+=")
    elif kind == K.CXX_CATCH_STMT:
        handler(source, cursor)
    elif kind in (K.CALL_EXPR,):
        call(source, cursor)
    elif kind in (K.INTEGER_LITERAL, K.FLOATING_LITERAL, K.CXX_BOOL_LITERAL_EXPR):
        literal(source, cursor)
    elif kind == K.COMPOUND_STMT:
        block(source, cursor)
    elif kind == K.IF_STMT:
        branch(source, cursor)
    elif kind in LOOPS:
        loop(source, cursor)
    elif kind == K.CONDITIONAL_OPERATOR and len(children) == 3:
        source.replace("condition", cursor, source.of(children[1]) or "")
        source.replace("condition", cursor, source.of(children[2]) or "")
    elif kind == K.UNARY_OPERATOR and source.at(cursor):
        text = source.of(cursor)
        for sign, puts in {"++": ["--"], "--": ["++"], "!": [""], "-": [""]}.items():
            if text.startswith(sign):
                source.replace("arithmetic", cursor, puts[0] + text[len(sign):])
            elif text.endswith(sign):
                source.replace("arithmetic", cursor, text[:-len(sign)] + puts[0])
    elif kind == K.RETURN_STMT and children and source.of(children[0]):
        text = source.of(children[0])
        if children[0].type.get_canonical().kind == TypeKind.BOOL:
            source.replace("return", children[0], f"!({text})")
        elif is_number(children[0].type):
            source.replace("return", children[0], f"({text}) + 1")
        assigned(source, children[0])
    elif kind == K.LAMBDA_EXPR and source.at(cursor):
        start = source.at(cursor)[0]
        if source.text[start:start + 3] == b"[&]":
            source.change("copy", start, start + 3, "[=]")
    if kind in (K.DECL_REF_EXPR, K.MEMBER_REF_EXPR):
        reference(source, cursor, scopes, parent)
    for child in children:
        if kind != K.TRANSLATION_UNIT or (child.location.file and child.location.file.name == source.path):
            walk(source, child, scopes, cursor, scope)


def words(source, unit):
    """Token-level mutants: narrower types, weaker memory orders, other exceptions."""
    for token in unit.get_tokens(extent=unit.get_extent(source.path, (0, len(source.text)))):
        start, end = token.extent.start.offset, token.extent.end.offset
        if token.location.line not in source.lines or token.location.file.name != source.path:
            continue
        for other in NARROW.get(token.spelling, []):
            source.change("narrow", start, end, other)
        if token.spelling in THROWN and re.search(rb"throw std::$", source.text[:start]):
            source.change("exception", start, end, THROWN[token.spelling])
        if match := re.fullmatch(r"memory_order_(\w+)", token.spelling):
            for other in WEAKER.get(match.group(1), []):
                source.change("order", start, end, "memory_order_" + other)


def resources():
    """The flags for clang's own headers, which libclang does not find by itself."""
    return [f"-resource-dir={max(pathlib.Path('/usr/lib/llvm-14/lib/clang').glob('*'), default='/usr')}"]


def mutants_of(sources, units):
    """All mutants of a lab. sources: Source objects, with files on disk; units: [(driver, compiler
    flags)]."""
    index = Index.create()
    for source in sources:
        for driver, flags in units:
            unit = index.parse(str(driver), args=flags)
            broken = [d for d in unit.diagnostics if d.severity >= 3]
            if broken:
                raise AuthorError(f"libclang does not understand {driver.name}: {broken[0]}")
            walk(source, unit.cursor, Scopes(source), unit.cursor, unit.cursor)
            if source.found:
                words(source, unit)
                break
    return [mutant for source in sources for mutant in source.mutants()]
