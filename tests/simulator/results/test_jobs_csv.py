"""`jobs.csv` that is read: the schedule that was written, or one of Batsim."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from scheduler.model.procset import ProcSet
from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs

#: Of a run of Batsim with two workloads; the third job was refused.
BATSIM = """\
w0!1,w0,p,3,4,100,1,COMPLETED_SUCCESSFULLY,4,50,54,1,51,1.02,0-3
w0!2,w0,p,1.5,2,-1,0,COMPLETED_WALLTIME_REACHED,2,40,42,0.5,40.5,1.01,4-5
w1!1,w1,p,2,99,10,0,REJECTED,,,,,,,
w1!2,w1,p,3,8,unknown,1,COMPLETED_SUCCESSFULLY,54,50.25,104.25,51,101.25,2.01,0-7
"""


def written(path: Path, lines: str) -> Path:
    path.write_text(f"{','.join(jobs_csv.COLUMNS)}\n{lines}")
    return path


def test_a_file_of_batsim(tmp_path: Path) -> None:
    schedule, workload = jobs_csv.read(written(tmp_path / "jobs.csv", BATSIM))
    jobs = schedule.jobs
    assert workload == "w0"
    assert schedule.processors == 8
    assert jobs_csv.job_names(schedule) == ["w0!1", "w0!2", "w1!2"]
    assert jobs.submitted.tolist() == [3, 1.5, 3]
    assert jobs.run.tolist() == [50, 40, 50.25]
    assert jobs.users.tolist() == [-1] * 3
    assert schedule.killed.tolist() == [False, True, False]
    assert [str(held) for *_, held in schedule.place_spans()] == ["0-3", "4-5", "0-7"]


def test_processors_that_were_only_counted(tmp_path: Path) -> None:
    lines = [f"{line.rpartition(',')[0]},\n" for line in BATSIM.splitlines()]
    schedule, _ = jobs_csv.read(written(tmp_path / "jobs.csv", "".join(lines)))
    assert schedule.allocated is None
    assert schedule.processors == 8, "at least"
    assert schedule.size_spans().processors.tolist() == [4, 2, 8]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A job that could not run is left out, and is in no series before that either."""
    started, ended = np.array([0, np.nan, 2, 9.5]), np.array([5, np.nan, 9, 20])
    jobs = TraceJobs.of(
        np.array([7, 7, 8, 7]),
        np.array([0.0, 1, 1, 3]),
        np.array([5.0, 5, 7, 99]),
        np.array([2, 9, 4, 3]),
    )
    killed = np.array([False, False, False, True])
    held = {1: ProcSet.parse("0-1"), 3: ProcSet.parse("2-5"), 4: ProcSet.parse("0 3-4")}
    schedule = Schedule(jobs, 8, started, ended, killed, held)
    (tmp_path / "jobs.csv").write_bytes(jobs_csv.encode(schedule, "few"))
    found, workload = jobs_csv.read(tmp_path / "jobs.csv")
    assert workload == "few"
    assert jobs_csv.job_names(schedule) == ["7", "7#2", "8", "7#4"]
    assert jobs_csv.job_names(found) == ["7", "8", "7#4"]
    assert found.killed.tolist() == [False, False, True]
    assert found.metrics(10).mean_bounded_slowdown == schedule.metrics(10).mean_bounded_slowdown
    assert [span[1:] for span in found.place_spans()] == [s[1:] for s in schedule.place_spans()]
    assert [job for job, *_ in schedule.place_spans()] == [0, 2, 3]
    assert schedule.least_processors == found.processors == 6
    for measure in (
        Schedule.in_use,
        Schedule.waiting,
        partial(Schedule.waiting, processors=True),
    ):
        ours, theirs = measure(schedule), measure(found)
        assert ours.times.tolist() == theirs.times.tolist()
        assert ours.values.tolist() == theirs.values.tolist()
