#!/usr/bin/env python3
"""run_tests.py BUILD_DIR [options of ctest]: runs the tests, then says what was not run and why, and what took longest.

ctest shows neither: a skipped entry's reason is in the output that it hides. Exit status: ctest's own.
"""
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

SHOWN = 10  # of those that took longest


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def reason(case):
    """A test says why it was not run in its last line, often after 'NOT RUN:'."""
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    said = [line for line in lines if "not run" in line.lower() or "skipped" in line.lower()]
    return said[0] if said else last_line(case.findtext("system-out"))


def main():
    folder = pathlib.Path(sys.argv[1])
    results = folder.resolve() / "tests.xml"
    results.unlink(missing_ok=True)
    status = subprocess.call(["ctest", "--test-dir", str(folder), "--output-on-failure", "--no-tests=error",
                              "--output-junit", str(results), *sys.argv[2:]])
    if not results.exists():
        return status or 1
    cases = xml.parse(results).getroot().findall("testcase")
    skipped = [c for c in cases if c.get("status") in ("notrun", "disabled")]
    failed = [c for c in cases if c.get("status") == "fail"]
    if skipped:
        print("\nNot run, and why:")
        for case in skipped:
            print(f"  {case.get('name'):24} {reason(case)}")
    print("\nTook longest, in seconds:")
    for case in sorted(cases, key=lambda c: -float(c.get("time")))[:SHOWN]:
        print(f"  {case.get('name'):24} {float(case.get('time')):6.1f}")
    print(f"\n{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return status


if __name__ == "__main__":
    sys.exit(main())
