"""Limits that keep a service alive: open files, and memory of unfinished messages.

The service raises the number of files that it may have open, and keeps some of them spare.

ZeroMQ aborts the process if a local connection comes when no file is left. On TCP the gate limits
the connections. On the socket in the service directory, which only its owner reaches, the service
takes the name of the socket away while few files are left; then no new connection reaches ZeroMQ.

ZeroMQ keeps all frames of a message until the last one has come, and has no limit for their number.
On TCP the gate counts the bytes of each connection. On the local socket nothing stands between
ZeroMQ and its peers, so the service watches its own memory. When that has grown much, the service
closes all local connections, with which ZeroMQ gives up what it has kept of their messages. Their
peers connect again and repeat what was not answered, as after a restart of the service; so it does
no harm if the memory has grown for another reason.
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
#: Growth of the resident memory after which the local connections are closed, in bytes.
MOST_GROWTH_BYTES = 256 << 20
_PAGE_BYTES = resource.getpagesize()


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


class MemoryGuard:
    """Compares the resident memory of this process with what it was."""

    def __init__(self) -> None:
        # It stays open, because the process may have no file left later.
        self._file = os.open("/proc/self/statm", os.O_RDONLY)
        self._least = self._resident()

    def growth(self) -> int:
        """Return by how many bytes the memory has grown, if that is too much; else 0.

        Growth is measured from the least memory since `accept`.
        """
        resident = self._resident()
        self._least = min(self._least, resident)
        growth = resident - self._least
        return growth if growth > MOST_GROWTH_BYTES else 0

    def accept(self) -> None:
        """Measure further growth from what the process has now."""
        self._least = self._resident()

    def close(self) -> None:
        """Close the file that it reads."""
        os.close(self._file)

    def _resident(self) -> int:
        pages = os.pread(self._file, 100, 0).split()[1]
        return int(pages) * _PAGE_BYTES
