"""What the tests of the labs' machinery share: a place of their own for a student's files, and make."""
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
PLACE.chmod(0o755)  # root's judge runs programs as other users
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)
os.environ["LABS_WORK"] = str(PLACE / "work")
os.environ.setdefault("LABS_BUILD", str(ROOT / "build" / "labs"))

from labs.course.lab import select  # noqa: E402

RING, = select("06")


def make(*words, root=ROOT, env=None):
    """(exit status, everything that was printed)."""
    done = subprocess.run(["make", "-s", *words], cwd=root, capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout + done.stderr


def alive(word):
    """Processes of this machine with this word among their arguments; not those that are ended and not yet reaped."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def unique():
    """Seconds that no other sleep on this machine sleeps."""
    return f"300.{os.getpid()}{time.monotonic_ns() % 100000}"
