"""The scenario `steady`: the resizes that it makes, beside those of the paper's rule."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reshape.speedup import Amdahl
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import Event, JobSpec
from scheduler.model.machine import Machine
from scheduler.model.orders import Contract, Expand, Order, Start
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.results.schedule import Metrics, Schedule
from simulator.workload_models.workload import PrioWorkload

COSTS = Costs.constant(ResizeCost(start_s=0.4, join_s=0.05))
PAPER = ("fcfs-pr", "pba-pr", "max-b-pr")


def simulate(
    chosen: Scenario,
    jobs: list[SimJob],
    processors: int,
    costs: Costs = COSTS,
    **options: object,
) -> Schedule:
    core = Core(chosen, Machine([("node", processors)]))
    return Engine(core, jobs, costs=costs, **options).run()  # type: ignore[arg-type]


def rigid(at: float, processors: int, seconds: float, walltime_s: float = 120.0) -> SimJob:
    return SimJob(at, JobSpec(processors, walltime_s), seconds)


def resizable(start: int, most: int, iterations: int, seconds: float, walltime_s: float) -> SimJob:
    spec = JobSpec(start, walltime_s, most, Topology())
    return SimJob(0.0, spec, iterations * seconds, iterations, Amdahl(0.02))


def resizes(schedule: Schedule) -> int:
    metrics: Metrics = schedule.metrics()
    return metrics.expansions + metrics.contractions


def wait_s(schedule: Schedule, job: int) -> float:
    return float(schedule.wait[job - 1])


def test_a_job_keeps_its_size_while_the_waiting_one_cannot_start() -> None:
    """A job on 1 or 2 processors beside a rigid one of 28 s; a job for four processors waits."""
    jobs = [resizable(1, 2, 120, 0.8, 300.0), rigid(0.5, 2, 28.0, 600.0), rigid(3.0, 4, 5.0)]
    results = {name: simulate(scenario(name), jobs, 5) for name in ("steady", *PAPER)}
    assert resizes(results["fcfs-pr"]) > 20
    assert resizes(results["steady"]) == 3, "it expands, contracts for the waiting job, expands"
    waits = {name: wait_s(result, 3) for name, result in results.items()}
    assert waits["steady"] < 28.5 - 3.0 + 1.0, (
        "it starts an iteration after the end of the rigid one"
    )
    assert waits["max-b-pr"] > waits["steady"], "no job is contracted for it"


def test_a_contracted_job_waits_for_the_others_that_have_to_contract() -> None:
    """Two jobs release processors for the waiting one; one has a resize point every 30 s."""
    jobs = [
        resizable(1, 4, 600, 1.0, 600.0),
        resizable(2, 4, 40, 30.0, 1200.0),
        rigid(65.0, 5, 30.0),
    ]
    steady = simulate(scenario("steady"), jobs, 8)
    in_turn = simulate(scenario("fcfs-pr", {"resizing.harvest": "useful"}), jobs, 8)
    assert resizes(steady) <= resizes(in_turn) - 6
    assert wait_s(steady, 3) <= wait_s(in_turn, 3)
    assert wait_s(steady, 3) < 30.0, "until the other job's next resize point"


def test_fewer_resizes_on_the_papers_workload() -> None:
    """PRIO 4.2 with a second for every join: fewer resizes and shorter waits than FCFS-PR."""
    made, waits = {}, {}
    for name in ("fcfs-pr", "steady"):
        runs = []
        for seed in range(2):
            workload = PrioWorkload().generate(np.random.default_rng(seed))
            runs.append(
                simulate(scenario(name), workload, 400, Costs.constant(ResizeCost(1.0, 1.0)))
            )
        made[name] = sum(map(resizes, runs))
        waits[name] = np.mean([run.metrics().mean_wait_s for run in runs])
    assert made["steady"] < 0.7 * made["fcfs-pr"]
    assert waits["steady"] < waits["fcfs-pr"]


jobs = st.builds(
    lambda at, start, more, iterations, seconds, walltime_s: SimJob(
        at,
        JobSpec(start, walltime_s, start + more, Topology()),
        iterations * seconds,
        iterations,
        Amdahl(0.02),
    ),
    st.integers(0, 40).map(float),
    st.integers(1, 8),
    st.sampled_from([0, 2, 5]),
    st.integers(1, 12),
    st.sampled_from([1.0, 2.5, 10.0]),
    st.sampled_from([60.0, 300.0]),
)
costs = st.builds(ResizeCost, st.sampled_from([0.0, 3.0]), st.sampled_from([0.0, 0.5]))


@given(st.lists(jobs, max_size=12), costs)
def test_a_job_that_contracted_expands_only_after_a_start(
    workload: list[SimJob], cost: ResizeCost
) -> None:
    """The first queued job stays the first one here (first come, first served)."""
    contracted: set[int] = set()

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        for order in orders:
            if isinstance(order, Start):
                contracted.clear()
            elif isinstance(order, Contract) and "FCFS-Contract" in order.reason.rule:
                contracted.add(order.job)
            elif isinstance(order, Expand):
                assert order.job not in contracted, f"{order.reason} at {now}"

    simulate(scenario("steady", {"order": "fcfs"}), workload, 8, Costs.constant(cost), watch=watch)
