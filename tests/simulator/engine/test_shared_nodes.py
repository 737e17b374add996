"""Jobs of a trace on shared nodes: longer runs, kills, wrong demands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from one_machine import run
from paths import SMALL_TRACE

from reshape.errors import ConfigError
from scheduler.policies.redirection import Redirection
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.commands.simulate import simulate
from simulator.engine.physics import Sharing
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.normalise import Rules
from simulator.workload_models.drawn import MIXES, with_demands

#: Jobs 1 and 2 share a node for 100 s; job 3 fills a node of its own.
TRACE = """\
; MaxProcs: 8
; Shared: memory_bandwidth=100
1 0 -1 100 2 -1 -1 2 150 -1 1 1 1 -1 -1 -1 -1 -1 50
2 0 -1 300 2 -1 -1 2 400 -1 1 1 1 -1 -1 -1 -1 -1 25
3 0 -1 100 4 -1 -1 4 190 -1 1 1 1 -1 -1 -1 -1 -1 50
"""


def trace_of(folder: Path, text: str = TRACE) -> swf.Trace:
    path = folder / "t.swf"
    path.write_text(text)
    return swf.read(path)


def simulated(folder: Path, text: str = TRACE, rules: Rules | None = None, **how: Any) -> Schedule:
    sharing = Sharing(processors_per_node=4, amounts={"memory_bandwidth": 100}, **how)
    easy = scenario("easy")
    return run(trace_of(folder, text), 8, easy, rules, counted=False, sharing=sharing)


def test_run_times_and_kills(tmp_path: Path) -> None:
    schedule = simulated(tmp_path)
    # (2 x 50 + 2 x 25) / 100 - 1 = 0.5 for 100 s; job 3 alone has a penalty of 1.
    assert schedule.ended.tolist() == [150, 350, 190]
    assert schedule.killed.tolist() == [False, False, True]
    assert schedule.penalised_s[:2].tolist() == [50, 50]
    assert schedule.penalties["mean_penalised_pct"] == pytest.approx((100 / 3 + 100 / 7) / 2)


def test_jobs_that_may_exceed_their_estimates(tmp_path: Path) -> None:
    schedule = simulated(tmp_path, overtime="allow")
    assert schedule.ended.tolist() == [150, 350, 200]
    assert not schedule.killed.any()


def test_changes_and_ratio(tmp_path: Path) -> None:
    # Until 150 job 2 proceeds at 2/3: 100 s of its run; then alone.
    assert simulated(tmp_path, windows="changes").ended.tolist() == [150, 350, 190]
    schedule = simulated(tmp_path, penalty="ratio", overtime="allow")
    assert schedule.ended.tolist() == [250, 450, 300]


def test_a_kill_frees_the_neighbour(tmp_path: Path) -> None:
    text = TRACE.replace("2 150 -1", "2 120 -1")  # job 1 may take 120 s
    ended = simulated(tmp_path, text, windows="changes").ended.tolist()
    assert ended == pytest.approx([120, 340, 190])  # 80 s of job 2's run by 120


def test_a_run_beyond_its_request_is_killed_once(tmp_path: Path) -> None:
    text = TRACE.replace("1 0 -1 100", "1 0 -1 170")
    assert simulated(tmp_path, text).killed.tolist() == [True, False, True]
    extended = simulated(tmp_path, text, Rules(overrun="extend"), overtime="allow")
    assert extended.ended.tolist() == [255, 385, 200]


def test_wrong_demands_follow_the_seed(tmp_path: Path) -> None:
    ends = [
        simulated(tmp_path, demand_error=0.4, overtime="allow", seed=seed).ended.tolist()
        for seed in (1, 1, 2)
    ]
    assert ends[0] == ends[1] != ends[2]
    with pytest.raises(ValueError, match="demand_error must be >= 0 and <= 1"):
        Sharing(processors_per_node=4, amounts={"memory_bandwidth": 100}, demand_error=1.5)


def test_no_redirection(tmp_path: Path) -> None:
    redirecting = Scenario("both", redirection=Redirection())
    sharing = Sharing(processors_per_node=4, amounts={"memory_bandwidth": 100})
    with pytest.raises(ConfigError, match="jobs that share nodes cannot be redirected"):
        run(trace_of(tmp_path), 8, redirecting, counted=False, sharing=sharing)


def test_enough_for_all_changes_nothing() -> None:
    """With capacities that no jobs exceed, a schedule is that without sharing."""
    small = swf.read(SMALL_TRACE)
    trace = with_demands(small, (100,), 1, levels=(1,), capacity=100, name="b")
    easy = scenario("easy")
    rules = Rules(overrun="extend")
    for windows in ("table", "changes"):
        sharing = Sharing(processors_per_node=4, amounts={"b": 100}, windows=windows)
        shared = run(trace, 64, easy, rules, counted=False, sharing=sharing)
        plain = run(trace, 64, easy, rules, counted=False)
        np.testing.assert_array_equal(shared.ended, plain.ended)
        assert shared.penalties["mean_penalised_s"] == 0


def test_commands(tmp_path: Path) -> None:
    drawn = tmp_path / "high.swf"
    swf.write(drawn, with_demands(swf.read(SMALL_TRACE), MIXES["high"], 1))
    column = swf.read(drawn).columns["shared:memory_bandwidth"]
    assert set(column.tolist()) == {500, 1000, 2000}
    assert 0.7 < (column == 2000).mean() < 0.9
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("nodes: 16\nprocessors_per_node: 4\nshared_per_node: {memory_bandwidth: 6000}")
    command = [str(drawn), "--machine", str(nodes), "--json"]
    results = {}
    for sharing in (
        [],
        ["--set", "sharing=table"],
        ["--set", "sharing=table", "--set", "sharing.overtime=allow"],
    ):
        done = CliRunner().invoke(simulate, [*command, *sharing])
        assert done.exit_code == 0, done.output
        results[len(sharing)] = json.loads(done.output)
    assert "mean_penalised_s" not in results[0]
    assert results[2]["killed"] > results[4]["killed"]
    assert 0 < results[4]["p95_penalised_pct"] <= 100 / 4 + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--set", "sharing.overtime=allow"],
            "--set sharing.overtime: neither the machine nor",
        ),
        (["--set", "sharing=table"], "neither the machine nor the trace names a shared resource"),
        (
            ["--set", "dispersal=true", "--resizable", "0.5"],
            "--set dispersal: jobs have no places in a network",
        ),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str) -> None:
    done = CliRunner().invoke(simulate, [str(SMALL_TRACE), *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize("mix", [(80, 10), (80, 10, 20), (-10, 10, 100)])
def test_wrong_mixes(mix: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"same size|sum to 1|non-negative"):
        with_demands(swf.read(SMALL_TRACE), mix, 1)
