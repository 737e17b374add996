"""Log lines at a bounded rate, for events that a peer may cause at any rate."""

from __future__ import annotations

import logging
import time

#: Lines that may be written at once, and lines a second after that.
BURST, PER_SECOND = 20, 1.0


class BoundedLog:
    """Writes at most a bounded number of lines and counts the others.

    Parameters
    ----------
    log : the logger that gets the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._allowed = float(BURST)
        self._at = time.monotonic()
        self._omitted = 0

    def warning(self, text: str, *values: object) -> None:
        """Write a warning, if the rate allows it."""
        if self._take():
            self._log.warning(text, *values)

    def exception(self, text: str, *values: object) -> None:
        """Write an error with the traceback of the present exception, if the rate allows it."""
        if self._take():
            self._log.exception(text, *values)

    def _take(self) -> bool:
        now = time.monotonic()
        self._allowed = min(BURST, self._allowed + PER_SECOND * (now - self._at))
        self._at = now
        if self._allowed < 1:
            self._omitted += 1
            return False
        self._allowed -= 1
        if self._omitted:
            self._log.warning("%d similar lines were left out", self._omitted)
            self._omitted = 0
        return True
