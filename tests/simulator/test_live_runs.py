"""Pictures of a live run, from the journal of a service."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import invoke
from desk import Desk

from scheduler.journal.journal_reader import reading
from scheduler.protocol import messages as m
from simulator.live_runs import pictured_run
from simulator.results.jobs_csv import job_names


def start(desk: Desk, job: int) -> None:
    desk.hello([m.GroupStatus(job=job, group=1, alive=True)])


def submit(desk: Desk, processors: int) -> int:
    request = m.Submission(argv=["true"], processors=processors, walltime_s=60.0)
    (answer,) = desk.ask(b"client", m.Submit(submission=request))
    assert isinstance(answer, m.Submitted)
    return answer.job


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Service directory after a job of 3 processors ended; one of 2 runs, one of 4 waits."""
    desk = Desk(tmp_path / "service")
    desk.hello([])
    first = submit(desk, 3)
    start(desk, first)
    desk.hello([m.GroupStatus(job=first, group=1, alive=False)])
    second = submit(desk, 2)
    submit(desk, 4)
    start(desk, second)
    desk.components.journal.close()
    return tmp_path / "service"


def test_a_live_run_is_the_jobs_that_started(directory: Path) -> None:
    with reading(directory) as journal:
        schedule, nodes = pictured_run(journal, "run")
    jobs = schedule.jobs
    assert (job_names(schedule), jobs.processors.tolist()) == (["1", "2"], [3, 2])
    assert {number: held.count() for number, held in (schedule.allocated or {}).items()} == (
        {1: 3, 2: 2}
    )
    assert jobs.submitted[0] == 0
    assert (jobs.submitted <= schedule.started).all()
    assert (schedule.started <= schedule.ended).all()
    assert not schedule.killed.any()
    assert (schedule.processors, schedule.least_processors) == (4, 3)
    assert {name: str(held) for name, held in nodes.items()} == {"local": "0-3"}


@pytest.mark.parametrize("place", ["service", "service/journal.db"])
def test_plot_draws_the_directory_and_the_journal_of_a_service(
    directory: Path, place: str, tmp_path: Path
) -> None:
    done = invoke("plot", place, "--format", "svg", cwd=tmp_path)
    assert done.stdout.split() == ["gantt.svg", "load.svg", "queue.svg"]
    assert f"live run of {place}, 4 processors" in (tmp_path / "gantt.svg").read_text()
    assert not list(directory.glob("*.svg"))


def test_a_service_without_a_started_job_has_no_picture(tmp_path: Path) -> None:
    Desk(tmp_path).components.journal.close()
    done = invoke("plot", tmp_path, code=1)
    assert "no job has started, so there is nothing to draw" in done.stderr
