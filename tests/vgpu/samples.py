#!/usr/bin/env python3
"""Builds and runs other people's CUDA programs on the emulator, and prints a table of the results.

    samples.py CLONE NVCC [--only NAME ...] [--build-seconds N] [--run-seconds N] [--results FILE] [--readme FILE]

CLONE: a clone of https://github.com/NVIDIA/cuda-samples or https://github.com/NVIDIA/multi-gpu-programming-models.
       The script copies each sample before it builds it, and leaves the clone as it is.
NVCC:  the build's wrapper of kernels/vgpu/nvcc (make nccl): build/release/nccl/cuda/bin/nvcc.

A sample passes if it ends with exit code 0 and prints no word such as FAILED. A sample that does not compile is listed
with the name that the compiler or the linker misses. Samples that link to a library other than the CUDA runtime are
listed with the library, and are not tried. --readme replaces the part of FILE between the clone's two marks.

On a busy machine some samples take too long. --results FILE keeps the results: the next run with the same file tries
only those samples that have not passed, and the table has all. Begin another file for another version of the emulator.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Links of a sample's CMakeLists.txt, and headers, that need a library or an interface which the emulator does not have.
LIBRARIES = {"cuda_driver": "the driver API", "nvrtc": "NVRTC", "OpenGL": "OpenGL", "GLUT": "OpenGL", "Vulkan": "Vulkan",
             "EGL": "EGL", "cublas": "cuBLAS", "cufft": "cuFFT", "curand": "cuRAND", "cusolver": "cuSOLVER", "cusparse": "cuSPARSE",
             "nvjpeg": "nvJPEG", "nvJitLink": "nvJitLink", "nppc": "NPP", "FreeImage": "FreeImage", "NVSCI": "NvSci",
             "nvshmem": "NVSHMEM", "D3D": "Direct3D"}
HEADERS = {"d3d11.h": "Direct3D", "d3d12.h": "Direct3D", "thrust": "Thrust", "cub": "CUB", "cublas_v2.h": "cuBLAS", "curand.h": "cuRAND", "curand_kernel.h": "cuRAND",
           "nvshmem.h": "NVSHMEM"}
WAIVED = 2  # the samples' exit code for a device that lacks something


class Result:
    """kind: passed, slow, failed, waived, refused or library."""

    def __init__(self, kind, reason=""):
        self.kind, self.reason = kind, reason


class Sample:
    """commands: build the sample in a copy of its folder, in order; runs: commands that must all pass."""

    def __init__(self, name, folder, commands, runs, library=None, environment=None):
        self.name, self.folder, self.commands, self.runs, self.library = name, folder, commands, runs, library
        self.environment = environment or {}


# ---- the two clones ----

def included(files):
    for file in files:
        for header in re.findall(r"^[ \t]*#[ \t]*include[ \t]*<([^>\n]+)>", file.read_text(errors="replace"), re.M):
            yield header


def library_of(cmake, files):
    """Returns the name of the first library that the sample needs, or None."""
    for link in re.findall(r"CUDA::(\w+)|find_package\((\w+)|FREEIMAGE|nvscibuf", cmake):
        for word in link:
            if word.replace("_static", "") in LIBRARIES:
                return LIBRARIES[word.replace("_static", "")]
    for header in included(files):
        for word in (header, header.split("/")[0]):
            if word in HEADERS:
                return HEADERS[word]
    return None


def cuda_samples(clone, nvcc):
    arguments = json.loads((clone / "test_args.json").read_text())
    for cmake_file in sorted(clone.glob("Samples/[0-6]_*/*/CMakeLists.txt")):
        folder, cmake = cmake_file.parent, re.sub(r"#.*", "", cmake_file.read_text())
        if re.search(r"d3d1[12]", cmake, re.I):
            cmake += " find_package(D3D)"
        made = re.search(r"add_executable\s*\(\s*(\S+)\s+([^)]*)\)", cmake)
        name = folder.name
        sources = [s for s in made[2].split() if (folder / s).is_file()] if made else []
        if not sources:
            sources = sorted(f.name for f in folder.iterdir() if f.suffix in (".cu", ".cpp"))
        if not sources:
            continue
        headers = [f for f in folder.rglob("*") if f.suffix in (".cu", ".cuh", ".cpp", ".h", ".hpp")]
        runs = arguments.get(name, {}).get("runs", [arguments.get(name, {})])
        mpi = subprocess.run(["mpic++", "-showme:compile"], capture_output=True, text=True).stdout.split() if "MPI" in cmake else []
        command = [nvcc, "-O2", "-std=c++17", "-Xcompiler", "-fopenmp", f"-I{clone}/Common", "-I.",
                   *[f"-I{i}" for listed in re.findall(r"include_directories\(([^)]*)\)", cmake) for i in re.split(r"[\s/]+", listed)
                     if i and i != ".." and (folder / i).is_dir()],
                   *mpi,
                   *[s if s.startswith("..") is False else str((folder / s).resolve()) for s in sources], "-o", "sample"]
        yield Sample(name, folder, [command + (["-lmpi"] if mpi else [])], [["./sample", *run.get("args", [])] for run in runs],
                     library_of(cmake, headers))


def jacobi_solvers(clone, nvcc):
    toolkit = pathlib.Path(nvcc).absolute().parent.parent
    for makefile in sorted(clone.glob("*/Makefile")):
        folder = makefile.parent
        sources = [f for f in folder.iterdir() if f.suffix in (".cu", ".cpp")]
        # Their Makefiles ask for CUB unless DISABLE_CUB is set.
        command = ["make", f"NVCC={nvcc}", f"CUDA_HOME={toolkit}", f"NCCL_HOME={toolkit.parent}", "DISABLE_CUB=1"]
        size = ["-niter", "60", "-nx", "256", "-ny", "256"]
        if any(h == "mpi.h" for h in included(sources)):
            command.append("MPICXX=mpicxx -DSKIP_CUDA_AWARENESS_CHECK")
            runs = [["mpirun", "--oversubscribe", "-np", str(n), "./jacobi", *size] for n in (1, 2, 3, 4)]
        else:
            runs = [["./jacobi", *size]]
        library = next((HEADERS[h] for h in included(sources) if h in ("nvshmem.h",)), None)
        # Open MPI copies device memory as if it were the host's.
        by_mpi = {"VGPU_GUARD": "none"} if folder.name.startswith("mpi") else {}
        yield Sample(folder.name, folder, [command], runs, library, by_mpi)


# ---- building and running ----

def run(command, folder, seconds, environment):
    """Returns (exit code or None if the time is over, output)."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 env=environment, start_new_session=True)
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        output.seek(0)
        return code, output.read()


