"""Shared by the tests of the labs' machinery: a separate folder for a student's files, and make."""
import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True
PLACE = pathlib.Path(tempfile.mkdtemp(prefix="labs-test-"))
PLACE.chmod(0o755)  # the judge, run as root, starts programs as other users
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)
os.environ["LABS_WORK"] = str(PLACE / "work")
os.environ.setdefault("LABS_BUILD", str(ROOT / "build" / "labs"))

from labs.course.lab import select  # noqa: E402

RING, = select("06")


def make(*words, root=ROOT, env=None):
    """Returns (exit status, all output)."""
    done = subprocess.run(["make", "-s", *words], cwd=root, capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout + done.stderr


def alive(word):
    """Returns the processes, except zombies, that have this word among their arguments."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def unique():
    """Returns a duration in seconds that no other sleep on this machine uses."""
    return f"300.{os.getpid()}{time.monotonic_ns() % 100000}"
