"""A sequence of steps that both model.py and the driver perform; every result is compared, element by element.

    p = Program(lab)
    m = p("empty", 2, 3)
    p("sum", p("transpose", m, 0, 1))
    p.run()

In messages, the tensors made by `empty` are called A, B, C ...: "A.transpose(0, 1).sum() is ... (A = empty(2, 3))".
"""
import math
import re
import string

from labs.course.lab import load_sibling
from labs.course.testing import Wrong, expect

model = load_sibling(__file__, "model")
Seen = model.Seen


def observe(lab, steps, **how):
    """Runs a program, given as a list of steps. The request has it as numbers, so that messages,
    which name one step, do not show the whole program."""
    return lab.run("program", program=list("; ".join(steps).encode()), **how)


class Program:
    def __init__(self, lab, budget=False):
        self.lab, self.budget = lab, budget
        self.steps = []    # (words for the driver, human-readable text, name, args, expected result, ...: see __call__)
        self.alive, self.made = [], {}

    def __call__(self, name, *args):
        """Adds a step. Returns its tensor; None if it has none or must be refused."""
        shown = [a.text if isinstance(a, Seen) else str(a) for a in args]
        text = f"empty({', '.join(shown)})" if name == "empty" else f"{shown[0]}.{name}({', '.join(shown[1:])})"
        if None in args:
            raise ValueError(f"{text}: an operand is the result of a step that is to be refused")
        words = [f"t{len(self.steps)} = {name}"] + [f"t{a.step}" if isinstance(a, Seen) else str(a) for a in args]
        try:
            result = self.expected(name, args)
        except model.Refused as why:
            result = why
        if isinstance(result, Seen):
            result.step, result.text = len(self.steps), args[0].text if name == "same" else text
            if name == "empty":
                result.text = string.ascii_uppercase[len(self.made) % 26]
                self.made[result.text] = text
            self.alive.append(result)
        about = result if isinstance(result, Seen) else args[0] if isinstance(args[0], Seen) else None
        if name == "drop":
            about = None
        before = dict(about.store.numbers) if about else {}
        self.steps.append((" ".join(words), text, name, args, result, about, before, list(self.alive)))
        return result if isinstance(result, Seen) else None

    def expected(self, name, args):
        if name == "empty":
            count = model.numel(args)
            return Seen(args, range(count), model.Store(1000 * (len(self.steps) + 1) + i for i in range(count)))
        if name == "drop":
            self.alive.remove(args[0])
            return None
        if name == "positions":
            return list(args[0].positions)
        return model.STEPS[name](*args)

    def run(self):
        seen = observe(self.lab, [f"{step[0]} # {step[1]}{self.where(step[1])}" for step in self.steps])
        for k, step in enumerate(self.steps):
            try:
                self.check(seen, k, *step)
            except Wrong as wrong:
                raise Wrong(f"{wrong}{self.where(str(wrong))}") from None

    def where(self, text):
        """Explains the letters in a text."""
        made = [f"{letter} = {how}" for letter, how in self.made.items() if re.search(rf"\b{letter}\b", text)]
        return f" ({', '.join(made)})" if made else ""

    def check(self, seen, k, _, text, name, args, result, about, before, alive):
        how, why = seen[f"how.{k}"], seen[f"why.{k}"]
        if isinstance(result, model.Refused):
            expect.that(how != "done", f"{text} must be refused: {result}")
            expect.that(how == "refused", f"{text} must be refused ({result}) by refuse(), and failed otherwise: {why}")
            if str(result) == "it needs a copy":
                for words in (str(args[0].sizes), str(list(args[0].strides))):
                    expect.that(words in why, f"{text} is refused with {why!r}: the message must name sizes "
                                f"{args[0].sizes} and strides {list(args[0].strides)}")
        else:
            expect.that(how != "refused", f"{text} was refused, but is possible: {why}")
            expect.that(how == "done", f"{text}: {why}")
        if isinstance(result, Seen):
            self.check_tensor(seen, k, text, result)
        elif name == "sum":
            expect.equal(text, seen[f"number.{k}"], result)
        elif name == "position" and isinstance(result, int):
            expect.equal(text, int(seen[f"number.{k}"]), args[0].store.base + result)
        elif name == "positions":
            for index, got, want in zip(args[0].indices(), seen[f"positions.{k}"], result):
                expect.equal(f"{args[0].text}: position of {list(index)}", got, args[0].store.base + want)
        live = sorted({t.store.number for t in alive})
        for number in live:
            holder = next(t for t in alive if t.store.number == number)
            expect.that(number in seen[f"live.{k}"],
                        f"after {text}: the storage of {holder.text} was freed, which still shows its numbers")
        for number in seen[f"live.{k}"]:
            expect.that(number in live,
                        f"after {text}: storage #{number} is still held, and no tensor shows a number of it")
        if about:
            check_numbers(seen[f"numbers.{k}.{about.store.number}"], about, before,
                          about.text if isinstance(result, Seen) else f"after {text}: {about.text}")
        if self.budget:
            check_budget(seen[f"cost.{k}"], text, name, args, result)

    def check_tensor(self, seen, k, text, t):
        number, offset, count, *contiguous = seen[f"tensor.{k}"]
        t.strides = list(seen[f"strides.{k}"])
        expect.equal(f"{text}: sizes", list(seen[f"sizes.{k}"]), t.sizes)
        expect.equal(f"{text}: number of strides", len(t.strides), len(t.sizes))
        expect.equal(f"{text}: numel()", count, len(t.positions))
        if t.store.number is None:
            held = {s[4].store.number for s in self.steps[:k] if isinstance(s[4], Seen)}
            expect.that(number not in held,
                        f"{text} must be a copy, and shows the storage of another tensor, #{number}")
            t.store.number, t.store.base = number, offset
        expect.that(number == t.store.number,
                    f"{text} shows storage #{number}, and must be a view, of #{t.store.number}")
        for index, want in zip(t.indices(), t.positions):
            got = offset + sum(i * s for i, s in zip(index, t.strides))
            expect.that(got == t.store.base + want, f"{text}: element {list(index)} is at position {got}, must be "
                        f"{t.store.base + want} (sizes {t.sizes}, strides {t.strides}, offset {offset})")
        if contiguous:
            expect.equal(f"{text}: is_contiguous() with sizes {t.sizes} and strides {t.strides}", bool(contiguous[0]),
                         t.contiguous)


