"""Paths that a job names: where its output may be, and in which folders it may not write.

A service has folders of its own, in which no job may write. In a folder in which all users may
write, such as /tmp, a file or a symbolic link of another user is refused, as the kernel does where
its rules `protected_symlinks` and `protected_regular` are on (proc_sys_fs(5)). They are off in many
containers.

`starter.py` and `tail.py` import this file without its package, so it imports little.
"""

from __future__ import annotations

import errno
import os
import stat

#: Variable that tells a starter and a job the folders of their service, one a line;
#: `reshape.checkpoints.directory` reads it, too.
VARIABLE = "RESHAPE_OWN_FOLDERS"
#: Symbolic links in a row, at most, as in Linux.
MOST_LINKS = 40
#: Places of the kernel, whose files are no files: /proc/self/mem, /proc/self/fd/1.
OF_KERNEL = ("/proc", "/sys")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def folder_around(path: str, folders: Iterable[str]) -> str:
    """Return the folder that contains a path, "" if none of `folders` does.

    Folders are compared by device and inode, after all links. A path that does not exist is
    where it would be created.

    Parameters
    ----------
    folders : those that do not exist on this host are ignored.
    """
    own = {}
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            continue
        own[status.st_dev, status.st_ino] = folder
    here = os.path.realpath(path)
    while own:
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in own:
                return own[status.st_dev, status.st_ino]
        except OSError:
            pass
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    return ""


def folder_with(descriptor: int, folders: Iterable[str]) -> str:
    """Return the folder that has an open file under another name, "" if none has."""
    opened = os.fstat(descriptor)
    if opened.st_nlink < 2 or not stat.S_ISREG(opened.st_mode):
        return ""
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                try:
                    status = os.lstat(os.path.join(where, name))
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino):
                    return folder
    return ""


def in_own_folder(what: str, path: str, folder: str) -> str:
    """Say that a path of a job is refused; `what` names its use."""
    return f"the {what} {path} is in {folder}, a folder of the service: choose another place"


def folder_named(path: str, folders: Iterable[str]) -> str:
    """Return the folder that contains a path by its name, "" if none of `folders` does.

    Links are not followed. A path is in a folder that is the path itself.

    Parameters
    ----------
    folders : absolute and without `..`, as `os.path.normpath` makes them.
    """
    path = os.path.normpath(path)
    for folder in folders:
        if path == folder or path.startswith(folder.rstrip(os.sep) + os.sep):
            return folder
    return ""


def open_output(path: str, flags: int, mode: int, own: list[str]) -> int:
    """Open a regular file or /dev/null; return its descriptor.

    Parameters
    ----------
    flags, mode : as of `os.open`.
    own : folders of the service; a file that is in one of them, also under another name, is
        refused.

    Raises
    ------
    OSError : the file cannot be opened, is something else, or is one of the service or of another
        user.
    """
    refuse_own(folder_around(path, own))
    for _ in range(MOST_LINKS):
        folder, name = os.path.split(path)
        parent = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if is_of_kernel(os.readlink(f"/proc/self/fd/{parent}")):
                raise OSError(errno.EINVAL, "not a regular file")
            descriptor = _open_in(parent, name, flags, mode)
            if descriptor is not None:
                refuse_own(folder_with(descriptor, own))
                return descriptor
            path = os.path.join(folder, os.readlink(name, dir_fd=parent))
        finally:
            os.close(parent)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def is_of_kernel(path: str) -> bool:
    """Whether a path without links names something that the kernel shows as a file."""
    return any(path == place or path.startswith(f"{place}/") for place in OF_KERNEL)


def refuse_own(folder: str) -> None:
    """Raise OSError if a folder is given, one of the service."""
    if folder:
        raise OSError(errno.EPERM, f"it is in {folder}, a folder of the service")


def _open_in(parent: int, name: str, flags: int, mode: int) -> int | None:
    """Open a file of an open folder; None if it is a symbolic link that may be followed."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:  # first, since the message of the kernel does not tell its rule
        _check(os.fstat(parent), status)
        if stat.S_ISLNK(status.st_mode):
            return None
    # Without O_NONBLOCK, opening a named pipe waits for the other end.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, mode, dir_fd=parent)
    try:
        _check(os.fstat(parent), os.fstat(descriptor))
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_null(status: os.stat_result) -> bool:
    """Whether an open file is /dev/null."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev


def _check(folder: os.stat_result, status: os.stat_result) -> None:
    """Refuse what is no file, and what another user has put where all users may write."""
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or is_null(status)):
        is_folder = stat.S_ISDIR(status.st_mode)
        number = errno.EISDIR if is_folder else errno.EINVAL
        raise OSError(number, os.strerror(number) if is_folder else "not a regular file")
    if folder.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), folder.st_uid):
        what = "symbolic link" if stat.S_ISLNK(status.st_mode) else "file"
        raise OSError(
            errno.EACCES,
            f"it is a {what} of user {status.st_uid} in a folder in which all users may write:"
            " choose another place",
        )
