"""The groups of a job that restarts connect to each other.

A group is one world and can only leave as a whole. A job therefore restarts with the groups that
it had; otherwise it could not contract. The first group accepts the others in turn, and those that
have joined accept with it. The groups may be on different hosts, so the names of the ports go
through the service.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpi4py import MPI

from reshape.data.job_context import JobContext
from reshape.errors import ReshapeError
from reshape.resizing.agree import wait_on_first_rank
from reshape.resizing.transaction import accept, connect
from reshape.wire.link import Link
from reshape.wire.messages import Abandon


def assemble(job: JobContext, sizes: Mapping[int, int], link: Link) -> None:
    """Collective over the job.comm of all groups. Make job.comm that of the whole job.

    If a group ends, the service ends the others.

    Parameters
    ----------
    sizes : number of processes of each group, the oldest group first.

    Raises
    ------
    ReshapeError : a group has another number of processes, or the service does not need it.
    """
    own = job.comm
    if sizes.get(job.group) != own.size:
        raise ReshapeError(
            f"group {job.group} restarts with {own.size} processes, expected {sizes}: mpi4py is"
            " bound to another MPI than the mpiexec in use; see 'reshape doctor'"
        )
    ranks: list[int] = []
    for group, size in sizes.items():
        is_earlier = job.group in ranks
        ranks += [group] * size
        if group == job.group and group != ranks[0]:
            merged = connect(job, _await_port(own, link))
        elif is_earlier:
            merged = accept(job, group, link.announce_group)
        else:
            continue
        job.comm.Free()
        job.comm, job.groups = merged, tuple(ranks)


def _await_port(comm: MPI.Intracomm, link: Link) -> str:
    """Collective over comm. Wait for the port on which the earlier groups accept this one."""
    answer = wait_on_first_rank(comm, lambda: link.wait_for_port(comm.size))
    if isinstance(answer, Abandon):
        raise ReshapeError(f"this group cannot restart: {answer.why}")
    return answer.port
