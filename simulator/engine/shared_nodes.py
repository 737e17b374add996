"""Rigid jobs on shared nodes: run times become longer while processes share what is too little.

The physics of GUIM chapter 6; `scheduler.model.sharing` computes the ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.events import Event, JobEnded
from scheduler.model.orders import Start
from scheduler.model.sharing import Demand, SharedNodes
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.loop import Physics


class SharingJobs(Physics):
    """Rigid jobs whose ends move as jobs start and end on their nodes.

    Parameters
    ----------
    agenda : takes the ends.
    run_s : run time of each job without neighbours, seconds, in the order of their numbers from 1.
    demands : what each process of each job really uses, in the same order.
    nodes : computes the ends; no job may be running yet.
    around_s : time that every job holds its processors besides its run time, seconds; its processes
        count as neighbours then, too.
    """

    def __init__(
        self,
        agenda: Agenda,
        run_s: list[float],
        demands: Sequence[Demand],
        nodes: SharedNodes,
        around_s: float = 0.0,
    ) -> None:
        self._agenda, self._run_s, self._demands = agenda, run_s, demands
        self._nodes, self._around_s = nodes, around_s

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """End jobs, and move the ends of their neighbours."""
        changed: list[int] = []
        for event in events:
            if type(event) is JobEnded:
                changed += self._nodes.end(event.job, event.at)
        if changed:
            self._move(changed)

    def start(self, order: Start) -> None:
        """Start a job, enter its end and move the ends of its neighbours."""
        number, now = order.job, self._agenda.now
        run_s = self._run_s[number - 1] + self._around_s
        demand = self._demands[number - 1]
        self._move(self._nodes.start(number, order.processors, demand, run_s, now))

    def _move(self, jobs: list[int]) -> None:
        """Enter the ends of jobs again, except of those that have ended or were killed."""
        agenda = self._agenda
        for number in jobs:
            job = self._nodes.jobs.get(number)
            if job is None:
                continue
            entered = agenda.next.get(number)
            if type(entered) is not JobEnded or not entered.signal:
                agenda.set_next(JobEnded(max(job.ends, agenda.now), number))
