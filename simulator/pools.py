"""Simulations of machines whose nodes are granted by a batch system, by an elastic pool.

The batch system starts an allocation when its wait is over and ends it at its time limit, when it
is released, or when it is cancelled. Its nodes join and are lost by the events that a live service
gives to its core, too. Of one instant, nodes join first, then everything else is handled, then
nodes are lost: a job that ends at the instant at which its allocation expires has not lost
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from reshape.times import seconds_of
from scheduler.model.events import Event, JobSubmitted, NodeJoined, NodeLost, ResizeFailed
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Kill, Order, WakeAt
from scheduler.model.procset import ProcSet
from scheduler.pictures import Series
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.pools.policy import PoolAllocation
from scheduler.policies.pools.pool import Pool, PoolRecord
from scheduler.policies.scenario import Scenario
from scheduler.text.formats import counted, format_time
from simulator.engine.engine import simulated_core
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.files import is_file
from simulator.traces.trace_jobs import TraceJobs

Floats: TypeAlias = NDArray[np.float64]
#: Name of the simulated pool.
NAME = "pool"


def read_waits(text: str) -> Floats:
    """Read a time in the notation of Slurm, or the recorded waits of a trace.

    Parameters
    ----------
    text : such as ``10:00``, or the path of a trace; a file of that name is preferred.

    Returns
    -------
    (n,) float64, n >= 1, seconds

    Raises
    ------
    ReshapeError : it is neither; no job of the trace has a recorded wait.
    """
    path = Path(text)
    if not is_file(path):
        try:
            return np.array([float(seconds_of(text))])
        except ValueError as error:
            raise ReshapeError(f"there is no file {text}, and {error}") from None
    waits = swf.read(path, fields=("wait",)).columns["wait"]
    positive = waits[waits >= 0].astype(np.float64)
    if not len(positive):
        raise ReshapeError(f"{path}: no job has a recorded wait; name a trace with waits")
    return positive


Ending = Literal["cancelled", "released", "expired"]


class EndedAllocation(msgspec.Struct, frozen=True):
    """What became of an allocation; times in seconds.

    Parameters
    ----------
    number, nodes, names : its number in the pool, how many nodes it had, and their names with
        spaces between them.
    granted_s : nan if it was cancelled before.
    ending : how it ended.
    used : whether a job ran there.
    jobs_lost, lost_processor_s : jobs that its expiry ended, and what they had held until then.
    """

    number: int
    nodes: int
    names: str
    submitted_s: float
    granted_s: float
    ended_s: float
    ending: Ending
    used: bool
    jobs_lost: int = 0
    lost_processor_s: float = 0.0

    @property
    def node_s(self) -> float:
        """Node-seconds held."""
        return 0.0 if isnan(self.granted_s) else self.nodes * (self.ended_s - self.granted_s)


class PooledSite:
    """A site for the loop of the virtual clock: a core all of whose nodes come and go.

    Parameters
    ----------
    scenario : of the core; it has no redirection group.
    options : of the pool.
    waits : (n,) float64, s; that of an allocation in the batch system is one of them.
    jobs : number of jobs that will be submitted; the pool gives everything back after them.
    kill_at_walltime : of the core.
    seed : of the draws.

    Attributes
    ----------
    pool : decides; its allocations are those that have not ended.
    ended : allocations that have ended, in the order of their ends.
    machine, jobs, live : of the core.
    """

    def __init__(
        self,
        scenario: Scenario,
        options: PoolOptions,
        waits: Floats,
        jobs: int,
        *,
        kill_at_walltime: bool = False,
        seed: int = 0,
    ) -> None:
        kill = kill_at_walltime
        self.core = simulated_core(scenario, Machine(), kill_at_walltime=kill, keep_ended=True)
        self.machine, self.jobs, self.live = self.core.machine, self.core.jobs, self.core.live
        self.pool = Pool(PoolRecord(NAME, options))
        self._waits, self._rng = waits, np.random.default_rng(seed)
        self._partition = self.core.partitions[0]
        self._coming = jobs
        self._starts: dict[int, float] = {}  # when queued allocations start, by number
        self._wake_at = inf
        self.ended: list[EndedAllocation] = []
        names = self.pool.node_names
        joined: list[Event] = [NodeJoined(0.0, name, options.processors) for name in names]
        self.core.handle([*joined, *(NodeLost(0.0, name) for name in names)])

    # What the loop and the physics use.

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended."""
        self.core.forget(job)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant, and let the pool decide; return the orders."""
        now = max(event.at for event in events)
        self._coming -= sum(isinstance(event, JobSubmitted) for event in events)
        orders = self.core.handle([*self._start_allocations(now), *events])
        for allocation in self.pool.allocations:
            if allocation.ends_at <= now:
                orders += self._end(allocation.number, now, "expired")
        while True:
            steps = self.pool.consider(
                self._partition.state, self._partition.scenario, now, closing=self._is_closing
            )
            for allocation in steps.submitted:
                self.pool.queued(allocation.number, str(allocation.number))
                drawn = self._rng.integers(len(self._waits)) if len(self._waits) > 1 else 0
                self._starts[allocation.number] = now + float(self._waits[drawn])
            for allocation in steps.cancelled:
                orders += self._end(allocation.number, now, "cancelled")
            for allocation in steps.released:
                orders += self._end(allocation.number, now, "released")
            started = self._start_allocations(now)
            if started:
                orders += self.core.handle(started)
            if not (started or steps.cancelled or steps.released):
                break
        ends = (allocation.ends_at for allocation in self.pool.allocations)
        at = min([steps.next_at, *self._starts.values(), *ends])
        if not now < self._wake_at <= at and isfinite(at):  # no earlier wake-up was asked for
            self._wake_at = at
            orders.append(WakeAt(at))
        return orders

    @property
    def _is_closing(self) -> bool:
        """Whether all jobs have been submitted and have ended."""
        return self._coming == 0 and not self.core.live and not len(self._partition.queue)

    def _start_allocations(self, now: float) -> list[Event]:
        """Start the allocations whose waits are over; return the events of their nodes."""
        events: list[Event] = []
        pool, options = self.pool, self.pool.options
        for _, number in sorted((at, n) for n, at in self._starts.items() if at <= now):
            del self._starts[number]
            ends_at = now + options.time_limit_s
            pool.granted(number, now, ends_at)
            pool.joined(number)
            events += [
                NodeJoined(now, name, options.processors, until=ends_at)
                for name in pool.record.allocations[number].nodes
            ]
        return events

    def _end(self, number: int, now: float, ending: Ending) -> list[Order]:
        """End an allocation; return the orders that follow from the loss of its nodes."""
        self._starts.pop(number, None)
        allocation = self.pool.ended(number, now)
        orders: list[Order] = []
        if allocation.granted_at is not None:
            orders = self.core.handle([NodeLost(now, name) for name in allocation.nodes])
        lost = [
            self.core.jobs[order.job]
            for order in orders
            if isinstance(order, Kill) and order.reason.rule in ("node lost", "node expired")
        ]
        self.ended.append(
            EndedAllocation(
                number,
                len(allocation.nodes),
                " ".join(allocation.nodes),
                allocation.submitted_at,
                nan if allocation.granted_at is None else allocation.granted_at,
                now,
                ending,
                allocation.used,
                len(lost),
                sum(_held_s(job, now) for job in lost),
            )
        )
        failed = list(self._failed_expansions(allocation, now))
        return orders + self.core.handle(failed) if failed else orders

    def _failed_expansions(self, each: PoolAllocation, now: float) -> Iterator[Event]:
        """Roll-backs of the expansions whose groups were on nodes that are gone."""
        nodes = self.core.machine.nodes
        lost = ProcSet.union(nodes[name].processors for name in each.nodes)
        for job in self.core.live.values():
            resize = job.resize
            joining = () if resize is None else resize.joining
            if resize is not None and any(job.groups[group] & lost for group in joining):
                yield ResizeFailed(now, job.id, resize.serial, "the node of the group has expired")


def _held_s(job: Job, now: float) -> float:
    """Processor-seconds that a job has held since its last start."""
    times = [at for at, _ in job.sizes] + [now]
    spans = zip(job.sizes, times[1:], strict=True)
    return sum(size * (end - begin) for (begin, size), end in spans)


class PoolRun(msgspec.Struct, frozen=True):
    """What a simulation on the nodes of a pool gave besides the schedule.

    Parameters
    ----------
    metrics : what the pool cost, see `pool_metrics`.
    allocations : in the order of their ends.
    """

    metrics: Mapping[str, Any]
    allocations: list[EndedAllocation]


def pool_metrics(
    schedule: Schedule, site: PooledSite, options: PoolOptions, too_long: int
) -> dict[str, Any]:
    """Compute what a pool cost from its allocations and the schedule of the jobs.

    Parameters
    ----------
    site : after the run.
    too_long : jobs that no allocation lasts long enough for, which were left out.

    Returns
    -------
    `allocations`, `cancelled`, `released`, `expired` : allocations that were submitted; that were
        cancelled while they were queued; that were given back; that lasted to their time limit.
    `unused_allocations` : granted allocations in which no job ran.
    `node_hours` : node-hours of all granted allocations.
    `used_share` : processor-seconds that jobs held over those of the granted allocations.
    `most_nodes` : largest number of nodes held at a time.
    `mean_allocation_wait_s` : from the submission of a granted allocation to its start.
    `jobs_lost`, `jobs_lost_processor_s` : jobs that were ended because a node expired, and what
        they had held until then.
    `too_long` : as given.
    `paused` : why the pool was paused at the end; empty if it was not.
    Means are nan if there is nothing to average.
    """
    ended = site.ended
    granted = [allocation for allocation in ended if not isnan(allocation.granted_s)]
    node_s = sum(allocation.node_s for allocation in granted)
    spans = [(each.granted_s, each.ended_s, each.nodes) for each in granted]
    held = Series.of(*np.array(spans, np.float64).reshape(-1, 3).T)
    endings = [allocation.ending for allocation in ended]
    waits = [allocation.granted_s - allocation.submitted_s for allocation in granted]
    return {
        "allocations": len(ended),
        "cancelled": endings.count("cancelled"),
        "released": endings.count("released"),
        "expired": endings.count("expired"),
        "unused_allocations": sum(not allocation.used for allocation in granted),
        "node_hours": node_s / 3600.0,
        "used_share": schedule.all_held_s / (node_s * options.processors) if node_s else nan,
        "most_nodes": int(held.values.max(initial=0.0)),
        "mean_allocation_wait_s": sum(waits) / len(waits) if waits else nan,
        "jobs_lost": sum(allocation.jobs_lost for allocation in ended),
        "jobs_lost_processor_s": sum(allocation.lost_processor_s for allocation in ended),
        "too_long": too_long,
        "paused": site.pool.record.paused,
    }


def short_enough(jobs: TraceJobs, options: PoolOptions) -> NDArray[np.bool_]:
    """Whether each job requests no more time than an allocation has for it, (n,) bool.

    Raises
    ------
    ReshapeError : none does, or one requests more processors than the pool has.
    """
    fits = jobs.estimate <= options.longest_s
    most = options.max_nodes * options.processors
    if (jobs.processors > most).any():
        largest = int(jobs.processors.max())
        raise ReshapeError(
            f"a job requests {largest} processors, and the pool has at most {most}: give it more"
            " nodes, or more processors a node"
        )
    if not fits.any():
        raise ReshapeError(
            f"all {counted(len(fits), 'job')} request more than the"
            f" {format_time(options.longest_s)} that an allocation has for them: give the pool a"
            " longer time_limit"
        )
    return fits
