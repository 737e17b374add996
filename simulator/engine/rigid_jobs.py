"""Rigid jobs, of which one event, the end, follows from the start; jobs that follow others.

All submissions of jobs that follow others are events of the agenda: those of jobs without a
preceding one from the start, the others when that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

from scheduler.clock.agenda import Agenda
from scheduler.clock.driven import Driven
from scheduler.clock.loop import Physics
from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted
from scheduler.model.job import FINAL, JOB_ENDED
from scheduler.model.orders import Continue, Contract, Expand, Start
from simulator.engine.physics import Contiguity


class RigidJobs(Physics):
    """Jobs that hold the same processors from their start to their end.

    Parameters
    ----------
    agenda : takes the ends.
    run_s : run time of each job, seconds, in the order of their numbers from 1.
    around_s : time that every job holds its processors besides its run time, seconds.
    contiguity : gain on contiguous processors; the site must allocate individual processors.
    cpu_factors : job number -> CPU factor of the centre that started it, where it is not 1; None:
        there is one machine.
    """

    def __init__(
        self,
        agenda: Agenda,
        run_s: list[float],
        around_s: float = 0.0,
        contiguity: Contiguity | None = None,
        cpu_factors: Mapping[int, float] | None = None,
    ) -> None:
        self._agenda, self._run_s = agenda, run_s
        self._around_s, self._contiguity = around_s, contiguity
        self._cpu_factors = cpu_factors

    def start(self, order: Start) -> None:
        """Start a job and enter its end."""
        self.compute(order, self._agenda.now, self._around_s)

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
            run_s = self._contiguity.run_s(run_s, order.processors)
        agenda, at = self._agenda, since + (around_s + run_s)
        ends = JOB_ENDED(at, number)
        if agenda.next and number in agenda.next:  # replaces the end of a run that was redirected
            agenda.set_next(ends)
        else:
            agenda.enter(at, ends)


class FollowingJobs(Physics):
    """Physics around another one, which says what the jobs do, that submits jobs after others.

    Parameters
    ----------
    physics : the other one.
    agenda : takes the submissions.
    site : tells whether a job has ended for good or is queued again.
    submit_times : of the jobs without a preceding one, seconds, in the order of their numbers.
    specs : request of each job.
    after : number of the preceding job of each job; 0: none.
    think_s : from its end to the submission, seconds.

    Attributes
    ----------
    submitted : time of each submission, seconds; nan of jobs whose preceding one has not ended.
    """

    def __init__(
        self,
        physics: Physics,
        agenda: Agenda,
        site: Driven,
        submit_times: Sequence[float],
        specs: Sequence[JobSpec],
        after: Sequence[int],
        think_s: Sequence[float],
    ) -> None:
        self._physics, self._agenda, self._site = physics, agenda, site
        self._specs, self._think_s = specs, think_s
        self.submitted = [nan] * len(specs)
        self._followers: dict[int, list[int]] = {}
        for number, before in enumerate(after, 1):
            if before:
                self._followers.setdefault(before, []).append(number)
            else:
                self._submit(number, submit_times[number - 1])

    def _submit(self, number: int, at: float) -> None:
        self.submitted[number - 1] = at
        self._agenda.add(JobSubmitted(at, number, self._specs[number - 1]))

    def begin_instant(self, before: float, events: list[Event]) -> None:
        """Hand on to the other physics."""
        self._physics.begin_instant(before, events)

    def start(self, order: Start) -> None:
        """Hand on to the other physics."""
        self._physics.start(order)

    def resize(self, order: Continue | Expand | Contract) -> None:
        """Hand on to the other physics."""
        self._physics.resize(order)

    def end_instant(self, events: list[Event]) -> None:
        """Enter the submissions of the jobs that follow those that have ended."""
        self._physics.end_instant(events)
        for event in events:
            if type(event) is JobEnded and self._has_ended(event.job):
                for number in self._followers.pop(event.job, ()):
                    self._submit(number, event.at + self._think_s[number - 1])

    def _has_ended(self, number: int) -> bool:
        """Whether a job will not start again, as a redirected one does."""
        job = self._site.jobs.get(number)
        return job is None or job.state in FINAL
