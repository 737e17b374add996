"""Log files of bounded size, and log lines at a bounded rate."""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

FORMAT = "%(asctime)s %(levelname)s %(message)s"
MAX_BYTES = 8 << 20
BACKUPS = 2


def log_to_file(path: Path) -> None:
    """Log to a file of at most 8 MiB; two older files of that size are kept."""
    handler = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])


class BoundedLog:
    """Writes lines that a peer may cause at any rate, at a bounded rate, and counts the others.

    Parameters
    ----------
    log : the logger that gets the lines.
    burst : lines that may be written at once.
    per_second : lines a second after that.

    Attributes
    ----------
    omitted : number of lines that were left out since the last one.
    """

    def __init__(self, log: logging.Logger, burst: int = 20, per_second: float = 1.0) -> None:
        self.omitted = 0
        self._log, self._burst, self._per_second = log, burst, per_second
        self._allowed = float(burst)
        self._at = time.monotonic()

    def warning(self, text: str, *values: object) -> None:
        """Write a warning, if the rate allows it."""
        if self._take():
            self._log.warning(text, *values)

    def error(self, text: str, *values: object) -> None:
        """Write an error, if the rate allows it."""
        if self._take():
            self._log.error(text, *values)

    def exception(self, text: str, *values: object) -> None:
        """Write an error with the traceback of the present exception, if the rate allows it."""
        if self._take():
            self._log.exception(text, *values)

    def _take(self) -> bool:
        now = time.monotonic()
        self._allowed = min(self._burst, self._allowed + self._per_second * (now - self._at))
        self._at = now
        if self._allowed < 1:
            self.omitted += 1
            return False
        self._allowed -= 1
        if self.omitted:
            self._log.warning("%d similar lines were left out", self.omitted)
            self.omitted = 0
        return True
