"""The policy of a pool: which allocations to submit, to cancel and to release.

The policy is a function of what it sees (`PoolView`); it keeps no state and reads no clock. Each
call first assigns the demand of the queue to what the pool has, in queue order:

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.pools.view import (
    AWAITED,
    WAITING,
    AllocationState,
    AllocationView,
    CancelAllocation,
    Demand,
    PoolAction,
    PoolAnswer,
    PoolView,
    ReleaseAllocation,
    SubmitAllocation,
)

#: Idle processors that last just long enough for a job are looked at again after this many seconds.
_AFTER_S = 1.0
#: Stands for the nodes that do not belong to the pool; allocations are numbered from 1.
ELSEWHERE = 0


@dataclass
class _Supply:
    """What demand is assigned to, during one call of the policy.

    Attributes
    ----------
    idle : (end, allocation, processors), the soonest end first.
    coming : (allocation, processors) of allocations that are awaited.
    planned : nodes of each planned allocation.
    spare : processors of planned allocations to which no demand is assigned.
    needed : allocations to which demand is assigned, or that jobs hold.
    planned_to_grow : nodes planned for running jobs.
    is_waited_for : whether idle processors are not enough for a job.
    is_blocked : whether a job has waited for too long, and the pool may not ask for all it needs.
    next_at : when idle processors become too short-lived for a job, seconds.
    """

    idle: list[tuple[float, int, int]]
    coming: list[tuple[int, int]]
    planned: list[int] = field(default_factory=list)
    spare: int = 0
    needed: set[int] = field(default_factory=set)
    planned_to_grow: int = 0
    is_waited_for: bool = False
    is_blocked: bool = False
    next_at: float = inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to assign demand to."""
        return not (self.idle or self.coming or self.spare)

    @property
    def awaited(self) -> int:
        """Processors of awaited and planned allocations."""
        return sum(count for _, count in self.coming) + self.spare

    def lasting(self, until: float) -> int:
        """Idle processors of allocations that last until a time."""
        return sum(count for end, _, count in self.idle if end >= until)

    def take_idle(self, processors: int, lasts_s: float, now: float) -> int:
        """Assign idle processors of allocations that last for a time; return how many are missing.

        The allocations that end first are taken first.
        """
        rest: list[tuple[float, int, int]] = []
        for end, number, count in self.idle:
            taken = min(count, processors) if end >= now + lasts_s else 0
            if taken:
                processors -= taken
                self.needed.add(number)
                too_short_at = end - lasts_s + _AFTER_S
                if too_short_at > now:
                    self.next_at = min(self.next_at, too_short_at)
            if count > taken:
                rest.append((end, number, count - taken))
        self.idle = rest
        return processors

    def use_idle(self, processors: int) -> int:
        """Assign idle processors to a running job; return how many are missing.

        Their allocations do not become needed by this.
        """
        rest: list[tuple[float, int, int]] = []
        for end, number, count in self.idle:
            taken = min(count, processors)
            processors -= taken
            if count > taken:
                rest.append((end, number, count - taken))
        self.idle = rest
        return processors

    def take_awaited(self, processors: int) -> int:
        """Assign processors of awaited and planned allocations; return how many are missing."""
        rest: list[tuple[int, int]] = []
        for number, count in self.coming:
            taken = min(count, processors)
            if taken:
                processors -= taken
                self.needed.add(number)
            if count > taken:
                rest.append((number, count - taken))
        self.coming = rest
        spare = min(self.spare, processors)
        self.spare -= spare
        return processors - spare


