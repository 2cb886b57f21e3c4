"""python3 -m labs.course COMMAND [--lab 06] ...: the commands behind the Makefile's targets.

For students:
  lab       copy the skeleton to work/ (never overwrites)      check     the public tests
  hint      the next hint                                      grade     all tests that are here, with points
  watch     check at every save                                reset     start over; the old files are moved aside
  progress  where you stand in all labs                        mine      lab 13: train with everything you wrote
For instructors, in the repository:
  grade-the-grader  the table of mutants and cheats            soak      the tests many times under load
  mutate            wrong solutions made by rule               handout     the students' archive
  instructor        the other archive
"""
import argparse
import errno
import getpass
import importlib
import os
import pathlib
import re
import shlex
import sys

sys.dont_write_bytecode = True

if sys.version_info < (3, 11):  # Ubuntu 22.04: the imports below would fail with a traceback (no tomllib)
    version = ".".join(str(n) for n in sys.version_info[:3])
    print(f"labs: python3 is {version}, but the labs need 3.11 or newer: put it first in PATH", file=sys.stderr)
    sys.exit(2)

from labs.course import commands, mine, sandbox  # noqa: E402
from labs.course.lab import BUILD, WORK, select  # noqa: E402
from labs.course.reading import printable, printable_lines  # noqa: E402
from labs.course.verdicts import AuthorError  # noqa: E402

STUDENT = ["lab", "check", "hint", "grade", "watch", "reset", "progress", "mine"]
INSTRUCTOR = ["grade-the-grader", "handout", "instructor", "soak", "mutate"]


def one(wanted):
    if not wanted:
        raise AuthorError("name a lab, e.g. N=06")
    lab, = select(wanted)
    return lab


def number(word, example, least=0):
    """Returns a reader of a number for argparse. Its error names the word of make's command line, not the option."""
    def read(text):
        if not re.fullmatch("-?[0-9]{1,18}", text):
            raise AuthorError(f"{word}={printable(text)} is not a whole number: for instance {word}={example}")
        value = int(text)
        if value < least:
            raise AuthorError(f"{word}={value}: the least is {least}")
        return value
    return read


def instructors(name):
    try:
        return importlib.import_module(f"labs.course.{name}")
    except ModuleNotFoundError:
        raise AuthorError("that is a command of the repository, for instructors; it is not in a handout") from None


def run(args):
    if args.command == "lab":
        commands.start(one(args.lab))
    elif args.command == "check":
        return commands.check(one(args.lab), args.test, args.seed)
    elif args.command == "hint":
        commands.hint(one(args.lab))
    elif args.command == "watch":
        commands.watch(one(args.lab), args.seed)
    elif args.command == "reset":
        commands.reset(one(args.lab))
    elif args.command == "progress":
        commands.progress()
    elif args.command == "mine":
        return mine.mine()
    elif args.command == "grade":
        return commands.full_grade(one(args.lab), args.submission, args.test, args.seed, args.reports, args.unsafe)
    elif args.command == "grade-the-grader":
        sandbox.require(args.unsafe)
        return instructors("mutants").grade_the_grader(select(args.lab), args.quick)
    elif args.command == "soak":
        return instructors("soak").soak(select(args.lab), args.rounds, args.seed)
    elif args.command == "mutate":
        return instructors("mutate").mutate(select(args.lab), args.mutant, args.most)
    else:
        instructors("handout").main(select(args.lab), args.command)
    return True


def trouble(error):
    """Returns one line about a system error, with a remedy if a folder belongs to another user or cannot be written
    to."""
    if error.filename is None:
        return f"labs: cannot write or read: {error.strerror or error}"
    text = f"labs: '{printable(os.fsdecode(error.filename))}': {error.strerror}"
    path = pathlib.Path(os.fsdecode(error.filename)).absolute()
    while isinstance(error, PermissionError) and path != path.parent:
        try:
            if path.stat().st_uid != os.geteuid():
                return (f"{text}; '{printable(path)}' belongs to {path.owner()}: "
                        f"sudo chown -R {getpass.getuser()} {printable(shlex.quote(str(path)))}")
            break
        except (OSError, KeyError):  # not created yet, inaccessible, or owned by a user without a name
            path = path.parent
    if error.errno in (errno.EACCES, errno.EROFS):
        at = pathlib.Path(os.fsdecode(error.filename)).absolute()
        for name, folder in (("LABS_WORK", WORK), ("LABS_BUILD", BUILD)):
            if at.is_relative_to(folder) or folder.is_relative_to(at):
                return f"{text}: make it writable, or set {name}=/a/folder/of/yours"
    return text


class Parser(argparse.ArgumentParser):
    def error(self, message):  # argparse would print the usage, seven lines, before the message
        raise AuthorError(f"{message}; {self.prog} --help lists the options")


def main():
    parser = Parser(prog="python3 -m labs.course", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=STUDENT + INSTRUCTOR, metavar="COMMAND")
    parser.add_argument("--lab", default="", help="number or name; default where it makes sense: all")
    parser.add_argument("--seed", type=number("SEED", 7),
                        help="seed of the inputs and the delays; every failure prints its seed")
    parser.add_argument("--test", action="append", help="only this test (repeatable)")
    parser.add_argument("--submission", type=pathlib.Path, help="grade: folder of the files, instead of work/NN-slug")
    parser.add_argument("--reports", type=pathlib.Path,
                        help="grade: folder for results.json (Gradescope) and junit.xml")
    parser.add_argument("--unsafe", action="store_true", help="grade, even where no sandbox works")
    parser.add_argument("--rounds", type=number("ROUNDS", 200, least=1), default=200, help="soak: number of rounds")
    parser.add_argument("--mutant", action="append", help="mutate: only mutants whose id begins with this (repeatable)")
    parser.add_argument("--most", type=number("MOST", 100, least=1), help="mutate: number of mutants to try per lab")
    parser.add_argument("--quick", action="store_true", help="grade-the-grader: without most mutants and cheats")
    args = parser.parse_args()
    for name, value in vars(args).items():  # argparse treats a value of -- as a separator, and returns []
        if value == [] or isinstance(value, list) and [] in value:
            raise AuthorError(f"--{name}=--: -- is no value; a file of that name is ./--")
    return 0 if run(args) else 1


if __name__ == "__main__":
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        code = main()
        sys.stdout.flush()  # here, because python would report a full disk as an ignored exception
        sys.exit(code)
    except AuthorError as error:
        print(printable_lines(error), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os._exit(141)
    except OSError as error:  # e.g. folders belong to root after `sudo make`, or the disk is full or read-only
        print(trouble(error), file=sys.stderr, flush=True)
        os._exit(2)  # sys.exit would try once more to write the output
