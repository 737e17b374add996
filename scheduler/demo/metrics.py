"""What a run of a workload amounts to, from what the service says of its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from reshape.wire.messages import JobInfo, ResizeInfo
from scheduler.model.procset import ProcSet


class PauseMs(msgspec.Struct, frozen=True):
    """Medians over the committed resizes, in milliseconds; None if there was none."""

    join: float | None
    move: float | None
    resume: float | None


class RunMetrics(msgspec.Struct, frozen=True):
    """A run in figures.

    Parameters
    ----------
    jobs, jobs_verified : all of them, and those that checked their own result and found it right.
    mean_turnaround_s, mean_wait_s : from submission to the end, and to the start.
    utilization : processor-seconds held by jobs / (processors * makespan).
    makespan_s : from the first submission to the last end.
    expansions, contractions : committed resizes.
    resize_pause_ms : how long a job stands still for one.
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
    """Processors that a job held from one moment to another (Unix seconds)."""

    begin: float
    end: float
    held: ProcSet


def measure(jobs: Sequence[JobInfo], processors: int) -> RunMetrics:
    """Sum up a run whose jobs have all ended.

    Raises
    ------
    ValueError : there is no job, or one that has not ended.
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
    """Give the processors a job held, over time; times without any are left out."""
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
    """Whether a resize came to its end and was not rolled back."""
    return resize.outcome == "done"


def is_verified(job: JobInfo) -> bool:
    """Whether a job ended well and says that its own result is right."""
    return job.state == "COMPLETED" and job.facts.get("verified") is True


def _ended_at(job: JobInfo) -> float:
    if job.ended_at is None:
        raise ValueError(f"job {job.job} has not ended ({job.state})")
    return job.ended_at


def _median_ms(seconds: Iterator[float]) -> float | None:
    values = list(seconds)
    return 1000 * median(values) if values else None
