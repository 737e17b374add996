"""How a job grows and shrinks: one transaction over MPI, committed or rolled back by all ranks.

A job is made of groups, each an mpiexec world of its own. The running job accepts, the group that
joins connects; never the other way round, for connecting to a dead process can take the running job
down. Both kinds of resize go through the same steps::

    stop      all ranks have stopped computing; rank 0 writes the restart point
    join      (growth) port, accept, merge; the group that joins says what it has registered
    plan      who sends what to whom
    move      new segments beside the old ones, the exchange, and the checksums if asked
    commit    rank 0 removes the restart point: from here on the new segments are the data

Up to the commit every rank agrees on every failure it can see, and all go back to the old segments.
A failure that nobody can agree on any more, such as a process that dies within a collective call,
leaves the restart point behind for whoever watches the job from outside.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from reshape.data.arrays import Declaration, difference
from reshape.data.job import Job, Outcome
from reshape.data.ragged import pack_all
from reshape.data.segments import sweep
from reshape.errors import ReshapeError
from reshape.resizing.move import Move, RolledBackError, agree, relay, timed
from reshape.resizing.rank_order import reordered
from reshape.resizing.restart_point import RestartPoint
from reshape.topology import Topology
from reshape.wire.messages import Join, Leave

log = logging.getLogger(__name__)

CANCEL = "cancel"  # what `reshape.resizing.stand_in` says in place of a Newcomer
LEFT = "this process has left the job"


class Newcomer(NamedTuple):
    """First word of a group that joins, broadcast by its rank 0."""

    group: int
    size: int
    total: int
    signature: tuple[Declaration, ...]


class Place(NamedTuple):
    """Answer of the job's rank 0: why the group is not taken, or where the job stands."""

    why: str
    serial: int = 0
    iteration: int = 0
    groups: tuple[int, ...] = ()
    verify: bool = False
    topology: Topology | None = None
    state: bytes = b""


# ---------------------------------------------------------------- the two sides of a resize


def expand(job: Job, order: Join, announce: Callable[[int, str], None]) -> Outcome:
    """Collective over job.comm. Take a group in, or go on as before.

    Parameters
    ----------
    announce : called on rank 0 with the serial and the name of the port that is about to accept.
    """
    outcome, old = Outcome(order.serial), job.comm
    merged: MPI.Intracomm | None = None
    try:
        with timed(outcome, "join_s"):
            state = stop(job)
            merged = accept(job, order.serial, announce)
            groups = admit(job, order, merged, state)
        moves, ranks = relay(job, merged, range(old.size), range(merged.size), outcome)
        with timed(outcome, "resume_s"):
            commit(job, merged, moves, order.serial)
            go_on_as(job, merged, groups, ranks)
            old.Free()
    except RolledBackError as reason:
        outcome.why = str(reason)
        if merged is not None:
            part(job, merged)
        go_on(job)
    return outcome


def join(job: Job, port: str) -> None:
    """Collective over job.comm. Connect to the running job on `port` and become part of it.

    Raises
    ------
    RolledBackError : the job goes on without this group.
    """
    merged, own = connect(job, port), job.comm
    old_size = merged.size - own.size
    try:
        place, state = introduce(job, merged)
        job.iteration, job.verify, job.topology = place.iteration, place.verify, place.topology
        outcome = Outcome(place.serial)
        moves, ranks = relay(job, merged, range(old_size), range(merged.size), outcome)
        commit(job, merged, moves, place.serial)
        go_on_as(job, merged, place.groups, ranks)
        job.last = outcome
        job.state.clear()
        job.state.update(state)
        own.Free()
    except RolledBackError:
        part(job, merged)
        raise


