"""Warm-up and cool-down: metrics of the jobs that are submitted in a window."""

from __future__ import annotations

import numpy as np
import pytest
from small_experiments import COLUMNS

import simulator as sim
from reshape.errors import ConfigError

#: Six jobs on two processors, each of which waits for the one before.
JOBS = sim.Jobs(
    submit_s=[0, 10, 20, 30, 40, 50], processors=[2, 2, 1, 1, 2, 2], run_s=[15, 15, 15, 15, 15, 15]
)


def test_metrics_count_the_jobs_of_the_window() -> None:
    run = sim.simulate(JOBS, processors=2, scenario="fcfs", warm_up_s=5, cool_down_s=15)
    assert run.jobs["start_s"].tolist() == [0, 15, 30, 30, 45, 60]
    metrics = run.metrics
    assert (metrics["jobs"], metrics["left_out"]) == (3, 3)
    assert metrics["mean_wait_s"] == pytest.approx((5 + 10 + 0) / 3)
    assert metrics["max_wait_s"] == 10
    assert metrics["utilization"] == 1.0, "from second 5 to 35 both processors are in use"
    assert len(run.jobs["job"]) == 6, "the table has all jobs"


def test_utilisation_is_that_of_the_window() -> None:
    run = sim.simulate(
        sim.Jobs(submit_s=[0, 30, 100], processors=[2, 1, 2], run_s=[20, 60, 50]), warm_up_s=10
    )
    held_s = 2 * 10 + 60  # of the first job from second 10 on, and of the second one
    assert run.metrics["utilization"] == pytest.approx(held_s / (2 * 90))


def test_a_window_of_a_pool_and_of_centres() -> None:
    window = {"warm_up_s": 5, "cool_down_s": 15}
    pool = {"pool": "nodes=0-1,processors=2,time_limit=1000", "scenario": "fcfs"}
    whole, run = sim.simulate(JOBS, **pool), sim.simulate(JOBS, **pool, **window)
    assert (run.metrics["jobs"], run.metrics["left_out"]) == (3, 3)
    assert run.metrics["mean_wait_s"] == pytest.approx((5 + 10 + 0) / 3)
    assert run.metrics["node_hours"] == whole.metrics["node_hours"], "that of the whole run"
    machine = {"centres": [{"name": name, "processors": 2, "scenario": "fcfs"} for name in "AB"]}
    run = sim.simulate(JOBS, machine=machine, assign="origin", **window)  # all at the first one
    metrics = run.metrics
    assert (metrics["jobs"], metrics["left_out"]) == (3, 3)
    assert metrics["mean_wait_s"] == pytest.approx((5 + 10 + 0) / 3)
    assert (metrics["utilization_pct"], metrics["p95_processors"]) == (50.0, 2.0)
    with pytest.raises(ConfigError, match="warm-up and cool-down leave out all jobs"):
        sim.simulate(JOBS, machine=machine, warm_up_s=100)


def test_a_window_of_all_jobs_counts_them_as_without_one() -> None:
    for jobs in (sim.Jobs(COLUMNS), sim.Jobs(COLUMNS).with_resizable(0.5, data_mib=1.0)):
        plain = sim.simulate(jobs, processors=8, scenario="fcfs-pr").metrics
        barely = sim.simulate(jobs, processors=8, scenario="fcfs-pr", warm_up_s=-0.0).metrics
        assert barely == plain
        almost = sim.simulate(jobs, processors=8, scenario="fcfs-pr", cool_down_s=1e-9).metrics
        assert almost["jobs"] == plain["jobs"] - 1
        assert almost["left_out"] == 1


def test_jobs_that_could_not_start_count_if_they_are_submitted_in_the_window() -> None:
    jobs = sim.Jobs(submit_s=[0, 5, 10, 20], processors=[6, 1, 6, 1], run_s=[1, 1, 1, 1])
    machine = {"nodes": 8, "network": {"topology": "mesh", "dims": [3, 3], "not_installed": "4"}}
    run = sim.simulate(jobs, machine=machine, select="submesh", warm_up_s=1)
    assert (run.metrics["jobs"], run.metrics["unstarted"], run.metrics["left_out"]) == (2, 1, 1)
    assert "external_fragmentation" not in run.metrics, "it would count all jobs"


@pytest.mark.parametrize(
    "fields", [{"warm_up_s": 51}, {"cool_down_s": 50}, {"warm_up_s": 25, "cool_down_s": 24}]
)
def test_a_window_without_jobs_is_an_error(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"leave out all jobs, .* within 50 s; make them shorter"):
        sim.simulate(JOBS, processors=2, **fields)


def test_a_window_in_a_sweep_and_in_a_file(tmp_path: object) -> None:
    table = sim.sweep(
        sim.Experiment(JOBS, processors=2), {"warm_up_s": [0, 5]}, workers=1, progress=False
    )
    assert table["jobs"].tolist() == [6, 5]
    assert np.isnan(table["left_out"]).tolist() == [True, False]
