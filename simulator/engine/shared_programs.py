"""Iterations of programs on shared nodes: they take longer while others compute there.

A job demands something while it computes: from the beginning of an iteration to its end. It demands
nothing while a resize pauses it, and neither does a group that waits to join. So an expansion, a
contraction and every end change the windows of the nodes from that moment on. The windows are those
of the reading "changes" (`scheduler.model.sharing.SharedNodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler.model.events import Event, JobEnded, ResizePoint
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedNodes
from scheduler.virtual_clock.agenda import Agenda


class IterationEnd(NamedTuple):
    """What follows an iteration: a resize point, or the end of the job.

    Parameters
    ----------
    job : its number.
    began : time at which the iteration began, s; inf if its time is not reported.
    end_s : time from the last iteration until the processes are gone, s; None: more iterations
        follow.
    done, iterations : iterations finished then, and all of them.
    data_bytes : of the job.
    """

    job: int
    began: float
    end_s: float | None
    done: int = 1
    iterations: int = 1
    data_bytes: int = 0

    def event(self, at: float) -> JobEnded | ResizePoint:
        """Event of an iteration that ends at a time (s)."""
        if self.end_s is not None:
            return JobEnded(at + self.end_s, self.job)
        return ResizePoint(
            at,
            self.job,
            self.done,
            at - self.began,
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

    Raises
    ------
    ValueError : the windows of the nodes are those of a table of whole runs.
    """

    def __init__(self, agenda: Agenda, demands: Sequence[Demand], nodes: SharedNodes) -> None:
        if nodes.windows != "changes":
            raise ValueError(
                f"windows {nodes.windows!r} need jobs that are not resized; take 'changes'"
            )
        self._agenda, self._demands, self._nodes = agenda, demands, nodes
        self._ends: dict[int, IterationEnd] = {}

    def begin(self, end: IterationEnd, processors: ProcSet, seconds: float) -> None:
        """Begin an iteration, enter its end and move those of the neighbours.

        Parameters
        ----------
        processors : on which the job computes.
        seconds : its time without neighbours.
        """
        number, now = end.job, self._agenda.now
        self._ends[number] = end
        self._move(self._nodes.start(number, processors, self._demands[number - 1], seconds, now))

    def finish(self, events: Iterable[Event]) -> None:
        """End the iterations that end by these events, and move those of the neighbours."""
        changed: list[int] = []
        for event in events:
            if isinstance(event, JobEnded | ResizePoint) and event.job in self._nodes.jobs:
                changed += self._nodes.end(event.job, self._agenda.now)
                del self._ends[event.job]
        self._move(changed)

    def _move(self, jobs: Iterable[int]) -> None:
        """Enter the ends of iterations again, except of jobs that were killed."""
        agenda = self._agenda
        for number in jobs:
            job, entered = self._nodes.jobs.get(number), agenda.next.get(number)
            if job is None or (type(entered) is JobEnded and entered.signal):
                continue
            agenda.interrupt(self._ends[number].event(max(job.ends, agenda.now)))
