#!/usr/bin/env python3
"""Tests the sandbox with a hostile program (intruder.cpp) in place of a driver, and hostile texts in
place of a student's, under each kind of sandbox that works here, and with namespaces forbidden:
python3 tests/labs/sandbox.py [-v] [NAME]

    sandbox.py intrude KIND    one kind, as JSON: the targets that the intruder reached. The tests run it again as
                               another user, and under a seccomp filter that forbids namespaces.
    sandbox.py cost [ROUNDS]   the time that each kind adds to a run and to a compiler step: medians, alternating
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from common import PLACE, RING, ROOT, alive, make, unique

from labs.course import apart, build, forbidden, record, runner, sandbox
from labs.course.split import texts
from labs.course.verdicts import Cheat

HERE = pathlib.Path(__file__).resolve().parent
KINDS = [kind for kind in ("bubblewrap", "landlock") if sandbox.Sandbox(kind).kind == kind]
LIMITS = {"memory": 512 << 20, "data": None, "file": 16 << 20}


def intruder():
    """Builds the program once, next to the cache, and returns its path."""
    program = build.BUILD / "intruder"
    source = HERE / "intruder.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([build.CXX, "-std=c++20", "-O1", str(source), "-o", str(program)], check=True)
    return program


def intrude(jail, *words, timeout=600):
    """Returns the intruder's exit status and output. Its folder is removed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="intruder-"))
    try:
        command = jail.program(intruder(), words, folder, **LIMITS)
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT,
                                       start_new_session=True, env={"PATH": "/usr/bin:/bin"})
            watchdog = threading.Timer(timeout, process.kill)
            watchdog.start()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            os.killpg(process.pid, signal.SIGKILL)  # as the judge does, before it reaps the first process
            watchdog.cancel()
            status = process.wait()
            said.seek(0)
            return jail.ended(status), said.read()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prey():
    """Creates files that any user may read and write, but a submission must not reach. Returns
    their folder and the files."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="prey-"))
    place.chmod(0o777)
    files = []
    for name in ("hidden.py", "labs/cache/06-ring-0123/driver"):
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\necho started\n")
        for part in (file, *file.parents[:len(pathlib.Path(name).parents)]):
            part.chmod(0o777)
        files.append(file)
    return place, files


def attempt(kind):
    """Returns {attempt: reached or kept} for one kind of sandbox, and the sandbox's description of
    itself."""
    jail = sandbox.Sandbox(kind or None)
    place, files = prey()
    try:
        with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as path, \
                socket.socket(socket.AF_UNIX) as abstract:
            number = port.getsockname()[1]
            path.bind(str(place / "socket"))
            (place / "socket").chmod(0o777)
            abstract.bind(f"\0labs-intruder-{number}")
            path.listen()
            abstract.listen()
            status, said = intrude(jail, str(number), str(place / "socket"), str(os.getpid()), *map(str, files),
                                   str(ROOT / "labs/06-ring/hidden.py"))
        lost = [file.name for file in files if not file.exists() or file.read_text() != "#!/bin/sh\necho started\n"]
        return {"kind": jail.kind, "why": jail.why, "open": jail.left_open, "status": status, "lost": lost,
                "tried": dict(line.rsplit(" ", 1) for line in said.splitlines() if " " in line), "said": said}
    finally:
        shutil.rmtree(place)


class Each:
    """Tests that run with `kind` set to every kind that works here."""
    kind = None

    def setUp(self):
        self.jail = sandbox.Sandbox(self.kind)

    def test_nothing_outside_is_reached(self):
        seen = attempt(self.kind)
        self.assertEqual((seen["kind"], seen["status"], seen["lost"]), (self.kind, 0, []), seen["said"])
        self.assertEqual([what for what, end in seen["tried"].items() if end != "kept"], [])
        self.assertEqual(len(seen["tried"]), 3 + 6 + 6 + 3 * 8, seen["said"])

    def test_what_a_lab_needs_works(self):
        self.assertEqual(intrude(self.jail, "own"), (0, ""))

    def test_nothing_outlives_the_program(self):
        seconds = unique()
        self.assertEqual(intrude(self.jail, "outlive", seconds)[0], 0)
        self.assertEqual(self.gone(seconds), [])

    def test_the_judge_is_killed(self):
        """The processes that it had started end with it, and the next judge removes its folders."""
        with self.judge() as seconds:
            for _ in range(1200):
                if alive(seconds):
                    break
                time.sleep(0.05)
            self.assertNotEqual(alive(seconds), [])
        self.assertEqual(self.gone(seconds), [])

    def test_the_judge_is_killed_while_the_sandbox_starts(self):
        """bubblewrap and its child tie themselves to their parents only after some milliseconds: no process may survive
        if the judge is killed before then."""
        all_of_them = []
        for moment in range(24):
            with self.judge() as seconds:
                time.sleep(moment / 2000)
            all_of_them.append(seconds)
            self.gone(seconds, 40)
        # A process that has not been scheduled since the kill ends when it is scheduled next. That took 2 s in 9 of 507
        # starts next to busy loops.
        self.assertEqual([process for seconds in all_of_them for process in self.gone(seconds)], [])

    @contextlib.contextmanager
    def judge(self):
        """Runs a judge that starts a program now and is killed at the end. Yields a text that is in
        the program's command line."""
        seconds = unique()
        code = (f"import sys; sys.path.insert(0, {str(HERE)!r}); import sandbox as s; from labs.course import sandbox\n"
                f"jail = sandbox.Sandbox({self.kind!r})\nprint('ready', flush=True)\n"
                f"s.intrude(jail, 'outlive', '{seconds}', 'wait')")
        with subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE, start_new_session=True) as judge:
            judge.stdout.readline()
            yield seconds
            judge.kill()

    def gone(self, seconds, turns=1200):
        """Waits for the killed processes to end. Returns those that are left."""
        for _ in range(turns):
            if not alive(seconds):
                break
            time.sleep(0.05)
        return alive(seconds)

    def test_limits(self):
        self.assertEqual(intrude(self.jail, "memory")[0], 7)
        self.assertEqual(intrude(self.jail, "disk")[0], -signal.SIGXFSZ)
        if "processes" not in " ".join(self.jail.left_open):
            most, sandbox.PROCESSES = sandbox.PROCESSES, 40
            try:
                children = int(intrude(self.jail, "children", "200")[1])
            finally:
                sandbox.PROCESSES = most
            self.assertTrue(20 <= children < 40, children)

    def test_the_compiler_sees_the_kit_alone(self):
        own = pathlib.Path(tempfile.mkdtemp(dir=PLACE))
        for name, there in (("labs/kit/link.hpp", True), ("vector", True), ("labs/06-ring/hidden.py", False),
                            ("labs/course/cheats.toml", False), (str(ROOT / "Makefile"), False), ("/etc/passwd", False),
                            (str(pathlib.Path.home() / ".profile"), False)):
            (own / "x.cpp").write_text(f'#include "{name}"\n')
            words = [build.CXX, "-std=c++20", "-I.", "-M", str(own / "x.cpp")]
            done = subprocess.run(self.jail.compiler(words, [ROOT / "labs/kit"], own), cwd=ROOT, capture_output=True,
                                  text=True, env={"PATH": os.environ["PATH"], "TMPDIR": str(own)})
            self.assertEqual(done.returncode == 0, there, f"{name}: {done.stderr}")