def contract(job: Job, order: Leave) -> Outcome:
    """Collective over job.comm. Let groups go; those who leave have COMM_NULL afterwards."""
    outcome, old = Outcome(order.serial), job.comm
    stay = [rank for rank, group in enumerate(job.groups) if group not in order.groups]
    try:
        with timed(outcome, "join_s"):
            check_leave(job, order, stay)
            stop(job)
        moves, ranks = relay(job, old, range(old.size), stay, outcome)
        with timed(outcome, "resume_s"):
            commit(job, old, moves, order.serial)
            go_on_as(job, old, job.groups, ranks)
            disconnect(job)
    except RolledBackError as reason:
        outcome.why = str(reason)
        go_on(job)
    return outcome


# ---------------------------------------------------------------- the steps


def stop(job: Job) -> bytes:
    """Collective over job.comm. Wait until all have stopped, then write the restart point.

    Returns
    -------
    the pickled state on rank 0, elsewhere nothing.

    Raises
    ------
    RolledBackError : `app.state` or an item cannot be pickled, or the restart point not written.
    """
    if job.ragged:
        agree(job.comm, pack_all(job))
    outlives = job.folder is not None and all(
        array.segment is not None and array.segment.outlives for array in job.arrays.values()
    )
    # Nobody's data changes any more once all have come here; only then may rank 0 write.
    outlives = job.comm.allreduce(outlives, MPI.LAND)
    state, why = b"", ""
    if job.comm.rank == 0:
        try:
            state = pickle.dumps(dict(job.state))
            if outlives and job.folder is not None:
                cuts = {name: ragged.cuts for name, ragged in job.ragged.items()}
                place = (job.epoch, job.iteration, job.comm.size)
                RestartPoint(*place, job.signature, state, cuts).write(job.folder)
        except Exception as error:  # pickling runs code of the user's classes
            why = f"app.state or the restart point cannot be saved: {error}"
        if not outlives and not job.told_no_restart:
            job.told_no_restart = True
            log.warning(
                "no restart point, for not all arrays are in shared memory: if processes die "
                "within a resize, the job is lost"
            )
    agree(job.comm, why)
    return state


def accept(job: Job, serial: int, announce: Callable[[int, str], None]) -> MPI.Intracomm:
    """Collective over job.comm. Open a port, say so, and merge with whoever connects.

    Raises
    ------
    RolledBackError : no port, or nobody who would send the group there.
    """
    port, why = "", ""
    if job.comm.rank == 0:
        try:
            port = MPI.Open_port()
            announce(serial, port)
        except (MPI.Exception, ReshapeError) as error:
            why = f"no group can join: {error}"
    try:
        agree(job.comm, why)
        job.held.append(job.comm.Accept(port))
    finally:
        if port:
            MPI.Close_port(port)
    return merge(job.held[-1], high=False)


def connect(job: Job, port: str) -> MPI.Intracomm:
    """Collective over job.comm. Connect to the running job and merge with it."""
    job.held.append(job.comm.Connect(port))
    return merge(job.held[-1], high=True)


def merge(tie: MPI.Intercomm, high: bool) -> MPI.Intracomm:
    """Collective over tie. Make one communicator of both sides; those who are `high` come last."""
    return tie.Merge(high)


def admit(job: Job, order: Join, merged: MPI.Intracomm, state: bytes) -> tuple[int, ...]:
    """Collective over merged. Hear what the group that joins is, and tell it where the job stands.

    Returns
    -------
    the group of each rank of `merged`.

    Raises
    ------
    RolledBackError : it is not the expected group, or a stand-in that says "cancel".
    """
    word: Newcomer | str = merged.bcast(None, root=job.comm.size)
    if not isinstance(word, Newcomer):
        raise RolledBackError("the group that was to join is gone")
    groups = job.groups + (word.group,) * word.size
    place = Place(
        _objection(job, order, word),
        order.serial,
        job.iteration,
        groups,
        job.verify,
        job.topology,
        state,
    )
    place = merged.bcast(place, root=0)
    if place.why:
        raise RolledBackError(place.why)
    agree(merged, "")  # that the other side can read the state
    return groups


