"""Two traces of ours with their schedules: files, slow schedulers and core agree on every start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_golden_traces import GOLDEN, SCHEDULERS
from one_machine import run
from slow_schedulers import SlowJob

from scheduler.policies.scenarios import scenario
from simulator.traces import swf
from simulator.traces.swf import Trace

SCENARIOS = {
    "fcfs": scenario("fcfs"),
    "easy": scenario("easy"),
    "sjbf": scenario("easy", {"backfill_order": "sjf"}),
    "conservative": scenario("conservative"),
}
MACHINES = {"a": 64, "b": 100}


def expected(name: str, policy: str) -> list[int]:
    """Starts of a schedule file."""
    header, *rows = (GOLDEN / f"{name}.starts.txt").read_text().splitlines()
    column = header.split().index(policy)
    return [int(row.split()[column]) for row in rows]


def starts(trace: Trace, machine: int, policy: str) -> list[float]:
    """Starts by the core."""
    found: list[float] = run(trace, machine, SCENARIOS[policy]).started.tolist()
    return found


def trace_of(jobs: list[SlowJob], machine: int) -> Trace:
    at, processors, estimate, run_s = (np.array(column) for column in zip(*jobs, strict=True))
    columns = {
        "job": np.arange(1, len(jobs) + 1),
        "submit": at,
        "run": run_s,
        "processors": processors,
        "requested_processors": processors,
        "requested_time": estimate,
    }
    return Trace("drawn", [f"; MaxProcs: {machine}"], columns)


@pytest.mark.parametrize("policy", SCENARIOS)
@pytest.mark.parametrize("name", MACHINES)
def test_the_core_gives_the_schedule_of_the_file(name: str, policy: str) -> None:
    trace = swf.read(GOLDEN / f"{name}.swf")
    assert len(trace) == 300
    found = starts(trace, MACHINES[name], policy)
    assert found == expected(name, policy)
    waits = np.array(found) - trace.columns["submit"]
    assert (waits > 0).mean() > 0.3, "the queue is long enough for policies to differ"


@pytest.mark.long  # it checks the files with which the core is compared
@pytest.mark.parametrize("policy", SCENARIOS)
@pytest.mark.parametrize("name", MACHINES)
def test_the_slow_schedulers_give_the_schedule_of_the_file(name: str, policy: str) -> None:
    trace = swf.read(GOLDEN / f"{name}.swf")
    fields = ("submit", "processors", "requested_time", "run")
    columns = [trace.columns[field].tolist() for field in fields]
    jobs: list[SlowJob] = list(zip(*columns, strict=True))
    assert SCHEDULERS[policy](jobs, MACHINES[name]) == expected(name, policy)


drawn_jobs = st.lists(
    st.builds(
        lambda at, processors, run, more: (at, processors, run + more, run),
        st.integers(0, 30),
        st.integers(1, 8),
        st.integers(1, 12),
        st.sampled_from([0, 0, 1, 5, 20]),
    ),
    min_size=1,
    max_size=14,
).map(lambda jobs: sorted(jobs, key=lambda job: job[0]))


@given(drawn_jobs, st.sampled_from(sorted(SCENARIOS)))
def test_the_core_equals_the_slow_schedulers(jobs: list[SlowJob], policy: str) -> None:
    assert starts(trace_of(jobs, 8), 8, policy) == SCHEDULERS[policy](jobs, 8)
