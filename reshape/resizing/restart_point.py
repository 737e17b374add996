"""The restart point, from which a job restarts if its processes die or hang within a resize.

Between two iterations a job's segments (`reshape.data.segments`), together with a small file that
names their epoch and the iteration, are the job's complete state. *That file exists exactly while
a resize is under way*: rank 0 writes it when all processes have stopped computing, and removes it
when the resize is committed or rolled back. If the processes die in between, or are killed because
they hang, new processes start from it at the old size, and no result is lost.

The file is a MessagePack object. It holds `app.state` pickled, as segments hold work items, so it
is read only from a folder and a file that belong to this user alone
(`reshape.private_folder`).
"""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reshape.data.arrays import Declaration, RaggedCuts
from reshape.errors import ReshapeError
from reshape.private_folder import open_file, open_folder, remove_file

RESTART_FILE = "restart.msgpack"
_DRAFT = f"{RESTART_FILE}.new"


def has_restart_point(folder: Path) -> bool:
    """Whether a resize of the job with this shared-memory folder is under way."""
    try:
        with open_folder(folder) as directory:
            os.stat(RESTART_FILE, dir_fd=directory, follow_symlinks=False)
    except (OSError, ReshapeError):
        return False
    return True


class RestartPoint(msgspec.Struct, frozen=True):
    """What a restart needs beside the segments.

    Attributes
    ----------
    epoch : serial number of the last committed resize; the segments of this epoch hold the data.
    iteration : number of the next iteration.
    size : number of processes.
    signature : what the program has registered.
    state : pickled values of `app.state`.
    cuts : where the parts of each ragged array begin.
    """

    epoch: int
    iteration: int
    size: int
    signature: tuple[Declaration, ...]
    state: bytes
    cuts: dict[str, RaggedCuts] = {}

    def write(self, folder: Path) -> None:
        """Make this the restart point of the job, atomically.

        Raises
        ------
        OSError : no room, or no right to write.
        ReshapeError : the folder belongs to another user, or is open to other users.
        """
        with open_folder(folder, create=True) as directory:
            remove_file(directory, _DRAFT)
            draft = open_file(directory, _DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(draft, "wb") as file:
                file.write(msgspec.msgpack.encode(self))
            os.replace(_DRAFT, RESTART_FILE, src_dir_fd=directory, dst_dir_fd=directory)

    @staticmethod
    def read(folder: Path) -> RestartPoint:
        """Read the restart point of the job.

        Raises
        ------
        ReshapeError : there is none, it is damaged, or it belongs to another user.
        """
        path, fix = folder / RESTART_FILE, "submit the job again"
        try:
            with (
                open_folder(folder) as directory,
                os.fdopen(open_file(directory, RESTART_FILE, os.O_RDONLY), "rb") as file,
            ):
                return msgspec.msgpack.decode(file.read(), type=RestartPoint)
        except FileNotFoundError:
            raise ReshapeError(f"cannot restart: there is no {path}; {fix}") from None
        except (OSError, ReshapeError, msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ReshapeError(f"cannot restart from {path}: {error}; {fix}") from None

    def load_state(self) -> dict[str, Any]:
        """Unpickle the values of `app.state`.

        Raises
        ------
        ReshapeError : they cannot be unpickled here.
        """
        try:
            return dict(pickle.loads(self.state))
        except Exception as error:  # runs code of the user's classes
            raise ReshapeError(f"cannot restart: app.state cannot be restored: {error}") from None

    @staticmethod
    def remove(folder: Path) -> None:
        """End the resize: from now on only the job's processes hold its state.

        Raises
        ------
        ReshapeError : the folder belongs to another user, or is open to other users.
        """
        with suppress(FileNotFoundError), open_folder(folder) as directory:
            remove_file(directory, RESTART_FILE)
