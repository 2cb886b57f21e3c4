"""make mutate N=06: wrong solutions made by rule (mutators.py), each of which some test must reject.

A mutant that passes every test is either a mistake that the tests overlook, or correct according to
the task. In the latter case, survivors.toml of the lab gives the reason. make mutate fails if a
survivor has no reason, or a reason has no survivor.

    [[survivor]]
    reason = "the order of these two stores is free: no reader looks before the flag"
    mutants = ["1f03ab moved: a = 1 -> b = 2 | a = 1;"]
"""
import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import tomllib

from labs.course import build, mutators
from labs.course.lab import BUILD, LABS, PATIENCE, ROOT, positive
from labs.course.quick import Quick
from labs.course.runner import MOST_OUTPUT
from labs.course.schema import REACHED, culprits, schema
from labs.course.split import texts
from labs.course.testing import Bench
from labs.course.verdicts import AuthorError, Verdict

MOST = 320          # mutants tried per lab: spread evenly over the operators, always the same choice
FACTOR = 10         # time limit of a run, as a multiple of the solution's longest run in that test
LEAST = 1.5         # seconds, the minimum time limit of a run
KILLED = ("wrong", "hang", "crash", "cheat", "not attempted")


@dataclasses.dataclass
class Outcome:
    status: str         # "does not compile", "equivalent", "survived", or the verdict of the test that killed it
    test: str = ""
    message: str = ""
    seconds: float = 0.0


class Hasty(Bench):
    """A test's view of the driver, with deadlines derived from the solution's run times."""

    def __init__(self, lab, driver, name, seed, slowest=None):
        super().__init__(lab, driver, name, seed)
        self._slowest, self.longest, self.cut_off = slowest, 0.0, False

    def run(self, scenario, deadline=None, **values):
        before = len(self.printed)
        if self._slowest is not None:
            usual = deadline or self._limits["deadline"]
            deadline = min(usual, max(LEAST, FACTOR * self._slowest / PATIENCE))
        try:
            return super().run(scenario, deadline, **values)
        finally:
            self.longest = max(self.longest, self.granted)
            self.cut_off = self.cut_off or len(self.printed) - before > MOST_OUTPUT - 100


def chosen(mutants, most=MOST):
    """At most `most` mutants: one of each operator in turn, in the order of their ids."""
    groups = collections.defaultdict(list)
    for mutant in sorted(mutants, key=lambda m: m.id):
        groups[mutant.operator].append(mutant)
    picked = []
    while len(picked) < most and any(groups.values()):
        for operator in sorted(groups):
            if groups[operator] and len(picked) < most:
                picked.append(groups[operator].pop(0))
    return picked


def survivors_on_file(lab):
    """Returns {id: reason} from survivors.toml."""
    path = lab.folder / "survivors.toml"
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        entries = tomllib.load(file).get("survivor", [])
    found = {}
    for entry in entries:
        if len(entry.get("reason", "").split()) < 4:
            raise AuthorError(f"{lab.slug}/survivors.toml: no reason for {entry.get('mutants', ['?'])[0]}")
        found |= dict.fromkeys(entry["mutants"], entry["reason"])
    return found


def worker(n):
    """Names a worker's folder. All names have the same length: see Quick._digest."""
    return f"w{n:->5}"


