"""Compiles and runs a submission that sees only the system (read-only), the kit, and a private folder.

    bubblewrap        separate namespaces for processes, network, files, IPC; a driver is /driver in a new root
    Landlock          where namespaces are forbidden (containers): the same files, by a kernel rule; seccomp
                      refuses sockets and calls that Landlock does not cover (labs/course/confine.cpp)
    none              make check prints a note (it is the student's own code), make grade needs UNSAFE=1

LABS_SANDBOX=bubblewrap, landlock or none selects one. This file does not inspect a submission's text:
forbidden.py does. If root grades, each driver runs as a transient user, which owns at most its private folder, if the
machine allows that.
"""
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from labs.course.lab import BUILD, ROOT, WORK
from labs.course.verdicts import AuthorError

COMPILER = {"memory": 4 << 30, "file": 64 << 20, "processor": 30}  # bytes, bytes, seconds of one step
PROCESSES = 2048            # threads included
SCRATCH = 256 << 20         # bytes, for /tmp and /dev/shm each
USERS = (61184, 65520)      # user ids for transient use, as in systemd: they have no account
SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives"]
BECOMING = ("CAP_SETUID", "CAP_SETGID")
DEVICES = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]


def confine():
    """Returns the program that drops privileges; compiles it once."""
    source = pathlib.Path(__file__).with_name("confine.cpp")
    compiler = os.environ.get("CXX", "g++")
    key = hashlib.sha256(source.read_bytes() + compiler.encode()).hexdigest()[:24]
    target = BUILD / "cache" / f"confine-{key}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, new = tempfile.mkstemp(dir=target.parent, prefix=f".new-{os.getpid()}-")
        os.close(handle)
        done = subprocess.run([compiler, "-std=c++20", "-O1", str(source), "-o", new], capture_output=True, text=True,
                              env={**os.environ, "CCACHE_DISABLE": "1"})
        if done.returncode:
            os.unlink(new)
            raise AuthorError(f"labs/course/confine.cpp does not compile:\n{done.stderr}")
        os.chmod(new, 0o755)
        os.rename(new, target)
    return target


def _system():
    """The system's folders as bubblewrap's options. /lib is a link on most systems."""
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in {ROOT, BUILD, WORK}:  # hides the course if it is installed below /usr
        if path.is_relative_to("/usr"):
            yield from ("--tmpfs", str(path))


def _each(option, paths):
    return [word for path in paths for word in (option, str(path))]


def _confined():
    """Returns the first words of every command that runs foreign code. The command is killed when this process ends."""
    return [str(confine()), "--judge", str(os.getpid())]


def _bubblewrap(privileged, keep=(), devices=DEVICES):
    words = [*_confined(), "--", shutil.which("bwrap"), "--unshare-pid", "--unshare-net", "--unshare-ipc",
             "--unshare-uts", "--die-with-parent"]
    words += [] if privileged else ["--unshare-user"]
    words += ["--cap-drop", "ALL", *_each("--cap-add", keep if privileged else []), *_system()]
    words += ["--proc", "/proc"]
    for device in devices:
        words += ["--dev-bind", device, device]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--size", str(SCRATCH), "--perms", "1777", "--tmpfs", folder]
    return words


