"""Public tests of lab 11, which a student runs at every save."""
from labs.course.testing import expect, lab_test


@lab_test
def objects(lab):
    """Tasks 1 and 6: an endpoint is created and destroyed, three times; a device that does not
    exist is named."""
    seen = lab.run("objects", times=3)
    expect.that(not seen["trouble"], f"the device: {(seen['trouble'] or ' ').splitlines()[0]}", seen)
    expect.that(not seen["live"], f"not released: {seen['live']}", seen)
    expect.equal("address().inbox_bytes", seen["inbox_bytes"], 4096, seen)
    expect.that(seen["inbox_right"], "address().inbox is not where the inbox is", seen)
    expect.that(0 <= seen["first_packet"] < 1 << 24,
                f"the first packet's number has 24 bits, not {seen['first_packet']:#x}", seen)
    expect.equal("the last byte of address().gid", seen["gid"], 1, seen)
    expect.that("nosuch7" in seen["error"], f"no std::runtime_error that names the device nosuch7: {seen['error']!r}",
                seen)
    expect.equal("the device that was opened", seen["opened"], "sim0", seen)
    expect.equal("the bytes of the two memory regions of one endpoint", sorted(seen["region_bytes"][:2]), [512, 4096],
                 seen)
    remote = [access & 6 for access in seen["rights"]]
    expect.equal("what the peer may do with the memory regions of one endpoint (2: write)", sorted(remote[:2]), [0, 2],
                 seen)


@lab_test
def connects(lab):
    """Task 2: RESET, INIT, RTR, RTS, with the attributes that each step needs; the device refuses
    nothing."""
    for index, receives in ((1, 16), (0, 3)):
        seen = lab.run("talk", puts=0, bytes=8, gid_index=index, receives=receives)
        expect.that(not seen["trouble"], f"the device: {(seen['trouble'] or ' ').splitlines()[0]}", seen)
        for rank in (0, 1):
            names = {"path_mtu (3: 1024 bytes)": 3, "hop_limit": 64, "sgid_index": index, "min_rnr_timer": 12,
                     "timeout": 18, "retry_cnt": 7, "rnr_retry (7: without end)": 7,
                     "qp_access_flags (2: the peer may write)": 2,
                     "number of receive requests that were posted": receives}
            expect.that(f"attributes.{rank}" in seen, f"rank {rank}'s queue pair never reached RTS", seen)
            for (name, want), got in zip(names.items(), seen[f"attributes.{rank}"]):
                if name.startswith("qp_access"):
                    got &= 6  # the right to write locally is not the peer's
                expect.equal(f"in RTS, rank {rank}'s {name}", got, want, seen)


@lab_test
def one(lab):
    """Tasks 3 to 5: one put; its bytes are present when its value arrives, and after flush."""
    for index, size in ((1, 1), (0, 8), (1, 64), (1, 5000), (1, 70_000)):
        seen = lab.run("talk", puts=1, bytes=size, gid_index=index)
        expect.equal("the values that poll() gave", list(seen["values.1"]), [0x01020304], seen)
        expect.equal("bytes that were not there when their value was", seen["wrong.1"], 0, seen)
        expect.equal("bytes that were not there after flush()", seen["missing_after_flush"], 0, seen)
        expect.that(not seen["trouble"], f"the device: {(seen['trouble'] or ' ').splitlines()[0]}", seen)
