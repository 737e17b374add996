"""Steps of job scripts: which requests are accepted, and how steps are numbered.

A script proves its job by the token of the job, wherever it runs, and may do nothing else with it
than request steps of this job, wait for them and end them. The index of a step and the key of its
request are in the journal's table of submission keys, under a name that no user can have.
"""

from __future__ import annotations

from msgspec.structs import replace

from reshape.errors import PermissionDenied, ReshapeError
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.journal.journal import Journal
from scheduler.model.arrays import StepOf
from scheduler.model.events import Event, JobCancelled
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.model.requests import NodeRequest
from scheduler.protocol import messages as m
from scheduler.service.components.admission import LONGEST_KEY, Admission, check_per_process
from scheduler.service.components.application_scheduler import ApplicationScheduler
from scheduler.text.job_output import step_output
from scheduler.text.plain import check_text

#: Steps of a job that have not ended, at most.
MOST_STEPS = 1000
#: Fields of a submission that a script may set for a step; what it sets of others has no effect.
OF_STEP = (
    *("argv", "processors", "max_processors", "topology", "per_process", "name", "cwd"),
    *("environment", "open_mode", "umask", "limits"),
)


class StepRequests:
    """Checks the requests of job scripts, and makes their events."""

    def __init__(
        self,
        core: Core,
        journal: Journal,
        jobs: ApplicationScheduler,
        admission: Admission,
        clock: Clock,
    ) -> None:
        self._core, self._journal, self._jobs = core, journal, jobs
        self._admission, self._clock = admission, clock
        # Job that runs -> key of a request -> (index, number) of its step.
        self._requested: dict[int, dict[str, tuple[int, int]]] = {}

    def request(self, job: Job, message: m.RunStep) -> tuple[m.Submitted, Event | None]:
        """Return the answer to a request, and its event; None for a repetition.

        Raises
        ------
        ReshapeError : the job is no script, does not run, or has too few processors for the step;
            or its program may not be started like that.
        """
        check_text(message.key, "the key of a step", LONGEST_KEY)
        requests = self._requests(job.id)
        if message.key in requests:
            index, number = requests[message.key]
            return m.Submitted(job=number, label=str(step_of(job, index))), None
        self._check_job(job, message.submission)
        own = step_of(job, 1 + max((index for index, _ in requests.values()), default=-1))
        submission = self._submission(job, own, message.submission)
        nodes = replace(job.spec.nodes or NodeRequest(), per_process=submission.per_process)
        spec = replace(
            self._admission.admit(replace(submission, per_process=1)),
            walltime_s=job.spec.walltime_s,
            priority=job.spec.priority,
            reservation=job.spec.reservation,
            partition=job.partition,
            nodes=None if nodes == NodeRequest() else nodes,
            step_of=own,
        )
        event = self._jobs.add(submission, spec)
        self._journal.add_key(event.job, _scope(job.id), f"{own.index} {message.key}")
        requests[message.key] = own.index, event.job
        return m.Submitted(job=event.job, label=str(own)), event

    def _check_job(self, job: Job, submission: m.Submission) -> None:
        """Refuse steps of jobs that can have none, and those that could never start."""
        live = self._core.live.get(job.id)
        if live is None or live.state is JobState.COMPLETING:
            raise ReshapeError(f"job {job.id} does not run any more: it can have no further steps")
        if not self._jobs.submission_of(job.id).script:
            raise ReshapeError(
                f"job {job.id} is no job script: submit one with reshape batch, or start the"
                " program as a job of its own with reshape submit"
            )
        check_per_process(submission)
        if submission.smallest < submission.processors:
            raise ReshapeError(
                "a step starts on processors of its job, which it keeps to its end: leave --min out"
            )
        processors, per_process = submission.processors, submission.per_process
        granted = ProcSet.union(live.groups.values())
        if processors > len(granted):
            raise ReshapeError(
                f"the step asks for {processors} processors, job {job.id} has {len(granted)}: ask"
                " for fewer, or submit the script with a larger -n"
            )
        nodes = self._core.machine.by_node(granted).values()
        most = sum(len(numbers) // per_process for numbers in nodes)
        if processors // per_process > most:
            raise ReshapeError(
                f"the step asks for {processors} processors, {per_process} on one node for each"
                f" process, and job {job.id} has {most * per_process} of them: submit the script"
                f" with --per-process {per_process} (sbatch --cpus-per-task)"
            )
        if len(self._core.steps_of(job.id)) >= MOST_STEPS:
            raise ReshapeError(
                f"job {job.id} has {MOST_STEPS} steps that have not ended, which is the limit: wait"
                " for some of them first"
            )

    def _submission(self, job: Job, own: StepOf, submission: m.Submission) -> m.Submission:
        """Return the submission of a step, by which it is admitted like a short job of the user."""
        return m.Submission(
            **{name: getattr(submission, name) for name in OF_STEP},
            walltime_s=1.0,
            user=job.spec.user,
            queue=job.spec.queue,
            partition=job.spec.partition,
            output=step_output(submission.output, own.job, str(own)),
            error=step_output(submission.error, own.job, str(own)),
            bind=self._jobs.submission_of(job.id).bind,
        )

    def step(self, job: Job, number: int) -> Job:
        """Return a step of a job, also one that has ended.

        Raises
        ------
        PermissionDenied : the job has no such step.
        """
        step = self._jobs.job(number)
        if step.spec.step_of is None or step.spec.step_of.job != job.id:
            raise PermissionDenied(f"job {number} is no step of job {job.id}")
        return step

    def end(self, job: Job, number: int) -> list[Event]:
        """Return the event that cancels a step at the request of the script; none if it has ended.

        Raises
        ------
        PermissionDenied : the job has no such step.
        """
        if self.step(job, number).state in FINAL:
            return []
        return [JobCancelled(self._clock(), number, "cancelled by the script of its job")]

    def numbers(self, job: int) -> list[tuple[int, int]]:
        """Return index and job number of each step of a job, ended ones included."""
        return sorted(self._requests(job).values())

    def _requests(self, job: int) -> dict[str, tuple[int, int]]:
        """Return the requests of a job; those of a job that runs are kept."""
        requests = self._requested.get(job)
        if requests is None:
            requests = {}
            for number, text in self._journal.keys_of(_scope(job)):
                index, _, key = text.partition(" ")
                requests[key] = int(index), number
            if job in self._core.live:
                live = self._core.live
                self._requested = {n: keys for n, keys in self._requested.items() if n in live}
                self._requested[job] = requests
        return requests


def step_of(job: Job, index: int) -> StepOf:
    """Make the reference of a step to its job."""
    task = job.spec.task_of
    return StepOf(job.id, index, "" if task is None else str(task))


def _scope(job: int) -> str:
    """Name under which the journal keeps the keys of a job's steps; users' names are printable."""
    return f"\nsteps of job {job}"
