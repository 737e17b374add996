"""A live run as a table of jobs, for pictures: what its journal says that jobs held, and when."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from reshape.errors import ReshapeError
from scheduler.model.procset import ProcSet
from scheduler.replay.allocations import allocation
from scheduler.replay.journal_reader import JournalReader
from simulator.results.jobs_csv import JobTable
from simulator.results.schedule import Places


class PicturedRun(NamedTuple):
    """A live run.

    Parameters
    ----------
    jobs : jobs that have started; times in seconds from the first submission on. Those that have
        not ended last until the latest event.
    nodes : processors of each node that the machine has had.
    """

    jobs: JobTable
    nodes: Mapping[str, ProcSet]

    @property
    def processors(self) -> int:
        """Number of processors of the machine."""
        held = [last for node in self.nodes.values() for _, last in node.intervals]
        return max(1 + max(held, default=-1), self.jobs.machine())


def pictured_run(journal: JournalReader, name: str) -> PicturedRun:
    """Read the jobs of a journal, which may be that of a running service.

    Parameters
    ----------
    name : of the run, for titles.

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
    places: dict[int, Places] = {
        number: tuple((at - origin, ProcSet.parse(text)) for at, text in changes)
        for number, changes in held.items()
    }
    ran = [job for job in jobs if places[job.id]]
    if not ran:
        raise ReshapeError(f"{name}: no job has started, so there is nothing to draw")
    ended = [latest if job.ended_at is None else job.ended_at for job in ran]
    table = JobTable(
        name,
        [str(job.id) for job in ran],
        np.array([job.submitted_at - origin for job in ran]),
        np.array([places[job.id][0][0] for job in ran]),
        np.array(ended) - origin,
        np.array([job.spec.processors for job in ran]),
        [places[job.id][0][1] for job in ran],
        [tuple((at, len(processors)) for at, processors in places[job.id]) for job in ran],
        [places[job.id] for job in ran],
    )
    nodes: dict[str, ProcSet] = {}
    for node in (node for part in recorded.partitions for node in part.nodes) if recorded else ():
        nodes[node.name] = nodes.get(node.name, ProcSet()) | node.processors
    return PicturedRun(table, nodes)
