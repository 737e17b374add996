"""Files in the shared-memory folder of a job that agents read: its restart point, where ranks are.

The restart file exists exactly while a resize is under way (`reshape.resizing.restart_point`).

The positions are a slot of shared memory for each rank, in one file for each host. A rank that
leaves the loop alone, or waits for one that did, sends no message. Each rank therefore notes its
loop and iteration in its slot, which costs about 0.1 us an iteration, and others read the slots
when they want to know (`read_positions`): the agent of the host, when a job is late.

A slot has `WORDS` numbers, all double: process, group, rank in the job, loop, place in it, and the
monotonic time at which the rank came to its last resize point. The place n is iteration n; n + 0.5
is the resize point after it; `OVER` is behind the loop. The process number 0 means a free slot. A
rank takes a free slot, or that of a process that has ended, so that the file has at most as many
slots as ranks were there at a time.

This module imports no numerical library, so that agents start fast.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder

RESTART_FILE, POSITIONS_FILE = "restart.msgpack", "positions"
#: Numbers of a slot, and indices of those that change in each iteration.
WORDS, PLACE, AT = 8, 4, 5
#: Place of a rank that has left its loop.
OVER = -1.0
#: Slots in the file of a host, at most.
MOST_SLOTS = 1 << 14
_SLOT = struct.Struct(f"{WORDS}d")
_PID, _GROUP, _RANK, _LOOP = range(4)
_NOWHERE = -1.0
#: Attempts to lock the file, one after another, and seconds between them.
_ATTEMPTS, _PAUSE_S = 100, 0.01


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
        """Take a slot in the folder of a job; private memory if there is none to be had.

        The rank is nowhere until `enter`.
        """
        try:
            with open_folder(folder, create=True) as directory:
                file = open_file(directory, POSITIONS_FILE, os.O_RDWR | os.O_CREAT)
            try:
                with _locked(file):
                    return Slot(_claimed(file, group))
            finally:
                os.close(file)
        except (OSError, ReshapeError):
            return Slot()

    def enter(self, loop: int, iteration: int, rank: int) -> None:
        """Note that the rank is about to begin an iteration of a loop."""
        self.words[PLACE], self.words[AT] = iteration, time.monotonic()
        self.words[_LOOP], self.words[_RANK] = loop, rank

    def leave(self) -> None:
        """Note that the rank has left its loop."""
        self.words[PLACE], self.words[AT] = OVER, time.monotonic()

    def free(self) -> None:
        """Give the slot to another process."""
        self.words[_PID] = 0
        self.words = [0.0] * WORDS


def read_positions(folder: Path) -> list[Position]:
    """Return where the ranks on this host are that are in the job and have begun a loop.

    Parameters
    ----------
    folder : the shared-memory folder of the job.

    Returns
    -------
    by rank; empty if the file cannot be read.
    """
    try:
        with open_folder(folder) as directory:
            file = open_file(directory, POSITIONS_FILE, os.O_RDONLY)
        try:
            data = os.read(file, MOST_SLOTS * _SLOT.size)
        finally:
            os.close(file)
    except (OSError, ReshapeError):
        return []
    now, found = time.monotonic(), list[Position]()
    for words in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]):
        pid, group, rank, loop, place, at, *_ = words
        if not all(map(isfinite, words)) or min(pid - 1, rank, loop) < 0 or not _runs(int(pid)):
            continue
        iteration = int(place) if place >= 0 else -1
        is_at_point = iteration >= 0 and place != iteration
        numbers = int(pid), int(group), int(rank), int(loop), iteration
        found.append(Position(*numbers, is_at_point, max(0.0, now - at)))
    return sorted(found, key=lambda position: position.rank)


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


@contextmanager
def _locked(file: int) -> Iterator[None]:
    """Lock a file for the block.

    Raises
    ------
    BlockingIOError : another process, which may be stopped, has locked it for a second.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # a mapping keeps a descriptor of its own open


def _claimed(file: int, group: int) -> memoryview[float]:
    """Map a slot that no process uses, in a file that is locked.

    Raises
    ------
    OSError : there is no room.
    """
    data = os.read(file, MOST_SLOTS * _SLOT.size)
    pids = [int(words[_PID]) for words in _SLOT.iter_unpack(data)]
    number = next((k for k, pid in enumerate(pids) if not _runs(pid)), len(pids))
    if number == MOST_SLOTS:
        raise OSError(errno.ENOSPC, "too many ranks")
    page, place = divmod(number, mmap.ALLOCATIONGRANULARITY // _SLOT.size)
    begin, length = page * mmap.ALLOCATIONGRANULARITY, mmap.ALLOCATIONGRANULARITY
    if number == len(pids):
        os.posix_fallocate(file, begin, length)
    mapped = memoryview(mmap.mmap(file, length, offset=begin)).cast("d")
    words = mapped[place * WORDS : (place + 1) * WORDS]
    for word, value in enumerate((os.getpid(), group, _NOWHERE, _NOWHERE, OVER, 0.0)):
        words[word] = value
    return words


def _runs(pid: int) -> bool:
    """Whether there is a process of this number."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
