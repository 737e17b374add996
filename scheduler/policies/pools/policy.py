"""The policy of a pool: which allocations to submit, to cancel and to release.

A `PoolDecision` follows from what the pool sees (`PoolView`) alone; it keeps no state and reads no
clock. It first assigns the demand of the queue to what the pool has, in queue order:

1. A job that fits on idle processors, of allocations that last long enough by its estimate, uses
   these; the core starts it there, or has reserved them for another job.
2. Otherwise processors of queued and starting allocations are assigned to it, too, and idle ones
   only of allocations that would still last long enough after a wait in the batch system.
3. For what is missing a new allocation is planned, if the pool may ask for all of it. Otherwise the
   job keeps the idle processors that last long enough. If it has waited for longer than the time
   limit of an allocation, nothing is assigned to the jobs behind it or planned for them: with
   allocations that end at different times, a large job might else never get all of its nodes at
   once.

With `PoolOptions.grow_running`, running jobs that could expand follow behind the queue, unless a
job blocks it as in rule 3. They use idle processors of any allocation, then awaited ones, and an
allocation is planned for what is missing. Idle processors are not kept for them: jobs that do not
expand onto them within the idle timeout do not need them.

An allocation is needed while jobs hold processors of it or demand is assigned to it, and to keep
the least number of nodes of the pool. What is not needed is cancelled or released after a time;
queued allocations first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

import msgspec

from scheduler.model.job import Job
from scheduler.policies.pools.options import PoolOptions

#: Idle processors that last just long enough for a job are looked at again after this many seconds.
_AFTER_S = 1.0
#: Stands for the nodes that do not belong to the pool; allocations are numbered from 1.
ELSEWHERE = 0


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


#: Nodes of allocations in these states will join.
AWAITED = frozenset((AllocationState.SUBMITTING, AllocationState.QUEUED, AllocationState.STARTING))
#: The batch system has not started allocations in these states.
WAITING = frozenset((AllocationState.SUBMITTING, AllocationState.QUEUED))


class PoolAllocation(msgspec.Struct):
    """Nodes that a batch system grants together; times in seconds.

    Parameters
    ----------
    number : ascending in a pool from 1.
    nodes : names of its nodes.
    id : of the batch job; empty until the batch system has answered.
    granted_at, ends_at : time at which the batch system started it, and of its expiry.
    unneeded_since : since when it has not been needed; None: it is.
    demanded : whether demand of the queue is assigned to it.
    used : whether a job has ever held processors of it.
    useless : whether it was given back unused although the queue needs nodes.
    """

    number: int
    nodes: tuple[str, ...]
    state: AllocationState
    submitted_at: float
    id: str = ""
    granted_at: float | None = None
    ends_at: float = inf
    unneeded_since: float | None = None
    demanded: bool = False
    used: bool = False
    useless: bool = False


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
class PoolView:
    """What the policy sees.

    Parameters
    ----------
    now : seconds.
    queue : queued jobs in queue order.
    allocations : those that have not ended, by number.
    idle, held : processors of each allocation that a job may get now, and that jobs hold, by
        number; those of an allocation that is not there are 0.
    wait_s : wait in the batch system that is expected of a new allocation, seconds.
    cancelled_at : time of the last cancellation of a queued allocation, seconds.
    not_before : nothing is submitted before this time, after a failure; inf: the pool is paused.
    elsewhere, free_elsewhere : processors of nodes that do not belong to the pool, and the free
        ones among them.
    growing : what running jobs could use.
    """

    now: float
    queue: Iterable[Job]
    allocations: Sequence[PoolAllocation]
    idle: Mapping[int, int]
    held: Mapping[int, int]
    wait_s: float = 0.0
    cancelled_at: float = -inf
    not_before: float = -inf
    elsewhere: int = 0
    free_elsewhere: int = 0
    growing: Sequence[Growth] = ()


class PoolDecision:
    """What a pool asks its batch system for, and what it gives back.

    Parameters
    ----------
    options : see `PoolOptions`.
    view : what the pool sees.

    Attributes
    ----------
    submit : nodes of each allocation that is to be submitted.
    cancel, release : allocations to cancel and to give back, by number, in this order.
    unneeded : allocations that are not needed now, by number.
    demanded : allocations to which demand of the queue is assigned, by number.
    planned : nodes of each allocation that the queue, the least number of nodes or running jobs
        would need in addition.
    is_waited_for : whether a queued job waits for nodes that are not there, or that end too soon.
    next_at : time by which to ask again, even if nothing happens, seconds; inf: not needed.
    """

    def __init__(self, options: PoolOptions, view: PoolView) -> None:
        self._options, self._view = options, view
        self.submit: list[int] = []
        self.cancel: list[int] = []
        self.release: list[int] = []
        self.planned: list[int] = []
        self.is_waited_for = False
        self.next_at = inf
        #: Whether a job has waited for too long, and the pool may not ask for all that it needs.
        self._is_blocked = False
        #: Allocations to which demand is assigned, or that jobs hold.
        self._needed: set[int] = set()
        #: Nodes that the pool may still ask for, those of planned allocations included.
        self._room = max(0, options.max_nodes - sum(len(each.nodes) for each in view.allocations))
        #: (end, allocation, processors) to which no demand is assigned yet, the soonest end first.
        self._idle = sorted(self._idle_processors())
        #: (allocation, processors) of allocations that are awaited, as far as not assigned.
        self._coming = [
            (each.number, len(each.nodes) * options.processors)
            for each in view.allocations
            if each.state in AWAITED
        ]
        self._spare = 0  # processors of planned allocations to which no demand is assigned
        self._assign_queue()
        self.demanded = frozenset(self._needed)
        self._needed.update(each.number for each in view.allocations if view.held.get(each.number))
        self._keep_least()
        unneeded = [each for each in self._staying() if each.number not in self._needed]
        self.unneeded = frozenset(each.number for each in unneeded)
        self._shrink(unneeded)
        if self.planned:
            earliest = max(view.not_before, view.cancelled_at + options.hysteresis_s)
            if earliest > view.now:
                self.next_at = min(self.next_at, earliest)
            else:
                self._submit_planned()

    def _idle_processors(self) -> Iterator[tuple[float, int, int]]:
        view = self._view
        for each in view.allocations:
            idle = view.idle.get(each.number, 0)
            if each.state is AllocationState.RUNNING and idle:
                yield each.ends_at, each.number, idle
        if view.free_elsewhere:
            yield inf, ELSEWHERE, view.free_elsewhere

    def _staying(self) -> list[PoolAllocation]:
        """Allocations that have not been released."""
        return [
            each for each in self._view.allocations if each.state is not AllocationState.LEAVING
        ]

    # Demand.

    def _assign_queue(self) -> None:
        """Assign the demand of the queue to what there is, and plan allocations for the rest."""
        options, view = self._options, self._view
        most = options.max_nodes * options.processors + view.elsewhere
        for job in view.queue:
            if job.processors > most or job.estimate_s > options.longest_s:
                continue  # it can never run in an allocation
            has_enough = self._assign_job(job.processors, job.estimate_s)
            waited_s = view.now - job.queued_at
            self._is_blocked = not has_enough and waited_s > options.time_limit_s
            is_empty = not (self._idle or self._coming or self._spare)
            if self._is_blocked or (is_empty and sum(self.planned) >= self._room):
                break
        if not self._is_blocked:
            self._assign_growth()

    def _assign_job(self, processors: int, lasts_s: float) -> bool:
        """Assign processors to a job, and plan an allocation if more are needed.

        Parameters
        ----------
        lasts_s : estimate of its run time, seconds.

        Returns
        -------
        whether the job has enough now
        """
        view = self._view
        if self._lasting(view.now + lasts_s) >= processors:
            self._take_idle(processors, lasts_s)
            return True
        self.is_waited_for = True
        after_wait_s = lasts_s + view.wait_s
        awaited = sum(count for _, count in self._coming) + self._spare
        enough = self._lasting(view.now + after_wait_s) + awaited
        missing = self._options.nodes_for(max(0, processors - enough))
        if missing > self._room - sum(self.planned):
            self._take_awaited(self._take_idle(processors, lasts_s))
            return False
        left = self._take_awaited(self._take_idle(processors, after_wait_s))
        if left:
            self._plan(missing, left)
        return True

    def _assign_growth(self) -> None:
        """Assign processors to running jobs that could expand, and plan allocations for the rest.

        The allocations of idle processors that they use do not become needed by this.
        """
        for growth in self._view.growing:
            if growth.remaining_s <= self._view.wait_s:
                continue  # the nodes would come too late
            left = self._take_awaited(self._take_idle(growth.processors, None))
            missing = self._options.nodes_for(left)
            if left and missing <= self._room - sum(self.planned):
                self._plan(missing, left)

    def _plan(self, nodes: int, processors: int) -> None:
        """Plan an allocation, of which a job needs so many processors."""
        self.planned.append(nodes)
        self._spare += nodes * self._options.processors - processors

    def _lasting(self, until: float) -> int:
        """Idle processors of allocations that last until a time."""
        return sum(count for end, _, count in self._idle if end >= until)

    def _take_idle(self, processors: int, lasts_s: float | None) -> int:
        """Assign idle processors, those that end first; return how many are missing.

        Parameters
        ----------
        lasts_s : time for which their allocations must last, which are needed then, seconds; None:
            any allocation, which is not needed by this.
        """
        now = self._view.now
        rest: list[tuple[float, int, int]] = []
        for end, number, count in self._idle:
            taken = min(count, processors) if lasts_s is None or end >= now + lasts_s else 0
            processors -= taken
            if taken and lasts_s is not None:
                self._needed.add(number)
                too_short_at = end - lasts_s + _AFTER_S
                if too_short_at > now:
                    self.next_at = min(self.next_at, too_short_at)
            if count > taken:
                rest.append((end, number, count - taken))
        self._idle = rest
        return processors

    def _take_awaited(self, processors: int) -> int:
        """Assign processors of awaited and planned allocations; return how many are missing."""
        rest: list[tuple[int, int]] = []
        for number, count in self._coming:
            taken = min(count, processors)
            if taken:
                processors -= taken
                self._needed.add(number)
            if count > taken:
                rest.append((number, count - taken))
        self._coming = rest
        spare = min(self._spare, processors)
        self._spare -= spare
        return processors - spare

    def _keep_least(self) -> None:
        """Need this many allocations, and plan others, that the pool has its least nodes.

        The running ones that last longest are kept first, then the oldest of the others.
        """
        kept = self._staying()
        nodes = sum(len(each.nodes) for each in kept if each.number in self._needed)
        for each in sorted(kept, key=lambda e: (e.state in AWAITED, -e.ends_at, e.number)):
            if nodes < self._options.min_nodes and each.number not in self._needed:
                self._needed.add(each.number)
                nodes += len(each.nodes)
        if not self._is_blocked:
            missing = min(self._options.min_nodes - nodes, self._room) - sum(self.planned)
            self.planned += [1] * missing

    # What follows from it.

    def _shrink(self, unneeded: Sequence[PoolAllocation]) -> None:
        """Cancel and release what has not been needed for long enough, queued allocations first."""
        waiting = [each for each in unneeded if each.state in WAITING]
        for each in reversed(waiting):  # the latest first
            is_due = self._is_due(each, self._options.hysteresis_s)
            if is_due and each.state is AllocationState.QUEUED:
                self.cancel.append(each.number)
        if len(self.cancel) < len(waiting):
            return
        running = [each for each in unneeded if each.state is AllocationState.RUNNING]
        for each in sorted(running, key=lambda each: (each.ends_at, each.number)):
            if self._is_due(each, self._options.idle_timeout_s):
                self.release.append(each.number)

    def _is_due(self, allocation: PoolAllocation, after_s: float) -> bool:
        """Whether an allocation has not been needed for so long; if not, ask again when it is."""
        now, since = self._view.now, allocation.unneeded_since
        due = (now if since is None else since) + after_s
        if due > now:
            self.next_at = min(self.next_at, due)
        return due <= now

    def _submit_planned(self) -> None:
        """Submit the planned nodes, as far as the backlog allows.

        Small allocations are combined up to `PoolOptions.allocation_nodes`.
        """
        sizes: list[int] = []
        for nodes in self.planned:
            if sizes and sizes[-1] + nodes <= self._options.allocation_nodes:
                sizes[-1] += nodes
            else:
                sizes.append(nodes)
        waiting = sum(each.state in WAITING for each in self._view.allocations)
        self.submit = sizes[: max(0, self._options.backlog - waiting)]
