"""Simulate a workload on the nodes of an elastic pool."""

from __future__ import annotations

import csv
import io
from math import nan

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ReshapeError
from scheduler.model.machine import Machine
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import predicts
from scheduler.pools.options import PoolOptions
from scheduler.pools.pool import Pool, PoolRecord
from scheduler.text.formats import counted, format_time
from scheduler.virtual_clock.loop import Tick
from simulator.engine.engine import Engine
from simulator.engine.policy_failures import simulated_core
from simulator.pools.pooled_site import EndedAllocation, PooledSite
from simulator.pools.waits import BatchWaits
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Workload

#: Name of the simulated pool.
NAME = "pool"


class PoolMetrics(msgspec.Struct, frozen=True):
    """What a pool cost; means are nan if there is nothing to average.

    Parameters
    ----------
    allocations, cancelled, released, expired : allocations that were submitted; that were cancelled
        while they were queued; that were given back; that lasted to their time limit.
    unused_allocations : granted allocations in which no job ran.
    node_hours : node-hours of all granted allocations.
    used_share : processor-seconds that jobs held over those of the granted allocations.
    most_nodes : largest number of nodes held at a time.
    mean_allocation_wait_s : from the submission of a granted allocation to its start.
    jobs_lost, jobs_lost_processor_s : jobs that were ended because a node expired, and what they
        had held until then.
    too_long : jobs that no allocation lasts long enough for, which were left out.
    paused : why the pool was paused at the end; empty if it was not.
    """

    allocations: int
    cancelled: int
    released: int
    expired: int
    unused_allocations: int
    node_hours: float
    used_share: float
    most_nodes: int
    mean_allocation_wait_s: float
    jobs_lost: int
    jobs_lost_processor_s: float
    too_long: int
    paused: str


class PoolRun(msgspec.Struct, frozen=True):
    """A simulation on the nodes of a pool.

    Parameters
    ----------
    schedule : of the jobs; its number of processors is that of the whole pool.
    metrics : what the pool cost.
    allocations : in the order of their ends.
    """

    schedule: Schedule
    metrics: PoolMetrics
    allocations: list[EndedAllocation]

    def allocations_csv(self) -> bytes:
        """Write a line for each allocation, in the order of their ends; times in seconds."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(EndedAllocation.__struct_fields__)
        for allocation in self.allocations:
            values = msgspec.structs.asdict(allocation) | {"names": " ".join(allocation.names)}
            writer.writerow("" if value is None else value for value in values.values())
        return text.getvalue().encode()


def run_pool(
    workload: TraceJobs | Workload,
    scenario: Scenario,
    options: PoolOptions,
    waits: BatchWaits,
    seed: int = 0,
    tick: Tick | None = None,
) -> PoolRun:
    """Simulate a workload on a machine of which all nodes belong to a pool.

    Jobs that request more time than an allocation has are left out.

    Parameters
    ----------
    workload : cleaned jobs of a trace, which fit on the nodes of the pool, or single jobs.
    waits, seed : waits of allocations in the batch system, and how they are drawn.
    tick : called with the time now and then.

    Raises
    ------
    ReshapeError : no job is short enough, one requests further resources, or the scenario needs a
        redirection group.
    """
    if scenario.redirection is not None:
        raise ReshapeError("a pool has no redirection group: choose another --policy")
    workload, too_long = _short_enough(workload, options)
    kill = isinstance(workload, Workload) and workload.kills
    core = simulated_core(scenario, Machine(), kill_at_walltime=kill, keep_ended=True)
    pool = Pool(PoolRecord(NAME, options))
    rng = np.random.default_rng(seed)
    jobs = workload.jobs if isinstance(workload, Workload) else workload
    site = PooledSite(core, pool, lambda: waits.draw(rng), len(jobs))
    if isinstance(workload, Workload):
        engine = Engine(
            site,
            workload.submissions(),
            cost=workload.cost,
            start_s=workload.start_s,
            end_s=workload.end_s,
            estimates=predicts(scenario),
            tick=tick,
        )
    else:
        engine = Engine(site, workload, allocations=True, estimates=predicts(scenario), tick=tick)
    with no_collection():
        schedule = engine.run()
    size = options.max_nodes * options.processors
    schedule = msgspec.structs.replace(schedule, processors=size)
    metrics = pool_metrics(schedule, site.ended, options, too_long, pool.record.paused)
    return PoolRun(schedule, metrics, site.ended)


def pool_metrics(
    schedule: Schedule,
    ended: list[EndedAllocation],
    options: PoolOptions,
    too_long: int,
    paused: str,
) -> PoolMetrics:
    """Compute what a pool cost from its allocations and the schedule of the jobs."""
    granted = [allocation for allocation in ended if allocation.granted_at is not None]
    node_s = sum(allocation.node_s for allocation in granted)
    endings = [allocation.ending for allocation in ended]
    waits = [
        allocation.granted_at - allocation.submitted_at
        for allocation in granted
        if allocation.granted_at is not None
    ]
    return PoolMetrics(
        allocations=len(ended),
        cancelled=endings.count("cancelled"),
        released=endings.count("released"),
        expired=endings.count("expired"),
        unused_allocations=sum(not allocation.used for allocation in granted),
        node_hours=node_s / 3600.0,
        used_share=schedule.all_held_s / (node_s * options.processors) if node_s else nan,
        most_nodes=_most_nodes(granted),
        mean_allocation_wait_s=sum(waits) / len(waits) if waits else nan,
        jobs_lost=sum(allocation.jobs_lost for allocation in ended),
        jobs_lost_processor_s=sum(allocation.lost_processor_s for allocation in ended),
        too_long=too_long,
        paused=paused,
    )


def _most_nodes(granted: list[EndedAllocation]) -> int:
    """Largest number of nodes held at a time; what ends at an instant ends before what begins."""
    changes = [(allocation.ended_at, -allocation.nodes) for allocation in granted]
    changes += [(allocation.granted_at or 0.0, allocation.nodes) for allocation in granted]
    held = most = 0
    for _, nodes in sorted(changes):
        held += nodes
        most = max(most, held)
    return most


def _short_enough(
    workload: TraceJobs | Workload, options: PoolOptions
) -> tuple[TraceJobs | Workload, int]:
    """Leave out jobs that request more time than an allocation has, and count them."""
    columns = workload.submissions().columns() if isinstance(workload, Workload) else workload
    columns.need_no_resources("a pool")
    fits = columns.estimate <= options.longest_s
    most = options.max_nodes * options.processors
    if (columns.processors > most).any():
        largest = int(columns.processors.max())
        raise ReshapeError(
            f"a job requests {largest} processors, and the pool has at most {most}: give it more"
            " nodes, or more processors a node"
        )
    too_long = int((~fits).sum())
    if not fits.any():
        raise ReshapeError(
            f"all {counted(too_long, 'job')} request more than the {format_time(options.longest_s)}"
            " that an allocation has for them: give the pool a longer time_limit"
        )
    if not too_long:
        return workload, 0
    if not isinstance(workload, Workload):
        return workload.select(fits), too_long
    ordered = sorted(workload.jobs, key=lambda job: job.at)
    jobs = [job for job, short in zip(ordered, fits.tolist(), strict=True) if short]
    trace_jobs = None if workload.trace_jobs is None else workload.trace_jobs.select(fits)
    return msgspec.structs.replace(workload, jobs=jobs, trace_jobs=trace_jobs), too_long
