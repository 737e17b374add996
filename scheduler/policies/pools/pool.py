"""A pool: its allocations, what became of them, and when it may submit the next one.

`Pool.consider` asks the policy and notes what it decided. The driver carries the decision out, live
with a batch system or simulated, and reports what happens by the other methods. All state is in one
record, which a service keeps in its journal.

The nodes of a pool have fixed names, ``NAME-1`` to ``NAME-MAX``. An allocation takes free ones when
it is submitted. The core knows all of them from the beginning as nodes that are down, so jobs that
fit on the whole pool wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import msgspec

from scheduler.model.job import Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.pools.policy import (
    WAITING,
    AllocationState,
    Growth,
    PoolAllocation,
    PoolDecision,
    PoolView,
)
from scheduler.policies.scenario import Scenario
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import topology_fault

S = AllocationState
#: Seconds until the next submission after this many failures in a row; one more pauses the pool.
BACK_OFF_S = (0.0, 60.0, 900.0, 1800.0, 3600.0)
#: Waits in the batch system that the pool remembers; it expects the longest of them.
WAITS = 5


class PoolRecord(msgspec.Struct):
    """State of a pool; times in seconds.

    Parameters
    ----------
    allocations : those that have not ended, by number.
    submitted : number of allocations so far.
    failures : failed allocations in a row.
    not_before : nothing is submitted before this time.
    fault : what failed last; empty after an allocation has run.
    paused : why the pool is paused; empty: it is not.
    cancelled_at : time of the last cancellation of a queued allocation.
    waits_s : latest waits in the batch system.
    idle_unused : size of each running job that has left idle processors unused, by job.
    arguments : further options of the submission command of a batch system.
    removing : whether the pool disappears when its last allocation has ended.
    """

    name: str
    options: PoolOptions
    allocations: dict[int, PoolAllocation] = {}
    submitted: int = 0
    failures: int = 0
    not_before: float = -inf
    fault: str = ""
    paused: str = ""
    cancelled_at: float = -inf
    waits_s: tuple[float, ...] = ()
    idle_unused: dict[int, int] = {}
    arguments: tuple[str, ...] = ()
    removing: bool = False


@dataclass(frozen=True)
class PoolSteps:
    """What a driver is to carry out; `next_at` is when to ask again at the latest, seconds."""

    submitted: tuple[PoolAllocation, ...] = ()
    cancelled: tuple[PoolAllocation, ...] = ()
    released: tuple[PoolAllocation, ...] = ()
    next_at: float = inf


class Pool:
    """An elastic pool.

    Parameters
    ----------
    record : its state, which the methods change.

    Attributes
    ----------
    name, options : those of the record.
    wanted : nodes that would be needed in addition, as of the last decision.
    """

    def __init__(self, record: PoolRecord) -> None:
        self.record, self.name, self.options = record, record.name, record.options
        self.wanted = 0
        self._is_waited_for = False  # whether a queued job waits for nodes, as of then

    @property
    def allocations(self) -> list[PoolAllocation]:
        """Allocations that have not ended, the oldest first."""
        return list(self.record.allocations.values())

    @property
    def node_names(self) -> list[str]:
        """Names of all nodes that the pool may have."""
        return [f"{self.name}-{number}" for number in range(1, self.options.max_nodes + 1)]

    def consider(
        self,
        state: SchedulerState,
        scenario: Scenario,
        now: float,
        *,
        awaited_elsewhere: int = 0,
        closing: bool = False,
    ) -> PoolSteps:
        """Ask the policy what to do now, and note it.

        Parameters
        ----------
        state, scenario : of the partition for which the pool holds nodes.
        now : seconds, not before the latest instant of the partition.
        awaited_elsewhere : processors that other pools await.
        closing : whether the pool is to give everything back, its least nodes included.
        """
        view = self.view(state, scenario, now, awaited_elsewhere)
        options = self.options
        if closing:
            options = msgspec.structs.replace(options, min_nodes=0)
        idle_unused = self.record.idle_unused
        for job in [job for job in idle_unused if job not in state.live]:
            del idle_unused[job]
        decision = PoolDecision(options, view)
        self.wanted = sum(decision.planned)
        self._is_waited_for = decision.is_waited_for
        for allocation in view.allocations:
            number = allocation.number
            allocation.used = allocation.used or view.held[number] > 0
            allocation.demanded = number in decision.demanded
            if number not in decision.unneeded:
                allocation.unneeded_since = None
            elif allocation.unneeded_since is None:
                allocation.unneeded_since = now
        cancelled = [self.leaves(number) for number in decision.cancel]
        if cancelled:
            self.record.cancelled_at = now
        released = [self.leaves(number) for number in decision.release]
        for allocation in released:
            allocation.useless = not allocation.used and self._is_waited_for
            idle_unused.update((job.job, job.size) for job in view.growing)
        submitted = [self._submit(nodes, now) for nodes in decision.submit]
        return PoolSteps(tuple(submitted), tuple(cancelled), tuple(released), decision.next_at)

    def view(
        self, state: SchedulerState, scenario: Scenario, now: float, awaited_elsewhere: int = 0
    ) -> PoolView:
        """Describe the queue and the allocations for the policy."""
        machine = state.machine
        free_of = machine.by_node(machine.free)
        held = _held_by_node(state) if machine.draining else None
        idle: dict[int, int] = {}
        busy: dict[int, int] = {}
        growing: list[Growth] = []
        if self.options.grow_running:
            growing += growing_jobs(state, scenario, self.record.idle_unused, now)
        own = 0
        for allocation in self.record.allocations.values():
            up = [
                machine.nodes[name]
                for name in allocation.nodes
                if name in machine.nodes and machine.nodes[name].up
            ]
            count = sum(len(node.processors) for node in up)
            free = sum(len(free_of.get(node.name, ())) for node in up)
            own += count
            idle[allocation.number], busy[allocation.number] = free, count - free
            if held is not None:
                busy[allocation.number] = sum(len(held.get(node.name, ())) for node in up)
        return PoolView(
            now,
            state.queue,
            self.allocations,
            idle,
            busy,
            max(self.record.waits_s, default=0.0),
            self.record.cancelled_at,
            inf if self.record.paused else self.record.not_before,
            machine.processors - own + awaited_elsewhere,
            machine.free_count - sum(idle.values()) + awaited_elsewhere,
            growing,
        )

    # What a driver reports.

    def queued(self, number: int, batch_id: str) -> None:
        """Note that the batch system has accepted an allocation."""
        allocation = self.record.allocations[number]
        allocation.id = batch_id
        if allocation.state is S.SUBMITTING:
            allocation.state = S.QUEUED

    def granted(self, number: int, now: float, ends_at: float) -> None:
        """Note that the batch system has started an allocation; its agents have not reported."""
        allocation = self.record.allocations[number]
        allocation.ends_at = ends_at
        if allocation.granted_at is None:
            allocation.granted_at = now
            waits_s = (*self.record.waits_s, max(0.0, now - allocation.submitted_at))
            self.record.waits_s = waits_s[-WAITS:]
        if allocation.state in WAITING:
            allocation.state = S.STARTING

    def joined(self, number: int) -> None:
        """Note that all agents of an allocation have reported."""
        allocation = self.record.allocations[number]
        if allocation.state is S.STARTING:
            allocation.state = S.RUNNING

    def ended(self, number: int, now: float, why: str = "") -> PoolAllocation:
        """Note that an allocation has ended, and return it.

        An allocation that ended by itself is a failure if it did not become usable. So is one in
        which no job ever ran although jobs waited for nodes to its end.

        Parameters
        ----------
        why : why it ended, in the batch system's words.
        """
        allocation = self.record.allocations.pop(number)
        by_itself = allocation.state is not S.LEAVING
        if by_itself and allocation.state is not S.RUNNING:
            self._failed(now, why or "an allocation ended before its agents had reported")
        elif allocation.useless or (
            by_itself and not allocation.used and (allocation.demanded or self._is_waited_for)
        ):
            self._failed(now, "no job started in an allocation although jobs waited for its nodes")
        elif allocation.used:
            self.record.failures, self.record.fault = 0, ""
        return allocation

    def refused(self, number: int, now: float, why: str) -> PoolAllocation:
        """Note that the batch system has refused an allocation, and return it."""
        allocation = self.record.allocations.pop(number)
        self._failed(now, why)
        return allocation

    def leaves(self, number: int) -> PoolAllocation:
        """Note that an allocation is being given back, and return it."""
        allocation = self.record.allocations[number]
        allocation.state = S.LEAVING
        return allocation

    def pause(self, why: str) -> None:
        """Submit nothing until `resume`; allocations are given back as usual."""
        self.record.paused = why

    def resume(self) -> None:
        """Submit again, without waiting for the next retry."""
        self.record.paused = ""
        self.record.failures, self.record.not_before = 0, -inf

    def _submit(self, nodes: int, now: float) -> PoolAllocation:
        taken = {
            name for allocation in self.record.allocations.values() for name in allocation.nodes
        }
        free = [name for name in self.node_names if name not in taken]
        self.record.submitted += 1
        number = self.record.submitted
        allocation = PoolAllocation(number, tuple(free[:nodes]), S.SUBMITTING, now)
        self.record.allocations[number] = allocation
        return allocation

    def _failed(self, now: float, why: str) -> None:
        record = self.record
        record.fault = why
        if now < record.not_before:
            return  # it was submitted before the latest failure, and says the same
        record.failures += 1
        if record.failures < len(BACK_OFF_S):
            record.not_before = now + BACK_OFF_S[record.failures]
        else:
            self.pause(f"{record.failures} failures in a row, the last: {why}")


def _held_by_node(state: SchedulerState) -> dict[str, ProcSet]:
    groups: Iterable[ProcSet] = (
        held for job in state.live.values() for held in job.groups.values()
    )
    return state.machine.by_node(ProcSet.union(groups))


def growing_jobs(
    state: SchedulerState, scenario: Scenario, idle_unused: Mapping[int, int], now: float
) -> Iterator[Growth]:
    """Yield what each running job needs for its next larger size, in the order of their starts.

    A job counts if a resizing policy applies to it, it has completed an iteration on its size, it
    is below its sweet spot and its largest size, and it may still run for a while.

    Parameters
    ----------
    idle_unused : size of each job that has left idle processors unused, by job; it does not count
        as long as it has this size.
    now : seconds.
    """
    for job in state.live.values():
        to = _next_size(scenario, job) if idle_unused.get(job.id) != job.size else None
        if to is not None and job.expected_end > now:
            yield Growth(job.id, job.size, to - job.size, job.expected_end - now)


def _next_size(scenario: Scenario, job: Job) -> int | None:
    """Size to which a job would expand next; None if it would not."""
    topology = job.topology
    if job.state is not JobState.RUNNING or not job.resizable:
        return None
    if topology is None or scenario.resizing_of(job.spec.queue) is None or topology_fault(job):
        return None
    spot = job.history.sweet_spot
    if job.history.settled < 1 or (spot is not None and job.size >= spot):
        return None
    return job.valid_from(job.size + 1)