class Trial:
    """All mutants of one lab."""

    def __init__(self, lab, place):
        self.lab = lab
        self.place = pathlib.Path(place)
        self.solution = texts(lab, True)
        self.quick = Quick(lab, self.solution, place)
        self.tests = [(name, function, getattr(function, "seed", None) or lab.config.get("seed", 2026))
                      for name, function, _ in lab.tests()]
        self.kills, self.spent, self.slowest, self.reach = collections.Counter(), {}, {}, {}
        self.lock = threading.Lock()
        self.known, self.keys_of = {}, {}
        self.on_file = survivors_on_file(lab)
        self.told_apart = collections.Counter()
        self.cache_file = BUILD / "mutate" / f"{lab.number}.json"
        kept = json.loads(self.cache_file.read_text()) if self.cache_file.exists() else {}
        self.cache, self.killers = kept.get("outcomes", {}), kept.get("killers", {})
        self.code = self._code()
        self.base = self.code + self._tests()

    def _code(self):
        """A hash of everything except a mutant's text that determines whether it compiles, and to
        which program."""
        digest = hashlib.sha256()
        paths = [*self.quick.libraries, *sorted((LABS / "kit").glob("*.hpp")), *self.quick.drivers,
                 *(LABS / "course" / f"{stem}.py" for stem in ("mutate", "quick")), self.lab.folder / "lab.toml"]
        linked = [p for group in self.lab.build.get("libraries", {}).values() for p in group]
        paths += [p for p in build.sources_of(linked) if p.suffix in (".hpp", ".h")]
        for path in paths:
            digest.update(path.read_bytes())
        digest.update(repr([(owner.slug, own) for owner, own in self.quick.used]).encode())
        return digest.hexdigest()

    def _tests(self):
        """A hash of everything that determines whether a program passes."""
        digest = hashlib.sha256()
        course = ["expect", "grading", "granted", "runner", "record", "testing"]
        for path in [*(LABS / "course" / f"{stem}.py" for stem in course), *sorted(self.lab.folder.glob("*.py")),
                     *sorted(self.lab.folder.glob("*.json"))]:
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def keys(self, mutant):
        """The two keys of a mutant's cached outcome: without the tests' hash, and with it."""
        if mutant not in self.keys_of:
            text = repr(sorted(mutant.apply(self.solution).items()))
            self.keys_of[mutant] = [hashlib.sha256((base + text).encode()).hexdigest()[:24]
                                    for base in (self.code, self.base)]
        return self.keys_of[mutant]

    def kept(self, mutant):
        found = (self.cache.get(key) for key in self.keys(mutant))
        return next((Outcome(*outcome) for outcome in found if outcome), None)

    def generate(self):
        folder = self.place / "solution"
        flags = [f for f in self.quick.common if f not in ("-w", "-fno-sanitize-recover=alignment")]
        flags += [f"-I{ROOT}", *self.quick.texts(self.solution, folder), "-x", "c++", *mutators.resources()]
        flags = [f if not f.startswith("-I") or f.startswith("-I/") else f"-I{ROOT / f[2:]}" for f in flags]
        sources = [mutators.Source(name, text, mutators.own_lines((self.lab.folder / name).read_text(), name),
                                   folder / self.lab.slug / name) for name, text in self.solution.items()
                   if name not in self.lab.config.get("open", [])]
        return mutators.mutants_of(sources, [(d, flags) for d in self.quick.drivers])

    def calibrate(self):
        """Compiles the solution, and returns its driver."""
        driver, digest, said = self.quick.compile(self.solution, self.place / worker(0))
        if driver is None:
            raise AuthorError(f"{self.lab.slug}: the solution does not compile: {said[:300]}")
        self.known[digest] = "equivalent"
        return driver

    def passes(self, driver, what):
        """Runs all tests on a driver without a mistake, and records their times and the mutants that they reach."""
        def timed(test):
            name, function, seed = test
            bench = Hasty(self.lab, driver, name, seed)
            begun = time.monotonic()
            try:
                function(bench)
            except Verdict as verdict:
                raise AuthorError(f"{self.lab.slug}: {what} fails {name}: {verdict.status}: {verdict}") from None
            self.slowest[name], self.spent[name] = bench.longest, time.monotonic() - begun
            self.reach[name] = None if bench.cut_off else set(map(int, REACHED.findall(bench.printed)))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(timed, self.tests))

    def order(self, mutant, number):
        """Sorts the tests: first the one that killed this mutant last time, then by kills per second. number: the
        mutant's in the program of all mutants, or None. Leaves out tests that do not reach the mutant, if any does."""
        reach = [t for t in self.tests if number and (self.reach[t[0]] is None or number in self.reach[t[0]])]
        with self.lock:
            return sorted(reach or self.tests, key=lambda t: (t[0] == self.killers.get(mutant.id),
                                                     (1 + self.kills[t[0]]) / (0.05 + self.spent[t[0]])), reverse=True)

    def together(self, mutants):
        """Compiles as many mutants as possible into one program. Returns (program, {mutant: its
        number there})."""
        folder, rejected = self.place / "schema", set()
        numbered = [(n, m) for n, m in enumerate(mutants, 1) if m.form]
        for _ in range(12):
            files, left_out = schema(self.solution, [i for i in numbered if i[0] not in rejected])
            rejected |= left_out
            if left_out:
                continue
            if not (said := self.quick.complaints(files, folder)):
                driver, _, said = self.quick.compile(files, folder)
                if driver:
                    return driver, {m: n for n, m in numbered if n not in rejected}
            blamed = culprits(files, said) - rejected
            if not blamed:
                break
            rejected |= blamed
        return None, {}

    def judge(self, mutant, files, folder, number):
        """Tries a mutant in a separate program. number: its number in the combined program, if it passed there: it will
        probably pass here, too."""
        likely = bool(number)
        driver, digest, said = self.quick.compile(files, folder, self.known)
        if driver is None:
            if digest:
                return Outcome(*self.known[digest].split("|")[:2]) if digest in self.known else Outcome("equivalent")
            return Outcome("does not compile", message=said[:200])
        if likely and self.quick.code(files, folder / "again", "-O2") == self.optimised():
            return Outcome("equivalent")  # -O2 may generate equal code where -O1 does not
        found = self.execute(mutant, driver, number)
        if found.status == "survived" and not likely:
            if self.quick.code(files, folder / "again", "-O2") == self.optimised():
                return Outcome("equivalent")
        return found

    def optimised(self):
        with self.lock:
            if "-O2" not in self.known:
                self.known["-O2"] = self.quick.code(self.solution, self.place / worker("-") / "again", "-O2")
            return self.known["-O2"]

    def execute(self, mutant, driver, number):
        for name, function, seed in self.order(mutant, number):
            try:
                function(Hasty(self.lab, driver, name, seed, self.slowest[name]))
            except Verdict as verdict:
                with self.lock:
                    self.kills[name] += 1
                return Outcome(verdict.status, name, str(verdict).splitlines()[0][:160] if str(verdict) else "")
            except Exception as error:
                raise AuthorError(f"{self.lab.slug}: test {name} itself fails with {type(error).__name__}: {error} "
                                  f"(mutant {mutant.id})") from error
        return Outcome("survived")

    def try_one(self, mutant, folders, program, number):
        files = mutant.apply(self.solution)
        if kept := self.kept(mutant):
            return kept
        begun = time.monotonic()
        folder = folders.pop()
        try:
            outcome = Outcome("survived")
            if number:
                named = program.with_name(f"m{number}")
                os.link(program, named)
                outcome = self.execute(mutant, named, number)
                named.unlink()
            if outcome.status == "survived" and not (number and mutant.id in self.on_file):
                # The mutant survived in the combined program: try it alone, as a student would write it.
                # A mutant with a recorded reason has been tried alone before.
                outcome = self.judge(mutant, files, folder, number)
                if number and outcome.status == "survived" and not self.reached(number):
                    outcome.message = "no test executes it"
                if number:
                    self.compare(outcome.status in KILLED)
            elif number and outcome.status in KILLED:
                self.told_apart["together"] += 1
        finally:
            folders.append(folder)
        outcome.seconds = time.monotonic() - begun
        with self.lock:
            always, tests = self.keys(mutant)
            key = always if outcome.status in ("does not compile", "equivalent") else tests
            self.cache[key] = dataclasses.astuple(outcome)
            self.killers[mutant.id] = outcome.test
        return outcome

    def reached(self, number):
        """False if no test executes the line of the combined program with this mutant."""
        return any(numbers is None or number in numbers for numbers in self.reach.values())

    def compare(self, killed):
        """Raises AuthorError if many mutants pass in the combined program but fail alone: that
        program does not find the number in its name."""
        self.told_apart["alone"] += killed
        if self.told_apart["alone"] > 10 + self.told_apart["together"]:
            raise AuthorError(f"{self.lab.slug}: mutants pass all tests in one program, but fail alone: which_mutant_?")

    def save(self, keep):
        """Saves the outcomes of the mutants in `keep` only."""
        self.cache_file.parent.mkdir(parents=True, exist_ok=True)
        keys = {key for m in keep for key in self.keys(m)}
        kept = {"outcomes": {k: v for k, v in self.cache.items() if k in keys}, "killers": self.killers}
        self.cache_file.write_text(json.dumps(kept))


