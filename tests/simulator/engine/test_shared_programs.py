"""Resizable jobs on shared nodes: expansions, contractions and ends change the windows."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from one_machine import run
from paths import SMALL_TRACE

from reshape.errors import ConfigError
from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.config import machine_file as platform
from scheduler.model.events import Event, JobEnded, JobSpec, JobStarted, ResizeDone, ResizePoint
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.basic import FewNodes, FirstFit
from simulator.commands.simulate import simulate
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.jobs import SimJob
from simulator.engine.physics import Sharing
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.workload_models.drawn import MIXES, with_demands
from simulator.workload_models.workload import Workload

SHARING = Sharing(
    processors_per_node=4, amounts={"bandwidth": 100}, windows="changes", overtime="allow"
)
#: Perfect speedup.
LINEAR = parse("amdahl:serial=0")


def rigid(processors: int, seconds: float, demand: int = 50, at: float = 0.0) -> SimJob:
    spec = JobSpec(processors, 1000.0, shared={"bandwidth": demand})
    return SimJob(at, spec, seconds)


def resizable(iterations: int = 10, iteration_s: float = 10.0) -> SimJob:
    """A job that starts on two processors and may take four."""
    spec = JobSpec(2, 1000.0, 4, Topology.parse("list:2,4"), shared={"bandwidth": 50})
    return SimJob(0.0, spec, iterations * iteration_s, iterations, LINEAR)


def simulated(policy: str, *jobs: SimJob, **more: Any) -> tuple[list[float], list[ResizePoint]]:
    """Ends of the jobs, and the resize points, on two nodes of four processors."""
    points: list[ResizePoint] = []

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        points.extend(event for event in events if isinstance(event, ResizePoint))

    machine = platform.flat(8)
    how = {"sharing": SHARING, **more}
    schedule = run(Workload(8, list(jobs)), machine, scenario(policy), watch=watch, **how)
    return schedule.ended.tolist(), points


def test_rigid_jobs_end_as_in_a_trace() -> None:
    """(2 x 50 + 2 x 25) / 100 - 1 = 0.5 until job 1 ends; then job 2 is alone."""
    assert simulated("easy", rigid(2, 100.0), rigid(2, 300.0, 25))[0] == [150, 350]


def test_an_expansion_changes_the_windows_of_both_nodes() -> None:
    """On two processors an iteration takes 20 s beside job 2, on four 10 s, half of it elsewhere.

    The second node suffices for the new group; the first decides. Job 2 advances at half its speed
    until job 1 ends at 20 + 9 * 10 s, and has 45 s left then.
    """
    ends, points = simulated("max-b-pr", resizable(), rigid(2, 100.0))
    assert ends == pytest.approx([110, 155])
    assert [point.iteration_s for point in points] == pytest.approx([20] + 8 * [10])


def test_a_contraction_frees_the_node_that_it_leaves() -> None:
    """Job 3 needs the second node at 25 s; job 1 leaves it at 30 s, and then takes 20 s again."""
    ends, points = simulated("fcfs-pr", resizable(), rigid(2, 400.0), rigid(4, 10.0, 20, at=25.0))
    assert points[1].at == pytest.approx(30)
    assert ends[2] == pytest.approx(40), "its node suffices for it alone"
    assert points[2].at == pytest.approx(50)
    assert points[2].iteration_s == pytest.approx(20)


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(1, 4),
            st.integers(1, 20),
            st.integers(0, 60),
            st.booleans(),
        ),
        min_size=1,
        max_size=10,
    ),
    policy=st.sampled_from(["fcfs-pr", "max-b-pr", "pba"]),
)
def test_sharing_that_limits_nothing_changes_no_end(
    jobs: list[tuple[int, int, int, int, bool]], policy: str
) -> None:
    """And with a limit no end of the last job is earlier."""
    single = [
        SimJob(
            float(at),
            JobSpec(size, 10000.0, 2 * size if resizes else None, shared={"bandwidth": demand}),
            float(5 * seconds if resizes else seconds),
            5 if resizes else 1,
            LINEAR,
        )
        for at, size, seconds, demand, resizes in sorted(jobs)
    ]
    plain, _ = simulated(policy, *single, sharing=None)
    enough = Sharing(
        processors_per_node=4, amounts={"bandwidth": 1000}, windows="changes", overtime="allow"
    )
    assert simulated(policy, *single, sharing=enough)[0] == pytest.approx(plain)
    assert simulated("easy", *single)[0] >= [0.0]


class Computing(NamedTuple):
    """A job computes: from when to when, on which processors, and how long it takes alone."""

    begin: float
    end: float
    processors: ProcSet
    alone_s: float
    demand: int


def computing_times(jobs: list[SimJob], events: list[Event], schedule: Schedule) -> list[Computing]:
    """All that was computed, from the events of a run and the processors in its schedule."""
    assert schedule.places is not None
    since = {number + 1: at for number, at in enumerate(schedule.started.tolist())}
    found = []
    for event in events:
        if isinstance(event, JobStarted | ResizeDone):
            since[event.job] = event.at
        elif isinstance(event, ResizePoint | JobEnded):
            begin, job = since[event.job], jobs[event.job - 1]
            held = [held for at, held in schedule.places[event.job] if at <= begin][-1]
            alone_s = job.run_on_s(len(held))
            if job.spec.resizable:
                alone_s /= job.iterations
            demand = job.spec.shared["bandwidth"]
            found.append(Computing(begin, event.at, held, alone_s, demand))
            since[event.job] = event.at
    return found


def end_on_shared_nodes(each: Computing, all_times: list[Computing]) -> float:
    """When it ends by the demands of everything that computes on its nodes, added up anew."""
    ends = []
    for node in {processor // 4 for processor in each.processors}:
        here = [
            (Fraction(other.begin), Fraction(other.end), count * other.demand)
            for other in all_times
            if other is not each and (count := len(other.processors & ProcSet.span(4 * node, 4)))
        ]
        own = len(each.processors & ProcSet.span(4 * node, 4)) * each.demand
        now, left = Fraction(each.begin), Fraction(each.alone_s)
        while left > 0:
            demand = own + sum(more for begin, end, more in here if begin <= now < end)
            factor = max(Fraction(demand, 100), Fraction(1))
            changes = [at for begin, end, _ in here for at in (begin, end) if at > now]
            then = min([*changes, now + left * factor])
            left -= (then - now) / factor
            now = then
        ends.append(float(now))
    return max(ends)


@given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 60),
            st.integers(1, 5),
            st.integers(1, 20),
            st.integers(0, 90),
            st.booleans(),
        ),
        min_size=1,
        max_size=9,
    ),
    policy=st.sampled_from(["fcfs-pr", "max-b-pr", "pba-pr"]),
    cost=st.sampled_from([ResizeCost(), ResizeCost(3.0, 0.5)]),
    selection=st.sampled_from([FirstFit(), FewNodes()]),
)
def test_iterations_take_as_long_as_a_slow_twin_finds(
    jobs: list[tuple[int, int, int, int, bool]],
    policy: str,
    cost: ResizeCost,
    selection: FirstFit | FewNodes,
) -> None:
    """The twin adds up all demands on each node again for each iteration, in exact numbers."""
    single = [
        SimJob(
            float(at),
            JobSpec(size, 10000.0, min(12, 3 * size) if resizes else None, shared={"bandwidth": d}),
            float(5 * seconds),
            5,
            LINEAR,
        )
        for at, size, seconds, d, resizes in sorted(jobs)
    ]
    events: list[Event] = []
    rules = msgspec.structs.replace(scenario(policy), selection=selection)
    schedule = run(
        Workload(12, single, Costs.constant(cost)),
        msgspec.structs.replace(
            platform.flat(12), processors_per_node=4, leaves=ProcSet.span(0, 3)
        ),
        rules,
        counted=False,
        sharing=SHARING,
        watch=lambda now, happened, orders: events.extend(happened),
    )
    times = computing_times(single, events, schedule)
    assert [each.end for each in times] == pytest.approx(
        [end_on_shared_nodes(each, times) for each in times]
    )
    assert schedule.computed is not None
    alone, added = schedule.computed.T
    assert alone.sum() == pytest.approx(sum(each.alone_s for each in times))
    assert added.sum() == pytest.approx(
        sum(each.end - each.begin - each.alone_s for each in times), abs=1e-6
    )
    assert schedule.penalties["mean_penalised_s"] == pytest.approx(added.mean())


def test_penalised_times_of_resizable_jobs() -> None:
    """Alone, job 1 takes 10 + 9 * 5 s, on two and four processors, job 2 100 s; 55 s are added."""
    machine = platform.flat(8)
    workload = Workload(8, [resizable(), rigid(2, 100.0)])
    schedule = run(workload, machine, scenario("max-b-pr"), sharing=SHARING)
    assert schedule.penalised_s.tolist() == pytest.approx([55, 55])
    assert schedule.penalties["mean_penalised_pct"] == pytest.approx((50 + 100 * 55 / 155) / 2)
    late = SimJob(0.0, JobSpec(4, 150.0, shared={"bandwidth": 50}), 100.0)
    kills = Sharing(processors_per_node=4, amounts={"bandwidth": 100}, windows="changes")
    killed = run(Workload(4, [late]), platform.flat(4), scenario("easy"), sharing=kills)
    assert np.isnan(killed.penalised_s).all()


def test_sharing_and_the_gain_of_contiguity_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="both change run times"):
        simulated("fcfs-pr", resizable(), contiguity_speedup=0.2)


def test_jobs_are_killed_at_their_walltimes() -> None:
    late = SimJob(0.0, JobSpec(4, 150.0, shared={"bandwidth": 50}), 100.0)
    kills = Sharing(processors_per_node=4, amounts={"bandwidth": 100}, windows="changes")
    assert simulated("easy", late, sharing=kills)[0] == [150]


def test_a_table_of_whole_runs_is_refused() -> None:
    table = Sharing(processors_per_node=4, amounts={"bandwidth": 100})
    with pytest.raises(ConfigError, match='windows "table" does not apply to resizable jobs'):
        simulated("fcfs-pr", resizable(), sharing=table)


def test_commands(tmp_path: Path) -> None:
    """A workload file with demands, and a trace of which a half is made resizable."""
    machine, jobs = tmp_path / "nodes.yaml", tmp_path / "jobs.yaml"
    machine.write_text("nodes: 2\nprocessors_per_node: 4\nshared_per_node: {bandwidth: 100}\n")
    jobs.write_text(
        "jobs:\n"
        '  - {at: 0, processors: 2, max_processors: 4, topology: "list:2,4", walltime: 1000,\n'
        '     iterations: 10, iteration_s: 10, speedup: "amdahl:serial=0",\n'
        "     demand: {bandwidth: 50}}\n"
        "  - {at: 0, processors: 2, walltime: 1000, iteration_s: 100, demand: {bandwidth: 50}}\n"
    )
    words = [str(jobs), "--machine", str(machine), "--policy", "max-b-pr", "--json"]
    done = CliRunner().invoke(simulate, [*words, "--set", "sharing=changes"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["makespan_s"] == pytest.approx(155)
    alone = CliRunner().invoke(simulate, words)
    assert json.loads(alone.output)["makespan_s"] == pytest.approx(100)

    drawn = tmp_path / "high.swf"
    swf.write(drawn, with_demands(swf.read(SMALL_TRACE), MIXES["high"], 1))
    nodes = tmp_path / "small.yaml"
    nodes.write_text(
        "nodes: 16\nprocessors_per_node: 4\nshared_per_node: {memory_bandwidth: 3000}\n"
    )
    words = [str(drawn), "--machine", str(nodes), "--policy", "fcfs-pr", "--resizable", "0.5"]
    words += ["--jobs", "60", "--json"]
    waits = []
    for sharing in ([], ["--set", "sharing=changes"]):
        done = CliRunner().invoke(simulate, [*words, *sharing])
        assert done.exit_code == 0, done.output
        waits.append(json.loads(done.output)["mean_turnaround_s"])
    assert waits[0] != waits[1]