for each in KINDS:
    globals()[f"In_{each}"] = type(f"In_{each}", (Each, unittest.TestCase), {"kind": each})


class Elsewhere(unittest.TestCase):
    """Repeats the attempts in other environments."""

    def again(self, *before):
        place = tempfile.mkdtemp(dir="/tmp", prefix="labs-elsewhere-")
        os.chmod(place, 0o777)
        try:
            done = subprocess.run([*before, sys.executable, "-B", str(HERE / "sandbox.py"), "intrude", ""],
                                  capture_output=True, text=True,
                                  env={"PATH": os.environ["PATH"], "LABS_BUILD": place, "TMPDIR": place, "HOME": place})
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def kept(self, seen):
        self.assertEqual((seen["status"], seen["lost"]), (0, []), seen["said"])
        reached = {what for what, end in seen["tried"].items() if end != "kept"}
        if any("signals" in text for text in seen["open"]):
            reached -= {"signal the judge", "signal init"}
        self.assertEqual(reached, set())
        self.assertGreater(len(seen["tried"]), 30, seen["said"])

    def test_where_namespaces_are_forbidden(self):
        """As in a container: the calls that create namespaces are refused. Landlock takes over,
        and reports the reason."""
        if "landlock" not in KINDS:
            self.skipTest("this kernel has no Landlock")
        seen = self.again(str(sandbox.confine()), "--calls", "inside", "--")
        self.assertEqual(seen["kind"], "landlock")
        self.assertIn("bwrap", seen["why"])
        self.kept(seen)

    def test_as_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        reads = subprocess.run([str(sandbox.confine()), "--user", "61185", "--", sys.executable, "-c",
                                f"open({str(HERE / 'sandbox.py')!r})"], capture_output=True)
        if reads.returncode:
            self.skipTest("another user cannot read these sources")
        seen = self.again(str(sandbox.confine()), "--user", "61185", "--")
        self.assertIn(seen["kind"], KINDS)
        self.kept(seen)
        if "landlock" in KINDS:
            self.kept(self.again(str(sandbox.confine()), "--user", "61186", "--calls", "inside", "--"))

    def test_none(self):
        """make grade refuses and names the remedy; make check warns once."""
        env = {"LABS_SANDBOX": "none", "LABS_BUILD": str(PLACE / "none")}
        (RING.work).mkdir(parents=True, exist_ok=True)
        for name in RING.files:  # does not compile: the fastest way to end
            (RING.work / name).write_text("#error here\n")
        code, said = make("grade", "N=06", env=env)
        self.assertNotEqual(code, 0)
        self.assertRegex(said, r"no sandbox works here \(LABS_SANDBOX=none\).*--unsafe \(make: UNSAFE=1\)")
        self.assertIn("sandbox: NONE", make("grade", "N=06", "UNSAFE=1", env=env)[1])
        first, second = (make("check", "N=06", env=env)[1] for _ in range(2))
        self.assertIn("without a sandbox", first)
        self.assertNotIn("without a sandbox", second)
        shutil.rmtree(RING.work)

    def test_words(self):
        said = make("grade", "N=06", env={"LABS_SANDBOX": "chroot"})[1]
        self.assertIn("LABS_SANDBOX=chroot: choose bubblewrap, landlock or none", said)


