"""Open the output file of a job, under whose name another user may have put something else.

In a folder in which all users may write, such as /tmp, a file or a symbolic link of another user is
refused, as the kernel does where its rules `protected_symlinks` and `protected_regular` are on
(proc_sys_fs(5)). They are off in many containers.

`starter.py` and `tail.py` import this file without its package.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from scheduler.node.launching import own_folders
else:  # the package is not on the path of an isolated interpreter
    sys.path.append(os.path.dirname(__file__))
    import own_folders

#: Symbolic links in a row, at most, as in Linux.
MOST_LINKS = 40
#: Places of the kernel, whose files are no files: /proc/self/mem, /proc/self/fd/1.
OF_KERNEL = ("/proc", "/sys")


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
    refuse_own(own_folders.folder_around(path, own))
    for _ in range(MOST_LINKS):
        folder, name = os.path.split(path)
        parent = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if is_of_kernel(os.readlink(f"/proc/self/fd/{parent}")):
                raise OSError(errno.EINVAL, "not a regular file")
            descriptor = _open_in(parent, name, flags, mode)
            if descriptor is not None:
                refuse_own(own_folders.folder_with(descriptor, own))
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
