"""The command of a job: whether the system can start it, and the copy of a job script.

A script is copied at its submission. The agent that starts it writes the copy into the folder of
the job in shared memory, for the owner of the service alone; it is removed with that folder. The
interpreter that the first line names runs the copy, as the system would (execve(2)), also where
files in shared memory are not executable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from reshape.errors import ReshapeError
from scheduler.text.plain import is_utf8

#: Limits of execve(2), bytes: of one text with its final null character, and of all.
LONGEST_TEXT, MOST_TEXT = 128 << 10, 6 << 20
#: Bytes of a script, at most: the default of Slurm (max_script_size in slurm.conf(5)).
MOST_BYTES = 4 << 20
_NAME = "script"


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
    is_text = "\0" not in text and (text.isascii() or is_utf8(text))
    if is_text and "=" not in names and "" not in environment:
        return
    for word in argv:
        check_sendable(word, f"the argument {word!r}")
    for name, value in environment.items():
        if not name or "=" in name:
            raise ReshapeError(
                f"the environment variable {name!r} has an invalid name: names are not empty and"
                " contain no '='"
            )
        check_sendable(name, f"the name of the environment variable {name!r}")
        check_sendable(value, f"the value of the environment variable {name}")


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


def check_sendable(text: str, what: str) -> None:
    """Check that messages and programs can have a text.

    Parameters
    ----------
    what : names the text in the error.

    Raises
    ------
    ReshapeError : it contains a null character, or is not UTF-8 text.
    """
    if "\0" in text:
        raise ReshapeError(f"{what} contains a null character: remove it")
    if not is_utf8(text):
        raise ReshapeError(f"{what} is not UTF-8 text")


def check_script(text: str, where: str) -> None:
    """Check that a text can be a job script.

    Parameters
    ----------
    where : name of the script, for messages.

    Raises
    ------
    ReshapeError : it names no interpreter, is too large, or has a null character.
    """
    check_size(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")), where)
    if not interpreter_of(text):
        raise ReshapeError(f"{where} does not begin with an interpreter: write #!/bin/bash first")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ReshapeError(f"{where}:{line}: a script is a text without null characters")


def check_size(size: int, where: str) -> None:
    """Check the size of a script, bytes; parameters and errors are those of `check_script`."""
    if size > MOST_BYTES:
        raise ReshapeError(
            f"{where} has {size} bytes, and a script has at most {MOST_BYTES}: put data and further"
            " programs into files of their own"
        )


def interpreter_of(text: str) -> list[str]:
    """Interpreter that the first line of a script names, with its one argument; else nothing."""
    first = text.split("\n", 1)[0]
    return first[2:].split(None, 1) if first.startswith("#!") else []


def command_of_copy(folder: Path, text: str, arguments: Sequence[str]) -> list[str]:
    """Write the copy of a script; return the command that runs it.

    Parameters
    ----------
    folder : that of the job in shared memory.
    arguments : of the script.

    Raises
    ------
    OSError : the copy cannot be written.
    """
    path = folder / _NAME
    path.unlink(missing_ok=True)  # of an earlier start, which may still read it
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return [*interpreter_of(text), str(path), *arguments]