class Sweeping(unittest.TestCase):
    def test_only_what_the_dead_have_left(self):
        place = pathlib.Path(tempfile.mkdtemp(dir=PLACE))
        dead = subprocess.Popen(["true"])
        dead.wait()
        for name in (f".new-{dead.pid}-a", f".new-{os.getpid()}-b", ".new-c", "unit-1"):
            (place / name).mkdir()
        (place / f".new-{dead.pid}-file").touch()
        sandbox.sweep(place, ".new")
        self.assertEqual(sorted(p.name for p in place.iterdir()), sorted([f".new-{os.getpid()}-b", ".new-c", "unit-1"]))


class Text(unittest.TestCase):
    """The preprocessor's output for a text, and the words that are left to compile."""

    def read(self, source):
        folder = pathlib.Path(tempfile.mkdtemp(dir=PLACE))
        (folder / "own.hpp").write_text(source)
        (folder / "all.cpp").write_text('#include "own.hpp"\n')
        words = [build.CXX, "-std=c++20", "-w", "-E", "-dD", "-dI", "-I.", str(folder / "all.cpp")]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return apart.read(done.stdout, lambda name: name.endswith("own.hpp"))

    def said(self, source):
        try:
            text = self.read(source)
            return forbidden.look_at_text(RING, text) or forbidden.refuse_text(text)
        except apart.Unreadable as error:
            return f"unreadable: {error}"

    def test_clean(self):
        text = self.read('#include <vector>\n#define N 4\n#undef NULL\ninline int f() { return N; }  // asm\n'
                         'const char* s = R"(\n#include <x>\n# 1 "own.hpp" 2\n)";\n')
        self.assertEqual(text.includes, ["<vector>"])
        self.assertEqual(text.macros, ["N"])
        self.assertIn("#include <vector>\n", text.clean)
        self.assertIn("#undef NULL\n", text.clean)
        self.assertIn("return 4;", text.clean)
        self.assertNotIn("#define", text.clean)
        self.assertNotIn("asm", text.words)
        self.assertLess(len(text.words), 40)  # without the words of <vector>

    def test_hidden_words_are_seen(self):
        for source, said in (('const char* a = "/*"; void f() { asm("nop"); } const char* b = "*/";', "assembly"),
                             ("void f() { a\\\nsm(\"nop\"); }", "assembly"),
                             ("#define J(a, b) a%:%:b\nvoid f() { J(__as, m__)(\"nop\"); }", "assembly"),
                             ("%:define private public\n", "defines private"),
                             ("#define observe(x)\n", "defines observe"),
                             ("#define E\nE #include <vector>\n", "stray #"),
                             ("int f() { return 1; } \\ \nint g();", None),
                             ("#define LP (\n#include <cassert>\nvoid f() { assert LP true ); }", "assert( is a macro"),
                             ("#pragma weak f = g\n", "#pragma weak"),
                             ('_Pragma("redefine_extname f g") int f();', "#pragma redefine_extname"),
                             ('__attribute__((__section__(".x"))) int x;', "attribute section"),
                             ('[[gnu::alias("y")]] int x();', "attribute alias"),
                             ("<:<:using gnu: weak:>:> int x();", "attribute using"),
                             ("namespace kit { int x; }", "opens the namespace kit"),
                             ("namespace k = kit; using namespace kit;", "opens the namespace kit"),
                             ('#include "labs/kit/counted.hpp"\n#include <vector>\n'
                              "template <> struct kit::Loads<int> {};", "specializes"),
                             ('extern "C" void _ZN3kit7channel6forgetEv();', "mangled"),
                             ('#include "labs/kit/channel.hpp"\n', "includes labs/kit/channel.hpp"),
                             ("template <auto M> struct T {}; class P { int x; };\ntemplate struct T<&P::x>;", "explicitly"),
                             ("template <auto M> struct T {};\nextern template class T<3>;", "explicitly"),
                             ("class P { int x; }; template <auto> struct T;\ntemplate <> struct T<&P::x> {};", "&A::B"),
                             ("class P { int x; }; template <class, auto> struct T;\n"
                              "template <class C> struct T<C, (&::P::x)> {};", "&A::B"),
                             ("class P { int x; }; template <auto, class> struct T;\n"
                              "template <class C> struct T<static_cast<int P::*>(&P::x), C> {};", "&A::B"),
                             ("namespace k = kit;", "another name"), ("namespace k = ::kit;", "another name"),
                             ("static kit::Registered r(0, 0);", "uses kit::Registered"),
                             ("using kit::describe_hangs_with;", "uses kit::describe_hangs_with"),
                             ("void f() { ::kit::On here(1); }", "uses kit::On"),
                             ("auto f() { return kit::Counted{}; }", "uses kit::Counted"),
                             ('#include "labs/kit/separate/separate.hpp"\n', "includes labs/kit/separate/separate.hpp"),
                             ("void f(kit::Line& line) { line.read(); }", "uses kit::Line"),
                             ("struct kit::Audit { };", "defines a class of the kit"),
                             ("class ::kit::Fabric final : A { };", "defines a class of the kit"),
                             ("int f() { return 1; } @", "stray '@'")):
            found = self.said(source)
            if said is None:
                self.assertTrue(found is None or found.startswith("unreadable"), f"{source}: {found}")
            else:
                self.assertIn(said, str(found), source)

    def test_honest_words_are_not(self):
        for source in ("#include <cmath>\n#include <cassert>\nbool f(double x) { assert(x); return std::isnan(x); }",
                       "[[nodiscard]] int f(); struct alignas(64) S { [[no_unique_address]] int x; };",
                       "__attribute__((aligned(16), __always_inline__)) inline int f() { return 1'000'000; }",
                       "#define CHECK(x) do { if (!(x)) throw 1; } while (0)\nvoid f(int i) { CHECK(i); }",
                       "#pragma GCC unroll 4\nusing lambda = int; int kit_size = 3; int a[] = {[] { return 1; }()};",
                       "template <template <class> class C, class T> void f(T t) { t.template g<int>(); }\n"
                       "template <class T> auto h(T&& t) { return &T::x; }  template <> int g<int>();",
                       "struct S { int x; }; template <class T> void f(T& a, const S& b) { int S::*p = &S::x; }\n"
                       "template <class M> struct A { typename M::template plain<int> t; };",
                       "template <class T> bool f(T a, S::U b) { return a && b; } template <class T> void g(S::U& u);",
                       '#include "labs/kit/link.hpp"\nnamespace lab06 { struct kit::Link* f(); class kit::Link; }',
                       '#include "labs/kit/link.hpp"\nnamespace lab06 { void f(kit::Link& link); using kit::Link; }'):
            self.assertIsNone(self.said(source), source)


