"""The kinds of errors. Errors of a collective between ranks name the ranks, the call and the program's line, if known."""


class Error(RuntimeError):
    """Any error of this backend."""


class UsageError(Error, ValueError):
    """This rank's call is invalid; the message names the rejected tensor, operation or option, and the remedy."""


class MismatchError(Error):
    """Two ranks made different calls; the message names both."""


class PeerLost(Error):
    """Another rank's process has ended, or left the group, while this rank needed it."""


class TimeoutError(Error):
    """The deadline of the group or of wait() passed while this rank waited for another rank."""


class Aborted(Error):
    """The group was aborted by abort(), here or on another rank."""


CLASSES = {c.__name__: c for c in (Error, UsageError, MismatchError, PeerLost, TimeoutError, Aborted)}
