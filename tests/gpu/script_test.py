#!/usr/bin/env python3
"""script_test.py BUILD: tests run.sh on the emulator: its parts and options, its budget, and the report that remains when
it is killed."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
COMMAND = [pathlib.Path(__file__).resolve().parent / "run.sh", "--simulate", "--build", BUILD]


def run(*options):
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True)


def check(good, what, *shown):
    if not good:
        sys.exit("\n".join([f"script_test: {what}", *map(str, shown)]))


def parts_of(report):
    """Returns the headings of the parts in a report, which must be complete Markdown."""
    text = report.read_text() if report.exists() else ""
    check(len(re.findall(r"^```", text, re.M)) % 2 == 0, "a part is torn", text)
    check(not text or "SIMULATED on vgpu: no GPU took part" in text, "the report does not say that it is simulated", text)
    return re.findall(r"^### (.*)", text, re.M)


def wrong_options(_):
    for options, said in [
        (["--only", "kernel"], "no part 'kernel'"),
        (["--only", ""], "no part is named"),
        (["--budget", "0"], "'0' is not a number of seconds"),
        (["--budget", "1h"], "'1h' is not a number of seconds"),
        (["--budget"], "--budget wants a value"),
        (["--fast"], "unknown option '--fast'"),
    ]:
        done = run(*options)
        check(done.returncode == 6 and said in done.stderr and done.stderr.count("\n") == 1, f"{options}: {done}")


def complete(out):
    done = run("--only", "kernels,memcheck,device,kernel-engine", "--out", out)
    report = out / "report.md"
    parts = parts_of(report)
    check(done.returncode == 0 and len(parts) == 7, "not all parts passed", done.stdout, done.stderr, parts)
    check("NOT RUN" in parts[0] and "kernels" in parts[1] and parts[1].find("passed") > 0, "another order", parts)
    check(all("compute-sanitizer" in p and "on tests_comm_cuda: NOT RUN" in p for p in parts[5:]),
          "memcheck is said to have run, or is not last", parts)
    check(re.search(r"^All parts passed, simulated, \d+ s in all\.$", report.read_text(), re.M), report.read_text())
    check("tests passed" in (out / "log.txt").read_text() or "All tests" in (out / "log.txt").read_text(), "no log")


def old_driver(folder):
    """Checks that a driver which is older than nvcc is refused before the build, with both versions."""
    fakes = {"nvcc": 'echo "Cuda compilation tools, release 13.0, V13.0.88"',
             "nvidia-smi": 'case $1 in --*) echo fake ;; *) echo "| Driver Version: 570.1   CUDA Version: 12.8  |" ;; esac'}
    for name, body in fakes.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([COMMAND[0], "--only", "device", "--out", folder / "out"], capture_output=True, text=True,
                          env=environment)
    check(done.returncode == 6 and "it supports CUDA 12, and nvcc is of CUDA 13" in done.stderr, "not refused", done)


def order(_):
    """Checks that the part that may hang under compute-sanitizer comes last, with a time limit."""
    script = COMMAND[0].read_text()
    parts = re.search(r'^parts="(.*)"', script, re.M)[1].split()
    check(parts[-1] == "memcheck", "memcheck is not the last part", parts)
    limits = re.findall(r"^  check \w+ tests_comm_cuda (\d+)$", script, re.M)
    check(len(limits) == 2 and max(map(int, limits)) <= 300, "no short limit for tests_comm_cuda", limits)


def budget(out):
    done = run("--only", "kernels,kernel-engine", "--budget", "3", "--out", out)
    parts = parts_of(out / "report.md")
    check(done.returncode == 3, "a budget that nothing fits has another exit code", done)
    check(len(parts) == 4 and all("NOT RUN, the budget of 3 s is spent" in p for p in parts), "parts ran", parts)


def failed(out):
    """Checks that a failing part is reported, and that the following parts run."""
    os.environ["VGPU_DEVICES"] = "none"
    done = run("--only", "kernels,memcheck", "--out", out)
    del os.environ["VGPU_DEVICES"]
    parts = parts_of(out / "report.md")
    check(done.returncode == 1 and "FAILED with exit code" in parts[0] and len(parts) == 3, "not refused", done, parts)


def without_peers(out):
    """Checks that devices which do not reach each other are reported and that their ranks use host memory instead."""
    for peers, reason in (("none", "no peer access between these devices"), ("broken", "does not arrive")):
        os.environ |= {"VGPU_PEERS": peers, "VGPU_DEVICES": "2"}
        done = run("--only", "rings", "--out", out / peers)
        del os.environ["VGPU_PEERS"], os.environ["VGPU_DEVICES"]
        report = out / peers / "report.md"
        parts = [p for p in parts_of(report) if p.startswith("ring, 2 processes on 2 devices")]
        check(done.returncode == 0 and len(parts) == 3, "another result than that all parts passed", done, parts)
        for part, what in zip(parts, (r"stream engine: REFUSED, .*", r"kernel engine: NOT RUN, .*", "no engine named: passed")):
            check(re.search(what + (reason if ".*" in what else ""), part), "another verdict", what, *parts)
        check("is copied through pinned host memory" in report.read_text(), "the path of the bytes is missing", report.read_text())
    os.environ["VGPU_DRIVER_ERROR"] = "35"  # programs refuse for another reason, with the same exit code
    done = run("--only", "rings", "--out", out / "driver")
    del os.environ["VGPU_DRIVER_ERROR"]
    parts = parts_of(out / "driver/report.md")
    check(done.returncode == 1 and any("8 devices, kernel engine: FAILED" in p for p in parts) and
          not any("REFUSED" in p or "no engine named" in p for p in parts), "a failure counts as a refusal", parts)


def killed(out):
    for seconds in (0.1, 0.5, 1, 2, 3.5):
        folder = out / str(seconds)
        with subprocess.Popen([*COMMAND, "--only", "kernel-engine,rings", "--out", folder],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as victim:
            time.sleep(seconds)
            os.killpg(victim.pid, signal.SIGKILL)
        print(f"killed after {seconds} s: {len(parts_of(folder / 'report.md'))} parts are there")


def kept(out):
    """Checks that the report has the finished parts if the script is killed in a later part."""
    with subprocess.Popen([*COMMAND, "--only", "device,kernels,kernel-engine", "--out", out], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as victim:
        seen = []
        for line in victim.stdout:
            seen.append(line)
            if line.endswith("ring, 2 ranks in one process, kernel engine\n"):  # this part has started
                os.killpg(victim.pid, signal.SIGKILL)
                break
    parts = parts_of(out / "report.md")
    check(len(parts) == 2 and "device: NOT RUN" in parts[0] and "kernels" in parts[1] and "passed" in parts[1],
          "the parts before the one that was killed are not in the report", parts, *seen)


PROFILE = """batch 4
==PROF== Connected to process 7
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","nvjet_sm90_tst_192x128","gpu__time_duration.sum","us","1,500.5"
"0","nvjet_sm90_tst_192x128","dram__bytes.sum","Mbyte","3.5"
"1","void ringsmith::<unnamed>::map_packs<ringsmith::<unnamed>::BinaryOp<0>, float>","gpu__time_duration.sum","ns","2000"
"2","void ringsmith::<unnamed>::logit_gradient<256, 8, ringsmith::bf16>","gpu__time_duration.sum","us","3"
"3","nvjet_sm90_tst_192x128","gpu__time_duration.sum","ms","0.25"
"4","void ringsmith::<unnamed>::map_packs<ringsmith::<unnamed>::BinaryOp<9>, ringsmith::bf16>","gpu__time_duration.sum","us","4"
"5","void somebody::elses<int>","gpu__time_duration.sum","us","1000"
"""


def profile(folder):
    """Checks that profile.py divides a step by names and order, and refuses files without a measurement."""
    def told(text):
        (folder / "step.csv").write_text(text)
        return subprocess.run([COMMAND[0].with_name("profile.py"), folder / "step.csv"], capture_output=True, text=True)

    done = told(PROFILE)
    rows = {line[:33].strip(): line[33:].split()[:2] for line in done.stdout.splitlines()[2:]}
    check(done.returncode == 0 and rows == {
        "products, forward": ["1", "1.50"], "products, backward": ["1", "0.25"], "residual, forward": ["1", "0.00"],
        "GELU, backward": ["1", "0.00"], "classifier": ["1", "0.00"], "other": ["1", "1.00"], "sum": ["6", "2.76"]},
        "another division", done.stdout, done.stderr)
    for text in ("", "batch 4\n==ERROR== The application returned an error code (9).\n"):
        done = told(text)
        check(done.returncode == 1 and done.stderr.count("\n") == 1 and "no row of ncu --csv" in done.stderr, "not refused", done)


def main():
    for case in (profile, wrong_options, old_driver, order, complete, budget, failed, without_peers, killed, kept):
        with tempfile.TemporaryDirectory() as folder:
            case(pathlib.Path(folder))
        print(f"{case.__name__}: as it must be")


main()
