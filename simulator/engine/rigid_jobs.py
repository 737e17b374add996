"""Rigid jobs, of which one event, the end, follows from the start."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import Physics
from scheduler.model.job import JOB_ENDED
from scheduler.model.orders import Start
from simulator.engine.physics import RunTimeOn


class RigidJobs(Physics):
    """Jobs that hold the same processors from their start to their end.

    Parameters
    ----------
    agenda : takes the ends.
    run_s : run time of each job, seconds, in the order of their numbers from 1.
    contiguity : gain on contiguous processors; the site must allocate individual processors.
    cpu_factors : job number -> CPU factor of the centre that started it, where it is not 1; None:
        there is one machine.
    """

    def __init__(
        self,
        agenda: Agenda,
        run_s: list[float],
        contiguity: RunTimeOn | None = None,
        cpu_factors: Mapping[int, float] | None = None,
    ) -> None:
        self._agenda, self._run_s = agenda, run_s
        self._contiguity, self._cpu_factors = contiguity, cpu_factors

    def start(self, order: Start) -> None:
        """Start a job and enter its end."""
        self.compute(order, self._agenda.now, 0.0)

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
