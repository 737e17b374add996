"""Statistics of a service from its jobs."""

from __future__ import annotations

import pytest
from job_infos import T, ended

from scheduler.client.commands.stats import ClassWaits, stats_of, stats_text
from scheduler.protocol.messages import ResizeInfo

#: A job on 2 processors, from 20 s on 4, and from 40 s on 1, which are resizes with a pause of 2 s.
GREW = ended(
    1, 0.0, 10.0, 50.0,
    sizes=[(T + 10.0, 2), (T + 20.0, 4), (T + 40.0, 1), (T + 50.0, 0)],
    allocation=[(T + 10.0, "0-1"), (T + 20.0, "0-3"), (T + 40.0, "0"), (T + 50.0, "")],
    resizes=[
        ResizeInfo(T + 20.0, 1, 2, 4, "done", "", close_s=0.5, join_s=0.5, move_s=1.0),
        ResizeInfo(T + 30.0, 2, 4, 8, "failed", ""),
        ResizeInfo(T + 40.0, 3, 4, 1, "done", ""),
    ],
)  # fmt: skip
FAILED = ended(2, 0.0, 30.0, 60.0, state="FAILED", requested=8, allocation=[(T + 30.0, "4-11")])
NEVER = ended(3, 0.0, None, 90.0, state="CANCELLED")


def test_the_statistics_of_three_jobs() -> None:
    found = stats_of([GREW, FAILED, NEVER], T, T + 100.0, 16)
    assert found.utilization == pytest.approx((20 + 80 + 10 + 8 * 70) / 1600)
    assert found.states == {"CANCELLED": 1, "COMPLETED": 1, "FAILED": 1}
    assert found.waits == [
        ClassWaits("2-4", 1, 10.0, 10.0, 10.0),
        ClassWaits("5-16", 1, 30.0, 30.0, 30.0),
    ]
    assert found.resizes == {"contract done": 1, "expand done": 1, "expand failed": 1}
    assert (found.gained, found.lost, found.pause_s) == (2 * 20.0, 10.0 + 2 * 2.0, 2.0)
    text = stats_text(found)
    assert "41.9 % of 16 processors" in text
    assert "1 expand failed" in text


def test_what_was_before_and_after_does_not_count() -> None:
    found = stats_of([GREW, FAILED, NEVER], T + 45.0, T + 55.0, 16)
    assert found.utilization == pytest.approx((5 + 80) / 160)
    assert (found.waits, found.resizes, found.gained, found.lost) == ([], {}, 0.0, 5.0)
    assert found.states == {"COMPLETED": 1}
    assert stats_of([], T, T + 1.0, 0).utilization == 0.0
