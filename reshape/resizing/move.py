"""The move of all registered data from one set of ranks to another: cuts, plan, move, verify.

On one host the local parts of a job are files that all its processes can map
(`reshape.data.segments`). There each target reads its share from the source segments, which copies
every element once. Between hosts the data is sent in messages, in the same move.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from mpi4py import MPI
from msgspec.structs import replace
from numpy.typing import NDArray

import redistribution.messages.prepared  # noqa: F401 - a move between hosts must not load it late
from redistribution import Plan, checksum
from redistribution.messages.waiting import wait_idle
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.declarations import AllCuts, RaggedCuts
from reshape.data.job_context import JobContext
from reshape.data.ragged import Counts, Fill, cuts_of_sizes
from reshape.data.segments import FolderPlace, RankMemory, Segment, place_of
from reshape.errors import ReshapeError
from reshape.ranks.agree import RolledBackError, agree, all_values
from reshape.resizing.rank_order import best_order
from reshape.wire.messages import ResizeOutcome

#: Source arrays by process.
Sources: TypeAlias = dict[int, NDArray[Any]]


def hosts_of_ranks(job: JobContext, comm: MPI.Intracomm, is_source: bool) -> tuple[int, ...]:
    """Collective over comm. Find which ranks can map each other's segments.

    Also a barrier: the source arrays are complete when it returns.

    Parameters
    ----------
    is_source : whether this rank holds parts of the arrays.

    Returns
    -------
    for each rank, the lowest rank of its host that shares memory with it; a rank whose segments
    cannot be mapped has its own number.
    """
    first: dict[FolderPlace | int, int] = {}
    places = all_values(comm, job.place if is_source else place_of(job.folder))
    return tuple(
        first.setdefault(rank if place is None else place, rank)
        for rank, place in enumerate(places)
    )


def map_sources(job: JobContext, comm: MPI.Intracomm, array: Array, plan: Plan) -> Sources:
    """Map the local arrays of all source processes near this rank that it needs elements of.

    Raises
    ------
    OSError, ReshapeError : a segment cannot be mapped.
    """
    sources = Sources()
    for transfer in plan.incoming(comm.rank):
        process = plan.source_process[transfer.peer]
        if transfer.peer == comm.rank and array.segment is not None:
            sources[process] = array.segment.array
        elif plan.is_near(comm.rank, transfer.peer):
            memory = RankMemory(job.folder, job.epoch, process)
            sources[process] = segments.view(memory, array.declaration, plan.source)
    return sources


class Move(msgspec.Struct, eq=False):
    """One array on its way to its next layout.

    Attributes
    ----------
    segment : this rank's next local part; None if it has none. It is the present one if the plan
        keeps the part of this rank.
    sources : local arrays of the source processes on this host that this rank needs elements of.
    """

    array: Array
    plan: Plan
    segment: Segment | None = None
    sources: Sources = {}

    @property
    def is_kept(self) -> bool:
        """Whether the local part of this rank stays as it is."""
        return self.segment is not None and self.segment is self.array.segment


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
            order = tuple(targets)
            hosts = (0,) * comm.size
            if job.arrays:
                hosts = hosts_of_ranks(job, comm, comm.rank in sources)
            moves = plan(job, comm, sources, order, hosts)
            if moves and any(hosts):
                # The first rank of the group that has joined last is prepared for it.
                joins = len(sources) < comm.size
                root = len(sources) if joins else job.groups.index(job.groups[-1])
                plans = [(move.plan, move.array.dtype.itemsize) for move in moves]
                order = best_order(comm, plans, order, root)
                for move in moves:
                    layouts = move.plan.source, move.plan.target
                    move.plan = Plan(*layouts, sources, order, hosts=hosts)
            for move in moves:
                move.plan.incoming(comm.rank)  # it keeps them
        with timed(outcome, "move_s"):
            allocate(job, comm, moves, outcome.serial)
            for move in moves:
                run(comm, move)
            if job.verify:
                verify(comm, moves)
            receive(job, comm, moves)
    except RolledBackError:
        abandon(job, moves, comm.rank in sources)
        raise
    moved = sum(move.plan.bytes_moved(move.array.dtype.itemsize) for move in moves)
    outcome.times = replace(outcome.times, moved_bytes=moved)
    return moves, order


def plan(
    job: JobContext,
    comm: MPI.Intracomm,
    sources: Sequence[int],
    targets: Sequence[int],
    hosts: Sequence[int],
) -> list[Move]:
    """Collective over comm. Plan the moves; only ragged data needs communication."""
    moves = []
    now, then = next_cuts(job, comm, sources, len(targets))
    for array in job.arrays.values():
        source = array.declaration.layout(len(sources), now)
        target = array.declaration.layout(len(targets), then)
        moves.append(Move(array, Plan(source, target, sources, targets, hosts=hosts)))
    return moves


def allocate(job: JobContext, comm: MPI.Intracomm, moves: Sequence[Move], epoch: int) -> None:
    """Collective over comm. Allocate the new local parts that differ, and map the old ones.

    Raises
    ------
    RolledBackError : a rank has no memory for them, or cannot map a segment of another one.
    """
    why = ""
    try:
        for move in moves:
            process = move.plan.target_process.get(comm.rank)
            if move.plan.keeps(comm.rank):
                move.segment = move.array.segment
            elif process is not None:
                memory = RankMemory(job.folder, epoch, process)
                move.segment = job.spares.segment(memory, move.array.declaration, move.plan.target)
    except (MemoryError, ReshapeError) as error:
        why = f"no memory for the new layout on rank {comm.rank}: {error}"
    try:
        for move in moves:
            move.sources = map_sources(job, comm, move.array, move.plan)
    except (OSError, ReshapeError) as error:
        why = why or f"rank {comm.rank} cannot map the data of other processes: {error}"
    agree(comm, why)


def run(comm: MPI.Intracomm, move: Move) -> None:
    """Move the data of one array: by shared memory within a host, else in messages.

    Collective over comm unless all ranks are on one host.
    """
    target, plan = None if move.segment is None else move.segment.array, move.plan
    try:
        if any(plan.hosts or ()):
            source = move.array.segment if comm.rank in plan.source_process else None
            a, order = None if source is None else source.array, move.array.declaration.order
            plan.run(comm, a, target, order=order, sources=move.sources)
        elif target is not None and not move.is_kept:
            plan.gather(plan.target_process[comm.rank], move.sources, target)
    finally:
        move.sources.clear()


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
            change -= checksum(move.plan.target, target, move.segment.array)
        changes[k] = change % 2**64
    wait_idle([comm.Iallreduce(MPI.IN_PLACE, changes, MPI.SUM)])
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


def abandon(job: JobContext, moves: Sequence[Move], was_member: bool) -> None:
    """Release the new segments; a process that does not join the job leaves none behind."""
    for move in moves:
        if move.segment is None or move.is_kept:
            continue
        if was_member:
            job.spares.keep(move.segment)
        else:
            move.segment.discard()


@contextmanager
def timed(
    outcome: ResizeOutcome,
    phase: Literal["close_s", "join_s", "plan_s", "move_s", "resume_s"],
) -> Iterator[None]:
    """Add the time of the block to a phase of the pause."""
    began = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - began
        outcome.times = replace(outcome.times, **{phase: getattr(outcome.times, phase) + spent})


def next_cuts(
    job: JobContext, comm: MPI.Intracomm, sources: Sequence[int], size: int
) -> tuple[AllCuts, AllCuts]:
    """Collective over comm. Cuts of all ragged data: the current ones, and those on `size` ranks.

    Extra memory: 16 bytes for each row of the whole array, on the first source.

    Parameters
    ----------
    sources : ranks of `comm` that hold the data.
    """
    now, then = dict[str, RaggedCuts](), dict[str, RaggedCuts]()
    if not job.ragged:
        return now, then
    root, is_source = sources[0], comm.rank in sources
    own = {name: r.counts.local for name, r in job.ragged.items()} if is_source else {}
    gathered = comm.gather(own, root)
    if gathered is not None:
        for name, ragged in job.ragged.items():
            counts = np.concatenate([gathered[rank][name] for rank in sources])
            now[name] = ragged.cuts
            then[name] = ragged.next_cuts(counts, size)
    now, then = comm.bcast((now, then), root)
    return now, then


def pack_all(job: JobContext, size: int) -> None:
    """Collective over job.comm. Pack all data that is not plain memory, such as items.

    Parameters
    ----------
    size : number of processes that the data goes to.

    Raises
    ------
    RolledBackError : on every rank: an item cannot be pickled, or there is no memory for them.
    """
    for array in job.arrays.values():
        array.pack()
    if job.ragged:
        agree(job.comm, _pack_ragged(job, size))


def _pack_ragged(job: JobContext, size: int) -> str:
    """Collective over job.comm. Pack ragged data; return why this process failed, or ""."""
    packed: dict[str, tuple[Counts, Fill]] = {}
    why = ""
    for name, ragged in job.ragged.items():
        try:
            if (parts := ragged.pack(size)) is not None:
                packed[name] = parts
        except Exception as error:  # runs code of the program
            why = f"{ragged.declaration.kind} {name!r} cannot be packed: {error}"
    sizes = {name: (len(counts), int(counts.sum())) for name, (counts, _) in packed.items()}
    gathered = job.comm.allgather(None if why else sizes)
    if why or None in gathered:
        return why
    try:
        for name, (counts, fill) in packed.items():
            rows, entries = zip(*(sizes_of_rank[name] for sizes_of_rank in gathered), strict=True)
            ragged = job.ragged[name]
            ragged.allocate(cuts_of_sizes(rows, entries))
            ragged.counts.local = counts
            fill(ragged.values[0].local)
    except (MemoryError, ReshapeError) as error:
        why = f"no memory to pack data on rank {job.comm.rank}: {error}"
    return why
