#!/usr/bin/env python3
"""Tests hostile submissions: folders whose names are commands, and files that are not regular, through `make
grade SUBMISSION=` and through the command behind it: python3 tests/labs/hostile.py [-v] [NAME]

Each attempt must soon end with one line and without points, and must run nothing: no canary file may appear.
Each of these submissions is refused before anything is compiled.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from common import PLACE, RING, ROOT

from labs.course import grading, reading, reports, terminal
from labs.course.split import texts
from labs.course.verdicts import Refused

CANARY = ROOT / f"labs-canary-{os.getpid()}"  # the commands run in ROOT, and a folder's name has no slash
SECONDS = 300  # limit for one attempt, long enough for a busy machine
ENVIRONMENT = {**os.environ, "RINGSMITH_NO_DEPS": "1"}


def commands_in_names():
    """Returns names of folders, each of which runs `touch CANARY` if a shell, make or Python expands it."""
    command = f"touch {CANARY.name}"
    return (f"$({command})", f"`{command}`", f"$(shell {command})", f"${{shell {command}}}", f"$$({command})",
            f";{command}", f"a; {command}; #", f"a & {command} &", f"a | {command}", f"a && {command}",
            f"a\n{command}\n", f"a\r\n\t{command}", f"'; {command}; '", f'"; {command}; "', f'"$({command})"',
            f"'$({command})'", f"a\\\n{command}", f"a $(eval $(shell {command}))", f"{{a,$({command})}}",
            f"<({command})", f"> {CANARY.name}", f"${{x:=$({command})}}", f"a #$(shell {command})",
            f"a\\;{command}", f"a\\$({command})", f"-x;{command}", f"a=$(shell {command})", f"\udcff;{command}",
            f"{'x' * 200};{command}")


NAMES = [" ", "a b", " a b ", "-x", "--help", "--reports=x", "-", "--", "'", '"', "a'b\"c", "\\", "a\\", "*", "?", "[a]", "~",
         "~root", "!", "#a", "%", "$", "$$", "${", "$(", "$(SUBMISSION)", "a=b", "a:=b", "a:b", "\t", "\n", "a\nb", "\x1b[31mred",
         "\x1b]0;title\x07", "a\rb", "\x7f", "\u202egnp", "\u2028", "é", "\udcff\udcfe", "a\udc80b", "x" * 255, "\udcff" * 255]


def kinds(folder):
    """Yields (name, function that creates something other than a regular file at a path, the report's term for it)."""
    def socket_at(path):
        with socket.socket(socket.AF_UNIX) as one:
            before = os.getcwd()
            os.chdir(path.parent)  # a socket's path has at most 107 bytes
            try:
                one.bind(path.name)
            finally:
                os.chdir(before)

    def large(path):
        with open(path, "wb") as file:
            file.truncate(1 << 40)

    solution = folder / "solution.hpp"
    solution.write_text(texts(RING, True)["ring.hpp"])
    yield "a link to a solution", lambda path: path.symlink_to(solution), "a link"
    yield "a link in the folder", lambda path: path.symlink_to("other.hpp"), "a link"
    yield "a link to a hidden test", lambda path: path.symlink_to(RING.folder / "hidden.py"), "a link"
    yield "a link to passwords", lambda path: path.symlink_to("/etc/shadow"), "a link"
    yield "a link to an endless device", lambda path: path.symlink_to("/dev/zero"), "a link"
    yield "a link to the terminal", lambda path: path.symlink_to("/dev/tty"), "a link"
    yield "a link to standard input", lambda path: path.symlink_to("/dev/stdin"), "a link"
    yield "a link to itself", lambda path: path.symlink_to(path.name), "a link"
    yield "a link to nothing", lambda path: path.symlink_to("nothing"), "a link"
    yield "a link to a folder", lambda path: path.symlink_to("/"), "a link"
    yield "a hard link", lambda path: os.link(solution, path), "hard link"
    yield "a FIFO", os.mkfifo, "a FIFO"
    yield "a link to a FIFO", lambda path: (os.mkfifo(path.with_name("fifo")), path.symlink_to("fifo")), "a link"
    yield "a folder", os.mkdir, "a folder"
    yield "a socket", socket_at, "a socket"
    yield "a file of a tebibyte", large, "at most"
    yield "no file", lambda path: None, "does not exist"
    if os.geteuid() == 0:
        def device(path):
            os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero
        yield "a device", device, "a device"


class Hostile(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=PLACE, prefix="hostile-"))

    def tearDown(self):
        shutil.rmtree(self.folder)

    def grade(self, submission, *words, through_make=True):
        """Returns (exit status, output of the command). Requires that nothing ran and nothing hung."""
        if through_make:
            command = ["make", "-s", "grade", "N=06", f"SUBMISSION={submission}", *words]
        else:
            command = [sys.executable, "-B", "-m", "labs.course", "grade", "--lab=06", f"--submission={submission}", *words]
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said = process.communicate(timeout=SECONDS)[0].decode(errors="surrogateescape")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            self.fail(f"{submission!r}: no end after {SECONDS} s")
        self.assertFalse(CANARY.exists(), f"{submission!r} ran a command: {said}")
        return process.returncode, said

    def one_line(self, said, word):
        """Requires one line from the judge; make adds another line about the exit status."""
        lines = [line for line in said.split("\n") if line and not re.match(r"make(\[\d+\])?: \*\*\*", line)]
        self.assertEqual(len(lines), 1, said)
        self.assertIn(word, lines[0])
        self.assertEqual(lines[0], reading.printable(lines[0]))

    def test_names(self):
        """A folder of that name is refused for its contents, so its name is in the line."""
        for name in dict.fromkeys([*NAMES, *commands_in_names()]):
            folder = self.folder / name
            folder.mkdir()
            (folder / "ring.hpp").mkdir()
            with self.subTest(name=name):
                status, said = self.grade(folder)
                self.assertNotEqual(status, 0, said)
                self.one_line(said, "ring.hpp is a folder, not a regular file: 0 points")
                self.assertIn(reading.printable(name).strip(), said)

    def test_names_alone(self):
        """Relative names, which may look like options."""
        for name in ("-x", "--help", "--lab=07", "-", "--", "$(touch canary)", "a b"):
            with self.subTest(name=name):
                status, said = self.grade(name)
                self.assertNotEqual(status, 0, said)
                self.one_line(said, "does not exist" if name != "--" else "a file of that name is ./--")
        self.one_line(self.grade("./--")[1], "-- does not exist")

    def test_other_words(self):
        """No word of the command line is a command."""
        (self.folder / "ring.hpp").mkdir()
        for word in ("TEST", "SEED", "REPORTS", "N", "UNSAFE", "MOST"):
            for value in (f"$(touch {CANARY})", f"$(shell touch {CANARY})", f";touch {CANARY}", f"x\ntouch {CANARY}"):
                with self.subTest(word=word, value=value):
                    where = f"{self.folder}/reports-" if word == "REPORTS" else ""
                    status, said = self.grade(self.folder, f"{word}={where}{value}")
                    self.assertNotEqual(status, 0, said)
                    self.assertNotIn("Traceback", said)

    def test_kinds(self):
        for what, put, said_of_it in kinds(self.folder):
            for number, name in enumerate(RING.files):
                submission = self.folder / f"{what} {name}"
                submission.mkdir()
                for other in RING.files[:number]:
                    (submission / other).write_text("#error not compiled\n")
                put(submission / name)
                folder = self.folder / "reports" / what
                with self.subTest(kind=what, file=name):
                    status, said = self.grade(submission, f"--reports={folder}", through_make=False)
                    self.assertEqual(status, 1, said)
                    lines = said.splitlines()
                    self.one_line(lines[0], said_of_it)
                    self.assertIn(f"{name}", lines[0])
                    self.assertTrue(lines[0].endswith(": 0 points"), said)
                    self.assertEqual([line.partition(":")[0] for line in lines[1:]], ["written"])
                    self.assertIn('"score": 0,', (folder / "results.json").read_text())
                    self.assertIn('type="refused"', (folder / "junit.xml").read_text())

    def test_folders(self):
        """The submission is itself a link, or a relative path leads through one; or it is no folder."""
        good = self.folder / "good"
        good.mkdir()
        for name, text in texts(RING, True).items():
            (good / name).write_text(text)
        (self.folder / "link").symlink_to("good")
        (self.folder / "up").symlink_to(".")
        (self.folder / "file").touch()
        os.mkfifo(self.folder / "fifo")
        through = os.path.relpath(self.folder / "up" / "good", ROOT)
        for submission, said_of_it in ((self.folder / "link", "a link"), (f"{self.folder}/link/", "a link"), (through, "a link"),
                                       (f"{self.folder}/link/.", "a link"), (self.folder / "file", "a file"),
                                       (self.folder / "fifo", "a FIFO"), ("/dev/zero", "a device"),
                                       ("/dev/stdin", "a link")):
            with self.subTest(submission=submission):
                status, said = self.grade(submission)
                self.assertNotEqual(status, 0, said)
                self.one_line(said, said_of_it)
                self.assertIn(": 0 points", said)

    def test_replaced_between_two_looks(self):
        """The file becomes a FIFO after it was seen as a file: no hang."""
        (self.folder / "ring.hpp").write_text("x")
        look = os.stat

        def replaced(path, **how):
            seen = look(path, **how)
            if path == "ring.hpp":
                (self.folder / path).unlink()
                os.mkfifo(self.folder / path)
            return seen
        os.stat = replaced
        try:
            with self.assertRaisesRegex(Refused, "was replaced"):
                reading.read_files(self.folder, ["ring.hpp"], foreign=True)
        finally:
            os.stat = look

    def test_what_is_read(self):
        (self.folder / "a").write_bytes(b"one\r\ntwo \xff\n")
        self.assertEqual(reading.read_files(self.folder, ["a"], foreign=True), {"a": "one\ntwo \ufffd\n"})
        (self.folder / "a").write_bytes(b"x" * reading.MOST)
        self.assertEqual(len(reading.read_files(self.folder, ["a"])["a"]), reading.MOST)
        (self.folder / "a").write_bytes(b"x" * (reading.MOST + 1))
        with self.assertRaisesRegex(Refused, "at most"):
            reading.read_files(self.folder, ["a"])


