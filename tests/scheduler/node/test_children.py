"""What an agent keeps of ended jobs, and the time limit of errands and what is left of them."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from scheduler.node.children import EndedJobs, Errands
from scheduler.node.directory import ServiceDirectory
from scheduler.node.launching.launcher import ProcessLauncher
from scheduler.protocol import messages as m


def order(job: int, group: int = 1, role: str = "first", token: str = "token") -> m.StartGroup:
    environment = {"RESHAPE_ROLE": role, "RESHAPE_TOKEN": token}
    return m.StartGroup(
        job=job,
        group=group,
        size=1,
        argv=["true"],
        bounds=m.JobBounds("/"),
        environment=environment,
    )


def group_of(job: int, number: int = 1, exit_code: int = 0, why: str = "") -> m.GroupStatus:
    return m.GroupStatus(job, number, alive=False, exit_code=exit_code, why=why)


@pytest.fixture
def two_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.node.children.MOST_ENDED", 2)


@pytest.mark.usefixtures("two_are_kept")
def test_the_latest_ends_are_kept() -> None:
    jobs = EndedJobs()
    for job in (1, 2, 3):
        jobs.started(order(job, token=str(job)))
        jobs.ended(job, [group_of(job, exit_code=job, why="why")])
    assert jobs.end_of(order(1, token="1")) is None
    found = jobs.end_of(order(3, token="3"))
    assert found is not None
    assert (found.alive, found.exit_code, found.why) == (False, 3, "why")
    assert jobs.end_of(order(3, token="another job")) is None


def test_a_job_ends_as_its_last_groups_do() -> None:
    """Its first group may have left before."""
    jobs = EndedJobs()
    jobs.started(order(1))
    jobs.started(order(1, 2, role="join"))
    jobs.started(order(1, 3, role="join"))
    jobs.ended(1, [group_of(1, 2), group_of(1, 3, exit_code=9)])
    found = jobs.end_of(order(1))
    assert found is not None
    assert (found.group, found.exit_code) == (1, 9)
    assert jobs.end_of(order(1, 3, role="join")) is None
    assert jobs.end_of(order(1, 2)) is None  # the job was queued again, after a death


def test_a_job_that_was_queued_again_has_an_end_for_each_start() -> None:
    jobs = EndedJobs()
    for number, exit_code in ((1, 9), (2, 0)):
        jobs.started(order(1, number))
        jobs.ended(1, [group_of(1, number, exit_code)])
    ends = [jobs.end_of(order(1, number)) for number in (1, 2)]
    assert [None if end is None else (end.group, end.exit_code) for end in ends] == [
        (1, 9),
        (2, 0),
    ]


def asked(jobs: EndedJobs, number: int, token: str, *present: m.GroupStatus) -> tuple[int, int]:
    """Number and exit code of the answer for a group of job 1; (0, 0) if it is not known."""
    end = jobs.end_of_group(m.ReportEnd(job=1, group=number, token=token), present)
    return (0, 0) if end is None else (end.group, end.exit_code)


@pytest.mark.usefixtures("two_are_kept")
def test_the_ends_of_groups_are_known_by_the_token() -> None:
    jobs = EndedJobs()
    for number in (1, 2, 3):
        jobs.started(order(1, number, role="join", token="one"))
    jobs.ended(1, [group_of(1, 2), group_of(1, 3, exit_code=9)])
    assert asked(jobs, 1, "one") == (1, 9)  # it had left before, and the job failed
    assert asked(jobs, 2, "one") == (2, 0)
    assert asked(jobs, 3, "one") == (3, 9)
    assert asked(jobs, 3, "another job") == (0, 0)
    for token in ("two", "three"):
        jobs.started(order(1, token=token))
        jobs.ended(1, [group_of(1)])
    assert asked(jobs, 2, "one") == (0, 0)  # the oldest end is dropped
    assert asked(jobs, 1, "two") == (1, 0)


def test_a_job_has_ended_before_the_service_acknowledges_it() -> None:
    jobs = EndedJobs()
    jobs.started(order(1, token="one"))
    running = m.GroupStatus(1, 1, alive=True)
    assert asked(jobs, 2, "one", running) == (0, 0)
    assert asked(jobs, 2, "one", group_of(1, exit_code=3)) == (2, 3)
    assert asked(jobs, 2, "another job", group_of(1)) == (0, 0)


def test_a_job_that_was_queued_again_has_its_last_end_by_the_token() -> None:
    jobs = EndedJobs()
    for number, exit_code in ((1, 9), (2, 0)):
        jobs.started(order(1, number))
        jobs.ended(1, [group_of(1, number, exit_code)])
    assert asked(jobs, 1, "token") == (1, 0)


def test_a_hook_is_ended_with_all_that_it_has_started(
    launcher: ProcessLauncher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.node.children.HOOK_S", 0.0)
    errands = Errands(launcher, ServiceDirectory(tmp_path), "test/node", set())
    environment = {"PATH": os.environ["PATH"]}
    command = "sleep 1000 & echo $! > pid; sleep 1000"
    bounds = m.JobBounds(str(tmp_path))
    order = m.RunHook(job=3, command=command, environment=environment, bounds=bounds)
    file = tmp_path / "pid"
    errands.start_hook(order)
    errands.start_hook(order)
    (tree,) = errands.trees()
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))

    def is_over() -> bool:
        errands.examine()
        if tree.status is None:
            pid, status, _ = os.wait4(tree.pid, os.WNOHANG)
            if pid:
                tree.reaped(status, 0)
        return not [*errands.trees()]

    with caplog.at_level(logging.WARNING):
        wait_until(is_over)
    sleeper = int(file.read_text())
    with contextlib.suppress(ChildProcessError):  # it was adopted, or reaped by then
        os.waitpid(sleeper, 0)
    assert not psutil.pid_exists(sleeper)
    assert "hook 3 is ended after 0 s" in caplog.text
    assert "hook 3 ended with 0:9" in caplog.text
