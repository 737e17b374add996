"""Variables of jobs and of the machine, by hand and against a slow count; statistics by name."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape.errors import ConfigError
from simulator.results.schedule import Schedule
from simulator.statistics import (
    Estimator,
    JobValues,
    JobVariable,
    SampledVariable,
    Samples,
    collected,
    estimate,
    jobs_csv,
    requests,
    samples_csv,
)
from simulator.traces.trace_jobs import TraceJobs

NAN = float("nan")


def schedule_of(
    rows: list[tuple[float, float, float, int]], killed: tuple[int, ...] = (), **fields: Any
) -> Schedule:
    """Schedule of jobs (submitted, started, ended, processors) with estimates of 100 s."""
    n = len(rows)
    submitted, started, ended, sizes = map(np.array, zip(*rows, strict=True))
    jobs = TraceJobs(
        lines=np.arange(n),
        numbers=np.arange(1, n + 1),
        submitted=submitted.astype(np.float64),
        run=np.nan_to_num((ended - started).astype(np.float64)),
        estimate=np.full(n, 100.0),
        processors=sizes.astype(np.int64),
        users=np.zeros(n, np.int64),
        priorities=np.zeros(n),
        cut=np.zeros(n, bool),
    )
    were = np.isin(np.arange(n), killed)
    return Schedule(jobs, 8, started.astype(float), ended.astype(float), were, **fields)


#: Job 2 waits for job 1; job 3 overtakes it; job 4 could not run; job 5 is killed.
SMALL = [(0.0, 0.0, 10.0, 4), (1.0, 10.0, 30.0, 8), (2.0, 2.0, 8.0, 2), (3.0, NAN, NAN, 9),
         (20.0, 30.0, 35.0, 1)]  # fmt: skip


def test_variables_of_jobs_by_hand() -> None:
    jobs = JobValues(schedule_of(SMALL, killed=(4,)), tau=10, names={"centre": "a"}, price=3600.0)
    expected: dict[str, list[Any]] = {
        "wait_s": [0, 9, 0, 10],
        "run_s": [10, 20, 6, 5],
        "slowdown": [1, 1.45, 1, 3],
        "bounded_slowdown": [1, 1.45, 1, 1.5],
        "backfilled": [0, 0, 1, 0],
        "killed": [0, 0, 0, 1],
        "completed": [1, 1, 1, 0],
        "penalised_s": [0, 0, 0, 0],
        "cost": [40, 160, 12, 5],
        "cost_respected": [1, 1, 1, 1],
        "centre": ["a"] * 4,
    }
    for name, values in expected.items():
        assert jobs[name].tolist() == values, name
    assert "cost" not in JobValues(schedule_of(SMALL)).available


def test_penalised_run_times() -> None:
    schedule = schedule_of(SMALL, killed=(4,), shares_nodes=True)
    schedule.jobs.run[:] = [8, 20, 6, 0, 1]
    jobs = JobValues(schedule)
    assert jobs["penalised_s"].tolist() == pytest.approx([2, 0, 0, NAN], nan_ok=True)
    assert jobs["penalised_pct"].tolist() == pytest.approx([20, 0, 0, NAN], nan_ok=True)
    mean = collected(jobs, ["penalised_pct=mean"])["penalised_pct=mean"]
    assert mean == pytest.approx(20 / 3), "the killed job has no share"
    assert schedule.penalties["mean_penalised_pct"] == mean


def test_samples_by_hand() -> None:
    samples = Samples(JobValues(schedule_of(SMALL, killed=(4,))), 10.0)
    expected = {
        "queued_jobs": [0, 1, 0, 0],  # at 10, 20, 30 and 40 s, ends and starts included
        "running_jobs": [1, 1, 1, 0],
        "submitted_jobs": [3, 1, 0, 0],
        "backfilled_jobs": [1, 0, 0, 0],
        "killed_jobs": [0, 0, 0, 1],
        "pending_work": [0, 100, 0, 0],
        "processors_used": [8, 8, 1, 0],
        "load": [1, 1, 0.125, 0],
    }
    assert samples.times.tolist() == [10, 20, 30, 40]
    assert samples.available == [*expected]
    for name, values in expected.items():
        assert samples[name].tolist() == values, name


jobs_lists = st.lists(
    st.tuples(
        st.integers(0, 50), st.integers(0, 30), st.integers(1, 40), st.integers(1, 8)
    ),  # submission, wait, run time, processors
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(jobs_lists, st.integers(1, 25))
def test_samples_against_a_count_job_by_job(
    drawn: list[tuple[int, int, int, int]], interval: int
) -> None:
    rows = [(float(s), float(s + w), float(s + w + r), p) for s, w, r, p in sorted(drawn)]
    samples = Samples(JobValues(schedule_of(rows)), float(interval))
    before = -np.inf
    assert samples.times[-1] >= max(row[2] for row in rows)
    for i, at in enumerate(samples.times.tolist()):
        running = [row for row in rows if row[1] <= at < row[2]]
        queued = [row for row in rows if row[0] <= at < row[1]]
        overtook = [
            row
            for place, row in enumerate(rows)
            if before < row[1] <= at and any(other[1] > row[1] for other in rows[:place])
        ]
        assert samples["running_jobs"][i] == len(running)
        assert samples["queued_jobs"][i] == len(queued)
        assert samples["processors_used"][i] == sum(row[3] for row in running)
        assert samples["pending_work"][i] == sum(100 * row[3] for row in queued)
        assert samples["submitted_jobs"][i] == sum(before < row[0] <= at for row in rows)
        assert samples["backfilled_jobs"][i] == len(overtook)
        before = at


def test_processors_of_resizable_and_redirected_jobs() -> None:
    schedule = schedule_of(
        [(0.0, 0.0, 20.0, 2), (0.0, 10.0, 20.0, 3)],
        sizes={1: ((0.0, 2), (8.0, 6)), 2: ((0.0, 3), (5.0, 0), (10.0, 3))},
        redirected=[(2, 0.0, 5.0)],
    )
    samples = Samples(JobValues(schedule), 4.0)
    assert samples["processors_used"].tolist() == [2 + 3, 6, 6 + 3, 6 + 3, 0]


def test_statistics_by_name() -> None:
    jobs = JobValues(schedule_of(SMALL), names={"selection": "first-fit"})
    asked = requests(["wait_s=mean,p95", "run_s=sum-by:selection", "load=max", "selection=count"])
    assert estimate(asked, jobs, Samples(jobs, 10.0)) == {
        "wait_s": {"mean": 4.75, "p95": 10},
        "run_s": {"sum-by:selection": {"first-fit": 41}},
        "load": {"max": 1},
        "selection": {"count": {"first-fit": 4}},
    }
    flat = collected(jobs, ["wait_s=max,p75,p2.5", "killed=count"])
    assert flat == {"wait_s=max": 10, "wait_s=p75": 9, "wait_s=p2.5": 0, "killed=count:0.0": 4}


class Spread(Estimator):
    """User-defined estimator."""

    def compute(self, values: Any) -> float:
        return float(values.max() - values.min())


class Requested(JobVariable):
    """User-defined variable: share of the estimate that a job used."""

    def values(self, jobs: JobValues) -> Any:
        return jobs.run_s / jobs.schedule.jobs.estimate[jobs.ran]


class Idle(SampledVariable):
    """User-defined sampled variable."""

    def sampled(self, samples: Samples) -> Any:
        return samples.schedule.processors - samples["processors_used"]


def test_user_defined_variables_and_estimators() -> None:
    jobs = JobValues(schedule_of(SMALL))
    here = __name__
    texts = [f"{here}:Requested={here}:Spread", f"{here}:Idle=max"]
    found = estimate(requests(texts), jobs, Samples(jobs, 10.0))
    assert found[f"{here}:Requested"][f"{here}:Spread"] == pytest.approx(0.15)
    assert found[f"{here}:Idle"]["max"] == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("wait_s", "write VARIABLE=ESTIMATOR"),
        ("wait=mean", "unknown variable 'wait'; did you mean wait_s"),
        ("wait_s=maen", "unknown estimator 'maen'; did you mean mean"),
        ("wait_s=p101", "unknown estimator 'p101'"),
        ("selection=mean", "selection is a name; count applies"),
        ("load=sum-by:selection", "sum-by needs a number of each job"),
        ("run_s=sum-by:centres", "did you mean centre"),
        ("wait_s=nowhere:Spread", "nowhere:Spread: cannot be created: ModuleNotFoundError"),
        (f"wait_s={__name__}:Idle", "derive the class from Estimator"),
        (f"{__name__}:Spread=mean", "derive the class from JobVariable or SampledVariable"),
    ],
)
def test_wrong_requests(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        requests([text])


def test_a_statistic_without_its_data() -> None:
    jobs = JobValues(schedule_of(SMALL))
    for text, says in (("cost=sum", "price of a processor-hour"), ("centre=count", "a name of it")):
        with pytest.raises(ConfigError, match=says):
            collected(jobs, [text])
    with pytest.raises(ValueError, match="interval must be > 0"):
        Samples(jobs, 0.0)


def test_a_schedule_in_which_no_job_ran_has_no_numbers() -> None:
    jobs = JobValues(schedule_of([(0.0, NAN, NAN, 9)]))
    found = collected(jobs, ["wait_s=mean,count", "queued_jobs=max"])
    assert found == {"wait_s=mean": None, "queued_jobs=max": None}


def test_tables() -> None:
    jobs = JobValues(schedule_of(SMALL), names={"centre": "a"})
    rows = [*csv.DictReader(io.StringIO(jobs_csv(jobs).decode()))]
    assert [row["job_id"] for row in rows] == ["1", "2", "3", "5"]
    assert [*rows[0]] == ["job_id", "submission_time", *jobs.available]
    samples = [*csv.DictReader(io.StringIO(samples_csv(Samples(jobs, 10.0)).decode()))]
    assert [row["processors_used"] for row in samples] == ["8.0", "8.0", "1.0", "0.0"]
