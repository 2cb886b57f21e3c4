#!/usr/bin/env python3
"""Checks the lessons, or updates their generated parts. Exit codes: 0 all is right, 1 faults, 6 wrong call, 77 NOT RUN.

    check.py commands --build build/release     run every command, compare its output
    check.py text                                quotes, links, terms, shape, decks: needs no build
    check.py spelling                            codespell (77 where it is missing)
    check.py figures --build build/release       figures equal the output of their programs
    check.py all --build build/release
    --only NN                                    one lesson, or your-own-program (terms always look at all)
    --update                                     rewrite outputs, quotations, glossary, figures; then read the diff
"""
import argparse
import concurrent.futures
import pathlib
import sys

import commands
import decks
import figures
import links
import quotes
import shape
import spelling
import terms
from lesson import Fault, Lesson, ROOT, documents, lessons


def check_commands(args, report):
    # Runs one lesson at a time under --update, otherwise two, because small machines have two cores.
    chosen = documents(args.only)
    with concurrent.futures.ThreadPoolExecutor(1 if args.update else 2) as pool:
        results = pool.map(lambda each: commands.check(each, args.build, args.update), chosen)
        for each, (faults, ran, seconds) in zip(chosen, results):
            report(faults)
            print(f"commands  {each.slug}: {ran} ran in {seconds:.1f} s")
    report(commands.clashes(each for each in chosen if each.slug != "your-own-program"))  # which has a build of its own


def check_text(args, report):
    chosen = documents(args.only)
    quoted = linked = 0
    for each in chosen:
        faults, count = quotes.check(each, args.update)
        report(faults)
        quoted += count
        report(shape.check(each) if each.is_lesson else shape.check_width(each))
    faults, found = terms.check(lessons())
    report(faults)
    report(terms.check_glossary(found, args.update))
    pages = [each for each in chosen if each.is_lesson] + [Lesson(p) for p in sorted((ROOT / "lessons").glob("*.md"))]
    for page in pages:
        faults, count = links.check(page)
        report(faults)
        linked += count
    all_decks = [Lesson(p) for p in sorted((ROOT / "slides").glob("[0-9][0-9]-*.md"))
                 if not args.only or p.stem[:2] == args.only]
    for deck in all_decks:
        report(decks.check(deck))
        report(links.check(deck)[0])
    print(f"text      {sum(each.is_lesson for each in chosen)} lessons, {len(all_decks)} decks: {quoted} quotations, {linked} links, "
          f"{len(found)} terms")


def check_spelling(args, report):
    ours = [p for p in (ROOT / "lessons").glob("**/*.md") if "node_modules" not in p.parts]
    paths = [*ours, *(ROOT / "slides").glob("*.md")]
    faults = spelling.check(paths)
    if faults is None:
        print("spelling  NOT RUN: codespell is not installed (make deps, or apt install codespell)")
        return 77
    report(faults)
    print(f"spelling  {len(paths)} files")
    return 0


def check_figures(args, report):
    faults, drawn = figures.check(args.build, [d for d in documents(args.only) if d.is_lesson], args.update, args.measured)
    report(faults)
    print(f"figures   {drawn} drawn again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["commands", "text", "spelling", "figures", "all"])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="folder with bin/")
    parser.add_argument("--only", help="a lesson's number, or a page's name")
    parser.add_argument("--update", action="store_true", help="rewrite what is generated")
    parser.add_argument("--measured", action="store_true", help="with --update: measure the measured figures anew")
    args = parser.parse_args()
    found = []

    def report(faults):
        found.extend(faults)
        for fault in faults:
            print(fault, file=sys.stderr, flush=True)

    checks = {"commands": check_commands, "figures": check_figures, "text": check_text, "spelling": check_spelling}
    chosen = list(checks) if args.what == "all" else [args.what]
    skipped = 0
    try:
        if {"commands", "figures"} & set(chosen) and not (args.build / "bin" / "ringrun").exists():
            raise Fault(f"no programs in {args.build}/bin: build first (make build), or give --build FOLDER")
        for name in chosen:
            skipped = checks[name](args, report) or skipped
    except Fault as error:
        print(f"lessons: {error}", file=sys.stderr)
        return 6
    if found:
        print(f"lessons: {len(found)} faults", file=sys.stderr)
        return 1
    return skipped if args.what == "spelling" else 0


if __name__ == "__main__":
    sys.exit(main())
