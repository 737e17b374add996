"""The agreement of all ranks on whether a resize continues."""

from __future__ import annotations

from mpi4py import MPI

from reshape.errors import ReshapeError


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
