"""What the policy of a pool sees, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeAlias


class AllocationState(Enum):
    """State of an allocation.

    SUBMITTING until the batch system has answered; STARTING while the batch system says that it
    runs and its agents have not reported yet; LEAVING from its release on, until its agents and
    its batch job have ended.
    """

    SUBMITTING = "submitting"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    ENDED = "ended"


#: Nodes of allocations in these states will join.
AWAITED = frozenset((AllocationState.SUBMITTING, AllocationState.QUEUED, AllocationState.STARTING))
#: The batch system has not started allocations in these states.
WAITING = frozenset((AllocationState.SUBMITTING, AllocationState.QUEUED))


@dataclass(frozen=True)
class Demand:
    """What a queued job needs.

    Parameters
    ----------
    processors : number of processors.
    estimate_s : estimate of its run time, seconds.
    queued_at : since when it has been queued, seconds.
    """

    processors: int
    estimate_s: float
    queued_at: float


@dataclass(frozen=True)
class Growth:
    """What a running job could use.

    Parameters
    ----------
    job, size : its number, and its number of processors.
    processors : number of processors that it needs in addition for its next larger size.
    remaining_s : time until it ends at the latest, seconds.
    """

    job: int
    size: int
    processors: int
    remaining_s: float


@dataclass(frozen=True)
class AllocationView:
    """An allocation as the policy sees it; times in seconds.

    Parameters
    ----------
    number : of the allocation in its pool, ascending in the order of submission.
    nodes, idle, held : its nodes, the processors of it that a job may get now, and those that jobs
        hold.
    submitted_at, ends_at : of its submission, and of its expiry (inf before it runs).
    unneeded_since : since when it has not been needed; None: it was needed at the last call.
    """

    number: int
    state: AllocationState
    nodes: int
    submitted_at: float
    ends_at: float = inf
    idle: int = 0
    held: int = 0
    unneeded_since: float | None = None


@dataclass(frozen=True)
class PoolView:
    """What the policy sees.

    Parameters
    ----------
    now : seconds.
    queue : demand of the queued jobs in queue order.
    allocations : those that have not ended, by number.
    wait_s : wait in the batch system that is expected of a new allocation, seconds.
    cancelled_at : time of the last cancellation of a queued allocation, seconds.
    not_before : nothing is submitted before this time, after a failure; inf: the pool is paused.
    elsewhere, free_elsewhere : processors of nodes that do not belong to the pool, and the free
        ones among them.
    """

    now: float
    queue: Iterable[Demand]
    allocations: Sequence[AllocationView]
    wait_s: float = 0.0
    cancelled_at: float = -inf
    not_before: float = -inf
    elsewhere: int = 0
    free_elsewhere: int = 0
    growing: Sequence[Growth] = ()


@dataclass(frozen=True)
class SubmitAllocation:
    """Submit an allocation of this many nodes."""

    nodes: int


@dataclass(frozen=True)
class CancelAllocation:
    """Cancel an allocation that the batch system has not started."""

    number: int


@dataclass(frozen=True)
class ReleaseAllocation:
    """Give back an idle allocation."""

    number: int


PoolAction: TypeAlias = SubmitAllocation | CancelAllocation | ReleaseAllocation


@dataclass(frozen=True)
class PoolAnswer:
    """What a policy decided.

    Parameters
    ----------
    actions : in the order in which they are to be carried out.
    unneeded : allocations that are not needed now, by number.
    demanded : allocations to which demand of the queue is assigned, by number.
    wanted : nodes that the queue, the least number of nodes or running jobs would need in addition.
    wanted_to_grow : those of them that running jobs would need.
    is_waited_for : whether a queued job waits for nodes that are not there, or that end too soon.
    next_at : time by which to ask again, even if nothing happens, seconds; inf: not needed.
    """

    actions: tuple[PoolAction, ...]
    unneeded: frozenset[int]
    demanded: frozenset[int]
    wanted: int
    next_at: float = inf
    wanted_to_grow: int = 0
    is_waited_for: bool = False
