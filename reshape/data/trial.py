"""What the processes of a job check under `reshape try`, and no process does otherwise.

- Memory of before a resize becomes inaccessible. A program that uses it ends by a signal, and its
  file of stacks names the line. That something still refers to it proves nothing: `u = x.local` is
  bound until the next iteration of a correct loop.
- `app.state` and the copies of an array have to be equal on all ranks, since a resize spreads those
  of one rank (`reshape.data.equal_ranks`).
- On SIGUSR2 a process writes its stack.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from pathlib import Path

from reshape.data import mapped_files
from reshape.data.segments import Segment

STACK_SIGNAL = signal.SIGUSR2
#: Begin of a line for the report in the file of a process, which otherwise has its stacks.
NOTE = "note: "


class Trial:
    """The checks of this process.

    Parameters
    ----------
    folder : for its file, whose name is the number of the process.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / str(os.getpid())).open("w", buffering=1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(self._file)
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)  # what an interpreter that ends returns to
        faulthandler.register(STACK_SIGNAL, self._file)

    def forbid(self, segment: Segment) -> None:
        """Make a segment that a resize has replaced inaccessible, and remove its file."""
        segment.discard()
        if segment.mapping is not None:
            mapped_files.forbid(segment.mapping)

    def note(self, text: str) -> None:
        """Write a line for the report."""
        self._file.write(f"{NOTE}{text}\n")
