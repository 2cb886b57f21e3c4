"""Checks the spelling of lessons and decks with codespell. words.txt lists words that codespell rejects
but that are right here, and dictionary.txt the one spelling of words that have two."""
import pathlib
import shutil
import subprocess

WORDS = pathlib.Path(__file__).with_name("words.txt")
DICTIONARY = WORDS.with_name("dictionary.txt")


def check(paths):
    """Returns the faults, or None if codespell is not installed: not checked is not passed."""
    if shutil.which("codespell") is None:
        return None
    out = subprocess.run(["codespell", "--ignore-words", str(WORDS), "-D", "-", "-D", str(DICTIONARY), *map(str, paths)], capture_output=True, text=True)
    return [line.strip() for line in out.stdout.splitlines() if "==>" in line] + \
           [f"codespell: {line}" for line in out.stderr.splitlines() if line.strip()]
