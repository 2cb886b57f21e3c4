"""Runs a driver once: a process in a separate session, with a deadline, limits, an empty folder and fresh names.

The deadline is one of granted time (granted.py), so that a busy machine turns no slow run into a hang. When it has
passed, the judge writes to a third pipe, the alarm, and the driver answers with the state of every rank.

The request is sent through one pipe and the answer returns through another, framed with a nonce that is unique to this
run. Student code that prints, exits, or writes into that pipe does not produce an answer. Writing into the pipe, or
exiting with status 0 without an answer, is reported as a cheat.
"""
import dataclasses
import os
import pathlib
import secrets
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

from labs.course import record, sandbox
from labs.course.granted import Granted
from labs.course.lab import PATIENCE
from labs.course.verdicts import Cheat, Crash, Hang, NotAttempted, NotVerified, Verdict, Wrong

MOST_OUTPUT = 1 << 16       # bytes kept of a program's output
MOST_ANSWER = 256 << 20     # maximum number of bytes of an answer
GRACE = 1.5                 # seconds of granted time from the alarm, at which the driver reports the hang, to its end
LONGEST = 600 * PATIENCE    # seconds by the wall clock, after which a run ends on any machine


@dataclasses.dataclass
class Reply:
    values: dict | None     # the answer; None if there is none
    junk: bytes             # all other bytes on the channel
    returncode: int | None  # None: killed at the deadline
    printed: str
    seconds: float          # by the wall clock
    granted: float          # those that the machine gave to the run


def _frame(data, nonce):
    """Returns (values, bytes that do not belong to the answer)."""
    head = f"LABS {nonce} ".encode()
    at = data.find(head)
    if at < 0:
        return None, data
    line = data.find(b"\n", at)
    digits = data[at + len(head):line]
    if line < 0 or not digits.isdigit() or len(digits) > 12:
        return None, data
    body = data[line + 1:line + 1 + int(digits)]
    try:
        values = record.decode(body)
    except record.Torn:
        return None, data
    if len(body) < int(digits) or not all(isinstance(values.get(f"kit.{n}"), str) for n in ("status", "message")):
        return None, data
    return values, data[:at] + data[line + 1 + len(body):]


def _exchange(process, pidfd, request, to_driver, from_driver, alarm, deadline):
    """Sends the request and collects all output until the process ends or the deadline passes. Returns the output,
    whether the process has ended, and the granted time."""
    got = {"answer": bytearray(), "out": bytearray()}
    with selectors.DefaultSelector() as selector:
        pending = memoryview(request)
        os.set_blocking(to_driver, False)
        selector.register(to_driver, selectors.EVENT_WRITE, "request")
        selector.register(from_driver, selectors.EVENT_READ, "answer")
        selector.register(process.stdout, selectors.EVENT_READ, "out")
        selector.register(pidfd, selectors.EVENT_READ, "end")
        ended, warned, clock, last = False, False, Granted(process.pid), time.monotonic() + LONGEST
        while (ended or clock.seconds < deadline + GRACE) and time.monotonic() < last:
            ready = selector.select(0 if ended else clock.left())
            if ended and not ready:
                break
            for key, _ in ready:
                clock.exchanged()
                if key.data == "request":
                    try:
                        pending = pending[os.write(to_driver, pending[:1 << 16]):]
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        selector.unregister(to_driver)
                        os.close(to_driver)
                elif key.data == "end":
                    ended = True
                    selector.unregister(pidfd)
                    _kill(process.pid)  # children that outlive the driver would keep the pipes open
                else:
                    piece = os.read(key.fd, 1 << 18)
                    if not piece:
                        selector.unregister(key.fileobj)
                    room = (MOST_ANSWER if key.data == "answer" else MOST_OUTPUT) - len(got[key.data])
                    got[key.data] += piece[:max(room, 0)]
            clock.sample()
            if not warned and clock.seconds >= deadline:
                os.write(alarm, b"!")
                warned = True
        if to_driver in [key.fd for key in selector.get_map().values()]:
            os.close(to_driver)
    return got, ended, clock.end()


