"""A batch site: it answers the messages of the commands from the state of a batch system.

===================  ===============================================================================
message              answer
===================  ===============================================================================
Submit               the job is submitted once for each submission key, whatever dies meanwhile
ListJobs, Wait       the jobs that were submitted here, from the batch system and their exit codes
Cancel               the batch job is cancelled
Explain              times, and what the batch system says
ServerInfo           counts of these jobs; the load of the batch system is not known
quotes, forecasts    refused: a batch system gives no quotes
===================  ===============================================================================
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from types import TracebackType

import msgspec

import reshape
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire import messages as m
from scheduler.batch_sites.descriptions import described, updated
from scheduler.batch_sites.job_records import BatchSiteJob, EndedJob, JobRecords
from scheduler.batch_sites.script import check_submission, job_script
from scheduler.batch_systems import psij_system
from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchStatus,
    BatchSystem,
    BatchSystemError,
)
from scheduler.batch_systems.recorded import InDoubtError, RecordedBatchSystem
from scheduler.batch_systems.slurm import Slurm
from scheduler.config.batch_site_file import BatchSiteDescription, read_batch_site
from scheduler.model.job import JobState

log = logging.getLogger(__name__)

#: Seconds between two look-ups of a wait.
LOOK_UP_S = 1.0


def batch_system(description: BatchSiteDescription) -> RecordedBatchSystem:
    """Batch system of a site.

    Raises
    ------
    BatchSystemError : there is none of this name, or PSI/J is not installed.
    """
    name, folder = description.system, description.folder
    batch: BatchSystem
    if name == Slurm.name:
        batch = Slurm()
    elif name.startswith(psij_system.PREFIX):
        batch = psij_system.Psij(name.removeprefix(psij_system.PREFIX), folder / "psij")
    else:
        executors = ", ".join(psij_system.PREFIX + each for each in psij_system.ID_EXPRESSIONS)
        raise BatchSystemError(f"there is no batch system {name!r}: use slurm, {executors}")
    return RecordedBatchSystem(batch, folder / "jobs", keep_s=None)


class BatchSite:
    """A connection to a batch site, in place of `reshape.wire.client.Client`.

    Parameters
    ----------
    file : batch site file.

    Raises
    ------
    ReshapeError : the file is invalid, or there is no such batch system.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._description = read_batch_site(file)
        self._batch = batch_system(self._description)
        self._records = JobRecords(self._description.folder)

    def __enter__(self) -> BatchSite:
        """Return the site."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is open."""

    def request(self, message: m.Message, timeout: float) -> m.Message:
        """Answer a message.

        Parameters
        ----------
        timeout : seconds; a wait that takes longer is given up.

        Raises
        ------
        ServiceUnavailable : it is not known what became of a submission, or the time is over.
        ReshapeError : the request is refused, or the batch system does not answer.
        """
        match message:
            case m.Submit():
                return m.Submitted(job=self._submit(message.submission))
            case m.ListJobs():
                return m.Jobs(now=time.time(), jobs=self._listed(message))
            case m.Wait():
                return m.Jobs(now=time.time(), jobs=[self._wait(message.job, timeout)])
            case m.Cancel():
                self._cancel(message.job)
                return m.Done()
            case m.Explain():
                return m.Explanation(job=message.job, lines=self._explanation(message.job))
            case m.ServerInfo():
                return self._info()
            case m.RequestQuote() | m.ForecastStarts() | m.ForecastJob():
                raise ReshapeError(f"the batch system {self._batch.name} gives no quotes")
        kind = type(message).__name__
        raise ReshapeError(f"{kind} needs a service; {self._file} is a batch system's site")

    def request_all(self, messages: Iterable[m.Message], timeout: float) -> Iterator[m.Message]:
        """Answer messages one after another; a refusal is answered with a `Failure`.

        Raises
        ------
        ServiceUnavailable : as in `request`.
        """
        for message in messages:
            try:
                yield self.request(message, timeout)
            except ServiceUnavailable:
                raise
            except ReshapeError as error:
                yield m.Failure(message=str(error))

    def _submit(self, submission: m.Submission) -> int:
        """Submit a job, or find it if it was submitted before; return its number.

        Raises
        ------
        ServiceUnavailable : it may have been accepted.
        ReshapeError : it is refused and never runs.
        """
        if not submission.key:
            submission = msgspec.structs.replace(submission, key=secrets.token_hex(8))
        try:
            earlier = self._records.of_key(submission.key)
            if earlier is None or not self._accepted(earlier):
                check_submission(submission, self._description.processors, self._batch.name)
                earlier = self._records.new(_new_job(submission))
                self._submit_batch_job(earlier, submission)
            self._remove_old_jobs()
            return earlier.job
        except InDoubtError as error:
            raise ServiceUnavailable(str(error)) from None
        except OSError as error:
            folder = self._description.folder
            raise ServiceUnavailable(f"{folder} cannot be written: {error.strerror}") from None

    def _accepted(self, job: BatchSiteJob) -> bool:
        """Whether a job was accepted; if not, its batch job never runs."""
        if not job.batch_id:
            batch_id = self._batch.find([job.key]).get(job.key, "")
            job = msgspec.structs.replace(job, batch_id=batch_id)
            if batch_id:
                self._records.write(job)
        return bool(job.batch_id)

    def _submit_batch_job(self, job: BatchSiteJob, submission: m.Submission) -> None:
        per_node, output = self._description.processors_per_node, job.output_file
        request = BatchRequest(
            script=job_script(submission, output),
            nodes=ceil(submission.processors / per_node),
            time_limit_s=submission.walltime_s,
            name=job.key,
            directory=Path(submission.cwd),
            output=output,
            options=self._description.options,
            processors=min(submission.processors, per_node),
        )
        try:
            batch_id = self._batch.submit(request)
        except InDoubtError:
            raise
        except BatchSystemError as error:
            refused = EndedJob(JobState.FAILED.name, str(error), None, time.time(), 1)
            self._records.write(msgspec.structs.replace(job, ended=refused))
            raise
        self._records.write(msgspec.structs.replace(job, batch_id=batch_id, ended=None))

    def _remove_old_jobs(self) -> None:
        """Remove jobs whose ends were noted long ago, once a day; an error does not matter now."""
        records, keep_s = self._records, self._description.keep_s
        if keep_s is None or not records.is_removal_due(time.time()):
            return
        before = time.time() - keep_s
        try:
            ended = self._batch.have_ended(records.old(before))
            records.remove(ended, before, self._batch.remove)
            self._batch.delete_removed()
        except (ReshapeError, OSError) as error:
            log.warning("cannot remove old jobs in %s: %s", self._description.folder, error)

    def _listed(self, message: m.ListJobs) -> list[m.JobInfo]:
        if message.job is not None:
            return self._looked_up([self._records.of_number(message.job)])
        found = self._looked_up(self._records.all() if message.ended else self._records.open())
        return [job for job in found if message.ended or job.ended_at is None]

    def _wait(self, number: int, timeout: float) -> m.JobInfo:
        end = time.monotonic() + timeout
        while True:
            (found,) = self._looked_up([self._records.of_number(number)])
            if found.ended_at is not None:
                return found
            if time.monotonic() >= end:
                raise ServiceUnavailable(f"job {number} has not ended within {timeout:g} s")
            time.sleep(min(LOOK_UP_S, max(0.0, end - time.monotonic())))

    def _cancel(self, number: int) -> None:
        job = self._records.of_number(number)
        (found,) = self._looked_up([job])
        if found.ended_at is not None:
            raise ReshapeError(f"job {number} has ended already ({found.state})")
        batch_id = job.batch_id or self._batch.find([job.key]).get(job.key, "")
        # Noted first: whatever dies now, the job does not count as failed.
        job = msgspec.structs.replace(job, batch_id=batch_id, cancelled_at=time.time())
        self._records.write(job)
        if batch_id:
            self._batch.cancel([batch_id])

    def _explanation(self, number: int) -> list[m.Story]:
        job = self._records.of_number(number)
        status, info = self._statuses([job]).get(job.batch_id), self._looked_up([job])[0]
        name = self._batch.name
        lines = [m.Story(job.submitted_at, f"submitted to {name} as {job.batch_id or job.key}")]
        if info.started_at is not None:
            lines.append(m.Story(info.started_at, f"started on {job.processors} processors"))
        if info.ended_at is not None:
            lines.append(m.Story(info.ended_at, f"{info.state}, exit code {info.exit_code}"))
        elif status is not None:
            said = " ".join(filter(None, (status.word, status.reason, status.nodes)))
            lines.append(m.Story(time.time(), f"{name} says: {said or status.state.value}"))
        return lines

    def _info(self) -> m.Info:
        found = self._looked_up(self._records.open())
        running = [job for job in found if job.state == JobState.RUNNING.name]
        queued = sum(job.state == JobState.PENDING.name for job in found)
        now, size = time.time(), self._description.processors
        return m.Info(
            pid=os.getpid(),
            started_at=now,
            now=now,
            scenario=self._batch.name,
            processors=size,
            free=max(0, size - sum(job.requested for job in running)),
            nodes=[],
            queued=queued,
            running=len(running),
            # Numbers are given without gaps, so that all but these have ended.
            ended=self._records.count() - queued - len(running),
            directory=str(self._description.folder),
            version=reshape.__version__,
        )

    def _statuses(self, jobs: Sequence[BatchSiteJob]) -> dict[str, BatchStatus]:
        names = {job.batch_id: job.key for job in jobs if job.batch_id and job.ended is None}
        self._batch.note_names(names)
        return self._batch.statuses(names) if names else {}

    def _looked_up(self, jobs: Sequence[BatchSiteJob]) -> list[m.JobInfo]:
        """Describe jobs, and note what was found out about them."""
        statuses, now, found = self._statuses(jobs), time.time(), []
        for job in jobs:
            status = statuses.get(job.batch_id)
            noted = job if job.ended is not None else updated(job, status, now)
            if noted != job:
                self._records.write(noted)
            found.append(described(noted, status))
        return found


def _new_job(submission: m.Submission) -> BatchSiteJob:
    """Job of a submission, without a number."""
    return BatchSiteJob(
        job=0,
        key=submission.key,
        name=submission.name,
        processors=submission.processors,
        walltime_s=submission.walltime_s,
        argv=submission.argv,
        cwd=submission.cwd,
        output=submission.output,
        submitted_at=time.time(),
    )
