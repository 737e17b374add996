"""Feedback: jobs are submitted a think time after their preceding jobs have ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from small_experiments import COLUMNS

import simulator as sim
from reshape.errors import ConfigError
from simulator.traces import swf

#: Job 2 follows job 1 by 7 s and job 4 follows job 2 at once; job 5 names a job that is too large.
CHAIN = {
    "submit_s": [0, 5, 6, 7, 8, 9],
    "processors": [2, 2, 1, 1, 1, 9],
    "run_s": [10, 10, 5, 5, 2, 1],
    "preceding_job": [-1, 1, -1, 2, 6, -1],
    "think_s": [-1, 7, -1, -1, 3, -1],
}
JOBS = sim.Jobs(CHAIN).with_rules(larger="drop")


@pytest.mark.parametrize("select", [None, "first-fit"])
def test_an_example_by_hand(select: str | None) -> None:
    run = sim.simulate(JOBS, processors=2, feedback=True, select=select)
    assert run.jobs["submit_s"].tolist() == [0, 17, 6, 27, 8]
    assert run.jobs["start_s"].tolist() == [0, 17, 10, 27, 10]
    assert run.jobs["wait_s"].tolist() == [0, 0, 4, 0, 2]
    assert run.metrics["mean_wait_s"] == 1.2


@pytest.mark.parametrize(
    "site",
    [
        {"pool": "nodes=0-1,processors=2,time_limit=1000", "pool_wait": 30},
        {"machine": {"centres": [{"name": n, "processors": 2, "cpu_factor": 2} for n in "AB"]}},
        {"machine": {"centres": [{"name": "A", "processors": 2}]}, "assign": "grid-backfilling"},
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_jobs_follow_others_in_a_pool_and_at_centres(site: dict[str, Any], share: float) -> None:
    jobs = JOBS.with_resizable(share) if share and "assign" not in site else JOBS
    run = sim.simulate(jobs, feedback=True, **site)
    submitted, ended = run.jobs["submit_s"], run.jobs["end_s"]
    assert submitted.tolist() == [0, ended[0] + 7, 6, ended[1], 8]
    assert run.metrics["unstarted"] == 0


def test_the_trace_of_a_run_is_in_the_order_of_its_submissions(tmp_path: Any) -> None:
    run = sim.simulate(JOBS, processors=2, feedback=True)
    (tmp_path / "run.swf").write_bytes(run.swf())
    written = swf.read(tmp_path / "run.swf")
    assert written.columns["job"].tolist() == [1, 3, 5, 2, 4]
    assert written.columns["submit"].tolist() == [0, 6, 8, 17, 27]
    assert written.columns["wait"].tolist() == [0, 4, 2, 0, 0]


sizes = st.integers(1, 4)
times = st.integers(0, 40)
rows = st.lists(st.tuples(times, sizes, times, st.integers(-1, 8), st.integers(-1, 20)), min_size=2)


@examples(150)
@given(
    rows,
    st.sampled_from(["fcfs", "easy", "conservative", "easy++"]),
    st.sampled_from(["batch", "sequential"]),
)
def test_no_job_is_submitted_before_its_preceding_one_has_ended(
    rows: list[tuple[int, int, int, int, int]], scenario: str, event_order: str
) -> None:
    rows = [*sorted(rows), (50, 1, 1, 1, 0)]  # the last one follows the first
    columns = [list(column) for column in zip(*rows, strict=True)]
    names = ("submit_s", "processors", "run_s", "preceding_job", "think_s")
    jobs = sim.Jobs(dict(zip(names, columns, strict=True))).with_rules(without_run="keep")
    run = sim.simulate(
        jobs, processors=4, feedback=True, scenario=scenario, event_order=event_order
    )
    submitted, ended = run.jobs["submit_s"], run.jobs["end_s"]
    assert not np.isnan(ended).any()
    for place, (at, _, _, before, think_s) in enumerate(rows):
        follows = 1 <= before <= place
        expected = ended[before - 1] + max(think_s, 0) if follows else at
        assert submitted[place] == expected
    assert (run.jobs["wait_s"] >= 0).all()


@pytest.mark.parametrize("event_order", ["batch", "sequential"])
@pytest.mark.parametrize("jobs", [sim.Jobs(COLUMNS), sim.Jobs(COLUMNS).with_resizable(0.5)])
def test_jobs_that_follow_as_in_the_recorded_times_give_the_same_schedule(
    jobs: sim.Jobs, event_order: str
) -> None:
    """The last job follows the first one so that it is submitted when it was recorded."""
    fields = {"processors": 8, "scenario": "easy", "event_order": event_order}
    plain = sim.simulate(jobs, **fields)
    count = len(COLUMNS["submit_s"])
    think_s = COLUMNS["submit_s"][-1] - plain.jobs["end_s"][0]
    assert think_s >= 0
    chained = COLUMNS | {
        "preceding_job": [*[-1] * (count - 1), 1],
        "think_s": [*[-1] * (count - 1), think_s],
    }
    again = sim.Jobs(chained)
    if jobs.fields.resizable is not None:
        again = again.with_resizable(0.5)
    followed = sim.simulate(again, feedback=True, **fields)
    assert followed.jobs["start_s"].tolist() == plain.jobs["start_s"].tolist()
    assert followed.metrics == plain.metrics


def test_a_job_that_cannot_start_keeps_those_after_it_from_being_submitted() -> None:
    columns = {
        "submit_s": [0, 1, 2, 3],
        "processors": [6, 1, 1, 1],
        "run_s": [5, 5, 5, 5],
        "preceding_job": [-1, 1, -1, 3],
    }
    # Each box of six nodes would have the node in the middle.
    machine = {
        "nodes": 8,
        "network": {"topology": "mesh", "dims": [3, 3], "not_installed": "4"},
    }
    run = sim.simulate(sim.Jobs(columns), machine=machine, select="submesh", feedback=True)
    assert run.jobs["state"].tolist() == ["unstarted", "unstarted", "completed", "completed"]
    assert run.jobs["submit_s"].tolist() == [0, 1, 2, 7]


def test_feedback_without_preceding_jobs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"feedback: no job of columns names a preceding one"):
        sim.simulate(sim.Jobs(COLUMNS), processors=8, feedback=True)