def same(got, want):
    """True if the numbers have the same bits, or if both are NaN."""
    return repr(float(got)) == repr(float(want))


def check_numbers(storage, t, before, text):
    """Compares the whole storage, starting with the elements of t."""
    def at(position):
        place = t.store.base + position
        return storage[place] if 0 <= place < len(storage) else math.nan
    for index, position in zip(t.indices(), t.positions):
        got, want = at(position), before[position]
        expect.that(same(got, want), f"{text}: element {list(index)} is {got:g}, must be {want:g}")
    for position, want in before.items():
        expect.that(same(at(position), want), f"{text}: the number at position {position} of the storage, which it does "
                    f"not show, is {at(position):g}, must be {want:g}")


def check_budget(cost, text, name, args, result):
    """Checks a step's [elements allocated, reads, writes]."""
    count = len(args[0].positions) if args and isinstance(args[0], Seen) else 0
    copies = isinstance(result, Seen) and isinstance(args[0], Seen) and result.store is not args[0].store
    free = count and args[0].contiguous
    allowed = {"empty": [math.inf] * 3, "sum": [0, count, 0] if free else [count, 2 * count, count],
               "fill_": [0, 0, count], "copy_": [0, count, count], "add_": [0, 2 * count, count]}
    limits = allowed.get(name, [count] * 3 if copies else [0] * 3)
    for what, got, limit in zip(("allocated", "read", "written"), cost, limits):
        expect.at_most(f"{text}: numbers {what}", got, limit, "elements")
