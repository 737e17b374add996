"""Scheduling passes, and the one that FCFS consists of: start jobs in queue order."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Protocol

from reshape.topology import Topology
from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.state.scheduler_state import SchedulerState


class StartJob(Protocol):
    """Starts a queued job if the selection accepts processors, and returns whether it did."""

    def __call__(
        self, job: Job, reason: Reason, avoiding: ProcSet = NONE, size: int | None = None, /
    ) -> bool:
        """Start the job on none of the processors to avoid, on `size` processors.

        None: as many as the job requests.
        """


class SchedulingPass:
    """Backfilling algorithm, run over the queue when a job may be able to start.

    Parameters
    ----------
    state : scheduler state.
    start_job : starts a job.
    name : of the algorithm, for reasons.

    Attributes
    ----------
    can_start_unqueued : whether `start_first` decides alone about a job that finds an empty queue.
    """

    def __init__(self, state: SchedulerState, start_job: StartJob, name: str) -> None:
        self.state = state
        self.start_job = start_job
        self.name = name
        self.can_start_unqueued = False

    def run(self) -> None:
        """Start the queued jobs that may start now. Precondition: the queue is not empty."""
        raise NotImplementedError

    def start_first(self, job: Job) -> bool:
        """Start the first job of the queue if it fits, and return whether it did."""
        raise NotImplementedError


class InOrder(SchedulingPass):
    """First come, first served: jobs start in queue order, and none before the head.

    Parameters
    ----------
    least_share : smallest share of its request on which the first job may start
        (`Backfill.adaptive_start`); 1: the whole request.
    """

    def __init__(
        self, state: SchedulerState, start_job: StartJob, name: str, least_share: float = 1.0
    ) -> None:
        super().__init__(state, start_job, name)
        self._rule = f"{name} in order"
        self._least_share = least_share
        self.can_start_unqueued = not (state.multi_resource or state.placing)

    def run(self) -> None:
        """Start the jobs before the head."""
        self.start_in_order()

    def start_in_order(self) -> Job | None:
        """Start jobs in queue order while they fit, and return the head, which does not."""
        state = self.state
        queue, installed = state.queue, state.machine.installed
        check = state.can_run if state.placing or state.multi_resource else None
        while (job := queue.first(installed, check)) is not None:
            if not self.start_first(job):
                return job
            if not queue.jobs:
                break
        return None

    def start_first(self, job: Job) -> bool:
        """Start the first job of the queue if it fits, and return whether it did."""
        state = self.state
        if state.multi_resource:
            if job.demand > state.free:
                return self._least_share < 1 and self._start_on_fewer(job)
            texts = {
                "needed": state.format_quantity(job.demand),
                "free": state.format_quantity(state.free),
            }
            text = "first in the queue: {needed} wanted, {free} free"
            return self.start_job(job, Reason(self._rule, text, texts))
        needed, free = job.processors, state.machine.free_count
        if needed > free:
            return self._least_share < 1 and self._start_on_fewer(job)
        text = "first in the queue: {needed} processors wanted, {free} free"
        return self.start_job(job, Reason(self._rule, text, {"needed": needed, "free": free}))

    def _start_on_fewer(self, job: Job) -> bool:
        """Start a job on the largest of its smaller sizes that fits; return whether it started."""
        state, spec = self.state, job.spec
        if spec.topology is None or not spec.resizable:
            return False
        free, least = state.machine.free_count, ceil(self._least_share * spec.processors)
        for size in smaller_starts(spec.topology, spec.processors, least):
            if size > free or state.quantity(size, job) > state.free:
                continue
            facts = {"needed": spec.processors, "free": free, "size": size}
            text = (
                "first in the queue: {needed} processors wanted, {free} free; it starts on {size}"
            )
            return self.start_job(
                job, Reason(f"{self.name} adaptive start", text, facts), NONE, size
            )
        return False


@lru_cache(maxsize=4096)
def smaller_starts(topology: Topology, request: int, least: int) -> tuple[int, ...]:
    """Sizes below a request, from `least` on, from which a job can grow to it; largest first."""
    return tuple(
        size for size in range(request - 1, least - 1, -1) if _reaches(topology, size, request)
    )


def _reaches(topology: Topology, size: int, request: int) -> bool:
    """Whether a job that starts on a size can grow to its request."""
    try:
        return topology.allows(request, size)
    except ValueError:  # no job can start on this size
        return False
