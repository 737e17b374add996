"""Control of processes: parent death signals and subreapers (prctl(2)), forks, and SIGHUP."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:  # the starter imports this file, and each start copies what it imports
    import _signal as signal

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
#: Keeps the lock of the interpreter during calls, so that a forked process has it, too.
_libc = ctypes.PyDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies.

    Raises
    ------
    OSError : the kernel refuses.
    """
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def become_subreaper() -> None:
    """Make this process the parent of all descendants whose own parents die.

    Raises
    ------
    OSError : the kernel refuses.
    """
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


_CLONE3, _CLONE_INTO_CGROUP = 435, 1 << 33  # clone3(2); the number is that of all architectures
_CLONE_ARGS, _EXIT_SIGNAL, _CGROUP = 11, 4, 10  # words of `struct clone_args`


def fork_into(cgroup: str) -> int:
    """Fork this process, which has one thread, into a control group; return as `os.fork` does.

    To move a process after its fork takes 10 ms, for which the kernel waits for all CPUs. The new
    process should do little before it executes a program: it runs no handlers of forks.

    Parameters
    ----------
    cgroup : folder of the control group.

    Raises
    ------
    OSError : the system cannot do that, or there is no such control group.
    """
    words = (ctypes.c_uint64 * _CLONE_ARGS)()
    descriptor = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        words[0], words[_EXIT_SIGNAL], words[_CGROUP] = (
            _CLONE_INTO_CGROUP,
            signal.SIGCHLD,
            descriptor,
        )
        return _checked(_libc.syscall(_CLONE3, ctypes.byref(words), ctypes.sizeof(words)))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    """Return the result of a call; raise its error if it has failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def survive_hangup() -> None:
    """Continue after SIGHUP, which a terminal sends when it is closed; call it in the main thread.

    The signal is handled instead of ignored, because programs that this process starts would
    inherit that it is ignored, and could not be ended by it.
    """
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
