"""Metrics of a run, computed from the job records of the service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo, ResizeInfo


class PauseMs(msgspec.Struct, frozen=True):
    """Median pauses of the committed resizes, in milliseconds; None if there was none."""

    join: float | None
    move: float | None
    resume: float | None


class RunMetrics(msgspec.Struct, frozen=True):
    """Metrics of one run.

    Parameters
    ----------
    jobs : number of jobs.
    jobs_verified : number of jobs that verified their own result.
    mean_turnaround_s : mean time from submission to end.
    mean_wait_s : mean time from submission to start.
    utilization : allocated processor-seconds / (processors * makespan).
    makespan_s : time from the first submission to the last end.
    expansions, contractions : numbers of committed resizes.
    resize_pause_ms : median pauses of a job during a resize.
    """

    jobs: int
    jobs_verified: int
    mean_turnaround_s: float
    mean_wait_s: float
    utilization: float
    makespan_s: float
    expansions: int
    contractions: int
    resize_pause_ms: PauseMs


class AllocationSpan(NamedTuple):
    """Processors that a job held from `begin` to `end` (Unix seconds)."""

    begin: float
    end: float
    held: ProcSet


def measure(jobs: Sequence[JobInfo], processors: int) -> RunMetrics:
    """Compute the metrics of a run whose jobs have all ended.

    Raises
    ------
    ValueError : there are no jobs, or a job has not ended.
    """
    if not jobs:
        raise ValueError("a run without jobs has no metrics")
    turnarounds = [_ended_at(job) - job.submitted_at for job in jobs]
    waits = [
        (job.started_at if job.started_at is not None else _ended_at(job)) - job.submitted_at
        for job in jobs
    ]
    makespan_s = max(map(_ended_at, jobs)) - min(job.submitted_at for job in jobs)
    held = sum(
        len(part.held) * (part.end - part.begin) for job in jobs for part in allocation_spans(job)
    )
    done = [resize for job in jobs for resize in job.resizes if is_committed(resize)]
    return RunMetrics(
        jobs=len(jobs),
        jobs_verified=sum(is_verified(job) for job in jobs),
        mean_turnaround_s=fmean(turnarounds),
        mean_wait_s=fmean(waits),
        utilization=held / (processors * makespan_s) if makespan_s > 0 else 0.0,
        makespan_s=makespan_s,
        expansions=sum(resize.new > resize.old for resize in done),
        contractions=sum(resize.new < resize.old for resize in done),
        resize_pause_ms=PauseMs(
            join=_median_ms(resize.join_s for resize in done),
            move=_median_ms(resize.move_s for resize in done),
            resume=_median_ms(resize.resume_s for resize in done),
        ),
    )


def allocation_spans(job: JobInfo) -> list[AllocationSpan]:
    """Return the allocations of a job over time; intervals without processors are omitted."""
    if not job.allocation:
        return []
    last = job.ended_at if job.ended_at is not None else job.allocation[-1][0]
    ends = [at for at, _ in job.allocation[1:]] + [last]
    return [
        AllocationSpan(begin, end, ProcSet.parse(text))
        for (begin, text), end in zip(job.allocation, ends, strict=True)
        if text and end > begin
    ]


def is_committed(resize: ResizeInfo) -> bool:
    """Whether a resize was committed."""
    return resize.outcome == "done"


def is_verified(job: JobInfo) -> bool:
    """Whether a job completed and verified its own result."""
    return job.state == "COMPLETED" and job.facts.get("verified") is True


def _ended_at(job: JobInfo) -> float:
    if job.ended_at is None:
        raise ValueError(f"job {job.job} has not ended ({job.state})")
    return job.ended_at


def _median_ms(seconds: Iterator[float]) -> float | None:
    values = list(seconds)
    return 1000 * median(values) if values else None
