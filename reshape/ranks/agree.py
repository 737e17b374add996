"""What all ranks of a job decide or wait for together.

MPI waits by polling. In a resize there may be more ranks than cores, and a rank that polls delays
those that it waits for by milliseconds. Therefore the ranks sleep while they wait
(`redistribution.messages.waiting`).
"""

from __future__ import annotations

import pickle
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TypeVar, cast

from mpi4py import MPI

from redistribution.messages.waiting import wait_idle
from reshape.errors import ReshapeError

_T = TypeVar("_T")

# Bytes of a value that travel with its length; what is longer follows in a second message.
_AT_ONCE = 504
_LENGTH = struct.Struct("q")
_IDLE_SLEEP_S = 0.002


class RolledBackError(ReshapeError):
    """A step that ranks take together is given up; raised at this step on every one of them."""


def agree(comm: MPI.Intracomm, why: str) -> None:
    """Collective over comm. Return only if no rank has a reason to give the step up.

    Parameters
    ----------
    why : this rank's reason; empty if it has none.

    Raises
    ------
    RolledBackError : on every rank, with the reason of the lowest rank that has one.
    """
    for reason in _gathered(comm, why.encode(errors="backslashreplace"), 0):
        if reason:
            raise RolledBackError(reason.decode())


@contextmanager
def agreed(comm: MPI.Intracomm, what: str, *errors: type[Exception]) -> Iterator[None]:
    """Collective over comm. Let an error in the block on one rank be one on all of them.

    Parameters
    ----------
    what : what has failed, for the error; empty: the errors say it.
    errors : kinds of errors; any other is raised on its rank alone.

    Raises
    ------
    RolledBackError : as in `agree`.
    """
    why = ""
    try:
        yield
    except errors as error:
        why = f"{what}: {error}" if what else str(error)
    agree(comm, why)


def all_values(comm: MPI.Intracomm, value: _T) -> list[_T]:
    """Collective over comm. Return the small value of each rank, in the order of the ranks."""
    return [pickle.loads(data) for data in _gathered(comm, pickle.dumps(value), _AT_ONCE)]


def value_of(comm: MPI.Intracomm, value: _T, root: int) -> _T:
    """Collective over comm. Return on all ranks the small value of the rank `root`."""
    data = pickle.dumps(value) if comm.rank == root else b""
    first = _first(data, _AT_ONCE)
    wait_idle([comm.Ibcast([first, MPI.BYTE], root)])
    (length,) = _LENGTH.unpack_from(first)
    rest = bytearray(data[_AT_ONCE:] if comm.rank == root else max(length - _AT_ONCE, 0))
    if length > _AT_ONCE:
        wait_idle([comm.Ibcast([rest, MPI.BYTE], root)])
    answer: _T = pickle.loads(first[_LENGTH.size :][:length] + rest)
    return answer


def barrier(comm: MPI.Intracomm) -> None:
    """Collective over comm. Return when all ranks have called this."""
    wait_idle([comm.Ibarrier()])


def found_by(comm: MPI.Intracomm, find: Callable[[], _T], root: int = 0) -> _T:
    """Collective over comm. Return on all ranks what `find` returns on one, perhaps in hours.

    The other ranks sleep meanwhile, because other processes use the same processors.

    Raises
    ------
    ReshapeError : on every rank, if `find` raises one.
    """
    result, why = None, ""
    if comm.rank == root:
        try:
            result = find()
        except ReshapeError as error:
            why = str(error)
    broadcast = comm.Ibcast([bytearray(1), MPI.BYTE], root)
    while comm.rank != root and not broadcast.Test():
        time.sleep(_IDLE_SLEEP_S)
    wait_idle([broadcast])
    result, why = value_of(comm, (result, why), root)
    if why:
        raise ReshapeError(why)
    return cast(_T, result)


def _gathered(comm: MPI.Intracomm, data: bytes, at_once: int) -> list[bytes]:
    """Collective over comm. Return the bytes of each rank; `at_once` of them need one call."""
    size = _LENGTH.size + at_once
    gathered = bytearray(comm.size * size)
    wait_idle([comm.Iallgather([_first(data, at_once), MPI.BYTE], [gathered, size, MPI.BYTE])])
    firsts = [gathered[rank * size : (rank + 1) * size] for rank in range(comm.size)]
    lengths = [_LENGTH.unpack_from(first)[0] for first in firsts]
    parts = [bytes(first[_LENGTH.size :][:n]) for first, n in zip(firsts, lengths, strict=True)]
    sizes = [max(n - at_once, 0) for n in lengths]
    if not any(sizes):
        return parts
    ends = list(accumulate(sizes, initial=0))
    rest = bytearray(ends[-1])
    wait_idle([comm.Iallgatherv([data[at_once:], MPI.BYTE], [rest, sizes, ends[:-1], MPI.BYTE])])
    return [part + rest[a:b] for part, (a, b) in zip(parts, pairwise(ends), strict=True)]


def _first(data: bytes, at_once: int) -> bytearray:
    """Length of the data and its first bytes, filled up with zeros."""
    first = _LENGTH.pack(len(data)) + data[:at_once]
    return bytearray(first.ljust(_LENGTH.size + at_once, b"\0"))
