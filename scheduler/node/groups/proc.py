"""Processes as /proc shows them: identity and memory."""

from __future__ import annotations

import os
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