def _kill(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _folder():
    """Creates a folder for one run, and removes the folders of killed judges."""
    place = pathlib.Path(tempfile.gettempdir())
    sandbox.sweep(place, "lab")
    return pathlib.Path(tempfile.mkdtemp(prefix=f"lab-{os.getpid()}-"))


def run(driver, scenario, values, limits):
    nonce = secrets.token_hex(16)
    request = record.encode({**values, "scenario": scenario, "kit.nonce": nonce,
                             "kit.deadline": float(limits["deadline"])})
    jail = sandbox.here()
    folder = None if jail.private else _folder()
    memory, data, file_size = int(limits["memory_mib"]) << 20, None, 64 << 20
    if limits.get("vgpu"):  # it reserves a tebibyte of addresses and of a file per device: limit only the memory in use
        memory, data, file_size = 16 << 40, memory, 1 << 40
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    alarm_read, alarm_write = os.pipe()
    begun = time.monotonic()
    try:
        process = subprocess.Popen(
            jail.program(driver, [str(in_read), str(out_write), str(alarm_read)], folder, memory, data, file_size),
            pass_fds=(in_read, out_write, alarm_read), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=folder or "/", start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder or "/tmp"), "LAB_NAME": "lab-" + nonce[:12],
                 "VGPU_GUARD": "pages",  # detects a student's stray accesses on processors without protection keys
                 **{k: v for k, v in os.environ.items() if k.startswith("VGPU_")}})
        os.close(in_read)
        os.close(out_write)
        pidfd = os.pidfd_open(process.pid)
        got, ended, granted = _exchange(process, pidfd, request, in_write, out_read, alarm_write, limits["deadline"])
        os.close(pidfd)
        _kill(process.pid)  # before the process is reaped, which frees its number for another process
        process.wait()
        process.stdout.close()
    finally:
        for end in (out_read, alarm_read, alarm_write):
            os.close(end)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    answer, junk = _frame(bytes(got["answer"]), nonce)
    if answer is None and junk.startswith(f"LABS {nonce} ".encode()):
        junk = b""  # the deadline or a crash cut off the answer, which is not a cheat
    return Reply(answer, junk, jail.ended(process.returncode) if ended else None, got["out"].decode(errors="replace"),
                 time.monotonic() - begun, granted)


def observe(driver, scenario, values, limits):
    """Returns the observations of one run, or raises the verdict that ends the test."""
    reply = run(driver, scenario, values, limits)
    try:
        return {**_judge(reply), "kit.granted": reply.granted}
    except Verdict as verdict:
        verdict.printed, verdict.granted = reply.printed, reply.granted
        raise


def _judge(reply):
    printed = "\n" + reply.printed.strip() if reply.printed.strip() else ""
    if reply.junk.strip(b"\0"):
        raise Cheat(f"{len(reply.junk)} bytes on the judge's channel are not an answer: {reply.junk[:40]!r}")
    answer = reply.values
    if answer is None:
        if reply.returncode is None:
            busy = "" if reply.seconds < LONGEST else f" (of {reply.seconds:.0f} s: is this machine overloaded?)"
            raise Hang(f"no answer after {reply.granted:.1f} s{busy}, and no rank has reported its state{printed}")
        if reply.returncode < 0:
            raise Crash(f"killed by {signal.Signals(-reply.returncode).name}{printed}")
        if reply.returncode == 0:
            raise Cheat("the program ended with status 0 without an answer to the judge")
        raise Crash(f"the program ended with status {reply.returncode} without an answer{printed}")
    status, message = answer.pop("kit.status"), answer.pop("kit.message")
    if status == "hang":
        raise Hang(message)
    if status == "not attempted":
        raise NotAttempted(message)
    if status == "not verified":
        raise NotVerified(message)
    if status == "misuse":
        raise Wrong(message)
    if status == "threw":
        raise Crash(message + printed)
    if reply.returncode is None or reply.returncode != 0:
        raise Crash(f"it answered, and then failed (status {reply.returncode}){printed}")
    answer["kit.printed"] = reply.printed
    return answer