def progress(lab, done, all_of_them, survived, begun):
    if not sys.stderr.isatty():
        return
    width = 30 * done // max(all_of_them, 1)
    left = (time.monotonic() - begun) / max(done, 1) * (all_of_them - done)
    print(f"\r  lab {lab.number} [{'#' * width:30}] {done}/{all_of_them}, {survived} survive, {left:4.0f} s left ",
          end="" if done < all_of_them else "\n", file=sys.stderr, flush=True)


def one_lab(lab, only, most):
    """Returns (generated, [(mutant, outcome)], seconds)."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutate-") as place:
        trial = Trial(lab, place)
        generated = trial.generate()
        tried = chosen(generated, most)
        tried += [m for m in generated if m.id in trial.on_file and m not in tried]
        if only:
            tried = [m for m in generated if m.operator in only or any(m.id.startswith(word) for word in only)]
        new = [m for m in tried if not trial.kept(m)]
        solution = trial.calibrate() if new else None
        program, numbers = trial.together(new) if len(new) > 4 else (None, {})
        if program:
            os.link(program, reach := program.with_name("reach"))
            trial.passes(reach, "the program of all mutants, with none selected,")
        elif new:
            trial.passes(solution, "the solution")
        jobs = positive("LABS_JOBS", os.cpu_count() or 2)
        folders = [trial.place / worker(n) for n in range(jobs)]
        found = []
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(trial.try_one, m, folders, program, numbers.get(m)): m for m in tried}
            for done in concurrent.futures.as_completed(waiting):
                found.append((waiting[done], done.result()))
                survived = sum(o.status == "survived" for _, o in found)
                progress(lab, len(found), len(tried), survived, begun)
                if len(found) % 10 == 0:
                    with trial.lock:
                        trial.save(generated)
        trial.save(generated)
    return generated, found, time.monotonic() - begun


COLUMNS = ("made", "tried", "no compile", "equivalent", "wrong", "hang", "crash", "cheat", "reasons", "UNEXPLAINED",
           "seconds")


def row(title, values):
    return f"{title:24}" + "".join(f"{v:>{max(len(c), 6) + 1}}" for c, v in zip(COLUMNS, values))


def report(lab, generated, found, on_file, seconds, partial=False):
    """Returns the lab's row of the table, and sentences about its problems."""
    statuses = collections.Counter(o.status for _, o in found)
    alive = sorted((m for m, o in found if o.status == "survived"), key=lambda m: (m.file, m.start))
    unexplained = [m for m in alive if m.id not in on_file]
    said = {m.id: o.message or "no test fails" for m, o in found}
    trouble = [f"{lab.slug}/{m.file}:{m.number}: {said[m.id]}: \"{m.id}\"" for m in unexplained]
    ids = {m.id for m in alive}
    names = {m.id for m in generated}
    if not partial:
        for known in on_file:
            if known not in ids:
                why = "is killed by a test, or equivalent for the compiler" if known in names else "is no longer a mutant"
                trouble.append(f"{lab.slug}/survivors.toml: \"{known}\" {why}: remove it")
    values = [len(generated), len(found), statuses["does not compile"], statuses["equivalent"],
              statuses["wrong"] + statuses["not attempted"], statuses["hang"], statuses["crash"], statuses["cheat"],
              len(alive) - len(unexplained), len(unexplained), round(seconds)]
    return values, trouble


def mutate(labs, only=None, most=None):
    """Prints the table. Returns True if every survivor has a reason and every reason has a survivor."""
    total, troubles = [0] * len(COLUMNS), []
    print(row("", COLUMNS), flush=True)
    for lab in labs:
        generated, found, seconds = one_lab(lab, only, most or MOST)
        values, trouble = report(lab, generated, found, survivors_on_file(lab), seconds, bool(only))
        total = [a + b for a, b in zip(total, values)]
        troubles += trouble
        print(row(f"{lab.number} {lab.title}"[:23], values), flush=True)
        if only:
            for mutant, outcome in found:
                print(f"  {outcome.status}: {outcome.test}: {outcome.message}\n    {mutant.id}")
        for line in trouble:
            print("  " + line, flush=True)
    if len(labs) > 1:
        print(row("all", total))
    print(f"{total[1] - total[2] - total[3]} mutants that behave differently, {total[9]} survivors without a reason")
    return not troubles and total[1] > 0
