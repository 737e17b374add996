"""A job that has ended in time is no TIMEOUT because its end became known after its walltime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from desk import OWNER, Desk
from waiting import wait_until

from reshape.wire.codec import encode
from scheduler.config.settings import Deadlines, NodeConfig
from scheduler.protocol import messages as m
from scheduler.service import driver

WALLTIME_S = 0.05
NODES = [NodeConfig(name, 1, launcher="none") for name in "ab"]
ALIVE = m.GroupStatus(job=1, group=1, alive=True, pid=9, began=True)
ENDED = m.GroupStatus(job=1, group=1, alive=False, began=True)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service with a job that runs on node a, and whose walltime is over."""
    desk = Desk(tmp_path / "service", NODES)
    for name in "ab":
        desk.hello(node=name)
    tick(desk)
    desk.ask(b"x", m.Submit(submission=m.Submission(["true"], 1, WALLTIME_S)))
    desk.hello([ALIVE], node="a")
    over = time.monotonic() + 2 * WALLTIME_S
    wait_until(lambda: time.monotonic() > over)
    yield desk
    desk.components.journal.close()


def tick(desk: Desk) -> None:
    desk.driver.tick(start_agents=False, heard_all=True)
    desk.turn()


def restarted(desk: Desk, node_lost_s: float = 60.0) -> Desk:
    """Start another service in the directory; it looks at once for what is overdue."""
    desk.components.journal.close()
    deadlines = Deadlines(node_lost_s=node_lost_s)
    desk = Desk(desk.components.directory.path, NODES, deadlines=deadlines)
    desk.driver.restore_alarms()
    return desk


def state(desk: Desk) -> str:
    (listing,) = desk.ask(b"x", m.ListJobs(job=1, ended=True))
    assert isinstance(listing, m.JobListing)
    return listing.jobs[0].state


def test_the_job_ended_while_there_was_no_service(desk: Desk) -> None:
    desk = restarted(desk)
    for _ in range(3):
        tick(desk)
    assert state(desk) == "RUNNING"
    desk.hello([ENDED], node="a")
    tick(desk)
    assert state(desk) == "COMPLETED"
    desk.components.journal.close()


def test_the_job_still_runs(desk: Desk) -> None:
    desk = restarted(desk)
    desk.hello([ALIVE], node="a")
    for _ in range(2):
        tick(desk)
    assert state(desk) == "COMPLETING"
    desk.hello([ENDED], node="a")
    assert state(desk) == "TIMEOUT"
    desk.components.journal.close()


def test_its_node_is_lost(desk: Desk) -> None:
    desk = restarted(desk, node_lost_s=0.5)
    wait_until(lambda: tick(desk) or state(desk) == "NODE_FAIL")
    desk.components.journal.close()


def test_its_node_is_never_lost(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = restarted(desk, node_lost_s=inf)
    tick(desk)
    monkeypatch.setattr(driver, "MOST_AWAITED_S", 0.0)
    for _ in range(2):
        tick(desk)
    assert state(desk) == "COMPLETING"
    desk.components.journal.close()


def test_each_turn_of_the_service_takes_long(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "STALL_S", -1.0)
    tick(desk)
    assert state(desk) == "RUNNING"
    tick(desk)
    assert state(desk) == "COMPLETING"


def test_a_report_comes_with_the_tick_that_finds_the_job_overdue(desk: Desk) -> None:
    """As when the service was stopped, or its disk was full."""
    secret = desk.components.directory.read_secret()
    report = m.AgentHello(node="a", pid=7, secret=secret, groups=[ENDED], restart_points=[])
    desk.handler.handle(b"agent a", encode(report), OWNER)
    tick(desk)
    assert state(desk) == "COMPLETED"
