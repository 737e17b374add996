"""Where a job communicates with its service: its start, the join of a group, resize points."""

from __future__ import annotations

import logging
import sys

import numpy as np
from mpi4py import MPI

from reshape.data.job_context import JobContext
from reshape.errors import ReshapeError
from reshape.resizing.agree import RolledBackError, wait_on_first_rank
from reshape.resizing.kept_communicators import kept_communicators
from reshape.resizing.rank_order import prepare
from reshape.resizing.transaction import contract, expand, join
from reshape.topology import Topology
from reshape.wire.link import Decision, Link
from reshape.wire.messages import Abandon, Connect, Join, Leave, Proceed

log = logging.getLogger(__name__)


def greet(job: JobContext, link: Link, topology: Topology | None, verify: bool | None) -> None:
    """Collective over job.comm. Introduce the job, and combine its settings and the submission's.

    Parameters
    ----------
    topology, verify : settings of the program; None: those of the submission apply.

    Raises
    ------
    ReshapeError : the two name different topologies, or the service refuses the job.
    """
    size = job.groups.count(job.group)
    welcome = link.hello(size, topology) if job.comm.rank == 0 else None
    welcome = job.comm.bcast(welcome, root=0)
    if welcome is None:
        return
    job.warns_of_kept = welcome.resizable
    if verify is None:
        job.verify = welcome.verify
    if topology is None:
        job.topology = welcome.topology
    elif welcome.topology not in (None, topology):
        raise ReshapeError(
            f"the program declares topology {topology}, it was submitted with "
            f"{welcome.topology}: submit it with --topology {topology}, or without"
        )


def join_when_asked(job: JobContext, link: Link) -> None:
    """Collective over job.comm. Wait for the running job and join it.

    Raises
    ------
    SystemExit : code 0, the job continues without this group.
    """
    prepare(job)
    answer = await_port(job.comm, link)
    link.close()
    why = answer.why if isinstance(answer, Abandon) else ""
    if not isinstance(answer, Abandon):
        try:
            join(job, answer.port)
        except RolledBackError as reason:
            why = str(reason)
    if why:
        if job.comm.rank == 0:
            print(f"reshape: group {job.group} does not join: {why}", file=sys.stderr)
        raise SystemExit(0)


def await_port(comm: MPI.Intracomm, link: Link) -> Connect | Abandon:
    """Collective over comm. Wait until the job is about to accept this group, or rejects it."""
    return wait_on_first_rank(comm, lambda: link.wait_for_port(comm.size))


def resize_point(job: JobContext, link: Link, iteration_s: float) -> None:
    """Collective over job.comm. Ask the service for a decision, if it is time to, and carry it out.

    Raises
    ------
    SystemExit : code 0, this process has left the job.
    """
    decision: Decision = Proceed()
    if job.warns_of_kept:
        job.warns_of_kept = False
        _warn_of_kept_communicators(job)
    job.pace.passed(iteration_s)
    if job.comm.rank == 0 and job.pace.is_due():
        decision = link.ask(
            epoch=job.epoch,
            size=job.comm.size,
            registered_bytes=job.registered_bytes,
            iteration=job.iteration,
            iteration_s=job.pace.taken(),
            topology=job.topology,
            iterations=job.total,
        )
        if not isinstance(decision, Proceed) and decision.serial == job.last.serial:
            link.report(job.last)  # it has ended, but the service has not received the report
            decision = Proceed()
    decision = tell(job.comm, decision)
    if isinstance(decision, Proceed):
        return
    was_first, first_group = job.comm.rank == 0, job.groups[0]
    if isinstance(decision, Join):
        job.last = expand(job, decision, link.announce)
    else:
        job.last = contract(job, decision)
    job.pace.reset()
    if job.comm == MPI.COMM_NULL:
        raise SystemExit(0)
    # The order of the ranks may have changed. The previous rank 0, which measured the pause,
    # reports it unless it has left the job.
    if was_first if first_group in job.groups else job.comm.rank == 0:
        link.report(job.last)


def _warn_of_kept_communicators(job: JobContext) -> None:
    if job.comm.rank == 0:
        for variable in kept_communicators(job.comm):
            log.warning(
                "variable %s holds a communicator that will not have the processes of the job "
                "after a resize: derive it from app.comm in each iteration, and free it there",
                variable,
            )


def tell(comm: MPI.Intracomm, decision: Decision) -> Decision:
    """Collective over comm. Broadcast rank 0's decision, mostly in one small message."""
    header, groups = np.zeros(4, np.int64), list[int]()
    if isinstance(decision, Join):
        header[:] = 1, decision.serial, decision.group, decision.size
    elif isinstance(decision, Leave):
        groups = decision.groups
        header[:2] = 2, decision.serial
    comm.Bcast(header, root=0)
    kind, serial, group, size = header.tolist()
    if kind == 1:
        return Join(serial=serial, group=group, size=size)
    if kind == 2:
        return Leave(serial=serial, groups=comm.bcast(groups, root=0))
    return Proceed()
