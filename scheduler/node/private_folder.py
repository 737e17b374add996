"""Folders in directories that all users can write to, such as /dev/shm and /tmp."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from reshape.errors import ReshapeError


def make_private(path: Path) -> None:
    """Create a folder for this user alone, or verify an existing one.

    Another user may have created the folder, or a symbolic link, in advance. Owner and mode are
    therefore read through a descriptor of the folder itself.

    Raises
    ------
    ReshapeError : the path is no folder of this user, or other users have access to it.
    OSError : the folder cannot be created.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        is_new = False
    else:
        is_new = True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        is_other = error.errno in (errno.ENOTDIR, errno.ELOOP)
        fault = "is not a folder" if is_other else f"cannot be opened ({error.strerror})"
        raise _refusal(path, fault) from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise _refusal(path, f"belongs to the user with number {found.st_uid}")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077 and not is_new:
            raise _refusal(path, f"has mode {mode:04o}, which gives other users access")
        if mode != 0o700:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _refusal(path: Path, fault: str) -> ReshapeError:
    return ReshapeError(f"{path} {fault}: remove it, or use a new service directory")
