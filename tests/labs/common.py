"""What the tests of the labs' machinery share: a place of their own for a student's files, and make."""
import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True
PLACE = pathlib.Path(tempfile.mkdtemp(prefix="labs-test-"))
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
