"""What all ranks of a job decide or wait for together.

MPI waits by polling. In a resize there may be more ranks than cores, and a rank that polls delays
those that it waits for by milliseconds. Therefore the ranks sleep while they wait
(`redistribution.messages.waiting`).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from redistribution.messages.waiting import wait
from reshape.errors import ReshapeError

_T = TypeVar("_T")
_LATER_BYTES = 65536  # more than the name of a port or a reason takes
_SLEEP_S = 0.005


class RolledBackError(ReshapeError):
    """The resize is rolled back; raised at the same step on every rank that takes part."""


def agree(comm: MPI.Intracomm, why: str) -> None:
    """Collective over comm. Return only if no rank has a reason to roll back.

    Parameters
    ----------
    why : this rank's reason; empty if it has none.

    Raises
    ------
    RolledBackError : on every rank, with the reason of the lowest rank that has one.
    """
    for reason in _gathered(comm, why.encode()):
        if reason:
            raise RolledBackError(reason.decode())


def all_values(comm: MPI.Intracomm, value: _T) -> list[_T]:
    """Collective over comm. Return the small value of each rank, in the order of the ranks."""
    return [pickle.loads(data) for data in _gathered(comm, pickle.dumps(value))]


def value_of(comm: MPI.Intracomm, value: _T, root: int) -> _T:
    """Collective over comm. Return on all ranks the small value of the rank `root`."""
    data = pickle.dumps(value) if comm.rank == root else b""
    size = np.array([len(data)], np.int64)
    wait([comm.Ibcast(size, root)])
    buffer = bytearray(data) if comm.rank == root else bytearray(size[0])
    wait([comm.Ibcast([buffer, MPI.BYTE], root)])
    answer: _T = pickle.loads(buffer)
    return answer


def barrier(comm: MPI.Intracomm) -> None:
    """Collective over comm. Return when all ranks have called this."""
    wait([comm.Ibarrier()])


def _gathered(comm: MPI.Intracomm, data: bytes) -> list[bytes]:
    """Collective over comm. Return the bytes of each rank."""
    sizes = np.empty(comm.size, np.int64)
    wait([comm.Iallgather(np.array([len(data)], np.int64), sizes)])
    ends = list(accumulate(sizes.tolist(), initial=0))
    if not ends[-1]:  # no rank has a reason to roll back
        return [b""] * comm.size
    gathered = bytearray(ends[-1])
    wait([comm.Iallgatherv([data, MPI.BYTE], [gathered, sizes.tolist(), ends[:-1], MPI.BYTE])])
    return [bytes(gathered[a:b]) for a, b in pairwise(ends)]


def wait_on_first_rank(comm: MPI.Intracomm, find: Callable[[], _T]) -> _T:
    """Collective over comm. Return on all ranks what `find` returns on rank 0.

    The other ranks sleep meanwhile, because other processes use the same processors.
    """
    buffer = bytearray(_LATER_BYTES)
    if comm.rank == 0:
        result = pickle.dumps(find())
        buffer[: len(result)] = result
    request = comm.Ibcast([buffer, MPI.BYTE], root=0)
    while not request.Test():
        time.sleep(_SLEEP_S)
    answer: _T = pickle.loads(buffer)
    return answer
