"""What the scheduling passes have in common."""

from __future__ import annotations

from math import isfinite

from scheduler.model.job import Job
from scheduler.model.orders import Facts
from scheduler.state.scheduler_state import SchedulerState

NO_FACTS: Facts = {}


class SchedulingPass:
    """Backfilling algorithm, run over the queue when a job may be able to start.

    Parameters
    ----------
    state : scheduler state.
    name : of the algorithm, for reasons.

    Attributes
    ----------
    can_start_unqueued : whether `start_first` decides alone about a job that finds an empty queue.
    failure : report of the latest run if it failed; "" otherwise.
    """

    def __init__(self, state: SchedulerState, name: str) -> None:
        self.state = state
        self.name = name
        self.can_start_unqueued = False
        self.failure = ""

    def run(self) -> None:
        """Start the queued jobs that may start now. Precondition: the queue is not empty."""
        raise NotImplementedError

    def start_first(self, job: Job) -> bool:
        """Start the first job of the queue if it fits, and return whether it did."""
        raise NotImplementedError


class PassReservations:
    """What is reserved for waiting jobs, and the rule by which other jobs start before them.

    Parameters
    ----------
    state : scheduler state.
    """

    def __init__(self, state: SchedulerState) -> None:
        self.state = state

    def holds(self, job: Job) -> bool:
        """Whether a job holds one of the reservations."""
        raise NotImplementedError

    def admits(self, job: Job) -> bool:
        """Whether a job fits now and would delay no reservation of another job."""
        raise NotImplementedError

    def next_candidate(self) -> Job | None:
        """First job of the index, in backfill order, that the reservations may admit."""
        raise NotImplementedError

    def start(self, job: Job, choice: Facts = NO_FACTS) -> bool:
        """Start a job that is admitted; return whether the selection accepts processors for it.

        Parameters
        ----------
        choice : facts by which the job was chosen among others (`balance.TEXT`).
        """
        raise NotImplementedError


def facts_before(
    head: Job, at: float, walltime: float, needed: int | str
) -> dict[str, int | float | str]:
    """Facts of the reason of a job that starts before the head, whose reservation is at `at`."""
    return {
        "needed": needed,
        "walltime": walltime,
        "head": head.id,
        "at": at if isfinite(at) else "no known time",  # nodes are down
    }
