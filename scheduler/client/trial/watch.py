"""Notices that a run of `reshape try` has failed or hangs, and says where its ranks are.

Each rank notes its loop and iteration in shared memory (`reshape.files.positions`), and writes its
stack when it gets a signal (`reshape.data.trial`).
"""

from __future__ import annotations

import os
import re
import sysconfig
import time
from collections.abc import Iterable
from linecache import getline
from pathlib import Path
from typing import NamedTuple

import psutil

import reshape
from reshape.data.trial import NOTE, STACK_SIGNAL
from reshape.files.positions import place_text, read_positions
from scheduler.client.trial.driver import Group, MistakeError, TrialDriver

_EVERY_S = 0.5
_STACKS_S = 5.0  # for the ranks to write their stacks
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)')
_FATAL = "Fatal Python error: "
_MOST_LINES = 15  # of the output of a group that has failed
_STALE = (
    "Under reshape try no process can access the memory that a resize has replaced: read `local`, "
    "and make views of it, again in each iteration"
)


class StackFrame(NamedTuple):
    """A call of a function in a stack."""

    file: str
    line: int
    name: str

    @property
    def is_of_program(self) -> bool:
        """Whether it is in the program, and not in Python, this package or another one."""
        places = [*_LIBRARIES, str(Path(reshape.__file__).parent)]
        return not self.file.startswith((*places, "<"))

    def __str__(self) -> str:
        """Name the place, with the line of the program."""
        text = getline(self.file, self.line).strip()
        return f"{self.file}:{self.line} in {self.name}" + (f": {text}" if text else "")


_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}


class RunWatch:
    """Raises a `MistakeError` when a group has failed, or nothing advances.

    Parameters
    ----------
    stacks : the folder in which processes write their stacks.
    limit_s : a run in which nothing has advanced for so long hangs, seconds.
    """

    def __init__(self, driver: TrialDriver, stacks: Path, limit_s: float) -> None:
        self._driver, self._stacks, self._limit_s = driver, stacks, limit_s
        self._looked_at, self._advanced_at = 0.0, time.monotonic()
        self._seen: object = None
        self._ranks: dict[int, int] = {}  # rank of each process when it was seen last

    def look(self) -> None:
        """Look whether all is well; call it often.

        Raises
        ------
        MistakeError : it is not.
        """
        if why := self.failure():
            raise MistakeError(why)
        now = time.monotonic()
        if now - self._looked_at < _EVERY_S:
            return
        self._looked_at = now
        seen = self._state()
        if seen != self._seen:
            self._seen, self._advanced_at = seen, now
        elif now - self._advanced_at > self._limit_s:
            raise MistakeError(self._hanging())

    def _state(self) -> object:
        """Something that changes when anything advances."""
        groups = self._driver.groups.values()
        output = [(group.number, group.out.stat().st_size) for group in groups]
        positions = read_positions(self._driver.shm)
        self._ranks |= {position.pid: position.rank for position in positions}
        places = [position[:-1] for position in positions]
        ended = [group.process.poll() for group in groups]
        return output, places, ended, self._driver.points, len(self._driver.reports)

    # ------------------------------------------------------------ a group that has failed

    def failure(self) -> str:
        """Why a group has failed; empty if none has.

        It is its signal, the error that it has reported, or its output.
        """
        groups = self._driver.groups.values()
        failed = [g for g in groups if not g.was_killed and g.process.poll() not in (None, 0)]
        if not failed:
            return ""
        crashes = []
        for pid, text in self._texts().items():
            if _FATAL in text:
                what = text.partition(_FATAL)[2].partition("\n")[0]
                crashes.append(f"{self._who(pid)}: {what}, at {_place(frames_of(text))}")
        if crashes:
            return "\n".join([*crashes, _STALE])
        exits = f"a process ends with exit code {failed[0].process.returncode}"
        faults = list(dict.fromkeys(fault.why for fault in self._driver.faults))
        return "\n".join([*(faults or [exits]), *self._tail(failed[0])])

    def _tail(self, group: Group) -> list[str]:
        lines = [line for line in group.text.splitlines() if line.strip()]
        return [f"  | {line}" for line in lines[-_MOST_LINES:]]

    # ------------------------------------------------------------ a run that hangs

    def _hanging(self) -> str:
        """Where each rank is, with the calls of its stack that are in the program."""
        before = {pid: len(text) for pid, text in self._texts().items() if psutil.pid_exists(pid)}
        for pid in before:
            os.kill(pid, STACK_SIGNAL)
        end = time.monotonic() + _STACKS_S
        while any(len(self._texts()[pid]) == length for pid, length in before.items()):
            if time.monotonic() > end:  # one that ends writes none
                break
            time.sleep(_EVERY_S / 10)
        places = {p.pid: p for p in read_positions(self._driver.shm)}
        several = any(p.loop for p in places.values())
        found = list[str]()
        for pid, length in before.items():
            at, where = places.get(pid), "has not begun a loop"
            if at is not None:
                where = f"is {place_text(at.loop, at.iteration, at.at_point, several)}"
            stack = frames_of(self._texts()[pid][length:])
            calls = [f"      {frame}" for frame in stack if frame.is_of_program]
            found.append("\n".join([f"  {self._who(pid)} {where}", *calls]))
        begin = f"nothing has advanced for {self._limit_s:.3g} s: the ranks are apart, or wait"
        return "\n".join([begin, *sorted(found)])

    # ------------------------------------------------------------ helpers

    def _texts(self) -> dict[int, str]:
        """What each process has written: stacks, and lines for the report."""
        files = sorted(self._stacks.iterdir())
        return {int(path.name): path.read_text(errors="replace") for path in files}

    def _who(self, pid: int) -> str:
        """Name a process by its rank, if it was seen in a loop."""
        return f"rank {self._ranks[pid]}" if pid in self._ranks else f"process {pid}"

    def notes(self) -> set[str]:
        """What processes have left for the report."""
        lines = (line for text in self._texts().values() for line in text.splitlines())
        return {line.removeprefix(NOTE) for line in lines if line.startswith(NOTE)}


def frames_of(text: str) -> list[StackFrame]:
    """The calls of the thread that a dump of faulthandler calls the current one."""
    block = text.rpartition("Current thread")[2].partition("\n\n")[0]
    return [StackFrame(f["file"], int(f["line"]), f["name"]) for f in _FRAME.finditer(block)]


def _place(frames: Iterable[StackFrame]) -> str:
    found = list(frames)
    return str(next((f for f in found if f.is_of_program), found[0] if found else "no line"))
