"""The state of a job of a batch site, from what the batch system says and from its exit code."""

from __future__ import annotations

import getpass

import msgspec

from reshape.wire.messages import JobInfo
from scheduler.batch_sites.job_records import BatchSiteJob, EndedJob
from scheduler.batch_systems.interface import BatchState, BatchStatus
from scheduler.model.job import JobState

#: Seconds for which a batch job that has ended may still note its exit code.
NOTED_S = 10.0
#: Seconds for which a new batch job may be missing from what the batch system lists.
LISTED_S = 60.0
#: What a batch system says of a batch job that it ended itself -> state of the job.
_ENDED_BY_SYSTEM = {
    "CANCELLED": JobState.CANCELLED,
    "CANCELED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "NODE_FAIL": JobState.NODE_FAIL,
    "BOOT_FAIL": JobState.NODE_FAIL,
    "PREEMPTED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
}
_SIGTERM = 15


def updated(job: BatchSiteJob, status: BatchStatus | None, now: float) -> BatchSiteJob:
    """Job with how it ended, or since when it is missing.

    Parameters
    ----------
    job : one that has not ended as far as is known.
    status : of its batch job; None if that has no id.
    now : present time, Unix seconds.
    """
    if status is not None and status.exit_code is not None:
        return msgspec.structs.replace(job, ended=_by_exit_code(job, status, now))
    gone = status is None or status.state in (BatchState.ENDED, BatchState.UNKNOWN)
    if not gone:
        return msgspec.structs.replace(job, missing_since=None)
    assert status is None or gone
    if job.cancelled_at is not None:
        state, reason = JobState.CANCELLED, ""
    elif status is None:
        return job  # its submission may go on
    elif status.word in _ENDED_BY_SYSTEM:
        state, reason = _ENDED_BY_SYSTEM[status.word], status.reason or status.word
    elif job.missing_since is None:
        return msgspec.structs.replace(job, missing_since=now)
    elif now - job.missing_since < _allowed_s(status):
        return job
    else:
        state, reason = JobState.FAILED, "its batch job ended without an exit code"
    signal = _SIGTERM if state is JobState.CANCELLED else 0
    start = None if status is None else status.start
    ended = EndedJob(state.name, reason, start, now, 0 if signal else 1, signal)
    return msgspec.structs.replace(job, ended=ended)


def described(job: BatchSiteJob, status: BatchStatus | None) -> JobInfo:
    """Describe a job as tables show it.

    Parameters
    ----------
    status : of its batch job; None if the job has ended, or its batch job has no id.
    """
    ended = job.ended
    state, reason = _present_state(job, status)
    started = None if status is None else status.start
    if ended is not None:
        state, reason, started = JobState[ended.state], ended.reason, ended.started_at
    return JobInfo(
        job=job.job,
        name=job.name,
        user=getpass.getuser(),
        state=state.name,
        code=state.value,
        requested=job.processors,
        max_processors=None,
        size=job.processors if state is JobState.RUNNING else 0,
        walltime_s=job.walltime_s,
        submitted_at=job.submitted_at,
        started_at=started,
        ended_at=None if ended is None else ended.ended_at,
        processors="",
        nodes="" if status is None else status.nodes,
        reason=reason,
        exit_code=0 if ended is None else ended.exit_code,
        signal=0 if ended is None else ended.signal,
        restarts=0,
        iteration=0,
        iteration_s=0.0,
        sizes=[] if started is None else [(started, job.processors)],
        resizes=[],
        allocation=[],
        facts={},
        output=str(job.output_file),
        argv=job.argv,
    )


def _by_exit_code(job: BatchSiteJob, status: BatchStatus, now: float) -> EndedJob:
    assert status.exit_code is not None
    at = now if status.end is None else status.end
    if job.cancelled_at is not None:
        return EndedJob(JobState.CANCELLED.name, "", status.start, at, 0, _SIGTERM)
    state = JobState.FAILED if status.exit_code else JobState.COMPLETED
    return EndedJob(state.name, "", status.start, at, status.exit_code)


def _allowed_s(status: BatchStatus) -> float:
    """Seconds for which a batch job may be missing before it counts as ended."""
    return LISTED_S if status.state is BatchState.UNKNOWN else NOTED_S


def _present_state(job: BatchSiteJob, status: BatchStatus | None) -> tuple[JobState, str]:
    """State and reason of a job that is not known to have ended."""
    if status is None:
        return JobState.PENDING, "its submission is not complete"
    if status.state is BatchState.RUNNING:
        return JobState.RUNNING, ""
    if job.missing_since is not None and status.state is BatchState.ENDED:
        return JobState.COMPLETING, ""
    return JobState.PENDING, status.reason or status.word
