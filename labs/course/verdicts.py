"""The verdicts of a test. Each is an exception with a one-line message, which a report may follow; a test that passes
raises none."""


class Verdict(Exception):
    status = "wrong"
    printed = ""   # the program's output in the run that ended with this verdict
    granted = 0.0  # seconds that the machine gave to that run (granted.py)


class Wrong(Verdict):
    status = "wrong"


class Hang(Verdict):
    """A rank waits for something that will never happen. The message has one line per rank, and the
    cycle."""
    status = "hang"


class Crash(Verdict):
    status = "crash"


class Cheat(Verdict):
    """An attempt to deceive the grader, not a mistake. A single cheat makes the whole
    submission score zero."""
    status = "cheat"


class NotAttempted(Verdict):
    """The student's code reached a call of kit::todo that the skeleton contains."""
    status = "not attempted"


# Statuses that are not failures. "given up": the test passed, but with the course's solution of an earlier lab, so its
# points are withheld.
FINE = ("pass", "given up")


class NotVerified(Verdict):
    """The test needs a device or an adapter that this machine does not have. It never counts as a pass."""
    status = "not verified"


class AuthorError(Exception):
    """A fault of the lab or of the command, not of the student's code."""


class Refused(AuthorError):
    """A file of a submission is missing, or is not read: it is not a regular file, or too large. Zero points; the
    message is one line."""
    status = "refused"
