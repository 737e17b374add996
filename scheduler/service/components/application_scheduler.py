"""The application scheduler: submissions, cancellations and questions about jobs (PRIO 2)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

from msgspec.structs import replace

from reshape.errors import PermissionDenied, ReshapeError
from reshape.wire.messages import MOST_FACTS
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.journal.descriptions import (
    describe,
    encode_summary,
    noted_submission,
    task_submission,
)
from scheduler.journal.ended_jobs import (
    ended_info,
    positions,
    task_without_record,
    without_environment,
)
from scheduler.journal.explanations import told
from scheduler.journal.journal import Journal
from scheduler.journal.journal_format import LAST_JOB, KeptSubmission, Launch, kept
from scheduler.journal.journal_reader import ReportedFacts
from scheduler.journal.kept_parts import KeptParts
from scheduler.model.arrays import MOST_INTERVALS
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, Dependency, Term
from scheduler.node.launching.job_command import check_script
from scheduler.partition.eligibility import outcome
from scheduler.protocol import messages as m
from scheduler.service.components.admission import Admission
from scheduler.service.components.advance_reservations import check_reservation
from scheduler.service.components.remap_scheduler import RemapScheduler
from scheduler.state.derived_jobs import last_number, tasks_of
from scheduler.text.plain import (
    LONGEST_NAME,
    LONGEST_REASON,
    check_length,
    plain,
)

log = logging.getLogger(__name__)


_Submission = TypeVar("_Submission", bound=m.Submission)


class ApplicationScheduler:
    """Admits and cancels jobs, and describes them."""

    def __init__(
        self,
        core: Core,
        journal: Journal,
        remap: RemapScheduler,
        launches: dict[int, Launch],
        clock: Clock,
        admission: Admission,
        parts: KeptParts,
    ) -> None:
        self._core, self._journal, self._remap = core, journal, remap
        self._launches, self._clock = launches, clock
        self._admission, self._parts = admission, parts
        self._next = journal.last_job() + 1
        self.last_submitted = self._last_submitted()

    # ------------------------------------------------------------------ submissions

    def received(self, submission: _Submission, user: str) -> _Submission:
        """Set user and walltime of a submission (`Admission.walltime_s`); return it."""
        submission.walltime_s = self._admission.walltime_s(submission)
        submission.user = user
        return submission

    def submit(self, submission: m.Submission) -> JobSubmitted:
        """Check a submission and return its event, which has the number of the new job.

        Raises
        ------
        ReshapeError : the job could never run, or may not, or the disk is full.
        """
        spec = self.request_of(submission)
        _check_job_script(submission)
        event = self.add(submission, spec)
        self.last_submitted = event.job
        if spec.array is not None:  # its tasks have the numbers that follow
            self._journal.note_meta(LAST_JOB, str(self.last))
        if submission.key:
            self._journal.add_key(event.job, submission.user, submission.key)
        return event

    def add_task(self, task: Job) -> None:
        """Note how a task of an array is started, which has come to the queue."""
        if task.spec.task_of is not None and task.id not in self._launches:
            self.replace_submission(task.id, self.submission_of(task.id))

    def add(self, submission: m.Submission, spec: JobSpec) -> JobSubmitted:
        """Note how a new job or step is started; return its event, which has its number.

        The numbers of the tasks of an array follow its own.

        Raises
        ------
        ReshapeError : the disk is full.
        """
        small, parts = kept(submission)
        self._journal.check_room(sum(map(len, parts.values())))
        number = self._next
        self._next += 1 + (0 if spec.array is None else spec.array.count)
        self._parts.keep(number, parts)
        self._add_launch(number, small)
        return JobSubmitted(at=self._clock(), job=number, spec=spec)

    def _add_launch(self, number: int, submission: KeptSubmission) -> None:
        """Note how a new job is started."""
        token = self._token_of_task(number) or secrets.token_hex(16)
        self._launches[number] = Launch(submission, token)
        self._journal.add_job(number, token, submission)

    def _token_of_task(self, number: int) -> str:
        """Derive the token of a task from that of its array; "" for another job.

        A service whose journal has lost the record of a task brings it again. By the same token
        the agents know that it has run.
        """
        job = self._core.jobs.get(number)
        own = None if job is None else job.spec.task_of
        if own is None:
            return ""
        secret = self._launches[own.array].token.encode()
        return blake2b(b"%d" % number, key=secret, digest_size=16).hexdigest()

    def submitted_before(self, submission: m.Submission) -> int | None:
        """Return the job that was created by a submission with the same key; None if there is none.

        Raises
        ------
        ReshapeError : the key belongs to a job with another request.
        """
        if not submission.key:
            return None
        number = self._journal.job_of_key(submission.user, submission.key)
        if number is None:
            return None
        earlier, request = self._launch_of(number), without_environment(kept(submission)[0])
        if earlier is not None and without_environment(earlier.submission) != request:
            raise ReshapeError(
                f"the submission key {submission.key!r} belongs to job {number}, which has another"
                " request: use a new key"
            )
        return number

    @property
    def last(self) -> int:
        """Number of the last job that was submitted, 0 if there was none."""
        return self._next - 1

    def _last_submitted(self) -> int:
        """Return the number of the last submission of an earlier run of the service, no step."""
        number, jobs = self.last, self._core.jobs
        while number > 0:
            job = jobs.get(number) or self._journal.recorded_job(number)
            if job is None or job.spec.step_of is None:
                break
            number -= 1
        arrays = [job.id for job in jobs.values() if job.spec.array is not None]
        return next((n for n in arrays if last_number([jobs[n]]) == number), number)

    def request_of(self, submission: m.Submission) -> JobSpec:
        """Return the request of a job as admission accepts it; nothing is submitted.

        Raises
        ------
        ReshapeError : the job could never run, or may not.
        """
        spec = self._admission.admit(submission)
        if spec.reservation:
            check_reservation(spec, self._core, self._clock())
        conditions = _conditions_of(submission, self.job, self._clock.ahead_s)
        return spec if conditions is None else replace(spec, conditions=conditions)

    def named(self, job: Job, tasks: str = "") -> tuple[int, ProcSet | None]:
        """Return how an event names a job: its number, and positions of tasks in it or None.

        An event of a task that has not come to the queue is one of its array.

        Parameters
        ----------
        tasks : indices of tasks of the array; "": the job itself.

        Raises
        ------
        ReshapeError : it has no such tasks, or they have ended; or too many ranges of its tasks
            would be apart from the others.
        """
        array, places = job, positions(job, tasks) if tasks else None
        own = job.spec.task_of
        if own is not None and job.id not in self._core.jobs:
            array = self._core.jobs[own.array]
            places = ProcSet.span(job.id - array.id - 1, 1)
        if places is not None and array.to_come is not None:
            coming = array.to_come
            if not (coming.left & places or self._core.tasks_of(array, places)):
                raise ReshapeError(f"tasks {tasks} of array {array.id} have ended already")
            if coming.intervals + len(places.intervals) > MOST_INTERVALS:
                raise ReshapeError(
                    f"array {array.id} has {coming.intervals} ranges of tasks that are held or"
                    f" cancelled apart, and may have {MOST_INTERVALS}: name whole ranges of tasks,"
                    " or the array"
                )
        return array.id, places

    def _launch_of(self, number: int) -> Launch | None:
        """Return how a job is started, also one that has ended; None if that is not known."""
        return self._launches.get(number) or self._journal.launch_of(number)

    def submission_of(self, number: int) -> KeptSubmission:
        """Return the submission of a job that has not ended, as it was updated last."""
        launch = self._launches.get(number)
        if launch is not None:
            return launch.submission
        own = self.job(number).spec.task_of
        assert own is not None, f"job {number} has a submission"
        tasks = tasks_of(self._core.jobs[own.array])
        return task_submission(self._launches[own.array].submission, own, tasks)

    def replace_submission(self, number: int, submission: KeptSubmission) -> None:
        """Note the submission of a job that has not ended, when it is updated or a task comes."""
        launch = self._launches.get(number)
        if launch is None:
            self._parts.add(number, submission)
            self._add_launch(number, submission)
            return
        launch.submission = submission
        self._journal.replace_submission(number, launch.token, submission)

    def job(self, number: int) -> Job:
        """Return a job; the record of one that has ended is read from the journal.

        Raises
        ------
        ReshapeError : there is no job of this number, or its record was removed.
        """
        job = self._core.jobs.get(number)
        if job is None and 0 < number <= self.last:
            job = self._journal.recorded_job(number)
            job = job or task_without_record(self._journal, number, self._core.jobs)
            if job is None:
                raise ReshapeError(f"job {number} is not in the journal any more")
        if job is None:
            numbers = f"numbers go from 1 to {self.last}" if self.last else "none was submitted yet"
            raise ReshapeError(f"there is no job {number}: {numbers}")
        return job

    def check_token(self, number: int, token: str) -> Job:
        """Return the job of a message from an application.

        Raises
        ------
        ReshapeError : there is no such job.
        PermissionDenied : the message is not from one of its processes.
        """
        job = self.job(number)
        launch = self._launch_of(number)
        if launch is None or not secrets.compare_digest(launch.token.encode(), token.encode()):
            raise PermissionDenied(f"the message is not from a process of job {number}")
        return job

    # ------------------------------------------------------------------ ends

    def note_ends(self, jobs: Sequence[Job]) -> None:
        """Note the descriptions of ended jobs; neither environments nor scripts are kept.

        The hooks of the jobs get them until the jobs are forgotten.
        """
        for job in jobs:
            self._journal.note_summary(job.id, encode_summary(self._describe(job)))
        for job in jobs:
            launch = self._launches.get(job.id)
            if launch is not None:
                left = without_environment(launch.submission)
                self._journal.replace_submission(job.id, launch.token, left)

    def forget(self, number: int) -> None:
        """Drop a job that has ended and left nothing: the journal holds it from now on."""
        self._core.forget(number)
        launch = self._launches.pop(number, None)
        if launch is not None:
            self._parts.drop(number, launch.submission)

    def ended(self, number: int) -> tuple[Job, KeptSubmission] | None:
        """Return a job that the core has forgotten, and its submission without the environment."""
        job = self._journal.recorded_job(number)
        if job is None or job.state not in FINAL:
            return None
        launch = self._journal.launch_of(number)
        return None if launch is None else (job, launch.submission)

    def add_facts(self, job: Job, facts: ReportedFacts) -> None:
        """Note what a program reports of itself, possibly just after the end of its job.

        Raises
        ------
        ReshapeError : a value is not a finite number, a name or a text is too long, or the job has
            too many facts.
        """
        for name, value in facts.items():
            check_length(name, "the fact", LONGEST_NAME)
            if isinstance(value, str):
                check_length(value, f"the fact {plain(name)}", LONGEST_REASON)
        if len(self._journal.facts(job.id) | facts) > MOST_FACTS:
            raise ReshapeError(f"a job has at most {MOST_FACTS} facts: report fewer")
        self._journal.add_facts(job.id, facts)
        if job.state in FINAL:
            info = ended_info(self._journal, job)
            info.facts = self._journal.facts(job.id)
            self._journal.note_summary(job.id, encode_summary(info))

    # ------------------------------------------------------------------ answers

    def live(self, *, steps: bool = False) -> list[Job]:
        """Return the jobs that are queued or running.

        Parameters
        ----------
        steps : whether to include the steps of jobs.
        """
        unended = (job for job in self._core.jobs.values() if job.state not in FINAL)
        return [job for job in unended if steps or job.spec.step_of is None]

    def ended_count(self, live: Sequence[Job]) -> int:
        """Return how many jobs have ended, tasks of arrays and steps included.

        Parameters
        ----------
        live : the jobs that have not.
        """
        to_come = (job.to_come.left.count() for job in live if job.to_come is not None)
        steps = sum(len(self._core.steps_of(job.id)) for job in live)
        return self.last - len(live) - steps - sum(to_come)

    def pending_reason(self, number: int) -> list[m.Story]:
        """Return why a job waits; nothing if it does not."""
        job = self.job(number)
        if job.state is not JobState.PENDING:
            return []
        reason, ahead_s = self._why_pending(job), self._clock.ahead_s
        text = f"waits: {reason.dated(ahead_s)}"
        return [told(self._clock.wall(), text, reason, ahead_s)]

    def _why_pending(self, job: Job) -> Reason:
        own = job.spec.task_of
        if own is None or job.id in self._core.jobs:
            return self._core.reason_pending(job.id)
        return self._core.reason_to_come(self._core.jobs[own.array], job.id - own.array - 1)

    def info(self, job: Job) -> m.JobInfo:
        """Describe a job as tables show it."""
        return ended_info(self._journal, job) if job.state in FINAL else self._describe(job)

    def info_with_ranks(self, job: Job) -> m.JobInfo:
        """Describe a job as `info` does, with the place of each rank."""
        info, launch = self.info(job), self._launches.get(job.id)
        if launch is not None and job.state not in FINAL:
            info.ranks = self._remap.startup.placements.table(job)
            info.unbound = self._remap.startup.placements.unbound(job)
        return info

    def _describe(self, job: Job) -> m.JobInfo:
        launch = self._launches.get(job.id)
        info = describe(
            job,
            self._journal,
            noted_submission(self._journal, job) if launch is None else launch.submission,
            self._clock(),
            reason=self._reason(job),
            ahead_s=self._clock.ahead_s,
            nodes_of=self._core.machine.by_node,
            host=self._remap.startup.host_of(job),
            point=self._remap.kept[job.id].point if job.id in self._remap.kept else None,
        )
        if self._core.steps_of(job.id):  # it holds what they have grown to, too
            processors = self._core.held(job)
            info.processors, info.size = str(processors), len(processors)
            info.nodes = ",".join(self._core.machine.by_node(processors))
        return info

    def _reason(self, job: Job) -> str:
        if job.state is JobState.PENDING:
            return str(self._why_pending(job).dated(self._clock.ahead_s))
        if job.state in FINAL or job.state is JobState.COMPLETING:
            return job.why or (f"requeued: {job.requeued_why}" if job.requeues else "")
        return "" if job.resize is None else str(job.resize.reason.dated(self._clock.ahead_s))


def _check_job_script(submission: m.Submission) -> None:
    """Check the text of a job script that is submitted."""
    if submission.text and not submission.script:
        raise ReshapeError("only a job script has a text: leave it out")
    if submission.text:
        check_script(submission.text, plain(submission.argv[0]) if submission.argv else "it")


def _conditions_of(
    submission: m.Submission, find: Callable[[int], Job], ahead_s: float
) -> Conditions | None:
    """Conditions of a submission; None if there are none.

    What has become of jobs that have ended is filled in, since the core may have forgotten them.
    """
    begin, dependency = submission.begin, submission.read_dependency()
    if not submission.hold and begin is None and dependency is None:
        return None
    if dependency is not None:
        terms = tuple(_known_term(term, find) for term in dependency.terms)
        dependency = Dependency(terms, dependency.any_of)
    return Conditions(
        "user" if submission.hold else "",
        None if begin is None else begin - ahead_s,
        dependency,
        submission.kill_on_invalid,
    )


def _known_term(term: Term, find: Callable[[int], Job]) -> Term:
    if term.kind == "singleton":
        return term
    try:
        if term.task_of is not None:
            term = term.of_array(find(term.task_of.array).spec.array)
        other = find(term.job)
    except (ReshapeError, ValueError) as error:
        raise ReshapeError(f"--dependency {term}: {error}") from None
    if other.spec.step_of is not None:
        raise ReshapeError(
            f"--dependency {term}: it is step {other.spec.step_of}: name its job"
            f" {other.spec.step_of.job}"
        )
    return replace(term, met=outcome(term, other.state)) if other.state in FINAL else term
