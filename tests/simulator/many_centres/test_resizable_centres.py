"""Resizable jobs at several centres: how they grow, what quotes count, what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_run_centres import simulate_jobs, trace_jobs

from reshape.errors import ConfigError
from scheduler.policies.scenarios import scenario
from simulator.many_centres.rules import CentreDescription, rules_named
from simulator.many_centres.schedule import CentresSchedule
from simulator.workload_models.workload import Resizable

PERFECT = "amdahl:serial=0"
GROWS = Resizable(1.0, PERFECT, expand_most=4.0, expand_step=1.0, performance=PERFECT)
ELASTIC, EASY = scenario("fcfs-pr"), scenario("easy")
CENTRES = [
    CentreDescription("rigid", 8, EASY, 1.0, 3600.0, 1.0),
    CentreDescription("elastic", 8, ELASTIC, 1.5, 3600.0, 2.0),
    CentreDescription("small", 2, ELASTIC, 0.5),
]
Rows = list[tuple[float, float, float, int]]


def simulate(rows: Rows, policy: str, how: Resizable = GROWS) -> CentresSchedule:
    jobs = trace_jobs(rows)
    return simulate_jobs(jobs, [""] * len(jobs), CENTRES, rules_named(policy), resizable=how)


def test_a_job_grows_at_the_centre_that_resizes_and_so_ends_there_first() -> None:
    rows: Rows = [(0, 1000, 1000, 2)]
    waits = simulate(rows, "less-waittime")
    assert waits.ran_at.tolist() == [0], "both start it at once, and ties go to the first"
    assert waits.schedule.run_s.tolist() == [1000.0]
    ends = simulate(rows, "less-turnaround")
    assert ends.ran_at.tolist() == [1], "1.5 times as slow, but it grows to all 8 processors"
    assert 1500 / 4 < ends.schedule.run_s[0] < 700
    assert ends.schedule.sizes is not None
    assert [size for _, size in ends.schedule.sizes[1]][-1] == 8


def test_a_rigid_job_goes_by_the_cpu_factor() -> None:
    how = Resizable(0.0, PERFECT)
    found = simulate([(0, 1000, 1000, 2)], "less-turnaround", how)
    assert found.ran_at.tolist() == [2]
    assert found.schedule.run_s.tolist() == [500.0]


def test_costs_and_processors_in_use_follow_the_sizes() -> None:
    found = simulate([(0, 1000, 1000, 2)], "less-turnaround")
    assert found.schedule.sizes is not None
    sizes = found.schedule.sizes[1]
    ends = [*(at for at, _ in sizes[1:]), found.schedule.ended[0]]
    held_s = sum(size * (end - at) for (at, size), end in zip(sizes, ends, strict=True))
    assert found.schedule.job_held_s.tolist() == pytest.approx([held_s])
    assert found.cost.tolist() == pytest.approx([2.0 * held_s])
    numbers = found.numbers()
    assert numbers["p95_processors"] == 8
    assert numbers["utilization_pct"] == pytest.approx(100 * held_s / (18 * ends[-1]))


def test_grid_backfilling_refuses_resizable_jobs() -> None:
    with pytest.raises(ConfigError, match="runs rigid jobs"):
        simulate([(0, 10, 10, 2)], "grid-backfilling")


ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(30, 60), st.integers(1, 8)),
    min_size=1,
    max_size=10,
).map(sorted)


@pytest.mark.parametrize("policy", ["less-turnaround", "less-waittime", "multiple-requests"])
@settings(max_examples=15, deadline=None)
@given(ROWS)
def test_every_job_does_its_work_once_and_no_centre_has_too_few_processors(
    policy: str, rows: Rows
) -> None:
    found = simulate(rows, policy)
    assert found.ran.all()
    sizes, started = found.schedule.sizes, found.schedule.started
    assert sizes is not None
    assert (started >= found.schedule.jobs.submitted).all()
    for i, centre in enumerate(found.centres):
        changes: list[tuple[float, int]] = []
        for place in np.flatnonzero(found.ran_at == i).tolist():
            before = 0
            for at, size in (*sizes[place + 1], (found.schedule.ended[place], 0)):
                changes.append((at, size - before))
                before = size
        used = np.cumsum([change for _, change in sorted(changes)])
        assert (used <= centre.processors).all()
    work = found.schedule.jobs.run * found.schedule.jobs.processors
    factors = np.array([centre.cpu_factor for centre in found.centres])[found.ran_at]
    assert (found.schedule.job_held_s >= work * factors * (1 - 1e-9)).all(), (
        "speedup is linear at most"
    )
