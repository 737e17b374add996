"""The bounds of a job: where its output may be, the folders of its service, its umask and limits.

A service has folders of its own, in which no job may write. In a folder in which all users may
write, such as /tmp, a file or a symbolic link of another user is refused, as the kernel does where
its rules `protected_symlinks` and `protected_regular` are on (proc_sys_fs(5)). They are off in many
containers.

A job inherits the umask and the soft resource limits of the process that submits it.

`starter.py` imports this file without its package, so it imports little. It is also executed as a
script, in a process of its own, which writes the end of a file to the standard output and appends a
line to the file:

    python -I -S job_bounds.py NOTE FILE [OTHER]...

The first line that is written is the number, from 0, of the first one of these files whose file
system has no room, and empty if all have.

Nothing is appended if NOTE is empty. Nothing is done if FILE is not a regular file, or is one of
the service or of another user: the job may have replaced its output by a link.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import sys

#: Variable that tells a starter and a job the folders of their service, one a line;
#: `reshape.checkpoints.directory` reads it, too.
VARIABLE = "RESHAPE_OWN_FOLDERS"
#: Symbolic links in a row, at most, as in Linux.
MOST_LINKS = 40
#: Places of the kernel, whose files are no files: /proc/self/mem, /proc/self/fd/1.
OF_KERNEL = ("/proc", "/sys")
#: Limits by name, as in getrlimit(2). The number of processes is that of an account, and the jobs
#: are those of another one; what Linux does not enforce is left out, too.
LIMITS = {
    "AS": resource.RLIMIT_AS,
    "CORE": resource.RLIMIT_CORE,
    "CPU": resource.RLIMIT_CPU,
    "DATA": resource.RLIMIT_DATA,
    "FSIZE": resource.RLIMIT_FSIZE,
    "MEMLOCK": resource.RLIMIT_MEMLOCK,
    "NOFILE": resource.RLIMIT_NOFILE,
    "STACK": resource.RLIMIT_STACK,
}
UNLIMITED = resource.RLIM_INFINITY
MOST_UMASK = 0o777
#: Bytes that are read at the end of an output, at most.
TAIL_BYTES = 16 << 10
#: Seconds in which the end of an output is read: after them this process, as a script, is ended,
#: and an agent waits no longer.
TAIL_S = 5
#: A file system has no room if fewer bytes are free; mpiexec writes as many at a time.
LEAST_ROOM = 64 << 10
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping
else:  # the starter imports this file, and each start copies what it imports
    import _signal as signal


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


def own_umask() -> int:
    """Return the umask of this process; to ask the system by umask(2) would change it."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def own_limits() -> dict[str, int]:
    """Return the soft limits of this process by name; `UNLIMITED` is none."""
    return {name: resource.getrlimit(number)[0] for name, number in LIMITS.items()}


def take_limits(limits: Mapping[str, int]) -> list[str]:
    """Set the soft limits of this process; return a sentence for each that is lower here.

    A soft limit is not raised above the hard one of this process.
    """
    lower = []
    for name, soft in limits.items():
        hard = resource.getrlimit(LIMITS[name])[1]
        if hard != UNLIMITED and not 0 <= soft <= hard:
            asked = "unlimited" if soft == UNLIMITED else str(soft)
            lower.append(f"the limit {name} is {hard} here, and was {asked} at the submission")
            soft = hard
        resource.setrlimit(LIMITS[name], (soft, hard))
    return lower


def main() -> None:
    """Write the end of the file that the arguments name, and append the line to it."""
    signal.alarm(TAIL_S)  # also if the agent is gone by then
    note, *files = sys.argv[1:]
    full = [str(k) for k, file in enumerate(files) if lacks_room(file)]
    os.write(1, "".join([*full[:1], "\n"]).encode())
    own = os.environ.get(VARIABLE, "").splitlines()
    descriptor = open_output(files[0], os.O_RDWR | os.O_APPEND, 0, own)
    status = os.fstat(descriptor)
    if not is_null(status):
        begin = max(0, status.st_size - TAIL_BYTES)
        text = os.pread(descriptor, TAIL_BYTES, begin)
        if begin:  # the first line is cut
            text = text.partition(b"\n")[2] or text
        os.write(1, text)  # the buffer of a pipe is larger
        if note:
            os.write(descriptor, f"{note}\n".encode())


def lacks_room(path: str) -> bool:
    """Whether a regular file can hardly grow."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        space = os.statvfs(path)
    except OSError:
        return False
    free = space.f_bavail if os.geteuid() else space.f_bfree
    return bool(space.f_blocks) and free * space.f_frsize < LEAST_ROOM


if __name__ == "__main__":
    try:
        main()
    except OSError:  # the file was removed, or cannot be read
        sys.exit(1)
