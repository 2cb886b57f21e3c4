"""Hidden tests of lab 11: full queues, late receivers, both directions simultaneously, faults,
leaks."""
import socket

from labs.course.testing import expect, lab_test

HIDDEN_SEED = 90142863


def clean(seen):
    expect.that(not seen["trouble"], f"the device: {seen['trouble'].splitlines()[0] if seen['trouble'] else ''}", seen)
    expect.that(not seen["live"], f"not released: {seen['live']}", seen)


def talk(lab, puts, both=0, **how):
    base = how.pop("base", lab.random.randrange(1 << 32))
    seen = lab.run("talk", puts=puts, both=both, base=base, **how)
    want = [(base + m) % (1 << 32) for m in range(puts)]
    for rank in ((0, 1) if both else (1,)):
        got = list(seen[f"values.{rank}"])
        wrong = next((m for m in range(puts) if got[m] != want[m]), None)
        expect.that(wrong is None, f"value {wrong} that rank {rank} polled is not value {wrong} that was put", seen)
        expect.equal(f"bytes on rank {rank} that were not there when their value was", seen[f"wrong.{rank}"], 0, seen)
    expect.equal("bytes that were not there after flush()", seen["missing_after_flush"], 0, seen)
    expect.equal("bytes written past the inbox, or values that were never put", seen["beyond"], 0, seen)
    clean(seen)
    return seen


@lab_test
def full_queue(lab):
    """Many more puts than the send queue has entries; few completions are requested."""
    for sends, receives, puts in [(2, 4, 7), (4, 16, 100), (16, 4, 100), (16, 16, 257), (5, 3, 61)]:
        seen = talk(lab, puts, sends=sends, receives=receives, bytes=16)
        allowed = puts // (sends // 2) + 2
        expect.at_most("completions of sends", seen["send_completions"], allowed, "completions", seen)
        expect.at_most("requests at a time", seen["most_outstanding"], sends, "requests", seen)
        expect.that(seen["most_outstanding"] >= min(2, puts), "never more than one request in flight: every put waits",
                    seen)


@lab_test
def not_ready(lab):
    """put waits for a receiver that is busy elsewhere for long."""
    for receives, pause in [(2, 300), (1, 500), (8, 900)]:
        talk(lab, 40, receives=receives, sends=8, bytes=8, pause=pause)


@lab_test
def duplex(lab):
    """Both ends put simultaneously, more than their queues hold, and look for arrivals only
    afterwards."""
    for sends, receives, puts in [(4, 4, 40), (16, 2, 100), (2, 1, 30), (8, 16, 200)]:
        talk(lab, puts, both=1, sends=sends, receives=receives, bytes=8)


@lab_test
def order(lab):
    """The value is in network byte order on the wire; a put of no bytes is announced, too."""
    seen = talk(lab, 3, bytes=8)
    first = seen["values.1"][0]
    want = [socket.htonl((first + m) % (1 << 32)) for m in range(3)]
    expect.equal("the immediate values on the wire", [v & 0xFFFFFFFF for v in seen["immediates"]], want, seen)
    talk(lab, 5, bytes=0)
    talk(lab, 5, bytes=0, both=1)  # at the end of an inbox of no bytes
    talk(lab, 5, bytes=8, base=(1 << 32) - 3)  # 0 is a value, too
    talk(lab, 70, bytes=24, sends=3, receives=7, gid_index=0)


