"""A site whose nodes come and go: a core, a pool that decides, and a simulated batch system.

The batch system starts an allocation when its wait is over and ends it at its time limit, when it
is released, or when it is cancelled. Its nodes join and are lost by the events that a live service
gives to its core, too. Of one instant, nodes join first, then everything else is handled, then
nodes are lost: a job that ends at the instant at which its allocation expires has not lost
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf, isfinite
from typing import Literal

import msgspec

from scheduler.core.core import Core
from scheduler.model.events import Event, JobSubmitted, NodeJoined, NodeLost, ResizeFailed
from scheduler.model.job import Job
from scheduler.model.orders import Kill, Order, WakeAt
from scheduler.model.procset import ProcSet
from scheduler.pools.pool import Pool, PoolAllocation
from scheduler.pools.view import AllocationState
from scheduler.virtual_clock.driven import DrivenMachine

Ending = Literal["cancelled", "released", "expired"]


class EndedAllocation(msgspec.Struct, frozen=True):
    """What became of an allocation; times in seconds.

    Parameters
    ----------
    number, nodes, names : its number in the pool, how many nodes it had, and their names.
    granted_at : None if it was cancelled before.
    ending : how it ended.
    used : whether a job ran there.
    jobs_lost, lost_processor_s : jobs that its expiry ended, and what they had held until then.
    """

    number: int
    nodes: int
    names: tuple[str, ...]
    submitted_at: float
    granted_at: float | None
    ended_at: float
    ending: Ending
    used: bool
    jobs_lost: int = 0
    lost_processor_s: float = 0.0

    @property
    def node_s(self) -> float:
        """Node-seconds held."""
        return 0.0 if self.granted_at is None else self.nodes * (self.ended_at - self.granted_at)


class PooledSite:
    """A site for the loop of the virtual clock.

    Parameters
    ----------
    core : the core; its machine must have no nodes of the pool yet.
    pool : the pool, without allocations.
    wait_s : called for the wait in the batch system of each allocation, seconds.
    jobs : number of jobs that will be submitted; the pool gives everything back after them.

    Attributes
    ----------
    ended : allocations that have ended, in the order of their ends.
    """

    def __init__(self, core: Core, pool: Pool, wait_s: Callable[[], float], jobs: int) -> None:
        self._core, self._pool, self._wait_s = core, pool, wait_s
        self._partition = core.partitions[0]
        self._coming = jobs
        self._happenings: list[tuple[float, bool, int]] = []  # (time, whether it ends, allocation)
        self._wake_at = inf
        self.ended: list[EndedAllocation] = []
        names, processors = pool.node_names, pool.options.processors
        joined: list[Event] = [NodeJoined(0.0, name, processors) for name in names]
        core.handle([*joined, *(NodeLost(0.0, name) for name in names)])

    # What the loop and the physics use.

    @property
    def now(self) -> float:
        """Time of the latest instant handled, seconds."""
        return self._core.now

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs that the core remembers, by number."""
        return self._core.jobs

    @property
    def live(self) -> Mapping[int, Job]:
        """The jobs that hold processors, by number."""
        return self._core.live

    @property
    def machine(self) -> DrivenMachine:
        """Nodes and processors."""
        return self._core.machine

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended."""
        self._core.forget(job)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant, and let the pool decide; return the orders."""
        now = max(event.at for event in events)
        self._coming -= sum(isinstance(event, JobSubmitted) for event in events)
        orders = self._core.handle([*self._start_allocations(now), *events])
        while ends := self._due_ends(now):
            for number in ends:
                orders += self._end(number, now, "expired")
        while True:
            steps = self._pool.consider(self._partition, now, closing=self._is_closing)
            for allocation in steps.submitted:
                self._pool.queued(allocation.number, str(allocation.number))
                heappush(self._happenings, (now + self._wait_s(), False, allocation.number))
            for allocation in steps.cancelled:
                orders += self._end(allocation.number, now, "cancelled")
            for allocation in steps.released:
                orders += self._end(allocation.number, now, "released")
            started = self._start_allocations(now)
            if started:
                orders += self._core.handle(started)
            if not (started or steps.cancelled or steps.released):
                break
        self._ask_to_wake(min(steps.next_at, self._next_at()), now, orders)
        return orders

    @property
    def _is_closing(self) -> bool:
        """Whether all jobs have been submitted and have ended."""
        return self._coming == 0 and not self._core.live and not len(self._partition.queue)

    def _next_at(self) -> float:
        return self._happenings[0][0] if self._happenings else inf

    def _ask_to_wake(self, at: float, now: float, orders: list[Order]) -> None:
        """Add a wake-up to the orders unless an earlier one was asked for."""
        if not now < self._wake_at <= at and isfinite(at):
            self._wake_at = at
            orders.append(WakeAt(at))

    def _start_allocations(self, now: float) -> list[Event]:
        """Start the allocations whose waits are over; return the events of their nodes."""
        events: list[Event] = []
        pool, processors = self._pool, self._pool.options.processors
        while self._happenings and self._happenings[0][0] <= now and not self._happenings[0][1]:
            _, _, number = heappop(self._happenings)
            allocation = pool.record.allocations.get(number)
            if allocation is None or allocation.state is not AllocationState.QUEUED:
                continue  # it was cancelled
            ends_at = now + pool.options.time_limit_s
            pool.granted(number, now, ends_at)
            pool.joined(number)
            heappush(self._happenings, (ends_at, True, number))
            events += [
                NodeJoined(now, name, processors, until=ends_at) for name in allocation.nodes
            ]
        return events

    def _due_ends(self, now: float) -> list[int]:
        """Numbers of the allocations that expire now."""
        numbers = []
        while self._happenings and self._happenings[0][0] <= now and self._happenings[0][1]:
            _, _, number = heappop(self._happenings)
            if number in self._pool.record.allocations:
                numbers.append(number)
        return numbers

    def _end(self, number: int, now: float, ending: Ending) -> list[Order]:
        """End an allocation; return the orders that follow from the loss of its nodes."""
        allocation = self._pool.ended(number, now)
        orders: list[Order] = []
        if allocation.granted_at is not None:
            orders = self._core.handle([NodeLost(now, name) for name in allocation.nodes])
        self.ended.append(self._account(allocation, now, ending, orders))
        failed = list(self._failed_expansions(allocation, now))
        return orders + self._core.handle(failed) if failed else orders

    def _failed_expansions(self, each: PoolAllocation, now: float) -> Iterator[Event]:
        """Roll-backs of the expansions whose groups were on nodes that are gone."""
        nodes = self._core.machine.nodes
        lost = ProcSet.union(nodes[name].processors for name in each.nodes)
        for job in self._core.live.values():
            resize = job.resize
            joining = () if resize is None else resize.joining
            if resize is not None and any(job.groups[group] & lost for group in joining):
                yield ResizeFailed(now, job.id, resize.serial, "the node of the group has expired")

    def _account(
        self, each: PoolAllocation, now: float, ending: Ending, orders: Sequence[Order]
    ) -> EndedAllocation:
        lost = [
            self._core.jobs[order.job]
            for order in orders
            if isinstance(order, Kill) and order.reason.rule in ("node lost", "node expired")
        ]
        return EndedAllocation(
            each.number,
            len(each.nodes),
            each.nodes,
            each.submitted_at,
            each.granted_at,
            now,
            ending,
            each.used,
            len(lost),
            sum(_held_s(job, now) for job in lost),
        )


def _held_s(job: Job, now: float) -> float:
    """Processor-seconds that a job has held since its last start."""
    times = [at for at, _ in job.sizes] + [now]
    spans = zip(job.sizes, times[1:], strict=True)
    return sum(size * (end - begin) for (begin, size), end in spans)
