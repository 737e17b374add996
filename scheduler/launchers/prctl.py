"""Control of this process: parent death signals and subreapers (prctl(2)), and SIGHUP."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:  # the starter imports this file, and each start copies what it imports
    import _signal as signal

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies.

    Raises
    ------
    OSError : the kernel refuses.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Make this process the parent of all descendants whose own parents die.

    Raises
    ------
    OSError : the kernel refuses.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def survive_hangup() -> None:
    """Continue after SIGHUP, which a terminal sends when it is closed; call it in the main thread.

    The signal is handled instead of ignored, because programs that this process starts would
    inherit that it is ignored, and could not be ended by it.
    """
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
