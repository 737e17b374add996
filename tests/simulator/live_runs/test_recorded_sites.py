"""Choices between sites that are simulated again from a recorded run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.client.sites.sites_file import METRICS, metric_of
from scheduler.model.events import JobSpec
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.scenarios import scenario
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.loop import EventLoop
from simulator.engine.centre_jobs import CentreJobs
from simulator.live_runs.recorded_sites import RecordedSiteJob, RecordedSites, compare_choices
from simulator.many_centres.centres import Centres
from simulator.many_centres.centres_file import CentreDescription

EASY = scenario("easy")
CENTRES = [
    CentreDescription("a", 4, EASY, 1.5, 1.0, 1.0),
    CentreDescription("b", 8, scenario("easy", {"backfill_order": "sjf"}), 1.0, 1.0, 3.0),
    CentreDescription("c", 2, EASY, 0.5, 1.0, 2.0),
]
JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 30), st.floats(1, 3), st.integers(1, 8)),
    min_size=1,
    max_size=25,
).map(sorted)


def simulated(metric: str, rows: list[tuple[int, int, float, int]]) -> RecordedSites:
    """A run in which a metric chose; jobs: (submission, run time, walltime / run time, size)."""
    specs = [JobSpec(size, run_s * ratio) for _, run_s, ratio, size in rows]
    times = [at + i / 1024 for i, (at, *_) in enumerate(rows)]
    run_s = [float(row[1]) for row in rows]
    site, agenda = Centres(CENTRES, Dispatcher(metric_of(metric))), Agenda()
    EventLoop(site, times, specs, agenda, CentreJobs(agenda, run_s, site.cpu_factors)).run()
    jobs = [
        RecordedSiteJob(CENTRES[site.ran_at[i]].name, i, spec, at, at, run)
        for i, (spec, at, run) in enumerate(zip(specs, times, run_s, strict=True), 1)
    ]
    return RecordedSites(CENTRES, jobs)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25)
@given(JOBS)
def test_a_simulated_run_is_repeated_with_the_same_choices(
    metric: str, rows: list[tuple[int, int, float, int]]
) -> None:
    found = compare_choices(simulated(metric, rows), metric)
    assert len(found) == len(rows)
    assert all(each.is_same for each in found)


def test_a_different_choice_is_found_and_the_later_ones_are_compared_all_the_same() -> None:
    rows = [(0, 20, 1.0, 8), (1, 20, 1.0, 8), (2, 5, 1.0, 1), (3, 5, 1.0, 1)]
    run = simulated("wait", rows)
    assert [job.site for job in run.jobs] == ["b", "b", "a", "a"]
    run.jobs[2] = run.jobs[2]._replace(site="c")
    found = compare_choices(run, "wait")
    assert [(each.live, each.simulated, each.is_same) for each in found] == [
        ("b:1", "b", True),
        ("b:2", "b", True),
        ("c:3", "a", False),
        ("a:4", "a", True),
    ]
    assert found[1].waits_s == {"b": 20.0 - 1 - 1 / 1024}


def test_a_question_before_an_end_is_asked_in_the_state_of_its_time() -> None:
    run = simulated("wait", [(0, 10, 1.0, 8), (10, 5, 1.0, 8)])
    asked_before = run.jobs[1]._replace(asked_s=9.0)
    found = compare_choices(RecordedSites(CENTRES, [run.jobs[0], asked_before]), "wait")
    assert [each.waits_s["b"] for each in found] == [0.0, 1.0]
