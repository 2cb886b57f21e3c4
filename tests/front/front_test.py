#!/usr/bin/env python3
"""front_test.py: tests the output and effects of a newcomer's first commands on machines with various
problems."""
import os
import pathlib
import re
import shutil
import subprocess
import time
import unittest

from machine import ROOT, Machine, included, screen, widest

MAKE = ("make", "--no-print-directory")
STEPS = """
foreach(N RANGE 1 6)
  add_custom_command(OUTPUT step${N} COMMAND sh -c "test ! -e busy || { echo two at once; exit 1; }; touch busy; sleep 0.3; rm busy; touch step${N}" VERBATIM)
endforeach()
add_custom_target(train_gpt_cpu DEPENDS step1 step2 step3)
add_custom_target(doctor DEPENDS step4 step5 step6)
add_custom_target(ringrun)
file(WRITE ${CMAKE_BINARY_DIR}/bin/ringrun "#!/bin/sh\necho trained\n")
file(CHMOD ${CMAKE_BINARY_DIR}/bin/ringrun PERMISSIONS OWNER_READ OWNER_EXECUTE)
"""


def words(path):
    """Returns the command line of a process, or "" if it has ended."""
    try:
        return path.read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


class Front(unittest.TestCase):
    user = 0

    def setUp(self):
        self.machine = Machine(self.user)
        self.addCleanup(self.machine.remove)

    def one_line(self, said, *parts):
        lines = said.splitlines()
        self.assertEqual(len(lines), 1, said)
        for part in parts:
            self.assertIn(part, lines[0])


