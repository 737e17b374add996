"""Simulations on the nodes of a pool: invariants for any workload."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator as sim
from reshape.errors import ReshapeError
from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.clock.loop import Tick
from scheduler.model.events import JobSpec
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import predicts, scenario
from simulator.engine.costs import NO_COSTS, Costs, ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.pools import EndedAllocation, PooledSite, pool_metrics
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Workload

OPTIONS = PoolOptions(
    max_nodes=4, time_limit_s=1000.0, processors=4, idle_timeout_s=60.0, margin_s=0.0
)


class Run(NamedTuple):
    """Results on the nodes of a pool."""

    schedule: Schedule
    metrics: dict[str, Any]
    allocations: list[EndedAllocation]


def run_pool(
    jobs: TraceJobs | Workload,
    chosen: Scenario,
    options: PoolOptions,
    waits: np.ndarray[Any, Any],
    seed: int = 0,
    tick: Tick | None = None,
) -> Run:
    """Submit all jobs to a pool."""
    single = isinstance(jobs, Workload)
    columns, costs = (jobs.columns, jobs.costs) if single else (jobs, NO_COSTS)
    site = PooledSite(chosen, options, waits, len(columns), kill_at_walltime=single, seed=seed)
    schedule = Engine(
        site,
        jobs.jobs if single else jobs,
        columns=columns,
        costs=costs,
        allocations=not single,
        estimates=predicts(chosen),
        tick=tick,
    ).run()
    size = options.max_nodes * options.processors
    schedule = msgspec.structs.replace(schedule, processors=size)
    return Run(schedule, pool_metrics(schedule, site, options, 0), site.ended)


def jobs_of(rows: list[tuple[float, float, float, int]]) -> TraceJobs:
    """Jobs of a trace from (submission, run time, estimate, processors)."""
    count = len(rows)
    submitted, run, estimate, processors = zip(*sorted(rows), strict=True)
    return TraceJobs(
        lines=np.arange(count),
        numbers=np.arange(1, count + 1),
        submitted=np.array(submitted, float),
        run=np.array(run, float),
        estimate=np.array(estimate, float),
        processors=np.array(processors, np.int64),
        users=np.full(count, -1),
        priorities=np.zeros(count),
        cut=np.zeros(count, bool),
    )


@st.composite
def some_jobs(draw: st.DrawFn) -> TraceJobs:
    rows = []
    for _ in range(draw(st.integers(1, 12))):
        estimate = draw(st.integers(1, 1000))
        run = draw(st.integers(1, estimate))
        rows.append((float(draw(st.integers(0, 3000))), float(run), float(estimate),
                     draw(st.integers(1, 16))))  # fmt: skip
    return jobs_of(rows)


@st.composite
def some_pools(draw: st.DrawFn) -> PoolOptions:
    return PoolOptions(
        max_nodes=4,
        min_nodes=draw(st.sampled_from([0, 0, 1, 4])),
        time_limit_s=draw(st.sampled_from([1000.0, 2500.0])),
        processors=4,
        backlog=draw(st.integers(1, 4)),
        idle_timeout_s=draw(st.sampled_from([0.0, 60.0, 500.0])),
        hysteresis_s=draw(st.sampled_from([0.0, 30.0])),
        margin_s=0.0,
        allocation_nodes=draw(st.integers(1, 4)),
    )


def has_no_end(now: float) -> None:
    """Fail after the first `TICK_EVERY` instants, which are many times more than 12 jobs need."""
    pytest.fail(f"the run still goes on at {now} s")


def check_run(run: Run, options: PoolOptions) -> None:
    """Check what holds for every run."""
    schedule, metrics = run.schedule, run.metrics
    granted = [each for each in run.allocations if not np.isnan(each.granted_s)]
    assert metrics["most_nodes"] <= options.max_nodes
    assert all(each.ended_s <= each.granted_s + options.time_limit_s for each in granted)
    if not metrics["paused"]:
        assert not np.isnan(schedule.ended).any()
    for place, held in (schedule.allocated or {}).items():
        # All nodes of a job belong to allocations that last from its start to its end.
        nodes = {f"pool-{number // options.processors + 1}" for number in held}
        there = {
            name
            for each in granted
            for name in each.names.split()
            if each.granted_s <= schedule.started[place - 1]
            and schedule.ended[place - 1] <= each.ended_s
        }
        assert nodes <= there
    assert not metrics["used_share"] > 1 + 1e-9
    ends = {"cancelled", "released", "expired"}
    assert {each.ending for each in run.allocations} <= ends


@given(some_jobs(), some_pools(), st.sampled_from([0.0, 10.0, 400.0]), st.sampled_from([0, 1]))
@examples(60)
def test_no_job_is_lost_and_all_run_within_allocations(
    jobs: TraceJobs, options: PoolOptions, wait_s: float, reservations: int
) -> None:
    name = "easy" if reservations else "fcfs"
    run = run_pool(jobs, scenario(name), options, np.array([wait_s]), tick=has_no_end)
    check_run(run, options)
    assert run.metrics["jobs_lost"] == 0


@given(some_jobs(), some_pools(), st.lists(st.sampled_from([0, 30, 900, 5000]), min_size=1))
@examples(60)
def test_a_run_ends_whatever_the_waits_are(
    jobs: TraceJobs, options: PoolOptions, waits_s: list[int]
) -> None:
    """Allocations last for less time than the longest waits, so that some never meet."""
    waits = np.array(waits_s, float)
    check_run(run_pool(jobs, scenario("easy"), options, waits, tick=has_no_end), options)


def test_allocations_that_never_last_together_are_not_submitted_without_end() -> None:
    """The last job needs two, of 1000 s each, for 950 s; one is granted 238 s after the other.

    Each was given back when it had become too short, and the next one submitted at that instant.
    """
    rows = [
        (229.0, 237.0, 583.0, 7),
        (325.0, 133.0, 229.0, 13),
        (1008.0, 75.0, 999.0, 12),
        (1297.0, 112.0, 270.0, 5),
        (1829.0, 75.0, 145.0, 5),
        (1924.0, 201.0, 202.0, 11),
        (2024.0, 44.0, 950.0, 13),
    ]
    options = msgspec.structs.replace(OPTIONS, backlog=2, idle_timeout_s=0.0)
    waits = np.array([400.0])
    run = run_pool(jobs_of(rows), scenario("easy"), options, waits, tick=has_no_end)
    check_run(run, options)
    assert not run.metrics["paused"]


def test_allocations_of_which_one_is_always_awaited_are_not_submitted_without_end() -> None:
    """The second job needs two whole ones, which mostly wait five times as long as they last."""
    rows = [
        (102.0, 128.0, 609.0, 10),
        (179.0, 852.0, 1000.0, 6),
        (181.0, 109.0, 189.0, 10),
        (1705.0, 198.0, 373.0, 4),
        (1842.0, 479.0, 890.0, 3),
    ]
    options = msgspec.structs.replace(OPTIONS, backlog=4)
    waits = np.array([300.0, 5000.0, 5000.0, 5000.0, 5000.0])
    jobs = jobs_of(rows)
    run = run_pool(jobs, scenario("conservative"), options, waits, 3341, tick=has_no_end)
    check_run(run, options)


@given(some_jobs(), some_pools(), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_the_same_seed_gives_the_same_run(jobs: TraceJobs, options: PoolOptions, seed: int) -> None:
    waits = np.array([0.0, 30.0, 300.0, 900.0])
    first, again = (run_pool(jobs, scenario("easy"), options, waits, seed) for _ in range(2))
    assert first.allocations == again.allocations
    assert first.schedule.ended.tolist() == again.schedule.ended.tolist()


def resizable(rng: np.random.Generator) -> Workload:
    """Resizable jobs whose walltimes an allocation just covers."""
    jobs = []
    for _ in range(20):
        iterations = int(rng.integers(2, 20))
        run_s = iterations * float(rng.integers(5, 40))
        spec = JobSpec(4, 4 + 1.05 * run_s, 16, Topology(step=4))
        at = float(rng.integers(0, 4000))
        jobs.append(SimJob(at, spec, run_s, iterations, parse("amdahl:serial=0.1"), 10**6))
    cost = ResizeCost(start_s=2.0, join_s=0.5, bytes_per_s=1e9)
    return Workload(None, jobs, Costs.constant(cost, 1.0, 1.0))


@pytest.mark.parametrize("seed", range(6))
def test_resizable_jobs_grow_onto_nodes_that_come_and_leave_those_that_expire(seed: int) -> None:
    workload = resizable(np.random.default_rng(seed))
    options = msgspec.structs.replace(
        OPTIONS, time_limit_s=1200.0, backlog=4, grow_running=seed % 2 == 1
    )
    run = run_pool(workload, scenario("fcfs-pr"), options, np.array([60.0]))
    check_run(run, options)
    assert run.schedule.metrics().expansions > 0
    assert run.metrics["jobs_lost"] == 0


def test_a_pool_that_grows_for_running_jobs_shortens_them_and_gives_back_what_they_leave() -> None:
    spec = JobSpec(4, 4 + 1.05 * 4000.0, 16, Topology(step=4))
    models = {"fast": "amdahl:serial=0", "saturated": "amdahl:serial=1"}
    runs = {}
    for grow in (False, True):
        for name, model in models.items():
            job = SimJob(0.0, spec, 4000.0, 100, parse(model), 10**6)
            cost = ResizeCost(start_s=2.0, join_s=0.5, bytes_per_s=1e9)
            workload = Workload(None, [job], Costs.constant(cost, 1.0, 1.0))
            options = msgspec.structs.replace(OPTIONS, time_limit_s=6000.0, grow_running=grow)
            waits = np.array([60.0])
            runs[name, grow] = run_pool(workload, scenario("fcfs-pr"), options, waits)
            check_run(runs[name, grow], options)
    alone, grown = runs["fast", False], runs["fast", True]
    assert [run.metrics["most_nodes"] for run in (alone, grown)] == [1, 4]
    assert grown.schedule.ended[0] < 0.5 * alone.schedule.ended[0]
    # A job that has found its sweet spot asks for nothing more.
    alone, grown = runs["saturated", False], runs["saturated", True]
    assert grown.metrics["allocations"] == 2
    assert grown.metrics["node_hours"] < 1.2 * alone.metrics["node_hours"]


def simulate(rows: list[tuple[float, float, float, int]]) -> sim.Simulation:
    names = ("submit_s", "run_s", "walltime_s", "processors")
    return sim.simulate(dict(zip(names, zip(*rows, strict=True), strict=True)), pool=OPTIONS)


def test_jobs_longer_than_an_allocation_are_left_out_and_counted() -> None:
    rows = [(0.0, 10.0, 10.0, 4), (0.0, 10.0, 2000.0, 4)]
    run = simulate(rows)
    assert (run.metrics["too_long"], run.metrics["jobs"]) == (1, 1)
    with pytest.raises(ReshapeError, match=r"all 1 job request.* more than the 00:16:40"):
        simulate(rows[1:])


def test_a_job_larger_than_the_pool_is_an_error() -> None:
    jobs = sim.Jobs(Workload(None, [SimJob(0.0, JobSpec(17, 1.0), 1.0)]))
    with pytest.raises(ReshapeError, match="requests 17 processors, and the pool has at most 16"):
        sim.simulate(jobs, pool=OPTIONS)


def test_jobs_that_outlast_their_predictions_are_lost_when_their_nodes_expire() -> None:
    # The predictor expects the mean of the user's last two jobs; the third one runs longer.
    rows = [(0.0, 10.0, 100.0, 4), (100.0, 10.0, 100.0, 4), (980.0, 900.0, 990.0, 4)]
    jobs = jobs_of(rows)
    jobs = msgspec.structs.replace(jobs, users=np.zeros(3, np.int64))
    chosen = scenario("easy", {"estimates": "tsafrir"})
    options = msgspec.structs.replace(OPTIONS, min_nodes=1, max_nodes=1)
    run = run_pool(jobs, chosen, options, np.array([0.0]))
    assert run.metrics["jobs_lost"] == 1
    assert run.metrics["jobs_lost_processor_s"] == 4 * (
        run.schedule.ended[2] - run.schedule.started[2]
    )
    assert run.schedule.killed.tolist() == [False, False, True]


def test_a_longer_idle_timeout_holds_more_and_waits_less() -> None:
    jobs = jobs_of([(200.0 * place, 20.0, 30.0, 4) for place in range(20)])
    short, long = (
        run_pool(jobs, scenario("easy"), msgspec.structs.replace(OPTIONS, idle_timeout_s=idle_s),
                 np.array([100.0]))
        for idle_s in (10.0, 300.0)
    )  # fmt: skip
    assert short.metrics["node_hours"] < long.metrics["node_hours"]
    assert short.schedule.wait.mean() > long.schedule.wait.mean()
