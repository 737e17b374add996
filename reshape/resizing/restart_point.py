"""The restart point, from which a job restarts if its processes die or hang within a resize.

Between two iterations a job's segments (`reshape.data.segments`), together with a small file that
names their epoch and the iteration, are the job's complete state. *That file exists exactly while
a resize is under way*: rank 0 writes it when all processes have stopped computing, and removes it
when the resize is committed or rolled back. If the processes die in between, or are killed because
they hang, new processes start from it at the old size, and no result is lost.

A job on several hosts has one such file, on the host of its rank 0, while each rank's segments are
on the rank's own host. A single file makes the commit of a resize one step for all hosts.

The file is a MessagePack object. It holds `app.state` pickled, as segments hold work items, so it
is read only from a folder and a file that belong to this user alone
(`reshape.files.private_folder`).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from redistribution import Layout
from reshape.data import segments
from reshape.data.declarations import Declaration, RaggedCuts, difference
from reshape.data.ragged import Ragged
from reshape.data.segments import FolderPlace, RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.files.job_folder import RESTART_FILE
from reshape.files.private_folder import open_file, open_folder, remove_file, write_file

#: Version of what is saved. Since version 2, declarations say how arrays are divided; those of
#: version 1, which are by default, are still read.
FORMAT = 2


class SavedFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The version of what is saved.

    Attributes
    ----------
    format : version; restart points of version 1 do not name it.
    """

    format: int = 1

    def check_format(self) -> None:
        """Check that this release reads the version.

        Raises
        ------
        ReshapeError : it does not.
        """
        if not 1 <= self.format <= FORMAT:
            raise ReshapeError(f"its format is {self.format}, this release reads 1 to {FORMAT}")


class SavedState(SavedFormat, frozen=True, kw_only=True):
    """The state of a job between two iterations, apart from the local parts of its arrays.

    Attributes
    ----------
    loop : number of the loop of the program, from 0.
    iteration : number of the next iteration of the loop.
    before : iterations finished in earlier loops.
    size : number of processes.
    signature : what the program has registered.
    state : pickled values of `app.state`.
    cuts : where the parts of each ragged array begin.
    """

    loop: int = 0
    iteration: int
    before: int = 0
    size: int
    signature: tuple[Declaration, ...]
    state: bytes
    cuts: dict[str, RaggedCuts] = {}

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


class SavedData(Protocol):
    """What a program restarts from: a restart point, or a checkpoint."""

    @property
    def saved_state(self) -> SavedState:
        """The state of the job between two iterations."""

    def check(self, given: Sequence[Declaration], complete: bool) -> None:
        """Raise ReshapeError if the program registers something else, so far or in the end."""

    def cuts_of(self, ragged: Ragged, size: int) -> RaggedCuts:
        """Return the cuts of a ragged array on `size` processes."""

    def segment_of(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Return the local part of an array in a layout, with its data."""


class RestartPoint(SavedState, frozen=True, kw_only=True):
    """What a restart needs beside the segments.

    Attributes
    ----------
    epoch : serial number of the last committed resize; the segments of this epoch hold the data.
    places : where the segments of each rank lie.
    """

    epoch: int
    places: tuple[FolderPlace, ...]

    def write(self, folder: Path) -> None:
        """Make this the restart point of the job, atomically.

        Raises
        ------
        OSError : no room, or no right to write.
        ReshapeError : the folder belongs to another user, or is open to other users.
        """
        with open_folder(folder, create=True) as directory:
            write_file(directory, RESTART_FILE, msgspec.msgpack.encode(self), durable=False)

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
                saved = file.read()
            msgspec.msgpack.decode(saved, type=SavedFormat).check_format()
            return msgspec.msgpack.decode(saved, type=RestartPoint)
        except FileNotFoundError:
            raise ReshapeError(f"cannot restart: there is no {path}; {fix}") from None
        except (OSError, ReshapeError, msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ReshapeError(f"cannot restart from {path}: {error}; {fix}") from None

    # The data of a restart; see `SavedData`.

    @property
    def saved_state(self) -> SavedState:
        """The state of the job between two iterations."""
        return self

    def check(self, given: Sequence[Declaration], complete: bool) -> None:
        """Compare the registrations of the program, so far or all, with those before the restart.

        Raises
        ------
        ReshapeError : the first difference.
        """
        expected = self.signature if complete else self.signature[: len(given)]
        if why := difference(expected, given):
            raise ReshapeError(f"cannot restart: the program has changed; {why}")

    def cuts_of(self, ragged: Ragged, size: int) -> RaggedCuts:
        """Cuts of a ragged array; the number of processes is that before the restart."""
        return self.cuts[ragged.name]

    def segment_of(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Map the local part that this rank had before the restart.

        Raises
        ------
        ReshapeError : the file does not exist, has another length, or belongs to another user.
        """
        return segments.reopen(memory, declaration, layout)

    @staticmethod
    def remove(folder: Path) -> None:
        """End the resize: from now on only the job's processes hold its state.

        Raises
        ------
        ReshapeError : the folder belongs to another user, or is open to other users.
        """
        with suppress(FileNotFoundError), open_folder(folder) as directory:
            remove_file(directory, RESTART_FILE)
