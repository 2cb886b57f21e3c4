"""A machine with fake tools: the scripts of .ci are run with our own apt, dpkg, sudo and mpirun."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds, for commands that take less than five

# The shell functions update and install print apt's output in a scenario; status writes to the
# requested descriptor.
APT_GET = """#!/bin/bash
echo "$*" >> "$FAKE/apt-get"
packages=() fd=
while [ $# -gt 0 ]; do
  case $1 in
    -o) shift; case $1 in APT::Status-Fd=*) fd=${1#*=} ;; esac ;;
    -*) ;;
    update|install) what=$1 ;;
    *) packages+=("$1") ;;
  esac
  shift
done
status() { [ -z "$fd" ] || echo "$1" >&"$fd"; }
update() { :; }
install() { status "dlstatus:1:50:Retrieving file 1 of ${#packages[@]} (0s remaining)"
  echo "0 upgraded, ${#packages[@]} newly installed, 0 to remove and 0 not upgraded."
  for package in "${packages[@]}"; do status "pmstatus:$package:10.0:Unpacking $package (amd64)"; done
  for package in "${packages[@]}"; do status "pmstatus:$package:90.0:Installed $package (amd64)"; put "$package"; done; }
put() { printf '%s\\n' "$@" >> "$FAKE/installed"; }
locked() { echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)" >&2; exit 100; }
eval "$SCENARIO"
$what
"""
DPKG_QUERY = """#!/bin/bash
format=
for argument; do
  case $argument in -W) ;; -f=*) format=${argument#-f=} ;; *)
    grep -qxF -- "$argument" "$FAKE/installed" || { echo "no packages found matching $argument" >&2; bad=1; continue; }
    line=${format//'${Package}'/$argument}
    printf "${line//'${db:Status-Status}'/installed}" ;;
  esac
done
exit ${bad:-0}
"""
APT_CACHE = """#!/bin/bash
case $2 in nowhere*) echo "  Candidate: (none)" ;; *) echo "  Candidate: 1.0" ;; esac
"""
TOOLS = """awk bash basename cat chmod cmake cp cut date dirname env find flock fold grep head id kill ln ls make mkdir mktemp mv ninja
    nproc paste ps pwd python3 readlink rm rmdir sed setsid sh sleep sort stat stty tail tee test timeout touch tr true uname""".split()


def included():
    """Returns the files that the Makefile includes."""
    return re.findall(r"^include (\S+)$", (ROOT / "Makefile").read_text(), re.M)


class Machine:
    """A checkout with only the files that a newcomer's first commands need, and a PATH with only
    the listed tools and the tools that a test adds."""

    def __init__(self, user=0):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringsmith-front-"))
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            if tool == "python3" and pathlib.Path("/usr/bin/python3").exists():
                found = "/usr/bin/python3"
            if found:
                (self.tools / tool).symlink_to(found)
        self.fake("apt-get", APT_GET)
        self.fake("apt-cache", APT_CACHE)
        self.fake("dpkg-query", DPKG_QUERY)
        self.fake("id", f"#!/bin/bash\n[ \"$1\" = -u ] && echo {user} || echo reader\n")
        (self.folder / "installed").write_text("here\n")
        self.environment = {"PATH": str(self.tools), "FAKE": str(self.folder), "SCENARIO": "", "TERM": "xterm", "LC_ALL": "C",
                            "TMPDIR": str(self.folder)}
        self.top = self.folder / "checkout"
        for name in ["Makefile", *included(), "CMakePresets.json", ".ci", "tests/support/mpirun.sh"]:
            (self.top / name).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, self.top / name)

    def fake(self, name, text):
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *command, **variables):
        return subprocess.Popen(command, cwd=self.top, env=self.environment | variables, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *command, **variables):
        """Returns (exit status, standard output, standard error)."""
        with self.start(*command, **variables) as process:
            out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def on_terminal(self, *command, interrupt_at=None, **variables):
        """Returns (exit status, all bytes sent to a terminal of 80 columns). Sends Ctrl-C after
        the text interrupt_at."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.top)
            os.execve(self.tools / command[0] if "/" not in command[0] else command[0], command, self.environment | variables)
        seen, begin = "", time.monotonic()
        while time.monotonic() - begin < PATIENCE:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                seen += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # all processes have closed it
                break
            if interrupt_at and interrupt_at in seen:
                # Waits first, because a shell that ninja has just started would miss the signal,
                # and ninja would wait for it.
                time.sleep(1)
                os.write(terminal, b"\x03")
                interrupt_at = None
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen

    def project(self, text):
        """Writes the checkout's CMakeLists.txt, which needs no compiler."""
        (self.top / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(front NONE)\n" + text)
        (self.folder / "installed").write_text((ROOT / "Makefile").read_text().split("\nPACKAGES := ")[1].split("\n")[0]
                                               .replace(" ", "\n") + "\nqemu-system-x86\nbusybox-static\nibverbs-providers\n")


def screen(sent):
    """Returns the lines that remain on a terminal, without text that was erased or overwritten
    after a carriage return."""
    return [line.rstrip("\r").split("\r")[-1].replace("\x1b[K", "") for line in sent.replace("\r\n", "\n").split("\n")]


def widest(sent):
    return max((len(re.sub(r"\x1b\[K", "", part)) for part in re.split(r"[\r\n]", sent)), default=0)
