"""The restart point: what lets a job survive a resize in which its processes die or hang.

Between two iterations a job's segments (`reshape.data.segments`), together with a small file that
says which epoch and iteration they belong to, are its complete state. *That file exists exactly
while a resize is under way*: it is written when all processes have stopped computing, and removed
when the resize is committed or rolled back. If the processes die in between, or are killed because
they hang, new ones start from it at the old size and nothing computed is lost.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reshape.errors import ReshapeError

if TYPE_CHECKING:
    from reshape.data.arrays import AllCuts

RESTART_FILE = "restart.pickle"


def has_restart_point(folder: Path) -> bool:
    """Whether the job of this shared-memory folder is in the middle of a resize."""
    return (folder / RESTART_FILE).exists()


@dataclass(frozen=True)
class RestartPoint:
    """All that is needed, beside the segments, to go on after a resize that did not end.

    Attributes
    ----------
    epoch : serial of the last committed resize; its segments hold the data.
    iteration : the iteration to go on with.
    size : number of processes.
    signature : what the program has registered.
    state : pickled values of `app.state`.
    cuts : where the parts of each ragged array begin.
    """

    epoch: int
    iteration: int
    size: int
    signature: tuple[Any, ...]
    state: bytes
    cuts: AllCuts = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Make this the restart point of the job: either all of it is there, or nothing.

        Raises
        ------
        OSError : no room, or no right to write.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f"{RESTART_FILE}.new"
        draft.write_bytes(pickle.dumps(self))
        draft.replace(folder / RESTART_FILE)

    @staticmethod
    def read(folder: Path) -> RestartPoint:
        """Read the restart point of the job.

        Raises
        ------
        ReshapeError : there is none, or it is not readable.
        """
        path = folder / RESTART_FILE
        mend = "submit the job again"
        try:
            point = pickle.loads(path.read_bytes())
        except FileNotFoundError:
            raise ReshapeError(f"cannot restart: there is no {path}; {mend}") from None
        except Exception as error:
            raise ReshapeError(f"cannot restart from {path}: {error}; {mend}") from None
        if not isinstance(point, RestartPoint):
            raise ReshapeError(f"cannot restart from {path}: it is no restart point; {mend}")
        return point

    def load_state(self) -> dict[str, Any]:
        """Give the values of `app.state`.

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
        """End the resize: from here on the job's processes hold the only state."""
        (folder / RESTART_FILE).unlink(missing_ok=True)
