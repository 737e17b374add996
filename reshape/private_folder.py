"""Folders that only their user may enter, in places where every user may create files.

In a folder such as ``/dev/shm`` another user can create any name first: as a folder of their own,
or as a link to somewhere else. So a folder is opened without following a link, owner and mode are
read from its descriptor, and the files in it are opened relative to that descriptor. A path that
changes meanwhile cannot lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reshape.errors import ReshapeError

_MEND = "remove it, or let its owner remove it, and submit the job again"


@contextmanager
def open_folder(folder: Path, create: bool = False) -> Iterator[int]:
    """Open a folder of this user, for the block; the value is a directory descriptor.

    Parameters
    ----------
    create : create the folder with mode 0700, and missing parents, if it does not exist.

    Raises
    ------
    FileNotFoundError : it does not exist and `create` is False.
    ReshapeError : it is a link or a file, belongs to another user, or is open to other users.
    OSError : it cannot be created or opened.
    """
    if create:
        _create(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        raise ReshapeError(f"{folder} cannot be opened by this user: {_MEND}") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ReshapeError(
                f"{folder} is a symbolic link or a file, expected a folder: {_MEND}"
            ) from None
        raise
    try:
        _check(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(folder: int, name: str, flags: int) -> int:
    """Open a file of this user in an open folder; the caller closes the descriptor.

    Parameters
    ----------
    folder : descriptor of `open_folder`.
    flags : as of `os.open`; a new file gets mode 0600.

    Raises
    ------
    ReshapeError : it is not a regular file, belongs to another user, or is open to other users.
    OSError : it cannot be opened; a symbolic link counts as such.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block here
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ReshapeError(f"{name} is not a regular file: {_MEND}")
        _check(name, found)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_file(folder: int, name: str) -> None:
    """Remove a file of an open folder, if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _create(folder: Path) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass  # of another process of the job; its owner is checked when it is opened
    except FileNotFoundError:
        _create(folder.parent)
        _create(folder)


def _check(what: Path | str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise ReshapeError(
            f"{what} belongs to user {found.st_uid}, expected user {os.geteuid()}: {_MEND}"
        )
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ReshapeError(
            f"{what} has mode {mode:04o}, expected no rights for group and others: {_MEND}"
        )