def _tried(words):
    """Returns None if the command succeeds, else the first line of its errors."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return f"{words[-1]} does not end"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]


class Sandbox:
    """The kind of sandbox that this machine allows, determined by trying."""

    def __init__(self, wanted=None):
        self.root = os.geteuid() == 0
        self.changes_user = self.root
        self.kind, self.privileged, self.abi = "none", False, 0
        self.why = "LABS_SANDBOX=none" if wanted == "none" else None
        self.version = ""
        if wanted in (None, "bubblewrap") and shutil.which("bwrap") is None:
            self.why = "bwrap is not installed"
        elif wanted in (None, "bubblewrap"):
            for self.privileged in ((True, False) if self.root else (False,)):
                self.why = _tried([*_bubblewrap(self.privileged, BECOMING), "--", "/usr/bin/true"])
                if self.why is None:
                    self.kind = "bubblewrap"
                    done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True)
                    self.version = done.stdout.split()[-1]
                    return
        if wanted in (None, "landlock"):
            probe = subprocess.run([str(confine()), "--probe"], capture_output=True, text=True)
            self.abi = int(probe.stdout or 0)
            for self.changes_user in ((True, False) if self.root else (False,)):
                trouble = _tried([*_confined(), "--landlock", "1", "--calls", "alone", *_each("--read", SYSTEM),
                                  *self._user(), "--", "/usr/bin/true"])
                if trouble is None:
                    self.kind = "landlock"
                    return
            self.why = "; ".join(filter(None, [self.why if wanted is None else None, trouble]))

    def _user(self):
        return ["--user", str(USERS[0] + time.monotonic_ns() % (USERS[1] - USERS[0]))] if self.changes_user else []

    @property
    def left_open(self):
        """Returns the known gaps of this kind of sandbox."""
        found = ["memory is limited per process, not in total"]
        if self.kind == "none":
            return ["everything that you may do"]
        if self.kind == "bubblewrap" and self.root and not self.privileged:
            found.append("the number of processes")
        if self.kind == "landlock":
            found.append("the number and total size of files in its folder, names of processes in /proc")
            if not self.changes_user:
                found.append("the limit on processes counts all of yours")
                if self.abi < 6:
                    found.append("signals to your other processes")
            if ROOT.is_relative_to("/usr"):
                found.append("the course is below /usr, which is readable")
        return found

    def describe(self):
        """One line for reports."""
        kind = {"bubblewrap": f"bubblewrap {self.version}", "landlock": f"Landlock (ABI {self.abi}) and seccomp",
                "none": "NONE"}[self.kind]
        because = f" ({self.why})" if self.why and os.environ.get("LABS_SANDBOX") is None else ""
        return f"sandbox: {kind}{because}; left open: {', '.join(self.left_open)}"

    def compiler(self, words, reads, own):
        """The command for a compiler step, which can read `reads` and write only into the folder
        `own`."""
        tool = pathlib.Path(shutil.which(words[0]) or words[0]).resolve()
        if not tool.is_relative_to("/usr"):  # a compiler that is installed elsewhere
            reads = [*reads, tool.parents[1] if len(tool.parents) > 2 else tool]
        reads = [os.path.abspath(path) for path in reads]
        limits = [w for name, value in COMPILER.items() for w in (f"--{name}", str(value))]
        words = [shutil.which(words[0]) or words[0], *words[1:]]
        if self.kind == "bubblewrap":
            binds = [w for path in reads for w in ("--ro-bind", path, path)]
            # A submission could include an endless device.
            return [*_bubblewrap(self.privileged, devices=["/dev/null"]), "--ro-bind", str(confine()), "/confine",
                    "--dir", str(ROOT), *binds, "--bind", str(own), str(own), "--remount-ro", "/", "--chdir", str(ROOT),
                    "--", "/confine", *limits, "--", *words]
        if self.kind == "landlock":
            limits += ["--landlock", "1", *_each("--read", [*SYSTEM, "/proc", *reads]),
                       *_each("--write", ["/dev/null", own])]
        return [*_confined(), *limits, "--", *words]

    def program(self, driver, arguments, folder, memory, data, file):
        """The command that runs a driver. folder: its private folder, if outside the sandbox."""
        limits = ["--processes", str(PROCESSES), "--memory", str(memory), "--file", str(file)]
        limits += ["--data", str(data)] if data else []
        if self.kind == "bubblewrap":
            user = self._user() if self.privileged else []  # an unprivileged namespace has only one user
            name = f"/{pathlib.Path(driver).name}"  # make mutate runs one program under many names
            return [*_bubblewrap(self.privileged, BECOMING), "--ro-bind", str(confine()), "/confine", "--ro-bind",
                    str(driver), name, "--remount-ro", "/", "--chdir", "/tmp", "--", "/confine", *limits, *user,
                    "--calls", "inside", "--", name, *arguments]
        if self.kind == "landlock":
            limits += ["--landlock", "1", "--calls", "alone", *self._user(), "--own", str(folder),
                       "--write", "/dev/null", *_each("--read", [*SYSTEM, "/proc", *DEVICES])]
        return [*_confined(), *limits, "--", str(driver), *arguments]

    @property
    def private(self):
        """True if a run's folder exists only inside the sandbox."""
        return self.kind == "bubblewrap"

    def ended(self, status):
        """Returns the program's own status: bubblewrap reports 128 + signal, as a shell does."""
        return 128 - status if self.kind == "bubblewrap" and status is not None and status > 128 else status


@functools.cache
def here():
    wanted = os.environ.get("LABS_SANDBOX")
    if wanted not in (None, "bubblewrap", "landlock", "none"):
        raise AuthorError(f"LABS_SANDBOX={wanted}: choose bubblewrap, landlock or none")
    found = Sandbox(wanted)
    if wanted not in (None, found.kind):
        raise AuthorError(f"LABS_SANDBOX={wanted}, which does not work here: {found.why}")
    return found


def require(unsafe):
    """Raises AuthorError without a sandbox, unless `unsafe`. Called before grading other people's
    code."""
    if here().kind == "none" and not unsafe:
        raise AuthorError(f"no sandbox works here ({here().why}), and a submission could do anything that you may do. "
                          "Install bubblewrap, or grade on a throw-away machine with --unsafe (make: UNSAFE=1)")


def note():
    """Returns a note once if a student's own code runs without a sandbox; else None."""
    seen = BUILD / "no-sandbox-note"
    if here().kind != "none" or seen.exists():
        return None
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.touch()
    return f"Your code runs without a sandbox here ({here().why}): a wrong loop may fill your disk. (Shown once.)"


def sweep(place, prefix):
    """Removes the folders PREFIX-PID-... of killed judges, whose process PID no longer exists."""
    for path in place.glob(f"{prefix}-*"):
        pid = path.name.removeprefix(f"{prefix}-").partition("-")[0]
        try:
            if pid.isdigit() and path.lstat().st_uid == os.geteuid() and not os.path.exists(f"/proc/{pid}"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError:
            pass  # another judge may have removed it