def introduce(job: Job, merged: MPI.Intracomm) -> tuple[Place, dict[str, Any]]:
    """Collective over merged. Say what this group is, and hear where the job stands.

    Returns
    -------
    place of the job, and its state.

    Raises
    ------
    RolledBackError : the job does not take this group.
    """
    word = Newcomer(job.group, job.comm.size, job.total, job.signature)
    merged.bcast(word, root=merged.size - job.comm.size)
    place: Place = merged.bcast(None, root=0)
    if place.why:
        raise RolledBackError(place.why)
    state, why = dict[str, Any](), ""
    try:
        state = pickle.loads(place.state)
    except Exception as error:  # unpickling runs code of the user's classes
        why = f"app.state cannot be restored where the group starts: {error}"
    agree(merged, why)
    return place, state


def _objection(job: Job, order: Join, word: Newcomer) -> str:
    """Why the group that knocks cannot be taken."""
    if (word.group, word.size) != (order.group, order.size):
        return (
            f"expected group {order.group} of {order.size} processes, "
            f"met group {word.group} of {word.size}"
        )
    if word.total != job.total:
        return (
            f"the job runs app.iterations({job.total}), the group that joins {word.total}: "
            "the number must not depend on when a process starts"
        )
    return difference(job.signature, word.signature)


def check_leave(job: Job, order: Leave, stay: Sequence[int]) -> None:
    """Refuse to let groups go that are not there, or all of them.

    Raises
    ------
    RolledBackError : on every rank alike.
    """
    unknown = sorted(set(order.groups) - set(job.groups))
    if unknown or not stay:
        what = f"groups {unknown} are not part of it" if unknown else "no group would be left"
        raise RolledBackError(
            f"groups {order.groups} cannot leave a job of groups {sorted(set(job.groups))}: {what}"
        )


def commit(job: Job, comm: MPI.Intracomm, moves: Sequence[Move], serial: int) -> None:
    """Collective over comm. Make the new segments the data of the job."""
    comm.Barrier()  # all have moved and verified
    if comm.rank == 0 and job.folder is not None:
        RestartPoint.remove(job.folder)  # the commit
    comm.Barrier()  # only now may the old segments go
    for move in moves:
        if move.segment is not None:
            move.array.place(move.target, move.segment)
        else:
            move.array.vacate(f"array {move.array.name!r}: {LEFT}")
    stays = all(move.segment is not None for move in moves)
    for ragged in job.ragged.values():
        if stays:
            ragged.commit()
        else:
            ragged.vacate(f"{ragged.declaration.kind} {ragged.name!r}: {LEFT}")
    job.epoch = serial


def go_on_as(job: Job, comm: MPI.Intracomm, groups: Sequence[int], ranks: Sequence[int]) -> None:
    """Collective over comm. Let these ranks be the job, in this order; `groups` are all ranks'."""
    job.groups = tuple(groups[rank] for rank in ranks)
    job.comm = reordered(comm, ranks)


def go_on(job: Job) -> None:
    """Collective over job.comm. Remove the restart point, then let all compute on as before."""
    if job.comm.rank == 0 and job.folder is not None:
        RestartPoint.remove(job.folder)
    job.comm.Barrier()  # nobody changes data while it stands
    for ragged in job.ragged.values():
        ragged.roll_back()


def restarted(job: Job) -> None:
    """Collective over job.comm. Give up the restart point, once all have their data from it."""
    job.comm.Barrier()
    if job.comm.rank == 0 and job.folder is not None:
        sweep(job.folder, keep_epoch=job.epoch)
    go_on(job)


def part(job: Job, merged: MPI.Intracomm) -> None:
    """Collective over merged. Undo a merge."""
    merged.Free()
    job.held.pop().Disconnect()


def disconnect(job: Job) -> None:
    """Collective over all groups of the job. Cut what ties this process to groups it joined.

    The communicator of those who stay works on without it. A world can end only once all that it
    was tied to have done this.
    """
    while job.held:
        job.held.pop(0).Disconnect()
