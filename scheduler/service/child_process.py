"""A process that a service keeps running: its gate, its reader or its forecaster.

It ends when its standard input is closed, which is when the service has ended.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

#: Seconds between two starts.
RESTART_S = 1.0


class ChildProcess:
    """A process of Python that is started again when it has ended.

    Parameters
    ----------
    name : for messages; the module of the process is named after it.
    arguments : of the module.
    log_file : file for its messages.
    output : file descriptor for its standard output; None: `log_file`.
    inherited : further file descriptors that it gets.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[object],
        log_file: Path,
        output: int | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        module = f"scheduler.service.{name}_process"
        self._name, self._log_file = name, log_file
        self._command = [sys.executable, "-m", module, *map(str, arguments)]
        self._output, self._inherited = output, inherited
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = -RESTART_S  # monotonic seconds

    def keep_running(self) -> bool:
        """Start a process if none runs, at most one in `RESTART_S`; return whether it was."""
        if self._process is not None and self._process.poll() is None:
            return False
        if time.monotonic() - self._started_at < RESTART_S:
            return False
        if self._process is not None:
            code = self._process.returncode
            log.warning("the %s ended with %s; another is started", self._name, code)
            self.end()
        self._started_at = time.monotonic()
        try:
            with self._log_file.open("ab") as messages:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=messages if self._output is None else self._output,
                    stderr=messages,
                    pass_fds=self._inherited,
                    start_new_session=True,  # Ctrl-C is for the service
                )
        except OSError as error:
            log.error("the %s cannot be started: %s", self._name, error)
            return False
        return True

    def write(self, line: str) -> None:
        """Write a line to its standard input, if it runs."""
        if self._process is not None and self._process.stdin is not None:
            try:
                os.write(self._process.stdin.fileno(), f"{line}\n".encode())
            except OSError as error:  # it has ended
                log.debug("cannot write to the %s: %s", self._name, error)

    def end(self, wait_s: float = 0.0) -> None:
        """Close its standard input, and kill it if it has not ended after a time."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
