"""The resize transaction: over MPI, and either committed or rolled back by all ranks.

A job consists of groups, each of which is one mpiexec world. The running job accepts and
the joining group connects; several groups that join together are one communicator before. The
other direction is unsafe, because connecting to a dead process can abort the running job.
Expansion and contraction take the same steps::

    close     close what depends on the size, by the functions of `Application.each_size`
    stop      all ranks have stopped computing; rank 0 writes the restart point
    join      (expansion) port, accept, merge; the joining group sends what it has registered
    plan      compute which elements go from which rank to which rank
    move      allocate new segments beside the old ones, exchange the data, compare checksums
    commit    rank 0 removes the restart point: from now on the new segments hold the data

Before the commit, all ranks agree on each failure that a rank reports, and all return to the old
segments; what was closed is then opened again at the old size. A contraction by groups that do not
exist is refused before anything is closed. On some failures the ranks cannot agree, such as the
death of a process within a collective call. The restart point then remains, and the node agent ends
the job's processes so that the service can restart the job. An error of the program while it closes
aborts the job, since other ranks may have closed already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from mpi4py import MPI
from msgspec.structs import replace

from redistribution.messages.waiting import wait_idle
from reshape.data.job_context import JobContext, pickled_state
from reshape.data.segments import RankMemory, Segment, sweep
from reshape.errors import ReshapeError
from reshape.ranks.agree import RolledBackError, agreed, all_values, barrier
from reshape.ranks.derived import retire_derived
from reshape.ranks.world import retire
from reshape.resizing.joining import accept, admit, connect, introduce, unmerge
from reshape.resizing.move import Move, pack_all, relay, timed
from reshape.resizing.rank_order import reordered
from reshape.resizing.restart_point import RestartPoint, state_of
from reshape.wire.messages import Join, Leave, ResizeOutcome

log = logging.getLogger(__name__)

LEFT = (
    "this process has left the job by the SystemExit of app.iterations(), which the program has "
    "caught: write 'except Exception:', and use no data and no app.comm in a 'finally'"
)


# ---------------------------------------------------------------- the two sides of a resize


def expand(job: JobContext, order: Join, announce: Callable[[int, str], None]) -> ResizeOutcome:
    """Collective over job.comm. Expand the job by a group, or roll back.

    Parameters
    ----------
    announce : called on rank 0 with the serial number and the name of the port, before the accept.
    """
    outcome, old = ResizeOutcome(order.serial), job.comm
    merged: MPI.Intracomm | None = None
    try:
        check_size(job, old.size + order.size)
        with timed(outcome, "close_s"):
            job.close_each_size()
        with timed(outcome, "join_s"):
            state = stop(job, old.size + order.size)
            merged = accept(job, order.serial, announce)
            groups = admit(job, order, merged, state)
        moves, ranks = relay(job, merged, range(old.size), range(merged.size), outcome)
        with timed(outcome, "resume_s"):
            previous = commit(job, merged, moves, order.serial)
            adopt(job, merged, groups, ranks)
            old.Free()
            release(job, previous, outcome)
    except RolledBackError as reason:
        outcome.why = str(reason)
        if merged is not None:
            unmerge(job, merged)
        roll_back(job)
    return outcome


def join(job: JobContext, port: str) -> None:
    """Collective over job.comm. Connect to the running job on `port` and join it.

    Raises
    ------
    RolledBackError : the job continues without this group.
    """
    merged, own = connect(job, port), job.comm
    old_size = merged.size - own.size
    try:
        status, state = introduce(job, merged)
        for name, value in status.told.items():
            setattr(job, name, value)
        job.checkpointed_at = time.monotonic() - status.since_checkpoint_s
        outcome = ResizeOutcome(status.serial)
        moves, ranks = relay(job, merged, range(old_size), range(merged.size), outcome)
        previous = commit(job, merged, moves, status.serial)
        adopt(job, merged, status.groups, ranks)
        job.last = outcome
        job.state.clear()
        job.state.update(state)
        own.Free()
        release(job, previous, outcome)
    except RolledBackError:
        unmerge(job, merged)
        raise


def contract(job: JobContext, order: Leave) -> ResizeOutcome:
    """Collective over job.comm. Contract the job; leaving processes have COMM_NULL afterwards."""
    outcome, old = ResizeOutcome(order.serial), job.comm
    stay = [rank for rank, group in enumerate(job.groups) if group not in order.groups]
    try:
        check_leave(job, order, stay)
        with timed(outcome, "close_s"):
            job.close_each_size()
        with timed(outcome, "join_s"):
            stop(job, len(stay))
        moves, ranks = relay(job, old, range(old.size), stay, outcome)
        with timed(outcome, "resume_s"):
            previous = commit(job, old, moves, order.serial)
            adopt(job, old, job.groups, ranks)
            disconnect(job)
            release(job, previous, outcome)
    except RolledBackError as reason:
        outcome.why = str(reason)
        roll_back(job)
    return outcome


# ---------------------------------------------------------------- the steps


def stop(job: JobContext, size: int) -> bytes:
    """Collective over job.comm. Wait until all ranks have stopped, then write the restart point.

    Parameters
    ----------
    size : number of processes after the resize.

    Returns
    -------
    the pickled `app.state` on rank 0, elsewhere b"".

    Raises
    ------
    RolledBackError : a value of `app.state` or an item cannot be pickled, or the restart point
        cannot be written.
    """
    pack_all(job, size)
    # After this call no process changes its data; only then may rank 0 write the restart point.
    gathered = all_values(job.comm, job.place)
    places = tuple(place for place in gathered if place is not None)
    outlives = len(places) == job.comm.size
    state = b""
    if job.comm.rank == 0 and not outlives and not job.warned_no_restart:
        job.warned_no_restart = True
        log.warning(
            "no restart point is written, because not all arrays are in shared memory: if "
            "processes die within a resize, the job is lost"
        )
    with agreed(job.comm, "the state cannot be saved", Exception):
        if job.comm.rank == 0:
            state = pickled_state(job.state)
            if outlives and job.folder is not None:
                saved = state_of(job, state)
                RestartPoint(epoch=job.epoch, places=places, **saved).write(job.folder)
    return state


def check_leave(job: JobContext, order: Leave, stay: Sequence[int]) -> None:
    """Check that the groups of a contraction exist, and that the job can be as small.

    Raises
    ------
    RolledBackError : on every rank, if they do not.
    """
    unknown = sorted(set(order.groups) - set(job.groups))
    if unknown or not stay:
        what = f"groups {unknown} are not part of it" if unknown else "no group would be left"
        raise RolledBackError(
            f"groups {order.groups} cannot leave a job of groups {sorted(set(job.groups))}: {what}"
        )
    check_size(job, len(stay))


def check_size(job: JobContext, size: int) -> None:
    """Check that the registered arrays can be divided among `size` processes.

    Raises
    ------
    RolledBackError : on every rank, if they cannot.
    """
    if why := job.objection_to(size):
        raise RolledBackError(why)


def commit(
    job: JobContext, comm: MPI.Intracomm, moves: Sequence[Move], serial: int
) -> list[Segment]:
    """Collective over comm. Make the new segments the data of the job.

    Returns
    -------
    the previous segments of this process, which `release` takes.
    """
    barrier(comm)  # all ranks have moved and verified their data
    if comm.rank == 0 and job.folder is not None:
        RestartPoint.remove(job.folder)  # the commit
    barrier(comm)  # only now may the old segments be removed
    for move in moves:
        if move.segment is not None and move.is_kept and move.segment.path is not None:
            memory = RankMemory(job.folder, serial, move.plan.target_process[comm.rank])
            path = move.segment.path
            move.segment.rename(path.with_name(memory.file_name(move.array.name)))
            if move.segment.path is None:
                log.warning("%s is not in shared memory any more", path)
    previous = [
        move.array.withdraw(f"array {move.array.name!r}: {LEFT}")
        if move.segment is None
        else move.array.place(move.plan.target, move.segment)
        for move in moves
    ]
    stays = all(move.segment is not None for move in moves)
    for ragged in job.ragged.values():
        if stays:
            previous += ragged.commit()
        else:
            ragged.vacate(f"{ragged.declaration.kind} {ragged.name!r}: {LEFT}")
    job.epoch = serial
    retire()
    retire_derived(job.comm.size)
    return [segment for segment in previous if segment is not None]


def adopt(
    job: JobContext, comm: MPI.Intracomm, groups: Sequence[int], ranks: Sequence[int]
) -> None:
    """Collective over comm. Form the job of these ranks, in this order.

    Parameters
    ----------
    groups : group of each rank of `comm`.
    """
    job.groups = tuple(groups[rank] for rank in ranks)
    job.comm = reordered(comm, ranks)
    if job.comm == MPI.COMM_NULL:
        job.slot.free()
    else:
        job.slot.enter(job.loop, job.iteration, job.comm.rank)


def release(job: JobContext, previous: Sequence[Segment], outcome: ResizeOutcome) -> None:
    """Collective over job.comm, unless it is COMM_NULL. Keep or discard the previous segments."""
    if job.comm == MPI.COMM_NULL:
        for segment in previous:
            segment.discard()
        job.spares.close()
        return
    for segment in previous:
        if job.trial is None:
            job.spares.keep(segment)
        else:
            job.trial.forbid(segment)
    job.spares.settle(job.live_segments)
    spare_bytes = np.array([job.spares.nbytes])
    total = np.empty_like(spare_bytes)  # only rank 0, which reports it, waits for it
    wait_idle([job.comm.Ireduce(spare_bytes, total, MPI.SUM, root=0)])
    if job.comm.rank == 0:
        outcome.times = replace(outcome.times, spare_bytes=int(total[0]))


def roll_back(job: JobContext, *, spares: bool = False) -> None:
    """Collective over job.comm. Remove the restart point and return to the previous data.

    The segments of processes that were killed before they removed them are removed, too.

    Parameters
    ----------
    spares : whether spare segments, which earlier processes have left, are removed.
    """
    if job.comm.rank == 0 and job.folder is not None:
        RestartPoint.remove(job.folder)
    job.comm.Barrier()  # no rank may change data while the restart point exists
    for ragged in job.ragged.values():
        ragged.roll_back()
    job.spares.settle(job.live_segments)
    if job.folder is None:
        return
    # The next resize creates segments only after a collective call, so no process removes them.
    try:
        sweep(job.folder, keep_epoch=job.epoch, spares=spares)
    except FileNotFoundError:
        return  # all data is in private memory
    except (OSError, ReshapeError) as error:
        log.warning("segments of earlier configurations may be left: %s", error)


def begin_anew(job: JobContext) -> None:
    """Collective over job.comm. Remove what processes of an earlier start of the job have left."""
    if job.folder is not None:
        RestartPoint.remove(job.folder)
        with suppress(FileNotFoundError):
            sweep(job.folder)
        job.comm.Barrier()


def restarted(job: JobContext) -> None:
    """Collective over job.comm. Remove the restart point when all ranks have read their data."""
    job.comm.Barrier()
    roll_back(job, spares=True)


def disconnect(job: JobContext) -> None:
    """Collective over all groups of the job. Disconnect this process from the groups it joined.

    The communicator of the remaining processes stays valid. A world can end only when all worlds
    that it was connected to have called this.
    """
    while job.held:
        job.held.pop(0).Disconnect()
