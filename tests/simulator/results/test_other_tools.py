"""`jobs.csv` in tools of others: evalys, pandas and polars, each where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_experiments import COLUMNS

import simulator as sim

#: Columns of a job set as the documentation of evalys lists them (`evalys.jobset.JobSet.columns`).
OF_EVALYS = (
    "job_id", "submission_time", "requested_number_of_resources", "requested_time", "success",
    "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time", "stretch",
    "allocated_resources", "workload_name",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> sim.Simulation:
    made = sim.simulate(COLUMNS, processors=8, select="first-fit")
    made.write(tmp_path)
    return made


def test_the_columns_are_those_of_evalys(run: sim.Simulation, tmp_path: Path) -> None:
    header = (tmp_path / "jobs.csv").read_text().partition("\n")[0].split(",")
    assert {*header} >= {*OF_EVALYS}


@pytest.mark.filterwarnings("ignore")
def test_evalys_opens_the_jobs_and_finds_the_same(run: sim.Simulation, tmp_path: Path) -> None:
    jobset = pytest.importorskip("evalys.jobset").JobSet.from_csv(tmp_path / "jobs.csv")
    assert jobset.MaxProcs == run.processors
    frame = jobset.df
    assert frame["jobID"].tolist() == run.jobs["job"].tolist()
    for theirs, ours in (
        ("submission_time", "submit_s"), ("starting_time", "start_s"), ("finish_time", "end_s"),
        ("waiting_time", "wait_s"), ("execution_time", "run_s"),
        ("turnaround_time", "turnaround_s"),
    ):  # fmt: skip
        assert frame[theirs].tolist() == run.jobs[ours].tolist()
    assert frame["proc_alloc"].tolist() == run.jobs["processors"].tolist()
    assert str(frame["allocated_resources"][1]).replace(" ", "") == run.allocations["numbers"][1]
    utilisation = jobset.utilisation.load
    steps = np.diff(utilisation.index, append=utilisation.index[-1])
    held_s = float((utilisation.to_numpy() * steps).sum())
    assert held_s / (8 * run.metrics["makespan_s"]) == pytest.approx(run.metrics["utilization"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_read_the_file(run: sim.Simulation, tmp_path: Path, library: str) -> None:
    frame = pytest.importorskip(library).read_csv(tmp_path / "jobs.csv")
    assert frame.shape[0] == 12
    assert frame["waiting_time"].mean() == run.metrics["mean_wait_s"]
    assert frame["starting_time"].to_list() == run.jobs["start_s"].tolist()
