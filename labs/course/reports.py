"""Machine-readable reports: JUnit XML, and the results.json that Gradescope's autograder reads.

Gradescope: https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format
"""
import json
import re
import xml.etree.ElementTree as xml

from labs.course.reading import printable, printable_lines
from labs.course.terminal import hint_for

# Types of the fields of results.json; write() and tests/labs check them.
TOP = {"score": (int, float), "execution_time": (int, float), "output": str, "output_format": str, "visibility": str,
       "stdout_visibility": str, "tests": list}
TEST = {"score": (int, float), "max_score": (int, float), "status": str, "name": str, "number": str, "output": str,
        "tags": list, "visibility": str}
VISIBILITY = ("visible", "hidden", "after_due_date", "after_published")
# XML 1.0 allows no characters below U+0020 except tab and line ends, not even escaped.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def schema_problems(results):
    """Returns sentences about fields that Gradescope would reject or misread."""
    found = []

    def fields(thing, allowed, where):
        for key, value in thing.items():
            if key not in allowed:
                found.append(f"{where}: unknown field {key}")
            elif not isinstance(value, allowed[key]) or isinstance(value, bool):
                found.append(f"{where}: {key} is a {type(value).__name__}")
            elif isinstance(value, float) and not abs(value) < float("inf"):
                found.append(f"{where}: {key} is not finite")
            elif key.endswith("visibility") and value not in VISIBILITY:
                found.append(f"{where}: {key} is {value!r}")
    fields(results, TOP, "results")
    if "score" not in results and "tests" not in results:
        found.append("results: there must be a score or tests")
    for number, test in enumerate(results.get("tests", [])):
        fields(test, TEST, f"test {number}")
        if test.get("status") not in ("passed", "failed"):
            found.append(f"test {number}: status is {test.get('status')!r}")
        if "score" in test and not 0 <= test["score"] <= test.get("max_score", 0):
            found.append(f"test {number}: score {test['score']} of {test.get('max_score')}")
    return found


def _message(lab, result):
    hint = hint_for(lab, result.message)
    lines = [f"{result.status}: {result.title}", printable_lines(result.message)] + ([f"hint: {hint}"] if hint else [])
    if result.status not in ("pass", "not attempted", "given up", "refused"):
        lines.append(f"again: make check N={lab.number} TEST={result.name} SEED={result.seed}")
    return "\n".join(line for line in lines if line)


def gradescope(report):
    lab = report.lab
    tests = [{"score": 0 if report.cheat else r.score, "max_score": r.points, "name": f"{r.name}: {r.title}",
              "number": f"{lab.number}.{n}",
              "status": "passed" if r.status == "pass" and not report.cheat else "failed",
              "output": _message(lab, r), "tags": [r.status, "hidden" if r.hidden else "public"],
              "visibility": "after_due_date" if r.hidden else "visible"}
             for n, r in enumerate(report.results, 1)]
    output = f"Lab {lab.number}, {lab.title}: {report.total:g} of {report.available:g} points."
    if report.cheat:
        output += f" This submission scores 0, because it {printable_lines(report.cheat)}"
    refused = next((r.message for r in report.results if r.status == "refused"), "")
    if refused:
        output += f" Refused: {printable_lines(refused)}."
    if report.swapped:
        output += f" From the course, not the student: lab {', '.join(report.swapped)}."
    if report.sandbox:
        output += f" Graded in this {report.sandbox}."
    return {"score": report.total, "execution_time": int(report.seconds), "output": output, "output_format": "text",
            "visibility": "visible", "stdout_visibility": "hidden", "tests": tests}


def junit(report):
    lab = report.lab
    failed = [r for r in report.results if r.status in ("wrong", "hang", "cheat")]
    skipped = [r for r in report.results if r.status in ("not verified", "given up")]
    errors = [r for r in report.results if r not in failed + skipped and r.status != "pass"]
    suite = xml.Element("testsuite", name=lab.slug, tests=str(len(report.results)), failures=str(len(failed)),
                        errors=str(len(errors)), skipped=str(len(skipped)), time=f"{report.seconds:.3f}")
    for r in report.results:
        case = xml.SubElement(suite, "testcase", classname=lab.slug, name=r.name, time=f"{r.seconds:.3f}")
        if r.status != "pass":
            kind = "skipped" if r in skipped else "failure" if r in failed else "error"
            first = NOT_XML.sub("?", printable(r.message.partition("\n")[0]))
            node = xml.SubElement(case, kind, message=first, **({} if kind == "skipped" else {"type": r.status}))
            node.text = NOT_XML.sub("?", _message(lab, r))
    return xml.tostring(suite, encoding="unicode", xml_declaration=True)


def write(report, folder):
    """Writes results.json and junit.xml to folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    results = gradescope(report)
    problems = schema_problems(results)
    if problems:
        raise AssertionError("results.json: " + "; ".join(problems))
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "junit.xml").write_text(junit(report))
    return folder / "results.json", folder / "junit.xml"