@lab_test
def faults(lab):
    """A wrong key or address, a peer that has left or never answers: an error that says which,
    every time."""
    for fault, words in [("key", "remote access error"), ("address", "remote access error"),
                         ("gone", "retry counter exceeded"), ("route", "retry counter exceeded"),
                         ("packet", "retry counter exceeded")]:
        for puts, sends in ((1, 8), (3, 8), (40, 8), (40, 32)):
            seen = lab.run("faulty", fault=fault, puts=puts, sends=sends, receives=8, bytes=8)
            for which in ("first", "second"):
                expect.that(seen[which], f"puts and flush, the {which} time: no exception, although nothing arrived",
                            seen)
            expect.that(seen["third"], "a put after requests have failed: no exception", seen)
            expect.that(seen["fourth"], "a flush after requests have failed, without a put: no exception", seen)
            expect.that(words in seen["first"],
                        f"the exception says {seen['first']!r}; the first failure is {words!r}", seen)
            if words == "remote access error":  # in this case, the device flushes the requests at both ends
                expect.that(seen["polled"], "poll() of the peer, whose receive requests have failed: no exception", seen)
            expect.equal("completions of failed requests that were left in the queue", seen["unread"], 0, seen)
            clean(seen)
        seen = lab.run("faulty", fault=fault, puts=40, sends=32, receives=8, bytes=8, once=1)
        expect.that(words in seen["first"], f"the exception says {seen['first']!r}; the first failure is {words!r}", seen)
        expect.equal("completions left in the queue when the exception was thrown", seen["unread"], 0, seen)


@lab_test
def leaks(lab):
    """In every case, all objects are released, in an order that the device accepts."""
    clean(lab.run("objects", times=5))
    for fault in ("key", "gone"):
        clean(lab.run("faulty", fault=fault, puts=20, sends=4, receives=4, bytes=8))


@lab_test
def outside(lab):
    """Bytes outside the outbox or the peer's inbox: put or flush throws, and nothing is written."""
    size, far = 4 * 64, (1 << 64) - 8
    for at, to, length in [(size, 0, 1), (0, size + 8, 1), (size - 7, 0, 8), (0, size + 1, 8), (0, 0, size + 1),
                           (0, 0, (1 << 32) + 8), (1 << 40, 0, 8), (0, 1 << 40, 8), (far, 0, 16), (0, far, 16)]:
        case = {"from": at, "to": to, "length": length}
        case = {name: value - (1 << 64) if value >> 63 else value for name, value in case.items()}  # as an int64
        seen = lab.run("faulty", fault="outside", puts=4, bytes=64, **case)
        expect.that(seen["first"], f"put of {length} bytes from {at} to {to}, with {size} bytes in the outbox and "
                    f"{size + 8} in the inbox: no exception", seen)
        expect.equal("bytes that were written", seen["written"], 0, seen)
    # The peer's inbox is 8 bytes longer than rank 0's: its last 8 bytes are inside.
    seen = lab.run("faulty", fault="outside", puts=4, bytes=64, **{"from": 0, "to": size, "length": 8})
    expect.equal("the exception of a put into the last 8 bytes of the peer's inbox", seen["first"], "", seen)
    expect.equal("bytes that were written at the end of the peer's inbox", seen["written"], 8, seen)


@lab_test
def half_way(lab):
    """An object that cannot be created, a missing GID, a second connect: an exception, and all
    objects are released."""
    cases = [("object", kind, after) for kind, after in
             [("context", 0), ("protection domain", 0), ("memory region", 0), ("memory region", 1),
              ("completion queue", 0), ("queue pair", 0), ("state", 0), ("state", 1), ("state", 2),
              ("poll", 0)]]
    for what, kind, after in cases + [("gid", "GID 5", 0), ("twice", "second connect", 0)]:
        seen = lab.run("refused", what=what, kind=kind, after=after)
        expect.that(seen["error"] != "nothing", f"the device refused a {kind}: no std::runtime_error", seen)
        expect.that(not seen["live"], f"the device refused a {kind}; not released: {seen['live']}", seen)
    for missing in ("sim", "sim00", "", "SIM0"):
        seen = lab.run("objects", times=1, missing=missing, device="other0")
        expect.that(seen["error"], f"there is no device {missing!r}: no std::runtime_error", seen)
        expect.equal("the device that was opened", seen["opened"], "other0", seen)
        clean(seen)
