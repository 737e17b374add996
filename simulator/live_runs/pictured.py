"""A live run as a schedule, for pictures: what its journal says that jobs held, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from reshape.errors import ReshapeError
from scheduler.model.job import Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.replay.allocations import allocation
from scheduler.replay.journal_reader import JournalReader
from simulator.results.schedule import Places, Schedule
from simulator.traces.trace_jobs import TraceJobs


def pictured_run(journal: JournalReader, name: str) -> tuple[Schedule, Mapping[str, ProcSet]]:
    """Read the jobs of a journal, which may be that of a running service.

    Parameters
    ----------
    name : of the run, for the error.

    Returns
    -------
    schedule : of the jobs that have started; times in seconds from the first submission on. Those
        that have not ended last until the latest event.
    nodes : processors of each node that the machine has had.

    Raises
    ------
    ReshapeError : no job has started, or the journal cannot be read.
    """
    with journal.one_moment():
        jobs = journal.recorded_jobs()
        held = {
            job.id: allocation(journal.events_of(job.id), journal.orders_of(job.id)) for job in jobs
        }
        recorded, latest = journal.core_record(), journal.latest_event_at()
    origin = min((job.submitted_at for job in jobs), default=inf)
    ran = [job for job in jobs if held[job.id]]
    if not ran:
        raise ReshapeError(f"{name}: no job has started, so there is nothing to draw")
    places: dict[int, Places] = {
        number: tuple((at - origin, ProcSet.parse(text)) for at, text in held[job.id])
        for number, job in enumerate(ran, 1)
    }
    nodes: dict[str, ProcSet] = {}
    for node in (node for part in recorded.partitions for node in part.nodes) if recorded else ():
        nodes[node.name] = nodes.get(node.name, ProcSet()) | node.processors
    return _schedule(ran, origin, latest, places, nodes), nodes


def _schedule(
    ran: Sequence[Job],
    origin: float,
    latest: float,
    places: Mapping[int, Places],
    nodes: Mapping[str, ProcSet],
) -> Schedule:
    started = np.array([kept[0][0] for kept in places.values()])
    ended = np.array([latest if job.ended_at is None else job.ended_at for job in ran]) - origin
    columns = TraceJobs.of(
        np.array([job.id for job in ran]),
        np.array([job.submitted_at - origin for job in ran]),
        ended - started,
        np.array([job.spec.processors for job in ran]),
    )
    used = (held for kept in places.values() for _, held in kept)
    return Schedule(
        columns,
        ProcSet.union([*nodes.values(), *used]).intervals[-1][1] + 1,
        started,
        ended,
        np.array([job.state is JobState.TIMEOUT for job in ran]),
        {number: kept[0][1] for number, kept in places.items()},
        sizes={number: [(at, len(held)) for at, held in kept] for number, kept in places.items()},
        places=places,
    )
