"""Processes as /proc shows them: identity and memory, and signals to exactly one process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Fields of /proc/PID/stat after the name of the program (proc(5), fields 22 and 24).
_STARTED, _RESIDENT = 19, 21


class ProcessStat(NamedTuple):
    """What the kernel counts of a process.

    Attributes
    ----------
    started : clock ticks from the boot to its start; it tells two processes of one number apart.
    resident : bytes of memory that are not swapped out.
    """

    started: int
    resident: int


def stat_of(pid: int) -> ProcessStat | None:
    """Return the counts of a process, None if there is none of this number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name may hold blanks and brackets
    return ProcessStat(int(fields[_STARTED]), int(fields[_RESIDENT]) * _PAGE)


def send_signal(pid: int, started: int, number: int) -> bool:
    """Send a signal to a process, unless its number belongs to another process by now.

    Parameters
    ----------
    started : see `ProcessStat`.

    Returns
    -------
    whether the process was there; it may have ended without being reaped.

    Raises
    ------
    PermissionError : the process belongs to another user.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor keeps to one process, so the number cannot be reused after this check.
        found = stat_of(pid)
        if found is None or found.started != started:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
    return True