class PoolPolicy:
    """Decides for one pool.

    Parameters
    ----------
    options : see `PoolOptions`.
    """

    def __init__(self, options: PoolOptions) -> None:
        self.options = options

    def decide(self, view: PoolView) -> PoolAnswer:
        """Decide which allocations to submit, to cancel and to release."""
        supply = self._assign(view)
        demanded = frozenset(supply.needed)
        supply.needed.update(
            allocation.number for allocation in view.allocations if allocation.held
        )
        self._keep_least(view, supply)
        unneeded = [
            allocation
            for allocation in view.allocations
            if allocation.number not in supply.needed
            and allocation.state is not AllocationState.LEAVING
        ]
        actions, next_at = self._shrink(view.now, unneeded)
        if supply.planned:
            earliest = max(view.not_before, view.cancelled_at + self.options.hysteresis_s)
            if earliest > view.now:
                next_at = min(next_at, earliest)
            else:
                actions += self._submissions(view, supply.planned)
        return PoolAnswer(
            tuple(actions),
            frozenset(allocation.number for allocation in unneeded),
            demanded,
            sum(supply.planned),
            min(next_at, supply.next_at),
            supply.planned_to_grow,
            supply.is_waited_for,
        )

    def _assign(self, view: PoolView) -> _Supply:
        """Assign the demand of the queue to what there is, and plan allocations for the rest."""
        options, room = self.options, self._room(view)
        idle = [
            (allocation.ends_at, allocation.number, allocation.idle)
            for allocation in view.allocations
            if allocation.state is AllocationState.RUNNING and allocation.idle
        ]
        if view.free_elsewhere:
            idle.append((inf, ELSEWHERE, view.free_elsewhere))
        coming = [
            (allocation.number, allocation.nodes * options.processors)
            for allocation in view.allocations
            if allocation.state in AWAITED
        ]
        supply = _Supply(sorted(idle), coming)
        most = options.max_nodes * options.processors + view.elsewhere
        for demand in view.queue:
            if demand.processors > most or demand.estimate_s > options.longest_s:
                continue  # it can never run in an allocation
            has_enough = self._assign_job(demand, view, supply, room)
            waited_s = view.now - demand.queued_at
            supply.is_blocked = not has_enough and waited_s > options.time_limit_s
            if supply.is_blocked or (supply.is_empty and sum(supply.planned) >= room):
                break
        if not supply.is_blocked:
            self._assign_growth(view, supply, room)
        return supply

    def _assign_growth(self, view: PoolView, supply: _Supply, room: int) -> None:
        """Assign processors to running jobs that could expand, and plan allocations for the rest.

        Parameters
        ----------
        room : as for `_assign_job`.
        """
        for growth in view.growing:
            if growth.remaining_s <= view.wait_s:
                continue  # the nodes would come too late
            left = supply.take_awaited(supply.use_idle(growth.processors))
            missing = self.options.nodes_for(left)
            if left and missing <= room - sum(supply.planned):
                supply.planned.append(missing)
                supply.planned_to_grow += missing
                supply.spare += missing * self.options.processors - left

    def _assign_job(self, demand: Demand, view: PoolView, supply: _Supply, room: int) -> bool:
        """Assign processors to a job, and plan an allocation if more are needed.

        Parameters
        ----------
        room : nodes that the pool may still ask for, those of planned allocations included.

        Returns
        -------
        whether the job has enough now
        """
        processors, lasts_s = demand.processors, demand.estimate_s
        if supply.lasting(view.now + lasts_s) >= processors:
            supply.take_idle(processors, lasts_s, view.now)
            return True
        supply.is_waited_for = True
        after_wait_s = lasts_s + view.wait_s
        there = supply.lasting(view.now + after_wait_s) + supply.awaited
        missing = self.options.nodes_for(max(0, processors - there))
        if missing > room - sum(supply.planned):
            supply.take_awaited(supply.take_idle(processors, lasts_s, view.now))
            return False
        left = supply.take_awaited(supply.take_idle(processors, after_wait_s, view.now))
        if left:
            supply.planned.append(missing)
            supply.spare += missing * self.options.processors - left
        return True

    def _keep_least(self, view: PoolView, supply: _Supply) -> None:
        """Need this many allocations, and plan further ones, that the pool has its least nodes.

        The running ones that last longest are kept first, then the oldest of the others.
        """
        kept = [
            allocation
            for allocation in view.allocations
            if allocation.state is not AllocationState.LEAVING
        ]
        nodes = sum(allocation.nodes for allocation in kept if allocation.number in supply.needed)
        order = sorted(
            kept,
            key=lambda allocation: (
                allocation.state in AWAITED,
                -allocation.ends_at,
                allocation.number,
            ),
        )
        for allocation in order:
            if nodes < self.options.min_nodes and allocation.number not in supply.needed:
                supply.needed.add(allocation.number)
                nodes += allocation.nodes
        if supply.is_blocked:
            return
        planned = sum(supply.planned)
        missing = min(self.options.min_nodes - nodes, self._room(view)) - planned
        supply.planned += [1] * missing

    def _room(self, view: PoolView) -> int:
        """Nodes that the pool may still ask for."""
        return max(
            0, self.options.max_nodes - sum(allocation.nodes for allocation in view.allocations)
        )

    def _shrink(
        self, now: float, unneeded: Sequence[AllocationView]
    ) -> tuple[list[PoolAction], float]:
        """Cancel and release what has not been needed for long enough, queued allocations first.

        Returns
        -------
        the actions, and when the next one is due, seconds
        """
        actions: list[PoolAction] = []
        next_at = inf
        waiting = [allocation for allocation in unneeded if allocation.state in WAITING]
        for allocation in reversed(waiting):  # the latest first
            due = _since(allocation, now) + self.options.hysteresis_s
            if due > now:
                next_at = min(next_at, due)
            elif allocation.state is AllocationState.QUEUED:
                actions.append(CancelAllocation(allocation.number))
        if len(actions) < len(waiting):
            return actions, next_at
        running = [
            allocation for allocation in unneeded if allocation.state is AllocationState.RUNNING
        ]
        for allocation in sorted(
            running, key=lambda allocation: (allocation.ends_at, allocation.number)
        ):
            due = _since(allocation, now) + self.options.idle_timeout_s
            if due > now:
                next_at = min(next_at, due)
            else:
                actions.append(ReleaseAllocation(allocation.number))
        return actions, next_at

    def _submissions(self, view: PoolView, planned: Sequence[int]) -> list[SubmitAllocation]:
        """Submissions of the planned nodes, as far as the backlog allows.

        Small allocations are combined up to `PoolOptions.allocation_nodes`.
        """
        sizes: list[int] = []
        for nodes in planned:
            if sizes and sizes[-1] + nodes <= self.options.allocation_nodes:
                sizes[-1] += nodes
            else:
                sizes.append(nodes)
        free = self.options.backlog - sum(
            allocation.state in WAITING for allocation in view.allocations
        )
        return [SubmitAllocation(nodes) for nodes in sizes[: max(0, free)]]


def _since(allocation: AllocationView, now: float) -> float:
    return now if allocation.unneeded_since is None else allocation.unneeded_since
