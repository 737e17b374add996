"""Schedules that others computed, every job; known means; slow schedulers on a trace of our own."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_schedulers
from one_machine import run
from paths import SHARED, SMALL_TRACE

from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.normalise import Rules, normalise

SMALL = SMALL_TRACE
SJBF = {"backfill_order": "sjf"}
there = pytest.mark.skipif(
    not (SHARED / "golden").is_dir(),
    reason="known traces and schedules are not in ../shared beside the repository",
)


def known(name: str) -> Scenario:
    if name == "easy-plus-plus":
        return scenario("easy++")
    return scenario("easy", SJBF if name.startswith("sjbf") else {})


@there
@pytest.mark.parametrize("policy", ["easy", "easy-exact", "sjbf-exact", "easy-plus-plus"])
@pytest.mark.parametrize(("machine", "processors"), [("KTH-SP2", 100), ("SDSC-SP2", 128)])
def test_every_start_of_a_known_schedule(machine: str, processors: int, policy: str) -> None:
    """Every start, and every first prediction where there are any."""
    trace = swf.read(SHARED / "golden" / f"{machine}.{policy}.swf.gz")
    rules = Rules(exact=policy.endswith("exact"), ties="number")
    schedule = run(trace, processors, known(policy), rules, event_order="sequential")
    waits = trace.columns["wait"][schedule.jobs.lines]
    assert len(waits) == len(trace)
    assert np.flatnonzero(waits != schedule.wait).tolist() == []
    if policy == "easy-plus-plus":  # its last field is the first prediction of each job
        _, *rows = csv.reader(jobs_csv.encode(schedule, machine).decode().splitlines())
        predictions = trace.columns["think"][schedule.jobs.lines]
        assert [float(row[-1]) for row in rows] == predictions.tolist()


@there
def test_every_start_stays_where_processors_are_told_apart() -> None:
    """First fit never refuses, so which processors a job gets changes no start."""
    trace = swf.read(SHARED / "golden" / "KTH-SP2.easy.swf.gz")
    rules, order = Rules(ties="number"), "sequential"
    schedule = run(trace, 100, known("easy"), rules, event_order=order, counted=False)
    waits = trace.columns["wait"][schedule.jobs.lines]
    assert np.flatnonzero(waits != schedule.wait).tolist() == []
    assert schedule.allocated is not None
    held = [len(schedule.allocated[place]) for place in range(1, len(trace) + 1)]
    assert held == schedule.jobs.processors.tolist()


#: Mean wait and mean bounded slowdown (tau 10) of KTH-SP2 and SDSC-SP2, plain normalisation.
MEANS = [
    ("fcfs", "batch", ("353949.9321", "6818.3216"), ("1536403.1038", "13860.6142")),
    pytest.param(
        *("easy", "sequential", ("6839.7710", "92.6188"), ("20503.1931", "88.6066")),
        marks=pytest.mark.long,
    ),
    ("easy", "batch", ("6837.4851", "92.7299"), ("20576.2375", "88.5411")),
    ("conservative", "sequential", ("7313.6830", "89.0377"), ("21921.0001", "89.9421")),
]


@there
@pytest.mark.parametrize(("policy", "order", "kth", "sdsc"), MEANS)
def test_known_means(policy: str, order: str, kth: tuple[str, str], sdsc: tuple[str, str]) -> None:
    traces = SHARED / "traces"
    for name, jobs, processors, means in [
        ("KTH-SP2-1996-2.1-cln", 28467, 100, kth),
        ("SDSC-SP2-1998-4.2-cln", 54034, 128, sdsc),
    ]:
        trace = swf.read(traces / f"{name}.swf.gz")
        schedule = run(trace, processors, scenario(policy), event_order=order)
        numbers = schedule.metrics(tau=10)
        assert numbers.jobs == jobs
        found = f"{numbers.mean_wait_s:.4f}", f"{numbers.mean_bounded_slowdown:.4f}"
        assert found == means


def small(chosen: Scenario, **options: Any) -> Schedule:
    return run(swf.read(SMALL), 64, chosen, Rules(larger="cap"), **options)


@pytest.mark.parametrize(
    "policy", ["fcfs", "easy", "sjbf", pytest.param("conservative", marks=pytest.mark.long)]
)
def test_the_small_trace_equals_the_slow_schedulers(policy: str) -> None:
    chosen = scenario("easy", SJBF) if policy == "sjbf" else scenario(policy)
    schedule = small(chosen)
    jobs = schedule.jobs
    columns = [jobs.submitted, jobs.processors, jobs.estimate, jobs.run]
    rows = [tuple(map(int, row)) for row in zip(*columns, strict=True)]
    assert schedule.started.tolist() == getattr(slow_schedulers, policy)(rows, 64)


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy++", "conservative"])
@pytest.mark.parametrize("order", ["batch", "sequential"])
def test_counting_and_telling_apart_agree(policy: str, order: str) -> None:
    counted = small(scenario(policy), event_order=order)
    apart = small(scenario(policy), event_order=order, counted=False)
    assert counted.started.tolist() == apart.started.tolist()
    assert apart.allocated is not None
    assert [
        len(apart.allocated[j + 1]) for j in range(len(apart.jobs))
    ] == apart.jobs.processors.tolist()


@pytest.mark.parametrize("name", ["sjf", "lxwf", "priority"])
def test_orders_start_everything_and_fill_the_machine(name: str) -> None:
    """No order loses a job, holds more than there is, or leaves the machine idle for nothing."""
    for fields in ({"order": name}, {"backfill_order": name}):
        schedule = small(scenario("easy", fields))
        assert not np.isnan(schedule.started).any()
        assert (schedule.started >= schedule.jobs.submitted).all()
        for now in schedule.started:
            running = (schedule.started <= now) & (now < schedule.ended)
            assert schedule.jobs.processors[running].sum() <= 64


def test_orders_differ() -> None:
    means = {
        name: small(scenario("easy", {"order": name})).metrics().mean_bounded_slowdown
        for name in ("fcfs", "sjf", "lxwf")
    }
    assert means["sjf"] < means["fcfs"]
    assert means["lxwf"] < means["fcfs"]


def test_killing_at_the_reservation() -> None:
    rules = Rules(larger="cap", overrun="keep")
    trace = swf.read(SMALL)
    fields = {"backfill.kill_at_reservation": True}
    lazy = run(trace, 64, scenario("easy"), rules)
    strict = run(trace, 64, scenario("easy", fields), rules)
    assert lazy.metrics().killed == 0
    assert strict.metrics().killed > 0
    killed = strict.killed
    held = (strict.ended - strict.started)[killed]
    assert (held >= strict.jobs.estimate[killed]).all(), "no job is killed before its estimate"
    assert (held < strict.jobs.run[killed]).all()
    # At the very moment of a kill, a job starts that had been first in the queue.
    assert all((strict.started == end).any() for end in strict.ended[killed])
    normalise(trace, 64, rules)


#: Jobs (number, submitted, run, processors, request, user).
ENDS_IN_ONE_SECOND = """
1 0 5 1 1000 1
2 10 5 1 1000 1
3 50 67 6 67 2
4 100 11 1 1000 1
5 106 5 1 1000 1
6 107 4 1 1000 1
7 112 10 10 10 2
8 112 3 4 1000 1
"""
END_WITH_A_SUBMISSION = """
1 1 3 4 4 1
3 2 1 3 1 1
7 3 1 4 1 1
10 4 1 1 1 1
11 5 1 1 1 1
"""


@pytest.mark.parametrize(
    ("rows", "processors", "policy", "starts"),
    [
        # Jobs 4 to 6 end at 111, and the prediction of job 8 is the mean of the two last started.
        (ENDS_IN_ONE_SECOND, 10, "easy++", [0, 10, 50, 100, 106, 107, 117, 112]),
        # The end of jobs 3 and 10 at 5 moves job 7 only after job 11 has been placed.
        (END_WITH_A_SUBMISSION, 4, "conservative", [1, 4, 6, 4, 5]),
    ],
)
def test_sequential_order_in_one_instant(
    tmp_path: Path, rows: str, processors: int, policy: str, starts: list[int]
) -> None:
    lines = []
    for row in rows.split("\n")[1:-1]:
        number, at, run_s, size, request, user = row.split()
        fields = [number, at, "-1", run_s, size, "-1", "-1", size, request, "-1", "1", user]
        lines.append(" ".join(fields + ["-1"] * 6) + "\n")
    path = tmp_path / "a.swf"
    path.write_text("".join(lines))
    schedule = run(swf.read(path), processors, scenario(policy), event_order="sequential")
    assert schedule.started.tolist() == starts