class Escaped(unittest.TestCase):
    """Control characters of a submission reach no report."""
    BAD = "".join(map(chr, (*range(9), *range(11, 32), 127, *range(128, 160), 0x202e, 0x2066, 0x2028, 0xdcff, 0xfeff)))

    def reports(self):
        for status in ("wrong", "hang", "crash", "cheat", "does not compile", "not attempted"):
            message = f"a line {self.BAD} <b>&\n\tof two"
            result = grading.Result("chunks", "A title", False, 5, status, message)
            yield grading.Report(RING, [result], warnings=message, cheat=message if status == "cheat" else "")

    def test_terminal(self):
        for report in self.reports():
            with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
                kept, sys.stdout = sys.stdout, file
                try:
                    terminal.show(report, grading=True)
                finally:
                    sys.stdout = kept
                file.seek(0)
                said = file.read()
            self.assertEqual(said, reading.printable_lines(said))
            self.assertIn("\\x1b", said)

    def test_files(self):
        import json
        import xml.etree.ElementTree as xml
        for report in self.reports():
            for test in reports.gradescope(report)["tests"]:
                self.assertEqual(test["output"], reading.printable_lines(test["output"]))
            whole = json.loads(json.dumps(reports.gradescope(report)))
            self.assertEqual(whole["output"], reading.printable_lines(whole["output"]))
            text = reports.junit(report)
            self.assertEqual(text, reading.printable_lines(text))
            node = xml.fromstring(text)[0][0]
            self.assertIn("\\x1b", node.get("message"))
            self.assertIn("<b>&", node.text)

    def test_long_lines(self):
        report = grading.Report(RING, [grading.Result("chunks", "A title", False, 5, "wrong", "x" * 100000)])
        with tempfile.TemporaryFile("w+") as file:
            kept, sys.stdout = sys.stdout, file
            try:
                terminal.show(report)
            finally:
                sys.stdout = kept
            file.seek(0)
            self.assertLess(max(map(len, file)), 3000)


if __name__ == "__main__":
    unittest.main()
