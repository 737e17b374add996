"""The memory that unfinished messages may take on the socket in the service directory.

ZeroMQ keeps all frames of a message until the last one has come, and has no limit for their number.
On TCP the gate counts the bytes of each connection. On the local socket nothing stands between
ZeroMQ and its peers, so the service watches its own memory. When that has grown much, the service
closes all local connections, with which ZeroMQ gives up what it has kept of their messages. Their
peers connect again and repeat what was not answered, as after a restart of the service; so it does
no harm if the memory has grown for another reason.
"""

from __future__ import annotations

import os
import resource

#: Growth of the resident memory after which the local connections are closed, in bytes.
MOST_GROWTH_BYTES = 256 << 20
_PAGE_BYTES = resource.getpagesize()


class MemoryGuard:
    """Compares the resident memory of this process with what it was.

    Parameters
    ----------
    most_growth : growth that is permitted, in bytes.
    """

    def __init__(self, most_growth: int = MOST_GROWTH_BYTES) -> None:
        self._most_growth = most_growth
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
        return growth if growth > self._most_growth else 0

    def accept(self) -> None:
        """Measure further growth from what the process has now."""
        self._least = self._resident()

    def close(self) -> None:
        """Close the file that it reads."""
        os.close(self._file)

    def _resident(self) -> int:
        pages = os.pread(self._file, 100, 0).split()[1]
        return int(pages) * _PAGE_BYTES
