"""Start one command in a process of its own: open its output, change directory, execute it.

This file is executed as a script. A file system that does not respond, or a named pipe without a
reader, therefore blocks only this process and never the agent that started it.

    python -I -S starter.py STATUS CWD MODE OUTPUT COMMAND [ARGUMENT]...

STATUS is the number of an open file descriptor. It is closed when the command is executed;
otherwise the reason of the failure is written to it, after "node: " or "job: " for whose reason it
is, and the exit code is 126. Empty texts for CWD and OUTPUT keep those of this process. MODE is
"truncate" to empty the output file, or "append". COMMAND is searched on PATH.

The command, an mpiexec or a proxy, continues to ignore SIGPIPE, as the interpreter does. The
mpiexec of MPICH writes to proxies that have ended already if a program ends within milliseconds of
its start, and SIGPIPE would kill it. A proxy sets its own handler of SIGPIPE, so that the processes
that it starts have the default action.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # to import typing, or signal, takes longer than all that is done here
    import signal
    from typing import NoReturn
else:
    import _signal as signal
if TYPE_CHECKING or __package__:
    from scheduler.launchers import own_folders
else:  # importing the package takes longer than all that is done here
    sys.path.append(os.path.dirname(__file__))
    import own_folders

#: Variable of `reshape.checkpoints.directory`.
RESTART_VARIABLE = "RESHAPE_RESTART_FROM"
#: Exit code of a command that could not be started.
CANNOT_START = 126
#: Errors of a process that a node has no room for.
NO_ROOM = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def main() -> None:
    """Execute the command of the arguments."""
    status, command = prepare()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ignored by the interpreter
    try:
        os.execvp(command[0], command)
    except OSError as error:
        fail(status, f"cannot start {command[0]}", error, is_job=error.errno == errno.E2BIG)


def prepare() -> tuple[int, list[str]]:
    """Open the output and enter the directory of the arguments; return STATUS and the rest."""
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    cwd, mode, output, *rest = sys.argv[2:]
    own = os.environ.get(own_folders.VARIABLE, "").splitlines()
    action = f"cannot write the output {output}"
    try:
        if output:
            refuse_own(own_folders.folder_around(output, own))
            descriptor = open_output(output, truncate=mode == "truncate", own=own)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
        action = f"cannot start in {cwd}"
        if cwd:
            os.chdir(cwd)
            refuse_own(own_folders.folder_around(".", own))
        restart_from = os.environ.get(RESTART_VARIABLE, "")
        action = f"cannot restart from {restart_from}"
        if restart_from:
            refuse_own(own_folders.folder_around(restart_from, own))
    except OSError as error:
        fail(status, action, error, is_job=error.errno not in NO_ROOM)
    return status, rest


def fail(status: int, action: str, error: OSError, *, is_job: bool) -> NoReturn:
    """Write the reason of a failure to STATUS and end.

    Parameters
    ----------
    is_job : whether it is a reason of the job, and not one of the node.
    """
    whose = "job" if is_job else "node"
    os.write(status, f"{whose}: {action}: {error.strerror}".encode(errors="replace"))
    os._exit(CANNOT_START)


def refuse_own(folder: str) -> None:
    """Raise OSError if a folder is given, one of the service."""
    if folder:
        raise OSError(errno.EPERM, f"it is in {folder}, a folder of the service")


def open_output(path: str, *, truncate: bool, own: list[str]) -> int:
    """Open a file to append to; return its descriptor.

    Parameters
    ----------
    truncate : whether to empty it first.
    own : folders of the service; a file that is in one of them under another name is refused.

    Raises
    ------
    OSError : the file cannot be opened, is neither a regular file nor /dev/null, or is one of the
        service.
    """
    refused = OSError(errno.EINVAL, "not a regular file")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a reader.
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise refused if error.errno == errno.ENXIO else error from None
    status = os.fstat(descriptor)
    is_null = stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    if not stat.S_ISREG(status.st_mode) and not is_null:
        raise refused
    refuse_own(own_folders.folder_with(descriptor, own))
    if truncate and not is_null:
        os.ftruncate(descriptor, 0)
    os.set_blocking(descriptor, True)
    return descriptor


if __name__ == "__main__":
    main()
