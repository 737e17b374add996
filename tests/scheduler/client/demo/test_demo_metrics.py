"""Metrics and report of the demo for small hand-made jobs."""

from __future__ import annotations

import pytest
from job_infos import T, ended

from scheduler.client.demo.command import (
    Results,
    RunMetrics,
    failures,
    is_verified,
    measure,
    takeaways,
)
from scheduler.client.demo.workload import JOBS, workload
from scheduler.protocol.messages import ResizeInfo


def resize(at: float, old: int, new: int, outcome: str = "done", **times: float) -> ResizeInfo:
    return ResizeInfo(at=T + at, serial=1, old=old, new=new, outcome=outcome, reason="", **times)


#: Grows from 0-1 to 0-3 at 4 (joined at 5) and goes back to 2-3 at 8.
GROWN = ended(
    1,
    0,
    2,
    10,
    allocation=[(T + 2, "0-1"), (T + 4, "0-3"), (T + 8, "2-3"), (T + 10, "")],
    sizes=[(T + 2, 2), (T + 5, 4), (T + 8, 2)],
    resizes=[
        resize(4, 2, 4, join_s=0.010, move_s=0.2, resume_s=0.001),
        resize(8, 4, 2, join_s=0.030, move_s=0.4, resume_s=0.003),
        resize(9, 2, 4, "rolled back: the new group died", join_s=9.0),
    ],
)


def test_metrics_of_two_jobs() -> None:
    other = ended(2, 4, 4, 12, allocation=[(T + 4, "5-7"), (T + 12, "")], facts={"n": 1})
    found = measure([GROWN, other], processors=8)
    held = 2 * 2 + 4 * 4 + 2 * 2 + 3 * 8
    assert found == RunMetrics(
        jobs=2,
        jobs_verified=1,
        mean_turnaround_s=9.0,
        mean_wait_s=1.0,
        utilization=pytest.approx(held / (8 * 12)),
        makespan_s=12.0,
        expansions=1,
        contractions=1,
        resize_pause_ms={
            "join": pytest.approx(20.0),
            "move": pytest.approx(300.0),
            "resume": pytest.approx(2.0),
        },
    )


def test_a_run_without_resizes_has_no_pause() -> None:
    found = measure([ended(1, 0, 1, 3)], processors=2)
    assert found.resize_pause_ms == {"join": None, "move": None, "resume": None}
    assert found.utilization == pytest.approx(2 / 3)


def test_a_job_that_never_started_waits_until_its_end() -> None:
    found = measure([ended(1, 0, None, 6, state="CANCELLED")], processors=2)
    assert (found.mean_wait_s, found.utilization, found.jobs_verified) == (6.0, 0.0, 0)


def test_a_run_with_unfinished_jobs_is_refused() -> None:
    with pytest.raises(ValueError, match="job 1 has not ended"):
        measure([ended(1, 0, 1, 3, ended_at=None)], processors=2)
    with pytest.raises(ValueError, match="without jobs"):
        measure([], processors=2)


def test_only_completed_jobs_with_a_verified_result_count_as_verified() -> None:
    assert is_verified(ended(1, 0, 1, 3))
    assert not is_verified(ended(1, 0, 1, 3, facts={}))
    assert not is_verified(ended(1, 0, 1, 3, facts={"verified": False}))
    assert not is_verified(ended(1, 0, 1, 3, state="FAILED"))


def test_a_failed_job_is_named_with_the_end_of_its_output(tmp_path) -> None:
    output = tmp_path / "job-2.out"
    output.write_text("".join(f"line {i}\n" for i in range(40)))
    bad = ended(2, 0, 1, 3, state="FAILED", exit_code=3, output=str(output))
    (text,) = failures("static", [ended(1, 0, 1, 3), bad])
    assert "static run: job 2 (python x.py) ended as FAILED (exit code 3:0)" in text
    assert text.endswith("line 39")
    assert "line 20" not in text
    (text,) = failures("static", [ended(1, 0, 1, 3, facts={})])
    assert "job 1 (python x.py) is not verified" in text
    assert "cannot read the output /nowhere/job.out of job 1 (COMPLETED): No such file" in text


@pytest.mark.parametrize("processors", [4, 5, 8, 12, 16, 33])
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_workload_is_mixed_fits_and_is_reproducible(processors: int, seed: int) -> None:
    jobs = workload(processors, seed)
    assert jobs == workload(processors, seed)
    assert jobs != workload(processors, seed + 1)
    assert len(jobs) == JOBS >= 12
    assert {job.kind for job in jobs} == {"synthetic", "rigid", "LU", "Jacobi"}
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert jobs[0].at_s == 0
    for job in jobs:
        least, most = job.min_processors or job.processors, job.max_processors or job.processors
        assert 1 <= least <= job.processors <= most <= processors
        if job.topology is not None:
            sizes = job.topology.valid_sizes(job.processors, most, least)
            assert len(sizes) > 1, f"{job} could never be resized"


def test_three_sentences_tell_what_a_comparison_shows() -> None:
    pauses = {"join": None, "move": None, "resume": None}
    static = RunMetrics(2, 2, 20.0, 10.0, 0.5, 60.0, 0, 0, pauses)
    resizable = RunMetrics(2, 1, 15.0, 1.0, 0.75, 50.0, 4, 3, pauses)
    predicted = {
        name: {"mean_turnaround_s": turnaround_s, "mean_wait_s": 1.0, "makespan_s": 50.0}
        for name, turnaround_s in (("static", 10.0), ("resizable", 8.0))
    }
    waits, turnaround, results = takeaways(
        Results(0, 8, "malleable", static, resizable, predicted, "run.html")
    )
    assert "10.0 s for the processors that it requests, and 1.0 s under malleable" in waits
    assert "15.0 s instead of 20.0 s (-25 %; the simulator predicted -20 %)" in turnaround
    assert "75 % of the machine instead of 50 %" in turnaround
    assert "The 7 resizes" in results
    assert "3 of 4 runs of programs" in results
