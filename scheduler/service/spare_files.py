"""The files that a service may have open: it raises their number, and keeps some of them spare.

ZeroMQ aborts the process if a local connection comes when no file is left. On TCP the gate limits
the connections. On the socket in the service directory, which only its owner reaches, the service
takes the name of the socket away while few files are left; then no new connection reaches ZeroMQ.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

#: Most files that the service allows itself and its children, if the system allows as many.
MOST_FILES = 16384


def raise_limit() -> None:
    """Raise the number of files that this process may have open, as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class SpareFiles:
    """Takes the names of sockets away while less than an eighth of all files is left.

    Parameters
    ----------
    sockets : paths of the sockets.
    """

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._withheld: list[Path] = []

    def keep(self) -> None:
        """Compare the number of files with the limit."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            lowest = os.dup(self._null)  # the kernel gives the lowest number that is free
        except OSError:
            lowest = limit
        else:
            os.close(lowest)
        is_short = limit != resource.RLIM_INFINITY and lowest >= limit - limit // 8
        if is_short and not self._withheld:
            log.error("%d files are open, of at most %d: new connections wait", lowest, limit)
            self._withheld = [path for path in self._sockets if path.exists()]
            for path in self._withheld:
                path.rename(_withheld_name(path))
        elif self._withheld and not is_short:
            log.warning("files are left again: new connections are accepted")
            self.restore()

    def close(self) -> None:
        """Give the sockets their names back for good."""
        self.restore()
        os.close(self._null)

    def restore(self) -> None:
        """Give the sockets their names back until the files are counted again."""
        for path in self._withheld:
            _withheld_name(path).rename(path)
        self._withheld = []


def _withheld_name(path: Path) -> Path:
    return path.with_name(path.name + ".withheld")
