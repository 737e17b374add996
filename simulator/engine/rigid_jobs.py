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

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Physics
from scheduler.model.events import Event, JobEnded, ResizePoint
from scheduler.model.job import JOB_ENDED
from scheduler.model.orders import Start
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedNodes
from simulator.engine.physics import RunTimeOn


class IterationEnd:
    """What follows an iteration: a resize point, or the end of the job.

    Parameters
    ----------
    job : its number.
    began : time at which the iteration began, s.
    alone_s, alone_at : its time without neighbours, s, and when it ends then.
    end_s : time from the last iteration until the processes are gone, s; None: more iterations
        follow.
    done, iterations : iterations finished then, and all of them.
    data_bytes : of the job.
    """

    def __init__(
        self,
        job: int,
        began: float,
        alone_s: float,
        alone_at: float,
        end_s: float | None,
        done: int = 1,
        iterations: int = 1,
        data_bytes: int = 0,
    ) -> None:
        self.job, self.began = job, began
        self.alone_s, self.alone_at, self.end_s = alone_s, alone_at, end_s
        self.done, self.iterations, self.data_bytes = done, iterations, data_bytes

    def event(self, at: float) -> JobEnded | ResizePoint:
        """Event of an iteration that ends at a time (s)."""
        iteration_s = self.alone_s if at == self.alone_at else at - self.began
        if self.end_s is not None:
            return JobEnded(at + self.end_s, self.job)
        return ResizePoint(
            at,
            self.job,
            self.done,
            iteration_s,
            data_bytes=self.data_bytes,
            iterations=self.iterations,
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
        self._ends: dict[int, IterationEnd] = {}
        self._begun: dict[int, tuple[float, float]] = {}  # begin and time without neighbours, s

    def begin(self, end: IterationEnd, processors: ProcSet, seconds: float) -> None:
        """Begin an iteration, enter its end and move those of the neighbours.

        Parameters
        ----------
        processors : on which the job computes.
        seconds : its time without neighbours.
        """
        number, now = end.job, self._agenda.now
        self._ends[number], self._begun[number] = end, (now, seconds)
        self._move(self._nodes.start(number, processors, self._demands[number - 1], seconds, now))

    def finish(self, events: Iterable[Event]) -> None:
        """End the iterations that end by these events, and move those of the neighbours."""
        changed: list[int] = []
        for event in events:
            if isinstance(event, (JobEnded, ResizePoint)) and event.job in self._nodes.jobs:
                changed += self._nodes.end(event.job, self._agenda.now)
                self._count(self._ends.pop(event.job), event)
        self._move(changed)

    def _count(self, end: IterationEnd, event: JobEnded | ResizePoint) -> None:
        """Count the time of an iteration that an event has ended."""
        begun, seconds = self._begun.pop(end.job)
        if type(event) is JobEnded and event.signal:
            return
        took_s = self._agenda.now - (end.end_s or 0.0) - begun
        run_s, added_s = self.times.get(end.job, (0.0, 0.0))
        self.times[end.job] = run_s + seconds, added_s + max(0.0, took_s - seconds)

    def _move(self, jobs: Iterable[int]) -> None:
        """Enter the ends of iterations again, except of jobs that were killed."""
        agenda = self._agenda
        for number in jobs:
            job, entered = self._nodes.jobs.get(number), agenda.next.get(number)
            if job is None or (type(entered) is JobEnded and entered.signal):
                continue
            end, at = self._ends[number], max(job.ends, agenda.now)
            if isclose(at, end.alone_at, rel_tol=1e-12) and end.alone_at >= agenda.now:
                at = end.alone_at  # without the rounding errors of changes that prolong nothing
            agenda.interrupt(end.event(at))


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
        if self._shared is None:
            self.compute(order, self._agenda.now, 0.0)
            return
        number, now = order.job, self._agenda.now
        run_s = self._run_s[number - 1]
        end = IterationEnd(number, now, run_s, now + run_s, 0.0)
        self._shared.begin(end, order.processors, run_s)

    def compute(self, order: Start, since: float, around_s: float) -> None:
        """Enter the end of a job.

        Parameters
        ----------
        since : time at which the job begins to compute, seconds.
        around_s : time besides the run time until its processes are gone, seconds.
        """
        number = order.job
        run_s = self._run_s[number - 1]
        if self._cpu_factors is not None:
            run_s *= self._cpu_factors.get(number, 1.0)
        if self._contiguity is not None:
            run_s = self._contiguity(run_s, order.processors)
        agenda, at = self._agenda, since + (around_s + run_s)
        ends = JOB_ENDED(at, number)
        if agenda.next and number in agenda.next:  # replaces the end of a run that was redirected
            agenda.set_next(ends)
        else:
            agenda.enter(at, ends)
