#!/usr/bin/env python3
"""commands.py [--list] [FILE...]: checks that every command that our scripts run is in a package that is installed.

It collects the external commands of shell scripts, of the Makefile's recipes, of the lessons' console blocks, and of the
calls in Python and C++ files that run a program. Each must be one of:

  bare.txt          commands of a bare system: `make`, `git` and `ca-certificates` on Debian's minbase
                    (tests/systems/run.sh)
  PACKAGE_OF        a package's command, if the Makefile or a script under .ci has the package in one of its lists
  looked for        the file looks for it first (command -v NAME, shutil.which("NAME"), a list of such names), and so can
                    report that it is missing. A lesson's block cannot.

So a command that works only because the machine at hand has it (bc, once, in lesson 17) is found on that machine.
--list prints every command, its source and the first place that runs it. Exit status 1: something is missing.
"""
import argparse
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PACKAGE_OF = {
    "g++": "g++", "c++": "g++", "gcc": "g++", "cc": "g++", "gcov": "g++",
    # binutils is installed with the compiler.
    "ld": "g++", "nm": "g++", "objdump": "g++", "objcopy": "g++", "readelf": "g++", "strip": "g++", "ar": "g++",
    "addr2line": "g++", "c++filt": "g++", "size": "g++", "strings": "g++",
    "cmake": "cmake", "ctest": "cmake", "ninja": "ninja-build", "pkg-config": "pkg-config",
    "mpirun": "openmpi-bin", "mpiexec": "openmpi-bin", "mpicc": "libopenmpi-dev", "mpic++": "libopenmpi-dev",
    "ip": "iproute2", "bridge": "iproute2", "ss": "iproute2", "tc": "iproute2",
    "bwrap": "bubblewrap", "python3": "python3", "codespell": "codespell", "bc": "bc", "ccache": "ccache",
    "npm": "npm", "node": "nodejs", "xz": "xz-utils",
    "zstd": "zstd", "clang-format": "clang-format", "clang-tidy": "clang-tidy", "clang++": "clang", "clang": "clang",
    "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "aarch64-linux-gnu-gcc": "g++-aarch64-linux-gnu",
    "aarch64-linux-gnu-addr2line": "g++-aarch64-linux-gnu",
    "qemu-aarch64-static": "qemu-user-static", "mmdebstrap": "mmdebstrap", "debootstrap": "debootstrap",
    "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "srun": "slurm-client",
    "sinfo": "slurm-client", "scontrol": "slurm-client", "squeue": "slurm-client", "scancel": "slurm-client",
    "munged": "munge", "mungekey": "munge",
}
BUILTINS = set(""". : [ [[ alias bg break builtin caller case cd command compgen complete continue coproc declare dirs do done
disown echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in jobs kill
let local mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source test then time times trap
true type typeset ulimit umask unalias unset until wait while { } ! ]]""".split())
BEFORE = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "(", "time", "exec", "command", "builtin", "eval"}
# These run the command that follows them, after this number of words and after options. These option letters take
# a value.
WRAPPERS = {"env": (0, "uCS"), "sudo": (0, "ugpCh"), "nice": (0, "n"), "nohup": (0, ""), "setsid": (0, ""), "timeout": (1, "ks"),
            "xargs": (0, "InPLdsEa"), "taskset": (1, ""), "unshare": (0, ""), "nsenter": (0, ""), "chroot": (1, ""),
            "runuser": (0, "ugG"), "setpriv": (0, ""), "prlimit": (0, ""), "stdbuf": (0, "ioe"), "flock": (1, "wE"), "ionice": (0, "cnt")}
