"""Runs a lab's tests on a set of files and adds up the points."""
import concurrent.futures
import dataclasses
import itertools
import os
import re
import struct
import time

from labs.course.build import Broken, build
from labs.course.lab import positive
from labs.course.reading import printable
from labs.course.testing import Bench
from labs.course.verdicts import AuthorError, Cheat, NotAttempted, Verdict

# Only the judge prints verdicts.
FORGED = re.compile(r"^\W*(PASS(ED)?\W*$|all (\d+ )?tests pass|\d+ of \d+ (tests pass|points))", re.I | re.M)


@dataclasses.dataclass
class Result:
    name: str
    title: str
    hidden: bool
    points: float           # maximum
    status: str = "pass"
    message: str = ""
    seconds: float = 0.0
    granted: float = 0.0    # seconds that the machine gave to the last run (granted.py)
    runs: int = 0
    seed: int = 0

    @property
    def score(self):
        return self.points if self.status == "pass" else 0


@dataclasses.dataclass
class Report:
    lab: object
    results: list
    warnings: str = ""
    seconds: float = 0.0
    cheat: str = ""         # why the whole submission scores zero; "" if it does not
    sandbox: str = ""       # one line: the kind of sandbox, and its known gaps
    swapped: list = dataclasses.field(default_factory=list)

    @property
    def total(self):
        return 0 if self.cheat else sum(r.score for r in self.results)

    @property
    def available(self):
        return sum(r.points for r in self.results)


def _seed(lab, test, given):
    """The seed of the command line, else HIDDEN_SEED for tests of hidden.py, else the lab's."""
    own = getattr(test[1], "seed", None)
    return given if given is not None else own if own is not None else lab.config.get("seed", 2026)


def _one(lab, driver, test, seed):
    name, function, hidden = test
    seed = _seed(lab, test, seed)
    title = " ".join((function.__doc__ or name).split())
    result = Result(name, title, hidden, lab.points.get(name, 0), seed=seed)
    bench = Bench(lab, driver, name, seed)
    begun = time.monotonic()
    try:
        function(bench)
        if not bench.runs:
            raise AuthorError(f"{lab.slug}: test {name} ran nothing")
    except Verdict as verdict:
        result.status, result.message = verdict.status, str(verdict)
        if result.status in ("wrong", "not attempted", "crash") and FORGED.search(bench.printed + verdict.printed):
            result.status = "cheat"
            result.message = f"it prints its own verdict, and its answer is wrong: {result.message}"
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, struct.error) as error:
        result.status = "crash"
        result.message = f"this test cannot read the answer ({type(error).__name__}: {error})"
    result.seconds, result.granted, result.runs = time.monotonic() - begun, bench.granted, bench.runs
    return result


def _give_up(lab, result, swapped):
    """Withholds the points of a passed test that rewards an earlier lab ([parts] in lab.toml) if
    that lab's solution is the course's."""
    others = [n for n in lab.config.get("parts", {}).get(result.name, []) if n in swapped]
    if others and result.status == "pass":
        result.status = "given up"
        result.message = f"it passes with the course's lab {' and '.join(others)}; the points are for your own"
    return result


def _chosen(lab, only):
    """Returns the lab's tests, or only the tests named in `only`."""
    there = lab.tests()
    unknown = sorted(set(only or []) - {name for name, _, _ in there})
    if unknown:
        raise AuthorError(f"{lab.slug}: no test is called {' or '.join(map(printable, unknown))}; there are: "
                          + (", ".join(name for name, _, _ in there) or "none"))
    return [t for t in there if not only or t[0] in only]


def _all(lab, tests, verdict, seed=None):
    """Returns results for tests that all get the same verdict without being run."""
    return [Result(n, " ".join((f.__doc__ or n).split()), h, lab.points.get(n, 0), verdict.status, str(verdict),
                   seed=_seed(lab, (n, f, h), seed))
            for n, f, h in tests]


def refuse(lab, verdict, only=None):
    """The report of a submission whose files were not read. Names in `only` that match no test are ignored."""
    tests = [t for t in lab.tests() if not only or t[0] in only]
    return Report(lab, _all(lab, tests or lab.tests(), verdict))


def grade(lab, files, only=None, public_only=False, seed=None, swapped=None, progress=lambda text: None):
    """Grades {file name: text}. only: names of tests; seed None: the course's seed. progress: gets a text whenever a
    test ends."""
    begun = time.monotonic()
    tests = [t for t in _chosen(lab, only) if not (public_only and t[2])]
    if not tests:
        raise AuthorError(f"{lab.slug}: no test to run, so nothing passes")
    report = Report(lab, [], swapped=[f"{n}" for n in lab.build.get("uses", []) if os.environ.get(f"LAB{n}") == "ref"])
    try:
        driver, report.warnings = build(lab, files, swapped)
        jobs = positive("LABS_JOBS", max(os.cpu_count() or 2, lab.limits["at_once"]))
        ended = itertools.count()

        def one(test):
            result = _one(lab, driver, test, seed)
            progress(f"{next(ended)} of {len(tests)} tests have ended")
            return result
        progress(f"{next(ended)} of {len(tests)} tests have ended")
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            report.results = [_give_up(lab, r, report.swapped if swapped is None else []) for r in pool.map(one, tests)]
    except (Broken, Cheat) as verdict:
        report.results = _all(lab, tests, verdict, seed)
    report.cheat = next((r.message for r in report.results if r.status == Cheat.status), "")
    report.seconds = time.monotonic() - begun
    return report


def untouched(report):
    return all(r.status == NotAttempted.status for r in report.results)
