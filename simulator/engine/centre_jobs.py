"""Rigid jobs at several centres: the CPU factor of a job's centre multiplies its run time."""

from __future__ import annotations

from scheduler.model.events import JobEnded
from scheduler.model.orders import Start
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.loop import Physics


class CentreJobs(Physics):
    """Jobs that run where they were assigned.

    Parameters
    ----------
    agenda : takes the ends.
    run_s : run time of each job on CPU factor 1, seconds, in the order of their numbers from 1.
    cpu_factors : job number -> CPU factor of the centre that started it, where it is not 1; the
        site sets it before the order to start.
    """

    def __init__(self, agenda: Agenda, run_s: list[float], cpu_factors: dict[int, float]) -> None:
        self._agenda, self._run_s, self._cpu_factors = agenda, run_s, cpu_factors

    def start(self, order: Start) -> None:
        """Enter the end of a job that starts."""
        number = order.job
        run_s = self._run_s[number - 1] * self._cpu_factors.get(number, 1.0)
        self._agenda.add(JobEnded(self._agenda.now + run_s, number))
