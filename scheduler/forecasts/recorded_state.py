"""The recorded state of a core, from which forecasts begin.

It is what recovery starts from: the record of the core, and its queued and live jobs. It comes from
a core in this process, or from the journal of a service, which is opened
read-only. Each forecast builds a copy of the core; the recorded state does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from reshape.errors import ReshapeError
from scheduler.core.core import Core
from scheduler.journal.journal_reader import JournalReader
from scheduler.journal.replay import rules_in
from scheduler.model.events import JobSpec, ResizePoint
from scheduler.model.job import FINAL, PENDING, Job
from scheduler.model.machine import Machine
from scheduler.partition.partition import EventOrder
from scheduler.policies.containment import description
from scheduler.policies.scenario import Scenario
from scheduler.state.derived_jobs import last_number
from scheduler.state.records import copied, decode_core, encode_core

#: Latest jobs that tell how run times and estimates differ, and what is submitted.
PAST_JOBS = 1000
#: Ended jobs of a recorded state, the latest. Hindcasts of the later half know the earlier half.
KEPT_JOBS = 2 * PAST_JOBS


@dataclass(frozen=True)
class RecordedState:
    """The state of a core at one time.

    Parameters
    ----------
    record : encoded scheduler state, see `scheduler.state.records`.
    jobs : the queued and live jobs; they are not changed.
    scenario, kill_at_walltime, event_order : what the core decides by.
    now : time from which forecasts begin, s.
    last : number of the job that was submitted last, 0 if there was none.
    machine : that of the core without nodes: its network, places of nodes and shared resources.
    points : resize points after the records of their jobs, oldest first.
    past : the `KEPT_JOBS` jobs that ended last, in order of their ends.
    """

    record: bytes
    jobs: Sequence[Job]
    scenario: Scenario
    kill_at_walltime: bool
    now: float
    last: int
    machine: Machine
    event_order: EventOrder = "batch"
    points: Sequence[ResizePoint] = ()
    past: Sequence[Job] = ()

    @classmethod
    def of_core(cls, core: Core, *, last: int | None = None) -> RecordedState:
        """Record the state of a core, which may continue afterwards.

        Parameters
        ----------
        last : number of the job that was submitted last; by default the largest the core has.
        """
        jobs = core.jobs
        return cls(
            record=encode_core(core.record()),
            jobs=[copied(job) for job in jobs.values() if job.state not in FINAL],
            scenario=deepcopy(core.scenario),  # policies may remember what a forecast asks
            kill_at_walltime=core.kill_at_walltime,
            now=core.now,
            last=last_number(jobs.values()) if last is None else last,
            machine=core.partitions[0].machine.emptied(),
            event_order=core.order,
            past=_by_end(job for job in jobs.values() if job.state in FINAL)[-KEPT_JOBS:],
        )

    @classmethod
    def of_journal(cls, journal: JournalReader, now: float) -> RecordedState:
        """Read the state of a service from its journal.

        Parameters
        ----------
        now : time on the service's clock, s.

        Raises
        ------
        ReshapeError : the journal is damaged or holds no records of states.
        """
        with journal.one_moment():
            record = journal.core_record()
            settings = [*journal.settings().values()]
            if record is None or not settings:
                raise ReshapeError(
                    "the journal holds no recorded state: start the service of its directory once"
                    " with this release"
                )
            jobs = journal.recorded_jobs()
            ended = "ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?"
            past = journal.recorded_jobs(ended, KEPT_JOBS)
            points = journal.points_after_records()
            last = journal.last_job()
        scenario, kill_at_walltime, machine = rules_in(settings[-1])
        return cls(
            record=encode_core(record),
            jobs=jobs,
            scenario=scenario,
            kill_at_walltime=kill_at_walltime,
            now=max(now, record.now, max((point.at for point in points), default=record.now)),
            last=last,
            machine=machine,
            points=points,
            past=_by_end(past),
        )

    @property
    def arrivals(self) -> list[tuple[float, JobSpec]]:
        """Times (s) and requests of the latest submissions, in order of time."""
        submissions = sorted(
            (job.submitted_at, job.id, job.spec) for job in (*self.past, *self.jobs)
        )
        return [(at, spec) for at, _, spec in submissions[-PAST_JOBS:]]

    def later(self, core: Core) -> RecordedState:
        """Record a copy of the core that was built by `core` and has run forward since.

        Eligible jobs that still wait are those of this state: their estimates must not have
        changed.
        """
        jobs = {job.id: job for job in self.jobs}
        return replace(
            self,
            record=encode_core(core.record()),
            jobs=[
                jobs[job.id]
                if job.state is PENDING and jobs[job.id].conditions is None
                else copied(job)
                for job in core.jobs.values()
                if job.state not in FINAL
            ],
            now=core.now,
            points=(),
        )

    def next_task(self, job: Job) -> int:
        """Number of the task of an array that comes next; its own if none is ready, or of a job."""
        ready = None if job.to_come is None else job.to_come.ready
        return job.id + 1 + ready.intervals[0][0] if ready else job.id

    def array_of(self, number: int) -> Job | None:
        """Array of which the task with a number is still to come; None if there is none."""
        for job in self.jobs:
            if job.to_come is not None and number - job.id - 1 in job.to_come.left:
                return job
        return None

    def core(self) -> Core:
        """Build a copy of the core. Errors of its policies are contained."""
        return Core.restored(
            decode_core(self.record),
            [copied(job) for job in self.jobs],
            self.scenario,
            self.machine.emptied(),
            points=self.points,
            kill_at_walltime=self.kill_at_walltime,
            order=self.event_order,
            report_error=description,
        )


def _by_end(ended: Iterable[Job]) -> list[Job]:
    return sorted(ended, key=lambda job: (job.ended_at or 0.0, job.id))
