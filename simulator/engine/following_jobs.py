"""Jobs that are submitted a think time after another job has ended.

All submissions are events of the agenda: those of jobs without a preceding one from the begin, the
others when that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted
from scheduler.model.job import FINAL
from scheduler.model.orders import Continue, Contract, Expand, Start
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.driven import Driven
from scheduler.virtual_clock.loop import Physics


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
