"""Where a job communicates with its service: start, restart, join of a group, resize points.

A group is one world and can only leave as a whole. A job that is to contract therefore starts with
several groups, and restarts with those that it had. The first group accepts the others in turn, and
those that it has accepted accept with it. The groups may be on different hosts, so the names of the
ports go through the service. Groups that join a job together assemble in the same way before the
job accepts them, so that it accepts once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import NoReturn

import numpy as np
from mpi4py import MPI

from reshape.data.each_size import ClosingError
from reshape.data.equal_ranks import check_copies, check_state
from reshape.data.job_context import JobContext
from reshape.errors import ReshapeError
from reshape.ranks.abort import abort
from reshape.ranks.agree import RolledBackError, barrier, found_by
from reshape.resizing.joining import Address, accept, connect
from reshape.resizing.rank_order import prepare
from reshape.resizing.transaction import contract, expand, join
from reshape.topology import Topology
from reshape.wire.link import Link, PointAnswer
from reshape.wire.messages import Abandon, AtResizePoint, Connect, Join, Proceed


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
    welcome = found_by(job.comm, partial(link.hello, size, topology))
    if welcome is None:
        return
    if verify is None:
        job.verify = welcome.verify
    if topology is None:
        job.topology = welcome.topology
    elif welcome.topology not in (None, topology):
        raise ReshapeError(
            f"the program declares topology {topology}, it was submitted with "
            f"{welcome.topology}: submit it with --topology {topology}, or without"
        )


def assemble(job: JobContext, sizes: Mapping[int, int], link: Link) -> None:
    """Collective over the job.comm of these groups. Make job.comm that of all of them.

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
            f"group {job.group} starts with {own.size} processes, expected {dict(sizes)}: mpi4py is"
            " bound to another MPI than the mpiexec in use; see 'reshape doctor'"
        )
    ranks: list[int] = []
    for group, size in sizes.items():
        is_earlier = job.group in ranks
        ranks += [group] * size
        if group == job.group and group != ranks[0]:
            answer = await_port(own, link)
            if isinstance(answer, Abandon):
                raise ReshapeError(f"this group cannot start: {answer.why}")
            merged = connect(job, Address.parse(answer.port).port)
        elif is_earlier:
            merged = accept(job, group, link.announce_group)
        else:
            continue
        job.comm.Free()
        job.comm, job.groups = merged, tuple(ranks)


def await_join(job: JobContext, link: Link) -> Address:
    """Collective over job.comm. Wait until the running job accepts this group, or these groups.

    Raises
    ------
    SystemExit : code 0, the job continues without this group.
    """
    before = sum(link.who.groups.values())
    prepare(job, before)
    if before:
        job.expect_size(before + job.comm.size, before + job.comm.rank)
    job.spares.wait()
    barrier(job.comm)  # the group is ready when all of its ranks are
    answer = await_port(job.comm, link)
    if isinstance(answer, Abandon):
        _end(job, answer.why)
    return Address.parse(answer.port)


def join_job(job: JobContext, address: Address) -> None:
    """Collective over job.comm. Join the running job, which is in the loop `job.loop`.

    Raises
    ------
    SystemExit : code 0, the job continues without this group.
    """
    try:
        join(job, address.port)
    except RolledBackError as reason:
        _end(job, str(reason))
    job.open_each_size()


def _end(job: JobContext, why: str) -> NoReturn:
    """End this process, which is not needed by the job."""
    if job.comm.rank == 0:
        groups = [str(group) for group in dict.fromkeys(job.groups)]
        who = f"group {groups[0]} does" if len(groups) == 1 else f"groups {', '.join(groups)} do"
        print(f"reshape: {who} not join: {why}", file=sys.stderr)
    raise SystemExit(0)


def await_port(comm: MPI.Intracomm, link: Link) -> Connect | Abandon:
    """Collective over comm. Wait until the job accepts this group, or does not need it."""
    return found_by(comm, partial(link.wait_for_port, comm.size))


def resize_point(job: JobContext, link: Link) -> None:
    """Collective over job.comm. Ask the service for a decision, if it is time to, and carry it out.

    Raises
    ------
    SystemExit : code 0, this process has left the job.
    """
    decision: PointAnswer = Proceed()
    if job.comm.rank == 0 and job.pace.is_due():
        question = AtResizePoint(
            job=link.who.job,
            token=link.who.token,
            epoch=job.epoch,
            size=job.comm.size,
            registered_bytes=job.registered_bytes,
            iteration=job.done,
            iteration_s=job.pace.taken(),
            topology=job.topology,
            iterations=job.expected or (0 if job.total is None else job.before + job.total),
            requests=None if job.request is None else job.request.pending,
        )
        decision = link.ask(question)
        if not isinstance(decision, Proceed) and decision.serial == job.last.serial:
            link.report(job.last)  # it has ended, but the service has not received the report
            decision = Proceed()
    decision = tell(job.comm, decision)
    if isinstance(decision, Proceed):
        if decision.expands_to:
            job.expect_size(decision.expands_to, job.comm.rank)
        else:
            job.spares.release_if_idle()
        if decision.answers and job.request is not None:
            job.request.answer(decision.declined)
        return
    if job.trial is not None:
        check_state(job.comm, job.state)
        check_copies(job.comm, job.arrays)
    was_first, first_group = job.comm.rank == 0, job.groups[0]
    try:
        if isinstance(decision, Join):
            job.last = expand(job, decision, link.announce)
        else:
            job.last = contract(job, decision)
    except ClosingError as error:
        # At once: a program that catches the error would leave the other ranks waiting.
        abort(error.__cause__ or error, link)
    job.pace.reset()
    if job.comm == MPI.COMM_NULL:
        raise SystemExit(0)
    # The order of the ranks may have changed. The previous rank 0, which measured the pause,
    # reports it unless it has left the job.
    if was_first if first_group in job.groups else job.comm.rank == 0:
        link.report(job.last)
    job.open_each_size()


def tell(comm: MPI.Intracomm, decision: PointAnswer) -> PointAnswer:
    """Collective over comm. Broadcast rank 0's decision, mostly in one small message."""
    expands_to = np.array([-1], np.int64)  # an order or an answer follows
    if isinstance(decision, Proceed) and not decision.answers:
        expands_to[0] = decision.expands_to
    comm.Bcast(expands_to, root=0)
    if expands_to[0] >= 0:
        return Proceed(expands_to=int(expands_to[0]))
    told: PointAnswer = comm.bcast(decision, root=0)
    return told
