"""Writing result files: all of them completely, or none; tables as CSV."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reshape.errors import ReshapeError
from reshape.files.durable_files import durable_file


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Write files under temporary names, and rename them when the last one is on the disk.

    A link stays and its target is replaced; anything but a file, such as ``/dev/null``, is refused.

    A file whose name ends in ``.gz`` is compressed without a time stamp, so that the same data
    gives the same bytes. On an error (a full disk, an interruption) old files stay and no new one
    remains.

    Raises
    ------
    ReshapeError : a file cannot be written.
    """
    path = Path()
    try:
        with ExitStack() as written:  # all files get their names at its end
            for path, data in files.items():
                check_place(path)
                file = written.enter_context(durable_file(path.resolve()))
                file.write(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        why = error.strerror or error
        raise ReshapeError(
            f"{error.filename2 or path} cannot be written: {why}; what was there before stays"
        ) from None


def as_csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """Write a table as CSV, below a line of the names of its columns; None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode()


def check_place(path: Path, *, make_parent: bool = False) -> None:
    """Check before a long run that a result can be written.

    Parameters
    ----------
    make_parent : make the directory if it is not there.

    Raises
    ------
    ReshapeError : the directory does not exist, is not a directory or is not writable; the path
        exists and is not a file.
    """
    parent = (path.resolve() if path.is_symlink() else path).parent
    try:
        if make_parent:
            parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshapeError(f"directory {parent} cannot be made: {error.strerror}") from None
    if not parent.is_dir():
        raise ReshapeError(f"{path} cannot be written: there is no directory {parent}; make it")
    if path.is_dir():
        raise ReshapeError(f"{path} cannot be written: it is a directory")
    if path.exists() and not path.is_file():
        raise ReshapeError(f"{path} cannot be written: it is a device or a pipe, not a file")
    if not os.access(parent, os.W_OK):
        raise ReshapeError(f"{path} cannot be written: you may not write to {parent}")


def is_file(path: Path) -> bool:
    """Whether a path names a file; it does not if no file may have such a name."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or with a null character
        return False
