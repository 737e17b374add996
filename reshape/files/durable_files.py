"""Small files that are on disk as a whole, or not at all, whatever dies."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

#: Suffix of a file that is being written; its name begins with a dot.
DRAFT = ".draft"


def write_durably(path: Path, data: bytes, mode: int = 0o600, *, replace: bool = True) -> None:
    """Write a file in one step; it is on disk when the function returns.

    A reader finds the old contents or the new ones. If the process dies, a hidden file with the
    suffix `DRAFT` may remain, which `remove_drafts` removes.

    Parameters
    ----------
    mode : permissions of the file.
    replace : whether an existing file is replaced.

    Raises
    ------
    FileExistsError : the file exists and must not be replaced.
    OSError : it cannot be written; the old file, if there is one, remains.
    """
    descriptor, draft = tempfile.mkstemp(DRAFT, f".{path.name}.", path.parent)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if replace:
            os.replace(draft, path)
        else:
            os.link(draft, path)
            os.unlink(draft)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to disk: files that were created, renamed or removed.

    Raises
    ------
    OSError : it cannot be done.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_drafts(folder: Path, before: float) -> None:
    """Remove the files that processes left which died in `write_durably`.

    Parameters
    ----------
    before : Unix seconds; later drafts remain, since a process may still write them.
    """
    for draft in folder.glob(f".*{DRAFT}"):
        with contextlib.suppress(OSError):  # removed meanwhile
            if draft.stat().st_mtime < before:
                draft.unlink()
