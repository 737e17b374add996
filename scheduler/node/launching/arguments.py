"""Check whether the operating system can start a program with given arguments and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reshape.errors import ReshapeError

#: Limits of execve(2), bytes: of one text with its final null character, and of all.
LONGEST_TEXT, MOST_TEXT = 128 << 10, 6 << 20


def check_arguments(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise an error if a program cannot be started (execve(2)).

    Parameters
    ----------
    argv : program and arguments.
    environment : names and values of the environment variables.

    Raises
    ------
    ReshapeError : a text contains a null character, a variable has an invalid name, or there is
        more than the system passes to a program.
    """
    names = "".join(environment)
    text = "".join((*argv, names, *environment.values()))
    if len(text) + len(environment) >= LONGEST_TEXT:
        _check_size(argv, environment)
    is_text = "\0" not in text and (text.isascii() or _is_encodable(text))
    if is_text and "=" not in names and "" not in environment:
        return
    for word in argv:
        _check_text(word, f"the argument {word!r}")
    for name, value in environment.items():
        if not name or "=" in name:
            raise ReshapeError(
                f"the environment variable {name!r} has an invalid name: names are not empty and"
                " contain no '='"
            )
        _check_text(name, f"the name of the environment variable {name!r}")
        _check_text(value, f"the value of the environment variable {name}")


def _check_size(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Check the limits of Linux: an argument, or a variable with its value, and all together."""
    sizes = [*map(len, argv), *(len(n) + 1 + len(value) for n, value in environment.items())]
    if max(sizes, default=0) >= LONGEST_TEXT:
        raise ReshapeError(
            f"an argument or variable has {max(sizes)} characters, and the system passes at most"
            f" {LONGEST_TEXT - 1} to a program: put it into a file"
        )
    if (size := sum(sizes)) > MOST_TEXT:
        raise ReshapeError(
            f"arguments and environment have {size} characters, and the system passes at most"
            f" {MOST_TEXT} to a program: put them into a file"
        )


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise ReshapeError(f"{what} contains a null character: remove it")
    if not _is_encodable(text):
        raise ReshapeError(f"{what} is not UTF-8 text")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
