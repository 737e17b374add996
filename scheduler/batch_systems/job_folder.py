"""The folder of a batch job that is recorded, which the nodes share.

========================  =======================================================================
file                      contents
========================  =======================================================================
``script``                the script of the request
``attempts``              number of attempts and name of the batch system, written before the last
                          attempt is submitted
``attempt-N``             script of attempt N, if the batch system does not keep scripts itself
``begun-N``               mark of attempt N: Unix time and id; "given up" in place of the id
``id``                    id of the batch job, once it is known
``ended``                 Unix time and exit code
``.lock``                 held while a client submits, settles or removes
========================  =======================================================================

PSI/J has its own files there, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape.files.durable_files import write_durably

#: Names of batch jobs, and so of folders.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,199}")
GIVEN_UP = "given up"


@dataclass(frozen=True)
class FolderContents:
    """What the folder of a batch job says.

    Parameters
    ----------
    attempts : number of attempts; 0: there is no such folder, or nothing was submitted.
    system : name of the batch system.
    id : of the batch job if it is known, or the latest attempt has begun; else empty.
    is_settled : whether the folder alone tells that no attempt runs or begins: nothing was
        submitted, the latest attempt was given up, or the batch job has noted its exit code.
    """

    attempts: int
    system: str
    id: str
    is_settled: bool


def read_contents(folder: Path) -> FolderContents:
    """Read a folder without changing it; there may be none."""
    attempts, _, system = read_note(folder / "attempts").partition(" ")
    begun = read_note(folder / f"begun-{attempts}").partition(" ")[2]
    known = read_note(folder / "id") or ("" if begun == GIVEN_UP else begun)
    is_settled = not attempts or begun == GIVEN_UP or bool(read_note(folder / "ended"))
    return FolderContents(int(attempts or 0), system, known, is_settled)


def attempts_of(folder: Path) -> int:
    """Count the attempts of a batch job."""
    return int(read_note(folder / "attempts").partition(" ")[0] or 0)


def read_note(path: Path) -> str:
    """Read a small file; "" if there is none."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def write_note(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a small file durably, in one step."""
    write_durably(path, f"{text}\n".encode(), mode)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and hold its lock.

    Raises
    ------
    OSError : the folder cannot be written.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path) -> int:
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        except FileNotFoundError:  # the folder was removed meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (folder / ".lock").stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # of a folder that was removed while this process waited for the lock
