"""The file that exists exactly while a resize is under way (`reshape.resizing.restart_point`).

Agents look for it. This module imports no numerical library, so that they start fast.
"""

from __future__ import annotations

import os
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.files.private_folder import open_folder

RESTART_FILE = "restart.msgpack"


def restart_point_bytes(folder: Path) -> int | None:
    """Size of the restart point of the job with this shared-memory folder; None: there is none.

    It is about that of the pickled `app.state`, which a resize transfers.
    """
    try:
        with open_folder(folder) as directory:
            return os.stat(RESTART_FILE, dir_fd=directory, follow_symlinks=False).st_size
    except (OSError, ReshapeError):
        return None


def has_restart_point(folder: Path) -> bool:
    """Whether a resize of the job with this shared-memory folder is under way."""
    return restart_point_bytes(folder) is not None
