"""Ended jobs, as a recorded state has them."""

from __future__ import annotations

from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState


def ended_job(
    number: int, spec: JobSpec, run_s: float, *, submitted_at: float = 0.0, started_at: float = 0.0
) -> Job:
    """Make a job that ran for some seconds and completed."""
    job = Job(number, spec, submitted_at)
    job.state, job.started_at, job.ended_at = JobState.COMPLETED, started_at, started_at + run_s
    return job
