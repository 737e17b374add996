"""Sites, workload and metrics of the demo of several sites, without services."""

from __future__ import annotations

import pytest
import sites_demo
from job_infos import T, ended
from sites_results import SiteRun, measure_sites
from sites_workload import (
    KINDS,
    MOST_SITES,
    DemoSite,
    demo_sites,
    sites_workload,
)

SITES = [DemoSite("A", 4, 1.5, 1.0), DemoSite("B", 2, 1.0, 2.0), DemoSite("C", 1, 0.75, 4.0)]
#: Two jobs on A, one on B and none on C; `ended` gives each two processors.
RUN = SiteRun(
    "wait",
    ["A", "B", "A"],
    [
        ended(1, 0, 0, 4),
        ended(2, 1, 2, 6),
        ended(3, 2, 4, 6, allocation=[(T + 4, "2-3"), (T + 6, "")], facts={}),
    ],
)


def test_metrics_of_three_jobs_on_two_of_three_sites() -> None:
    its = measure_sites(RUN, SITES)
    assert (its.jobs, its.jobs_verified) == (3, 2)
    assert its.jobs_by_site == {"A": 2, "B": 1, "C": 0}
    assert its.sites_of_jobs == ["A", "B", "A"]
    assert its.mean_wait_s == pytest.approx((0 + 1 + 2) / 3)
    assert its.mean_slowdown == pytest.approx((4 / 4 + 5 / 4 + 4 / 2) / 3)
    assert its.makespan_s == 6.0
    assert its.cost == pytest.approx(1.0 * 2 * (4 + 2) + 2.0 * 2 * 4)


def test_jobs_that_never_started_have_no_slowdown() -> None:
    run = SiteRun("work", ["A"], [ended(1, 0, None, 6, state="CANCELLED")])
    its = measure_sites(run, SITES)
    assert (its.mean_slowdown, its.cost, its.jobs_verified) == (None, 0.0, 0)


@pytest.mark.parametrize("count", range(2, MOST_SITES + 1))
@pytest.mark.parametrize("processors", [4, 8, 33])
def test_sites_differ_and_the_largest_has_the_given_size(count: int, processors: int) -> None:
    sites = demo_sites(count, processors)
    assert len({site.name for site in sites}) == count
    assert max(site.processors for site in sites) == processors
    assert min(site.processors for site in sites) >= 1
    assert len({(site.cpu_factor, site.cost_per_unit) for site in sites}) == count


@pytest.mark.parametrize("processors", [4, 8, 33])
@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_workload_of_sites_fits_and_is_reproducible(processors: int, seed: int) -> None:
    jobs = sites_workload(processors, seed, 12)
    assert jobs == sites_workload(processors, seed, 12)
    assert jobs != sites_workload(processors, seed + 1, 12)
    assert jobs[0].at_s == 0
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert all(1 <= job.processors <= processors // 2 for job in jobs)
    assert {job.kind for job in jobs} == set(KINDS)
    for job in jobs:
        seconds = [float(job.argv(factor)[-1]) for factor in (1.0, 1.5)]
        assert seconds == pytest.approx([job.seconds, 1.5 * job.seconds], rel=1e-3)
        assert job.walltime_s > 10 * job.iterations * job.seconds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sites", "1"], "invalid choice: 1 (choose from 2, 3, 4, 5, 6)"),
        (["--sites", "7"], "invalid choice: 7 (choose from 2, 3, 4, 5, 6)"),
        (["--sites", "3", "--metric", "speed"], "invalid choice: 'speed' (choose from 'wait'"),
    ],
)
def test_invalid_options_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        sites_demo.main(words)
    assert message in capsys.readouterr().err
