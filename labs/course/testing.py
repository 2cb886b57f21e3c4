"""The names that public.py and hidden.py import.

    @lab_test
    def three_ranks(lab):
        \"\"\"The sum of three ranks' elements is on every rank.\"\"\"
        seen = lab.run("counted", world=3, count=12)
        expect.each_once(seen, world=3, count=12)

A test raises (through lab.run or expect) or passes. Inputs come from lab.random, which depends only on
the seed, the lab and the test's name: `make check N=06 SEED=7 TEST=three_ranks` repeats a single failure.
"""
import random

from labs.course import expect, runner
from labs.course.lab import PATIENCE
from labs.course.record import floats
from labs.course.verdicts import Cheat, Crash, Hang, NotVerified, Wrong

__all__ = ["lab_test", "expect", "floats", "Wrong", "Cheat", "Crash", "Hang", "NotVerified", "WORLDS", "counts_for"]

WORLDS = (1, 2, 3, 4, 5, 7, 8)


def counts_for(world):
    """Lengths at which chunk arithmetic often goes wrong."""
    return sorted({0, 1, world - 1, world, world + 1, 2 * world + 1, 97, 128, 129})


def lab_test(function):
    function.is_lab_test = True
    return function


class Bench:
    """Passed to each test as `lab`. Runs scenarios on the driver built from the student's files."""

    def __init__(self, lab, driver, name, seed):
        self.seed = seed
        self.random = random.Random(f"{lab.slug}/{name}/{seed}")
        self.runs = 0
        self.printed = ""
        self.granted = 0.0  # seconds that the machine gave to the last run (granted.py)
        self._driver = driver
        self._limits = lab.limits

    def run(self, scenario, deadline=None, **values):
        """Returns the observations as a dictionary. Keyword arguments are the request;
        labs/kit/record.hpp lists the types."""
        limits = dict(self._limits)
        limits["deadline"] = PATIENCE * (deadline or limits["deadline"])
        self.runs += 1
        values.setdefault("seed", self.random.randrange(1, 1 << 31))
        try:
            seen = runner.observe(self._driver, scenario, values, limits)
        except Wrong as wrong:
            self.printed += wrong.printed
            raise Wrong(f"{wrong} ({describe(scenario, values)})") from None
        except (Crash, Hang) as end:
            self.printed += end.printed
            self.granted = end.granted
            first, _, rest = str(end).partition("\n")
            raise type(end)(f"{first} ({describe(scenario, values)})" + ("\n" + rest if rest else "")) from None
        self.printed += seen.pop("kit.printed", "")
        self.granted = seen.pop("kit.granted")
        seen["kit.case"] = describe(scenario, values)
        return seen


def describe(scenario, values):
    """Returns a short description of the run for messages, sufficient to repeat it by hand."""
    shown = [f"{k} {v}" for k, v in values.items() if isinstance(v, (int, float, str)) and not isinstance(v, bool)]
    return f"{scenario}: " + ", ".join(shown)