class Answers(unittest.TestCase):
    """Whatever bytes a submission sends as its answer, the result is a verdict, never an
    exception."""

    def test_mutated(self):
        import random
        whole = record.encode({"kit.status": "done", "kit.message": "", "a": 1, "b": 2.5, "c": [1, 2], "d": [0.5],
                               "e": record.floats([1]), "f": b"\0\1"})
        frame = f"LABS n {len(whole)}\n".encode() + whole
        self.assertEqual(runner._frame(frame, "n")[0]["a"], 1)
        chance = random.Random(5)
        for _ in range(20000):
            data = bytearray(frame)
            for _ in range(chance.randrange(1, 4)):
                where = chance.randrange(len(data))
                what = chance.randrange(3)
                if what == 0:
                    data[where] = chance.randrange(256)
                elif what == 1:
                    del data[where:where + chance.randrange(1, 9)]
                else:
                    data[where:where] = bytes(chance.choice(b"0123456789 -iIdDsB\n") for _ in range(3))
            values, rest = runner._frame(bytes(data), "n")
            self.assertTrue(values is None or isinstance(values["kit.status"], str))
            self.assertTrue(values is not None or rest)


class Compiling(unittest.TestCase):
    def test_texts_that_keep_a_compiler(self):
        with self.assertRaises(Cheat):
            build.build(RING, {**texts(RING, False), "ring.hpp": '#include "/dev/zero"\n'})
        skeleton = texts(RING, False)
        large = "static char lab_large[100 << 20] = {1};\nchar* lab_kept() { return lab_large; }\n"
        with self.assertRaises(build.Broken) as caught:
            build.build(RING, {**skeleton, "ring.hpp": skeleton["ring.hpp"] + large})
        self.assertIn("larger than 64 MiB", str(caught.exception))


