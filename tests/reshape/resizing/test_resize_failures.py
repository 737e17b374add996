"""Processes that die at each moment of a resize: the job goes on, or restarts and is right."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from driver import Driver, Group
from paths import SUPPORT

from reshape.resizing.restart_point import RESTART_FILE
from reshape.wire import messages as m

PROGRAM = SUPPORT / "resizable.py"
SETTLE_S = 0.3  # what hangs after a death is given this long to end the resize all the same


def job(folder: Path) -> Driver:
    """A job that goes slowly as long as the test has something to do with it."""
    driver = Driver(folder, [str(PROGRAM), "300", "0"])
    driver.pace_s = 0.02
    return driver


def dead(driver: Driver, group: Group) -> None:
    driver.serve(lambda: group.process.poll() is not None)
    assert group.process.returncode != 0


def restart(driver: Driver, size: int) -> Group:
    """What the agent does when a resize is overdue: kill all that is left, start anew."""
    assert RESTART_FILE in driver.segments
    for group in driver.groups.values():
        driver.kill(group)
    group = driver.start(size, "restart")
    driver.serve(lambda: RESTART_FILE not in driver.segments)
    return group


def right(driver: Driver, group: Group) -> str:
    """Serve until this group has ended; give the line in which it says that its data is right."""
    driver.pace_s = 0.0
    driver.serve(lambda: group.process.poll() is not None)
    assert group.process.returncode == 0
    line = next(line for line in group.text.splitlines() if line.startswith("sizes"))
    assert line.endswith(" right")
    return line


def test_newcomer_dies_before_it_is_ready(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        dead(driver, driver.start(2, "join", KILL="1:1:before:await_port"))
        assert right(driver, first) == "sizes 2 right"


@pytest.mark.parametrize("size", [1, 3])
def test_newcomer_dies_before_it_connects(tmp_path: Path, size: int) -> None:
    """The job waits in Accept; the stand-in releases it, again and again."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        for attempt in (1, 2):
            group = driver.ready(size, KILL=f"{attempt}:0:before:connect")
            serial = driver.order_join(group)
            driver.tell(group, m.Connect(port=driver.ports[-1].port))
            dead(driver, group)
            time.sleep(SETTLE_S)
            assert RESTART_FILE in driver.segments
            driver.cancel(driver.ports[-1].port)
            report = driver.await_report(serial)
            assert not report.ok
            assert report.why == "the group that was to join is gone"
            assert RESTART_FILE not in driver.segments
        assert driver.grow(1).ok
        assert right(driver, first) == "sizes 2 3 right"


def test_service_dies_when_the_port_is_open(tmp_path: Path) -> None:
    """Nobody will send the newcomer: the job must not wait for it in Accept."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        group = driver.ready(1)
        driver.loses_ports = True
        report = driver.await_report(driver.order_join(group))
        assert "no group can join: no answer from the scheduler service" in report.why
        driver.loses_ports = False
        assert driver.join(group).ok
        assert right(driver, first) == "sizes 2 3 right"


@pytest.mark.parametrize(
    "victim",
    [
        "1:0:before:merge",
        "1:0:after:merge",
        "1:1:before:introduce",
        "1:0:before:allocate",
        "1:0:before:run",
        "1:1:after:run",
        "0:1:before:run",
        "0:0:after:relay",
        "1:0:before:commit",
        "0:0:before:commit",
    ],
)
def test_death_in_a_join_costs_no_more_than_a_restart(tmp_path: Path, victim: str) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first", KILL=victim)
        group = driver.ready(2, KILL=victim)
        driver.order_join(group)
        assert driver.at is not None
        iteration = driver.at.iteration
        driver.tell(group, m.Connect(port=driver.ports[-1].port))
        dead(driver, driver.groups[int(victim[0])])
        time.sleep(SETTLE_S)
        again = restart(driver, 2)
        driver.serve(lambda: driver.at is not None and driver.at.iteration > iteration)
        assert driver.at.iteration == iteration + 1  # nothing computed is lost
        driver.serve(lambda: not [name for name in driver.segments if ".e0." not in name])
        assert driver.grow(1).ok
        assert right(driver, again) == "sizes 2 3 right"
        assert driver.segments == []


@pytest.mark.parametrize("victim", ["0:0:before:run", "1:0:after:run", "1:1:before:commit"])
def test_death_in_a_leave_costs_no_more_than_a_restart(tmp_path: Path, victim: str) -> None:
    """Three processes in two groups; the restarted job is one group of three."""
    with job(tmp_path) as driver:
        kill = str(tmp_path / "kill")
        driver.start(1, "first", KILL_FILE=kill)
        report = driver.grow(2, KILL_FILE=kill)
        assert report.ok
        # Only now, for the first resize goes through the same functions.
        (tmp_path / "kill").write_text(victim)
        driver.decide = lambda _: m.Leave(serial=2, groups=[0])
        dead(driver, driver.groups[int(victim[0])])
        driver.decide = lambda _: m.Proceed()
        time.sleep(SETTLE_S)
        (tmp_path / "kill").unlink()
        again = restart(driver, 3)
        driver.serve(lambda: driver.at is not None and driver.at.size == 3)
        assert driver.at is not None
        assert driver.at.epoch == report.serial
        assert right(driver, again) == "sizes 1 3 right"
        assert driver.segments == []


def test_death_in_a_restart_is_followed_by_another(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:before:run")
        driver.order_join(group)
        driver.tell(group, m.Connect(port=driver.ports[-1].port))
        dead(driver, group)
        driver.kill(driver.groups[0])
        dead(driver, driver.start(2, "restart", KILL="2:1:before:restarted"))
        assert right(driver, restart(driver, 2)) == "sizes 2 right"


def test_death_after_the_commit_leaves_no_restart_point(tmp_path: Path) -> None:
    """What died then has died within an iteration; there is nothing consistent to restart from."""
    with job(tmp_path) as driver:
        driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:after:commit")
        driver.order_join(group)
        driver.tell(group, m.Connect(port=driver.ports[-1].port))
        dead(driver, group)
        time.sleep(SETTLE_S)
        assert RESTART_FILE not in driver.segments
        driver.kill(driver.groups[0])
        again = driver.start(2, "restart")
        dead(driver, again)
        assert "cannot restart: there is no" in again.text
        assert again.text.count("cannot restart") == 1


def test_restart_on_another_size_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first", KILL="0:1:before:relay")
        group = driver.ready(1)
        driver.order_join(group)
        driver.tell(group, m.Connect(port=driver.ports[-1].port))
        dead(driver, driver.groups[0])
        driver.kill(group)
        wrong = driver.start(3, "restart")
        dead(driver, wrong)
        assert "cannot restart on 3 processes" in wrong.text
        changed = driver.start(2, "restart", SMALLER="1")
        dead(driver, changed)
        assert "cannot restart: the program has changed" in changed.text
        assert right(driver, restart(driver, 2)) == "sizes 2 right"
