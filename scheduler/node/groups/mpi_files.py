"""The files of MPI libraries that the processes of an agent have in shared memory, until removal.

A killed process leaves its files. The agent sees which files a process maps only when it looks.
Files that were created after its last look, or by a process that failed before it mapped them, are
found by their time of change.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from scheduler.node.groups import mpi_memory
from scheduler.node.groups.processes import ProcessTree

log = logging.getLogger(__name__)

#: Delay before files are removed: another process may be about to map them.
REMOVAL_S = 1.0
#: Seconds in which the processes of an agent that was killed created files that it has not seen.
UNSEEN_S = 15.0
#: Seconds for which the removal of a file that is in use is tried again.
RETRY_S = 5.0
_UNSEEN = "unseen-since"


class MpiFiles:
    """Files in use, recorded for the next agent of the node, and files to be removed.

    Parameters
    ----------
    record : path of the record, in a folder of this user alone.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._noted = ""
        self._due: dict[str, float] = {}  # name -> monotonic time of removal

    def remove_left(self) -> None:
        """Remove the files that an earlier agent has left and that no process uses any more."""
        try:
            lines = self._record.read_text().split("\n")
        except OSError:
            return
        names = {line for line in lines if line and not line.startswith(_UNSEEN)}
        for line in lines:
            if line.startswith(_UNSEEN):
                with contextlib.suppress(ValueError):  # the record was being written
                    at = float(line.removeprefix(_UNSEEN))
                    names |= mpi_memory.changed_between(at, at + UNSEEN_S)
        self._write("\n".join(sorted(mpi_memory.remove(names))))

    def note(self, trees: Iterable[ProcessTree]) -> None:
        """Record the files of these processes, and since when there may be others."""
        trees = list(trees)
        lines = sorted(set(self._due).union(*(tree.mpi_files for tree in trees)))
        lines += [f"{_UNSEEN} {min(tree.unseen_since for tree in trees):.3f}"] if trees else []
        self._write("\n".join(lines))

    def _write(self, text: str) -> None:
        if text == self._noted:
            return
        self._noted = text
        try:
            self._record.write_text(text)
        except OSError as error:
            log.warning("cannot write %s: %s", self._record, error.strerror)

    def remove_later(self, tree: ProcessTree) -> None:
        """Remove the files that killed processes have left, also those not seen before."""
        names = tree.mpi_files | mpi_memory.changed_between(tree.unseen_since, time.time())
        self._due |= dict.fromkeys(names, time.monotonic() + REMOVAL_S)

    def remove_due(self) -> None:
        """Remove the files whose time has come."""
        now = time.monotonic()
        due = {name: at for name, at in self._due.items() if now > at}
        in_use = mpi_memory.remove(due) if due else set()
        for name, at in due.items():
            if name not in in_use or now > at + RETRY_S:
                del self._due[name]

    def finish(self) -> None:
        """Remove all files that are due, as soon as possible, and the record."""
        if self._due:
            time.sleep(max(0.0, max(self._due.values()) - time.monotonic()))
            mpi_memory.remove(self._due)
        self._record.unlink(missing_ok=True)
