"""What the scheduling passes have in common: how a job starts, and adaptive starts."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from reshape.topology import Topology
from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.state.scheduler_state import SchedulerState


class Starter:
    """Starts the jobs that scheduling passes choose."""

    def start(
        self, job: Job, reason: Reason, avoiding: ProcSet = NONE, size: int | None = None
    ) -> bool:
        """Start a queued job if the selection accepts processors; return whether it did.

        Parameters
        ----------
        avoiding : processors that the job may not get.
        size : number of processors of an adaptive start; None: those that the job requests.
        """
        raise NotImplementedError


class SchedulingPass:
    """Backfilling algorithm, run over the queue when a job may be able to start.

    Parameters
    ----------
    state : scheduler state.
    starter : starts jobs.
    name : of the algorithm, for reasons.
    least_share : smallest share of its request on which the first job may start
        (`Backfill.adaptive_start`); 1: the whole request.

    Attributes
    ----------
    can_start_unqueued : whether `start_first` decides alone about a job that finds an empty queue.
    """

    def __init__(
        self, state: SchedulerState, starter: Starter, name: str, least_share: float = 1.0
    ) -> None:
        self.state = state
        self.starter = starter
        self.name = name
        self._least_share = least_share
        self.can_start_unqueued = False

    def run(self) -> None:
        """Start the queued jobs that may start now. Precondition: the queue is not empty."""
        raise NotImplementedError

    def start_first(self, job: Job) -> bool:
        """Start the first job of the queue if it fits, and return whether it did."""
        raise NotImplementedError

    def adaptive_sizes(self, job: Job) -> tuple[int, ...]:
        """Sizes below its request on which the first job of the queue may start, largest first."""
        spec = job.spec
        if self._least_share >= 1 or spec.topology is None or not spec.resizable:
            return ()
        least = ceil(self._least_share * spec.processors)
        return smaller_starts(spec.topology, spec.processors, least)


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
