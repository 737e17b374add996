"""Small files that are on disk as a whole, or not at all, whatever dies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: Suffix of a file that is being written; its name begins with a dot.
DRAFT = ".draft"


@contextlib.contextmanager
def durable_file(path: Path, mode: int = 0o666, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Write a file piece by piece; it has its name, and is on disk, when the block ends.

    A reader finds the old contents or the new ones. After an exception in the block there is no
    trace of the new ones. If the process dies, a hidden file with the suffix `DRAFT` may remain,
    which `remove_drafts` removes.

    Parameters
    ----------
    mode : permissions of the file, less those that the umask of the process takes away.
    replace : whether an existing file is replaced.

    Raises
    ------
    FileExistsError : the file exists and must not be replaced.
    OSError : it cannot be written; the old file, if there is one, remains.
    """
    draft = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}{DRAFT}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "w+b") as file:
            yield file
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


def write_durably(path: Path, data: bytes, mode: int = 0o600, *, replace: bool = True) -> None:
    """Write a file in one step, as `durable_file` does, with exactly these permissions.

    Raises
    ------
    FileExistsError : the file exists and must not be replaced.
    OSError : it cannot be written; the old file, if there is one, remains.
    """
    with durable_file(path, 0o600, replace=replace) as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)


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