class Packages(Front):
    def deps(self, *arguments, scenario="", **variables):
        return self.machine.run(".ci/deps", *arguments, SCENARIO=scenario, **variables)

    def calls(self, word):
        made = self.machine.folder / "apt-get"
        return [line for line in (made.read_text().splitlines() if made.exists() else []) if re.search(rf"\b{word}\b", line)]

    def test_nothing_is_missing(self):
        self.assertEqual(self.deps("here"), (0, "", ""))
        self.assertEqual(self.calls("update"), [])

    def test_counts(self):
        code, seen = self.machine.on_terminal(".ci/deps", "one", "two", "here", "three", SCENARIO="""
            install() { status "dlstatus:1:30:Retrieving file 2 of 5 (3s remaining)"; sleep 1.2
              echo "0 upgraded, 5 newly installed, 0 to remove and 0 not upgraded."
              status "pmstatus:one:10:Unpacking one (amd64)"; status "pmstatus:two:20:Unpacking two (amd64)"; sleep 1.2
              for p in one two three; do status "pmstatus:$p:80:Installed $p (amd64)"; put $p; done; sleep 1.2; }""")
        self.assertEqual(code, 0, seen)
        for text in ["packages: 2 of 5 downloaded", "packages: 2 of 5 unpacked", "packages: 3 of 5 installed"]:
            self.assertIn(text, seen)
            self.assertNotIn(text, "\n".join(screen(seen)), "the line is not drawn in place")
        self.assertLessEqual(widest(seen), 80)

    def test_says_something_at_once(self):
        begin = time.monotonic()
        with self.machine.start(".ci/deps", "one", SCENARIO="update() { sleep 3; }") as process:
            self.assertIn("These packages are missing here", process.stdout.readline())
            self.assertEqual(process.stdout.readline().strip(), "one")
            self.assertIn("packages: ", process.stdout.readline())
            self.assertLess(time.monotonic() - begin, 2.5)
            out, err = process.communicate()
        self.assertEqual((process.returncode, err), (0, ""), out)

    def test_a_source_that_cannot_be_read(self):
        code, out, err = self.deps("one", scenario="""update() { exec >&2
            echo "E: The repository 'http://ppa.example stable Release' does not have a Release file."; exit 100; }""")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("continuing with the others: E: The repository 'http://ppa.example", out)

    def test_a_lock_for_a_while(self):
        for what in ["update", "install"]:
            with self.subTest(what):
                self.setUp()
                code, out, err = self.deps("one", scenario=f"""eval "real_$(declare -f {what})"
                    {what}() {{ echo >> $FAKE/tries; [ $(grep -c . -v < $FAKE/tries) -gt 2 ] || locked; real_{what}; }}""")
                self.assertEqual((code, err), (0, ""), out)
                self.assertIn("packages: waiting for unattended-upgr, which has apt's lock", out)
                self.assertEqual(len(self.calls(what)), 3)

    def test_a_lock_that_stays(self):
        code, _, err = self.deps("one", scenario="install() { locked; }", RINGSMITH_LOCK_SECONDS="1")
        self.assertEqual(code, 1)
        self.one_line(err, "deps: unattended-upgr has had apt's lock for 1 s", "then make again")

    def test_another_package_is_half_configured(self):
        trouble = """echo "dpkg: error processing package grub-pc (--configure):" >&2
            echo "E: Sub-process /usr/bin/dpkg returned an error code (1)" >&2; exit 100"""
        code, out, err = self.deps("one", "two", scenario="install() { put one two; %s; }" % trouble)
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("trouble with another package, but all of these are installed: dpkg: error processing package grub-pc", out)
        self.setUp()
        code, out, err = self.deps("one", "two", scenario="install() { put one; %s; }" % trouble)
        self.assertEqual(code, 1, out)
        self.assertIn("error processing package grub-pc", err)
        self.assertIn("deps: apt could not install two", err)
        log = pathlib.Path(err.split()[-1])
        self.assertIn("E: Sub-process", log.read_text())

    def test_causes_have_remedies(self):
        for said, remedy in [
            ("W: Failed to fetch http://deb.example/x  Temporary failure resolving 'deb.example'", "check the network"),
            ("E: Failed to fetch http://deb.example/x  Could not connect to 127.0.0.1:3128", "apt's proxy"),
            ("E: Unable to locate package one", "apt does not have one"),
            ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "sudo dpkg --configure -a"),
            ("E: You don't have enough free space in /var/cache/apt/archives/.", "make room"),
            ("E: Malformed entry 1 in list file /etc/apt/sources.list.d/x.list (Suite)", "/etc/apt/sources.list.d/x.list"),
            ("E: Unmet dependencies. Try 'apt --fix-broken install' with no packages", "apt-get --fix-broken install"),
        ]:
            with self.subTest(said):
                self.setUp()
                code, _, err = self.deps("one", scenario=f'install() {{ echo "{said}" >&2; exit 100; }}')
                self.assertEqual(code, 1)
                self.one_line(err, "deps: ", remedy)

    def test_what_one_can_be_without(self):
        code, out, err = self.deps("one", "--or-without", "nowhere", "two")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("continuing without nowhere:", out)
        self.assertIn("one two", self.calls("install")[0])
        self.assertEqual(self.deps("one", "--or-without", "two"), (0, "", ""))
        self.setUp()  # this test breaks the installation
        code, out, err = self.deps("one", "--or-without", "two", scenario="""eval "real_$(declare -f install)"
            install() { case "${packages[*]}" in *two*) echo "E: two is broken" >&2; exit 100 ;; esac; real_install; }""")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("continuing without two:", out)

    def test_unsafe_io_is_for_throwaway_machines(self):
        self.deps("one")
        self.assertNotIn("unsafe-io", "".join(self.calls("install")))
        self.setUp()
        self.deps("one", CI="true")
        self.assertIn("unsafe-io", "".join(self.calls("install")))

    def test_no_apt(self):
        (self.machine.tools / "apt-get").unlink()
        (self.machine.tools / "cmake").unlink()
        code, _, err = self.deps("one", "two")
        self.assertEqual(code, 6)
        self.one_line(err, "no apt", "one two")

    def test_train_needs_little(self):
        _, commands, _ = self.machine.run(*MAKE, "-n", "train")
        train = set(re.search(r"^\.ci/deps (.*)", commands, re.M)[1].split())
        everything = set(self.machine.run(*MAKE, "packages")[1].split())
        self.assertLess(train, everything)
        self.assertEqual(train & {"catch2", "python3", "qemu-system-x86", "codespell", "bubblewrap", "libopenblas-dev"}, set())
        _, commands, _ = self.machine.run(*MAKE, "-n", "test")
        self.assertLessEqual(everything, set(re.search(r"^\.ci/deps (.*)", commands, re.M)[1].split()))


