"""Folders that only their user may enter, in places where every user may create files.

In a folder such as ``/dev/shm`` another user can create any name first: as a folder of their own,
or as a link to somewhere else. So a folder is opened without following a link, owner and mode are
read from its descriptor, and the files in it are opened relative to that descriptor. A path that
changes meanwhile cannot lead elsewhere.

The parent must be a folder in which no other user can rename or remove this user's entries. If it
were not, another user could put a folder aside while a job uses it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.files.durable_files import write_durably

_FIX = "remove it, or let its owner remove it, and try again"
_ROOT = 0


@contextmanager
def open_folder(folder: Path, create: bool = False) -> Iterator[int]:
    """Open a folder of this user, for the block; the value is a directory descriptor.

    Parameters
    ----------
    create : create the folder with mode 0700, and missing parents, if it does not exist.

    Raises
    ------
    FileNotFoundError : it does not exist and `create` is False.
    ReshapeError : it is a link or a file, belongs to another user, or is open to other users; or
        other users can rename it, because its parent belongs to one of them, or because they can
        write to its parent, which has no sticky bit.
    OSError : it cannot be created or opened.
    """
    with _open_parent(folder.parent, create) as parent:
        if create:
            with suppress(FileExistsError):  # of another process of the job; checked below
                os.mkdir(folder.name, 0o700, dir_fd=parent)
        descriptor = _open_entry(folder, parent)
    try:
        _check(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def own_folder(folder: Path) -> Path:
    """Return the folder that this user has, or may create, in place of one with a known name.

    It is the folder itself unless another user has taken its name. Then it is one with a further
    random part, which this user finds again as long as it exists.
    """
    owner = _owner_of(folder)
    if owner == os.geteuid():
        return folder
    try:
        names = [name for name in os.listdir(folder.parent) if name.startswith(f"{folder.name}-")]
    except OSError:
        return folder
    for name in sorted(names):
        if _owner_of(folder.with_name(name)) == os.geteuid():
            return folder.with_name(name)
    return folder if owner is None else folder.with_name(f"{folder.name}-{os.urandom(8).hex()}")


def _owner_of(path: Path) -> int | None:
    """User who owns an entry of a folder, links not followed; None: there is none."""
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def make_private(folder: Path) -> None:
    """Create a folder for this user alone, or verify an existing one.

    Raises
    ------
    ReshapeError, OSError : see `open_folder`.
    """
    with open_folder(folder, create=True):
        pass


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
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ReshapeError(f"{name} is not a regular file: {_FIX}")
        _check(name, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_file(folder: Path, name: str) -> bytes:
    """Read a file of this user in a folder of this user.

    Raises
    ------
    ReshapeError, OSError : see `open_folder` and `open_file`.
    """
    with (
        open_folder(folder) as directory,
        os.fdopen(open_file(directory, name, os.O_RDONLY), "rb") as file,
    ):
        return file.read()


def write_file(folder: int, name: str, data: bytes) -> None:
    """Write a file of an open folder durably, in one step and after the earlier entries.

    Raises
    ------
    OSError : no room, or no right to write; an earlier file of this name remains.
    """
    os.fsync(folder)
    write_durably(Path(f"/proc/self/fd/{folder}", name), data)


def remove_file(folder: int, name: str) -> None:
    """Remove a file of an open folder, if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _open_parent(parent: Path, create: bool) -> Iterator[int]:
    """Open the parent of a private folder after checking who can rename its entries."""
    if create:
        parent.mkdir(0o700, parents=True, exist_ok=True)
    descriptor = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid not in (_ROOT, os.geteuid()):
            raise ReshapeError(
                f"{parent} belongs to user {status.st_uid}, expected root or user {os.geteuid()}: "
                "choose another place for shared memory"
            )
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            mode = stat.S_IMODE(status.st_mode)
            raise ReshapeError(
                f"{parent} has mode {mode:04o}, expected no write access for group and others, or "
                f"the sticky bit: set it with 'chmod +t {parent}'"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _open_entry(folder: Path, parent: int) -> int:
    """Open a folder below an open parent, without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(folder.name, flags, dir_fd=parent)
    except PermissionError:
        raise ReshapeError(f"{folder} cannot be opened by this user: {_FIX}") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ReshapeError(
                f"{folder} is a symbolic link or a file, expected a folder: {_FIX}"
            ) from None
        raise


def _check(what: Path | str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise ReshapeError(
            f"{what} belongs to user {status.st_uid}, expected user {os.geteuid()}: {_FIX}"
        )
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ReshapeError(
            f"{what} has mode {mode:04o}, expected no rights for group and others: {_FIX}"
        )
