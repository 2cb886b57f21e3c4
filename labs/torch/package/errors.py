"""What goes wrong, by kind. Every message names the rank, the call and the line of the program that made it."""


class Error(RuntimeError):
    """Any error of this backend."""


class UsageError(Error, ValueError):
    """This rank's call cannot be: a tensor, an operation or an option that is refused by name, with the remedy."""


class MismatchError(Error):
    """Two ranks are in different calls; the message names both."""


class PeerLost(Error):
    """Another rank's process has ended, or left the group, while this one needed it."""


class TimeoutError(Error):
    """The group's deadline passed in a wait for another rank."""


class Aborted(Error):
    """The group was ended by abort(), here or on another rank."""


CLASSES = {c.__name__: c for c in (Error, UsageError, MismatchError, PeerLost, TimeoutError, Aborted)}
