"""A wall clock that a test sets, for this process and for processes that it starts."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Run by each Python process at its start, before any module takes `time.time`.
_CUSTOMIZE = """
import os, time

def _time(path={path!r}, clock=time.clock_gettime, realtime=time.CLOCK_REALTIME):
    with open(path) as file:
        return clock(realtime) + float(file.read())

time.time = _time
"""


class WallClock:
    """The wall clock of the machine plus an offset in a file.

    Parameters
    ----------
    folder : for the file and for the module that makes Python processes read it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._file = folder, folder / "ahead_s"
        self.set_forward(0.0)
        (folder / "sitecustomize.py").write_text(_CUSTOMIZE.format(path=str(self._file)))

    def set_forward(self, seconds: float) -> None:
        """Set the clock forward; back if the number is negative."""
        before = float(self._file.read_text()) if self._file.exists() else 0.0
        draft = self._file.with_suffix(".new")
        draft.write_text(str(before + seconds))
        draft.replace(self._file)

    def __call__(self) -> float:
        """Return the time that the clock shows, Unix seconds."""
        return time.clock_gettime(time.CLOCK_REALTIME) + float(self._file.read_text())

    def environment(self) -> dict[str, str]:
        """Return what makes Python processes read this clock by `time.time`."""
        before = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(self._folder), before)))}