# These options take a value in the next word, unless it follows after =.
LONG_WITH_VALUE = {"--user", "--wd", "--root", "--reuid", "--regid", "--signal", "--propagation"}
OPTIONAL = {"nvidia-smi"}  # installed with the driver; scripts that use it continue without it
BUILT = re.compile(r"lesson\d\d_\w+|tests_\w+")
# These scripts run in the VM. Their commands are not checked.
IN_THE_VM = ("tests/rdma/vm/init", "tests/rdma/guest.sh")
NAME = re.compile(r"[A-Za-z_][\w.+-]*")


def functions_of(text):
    return set(re.findall(r"^\s*(?:function\s+)?([\w-]+)\s*\(\)", text, re.M))


class Shell:
    """Reads the words of a script, command by command, as far as needed to find the commands'
    names. Does not interpret the script: a name in a variable, or with a path, belongs to no
    package."""

    def __init__(self, text):
        self.text, self.at, self.line, self.found = text, 0, 1, []  # found: (line, command)
        self.functions = functions_of(text)
        self.heredocs = []
        self.ticks = False  # inside `...`

    def peek(self):
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self):
        character = self.text[self.at]
        self.at += 1
        if character == "\n":
            self.line += 1
        return character

    def newline(self):
        """Skips the body after a line with << WORD, because it is not part of the script."""
        for word, tabs in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at:end]
                self.at = min(end + 1, len(self.text))
                self.line += 1
                if (line.lstrip("\t") if tabs else line) == word:
                    break
        self.heredocs = []

    def until(self, close):
        """Reads the commands up to this closing character (or the end)."""
        words, begin, case = [], self.line, 0
        def flush():
            nonlocal words
            if words:
                self.command(words, begin)
            words = []
        while self.at < len(self.text):
            c = self.peek()
            if close and c == close and not (case and close == ")"):
                self.take()
                break
            if c in " \t\r":
                self.take()
            elif c == "\\" and self.text[self.at:self.at + 2] == "\\\n":
                self.take(), self.take()
            elif c == "#":
                while self.at < len(self.text) and self.peek() != "\n":
                    self.take()
            elif c == "\n":
                flush()
                self.take()
                self.newline()
            elif c in "<>" or re.match(r"&>", self.text[self.at:]):
                self.redirect()
            elif c in ";|&":
                flush()
                while self.peek() and self.peek() in ";|&":
                    self.take()
                if case and self.text[self.at - 2:self.at] == ";;":
                    self.pattern()
            elif c == "(":
                self.take()
                if self.peek() == "(" and (not words or words == ["for"]):  # (( arithmetic ))
                    self.at = max(self.at, self.text.find("))", self.at) + 2)
                    words = []
                elif self.peek() == ")" and len(words) == 1:  # name()
                    self.take()
                    words = []
                else:
                    flush()
                    self.until(")")
            elif c == ")":
                flush()
                self.take()
            else:
                if not words:
                    begin = self.line
                word = self.word()
                if word == "esac" and not words:
                    case = max(0, case - 1)
                elif word == "in" and len(words) == 2 and words[0] == "case":
                    case, words = case + 1, []
                    self.pattern()
                elif word in ("then", "else", "do", "{", "}", "!") and not words:
                    pass
                else:
                    words.append(word)
        flush()

    def pattern(self):
        """Skips a case's pattern `a | b)`. Does nothing before its esac."""
        ahead = re.compile(r"(?:\s|#[^\n]*\n)*esac\b").match(self.text, self.at)
        if ahead:
            return
        quote = None
        while self.at < len(self.text):
            c = self.take()
            if c in "'\"" and quote in (None, c):
                quote = None if quote else c
            elif c == "#" and not quote and self.text[self.at - 2] in " \n":
                while self.at < len(self.text) and self.peek() != "\n":
                    self.take()
            elif c == ")" and not quote:
                return

    def redirect(self):
        found = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2").match(self.text, self.at)
        if found and not self.text.startswith("<<<", self.at):
            self.heredocs.append((found[3], found[1]))
            self.at = found.end()
            return
        process = self.text[self.at + 1:self.at + 2] == "("
        if process:  # <( ... )
            self.take(), self.take()
            self.until(")")
            return
        while self.peek() and self.peek() in "<>&-":
            self.take()
        while self.peek() and self.peek() in " \t":
            self.take()
        if self.peek() and self.peek() not in "\n;|":
            self.word()

    def word(self):
        out = ""
        while self.at < len(self.text):
            c = self.peek()
            if c in " \t\r\n;|&<>()" and not (c == "(" and out.endswith("=")):
                break
            if c == "(":  # an array
                self.take()
                while self.peek() and self.peek() != ")":
                    if self.peek() in " \t\n":
                        self.take()
                    elif self.peek() == "#":
                        while self.peek() and self.peek() != "\n":
                            self.take()
                    elif not self.word():
                        self.take()
                if self.peek():
                    self.take()
                out += "()"
            elif c == "'":
                self.take()
                end = self.text.find("'", self.at)
                end = len(self.text) if end < 0 else end
                out += self.text[self.at:end]
                self.line += self.text.count("\n", self.at, end)
                self.at = end + 1
            elif c == '"':
                self.take()
                out += self.quoted()
            elif c == "\\":
                self.take()
                if self.peek():
                    out += self.take().replace("\n", "")
            elif c == "$":
                out += self.dollar()
            elif c == "`":
                if self.ticks:
                    break
                self.ticked()
                out += "$"
            else:
                out += self.take()
        if not out and self.at < len(self.text) and self.peek() in "()":
            return ""
        return out

    def quoted(self):
        out = ""
        while self.at < len(self.text):
            c = self.peek()
            if c == '"':
                self.take()
                break
            if c == "\\":
                self.take()
                out += self.take() if self.peek() else ""
            elif c == "$":
                out += self.dollar()
            elif c == "`" and not self.ticks:
                self.ticked()
                out += "$"
            else:
                out += self.take()
        return out

    def ticked(self):
        self.take()
        self.ticks = True
        self.until("`")
        self.ticks = False

    def dollar(self):
        self.take()
        if self.text.startswith("((", self.at):
            depth = 0
            while self.at < len(self.text):
                depth += {"(": 1, ")": -1}.get(self.take(), 0)
                if not depth:
                    break
        elif self.peek() == "(":
            self.take()
            self.until(")")
        elif self.peek() == "{":
            depth = 0
            while self.at < len(self.text):
                if self.text.startswith("$(", self.at) and not self.text.startswith("$((", self.at):
                    self.dollar()
                    continue
                depth += {"{": 1, "}": -1}.get(self.take(), 0)
                if not depth:
                    break
        elif self.peek() == "'":
            return ""
        return "$"

    def command(self, words, line):
        while words:
            word = words[0]
            if word in BEFORE or re.match(r"\w+(\[[^]]*\])?\+?=", word):
                words = words[1:]
                if word == "command" and words and words[0].startswith("-"):
                    return  # command -v: the script looks for it
            elif word in ("for", "select", "case", "function"):
                return
            else:
                break
        if not words:
            return
        name, rest = words[0], words[1:]
        if name in BUILTINS or name in self.functions:
            if name == "trap" and rest:
                self.inner(rest[0], line)
            return
        if not NAME.fullmatch(name):
            return
        self.found.append((line, name))
        if name in ("bash", "sh") and "-c" in rest[:3]:
            self.inner(" ".join(rest[rest.index("-c") + 1:][:1]), line)
        if name in WRAPPERS:
            skip, letters = WRAPPERS[name]
            while rest and (rest[0].startswith("-") or re.match(r"\w+=", rest[0]) or skip):
                if rest[0] in LONG_WITH_VALUE and name != "unshare" or rest[0] == "--propagation" or \
                        len(rest[0]) == 2 and rest[0][0] == "-" and rest[0][1] in letters:
                    rest = rest[1:]
                elif not rest[0].startswith("-") and not re.match(r"\w+=", rest[0]):
                    skip -= 1
                rest = rest[1:]
            if rest:
                self.command(rest, line)

    def inner(self, text, line):
        inside = Shell(text)
        inside.functions = self.functions
        inside.until("")
        self.found += [(line + n - 1, name) for n, name in inside.found]

    def commands(self):
        self.until("")
        return self.found


