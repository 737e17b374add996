"""Text of users, programs and agents, made fit for terminals, tables and logs."""

from __future__ import annotations

from unicodedata import category

from reshape.errors import ReshapeError

#: Characters of a text that is shown; longer ones are cut.
MOST_SHOWN = 2000
#: Characters of a name, and of a reason.
LONGEST_NAME, LONGEST_REASON = 256, 1000
#: Characters of the indices of tasks where they stand for them, at most.
LONGEST_LABEL = 60


def plain(text: str) -> str:
    r"""Write a text on one line, with what is not printable as in Python: ``\n``, ``\x1b``."""
    return escaped(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")


def escaped(text: str) -> str:
    """Write all of a text as `plain` does."""
    return text if text.isprintable() else "".join(map(_plain, text))


def _plain(character: str) -> str:
    is_shown = character.isprintable() or category(character) == "Zs"  # other widths of blanks
    return character if is_shown else character.encode("unicode_escape").decode()


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8, as a path with other bytes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_length(text: str, what: str, most: int) -> None:
    """Check the number of characters of a text.

    Raises
    ------
    ReshapeError : there are more than `most`.
    """
    if len(text) > most:
        raise ReshapeError(
            f"{what} {plain(text[:40])}... has {len(text)} characters, at most {most} are"
            " accepted: shorten it"
        )


def check_text(text: str, what: str, most: int) -> None:
    """Check that tables and logs can hold a text.

    Parameters
    ----------
    what : names the text in the error.
    most : characters.

    Raises
    ------
    ReshapeError : it is longer, or has a control character.
    """
    check_length(text, what, most)
    if not text.isprintable() and any(category(character) == "Cc" for character in text):
        raise ReshapeError(f"{what} {text!r} holds a control character: leave it out")
