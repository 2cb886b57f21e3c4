"""Grades the grader: every lab's skeleton scores 0, its solution 100 %, each mutant is killed by its
named test with the stated verdict, each unusual but correct solution passes, and each cheat scores
zero and is reported as a cheat.
"""
import concurrent.futures
import os
import re
import time
import tomllib

from labs.course.grading import grade
from labs.course.lab import LABS, PATIENCE, mutants, positive, select
from labs.course.split import split, texts
from labs.course.verdicts import AuthorError


def mutate(lab, mutant, solution):
    """Returns the solution with the mutant's replacements. Each `find` must occur exactly once."""
    files = dict(solution)
    for change in mutant["replace"]:
        name = change.get("file", lab.files[0])
        if files[name].count(change["find"]) != 1:
            raise AuthorError(f"{lab.slug}: mutant {mutant['name']}: {change['find']!r} occurs "
                              f"{files[name].count(change['find'])} times in {name}, not once")
        files[name] = files[name].replace(change["find"], change["put"])
    return files


def unusual(lab, solution):
    """Returns {name: files}. unusual/NAME.hpp replaces the lab's first file; unusual/NAME/* replace the files with the
    same names."""
    found = {}
    for path in sorted((lab.folder / "unusual").glob("*")):
        if path.is_dir():
            own = {p.name: p.read_text() for p in path.iterdir()}
        else:
            own = {lab.files[0]: path.read_text()}
        found[path.stem] = {**solution, **{n: split(t, True, str(path)) for n, t in own.items()}}
    return found


def cheats(lab):
    with open(LABS / "course" / "cheats.toml", "rb") as file:
        return tomllib.load(file)["cheat"]


def cheating(lab, cheat, skeleton, solution):
    base = dict(solution if cheat.get("on") == "solution" else skeleton)
    base[lab.files[0]] += "\n" + cheat["code"].replace("{lab}", lab.slug).replace("{file}", lab.files[0])
    return base


def references(lab):
    """The course's solutions of the earlier labs that this one builds on."""
    return [(earlier, texts(earlier, True)) for number in lab.build.get("uses", []) for earlier in select(number)]


def is_zero(report):
    other = sorted({r.status for r in report.results} - {"not attempted"})
    return report.total == 0 and not other, f"{report.total:g} %" + (f", {other[0]}" if other else "")


def is_full(report):
    bad = [f": {r.name}: {r.status}: {r.message.splitlines()[0]}" for r in report.results if r.status != "pass"]
    bad += [": the compiler warns"] if report.warnings else []
    return report.total == 100 and not bad, f"{report.total:g} %" + "".join(bad[:1])


def is_killed(mutant):
    def judge(report):
        r, = report.results
        held = r.status == mutant["verdict"]
        if held and r.status == "hang":  # must be found soon; the message must say which rank waits for which
            held = r.granted < 10 * PATIENCE and (mutant.get("no_cycle", False) or "wait-for cycle" in r.message)
        return held, f"{r.status}: {r.message.splitlines()[0] if r.message else ''}"
    return judge


def is_exposed(cheat):
    def judge(report):
        wanted = cheat.get("status", "cheat")
        seen = {r.status for r in report.results}
        message = next((r.message.splitlines()[0] for r in report.results if r.status == wanted), "")
        shown = wanted if wanted in seen else seen
        return report.total == 0 and wanted in seen, f"{report.total:g} %, {shown}: {message}"
    return judge


def jobs_of(lab, quick):
    """(kind, name, expectation, files, judge, names of tests) of every submission, the solution
    first. quick: only the first of each kind, and no cheats."""
    skeleton, solution = texts(lab, False), texts(lab, True)
    names = {t[0] for t in lab.tests()}
    strange = unusual(lab, solution)
    found = [("solution", "", "100 %", solution, is_full, None),
             ("skeleton", "", "0 %, not attempted", skeleton, is_zero, None)]
    found += [("unusual", name, "100 %", files, is_full, None) for name, files in strange.items()]
    for mutant in mutants(lab):
        if mutant["killed_by"] not in names:
            raise AuthorError(f"{lab.slug}: mutant {mutant['name']} is to be killed by {mutant['killed_by']}, "
                              "which is not a test")
        found.append(("mutant", mutant["name"], f"{mutant['verdict']} by {mutant['killed_by']}",
                      mutate(lab, mutant, solution), is_killed(mutant), [mutant["killed_by"]]))
    if quick:  # one job of each kind
        return [j for i, j in enumerate(found) if j[0] not in {k[0] for k in found[:i]}]
    for cheat in cheats(lab):
        if not any(re.fullmatch(a, cheat.get("needs", "")) for a in lab.build.get("allow", [])):
            found.append(("cheat", cheat["name"], cheat.get("status", "cheat"),
                          cheating(lab, cheat, skeleton, solution), is_exposed(cheat), [lab.tests()[0][0]]))
    return found


def examine(lab, quick=False):
    """Yields (kind, name, expectation, whether it was met, observation, seconds)."""
    swapped = references(lab)
    for problem in lab.problems():
        yield "lab", "lab.toml", "in order", False, problem, 0
    if len(unusual(lab, {})) < 2:
        yield "lab", "unusual", "two of them", False, "fewer than two unusual but correct solutions", 0

    def graded(job):
        kind, name, wanted, files, judge, only = job
        begun = time.monotonic()
        return kind, name, wanted, *judge(grade(lab, files, swapped=swapped, only=only)), time.monotonic() - begun

    jobs = jobs_of(lab, quick)
    first = graded(jobs[0])
    yield first
    if "does not compile" in first[4]:
        return  # the other jobs would fail for the same reason
    with concurrent.futures.ThreadPoolExecutor(positive("LABS_JOBS", os.cpu_count() or 2)) as pool:
        yield from pool.map(graded, jobs[1:])


def grade_the_grader(labs, quick=False):
    """Prints the table. Returns True if every row's expectation was met."""
    all_held, rows, killed = True, 0, 0
    begun = time.monotonic()
    for lab in labs:
        print(f"lab {lab.number}, {lab.title}")
        for kind, name, wanted, held, seen, seconds in examine(lab, quick):
            rows += 1
            killed += kind == "mutant" and held
            all_held = all_held and held
            print(f"  {'ok' if held else 'NO':3}{kind:9}{name:38} {wanted:34} {seconds:5.1f} s  {seen[:150]}",
                  flush=True)
    print(f"{rows} lines, {killed} mutants killed, {'all as stated' if all_held else 'NOT ALL AS STATED'}"
          f" ({time.monotonic() - begun:.0f} s{', quick: the rest is in make grade-the-grader' if quick else ''})")
    return all_held and rows > 0
