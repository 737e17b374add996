"""Simulations of several centres: invariants of every policy, and single decisions."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from fixed_estimates import Constant
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, Wakeup
from scheduler.model.machine import Machine
from scheduler.policies.registry import known
from scheduler.policies.scenarios import scenario
from scheduler.predictions.estimates import Tsafrir
from simulator.engine.costs import NO_COSTS
from simulator.engine.engine import Engine
from simulator.many_centres.centres import better_wait
from simulator.many_centres.grid_backfilling import GridBackfilling
from simulator.many_centres.rules import (
    CentreDescription,
    CentresRules,
    rules_named,
    with_estimates,
)
from simulator.many_centres.run import equal_load, site_of
from simulator.many_centres.schedule import CentresSchedule
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Resizable, of_trace

EASY, SJBF = scenario("easy"), scenario("easy", {"backfill_order": "sjf"})
CENTRES = [
    CentreDescription("a", 8, SJBF, 1.0, 2.0, 1.0),
    CentreDescription("b", 4, scenario("fcfs"), 0.5, 3.0, 1.0),
    CentreDescription("c", 16, EASY, 2.0, 1.0, 1.0),
]
POLICIES = [*known("assignment"), "grid-backfilling", "migration"]
MOVES = [{"redispatch": "quote"}, {"ask": 2}]


def trace_jobs(rows: list[tuple[float, float, float, int]]) -> TraceJobs:
    """Jobs of (submission, run time, estimate, processors)."""
    submitted, run_s, estimate, processors = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    numbers = np.arange(1, len(rows) + 1)
    return TraceJobs(
        lines=numbers - 1,
        numbers=numbers,
        submitted=submitted.astype(np.float64),
        run=run_s.astype(np.float64),
        estimate=estimate.astype(np.float64),
        processors=processors.astype(np.int64),
        users=numbers % 3,
        priorities=np.zeros(len(rows)),
        cut=np.zeros(len(rows), dtype=np.bool_),
    )


def simulate_jobs(
    jobs: TraceJobs,
    origins: list[str],
    centres: list[CentreDescription],
    rules: CentresRules,
    *,
    resizable: Resizable | None = None,
) -> CentresSchedule:
    """Submit all jobs to the centres."""
    single = None
    if resizable is not None:
        largest = max(centre.processors for centre in centres)
        single = of_trace(jobs, largest, resizable)
    own = None if single is None else single.jobs
    site = site_of(jobs, origins, centres, rules, single=own)
    engine = Engine(
        site,
        jobs if single is None else single.jobs,
        columns=jobs,
        costs=NO_COSTS if single is None else single.costs,
        cpu_factors=site.cpu_factors,
    )
    return CentresSchedule.of(site, engine.run(), centres, origins)


def check(found: CentresSchedule, jobs: TraceJobs) -> None:
    """Each job ran once, at a centre that can run it, which never had too few processors."""
    assert found.ran.all()
    started, ended = found.schedule.started, found.schedule.ended
    assert (started >= jobs.submitted).all()
    for i, centre in enumerate(found.centres):
        here = found.ran_at == i
        np.testing.assert_allclose(ended[here] - started[here], jobs.run[here] * centre.cpu_factor)
        times = np.concatenate([ended[here], started[here]])
        sizes = np.concatenate([-jobs.processors[here], jobs.processors[here]])
        used = np.cumsum(sizes[np.lexsort((sizes, times))])
        assert (used <= centre.processors).all()
    numbers = found.numbers()
    assert sum(numbers["jobs_by_centre"].values()) == len(jobs)


ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 30), st.integers(1, 16)),
    min_size=2,
    max_size=25,
).map(sorted)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(ROWS)
def test_every_job_runs_once_where_it_fits(
    policy: str, rows: list[tuple[float, float, float, int]]
) -> None:
    jobs = trace_jobs(rows)
    origins = (["a", "b", "c"] * len(jobs))[: len(jobs)]
    check(simulate_jobs(jobs, origins, CENTRES, rules_named(policy)), jobs)


@pytest.mark.parametrize("parameters", MOVES)
@settings(max_examples=20)
@given(ROWS)
def test_options_of_the_dispatcher_keep_every_job(
    parameters: dict[str, object], rows: list[tuple[float, float, float, int]]
) -> None:
    jobs = trace_jobs(rows)
    rules = rules_named("less-waittime", parameters)
    check(simulate_jobs(jobs, ["b"] * len(jobs), CENTRES, rules), jobs)


@given(ROWS)
def test_one_centre_schedules_as_a_machine_does(
    rows: list[tuple[float, float, float, int]],
) -> None:
    # No job is submitted when another one ends: a centre makes a pass for the end first.
    jobs = trace_jobs([(at + i / 1024, *rest) for i, (at, *rest) in enumerate(rows)])
    core = Core(SJBF, Machine([("machine", 16)], counted=True), kill_at_walltime=False)
    alone = Engine(core, jobs).run()
    centre = [CentreDescription("only", 16, SJBF)]
    found = simulate_jobs(jobs, [""] * len(jobs), centre, rules_named("random"))
    assert found.schedule.started.tolist() == alone.started.tolist()


def test_the_job_that_waits_least_elsewhere_goes_there() -> None:
    jobs = trace_jobs([(0, 100, 100, 8), (1, 10, 10, 4), (2, 10, 10, 4)])
    centres = [CENTRES[0], CentreDescription("b", 4, EASY)]
    found = simulate_jobs(jobs, [""] * 3, centres, rules_named("less-waittime"))
    assert found.ran_at.tolist() == [0, 1, 1]
    assert found.schedule.started.tolist() == [0.0, 1.0, 11.0]


def test_of_several_submissions_the_first_to_start_is_kept() -> None:
    jobs = trace_jobs([(0, 50, 50, 8), (0, 20, 20, 4), (1, 5, 5, 4), (2, 5, 5, 4)])
    centres = [CENTRES[0], CentreDescription("b", 4, EASY)]
    found = simulate_jobs(jobs, [""] * 4, centres, rules_named("multiple-requests", {"k": 2}))
    assert found.ran_at.tolist() == [0, 1, 1, 1]
    assert found.schedule.started.tolist() == [0.0, 0.0, 20.0, 25.0]


def test_a_waiting_job_migrates_where_it_starts_at_once() -> None:
    jobs = trace_jobs([(0, 50, 50, 8), (0, 20, 20, 4), (1, 5, 5, 4)])
    centres = [CENTRES[0], CentreDescription("b", 4, EASY)]
    found = simulate_jobs(jobs, ["a", "b", "a"], centres, rules_named("migration"))
    assert (found.ran_at.tolist(), found.moved) == ([0, 1, 1], 1)
    assert found.schedule.started.tolist() == [0.0, 0.0, 20.0]


@pytest.mark.parametrize(
    ("present_s", "others_s", "expected"),
    [
        (1000.0, [500.0], 0),  # exactly half
        (1000.0, [501.0], None),
        (119.0, [59.5], None),  # half, but not a minute
        (120.0, [60.0], 0),
        (1000.0, [400.0, 300.0, 300.0], 1),  # the shortest wait, the first of equal ones
        (np.inf, [5000.0], 0),  # it would never start where it is
        (np.inf, [np.inf], None),
        (1000.0, [], None),
    ],
)
def test_a_job_moves_for_half_of_its_wait_and_a_minute(
    present_s: float, others_s: list[float], expected: int | None
) -> None:
    assert better_wait(present_s, others_s) == expected


@given(here=st.floats(0, 1e6), share=st.floats(0, 1))
def test_a_job_that_moved_does_not_move_back_by_the_same_waits(here: float, share: float) -> None:
    there = here * share
    assume(better_wait(here, [there]) is not None)
    assert better_wait(there, [here]) is None


def test_sites_pull_from_a_central_queue_in_its_order() -> None:
    jobs = trace_jobs([(0, 50, 50, 8), (0, 20, 20, 4), (1, 5, 5, 8), (2, 5, 5, 4)])
    centres = [CENTRES[0], CentreDescription("b", 4, EASY)]
    found = simulate_jobs(jobs, [""] * 4, centres, rules_named("central-queue"))
    assert found.schedule.started.tolist() == [0.0, 0.0, 50.0, 20.0]


def test_grid_backfilling_reserves_at_one_centre_and_backfills_at_all() -> None:
    rows = [(0, 50, 50, 8), (0, 20, 20, 3), (1, 5, 5, 4), (2, 100, 100, 1), (3, 5, 5, 1)]
    centres = [CENTRES[0], CentreDescription("b", 4, EASY)]
    found = simulate_jobs(trace_jobs(rows), [""] * 5, centres, rules_named("grid-backfilling"))
    # Job 3 has the reservation at b at 20 s: job 5 ends before it, job 4 would not.
    assert found.schedule.started.tolist() == [0.0, 0.0, 20.0, 25.0, 3.0]


@pytest.mark.parametrize("policy", ["less-waittime", "migration", "grid-backfilling"])
@settings(max_examples=20)
@given(ROWS)
def test_cores_that_predict_run_every_job_once(
    policy: str, rows: list[tuple[float, float, float, int]]
) -> None:
    jobs = trace_jobs(rows)
    origins = (["a", "b", "c"] * len(jobs))[: len(jobs)]
    centres, rules = with_estimates(CENTRES, rules_named(policy), Tsafrir(window=1))
    check(simulate_jobs(jobs, origins, centres, rules), jobs)


def test_grid_backfilling_predicts_run_times_as_on_factor_1() -> None:
    rules = scenario("easy", {"estimates.window": 1, "estimates": "tsafrir"})
    site = GridBackfilling([CentreDescription("slow", 4, EASY, 2.0)], rules)
    site.handle([JobSubmitted(0.0, 1, JobSpec(1, 100.0, user="u"))])
    site.handle([JobEnded(20.0, 1)])
    site.handle([JobSubmitted(30.0, 2, JobSpec(1, 100.0, user="u"))])
    assert site.live[2].estimate_s == 20.0  # 10 s on factor 1
    site.handle([Wakeup(50.0)])
    assert site.live[2].estimate_s == 80.0  # the first correction, of the job here
    assert site.live[2].walltime_s == 200.0


def test_a_job_is_submitted_with_its_users_estimate_if_the_policy_predicts() -> None:
    jobs = trace_jobs([(0, 50, 50, 6), (1, 50, 50, 8), (2, 100, 100, 2)])
    rules = msgspec.structs.replace(rules_named("less-waittime-pred"), estimates=Constant(1.0))
    found = simulate_jobs(jobs, [""] * 3, [CentreDescription("only", 8, EASY)], rules)
    # By its prediction of 1 s job 3 would end before job 2 can start.
    assert found.schedule.started.tolist() == [0.0, 50.0, 100.0]


def test_the_cost_limit_is_the_estimate_at_the_origin() -> None:
    jobs = trace_jobs([(0, 3600, 3600, 2), (0, 3600, 3600, 2)])
    found = simulate_jobs(jobs, ["a", ""], CENTRES, rules_named("origin"))
    assert list(found.max_costs) == [4.0, np.inf]
    assert found.cost.tolist() == [4.0, 4.0]
    assert found.numbers()["within_cost_limit_pct"] == 100.0


def test_queues_over_time_count_waiting_jobs() -> None:
    jobs = trace_jobs([(0, 10, 10, 8), (1, 10, 10, 8), (2, 10, 10, 8), (30, 1, 1, 1)])
    found = simulate_jobs(jobs, [""] * 4, CENTRES[:1], rules_named("random"))
    assert found.queues(5.0) == {"a": [0, 2, 1, 1, 0, 0, 0]}


def test_equal_load_divides_the_work_by_the_processors() -> None:
    jobs = trace_jobs([(i, 10 * (i + 1), 10 * (i + 1), 1) for i in range(10)])
    (cutoff,) = equal_load(jobs, [10, 10])
    short = jobs.run[jobs.estimate <= cutoff].sum()
    assert 0.4 < short / jobs.run.sum() < 0.65


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("less-waittim", {}, "did you mean less-waittime"),
        ("less-waittime", {"tie": "order"}, "unknown field"),
        ("less-waittime", {"redispatch": "now"}, "must be at-once or quote"),
        ("less-waittime", {"ask": "0"}, "ask must be >= 1"),
        ("easy", {}, "unknown assignment"),
    ],
)
def test_wrong_names_and_values_are_refused(
    name: str, parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        rules_named(name, parameters)


@pytest.mark.parametrize(
    ("scenario", "changes", "message"),
    [
        (5, {}, "centre a: must be a name or a Scenario, got 5"),
        (SJBF, {"backfill.reservations": 2}, "centre a: set changes a scenario that is named"),
        ("easy", {"nope": 1}, "nope"),
    ],
)
def test_rules_of_a_centre_without_effect_are_refused(
    scenario: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _ = CentreDescription("a", 4, scenario, set=changes).chosen
