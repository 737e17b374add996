"""The end of the output of a group, read by a process of its own.

The agent does not read the file itself, because a file system that does not respond would block it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from scheduler.launchers.prctl import die_with_parent

_SCRIPT = str(Path(__file__).with_name("tail.py"))
#: Time limit of the process, seconds.
LIMIT_S = 5.0


class OutputEnd:
    """The end of an output file.

    Parameters
    ----------
    path : the file.
    note : line to append to it; "": none.

    Raises
    ------
    OSError : no process can be started.
    """

    def __init__(self, path: str, note: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT, path, note],
            env={},  # without the variables that tell to which group a process belongs
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._until = time.monotonic() + LIMIT_S
        self._data = b""

    def text(self) -> str | None:
        """Return the end of the output; None as long as the process runs."""
        if not self._pipe.closed and not self._is_over():
            return None
        return self._data.decode(errors="replace")

    def _is_over(self) -> bool:
        """Read what the process has written; whether that was all, or the time is over."""
        while part := self._pipe.read(1 << 16):
            self._data += part
        if part is None and time.monotonic() < self._until:
            return False
        self._pipe.close()
        self._process.kill()  # ends it if the time is over
        self._process.returncode = 0  # the agent waits for all its children elsewhere
        return True
