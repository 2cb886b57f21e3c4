"""Reads the files of a submission, which may be hostile: only regular files, only in the submission's folder,
never through a link. Also makes text from a submission safe to print on a terminal or in a report.
"""
import os
import pathlib
import stat

from labs.course.verdicts import AuthorError, Refused

MOST = 1 << 20  # bytes of one file; the largest solution has 20 KB
KINDS = [(stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
         (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device")]


def _escaped(character):
    if "\udc80" <= character <= "\udcff":  # a byte of a name that is not UTF-8
        return f"\\x{ord(character) - 0xdc00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode()


def printable(text, keep=""):
    """Returns the text with unprintable characters escaped: control characters, including terminal escape sequences and
    right-to-left marks, and bytes that are not UTF-8. keep: characters to leave as they are."""
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in str(text))


def printable_lines(text):
    """The same for a text of several lines."""
    return printable(text, keep="\n\t")


def _kind(mode):
    return next((name for test, name in KINDS if test(mode)), "a file")


def _require_folder(folder, foreign):
    """Raises Refused if the path is not a folder. A foreign folder must not be a link, and a relative path to it must
    not contain one: the author of the submission may have made the link."""
    steps = [folder] if folder.is_absolute() or not foreign else [*reversed(folder.parents), folder]
    for step in steps:
        mode = os.stat(step, follow_symlinks=not foreign).st_mode
        if not stat.S_ISDIR(mode):
            raise Refused(f"{printable(step)} is {_kind(mode)}, not the folder of a submission")


def _text(at, name, where, foreign):
    """Returns the text of the file `name` in the open folder `at`."""
    before = os.stat(name, dir_fd=at, follow_symlinks=False)
    if not stat.S_ISREG(before.st_mode):
        raise Refused(f"{where} is {_kind(before.st_mode)}, not a regular file")
    if foreign and before.st_nlink > 1:
        raise Refused(f"{where} is a hard link: the same file has another name, perhaps in another submission")
    # O_NONBLOCK and the second check: the file may be replaced in the meantime.
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=at)
    with open(handle, errors="replace", encoding="utf-8") as file:
        now = os.fstat(handle)
        if (now.st_dev, now.st_ino, now.st_mode) != (before.st_dev, before.st_ino, before.st_mode):
            raise Refused(f"{where} was replaced while it was read")
        if now.st_size > MOST:
            raise Refused(f"{where} has {now.st_size} bytes; at most {MOST} are read")
        text = file.read(MOST + 1)
        if len(text) > MOST:  # the file has grown since the check
            raise Refused(f"{where} has more than {MOST} bytes")
        return text


def read_files(folder, names, foreign=False):
    """Returns {name: text} of files in a folder. foreign: true if another person made the folder. Raises Refused with
    one line if a file is missing, not a regular file, too large or unreadable, and AuthorError if there is no such
    folder."""
    folder, found = pathlib.Path(folder), {}
    try:
        _require_folder(folder, foreign)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise AuthorError(f"{printable(folder)} does not exist") from None
    except (OSError, ValueError) as error:
        raise AuthorError(f"{printable(folder)} cannot be opened: {getattr(error, 'strerror', error)}") from None
    try:
        for name in names:
            where = printable(folder / name)
            try:
                found[name] = _text(at, name, where, foreign)
            except FileNotFoundError:
                raise Refused(f"{where} does not exist") from None
            except OSError as error:
                raise Refused(f"{where} cannot be read: {error.strerror}") from None
    finally:
        os.close(at)
    return found
