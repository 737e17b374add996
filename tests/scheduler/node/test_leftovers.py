"""Processes that only the control group of their job holds together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_driver import AgentDriver, is_running
from waiting import wait_until

from reshape.files import cgroup
from scheduler.node.leftovers import JobCgroups
from scheduler.protocol import messages as m

if fault := cgroup.probe():
    pytest.skip(f"no control group can be made: {fault}", allow_module_level=True)

#: A process with a session of its own, no environment, and no parent in its job.
LEAVES = "setsid env -i sh -c 'echo $$ > {name}.new; mv {name}.new {name}; exec sleep 1000' {to}&"
SILENT = ">/dev/null 2>&1 "


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[AgentDriver]:
    with AgentDriver(tmp_path) as driver:
        yield driver


def left(driver: AgentDriver, name: str) -> int:
    """Wait for the number of a process that a program has left; return it."""
    file = driver.work / name
    wait_until(file.exists)
    return int(file.read_text())


def job_cgroups(driver: AgentDriver) -> list[str]:
    folder = Path((driver.place.memory / "cgroup-n1").read_text())
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_a_process_without_environment_ends_with_its_job(driver: AgentDriver) -> None:
    driver.start_agent()
    leaves = LEAVES.format(name="a", to=SILENT)
    driver.start(1, "sh", "-c", f"{leaves} until test -e a; do sleep 0.1; done")
    process = left(driver, "a")
    assert driver.ended(1).exit_code == 0
    assert not is_running(process)  # its processor was not free before
    assert job_cgroups(driver) == []


def test_a_process_that_keeps_the_output_open_does_not_keep_its_job(driver: AgentDriver) -> None:
    """An mpiexec waits for what it may still write."""
    driver.start_agent()
    leaves = LEAVES.format(name="a", to="")
    driver.start(1, "sh", "-c", f"{leaves} until test -e a; do sleep 0.1; done")
    process = left(driver, "a")
    assert driver.ended(1).exit_code == 0
    assert not is_running(process)


def test_the_end_of_a_group_ends_no_process_of_another_one(
    driver: AgentDriver,
) -> None:
    driver.start_agent()
    driver.start(1, "sh", "-c", f"{LEAVES.format(name='a', to=SILENT)} exec sleep 1000")
    process = left(driver, "a")
    second = driver.order(1, "true")
    second.group = 2
    driver.send(second)
    driver.until(lambda hello: any(g.group == 2 and not g.alive for g in hello.groups))
    assert is_running(process)
    assert job_cgroups(driver) == ["job-1"]
    driver.send(m.KillGroup(job=1, group=1, grace_s=0.0))
    driver.ended(1)
    assert not is_running(process)


def test_the_next_agent_ends_what_a_killed_one_has_left(driver: AgentDriver) -> None:
    driver.start_agent()
    driver.start(1, "sh", "-c", f"{LEAVES.format(name='a', to=SILENT)} exec sleep 1000")
    process = left(driver, "a")
    driver.kill_agent()
    assert is_running(process)
    driver.start_agent()  # it reports its processors only afterwards
    assert not is_running(process)


def test_a_control_group_that_a_job_has_divided_is_removed(tmp_path: Path) -> None:
    groups = JobCgroups(tmp_path / "record", f"reshape-test-{os.getpid()}")
    groups.begin()
    folder = Path(groups.folder_of(3, 1))
    (folder / "own" / "inner").mkdir(parents=True)
    assert not groups.end(3, 1)
    assert not folder.exists()
    assert not groups.end(3, 1)  # it has none any more
    groups.finish()
    assert not folder.parent.parent.exists()
    assert not (tmp_path / "record").exists()


def test_an_agent_that_ends_leaves_the_jobs_of_another_one_of_its_node(tmp_path: Path) -> None:
    """The lock that keeps agents from running at a time may have been removed."""
    first = JobCgroups(tmp_path / "record", f"reshape-test-{os.getpid()}-first")
    first.begin()
    second = JobCgroups(tmp_path / "record", f"reshape-test-{os.getpid()}-second")
    second.begin()
    folder = Path(second.folder_of(3, 1))
    first.finish()
    assert folder.exists()
    second.finish()
    assert not folder.exists()
    assert not (tmp_path / "record").exists()


def test_jobs_have_no_control_group_whose_name_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when shared memory is full: the agent serves its node all the same."""
    groups = JobCgroups(tmp_path / "missing" / "record", f"reshape-test-{os.getpid()}-unwritten")
    groups.begin()
    assert groups.folder_of(3, 1) == ""
    assert not groups.end(3, 1)
    groups.finish()
    assert "no control group for jobs: cannot write" in caplog.text
    own = cgroup.own_cgroup()
    assert own is not None
    assert not (own / f"reshape-test-{os.getpid()}-unwritten").exists()