class PackagesOfAUser(Packages):
    """Repeats the tests as an ordinary user with sudo, which closes descriptors above 2; also tests
    a system without sudo."""
    user = 1000
    SUDO = """#!/bin/bash
echo "$*" >> "$FAKE/sudo"
for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done
[ "$1" != -n ] || shift
exec "$@"
"""

    def setUp(self):
        super().setUp()
        self.machine.fake("sudo", self.SUDO)

    def test_no_sudo(self):
        (self.machine.tools / "sudo").unlink()
        code, _, err = self.deps("one", "two")
        self.assertEqual(code, 6)
        self.one_line(err, "apt-get install --no-install-recommends one two")
        code, out, _ = self.deps("here", "--or-without", "two")
        self.assertEqual(code, 0)
        self.assertIn("continuing without two", out)

    def test_sudo_wants_a_password(self):
        self.machine.fake("sudo", "#!/bin/bash\necho 'sudo: a password is required' >&2\nexit 1\n")
        code, _, err = self.deps("one")
        self.assertEqual(code, 6)
        self.one_line(err, "sudo does not let reader install packages", "apt-get install --no-install-recommends one")
        self.assertEqual(self.calls("install"), [])


class Build(Front):
    def test_jobs_is_no_number(self):
        self.machine.project(STEPS)
        for jobs in ["x", "0", "-1", "2 3", "1'"]:
            code, out, err = self.machine.run(*MAKE, "build", f"JOBS={jobs}")
            self.assertEqual((code, out), (2, ""))
            self.one_line(err, f"JOBS={jobs} is not a number", "make JOBS=2")
            code, out, err = self.machine.run(".ci/compile", "build/release", JOBS=jobs)
            self.assertEqual((code, out), (1, ""))
            self.one_line(err, f"JOBS={jobs} is not a number")

    def test_two_makes_and_two_targets(self):
        self.machine.project(STEPS)
        code, out, err = self.machine.run(*MAKE, "-j8", "train", "doctor", "JOBS=1")
        self.assertIn("trained", out)
        self.assertNotIn("two at once", out + err)
        for step in (self.machine.top / "build/release").glob("step*"):
            step.unlink()
        self.assertEqual(self.machine.run(".ci/configure", "build/release", "release")[0], 0)
        both = [self.machine.start(".ci/compile", "build/release", target, JOBS="1") for target in ("train_gpt_cpu", "doctor")]
        said = [process.communicate(timeout=60) for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(sum("make: waiting for another make in build/release" in out for out, _ in said), 1, said)

    def test_little_memory(self):
        self.machine.project(STEPS)
        self.machine.run(".ci/configure", "build/release", "release")
        self.machine.fake("nproc", "#!/bin/bash\necho 8\n")
        meminfo = self.machine.folder / "meminfo"
        for mib, jobs in [(1000, 1), (4000, 2), (100000, 8)]:
            meminfo.write_text(f"MemTotal:  {mib * 2048} kB\nMemAvailable:  {mib * 1024} kB\n")
            self.machine.fake("cmake", f"#!/bin/bash\necho \"$*\" > $FAKE/cmake\necho '@@1/1@@ a file'\n")
            code, out, _ = self.machine.run(".ci/compile", "build/release", MEMINFO=str(meminfo))
            self.assertEqual(code, 0)
            self.assertIn(f"--parallel {jobs}", (self.machine.folder / "cmake").read_text())
            self.assertEqual(f"make: {jobs} of 8 compilers at a time: {mib} MiB" in out, jobs < 8, out)

    def test_errors_are_whole_and_come_at_once(self):
        self.machine.project("""
            add_custom_command(OUTPUT bad COMMAND sh -c "echo 'x.cpp:1: error: no such thing'; echo '    1 | int'; exit 1" VERBATIM)
            add_custom_command(OUTPUT slow COMMAND sleep 4)
            add_custom_target(both ALL DEPENDS bad slow)""")
        self.machine.run(".ci/configure", "build/release", "release")
        begin = time.monotonic()
        with self.machine.start(".ci/compile", "build/release", JOBS="2") as process:
            said = [process.stderr.readline() for _ in range(3)]
            self.assertLess(time.monotonic() - begin, 3)
            out, err = process.communicate()
        self.assertRegex(said.pop(0), "^FAILED: .*bad")
        self.assertEqual(said, ["x.cpp:1: error: no such thing\n", "    1 | int\n"])
        self.one_line(err, "not everything was compiled", "build/release/compile.log")
        self.assertEqual(process.returncode, 1)
        self.assertIn("sh -c", (self.machine.top / "build/release/compile.log").read_text())

    def test_a_home_that_cannot_be_written_to(self):
        self.machine.project(STEPS)
        self.machine.run(".ci/configure", "build/release", "release")
        self.machine.fake("cmake", '#!/bin/bash\necho "disabled: $CCACHE_DISABLE" > $FAKE/cmake\n')
        (self.machine.folder / "file").write_text("")
        for place, disabled in [(self.machine.folder / "cache", ""), (self.machine.folder / "file/cache", "1")]:
            self.machine.fake("ccache", f'#!/bin/bash\n[ "$*" = "-k cache_dir" ] && echo "{place}"\n')
            code, out, err = self.machine.run(".ci/compile", "build/release")
            self.assertEqual((code, err), (0, ""))
            self.assertEqual((self.machine.folder / "cmake").read_text(), f"disabled: {disabled}\n")
            self.assertEqual("compiling without it" in out, bool(disabled), out)

    def test_no_memory_no_disk(self):
        self.machine.project(STEPS)
        self.machine.run(".ci/configure", "build/release", "release")
        for said, remedy in [("g++: fatal error: Killed signal terminated program cc1plus", "make JOBS=4"),
                             ("cc1plus: out of memory allocating 65536 bytes", "make JOBS=4"),
                             ("fatal error: error writing to x.s: No space left on device", "make room")]:
            self.machine.fake("cmake", f"#!/bin/bash\necho '{said}'\nexit 1\n")
            code, _, err = self.machine.run(".ci/compile", "build/release", JOBS="8")
            self.assertEqual(code, 1)
            self.assertIn(remedy, err.splitlines()[-1])

    def test_one_line_of_progress(self):
        self.machine.project(STEPS)
        code, seen = self.machine.on_terminal(*MAKE, "configure")
        self.assertEqual(code, 0, seen)
        self.assertIn("configuring build/release", seen)
        code, seen = self.machine.on_terminal(".ci/compile", "build/release", "train_gpt_cpu", "doctor", JOBS="1")
        self.assertEqual(code, 0, seen)
        self.assertRegex(seen, r"compiling \d of 6 files")
        self.assertEqual([line for line in screen(seen) if line], [screen(seen)[0]])
        self.assertRegex(screen(seen)[0], r"^compiled 6 files in \d+ s$")
        self.assertLessEqual(widest(seen), 79)
        self.assertEqual(self.machine.run(".ci/compile", "build/release", "train_gpt_cpu"), (0, "", ""))

    def test_a_slow_file_is_no_silence(self):
        self.machine.project("""
            add_custom_command(OUTPUT first COMMAND sleep 5)
            add_custom_command(OUTPUT second COMMAND sleep 5 DEPENDS first)
            add_custom_target(both ALL DEPENDS second)""")
        self.machine.run(".ci/configure", "build/release", "release")
        code, seen = self.machine.on_terminal(".ci/compile", "build/release")
        self.assertEqual(code, 0, seen)
        self.assertRegex(seen, r"compiling the first files, \d s so far")
        self.assertGreaterEqual(len(set(re.findall(r"compiling 1 of 2 files, (\d+) s so far", seen))), 2, seen)
        self.assertEqual(len([line for line in screen(seen) if line]), 1, seen)

    def test_ctrl_c(self):
        compiler = f"sleep 100.{os.getpid()}"
        self.machine.project(f"""
            add_custom_command(OUTPUT quick COMMAND true)
            add_custom_command(OUTPUT slow COMMAND {compiler} DEPENDS quick)
            add_custom_target(all_of_it ALL DEPENDS slow)""")
        self.machine.run(".ci/configure", "build/release", "release")
        code, seen = self.machine.on_terminal(".ci/compile", "build/release", interrupt_at="compiling 1 of 2")
        self.assertEqual(code, 130, seen)
        left = [line for line in screen(seen) if line]
        self.assertEqual(left[-1], "make: interrupted; the next make continues from here", seen)
        self.assertEqual([line for line in left if "compiling" in line], [])
        running = [words(path) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
        self.assertNotIn(compiler, running)
        self.assertIn("front_test", "\n".join(running))  # proves that running processes can be seen

    def test_a_copied_build(self):
        self.machine.project(STEPS)
        self.machine.run(".ci/configure", "build/release", "release")
        renamed = self.machine.folder / "renamed"
        shutil.move(self.machine.top, renamed)
        was, self.machine.top = self.machine.top, renamed
        for make in [MAKE, (*MAKE, "PRESET=release")]:
            code, out, err = self.machine.run(*make, "configure")
            self.assertEqual(code, 2, out)
            self.one_line("\n".join(err.splitlines()[:-1]), f"is a build of {was}: make clean")
        self.assertEqual(self.machine.run(*MAKE, "clean")[0], 0)
        self.assertEqual(self.machine.run(*MAKE, "configure")[0], 0)
        was.symlink_to(renamed)  # the same folder by another name is not a copy
        self.machine.top = was
        self.assertEqual(self.machine.run(*MAKE, "configure")[0], 0)

    def test_a_preset_that_is_none(self):
        self.machine.project(STEPS)
        code, _, err = self.machine.run(".ci/configure", "build/fast", "fast")
        self.assertEqual(code, 1)
        self.one_line(err, "no preset 'fast'", "release debug asan")
        # CMakeUserPresets.json may define the preset.
        shutil.copy(self.machine.top / "CMakePresets.json", self.machine.top / "CMakeUserPresets.json")
        self.assertNotIn("no preset", self.machine.run(".ci/configure", "build/fast", "fast")[2])

    def test_options_that_fail_are_forgotten(self):
        """cmake keeps a compiler that does not exist in its cache, and would fail without that option, too."""
        self.machine.project('if(WRONG)\nmessage(FATAL_ERROR "no such compiler")\nendif()\n')
        for _ in range(2):  # in a new folder; after a good run
            self.assertEqual(self.machine.run(*MAKE, "configure", "CMAKE_ARGS=-DWRONG=1")[0], 2)
            code, out, err = self.machine.run(*MAKE, "configure", "CMAKE_ARGS=-DKEPT=1")
            self.assertEqual(code, 0, out + err)
        self.assertEqual(self.machine.run(*MAKE, "configure", "CMAKE_ARGS=-DWRONG=1")[0], 2)
        cache = (self.machine.top / "build/release/CMakeCache.txt").read_text()
        self.assertIn("KEPT", cache)
        self.assertNotIn("WRONG", cache)

    def test_no_place_for_the_run(self):
        """It is found before the programs are compiled."""
        self.machine.project(STEPS)
        (self.machine.top / "runs").write_text("")
        code, out, err = self.machine.run(*MAKE, "train")
        self.assertEqual((code, out), (2, ""))
        self.one_line("\n".join(err.splitlines()[:-1]), "cannot write to 'runs'", "make train RUNS=/a/folder")
        code, out, err = self.machine.run(*MAKE, "train", f"RUNS={self.machine.folder}/my runs", "JOBS=1")
        self.assertEqual(code, 0, err)
        self.assertIn("trained", out)

    def test_a_folder_is_no_target(self):
        for folder in ["tests", "labs", "kernels", "runtime"]:
            (self.machine.top / folder).mkdir(exist_ok=True)
            code, out, err = self.machine.run(*MAKE, folder)
            self.assertEqual((code, out), (2, ""))
            self.one_line("\n".join(err.splitlines()[:-1]), f"'{folder}' is a folder")
        tops = {path.parent.name for path in ROOT.glob("[a-z]*/README.md")}
        phony = (ROOT / "Makefile").read_text().split("\n.PHONY:")[1].split("\n")[0].split()
        known = {"tests", "labs", "kernels", "runtime", *phony, "work", "runs"}
        self.assertEqual(sorted(tops - known), [], "make NAME does nothing and succeeds")

    def test_progress_that_cannot_be_written(self):
        self.machine.project(STEPS)
        for redirected in [">/dev/full", ">&-"]:
            code, out, err = self.machine.run("sh", "-c", f".ci/configure build/release release {redirected}")
            self.assertEqual((code, out, err), (0, "", ""))

    def test_cmake_fails(self):
        self.machine.project('message(STATUS "long before")\nfind_package(Nothing REQUIRED)\n')
        code, out, err = self.machine.run(".ci/configure", "build/release", "release")
        self.assertEqual(code, 1)
        self.assertIn("CMake Error", err.splitlines()[0])
        self.assertNotIn("long before", err + out)
        self.assertIn("build/release/configure.log", err.splitlines()[-1])


class BuildOfAUser(Front):
    user = 1000

    def test_after_sudo_make(self):
        self.machine.project(STEPS)
        (self.machine.top / "build/release").mkdir(parents=True)
        # Pretends that a file belongs to root.
        self.machine.fake("find", "#!/bin/bash\necho \"$1/CMakeCache.txt\"\n")
        self.machine.fake("stat", "#!/bin/bash\necho root\n")
        for command in [(".ci/configure", "build/release", "release"), (".ci/compile", "build/release")]:
            code, _, err = self.machine.run(*command)
            self.assertEqual(code, 1)
            self.one_line(err, "belongs to root: sudo chown -R reader 'build'")


class Help(Front):
    def test_the_list(self):
        code, out, _ = self.machine.run(*MAKE)
        lines = out.splitlines()
        self.assertEqual(code, 0)
        self.assertLessEqual(len(lines), 50)
        self.assertLessEqual(max(map(len, lines)), 80)
        described = re.findall(r"^  (\w[\w-]*) +\S", out, re.M)
        self.assertEqual(described[:4], ["train", "test", "lab", "doctor"])
        for name in ["JOBS=", "BUILD=", "PRESET=", "CMAKE_ARGS=", "PREFIX="]:
            self.assertIn(name, out)
        targets = set()
        for file in ["Makefile", "labs/course/labs.mk"]:
            targets |= set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / file).read_text(), re.M))
        self.assertEqual(targets - set(re.findall(r"[a-z0-9-]+", out)), set())
        code, out, _ = self.machine.run(*MAKE, "help", "ALL=1")
        self.assertEqual(targets - set(re.findall(r"^  ([a-z0-9-]+) +\S", out, re.M)), set())
        self.assertLessEqual(max(map(len, out.splitlines())), 80)

    def test_the_container_has_all_makefiles(self):
        container = (ROOT / ".devcontainer/Dockerfile").read_text()
        for file in included():
            self.assertIn(file, container)


