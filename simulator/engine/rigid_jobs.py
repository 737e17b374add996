"""Rigid jobs, alone and on shared nodes, and iterations of programs on shared nodes.

On shared nodes both take longer while processes share what is too little: the physics of GUIM
chapter 6; `scheduler.model.sharing` computes the ends.

A program demands something while it computes: from the beginning of an iteration to its end. It
demands nothing while a resize pauses it, and neither does a group that waits to join. So an
expansion, a contraction and every end change the windows of the nodes from that moment on; they
need the windows "changes" (`scheduler.model.sharing.SharedNodes`). A rigid job is one iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from typing import NamedTuple

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Physics
from scheduler.model.events import Event, JobEnded, ResizePoint
from scheduler.model.job import JOB_ENDED
from scheduler.model.orders import Start
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedNodes
from simulator.engine.physics import RunTimeOn


class SharedIteration(NamedTuple):
    """An iteration that others on its nodes may prolong.

    Parameters
    ----------
    event : what follows it without them: a resize point, or the end of the job.
    began, alone_at : when it begins, and when it ends without them, s.
    end_s : time from its end until the processes of a job that ends are gone, s.
    entered_at, seconds : when it was entered, and the time from then until its end without others,
        s.
    """

    event: ResizePoint | JobEnded
    began: float
    alone_at: float
    end_s: float
    entered_at: float
    seconds: float

    def moved_to(self, at: float) -> JobEnded | ResizePoint:
        """What follows it if it ends at a time (s); a new event, as the agenda keeps old ones."""
        event = self.event
        if isinstance(event, JobEnded):
            return JobEnded(at + self.end_s, event.job)
        return ResizePoint(
            at,
            event.job,
            event.iteration,
            event.iteration_s if at == self.alone_at else at - self.began,
            data_bytes=event.data_bytes,
            iterations=event.iterations,
        )


class SharedIterations:
    """Ends of iterations, which move as jobs begin and end to compute on the same nodes.

    Parameters
    ----------
    agenda : takes the events.
    demands : what each process of each job really uses, in the order of their numbers from 1.
    nodes : computes the ends; no job may be running yet.

    Attributes
    ----------
    times : job number -> seconds that it has computed: without neighbours, and what they added.
        Of an iteration that a kill ends neither is counted.
    """

    def __init__(self, agenda: Agenda, demands: Sequence[Demand], nodes: SharedNodes) -> None:
        self._agenda, self._demands, self._nodes = agenda, demands, nodes
        self.times: dict[int, tuple[float, float]] = {}
        self._under_way: dict[int, SharedIteration] = {}

    def begin(
        self,
        event: ResizePoint | JobEnded,
        processors: ProcSet,
        *,
        began: float,
        alone_at: float,
        seconds: float,
        end_s: float,
    ) -> None:
        """Enter an iteration and what follows it, and move the ends of the neighbours.

        Parameters
        ----------
        processors : on which the job computes. The others: see `SharedIteration`.
        """
        number, now = event.job, self._agenda.now
        iteration = SharedIteration(event, began, alone_at, end_s, entered_at=now, seconds=seconds)
        self._under_way[number] = iteration
        self._move(self._nodes.start(number, processors, self._demands[number - 1], seconds, now))

    def finish(self, events: Iterable[Event]) -> None:
        """End the iterations that end by these events, and move those of the neighbours."""
        changed: list[int] = []
        for event in events:
            if isinstance(event, (JobEnded, ResizePoint)) and event.job in self._nodes.jobs:
                changed += self._nodes.end(event.job, self._agenda.now)
                self._count(self._under_way.pop(event.job), event)
        self._move(changed)

    def _count(self, iteration: SharedIteration, event: JobEnded | ResizePoint) -> None:
        """Count the time of an iteration that an event has ended."""
        if type(event) is JobEnded and event.signal:
            return
        seconds = iteration.seconds
        took_s = self._agenda.now - iteration.end_s - iteration.entered_at
        run_s, added_s = self.times.get(event.job, (0.0, 0.0))
        self.times[event.job] = run_s + seconds, added_s + max(0.0, took_s - seconds)

    def _move(self, jobs: Iterable[int]) -> None:
        """Enter the ends of iterations again, except of jobs that were killed."""
        agenda = self._agenda
        for number in jobs:
            job, entered = self._nodes.jobs.get(number), agenda.next.get(number)
            if job is None or (type(entered) is JobEnded and entered.signal):
                continue
            iteration, at = self._under_way[number], max(job.ends, agenda.now)
            alone_at = iteration.alone_at
            if isclose(at, alone_at, rel_tol=1e-12) and alone_at >= agenda.now:
                at = alone_at  # without the rounding errors of changes that prolong nothing
            agenda.interrupt(iteration.moved_to(at))


class RigidJobs(Physics):
    """Jobs that hold the same processors from their start to their end, which follows from it.

    Parameters
    ----------
    agenda : takes the ends.
    run_s : run time of each job, seconds, in the order of their numbers from 1.
    contiguity : gain on contiguous processors; the site must allocate individual processors.
    cpu_factors : job number -> CPU factor of the centre that started it, where it is not 1; None:
        there is one machine.
    shared : moves the ends as jobs start and end on their nodes; None: nothing does. Not with a
        gain or CPU factors.
    """

    def __init__(
        self,
        agenda: Agenda,
        run_s: list[float],
        contiguity: RunTimeOn | None = None,
        cpu_factors: Mapping[int, float] | None = None,
        shared: SharedIterations | None = None,
    ) -> None:
        self._agenda, self._run_s = agenda, run_s
        self._contiguity, self._cpu_factors = contiguity, cpu_factors
        self._shared = shared

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """End jobs, and move the ends of their neighbours."""
        if self._shared is not None:
            self._shared.finish(events)

    def start(self, order: Start) -> None:
        """Start a job and enter its end."""
        self.compute(order, self._agenda.now, 0.0)

    def compute(self, order: Start, since: float, end_s: float) -> None:
        """Enter the end of a job.

        Parameters
        ----------
        since : time at which the job begins to compute, seconds.
        end_s : time from its run until its processes are gone, seconds.
        """
        number = order.job
        run_s = self._run_s[number - 1]
        if self._cpu_factors is not None:
            run_s *= self._cpu_factors.get(number, 1.0)
        if self._contiguity is not None:
            run_s = self._contiguity(run_s, order.processors)
        agenda, at = self._agenda, since + (end_s + run_s)
        if self._shared is None:
            agenda.enter_end(at, JOB_ENDED(at, number))
            return
        alone_at, now = since + run_s, agenda.now
        seconds = run_s if since == now else alone_at - now
        ended = JOB_ENDED(at, number)
        self._shared.begin(
            ended, order.processors, began=since, alone_at=alone_at, seconds=seconds, end_s=end_s
        )
