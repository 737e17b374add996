"""The application scheduler: submissions, cancellations and questions about jobs (PRIO 2)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from reshape.errors import ReshapeError
from reshape.wire import messages as m
from scheduler.model.events import Event, JobCancelled, JobSubmitted
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.service.components.admission import Admission
from scheduler.service.components.job_startup import JobStartup, Launch, output_path
from scheduler.service.components.remap_scheduler import RemapScheduler, ReportedProgress
from scheduler.service.record.explanations import allocation, because, explanation_lines, resizes
from scheduler.service.record.journal import Journal
from scheduler.sites.site import Site

log = logging.getLogger(__name__)


class ApplicationScheduler:
    """Admits and cancels jobs, and describes them."""

    def __init__(
        self,
        core: Site,
        journal: Journal,
        startup: JobStartup,
        remap: RemapScheduler,
        launches: dict[int, Launch],
        clock: Callable[[], float],
        admission: Admission,
    ) -> None:
        self._core, self._journal, self._remap = core, journal, remap
        self._startup, self._launches, self._clock = startup, launches, clock
        self._admission = admission
        self._ended: dict[int, m.JobInfo] = {}
        self._next = max(launches, default=0) + 1

    # ------------------------------------------------------------------ submissions

    def submit(self, submission: m.Submission) -> JobSubmitted:
        """Check a submission and return its event, which has the number of the new job.

        Raises
        ------
        ReshapeError : the job could never run, or may not.
        """
        spec = self._admission.admit(submission)
        number, self._next = self._next, self._next + 1
        token = secrets.token_hex(16)
        self._launches[number] = Launch(submission, token)
        self._journal.add_job(number, token, submission)
        return JobSubmitted(at=self._clock(), job=number, spec=spec)

    def cancel(self, number: int) -> Event:
        """Return the event that cancels a job.

        Raises
        ------
        ReshapeError : there is no such job, or it has ended.
        """
        job = self.job(number)
        if job.state in FINAL:
            raise ReshapeError(f"job {number} has ended already ({job.state.name})")
        return JobCancelled(at=self._clock(), job=number)

    def job(self, number: int) -> Job:
        """Return a job.

        Raises
        ------
        ReshapeError : there is no job of this number.
        """
        job = self._core.jobs.get(number)
        if job is None:
            last = self._next - 1
            known = f"numbers go from 1 to {last}" if last else "none was submitted yet"
            raise ReshapeError(f"there is no job {number}: {known}")
        return job

    def check_token(self, number: int, token: str) -> Job:
        """Return the job of a message from an application.

        Raises
        ------
        ReshapeError : no such job, or the message is not from one of its processes.
        """
        job = self.job(number)
        if not secrets.compare_digest(self._launches[number].token, token):
            raise ReshapeError(f"the message is not from a process of job {number}")
        return job

    # ------------------------------------------------------------------ answers

    def listed(self, number: int | None, ended: bool) -> list[Job]:
        """Return one job, or those queued and running (and ended)."""
        if number is not None:
            return [self.job(number)]
        jobs = self._core.jobs.values()
        return [job for job in jobs if ended or job.state not in FINAL]

    def explanation(self, number: int) -> list[m.Story]:
        """Return what happened to one job and why, oldest first."""
        job = self.job(number)
        lines = explanation_lines(
            self._journal.events_of(number),
            self._journal.orders_of(number, routine=True),
            self._journal.phases_of(number),
        )
        if job.state is JobState.PENDING:
            reason = self._core.reason_pending(job.id)
            lines.append(m.Story(at=self._clock(), text=f"waits: {because(reason)}"))
        return lines

    def info(self, job: Job) -> m.JobInfo:
        """Describe a job as tables show it; the description of an ended job is kept."""
        if job.id not in self._ended:
            info = self._describe(job)
            if job.state not in FINAL:
                return info
            self._ended[job.id] = info
        return self._ended[job.id]

    def _describe(self, job: Job) -> m.JobInfo:
        submission = self._launches[job.id].submission
        progress = self._remap.progress.get(job.id, ReportedProgress())
        orders = self._journal.orders_of(job.id)
        events = self._journal.events_of(job.id)
        processors = ProcSet()
        for part in job.groups.values():
            processors |= part
        machine = self._core.machine
        return m.JobInfo(
            job=job.id,
            name=job.spec.name,
            user=job.spec.user,
            state=job.state.name,
            code=job.state.value,
            requested=job.spec.processors,
            max_processors=job.spec.max_processors,
            size=job.size,
            walltime_s=job.spec.walltime_s,
            submitted_at=job.submitted_at,
            started_at=job.started_at,
            ended_at=job.ended_at,
            processors=str(processors),
            nodes=",".join(machine.by_node(processors)),
            reason=self._reason(job),
            exit_code=job.exit_code,
            signal=job.signal,
            restarts=job.restarts,
            iteration=progress.iteration,
            iteration_s=progress.iteration_s,
            sizes=list(job.sizes),
            resizes=resizes(job, events, orders),
            allocation=allocation(events, orders),
            facts=self._journal.facts(job.id),
            output=output_path(job.id, submission),
            argv=submission.argv,
            redirected_at=job.redirected_at,
            queue=job.spec.queue,
            priority=job.spec.priority,
            resources=dict(job.spec.resources),
        )

    def _reason(self, job: Job) -> str:
        if job.state is JobState.PENDING:
            return because(self._core.reason_pending(job.id))
        if job.state in FINAL or job.state is JobState.COMPLETING:
            return job.why
        return because(job.resize.reason) if job.resize is not None else ""
