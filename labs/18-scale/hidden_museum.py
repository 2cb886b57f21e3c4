"""The museum of lab 18: simulators with one bug each, as (plan, failures) -> account. hidden.py uses them."""
from labs.course.lab import load_sibling

public = load_sibling(__file__, "public")
WORK, SAVE, RESTART = public.WORK, public.SAVE, public.RESTART


def exhibit(bug=None, most=None, rounded=int):
    """Returns a simulator with the named bug that knows at most `most` failures and rounds its
    sums. The defaults are correct."""
    def overlooked(at, kind, begin, end, saved, last):
        return at < end and (bug == f"overlooked in {public.KINDS[kind]}" or
                             bug == "overlooked in the last stretch" and kind == WORK and last or
                             bug == "overlooked before the first save" and kind == WORK and saved == 0) or \
            bug == "open" and at == begin

    def wrong(plan, failures):
        work, interval, save, restart = plan
        failures = list(failures)[:most]
        sums = dict.fromkeys(public.FIELDS, 0)
        kind, begin, saved, pending = WORK, 0, 0, 0
        used, again = 0, False  # part of the interval used before the last failure; the last phase was a cut restart
        while saved < work or kind != WORK:
            length = min(interval - (used if bug == "timer" else 0), work - saved)
            if kind == WORK and bug == "whole":
                length = interval
            elif kind == SAVE:
                length = save
            elif kind == RESTART:
                length = 0 if bug == "free" and saved == 0 else restart * (2 if bug == "double" and again else 1)
            end = begin + length
            while failures and overlooked(failures[0], kind, begin, end, saved, length == work - saved):
                failures.pop(0)
            if failures and (failures[0] < end or bug == "closed" and failures[0] == end):
                at = failures.pop(0)
                length, again = at - begin, kind == RESTART
                begin = at
                if kind == RESTART and bug == "goes on":
                    begin -= length
                elif kind == RESTART:
                    sums["lost" if bug == "restart lost" else "restarting"] += length
                elif kind == SAVE and bug == "cut and complete":
                    sums["saving"] += length
                elif kind == SAVE:
                    sums["saving" if bug == "save saving" else "lost"] += length
                    sums["useful" if bug == "forgets" else "lost"] += 0 if bug == "keeps" else pending
                elif bug != "resumes":
                    sums["lost"] += length * (2 if bug == "twice" else 1)
                    used = length
                kept = pending if bug in ("cut and complete", "keeps") else length if bug == "resumes" and kind == WORK \
                    else 0
                saved += kept
                sums["useful"] += kept
                if bug == "half":
                    sums["lost"] //= 2
                if bug == "zero":
                    sums["lost"] += saved
                    sums["useful"] -= saved
                    saved = 0
                kind, pending = WORK if bug == "no restart" else RESTART, 0
                continue
            begin = end
            if kind == RESTART:
                sums["restarting"] += length
                kind = WORK
            elif kind == SAVE:
                sums["saving"] += length
                kind, pending = WORK, 0
                saved += length_of_work
                sums["useful"] += length_of_work
            else:
                pending = length_of_work = length
                used = 0
                if saved + length < work or bug == "at the end" or bug == "if it divides" and length == interval:
                    kind = SAVE
                elif bug == "last moment" and failures and failures[0] == end:
                    failures.pop(0)
                    sums["lost"] += length
                    kind = RESTART
                else:
                    saved += length
                    sums["useful"] += length
        return tuple(rounded(sums[field]) for field in public.FIELDS)
    return wrong


def as_float(number):
    """Returns number, truncated to the 24 bits of a float."""
    shift = max(0, number.bit_length() - 24)
    return number >> shift << shift


EXHIBITS = {
    "a failure during a restart is overlooked": exhibit("overlooked in restart"),
    "a failure during a restart does not start it again": exhibit("goes on"),
    "a failure during a restart makes the next one twice as long": exhibit("double"),
    "a failure during a save is overlooked": exhibit("overlooked in save"),
    "a save that was cut is complete": exhibit("cut and complete"),
    "a save that was cut keeps its work": exhibit("keeps"),
    "a save that was cut counts as saving": exhibit("save saving"),
    "work before a cut save counts as useful as well": exhibit("forgets"),
    "work continues where it was cut": exhibit("resumes"),
    "half of the lost work is lost": exhibit("half"),
    "lost work counts twice": exhibit("twice"),
    "the job begins at zero after a failure": exhibit("zero"),
    "a save at the end": exhibit("at the end"),
    "a save at the end if the interval divides the work": exhibit("if it divides"),
    "whole intervals only": exhibit("whole"),
    "the timer of saves continues across a failure": exhibit("timer"),
    "a phase that ends when a failure occurs is cut": exhibit("closed"),
    "a phase that begins when a failure occurs is spared": exhibit("open"),
    "failures in the last stretch are overlooked": exhibit("overlooked in the last stretch"),
    "failures before the first save are overlooked": exhibit("overlooked before the first save"),
    "no restart is paid before the first save": exhibit("free"),
    "a cut restart is lost, not restarting": exhibit("restart lost"),
    "a failure at the job's last moment counts": exhibit("last moment"),
    "no more than three failures": exhibit(most=3),
    "restarts take no time": exhibit("no restart"),
    "32 bits": exhibit(rounded=lambda n: (n + (1 << 31)) % (1 << 32) - (1 << 31)),
    "floats": exhibit(rounded=as_float),
    "doubles": exhibit(rounded=lambda n: int(float(n))),
}
