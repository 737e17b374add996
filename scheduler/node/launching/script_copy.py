"""The copy of a job script that a job runs: how large it may be, and where it is.

A script is copied at its submission. The agent that starts it writes the copy into the folder of
the job in shared memory, for the owner of the service alone; it is removed with that folder. The
interpreter that the first line names runs the copy, as the system would (execve(2)), also where
files in shared memory are not executable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from reshape.errors import ReshapeError

#: Bytes of a script, at most: the default of Slurm (max_script_size in slurm.conf(5)).
MOST_BYTES = 4 << 20
_NAME = "script"


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
