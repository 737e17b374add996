"""The move of all registered arrays from one set of ranks to another: plan, move, verify."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from mpi4py import MPI
from msgspec.structs import replace

from redistribution import Layout, Plan, checksum
from redistribution.messages.waiting import wait
from reshape.data import segments
from reshape.data.arrays import Array, Declaration
from reshape.data.job_context import JobContext
from reshape.data.segments import RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.resizing.agree import RolledBackError, agree
from reshape.resizing.ragged_moves import next_cuts
from reshape.resizing.rank_order import best_order
from reshape.resizing.shared_memory import Find, shared_epoch, source_finder
from reshape.wire.outcome import ResizeOutcome


@dataclass
class Move:
    """One array on its way to its next layout.

    Attributes
    ----------
    segment : this rank's next local part; None if it has none.
    find : maps the source arrays of other processes; None: the data is sent in messages.
    """

    array: Array
    plan: Plan
    target: Layout
    segment: Segment | None = None
    find: Find | None = None


def relay(
    job: JobContext,
    comm: MPI.Intracomm,
    sources: Sequence[int],
    targets: Sequence[int],
    outcome: ResizeOutcome,
) -> tuple[list[Move], tuple[int, ...]]:
    """Collective over comm. Move all arrays from the ranks `sources` to the ranks `targets`.

    Returns
    -------
    the moves, and the ranks that continue, in their new order.

    Raises
    ------
    RolledBackError : no memory on some rank, or a checksum differs; new segments are removed.
    """
    moves: list[Move] = []
    try:
        with timed(outcome, "plan_s"):
            epoch = shared_epoch(job, comm, comm.rank in sources) if job.arrays else None
            order = tuple(targets)
            moves = plan(job, comm, sources, order)
            if epoch is None and moves:
                # The first rank of the group that has joined last is prepared for it.
                joins = len(sources) < comm.size
                root = len(sources) if joins else job.groups.index(job.groups[-1])
                plans = [(move.plan, move.array.dtype.itemsize) for move in moves]
                order = best_order(comm, plans, order, root)
                for move in moves:
                    move.plan = plan_of(comm, move.plan.source, move.target, sources, order)
        with timed(outcome, "move_s"):
            allocate(job, comm, moves, outcome.serial)
            exchange(job, comm, moves, epoch)
            if job.verify:
                verify(comm, moves)
            receive(job, comm, moves)
    except RolledBackError:
        for move in moves:
            _drop(move)
        raise
    moved = sum(move.plan.bytes_moved(move.array.dtype.itemsize) for move in moves)
    outcome.times = replace(outcome.times, moved_bytes=moved)
    return moves, order


def plan(
    job: JobContext, comm: MPI.Intracomm, sources: Sequence[int], targets: Sequence[int]
) -> list[Move]:
    """Collective over comm. Plan the moves; only ragged data needs communication."""
    moves = []
    now, then = next_cuts(job, comm, sources, len(targets))
    for array in job.arrays.values():
        source = array.declaration.layout(len(sources), now)
        target = array.declaration.layout(len(targets), then)
        moves.append(Move(array, plan_of(comm, source, target, sources, targets), target))
    return moves


def plan_of(
    comm: MPI.Intracomm,
    source: Layout,
    target: Layout,
    sources: Sequence[int],
    targets: Sequence[int],
) -> Plan:
    """Plan of one array, including the transfers of this rank."""
    made = Plan(source, target, sources, targets)
    made.outgoing(comm.rank)
    made.incoming(comm.rank)
    return made


def allocate(job: JobContext, comm: MPI.Intracomm, moves: Sequence[Move], epoch: int) -> None:
    """Collective over comm. Allocate the new local parts; the old ones stay.

    Raises
    ------
    RolledBackError : a rank has no memory for them.
    """
    why = ""
    try:
        for move in moves:
            process = move.plan.target_process.get(comm.rank)
            if process is not None:
                move.segment = new_segment(job, move.array.declaration, move.target, epoch, process)
    except (MemoryError, ReshapeError) as error:
        why = f"no memory for the new layout on rank {comm.rank}: {error}"
    agree(comm, why)


def new_segment(
    job: JobContext, declaration: Declaration, layout: Layout, epoch: int, process: int
) -> Segment:
    """Allocate the local part of an array that `process` has in `layout`."""
    memory = RankMemory(job.folder, epoch, process)
    shape = layout.local_shape(process)
    return segments.create(memory, declaration.name, shape, declaration.dtype, declaration.order)


def exchange(
    job: JobContext, comm: MPI.Intracomm, moves: Sequence[Move], epoch: int | None
) -> None:
    """Collective over comm. Transfer the data.

    Parameters
    ----------
    epoch : of the segments to read it from; None: the data is sent in messages.

    Raises
    ------
    RolledBackError : a rank cannot map a segment of another one.
    """
    why = ""
    try:
        for move in moves:
            if epoch is not None:
                move.find = source_finder(job, comm, move.array, move.plan, epoch)
            run(comm, move)
    except (OSError, ReshapeError) as error:
        if epoch is None:
            raise
        why = f"rank {comm.rank} cannot map the data of other processes: {error}"
    if epoch is not None:  # no rank waits for another before this point, so all can still agree
        wait([comm.Ibarrier()])  # leaves the core to ranks that still read
        agree(comm, why)


def run(comm: MPI.Intracomm, move: Move) -> None:
    """Move the data of one array; collective over comm if it is sent in messages."""
    target, plan = None if move.segment is None else move.segment.array, move.plan
    try:
        if move.find is None:
            source = move.array.segment if comm.rank in plan.source_process else None
            order = move.array.declaration.order
            plan.run(comm, None if source is None else source.array, target, order=order)
        elif target is not None:
            plan.gather(plan.target_process[comm.rank], move.find, target)
    finally:
        plan.forget()  # the plan may stay cached, but not the memory of this configuration


def verify(comm: MPI.Intracomm, moves: Sequence[Move]) -> None:
    """Collective over comm. Compare the checksums of all arrays before and after the move.

    Raises
    ------
    RolledBackError : the checksum of an array has changed.
    """
    changes = np.zeros(len(moves), np.uint64)  # before - after, modulo 2**64
    for k, move in enumerate(moves):
        source = move.plan.source_process.get(comm.rank)
        target = move.plan.target_process.get(comm.rank)
        change = 0
        if source is not None and move.array.segment is not None:
            change += checksum(move.plan.source, source, move.array.segment.array)
        if target is not None and move.segment is not None:
            change -= checksum(move.target, target, move.segment.array)
        changes[k] = change % 2**64
    comm.Allreduce(MPI.IN_PLACE, changes, MPI.SUM)
    wrong = [move.array.name for move, change in zip(moves, changes, strict=True) if change]
    if wrong:
        raise RolledBackError(f"the checksum of {', '.join(wrong)} has changed in the move")


def receive(job: JobContext, comm: MPI.Intracomm, moves: Sequence[Move]) -> None:
    """Collective over comm. Unpack ragged data while the move can still be rolled back.

    Raises
    ------
    RolledBackError : an item cannot be unpickled on its new rank.
    """
    if not job.ragged:
        return
    why = ""
    parts = {m.array.name: m.segment.array for m in moves if m.segment is not None}
    for ragged in job.ragged.values() if parts else ():
        try:
            ragged.receive(parts)
        except Exception as error:  # unpickling runs code of the user's classes
            why = f"items {ragged.name!r} cannot be restored on rank {comm.rank}: {error}"
    agree(comm, why)


def _drop(move: Move) -> None:
    if move.segment is not None:
        move.segment.discard()


@contextmanager
def timed(
    outcome: ResizeOutcome, phase: Literal["join_s", "plan_s", "move_s", "resume_s"]
) -> Iterator[None]:
    """Add the time of the block to a phase of the pause."""
    began = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - began
        outcome.times = replace(outcome.times, **{phase: getattr(outcome.times, phase) + spent})
