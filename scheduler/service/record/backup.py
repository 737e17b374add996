"""A copy of what a service cannot do without, taken while it runs."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from math import inf
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.files.durable_files import sync_folder
from scheduler.replay.journal_reader import reading
from scheduler.service.record.high_water_mark import HighWaterMark
from scheduler.service.record.opening import missing_from

#: What a service directory has besides the journal that does not change while a service runs.
_NAMES = ("secret", "memory-folder", "socket-folder", "access")


def back_up(directory: Path, copy: Path) -> int:
    """Copy the journal of a service with its mark, and its keys and names; check the copy.

    Parameters
    ----------
    copy : a folder that does not exist; it becomes a service directory.

    Returns
    -------
    number of the last job in the copy.

    Raises
    ------
    ReshapeError : there is no journal, the folder exists or cannot be written, or the journal is
        damaged.
    """
    source, target = directory / "journal.db", copy / "journal.db"
    with reading(source):  # it is a journal
        pass
    try:
        copy.mkdir(0o700, parents=True)
        for name in _NAMES:
            if (directory / name).is_dir():
                shutil.copytree(directory / name, copy / name)
            elif (directory / name).exists():
                shutil.copy2(directory / name, copy)
        mark = HighWaterMark(source)  # before the journal, which may grow meanwhile
        if mark.mark is not None:
            shutil.copy2(mark.path, copy)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600))
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as db,
            closing(sqlite3.connect(target)) as copied,
        ):
            db.backup(copied)
            copied.execute("PRAGMA journal_mode=DELETE")  # one file
        sync_folder(copy)
    except FileExistsError:
        raise ReshapeError(f"{copy} exists: name a new folder for the copy") from None
    except (OSError, sqlite3.Error) as error:
        raise ReshapeError(f"cannot copy {directory} to {copy}: {error}") from None
    missing, _ = missing_from(target, HighWaterMark(target), inf)
    if missing:
        raise ReshapeError(f"the copy {target} lacks {missing}")
    with reading(target) as reader:
        return reader.last_job()