MISSING = [
    (r"this_inline_ptx_has_no_translation.*?\n.*?\"\s*(?:\{?\s*\.reg[^;]*;\s*(?:\\n|\\t|\s)*)?@?\s*([\w.:]+)", "inline PTX `{}`"),
    (r"nvcc \(vgpu\): (.*)", "{}"),
    (r"fatal error: (\S+): No such file", "`<{}>`"),
    (r"‘cuda(?:Device)?Prop[^\n]*has no member named ‘(\w+)’", "`cudaDeviceProp::{}`"),
    (r"has no member named ‘(\w+)’", "member `{}`"),
    (r"‘([\w:]+)’ (?:was not declared|has not been declared|does not name a type|is not a member|is not a template)", "`{}`"),
    (r"no arguments to ‘(\w+)’ that depend", "`{}`"),
    (r"‘(\w+)’ in namespace ‘[^’]*’ does not name", "`{}`"),
    (r"too (?:few|many) arguments to function ‘(?:[^’(]* )?\**(\w+)\(", "a form of `{}`"),
    (r"no matching function for call to ‘([^’(]+)", "a form of `{}`"),
    (r"undefined reference to `([^'(]+)", "`{}`"),
    (r"error: (.*)", "{}"),
]


def missing(said):
    """Returns what the first error of the compiler or linker misses."""
    said = re.sub(r"[^\n]*error: variable or field ‘[^\n]*", "", said)  # the error after it names the type
    first = min((said.find(mark) for mark in ("error:", "undefined reference", "nvcc (vgpu)") if mark in said), default=-1)
    if first < 0:
        return said.strip()[-120:].replace("\n", " ")
    line = said[said.rfind("\n", 0, first) + 1:]
    line, following = line.split("\n", 1)[0], "\n".join(line.split("\n")[:3])
    for pattern, form in MISSING:
        found = re.search(pattern, following if "ptx" in pattern else line)
        if found:
            return form.format(found[1].strip())
    return line[:120]


FAILURE = re.compile(r"\bFAIL(?:ED|URE)?\b|\b[Tt]est failed|^vgpu: |\bMISMATCH\b|Result verification failed", re.M)


