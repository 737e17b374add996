"""Times for people: those of the service, moved to the wall clock.

The wall clock may be set while a job runs, or between two jobs. All times of one job are moved by
the same number of seconds, so that their differences remain durations: by how much the wall clock
is ahead of the clock of the service at the end of the job, or now if it has not ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler.model.job import Job
from scheduler.protocol import messages as m
from scheduler.replay.journal_reader import JournalReader
from scheduler.service.record.clock import noted_ahead_s


def ahead_of_job_s(journal: JournalReader, job: Job) -> float:
    """Return the seconds by which the recorded times of a job are moved."""
    if job.ended_at is None:
        return noted_ahead_s(journal)
    noted = next(journal.rows("SELECT ended_at FROM records WHERE job=?", job.id), (None,))
    return 0.0 if noted[0] is None else float(noted[0]) - job.ended_at


def moved_info(info: m.JobInfo, by_s: float) -> m.JobInfo:
    """Move all times of a description of a job."""
    if by_s == 0:
        return info
    return replace(
        info,
        submitted_at=info.submitted_at + by_s,
        started_at=moved_time(info.started_at, by_s),
        ended_at=moved_time(info.ended_at, by_s),
        redirected_at=moved_time(info.redirected_at, by_s),
        sizes=[(at + by_s, size) for at, size in info.sizes],
        resizes=[replace(resize, at=resize.at + by_s) for resize in info.resizes],
        allocation=[(at + by_s, processors) for at, processors in info.allocation],
    )


def moved_time(at: float | None, by_s: float) -> float | None:
    """Move a time; None stays None."""
    return None if at is None else at + by_s
