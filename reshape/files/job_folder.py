"""Files in the shared-memory folder of a job that agents read: its restart point, where ranks are.

The restart file exists exactly while a resize is under way (`reshape.resizing.restart_point`).

A rank that leaves the loop alone, or waits for one that did, sends no message. Each rank therefore
notes its loop and iteration in a file of shared memory, its slot, which costs about 0.1 us an
iteration, and others read the slots when they want to know (`read_positions`): the agent of the
host, when a job is late.

A slot is named after its process, and has `WORDS` numbers, all double: group, rank in the job,
loop, place in it, and the monotonic time at which the rank came to its last resize point. The place
n is iteration n; n + 0.5 is the resize point after it; `OVER` is behind the loop. A process that
makes its slot removes those of processes that have ended.

This module imports no numerical library, so that agents start fast.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder, remove_file

RESTART_FILE, SLOT_PREFIX = "restart.msgpack", "position-"
#: Numbers of a slot, and indices of those that change in each iteration.
WORDS, PLACE, AT = 5, 3, 4
#: Place of a rank that has left its loop.
OVER = -1.0
_SLOT = struct.Struct(f"{WORDS}d")
_SLOT_FILE = re.compile(SLOT_PREFIX + r"(\d{1,10})")
_RANK, _LOOP = 1, 2
_NOWHERE = -1.0


def restart_point_bytes(folder: Path) -> int | None:
    """Size of the restart point of the job with this shared-memory folder; None: there is none.

    It is about that of the pickled `app.state`, which a resize transfers.
    """
    try:
        with open_folder(folder) as directory:
            return os.stat(RESTART_FILE, dir_fd=directory, follow_symlinks=False).st_size
    except (OSError, ReshapeError):
        return None


def has_restart_point(folder: Path) -> bool:
    """Whether a resize of the job with this shared-memory folder is under way."""
    return restart_point_bytes(folder) is not None


class Position(NamedTuple):
    """Where a rank is.

    Attributes
    ----------
    rank : its rank in the job.
    loop : number of the loop of the program, from 0.
    iteration : number of the iteration of the loop; -1: it has left the loop.
    at_point : whether it has finished the iteration, and is at the resize point after it.
    idle_s : time since it came to a resize point, or entered or left the loop, seconds.
    """

    pid: int
    group: int
    rank: int
    loop: int
    iteration: int
    at_point: bool
    idle_s: float


class Slot:
    """The slot of this rank; without a job it is private memory without a reader.

    Attributes
    ----------
    words : its numbers. A loop writes `words[PLACE]` and `words[AT]` itself.
    """

    def __init__(self, words: memoryview[float] | None = None) -> None:
        self.words: memoryview[float] | list[float] = [0.0] * WORDS if words is None else words

    @staticmethod
    def claim(folder: Path, group: int) -> Slot:
        """Make the slot of this process in the folder of a job; private memory if that fails.

        The rank is nowhere until `enter`.
        """
        try:
            with open_folder(folder, create=True) as directory:
                for pid in _pids(directory):
                    if not is_running(pid):
                        remove_file(directory, slot_file(pid))
                file = open_file(directory, slot_file(os.getpid()), os.O_RDWR | os.O_CREAT)
            try:
                os.posix_fallocate(file, 0, _SLOT.size)
                words = memoryview(mmap.mmap(file, _SLOT.size)).cast("d")
            finally:
                os.close(file)
        except (OSError, ReshapeError):
            return Slot()
        for word, value in enumerate((group, _NOWHERE, _NOWHERE, OVER, 0.0)):
            words[word] = value
        return Slot(words)

    def enter(self, loop: int, iteration: int, rank: int) -> None:
        """Note that the rank is about to begin an iteration of a loop."""
        self.words[PLACE], self.words[AT] = iteration, time.monotonic()
        self.words[_LOOP], self.words[_RANK] = loop, rank

    def leave(self) -> None:
        """Note that the rank has left its loop."""
        self.words[PLACE], self.words[AT] = OVER, time.monotonic()

    def free(self) -> None:
        """Note that the rank has left the job."""
        self.words[_RANK] = _NOWHERE
        self.words = [0.0] * WORDS


def read_positions(folder: Path) -> list[Position]:
    """Return where the ranks on this host are that are in the job and have begun a loop.

    Parameters
    ----------
    folder : the shared-memory folder of the job.

    Returns
    -------
    by rank; without those whose slots cannot be read.
    """
    now, positions = time.monotonic(), list[Position]()
    with suppress(OSError, ReshapeError), open_folder(folder) as directory:
        for pid in filter(is_running, _pids(directory)):
            with suppress(OSError, ReshapeError, struct.error):
                group, rank, loop, place, at = words = _words(directory, pid)
                if not all(map(isfinite, words)) or min(rank, loop) < 0:
                    continue
                iteration = int(place) if place >= 0 else -1
                is_at_point = iteration >= 0 and place != iteration
                numbers = pid, int(group), int(rank), int(loop), iteration
                positions.append(Position(*numbers, is_at_point, max(0.0, now - at)))
    return sorted(positions, key=lambda position: position.rank)


def _words(folder: int, pid: int) -> tuple[float, ...]:
    """Numbers of the slot of a process in an open folder; its user may have made it any file."""
    file = open_file(folder, slot_file(pid), os.O_RDONLY)
    try:
        return _SLOT.unpack(os.read(file, _SLOT.size + 1))
    finally:
        os.close(file)


def slot_file(pid: int) -> str:
    """Name of the slot of a process."""
    return f"{SLOT_PREFIX}{pid}"


def _pids(folder: int) -> list[int]:
    """Processes that have a slot in an open folder."""
    return [int(match[1]) for match in map(_SLOT_FILE.fullmatch, os.listdir(folder)) if match]


def place_text(loop: int, iteration: int, at_point: bool, several: bool) -> str:
    """Words for a place in a program.

    Parameters
    ----------
    loop, iteration, at_point : as in `Position`.
    several : whether the program has several loops.
    """
    name = f"loop {loop + 1}" if several else "the loop"
    if iteration < 0:
        return f"behind {name}"
    of_loop = f" of {name}" if several else ""
    where = "at the resize point after" if at_point else "in"
    return f"{where} iteration {iteration}{of_loop}"


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        # The name of the process, in brackets, may be any bytes.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    except OSError:
        return False
