"""Depth of passes while nodes are away: jobs that need these nodes do not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.core.core import Core
from scheduler.model.events import (
    DrainChanged,
    Event,
    JobSpec,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ReservationRequested,
)
from scheduler.model.orders import Start
from scheduler.model.requests import NodeRequest
from scheduler.policies.api import CurrentPass
from scheduler.policies.scenarios import scenario

DEPTH = 3
HERE = JobSpec(1, 60.0)
TWO_NODES = JobSpec(5, 60.0)


class InOrder(msgspec.Struct, frozen=True):
    """User-defined pass: jobs start in queue order, and each other one has a reservation."""

    def schedule(self, current: CurrentPass) -> None:
        """Start what fits."""
        for job in current.queue:
            current.start(job) or current.reserve(job)


def drain(at: float) -> Event:
    return DrainChanged(at, "b", drains=True)


def lose(at: float) -> Event:
    return NodeLost(at, "b")


def expire(at: float) -> Event:
    """The node does not stay until a job would end."""
    return NodeJoined(at, "b", 4, {"gpu": 2}, features=("fast",), until=at + 30.0)


def started(orders: list[Any]) -> list[int]:
    return [order.job for order in orders if isinstance(order, Start)]


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
@pytest.mark.parametrize("leave", [drain, lose, expire])
@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({}, TWO_NODES),
        ({"backfill.reservations": 2}, TWO_NODES),
        ({"backfill.reservations": None}, TWO_NODES),
        ({"backfill.reservations": None, "backfill.pick": "bb"}, TWO_NODES),
        ({"selection": "contiguous"}, TWO_NODES),
        ({"scheduling": f"{__name__}:InOrder"}, TWO_NODES),
        ({"backfill.reservations": None}, JobSpec(2, 60.0, nodes=NodeRequest((("fast",),)))),
        ({}, JobSpec(8, 60.0, nodes=NodeRequest(whole=4))),
        ({}, JobSpec(8, 60.0, nodes=NodeRequest(per_process=4))),
        ({"scheduling": f"{__name__}:InOrder"}, JobSpec(8, 60.0, nodes=NodeRequest(whole=4))),
    ],
)
def test_jobs_that_need_a_node_that_is_away_do_not_keep_others_waiting(
    rules: dict[str, Any], wanted: JobSpec, leave: Callable[[float], Event], order: str
) -> None:
    chosen = scenario("easy", {**rules, "backfill.max_jobs": DEPTH, "order": order})
    core = Core(chosen)
    core.handle([NodeJoined(0.0, "a", 4), NodeJoined(0.0, "b", 4, {"gpu": 2}, features=("fast",))])
    core.handle([leave(1.0)])
    for number in range(1, DEPTH + 3):
        spec = msgspec.structs.replace(wanted, walltime_s=50.0 - number)  # sjf: the last is first
        assert started(core.handle([JobSubmitted(2.0, number, spec)])) == []
    assert started(core.handle([JobSubmitted(3.0, 99, HERE)])) == [99]
    reasons = {str(core.reason_pending(number)) for number in range(1, DEPTH + 3)}
    assert len(reasons) == 1
    assert "b drains" in (why := reasons.pop()) or "b is down" in why or "b expires" in why

    [partition] = core.partitions
    again = Core.restored(
        core.record(), list(core.jobs.values()), chosen, partition.machine.emptied()
    )
    assert started(again.handle([JobSubmitted(4.0, 100, HERE)])) == [100]

    back = [
        NodeJoined(5.0, "b", 4, {"gpu": 2}, features=("fast",)),
        DrainChanged(5.0, "b", drains=False),
    ]
    core.handle(back)
    assert all(core.reason_pending(job.id).rule != "ReqNodeNotAvail" for job in partition.queue)


def test_jobs_that_need_resources_of_a_lost_node_do_not_keep_others_waiting() -> None:
    core = Core(scenario("conservative", {"backfill.max_jobs": DEPTH}))
    core.handle([NodeJoined(0.0, "a", 4), NodeJoined(0.0, "b", 4, {"gpu": 2})])
    core.handle([NodeLost(1.0, "b")])
    for number in range(1, DEPTH + 3):
        core.handle([JobSubmitted(2.0, number, JobSpec(1, 60.0, resources={"gpu": 1}))])
    assert started(core.handle([JobSubmitted(3.0, 99, HERE)])) == [99]


def test_jobs_of_a_reservation_on_a_lost_node_do_not_keep_others_waiting() -> None:
    core = Core(scenario("conservative", {"backfill.max_jobs": DEPTH}))
    core.handle([NodeJoined(0.0, "a", 4), NodeJoined(0.0, "b", 4)])
    core.handle([ReservationRequested(0.0, "course", 1.0, 1000.0, nodes=("b",))])
    core.handle([NodeLost(1.0, "b")])
    for number in range(1, DEPTH + 3):
        core.handle([JobSubmitted(2.0, number, JobSpec(2, 60.0, reservation="course"))])
    assert started(core.handle([JobSubmitted(3.0, 99, HERE)])) == [99]
