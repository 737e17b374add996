"""Log files of bounded size, and log messages at a bounded rate."""

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


class RefusalLog:
    """Logs refused messages at a bounded rate: one line in every interval, with a count.

    Parameters
    ----------
    interval_s : least time between two lines, in seconds.
    """

    def __init__(self, log: logging.Logger, interval_s: float = 10.0) -> None:
        self.count = 0
        self._log, self._interval_s = log, interval_s
        self._unlogged = 0
        self._logged_at = float("-inf")

    def add(self, why: str) -> None:
        """Count a refused message, and log it unless a line was logged within the interval."""
        self.count += 1
        self._unlogged += 1
        now = time.monotonic()
        if now - self._logged_at < self._interval_s:
            return
        more = f" ({self._unlogged} messages since the last line)" if self._unlogged > 1 else ""
        self._log.error("refused: %s%s", why, more)
        self._logged_at, self._unlogged = now, 0
