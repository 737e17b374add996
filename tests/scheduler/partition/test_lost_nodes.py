"""Jobs on a node that is lost while they are resized."""

from __future__ import annotations

import pytest

from scheduler.core.core import Core
from scheduler.model.events import (
    JobSpec,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ResizeFailed,
    ResizePoint,
)
from scheduler.model.job import JobState
from scheduler.model.orders import Expand, Kill, Start
from scheduler.policies.scenarios import scenario


@pytest.fixture
def core() -> Core:
    """Job 1 is being expanded, job 2 cannot be resized."""
    core = Core(scenario("fcfs-pr"))
    core.handle([NodeJoined(0, "a", 8)])
    core.handle([JobSubmitted(0, 1, JobSpec(2, 600, max_processors=4))])
    core.handle([JobSubmitted(0, 2, JobSpec(1, 600))])
    core.handle([JobStarted(1, 1), JobStarted(1, 2)])
    orders = core.handle([ResizePoint(2, 1, 1, 1.0)])
    assert any(isinstance(order, Expand) for order in orders)
    return core


def killed(orders: list[object]) -> list[int]:
    return [order.job for order in orders if isinstance(order, Kill)]


def test_a_job_with_a_restart_point_restarts_on_the_node(core: Core) -> None:
    assert killed(core.handle([NodeLost(3, "a", None)])) == [2]
    assert killed(core.handle([NodeLost(4, "a", (1,))])) == []
    core.handle([NodeJoined(5, "a", 8)])
    serial = core.jobs[1].resize.serial  # type: ignore[union-attr]
    orders = core.handle([ResizeFailed(6, 1, serial, "its agent was lost", restart=True)])
    assert any(isinstance(order, Start) and order.restart for order in orders)
    assert core.jobs[1].size == 2


def test_a_job_without_a_restart_point_fails_when_that_is_known(core: Core) -> None:
    core.handle([NodeLost(3, "a", None)])
    assert core.jobs[1].state is JobState.EXPANDING
    assert killed(core.handle([NodeLost(4, "a")])) == [1]


def test_a_loss_without_restart_points_ends_all_jobs(core: Core) -> None:
    assert killed(core.handle([NodeLost(3, "a")])) == [1, 2]
