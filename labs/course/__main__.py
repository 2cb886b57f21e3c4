"""python3 -m labs.course COMMAND [--lab 06] ...: what the targets of the Makefile call.

  lab N        copy the skeleton to work/ (never overwrites)       check N   the public tests
  hint N       the next hint                                       grade N   all tests that are here, with points
  watch N      check at every save                                 reset N   begin anew; the old files are put aside
  progress     where you stand in all labs                         grade-the-grader   the table of mutants and cheats
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True

from labs.course import commands, mutants, terminal  # noqa: E402
from labs.course.grading import grade  # noqa: E402
from labs.course.lab import select  # noqa: E402
from labs.course.verdicts import AuthorError  # noqa: E402


def one(wanted):
    if not wanted:
        raise AuthorError("which lab? For instance N=06")
    lab, = select(wanted)
    return lab


def main():
    parser = argparse.ArgumentParser(prog="python3 -m labs.course", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["lab", "check", "hint", "grade", "watch", "reset", "progress", "grade-the-grader"])
    parser.add_argument("--lab", default="", help="number or name; without it, where that makes sense, all")
    parser.add_argument("--seed", type=int, help="of the inputs and the delays; every failure prints its own")
    parser.add_argument("--test", action="append", help="only this test (again for more)")
    parser.add_argument("--submission", help="folder of the files to grade, instead of work/NN-slug")
    parser.add_argument("--quick", action="store_true", help="grade-the-grader: without most mutants and cheats")
    args = parser.parse_args()
    ok = True
    if args.command == "lab":
        commands.start(one(args.lab))
    elif args.command == "check":
        ok = commands.check(one(args.lab), args.test, args.seed)
    elif args.command == "hint":
        commands.hint(one(args.lab))
    elif args.command == "watch":
        commands.watch(one(args.lab), args.seed)
    elif args.command == "reset":
        commands.reset(one(args.lab))
    elif args.command == "progress":
        commands.progress()
    elif args.command == "grade":
        lab = one(args.lab)
        report = grade(lab, commands.submission(lab, args.submission), only=args.test, seed=args.seed)
        terminal.show(report, grading=True, command="grade")
        ok = all(r.status == "pass" for r in report.results)
    else:
        ok = mutants.grade_the_grader(select(args.lab), args.quick)
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AuthorError as error:
        print(f"make: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os._exit(141)
