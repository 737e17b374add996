"""Where the segments of a rank lie: the job's shared-memory folder on the host of the rank."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class FolderPlace(NamedTuple):
    """A folder among those of all hosts.

    Device and inode number files of one kernel only; another boot is another kernel.

    Attributes
    ----------
    host : name of the host, for messages.
    boot : identifies the running kernel.
    device, inode : as of `os.stat`.
    """

    host: str
    boot: str
    device: int
    inode: int


def place_of(folder: Path | None) -> FolderPlace | None:
    """Place of a folder on this host; None if it does not exist."""
    try:
        found = None if folder is None else folder.stat()
    except OSError:
        return None
    if found is None:
        return None
    return FolderPlace(os.uname().nodename, boot_id(), found.st_dev, found.st_ino)


@lru_cache
def boot_id() -> str:
    """Return what distinguishes this kernel from every other one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else os.uname().nodename
