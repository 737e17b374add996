"""Metrics and report of the demo for small hand-made jobs."""

from __future__ import annotations

import pytest
from job_infos import ended

from scheduler.client.demo.command import (
    Results,
    failures,
    is_verified,
    summary_table,
    takeaways,
)
from scheduler.client.demo.workload import JOBS, workload
from scheduler.text.tables import render


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
    kinds = {(job.argv[2], job.topology is None) for job in jobs}
    resizable = {(f"apps.{name}", False) for name in ("synthetic", "lu", "jacobi")}
    assert kinds == {("apps.synthetic", True), *resizable}
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert jobs[0].at_s == 0
    for job in jobs:
        least, most = job.min_processors or job.processors, job.max_processors or job.processors
        assert 1 <= least <= job.processors <= most <= processors
        if job.topology is not None:
            sizes = job.topology.valid_sizes(job.processors, most, least)
            assert len(sizes) > 1, f"{job} could never be resized"


def test_the_table_compares_runs_and_predictions() -> None:
    names = ("jobs", "jobs_verified", "mean_turnaround_s", "mean_wait_s", "makespan_s")
    static = dict(zip(names, (2, 2, 20.0, 0.0, 60.0), strict=True))
    static |= {"utilization": 0.5, "expansions": 0, "contractions": 0}
    resizable = dict(zip(names, (2, 1, 15.0, 1.0, 45.0), strict=True))
    resizable |= {"utilization": 0.75, "expansions": 4, "contractions": 3}
    predicted = {"static": static | {"makespan_s": 50.0}, "resizable": resizable}
    lines = render(
        summary_table(Results(0, 8, "malleable", static, resizable, predicted, "run.html"))
    ).split("\n")
    assert [" ".join(line.split()) for line in lines] == [
        "STATIC RESIZABLE CHANGE",
        "mean turnaround 20.0 s 15.0 s -25.0 %",
        "predicted by the simulator 20.0 s 15.0 s -25.0 %",
        "mean wait 0.0 s 1.0 s -",
        "predicted by the simulator 0.0 s 1.0 s -",
        "makespan 60.0 s 45.0 s -25.0 %",
        "predicted by the simulator 50.0 s 45.0 s -10.0 %",
        "utilisation 50.0 % 75.0 % +25.0 points",
        "verified 2 of 2 1 of 2",
        "expansions 0 4",
        "contractions 0 3",
    ]


def test_three_sentences_tell_what_a_comparison_shows() -> None:
    names = ("jobs", "jobs_verified", "mean_turnaround_s", "mean_wait_s", "utilization")
    static = dict(zip(names, (2, 2, 20.0, 10.0, 0.5), strict=True))
    resizable = dict(zip(names, (2, 1, 15.0, 1.0, 0.75), strict=True))
    resizable |= {"expansions": 4, "contractions": 3}
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
