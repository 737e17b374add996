"""Sort keys of queue orders that age, compiled: each sort computes them for all queued jobs."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.job import Job


def aging_priority(
    job: Job,
    now: float,
    qfactor_weight: float,
    wait_weight: float,
    nodes_weight: float,
    qfactor_limit_s: float,
) -> float:
    """Priority of a queued job at a time (s); see `scheduler.policies.queue_orders.aging.Aging`."""
    spec = job.spec
    wait_s, walltime_s = now - job.submitted_at, spec.walltime_s
    if wait_s < 0.0:
        wait_s = 0.0
    if walltime_s < qfactor_limit_s:
        walltime_s = qfactor_limit_s
    qfactor = 1.0 + wait_s / walltime_s
    return (
        qfactor_weight * qfactor
        + wait_weight * (wait_s / 60.0)
        + nodes_weight * spec.processors
        + spec.priority
    )


def aging_keys(
    jobs: Iterable[Job],
    now: float,
    qfactor_weight: float,
    wait_weight: float,
    nodes_weight: float,
    qfactor_limit_s: float,
) -> list[tuple[float, float]]:
    """Sort keys of queued jobs: priority, highest first, then the time of submission (s)."""
    return [
        (
            -aging_priority(job, now, qfactor_weight, wait_weight, nodes_weight, qfactor_limit_s),
            job.submitted_at,
        )
        for job in jobs
    ]


def lxwf_key(job: Job, now: float, weight_per_hour: float) -> tuple[float, float]:
    """Sort key of a queued job; see `scheduler.policies.queue_orders.basic.Lxwf`."""
    wait_s, estimate_s = now - job.queued_at, job.estimate_s
    expansion = wait_s / (estimate_s if estimate_s > 1.0 else 1.0)
    return -(expansion + weight_per_hour * wait_s / 3600.0), job.queued_at


def lxwf_keys(jobs: Iterable[Job], now: float, weight_per_hour: float) -> list[tuple[float, float]]:
    """Sort keys of several jobs."""
    return [lxwf_key(job, now, weight_per_hour) for job in jobs]
