"""The end of the output of a group, read by a process of its own.

The agent does not read the file itself, because a file system that does not respond would block it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from scheduler.node.launching.job_paths import VARIABLE
from scheduler.node.launching.prctl import die_with_parent

_SCRIPT = str(Path(__file__).with_name("tail.py"))
#: Time limit of the process, seconds.
LIMIT_S = 5.0


class OutputEnd:
    """The end of an output file.

    Parameters
    ----------
    path : the file.
    other : another file of the output; "": there is none.
    note : line to append to `path`; "": none.
    own_folders : those of the service, one a line; a file in one of them is left alone.

    Raises
    ------
    OSError : no process can be started.
    """

    def __init__(self, path: str, other: str, note: str, own_folders: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT, path, note, *filter(None, [other])],
            env={VARIABLE: own_folders},  # none that tells to which group a process belongs
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
        )
        self._files = path, other
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._until = time.monotonic() + LIMIT_S
        self._data = b""

    def text(self) -> str | None:
        """Return the end of the output; None as long as the process runs.

        Its last line says so if more could not be written.
        """
        if not self._pipe.closed and not self._is_over():
            return None
        text = self._data.partition(b"\n")[2].decode(errors="replace")
        return f"{text.rstrip()}\n{self.lack}\n" if self.lack else text

    @property
    def lack(self) -> str:
        """Why the output is incomplete, once it was read; empty if it is not, as far as known."""
        full = self._data.partition(b"\n")[0]
        return f"no room for its output {self._files[int(full)]}" if full else ""

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
