"""What all ranks of a job decide or wait for together."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import TypeVar

from mpi4py import MPI

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
    for reason in comm.allgather(why):
        if reason:
            raise RolledBackError(reason)


def wait_on_first_rank(comm: MPI.Intracomm, wait: Callable[[], _T]) -> _T:
    """Collective over comm. Return on all ranks what `wait` returns on rank 0.

    The other ranks sleep meanwhile, because other processes use the same processors.
    """
    buffer = bytearray(_LATER_BYTES)
    if comm.rank == 0:
        result = pickle.dumps(wait())
        buffer[: len(result)] = result
    request = comm.Ibcast([buffer, MPI.BYTE], root=0)
    while not request.Test():
        time.sleep(_SLEEP_S)
    answer: _T = pickle.loads(buffer)
    return answer
