"""Memory that outlives its processes: the local parts of a job's arrays.

Each local part is a file in the job's folder (on a memory file system such as ``/dev/shm``), named
after array, epoch and rank, with a NumPy array on top of its mapping. A resize writes new files
under a new epoch and leaves the old ones alone until it is committed;
`reshape.resizing.restart_point` tells what that is good for.
"""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reshape.errors import ReshapeError

Order = Literal["C", "F"]

log = logging.getLogger(__name__)
# MADV_POPULATE_WRITE of Linux 5.14, for which Python 3.11 has no name: takes three quarters of the
# time of MAP_POPULATE.
_POPULATE_WRITE = 23

_FILE = re.compile(r".+\.e(?P<epoch>\d+)\.r\d+")


@dataclass
class Segment:
    """A local array and the file behind it.

    Attributes
    ----------
    array : the local part; all zeros when new.
    path : its file; None if the memory is private, or if the array has no elements.
    """

    array: NDArray[Any]
    path: Path | None

    @property
    def outlives(self) -> bool:
        """Whether the contents survive the process."""
        return self.path is not None or self.array.size == 0

    def discard(self) -> None:
        """Give the memory back; whoever still holds the array can read but not write it."""
        self.array.flags.writeable = False
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None


def create(
    folder: Path | None,
    name: str,
    epoch: int,
    rank: int,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    order: Order,
) -> Segment:
    """Make the local part of an array, all zeros.

    If the folder has no room, the memory is private, which is logged once in a process: the job can
    run and resize, but not restart if a resize fails badly.

    Parameters
    ----------
    folder : the job's folder; private memory if None.
    name, epoch, rank : array, resize it belongs to, and rank whose part it is.

    Raises
    ------
    MemoryError : there is no private memory either.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if folder is None or size == 0:
        return Segment(np.zeros(shape, dtype, order), None)
    path = _path(folder, name, epoch, rank)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return Segment(_map(path, os.O_CREAT | os.O_EXCL, shape, dtype, order, size), path)
    except OSError as error:
        path.unlink(missing_ok=True)
        _warn_once(folder, error.strerror or str(error))
        return Segment(np.zeros(shape, dtype, order), None)


def reopen(
    folder: Path,
    name: str,
    epoch: int,
    rank: int,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    order: Order,
) -> Segment:
    """Map the local part that another process has left behind; parameters as of `create`.

    Raises
    ------
    ReshapeError : the file is not there or has another length.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size == 0:
        return Segment(np.zeros(shape, dtype, order), None)
    path = _path(folder, name, epoch, rank)
    try:
        _check_length(path, size)
    except ReshapeError as error:
        raise ReshapeError(f"cannot restart: {error}; submit the job again") from None
    return Segment(_map(path, 0, shape, dtype, order, 0), path)


def view(
    folder: Path,
    name: str,
    epoch: int,
    rank: int,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    order: Order,
) -> NDArray[Any]:
    """Map the local part that another process holds now, to read it; parameters as of `create`.

    Raises
    ------
    ReshapeError : the file is not there or has another length.
    OSError : it cannot be mapped.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size == 0:
        return np.zeros(shape, dtype, order)
    path = _path(folder, name, epoch, rank)
    _check_length(path, size)
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    return np.ndarray(shape, dtype, memory, order=order)


def _check_length(path: Path, size: int) -> None:
    """Raise ReshapeError unless the file is there with as many bytes."""
    found = path.stat().st_size if path.exists() else None
    if found != size:
        state = "is missing" if found is None else f"has {found} bytes, expected {size}"
        raise ReshapeError(f"{path} {state}")


def _map(
    path: Path, flags: int, shape: tuple[int, ...], dtype: DTypeLike, order: Order, allocate: int
) -> NDArray[Any]:
    descriptor = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        if allocate:  # now: a folder that is full must be an error here, not a SIGBUS later
            _check_room(descriptor, allocate)
            os.posix_fallocate(descriptor, 0, allocate)
        memory = _present(descriptor)
    finally:
        os.close(descriptor)
    return np.ndarray(shape, dtype, memory, order=order)  # the array keeps the mapping alive


def _present(descriptor: int) -> mmap.mmap:
    """Map a file with all its pages, so that they do not come one by one when they are used."""
    memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED)
    try:
        memory.madvise(_POPULATE_WRITE)
    except OSError:  # a kernel that does not know it
        memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return memory


def _check_room(descriptor: int, size: int) -> None:
    """Raise OSError at once if the file system has less room.

    An allocation that fails in the end would have taken that room from everybody for a while.
    """
    found = os.fstatvfs(descriptor)
    if found.f_blocks and found.f_bavail * found.f_frsize < size:  # without blocks: no limit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@lru_cache
def _warn_once(folder: Path, reason: str) -> None:
    log.warning("arrays go to private memory: %s in %s", reason, folder)


def _path(folder: Path, name: str, epoch: int, rank: int) -> Path:
    return folder / f"{name}.e{epoch}.r{rank}"


def sweep(folder: Path, keep_epoch: int) -> None:
    """Remove the segments of all other epochs: what a resize that did not end has left."""
    for path, epoch in _segments(folder):
        if epoch != keep_epoch:
            path.unlink(missing_ok=True)


def _segments(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir():
        if match := _FILE.fullmatch(path.name):
            yield path, int(match["epoch"])