def of_makefile(text):
    found = []
    number = 1
    for line in re.sub(r"\\\n", "\\\\\x01", text).split("\n"):  # a recipe's line is one script
        line_number, number = number, number + 1 + line.count("\x01")
        recipe = line[1:] if line.startswith("\t") else ""
        recipe = re.sub(r"^[@+-]+", "", recipe).replace("\x01", "\n")
        while True:  # make's own variables and functions, innermost first
            shorter = re.sub(r"(?<!\$)\$\((?:if |or |foreach |filter |abspath |shell |subst )?[^()$]*\)", "X/", recipe)
            if shorter == recipe:
                break
            recipe = shorter
        recipe = recipe.replace("$$", "$")
        if recipe:
            found += [(line_number, name) for _, name in Shell(recipe).commands()]
    return found


def of_python(text):
    """Returns the first word of lists and strings that are passed to calls that start a program."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in ("run", "Popen", "call", "check_call", "check_output", "system", "execvp", "run_in"):
            continue
        first = node.args[0]
        words = first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]
        words = [w.value if isinstance(w, ast.Constant) and isinstance(w.value, str) else "$" for w in words]
        if not isinstance(first, (ast.List, ast.Tuple)):
            if words == ["$"] or not any(k.arg == "shell" for k in node.keywords) and name != "system":
                continue
            found += [(node.lineno, command) for _, command in Shell(words[0]).commands()]
            continue
        if words and NAME.fullmatch(words[0]):
            shell = Shell("")
            shell.command(words, node.lineno)
            found += shell.found
    return found


def of_markdown(text, language="console"):
    found, inside, script = [], False, []
    for n, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside and line[3:].split()[:1] == [language] and "recorded" not in line
            continue
        if not inside:
            continue
        if script and script[-1][1].endswith("\\"):
            script.append((n, line))
        elif line.startswith("$ "):
            script.append((n, line[2:]))
    text, numbers = "", []
    for n, line in script:
        text += line + "\n"
        numbers.append(n)
    for line, name in Shell(text).commands():
        found.append((numbers[min(line, len(numbers)) - 1], name))
    return found


def of_cpp(text):
    """Returns the programs that tests and programs start: run_program({"NAME", ...}),
    system("..."), popen("..."), "sh", "-c", "..."."""
    found, literal = [], r'"((?:[^"\\]|\\.)*)"'
    for call in re.finditer(rf'(?:run_program\(\{{|\bsystem\(\(?|\bpopen\(\(?){literal}|"(?:ba)?sh", "-c",\s*{literal}', text):
        script = (call[1] or call[2] or "").encode().decode("unicode_escape")
        found += [(text.count("\n", 0, call.start()) + 1, name) for _, name in Shell(script).commands()]
    return found


def looked_for(text):
    """Returns the names after command -v and which, and all words of the lists over which a loop
    with command -v runs."""
    text = re.sub(r"\\\n\s*", " ", text)
    found = set(re.findall(r"(?:command -v|which|type -P|hash)\s+\"?([\w.+-]+)", text))
    found |= set(re.findall(r"which\(\"([\w.+-]+)\"", text))
    for loop in re.finditer(r"for (\w+) in ([^;\n]+);? *(?:\n\s*)?do\s[^\n]*\n?[^\n]*command -v \"?\$\{?(\w+)", text):
        if loop[1] == loop[3]:
            found |= set(loop[2].split())
    for loop in re.finditer(r"for (\w+) in \(?([^\n]*?)\)?:\n[^\n]*which\(\1\)", text):
        found |= set(re.findall(r"\"([\w.+-]+)\"", loop[2]))
    return found


def packages(root):
    """Returns (the Makefile's lists: packages that a user's commands install; all lists, including
    those of single targets and of .ci)."""
    lists, everything = set(), set()
    name = re.compile(r"(?<![\w$/.-])[a-z][a-z0-9.+-]+")
    for path in [root / "Makefile", root / "labs/course/labs.mk", *sorted((root / ".ci").glob("*"))]:
        text = path.read_text() if path.is_file() else ""
        for line in re.findall(r"^\w*PACKAGES\w*\s*[:+?]?=(.*)$", text, re.M):
            lists |= set(name.findall(line))
        for line in re.findall(r"\.ci/deps([^\n]*)|apt-get install([^\n]*)|packages\+?=\(([^)]*)", text):
            everything |= set(name.findall(" ".join(line)))
    return lists, lists | everything


def scripts(root):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True,
                            text=True)
    if listed.returncode:
        print("commands: NOT RUN: this is no git checkout, and git knows which files are ours")
        sys.exit(77)
    for name in listed.stdout.splitlines():
        path = root / name
        if not path.is_file():
            continue
        kind = path.suffix
        if kind in (".py", ".sh", ".sbatch", ".mk", ".md", ".cpp", ".hpp") or path.name == "Makefile":
            yield name, kind or path.name
        elif not kind and path.open("rb").read(2) == b"#!":
            first = path.open().readline()
            yield name, ".py" if "python" in first else ".sh"


def collect(root, only=()):
    for name, kind in scripts(root):
        if only and name not in only or name in IN_THE_VM:
            continue
        text = (root / name).read_text()
        if kind == ".py":
            found = of_python(text)
        elif kind == ".md":
            found = of_markdown(text) if name.startswith("lessons/") else []
        elif kind in (".cpp", ".hpp"):
            found = of_cpp(text)
        elif kind in (".mk", "Makefile"):
            found = of_makefile(text)
        else:
            shell = Shell(text)
            for beside in (root / name).parent.glob("*.sh"):  # it may source them
                shell.functions |= functions_of(beside.read_text())
            found = shell.commands()
        yield name, text, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    bare = set((HERE / "bare.txt").read_text().split("\n\n", 1)[1].split())
    users, every = packages(args.root)
    built = {p.stem for p in args.root.glob("labs/apps/*/*.cpp")}
    built |= set(re.findall(r'name = "([a-z_]+)"', (args.root / "labs/apps/perf/programs.cpp").read_text()))
    for path in [*args.root.glob("*/CMakeLists.txt"), *args.root.glob("*/*/*.cmake")]:
        built |= set(re.findall(r"(?:add_executable|_program)\((\w+)", path.read_text()))
    missing, seen = [], {}
    for name, text, found in collect(args.root, args.files):
        guarded = set() if name.endswith(".md") else looked_for(text)
        listed = users if name.endswith(".md") else every  # a reader runs a lesson after `make`
        for line, command in found:
            source = ("bare" if command in bare else "built" if command in built or BUILT.fullmatch(command) else
                      PACKAGE_OF[command] if PACKAGE_OF.get(command) in listed else
                      "looked for" if command in guarded or command in OPTIONAL else None)
            seen.setdefault((command, source), f"{name}:{line}")
            if source is None:
                package = PACKAGE_OF.get(command)
                missing.append(f"{name}:{line}: {command}: " + (
                    f"no list has its package, {package}" if package else
                    "neither a bare system nor a package of PACKAGE_OF has it, and the file does not look for it first"))
    if args.list:
        for (command, source), where in sorted(seen.items(), key=lambda item: (str(item[0][1]), item[0][0])):
            print(f"{command:24} {source or 'MISSING':14} {where}")
    print("\n".join(missing) if missing else f"commands: {len(seen)} commands, each from a bare system, a list, or looked for")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
