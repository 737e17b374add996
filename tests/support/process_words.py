"""The command line of a process that may end at any moment."""

from __future__ import annotations

import contextlib

import psutil


def words_of(process: psutil.Process | int) -> list[str]:
    """Return the words of a command line; none for a process that has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.cmdline()
    return []
