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

import pickle
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from redistribution import Layout
from reshape.data import segments
from reshape.data.declarations import Declaration, RaggedCuts
from reshape.data.job_context import JobContext
from reshape.data.ragged import Ragged
from reshape.data.segments import FolderPlace, RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.files.job_folder import RESTART_FILE
from reshape.files.private_folder import open_folder, read_file, remove_file, write_file


class SavedState(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag=3):
    """The state of a job between two iterations, apart from the local parts of its arrays.

    The tag is the version of what is saved; others are not read.

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

    loop: int
    iteration: int
    before: int
    size: int
    signature: tuple[Declaration, ...]
    state: bytes
    cuts: dict[str, RaggedCuts]

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

    def check(self, declared: Sequence[Declaration], complete: bool, source: str = "") -> None:
        """Compare the registrations of the program, so far or all, with those that are saved.

        Parameters
        ----------
        source : where they are saved, for the error, such as " from FOLDER".

        Raises
        ------
        ReshapeError : the first difference.
        """
        saved = self.signature
        for theirs, ours in zip_longest(saved if complete else saved[: len(declared)], declared):
            if theirs == ours:
                continue
            if ours is None:
                what = f"it holds {theirs}, which the program does not register"
            elif theirs is None or theirs.name != ours.name:
                held = ", ".join(declaration.name for declaration in saved) or "nothing"
                what = f"the program registers {ours} as number {list(declared).index(ours) + 1}, "
                what += f"it holds {held} in this order"
            else:
                pairs = zip(Declaration._fields, theirs, ours, strict=True)
                field, old, new = next(each for each in pairs if each[1] != each[2])
                what = f"its array {ours.name!r} has {field} {old!r}, the program registers {new!r}"
            raise ReshapeError(
                f"cannot restart{source}: {what}; restart the program that wrote it, or start from "
                "the beginning"
            )


def state_of(job: JobContext, state: bytes) -> dict[str, Any]:
    """Return the fields of `SavedState` for a job, given its pickled `app.state`."""
    return {
        "loop": job.loop,
        "iteration": job.iteration,
        "before": job.before,
        "size": job.comm.size,
        "signature": job.signature,
        "state": state,
        "cuts": {name: ragged.cuts for name, ragged in job.ragged.items()},
    }


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
            write_file(directory, RESTART_FILE, msgspec.msgpack.encode(self))

    @staticmethod
    def read(folder: Path) -> RestartPoint:
        """Read the restart point of the job.

        Raises
        ------
        ReshapeError : there is none, it is damaged, or it belongs to another user.
        """
        path, fix = folder / RESTART_FILE, "submit the job again"
        try:
            return msgspec.msgpack.decode(read_file(folder, RESTART_FILE), type=RestartPoint)
        except FileNotFoundError:
            raise ReshapeError(f"cannot restart: there is no {path}; {fix}") from None
        except (OSError, ReshapeError, msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ReshapeError(f"cannot restart from {path}: {error}; {fix}") from None

    # The data of a restart, as of `reshape.checkpoints.manifest.SavedCheckpoint`.

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
