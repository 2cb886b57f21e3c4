"""Compiles many mutants into one program, whose name selects the mutant that it runs (m17: number 17).

    a < b            (mutant(17) ? (a <= b) : mutant(18) ? (a >= b) : (a < b))
    f(x);            if (mutant(19)) { (void)0; } else f(x);

A program named `reach` runs none of them, and prints the numbers whose places it reaches: a test that does not reach a
mutant's place cannot reject the mutant.

Untch, Offutt and Harrold, Mutation analysis using mutant schemata, 1993. Compilation is the most
expensive part of a mutant. Mutants that cannot be selected at run time (types, static, code that
does not compile) remain separate programs.
"""
import re

HEAD = """#ifndef WHICH_MUTANT_
#define WHICH_MUTANT_
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
inline const int which_mutant_ = [] {
  const char* name = std::strrchr(program_invocation_name, '/');
  if (name != nullptr && std::strcmp(name, "/reach") == 0) return -1;
  return name != nullptr && name[1] == 'm' ? std::atoi(name + 2) : 0;
}();
inline void reached_mutant_(int number) {
  static char told[1 << 16];
  if (told[number]++ != 0) return;
  char text[16];
  [[maybe_unused]] auto wrote = write(1, text, std::size_t(std::snprintf(text, sizeof text, "\\1%d\\1", number)));
}
__attribute__((always_inline)) inline bool mutant_(int number) {
  if (which_mutant_ < 0) reached_mutant_(number);
  return which_mutant_ == number;
}
#endif
"""
REACHED = re.compile("\x01(\\d+)\x01")


def one_line(text):
    return " ".join(re.sub(r"//[^\n]*", " ", text).split("\n"))


def _order(item):
    """Sort key for nesting: an expression is inside its statement."""
    return ("expression", "statement", "tail").index(item[1].form)


def _typed(m):
    """Makes the replacement of a && b a bool. Next to a bool, an operand of type optional would
    make the whole expression an optional, which holds a value even where the bool is false."""
    beside = m.old[len(m.put):] if m.old.startswith(m.put) else m.old[:-len(m.put)]
    return f"bool({m.put})" if m.operator == "operand" and re.search(r"^\s*(&&|\|\|)|(&&|\|\|)\s*$", beside) else m.put


def _wrap(inner, items, text):
    for number, m in sorted(items, key=_order):
        before, after = text[m.whole[0]:m.start].decode(), text[m.end:m.whole[1]].decode()
        put, here = one_line(before + _typed(m) + after), f"/*{number}*/mutant_({number})"
        if m.form == "expression":
            inner = f"(\n{here} ? ({put}) :\n({inner}))"
        elif m.form == "tail":
            inner = f"\nif ({here}) break;\n}}"
        elif m.operator == "moved":
            inner = f"\nif ({here}) {{ {put}; }} else {{\n{inner}; }}"
        else:  # the braces keep an if of the replacement away from this else
            inner = f"\nif ({here}) {{ {put}; }} else\n{inner}"
    return inner


def _render(text, start, end, items, left_out):
    """The text from start to end with all items in it. Adds overlapping items' numbers to
    left_out."""
    out, at = [], start
    items = sorted(items, key=lambda i: (i[1].whole[0], -i[1].whole[1]))
    while items:
        a, b = items[0][1].whole
        same = [i for i in items if i[1].whole == (a, b)]
        within = [i for i in items if i not in same and i[1].whole[1] <= b]
        across = [i for i in items if i not in same and i not in within and i[1].whole[0] < b]
        left_out += [i[0] for i in across]
        items = [i for i in items if i[1].whole[0] >= b]
        out.append(text[at:a].decode())
        out.append(_wrap(_render(text, a, b, within, left_out), same, text))
        at = b
    out.append(text[at:end].decode())
    return "".join(out)


def schema(files, numbered):
    """Returns (files with all of these mutants, numbers left out). numbered: [(number, mutant)],
    each with a form."""
    left_out, made = [], {}
    for name, text in files.items():
        raw = text.encode()
        made[name] = _render(raw, 0, len(raw), [i for i in numbered if i[1].file == name], left_out)
        made[name] = made[name].replace("#pragma once\n", "#pragma once\n" + HEAD, 1)
    return made, set(left_out)


def culprits(files, said):
    """Numbers of the mutants that the compiler complains about: those marked on the reported line,
    or on the next line if that line ends with a parenthesis, or else on the nearest line before."""
    found = set()
    for name, text in files.items():
        lines = text.split("\n")
        for number in {int(n) for n in re.findall(rf"{re.escape(name)}:(\d+):(?:\d+:)? +(?:error|required from)", said)}:
            after = lines[number:number + 1] if lines[number - 1].endswith("(") else []
            for line in [lines[number - 1], *after, *reversed(lines[max(0, number - 12):number - 1])]:
                if marked := re.findall(r"/\*(\d+)\*/", line):
                    found |= set(map(int, marked))
                    break
    return found