class Mpirun(Front):
    def mpirun(self, text, *arguments, **variables):
        self.machine.fake("mpirun", "#!/bin/bash\n" + text)
        return self.machine.run("tests/support/mpirun.sh", "2", "program", *arguments, **variables)

    def test_a_killed_rank_is_no_deadline(self):
        for code in (137, 124, 143, 1):
            self.assertEqual(self.mpirun(f"exit {code}"), (code, "", ""))
            self.assertEqual(self.mpirun(f"exit {code}", RINGSMITH_DEADLINE="0"), (code, "", ""))

    def test_the_deadline(self):
        for text in ["sleep 30", "trap '' TERM; sleep 30; sleep 30"]:  # the second must be killed, which also gives 137
            code, _, err = self.mpirun(text, RINGSMITH_DEADLINE="1")
            self.assertIn(code, (124, 137))
            self.one_line(err, "2 ranks of program did not end within 1 s; all were killed")

    def test_tmpdir(self):
        for value in ["/no/such/folder", str(ROOT / "Makefile")]:
            code, out, err = self.mpirun("echo started", TMPDIR=value)
            self.assertEqual((code, out), (6, ""))
            self.one_line(err, f"TMPDIR={value} cannot be written to", "set TMPDIR")
        self.assertEqual(self.mpirun("echo started")[1], "started\n")

    def test_ctrl_c(self):
        self.machine.fake("mpirun", r"""#!/bin/bash
trap 'exit 1' INT TERM
mkdir -p runs/1
printf '\r[==>   ] 48/1000  loss 2.3'
for i in {1..100}; do sleep 0.1; done
""")
        for deadline in "0", "50":
            code, seen = self.machine.on_terminal("tests/support/mpirun.sh", "2", "program", "--run-dir", "runs/1",
                                                  interrupt_at="loss 2.3", RINGSMITH_DEADLINE=deadline)
            self.assertNotEqual(code, 0)
            self.assertEqual([line for line in screen(seen) if line and "^C" not in line],
                             ["mpirun.sh: interrupted; what it wrote is in runs/1"], seen)


class Labs(Front):
    def test_a_folder_that_is_refused(self):
        done = subprocess.run(["python3", "-B", "-m", "labs.course", "lab", "--lab", "06"], cwd=ROOT, capture_output=True, text=True,
                              env=self.machine.environment | {"PATH": "/usr/bin:/bin", "LABS_WORK": "/proc/work"})
        self.assertEqual(done.returncode, 2)
        self.one_line(done.stderr, "labs: '/proc/work")


if __name__ == "__main__":
    unittest.main()
