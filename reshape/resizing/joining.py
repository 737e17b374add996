"""How groups become one communicator, and what a joining group and the job tell each other.

The side that was there before accepts on a port of MPI, and the other one connects; both merge. In
a resize the joining group then sends what its program has registered, and the job answers with its
state. Then all ranks agree, and the job may have a reason to reject the group. Groups that start or
join together become one communicator in the same way, without these messages
(`reshape.resizing.resize_points`).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from mpi4py import MPI

from reshape.data.job_context import JobContext, ProgramOutline
from reshape.errors import ReshapeError
from reshape.ranks.agree import RolledBackError, agree, agreed, value_of
from reshape.wire.messages import Join

CANCEL = "cancel"  # message of `reshape.resizing.stand_in` in place of JoiningGroup


class JoiningGroup(NamedTuple):
    """First message of what joins, broadcast by its rank 0: one group, or several together.

    Attributes
    ----------
    groups : group of each of its ranks.
    """

    groups: tuple[int, ...]
    program: ProgramOutline


class Address(NamedTuple):
    """Where the job accepts a group: its MPI port, and the loop of the program that it is in.

    The service passes its text on as the name of a port. A group that joins runs through the
    earlier loops of the program before it connects.
    """

    port: str
    loop: int = 0

    def __str__(self) -> str:
        """Text from which `parse` makes an equal address."""
        return f"{self.port} loop={self.loop}" if self.loop else self.port

    @staticmethod
    def parse(text: str) -> Address:
        """Read the text of an address."""
        port, separator, loop = text.rpartition(" loop=")
        return Address(port, int(loop)) if separator else Address(text)


#: Fields of a `JobContext` that a group takes over when it joins.
_TOLD = ("epoch", "iteration", "done", "verify", "topology", "request", "expected")


class JobStatus(NamedTuple):
    """Answer of the job's rank 0: the state of the job.

    Attributes
    ----------
    state : pickled values of `app.state`.
    told : the fields `_TOLD` of the job.
    """

    serial: int
    groups: tuple[int, ...]
    state: bytes
    since_checkpoint_s: float
    told: dict[str, Any]


def accept(job: JobContext, serial: int, announce: Callable[[int, str], None]) -> MPI.Intracomm:
    """Collective over job.comm. Open a port, announce it, and merge with the group that connects.

    Raises
    ------
    RolledBackError : no port can be opened or announced.
    """
    port = ""
    try:
        with agreed(job.comm, "no group can join", MPI.Exception, ReshapeError):
            if job.comm.rank == 0:
                port = MPI.Open_port()
                announce(serial, str(Address(port, job.loop)))
        job.held.append(job.comm.Accept(port))
    finally:
        if port:
            MPI.Close_port(port)
    return merge(job.held[-1], high=False)


def connect(job: JobContext, port: str) -> MPI.Intracomm:
    """Collective over job.comm. Connect to the running job and merge with it."""
    job.held.append(job.comm.Connect(port))
    return merge(job.held[-1], high=True)


def merge(tie: MPI.Intercomm, high: bool) -> MPI.Intracomm:
    """Collective over tie. Merge both sides; the ranks of the side with `high` come last.

    It is a function because tests let processes die before and after it, as at other steps.
    """
    return tie.Merge(high)


def admit(job: JobContext, order: Join, merged: MPI.Intracomm, state: bytes) -> tuple[int, ...]:
    """Collective over merged. Check the joining group, and send it the state of the job.

    Returns
    -------
    the group of each rank of `merged`.

    Raises
    ------
    RolledBackError : it is not the expected group, or it is a stand-in.
    """
    joining: JoiningGroup | str | None = value_of(merged, None, root=job.comm.size)
    if not isinstance(joining, JoiningGroup):
        raise RolledBackError("the group that was to join is gone")
    groups = job.groups + joining.groups
    since_checkpoint_s = time.monotonic() - job.checkpointed_at
    told = {name: getattr(job, name) for name in _TOLD}
    value_of(merged, JobStatus(order.serial, groups, state, since_checkpoint_s, told), root=0)
    agree(merged, _objection(job, order, joining))  # and whether the group can unpickle the state
    return groups


def introduce(job: JobContext, merged: MPI.Intracomm) -> tuple[JobStatus, dict[str, Any]]:
    """Collective over merged. Introduce this group, and receive the state of the job.

    Returns
    -------
    status of the job, and the values of `app.state`.

    Raises
    ------
    RolledBackError : the job rejects this group.
    """
    joining = JoiningGroup(job.groups, job.program)
    value_of(merged, joining, root=merged.size - job.comm.size)
    status: JobStatus | None = value_of(merged, None, root=0)
    assert status is not None
    state = dict[str, Any]()
    # Unpickling runs code of the user's classes.
    with agreed(merged, "app.state cannot be restored where the group starts", Exception):
        state = pickle.loads(status.state)
    return status, state


def _objection(job: JobContext, order: Join, joining: JoiningGroup) -> str:
    """Reason to reject a joining group; empty if there is none."""
    group, size = joining.groups[0], len(joining.groups)
    if (group, size) != (order.group, order.size):
        return (
            f"expected group {order.group} of {order.size} processes, got group {group} of {size}"
        )
    return job.program.difference(joining.program, ("the job", "the group that joins"))


def unmerge(job: JobContext, merged: MPI.Intracomm) -> None:
    """Collective over merged. Undo a merge."""
    merged.Free()
    job.held.pop().Disconnect()