def cost(rounds):
    """Prints the milliseconds that each kind of sandbox adds: medians of alternating runs."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="lab-cost-"))
    own, runs = place / "compiler", place / "runs"  # a run may change the owner of its folder
    own.mkdir()
    runs.mkdir()
    place.chmod(0o755)
    (own / "x.cpp").write_text("#include <vector>\nint main() {}\n")
    words = [build.CXX, "-std=c++20", "-c", str(own / "x.cpp"), "-o", str(own / "x.o")]
    true = "/usr/bin/true"
    jails = [sandbox.Sandbox(kind) for kind in (*KINDS, "none")]
    for what, command, plain in (
            ("a run", lambda jail: jail.program(true, [], runs, **LIMITS), [true]),
            ("a step of the compiler", lambda jail: jail.compiler(words, [ROOT / "labs/kit"], own), words)):
        times = {jail.kind: [] for jail in jails} | {"bare": []}
        for _ in range(rounds):
            for kind, line in [("bare", plain), *((jail.kind, command(jail)) for jail in jails)]:
                begun = time.perf_counter()
                subprocess.run(line, check=True, cwd=place if what == "a run" else ROOT, capture_output=True,
                               env={"PATH": os.environ["PATH"], "TMPDIR": str(own), "CCACHE_DISABLE": "1"})
                times[kind].append(1000 * (time.perf_counter() - begun))
        middle = {kind: statistics.median(found) for kind, found in times.items()}
        bare = middle.pop("bare")
        print(f"{what}: {bare:.1f} ms; "
              + ", ".join(f"{kind} {value:.1f} ms ({value - bare:+.1f})" for kind, value in middle.items()))
    shutil.rmtree(place)


if __name__ == "__main__":
    if sys.argv[1:2] == ["intrude"]:
        print(json.dumps(attempt(sys.argv[2])))
    elif sys.argv[1:2] == ["cost"]:
        cost(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    else:
        print(f"kinds of sandbox that work here: {', '.join(KINDS) or 'none'}")
        unittest.main()
