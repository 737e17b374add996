"""Resizable jobs on shared nodes: expansions, contractions and ends change the windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from paths import SMALL_TRACE

from reshape.errors import ConfigError
from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.config import machine_file as platform
from scheduler.model.events import Event, JobSpec, ResizePoint
from scheduler.model.orders import Order
from scheduler.policies.scenarios import scenario
from simulator.commands.simulate import simulate
from simulator.engine.jobs import SimJob
from simulator.engine.sharing import Sharing
from simulator.run import run
from simulator.workloads.workload import Workload

SHARING = Sharing(4, {"bandwidth": 100}, windows="changes", overtime="allow")
#: Perfect speedup.
LINEAR = parse("amdahl:serial=0")


def rigid(processors: int, seconds: float, demand: int = 50, at: float = 0.0) -> SimJob:
    spec = JobSpec(processors, 1000.0, shared={"bandwidth": demand})
    return SimJob(at, spec, seconds)


def resizable(iterations: int = 10, iteration_s: float = 10.0) -> SimJob:
    """A job that starts on two processors and may take four."""
    spec = JobSpec(2, 1000.0, 4, Topology.parse("list:2,4"), shared={"bandwidth": 50})
    return SimJob(0.0, spec, iteration_s, iterations, LINEAR)


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
            float(seconds),
            5 if resizes else 1,
            LINEAR,
        )
        for at, size, seconds, demand, resizes in sorted(jobs)
    ]
    plain, _ = simulated(policy, *single, sharing=None)
    enough = Sharing(4, {"bandwidth": 1000}, windows="changes", overtime="allow")
    assert simulated(policy, *single, sharing=enough)[0] == pytest.approx(plain)
    assert simulated("easy", *single)[0] >= [0.0]


def test_jobs_are_killed_at_their_walltimes() -> None:
    late = SimJob(0.0, JobSpec(4, 150.0, shared={"bandwidth": 50}), 100.0)
    kills = Sharing(4, {"bandwidth": 100}, windows="changes")
    assert simulated("easy", late, sharing=kills)[0] == [150]


def test_a_table_of_whole_runs_is_refused() -> None:
    table = Sharing(4, {"bandwidth": 100})
    with pytest.raises(ConfigError, match="give --sharing changes"):
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
    done = CliRunner().invoke(simulate, [*words, "--sharing", "changes"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["makespan_s"] == pytest.approx(155)
    alone = CliRunner().invoke(simulate, words)
    assert json.loads(alone.output)["makespan_s"] == pytest.approx(100)

    from simulator.commands.workload import workload

    drawn = tmp_path / "high.swf"
    made = CliRunner().invoke(workload, ["demands", str(SMALL_TRACE), str(drawn), "--mix", "high"])
    assert made.exit_code == 0, made.output
    nodes = tmp_path / "small.yaml"
    nodes.write_text(
        "nodes: 16\nprocessors_per_node: 4\nshared_per_node: {memory_bandwidth: 3000}\n"
    )
    words = [str(drawn), "--machine", str(nodes), "--policy", "fcfs-pr", "--resizable", "0.5"]
    words += ["--jobs", "60", "--json"]
    waits = []
    for sharing in ([], ["--sharing", "changes"]):
        done = CliRunner().invoke(simulate, [*words, *sharing])
        assert done.exit_code == 0, done.output
        waits.append(json.loads(done.output)["mean_turnaround_s"])
    assert waits[0] != waits[1]
