"""Scheduling passes, and the one that FCFS consists of: start jobs in queue order."""

from __future__ import annotations

from typing import Protocol

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.state.scheduler_state import SchedulerState


class StartJob(Protocol):
    """Starts a queued job if the selection accepts processors, and returns whether it did."""

    def __call__(self, job: Job, reason: Reason, avoiding: ProcSet = ..., /) -> bool:
        """Start the job on none of the processors to avoid."""


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
    """First come, first served: jobs start in queue order, and none before the head."""

    def __init__(self, state: SchedulerState, start_job: StartJob, name: str) -> None:
        super().__init__(state, start_job, name)
        self._rule = f"{name} in order"
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
                return False
            texts = {
                "needed": state.format_quantity(job.demand),
                "free": state.format_quantity(state.free),
            }
            text = "first in the queue: {needed} wanted, {free} free"
            return self.start_job(job, Reason(self._rule, text, texts))
        needed, free = job.processors, state.machine.free_count
        if needed > free:
            return False
        text = "first in the queue: {needed} processors wanted, {free} free"
        return self.start_job(job, Reason(self._rule, text, {"needed": needed, "free": free}))
