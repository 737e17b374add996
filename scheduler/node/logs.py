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


class BoundedLog(logging.LoggerAdapter[logging.Logger]):
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
        super().__init__(log)
        self.omitted = 0
        self._burst, self._per_second = burst, per_second
        self._allowed = float(burst)
        self._at = time.monotonic()

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name of the base class
        """Whether a line may be written now, which is asked once for each."""
        return self.logger.isEnabledFor(level) and self._take()

    def _take(self) -> bool:
        now = time.monotonic()
        self._allowed = min(self._burst, self._allowed + self._per_second * (now - self._at))
        self._at = now
        if self._allowed < 1:
            self.omitted += 1
            return False
        self._allowed -= 1
        if self.omitted:
            self.logger.warning("%d similar lines were left out", self.omitted)
            self.omitted = 0
        return True
