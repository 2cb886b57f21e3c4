"""How a test can end. Each is an exception with a message of one line (reports may follow it); pass is its absence."""


class Verdict(Exception):
    status = "wrong"
    printed = ""  # what the program printed in the run that ended so


class Wrong(Verdict):
    status = "wrong"


class Hang(Verdict):
    """Someone waits for something that will not come: the message has one line a rank, and the cycle."""
    status = "hang"


class Crash(Verdict):
    status = "crash"


class Cheat(Verdict):
    """Not a mistake but an attempt at the grader. One of these, and the whole submission scores zero."""
    status = "cheat"


class NotAttempted(Verdict):
    """The skeleton's call of kit::todo was reached."""
    status = "not attempted"


# What is no failure: a pass, or one with an earlier lab from the course (its points are given up: grading.py).
FINE = ("pass", "given up")


class NotVerified(Verdict):
    """What the test needs (a device, an adapter) is not on this machine. Never a pass."""
    status = "not verified"


class AuthorError(Exception):
    """The lab itself is at fault, not the student."""
