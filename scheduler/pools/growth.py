"""Which running jobs could use further nodes, for a pool that also grows for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.core.core import Core
from scheduler.model.job import Job, JobState
from scheduler.pools.view import Growth
from scheduler.state.view import larger_size, topology_fault


def growing_jobs(core: Core, idle_unused: Mapping[int, int], now: float) -> Iterator[Growth]:
    """Yield what each running job needs for its next larger size, in the order of their starts.

    A job counts if a resizing policy applies to it, it has completed an iteration on its size, it
    is below its sweet spot and its largest size, and it may still run for a while.

    Parameters
    ----------
    idle_unused : size of each job that has left idle processors unused, by job; it does not count
        as long as it has this size.
    now : seconds.
    """
    for job in core.live.values():
        to = _next_size(core, job) if idle_unused.get(job.id) != job.size else None
        if to is not None and job.expected_end > now:
            yield Growth(job.id, job.size, to - job.size, job.expected_end - now)


def _next_size(core: Core, job: Job) -> int | None:
    """Size to which a job would expand next; None if it would not."""
    most, topology = job.spec.max_processors, job.topology
    if job.state is not JobState.RUNNING or not job.spec.resizable or most is None:
        return None
    if topology is None or core.scenario.resizing_of(job.spec.queue) is None or topology_fault(job):
        return None
    spot = job.history.sweet_spot
    if job.history.settled < 1 or (spot is not None and job.size >= spot):
        return None
    return larger_size(topology, job.size, job.processors, most)