def tried(sample, options):
    if sample.library is not None:
        return Result("library", sample.library)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="vgpu-sample-"), sample.name)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sample.folder, folder)
    lib = pathlib.Path(options.nvcc).absolute().parent.parent.parent / "lib"  # NCCL's and the emulator's
    environment = {"VGPU_DEVICES": "4", "VGPU_MEMORY_MB": "4096", "LD_LIBRARY_PATH": str(lib), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **sample.environment, **os.environ}
    try:
        for command in sample.commands:
            code, said = run(command, folder, options.build_seconds, environment)
            (folder / "build.log").write_text(said)
            if code != 0:
                return Result("refused", missing(said) if code is not None else f"{options.build_seconds} s of compiling")
        for command in sample.runs:
            code, said = run(command, folder, options.run_seconds, environment)
            (folder / "run.log").write_text(said)
            failure = FAILURE.search(said)
            if code is None:
                return Result("slow", f"{options.run_seconds} s")
            if code == WAIVED:
                return Result("waived", last_line(said))
            if code != 0 or failure:
                at = failure.start() if failure else len(said)
                return Result("failed", f"exit code {code}: " + last_line(said[:said.find("\n", at)] if failure else said))
        return Result("passed")
    finally:
        if not options.keep:
            shutil.rmtree(folder.parent, ignore_errors=True)


def last_line(said):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:140].replace("|", "/") if lines else "no output"


# ---- the table ----

def table(results, options):
    of = collections.defaultdict(list)
    for name, result in results:
        of[result.kind].append((name, result.reason))
    own = sum(len(of[kind]) for kind in of if kind != "library")
    compiled = own - len(of["refused"])
    lines = [f"{own} samples were tried: {compiled} compile, {len(of['passed'])} pass.", "", "| result | samples |",
             "|---|---|"]

    def row(title, cell):
        if cell:
            lines.append(f"| {title} | {cell} |")

    def listed(kind):
        return "; ".join(f"{name}: {reason}" for name, reason in of[kind])

    def by_reason(kind):
        groups = collections.defaultdict(list)
        for name, reason in of[kind]:
            groups[reason].append(name)
        return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in sorted(groups.items()))
    row("passed", ", ".join(name for name, _ in of["passed"]))
    row(f"compiled, did not end within {options.run_seconds} s", ", ".join(name for name, _ in of["slow"]))
    row("compiled, says that the device lacks something", listed("waived"))
    row("compiled, failed", listed("failed"))
    row("refused: the missing name", by_reason("refused"))
    row("not tried: needs", by_reason("library"))
    return "\n".join(lines)


def replace_part(readme, clone, text):
    begin, end = f"<!-- samples: {clone} -->", "<!-- end of the samples -->"
    old = readme.read_text()
    at = old.find(begin)
    if at < 0:
        sys.exit(f"{readme} has no line {begin}")
    readme.write_text(old[:at + len(begin)] + "\n" + text + "\n" + old[old.index(end, at):])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=pathlib.Path)
    parser.add_argument("nvcc", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--build-seconds", type=int, default=240)
    parser.add_argument("--run-seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1, help="samples that are tried simultaneously")
    parser.add_argument("--keep", type=pathlib.Path, help="builds in this folder, and keeps it")
    parser.add_argument("--results", type=pathlib.Path, help="a JSON file of the results so far: name, kind, reason")
    parser.add_argument("--readme", type=pathlib.Path)
    options = parser.parse_args()
    clone, nvcc = options.clone.resolve(), str(options.nvcc.absolute())
    if (clone / "Samples").is_dir():
        samples = list(cuda_samples(clone, nvcc))
    elif (clone / "nccl/jacobi.cpp").is_file():
        samples = list(jacobi_solvers(clone, nvcc))
    else:
        sys.exit(f"{clone} is a clone of neither cuda-samples nor multi-gpu-programming-models")
    unknown = set(options.only) - {s.name for s in samples}
    if unknown:
        sys.exit(f"{clone} has no sample {', '.join(sorted(unknown))}")
    known = {}
    if options.results and options.results.is_file():
        known = {name: Result(*result) for name, result in json.loads(options.results.read_text()).items()}
    order = [s.name for s in samples]
    samples = [s for s in samples if (not options.only or s.name in options.only) and
               (s.name not in known or known[s.name].kind != "passed")]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for sample, result in zip(samples, pool.map(lambda s: tried(s, options), samples)):
            known[sample.name] = result
            print(f"{sample.name}: {result.kind} {result.reason}", file=sys.stderr, flush=True)
            if options.results:
                options.results.write_text(json.dumps({n: [r.kind, r.reason] for n, r in known.items()}, indent=0))
    results = [(name, known[name]) for name in order if name in known]
    commit = subprocess.run(["git", "-C", clone, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True).stdout.strip()
    text = f"Commit {commit}; {time.strftime('%Y-%m-%d')}, at most {options.run_seconds} s a run.\n{table(results, options)}"
    print(text)
    if options.readme:
        replace_part(options.readme, clone.name, text)


if __name__ == "__main__":
    main()
