"""Redirection in the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from command_line import invoke
from one_machine import run
from paths import SMALL_TRACE as SMALL

from reshape.errors import ConfigError
from reshape.speedup import Amdahl
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.events import JobSpec
from scheduler.model.machine import Machine
from scheduler.policies.api import CurrentPass
from scheduler.policies.scenarios import scenario
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.normalise import Rules


def two_lives(job: SimJob, policy: str = "easy") -> Schedule:
    """A job that makes two others wait for all 4 processors and has 4 more for its second life."""
    machine = Machine([("n1", 4)])
    group = Machine([("n2", 4)], numbering=machine.numbering)
    core = Core(scenario(policy, {"redirection.theta": 1}), machine, {"redirection": group})
    others = [SimJob(at, JobSpec(4, 10.0), 10.0) for at in (10.0, 20.0)]
    return Engine(core, [job, *others]).run()


def test_two_lives_of_a_job() -> None:
    result = two_lives(SimJob(0.0, JobSpec(4, 100.0), 100.0))
    assert result.started.tolist() == [20.0, 20.0, 30.0]
    assert result.ended.tolist() == [120.0, 30.0, 40.0]
    assert result.redirected == [(1, 0.0, 20.0)]
    assert not result.killed.any(), "its walltime began again"
    assert result.sizes[1] == ((0.0, 4), (20.0, 0), (20.0, 4))
    assert result.run_s[0] == 100.0
    assert result.held_s == 4 * (20 + 100 + 10 + 10)
    assert result.metrics().expansions == result.metrics().contractions == 0


def test_two_lives_of_a_resizable_job() -> None:
    spec = JobSpec(4, 200.0, 8, Topology())
    result = two_lives(SimJob(0.0, spec, 140.0, 20, Amdahl(0.0)), "fcfs-pr")
    assert result.ended.tolist() == [20.0 + 20 * 7.0, 30.0, 40.0]
    assert result.redirected == [(1, 0.0, 20.0)]


class Idle(msgspec.Struct, frozen=True):
    """A scheduling pass that starts nothing."""

    def schedule(self, current: CurrentPass) -> None:
        """Start no job."""


def test_a_redirected_job_that_never_starts_again_has_no_end() -> None:
    """Its first run, which was ended, is no result."""
    of_group = {"redirection.scenario": f"{__name__}:Idle"}
    chosen = scenario("easy", {"redirection.theta": 0, **of_group})
    machine = Machine([("n1", 4)])
    group = Machine([("n2", 4)], numbering=machine.numbering)
    core = Core(chosen, machine, {"redirection": group})
    jobs = [SimJob(at, JobSpec(4, 50.0), 50.0) for at in (0.0, 10.0)]
    result = Engine(core, jobs, allocations=True).run()
    assert result.redirected == [(1, 0.0, 10.0)]
    assert np.isnan(result.started[0])
    assert np.isnan(result.ended[0])


def test_jobs_are_not_redirected_to_a_group_without_their_resources() -> None:
    machine = Machine([("n1", 4)], resources={"gpu": 1})
    for amounts, redirected in (({"gpu": 1}, 1), ({}, 0)):
        group = Machine([("n2", 4)], numbering=machine.numbering, resources=amounts)
        core = Core(scenario("easy", {"redirection.theta": 0}), machine, {"redirection": group})
        jobs = [SimJob(at, JobSpec(4, 50.0, resources={"gpu": 1}), 50.0) for at in (0.0, 10.0)]
        result = Engine(core, jobs).run()
        assert len(result.redirected) == redirected
        assert not np.isnan(result.ended).any()
        machine = Machine([("n1", 4)], resources={"gpu": 1})


@pytest.mark.parametrize("more", [(), ("--resizable", 0.5, "--select", "first-fit")])
def test_results_have_the_first_runs_of_redirected_jobs(
    more: tuple[object, ...], tmp_path: Path
) -> None:
    """By `jobs.csv` jobs held what the utilization says, and one job at a time a processor."""
    options = ("--set", "redirection.theta=3", "--set", "redirection.processors=16", *more)
    done = invoke("simulate", SMALL, "--jobs", 150, *options, "--out", tmp_path, "--json")
    facts = json.loads(done.stdout)
    schedule, _ = jobs_csv.read(tmp_path / "jobs.csv")
    assert schedule.sizes is not None
    changes = [size for sizes in schedule.sizes.values() for _, size in sizes]
    assert changes.count(0) == facts["redirected"] > 0
    held = schedule.size_spans()
    assert held.processors.min() > 0, "between two runs a job holds none"
    work = float(((held.end - held.begin) * held.processors).sum())
    assert work == pytest.approx(facts["utilization"] * 80 * facts["makespan_s"])
    if more:
        assert schedule.places is not None
        assert [*schedule.places] == [*schedule.sizes]
        for number, places in schedule.places.items():
            assert [(at, len(each)) for at, each in places] == [*schedule.sizes[number]]
        spans = schedule.place_spans()
        assert sum((end - begin) * len(each) for _, begin, end, each in spans) == (
            pytest.approx(work)
        )


def test_a_threshold_never_reached_changes_nothing() -> None:
    trace = swf.read(SMALL)
    for counted in (True, False):
        plain = run(trace, 64, scenario("easy"), counted=counted)
        never = scenario("easy", {"redirection.theta": 10**9, "redirection.alpha": 0.25})
        grouped = run(trace, 64, never, counted=counted)
        assert np.array_equal(plain.started, grouped.started)
        assert grouped.processors == 64 + 16
        assert grouped.redirected == []


def test_counted_processors_are_as_good_as_numbered_ones() -> None:
    trace, rules = swf.read(SMALL), Rules(exact=True, overrun="extend")
    chosen = scenario("easy", {"redirection.theta": 3, "redirection.processors": 16})
    counted = run(trace, 64, chosen, rules)
    numbered = run(trace, 64, chosen, rules, counted=False)
    assert np.array_equal(counted.started, numbered.started)
    numbers = counted.metrics()
    assert numbers.redirected == len(counted.redirected) > 5
    assert numbers.killed == 0
    assert not np.isnan(counted.ended).any()
    assert numbered.allocated is not None
    moved = {number for number, _, _ in counted.redirected}
    for number, held in numbered.allocated.items():
        assert (min(held) >= 64) == (number in moved), "the group's processors come behind"
    lives = sum(counted.jobs.processors[n - 1] * (b - a) for n, a, b in counted.redirected)
    assert numbers.lost_processor_s == lives > 0


def test_as_a_command(tmp_path: Path) -> None:
    options = ("--set", "redirection.theta=3", "--set", "redirection.processors=16")
    told = json.loads(invoke("simulate", SMALL, "--estimates", "exact", *options, "--json").stdout)
    assert told["redirected"] > 0
    assert told["max_bounded_slowdown"] >= told["mean_bounded_slowdown"]
    assert told["processors"] == 64
    wrong = invoke("simulate", SMALL, "--set", "redirection.conflict=latest", code=2)
    assert "did you mean latest-end or latest-start?" in wrong.stderr


def test_a_group_of_nothing() -> None:
    with pytest.raises(ConfigError, match=r"redirection: alpha 0.01 of 64 processors is less"):
        run(swf.read(SMALL), 64, scenario("easy", {"redirection.alpha": 0.01}))
