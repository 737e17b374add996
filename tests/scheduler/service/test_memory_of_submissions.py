"""What a service holds of queued jobs is small, however large the submissions are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from desk import OWNER, Desk

from scheduler.config.settings import NodeConfig
from scheduler.protocol import messages as m

#: Each of the jobs has 2 MiB of variables, 1 MiB of arguments and a script of 1 MiB.
JOBS, MIB = 24, 1 << 20
NODES = (NodeConfig("local", JOBS),)


def large(number: int) -> m.Submission:
    def words(count: int, what: str) -> list[str]:
        return [f"{what} {number} {i} ".ljust(1 << 16, "x") for i in range(count)]

    return m.Submission(
        argv=["job.sh", *words(16, "argument")],
        processors=1,
        walltime_s=60.0,
        hold=True,
        script=True,
        text="#!/bin/sh\n" + "".join(words(16, "line")),
        environment={f"V{i}": value for i, value in enumerate(words(32, "value"))},
    )


@contextmanager
def grows_by(most: int, at_once: int) -> Iterator[None]:
    """Check by how many bytes the memory of Python has grown at the end, and meanwhile."""
    tracemalloc.start()
    try:
        yield
        grown, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < most
    assert peak < at_once


def submit_all(desk: Desk) -> None:
    for number in range(JOBS):
        message = m.Submit(submission=large(number))
        assert desk.ask(b"x", message, OWNER) == [m.Submitted(job=number + 1)]
        desk.sent.clear()


def check_started(start: m.StartGroup) -> None:
    expected = large(start.job - 1)
    assert (start.argv, start.text) == (expected.argv, expected.text)
    assert start.environment.items() >= expected.environment.items()


def test_queued_jobs_and_their_starts_need_little_memory(tmp_path: Path) -> None:
    """They need 96 MiB in all: when they are submitted, recovered, shown and started."""
    desk = Desk(tmp_path, NODES)
    with grows_by(2 * MIB, at_once=32 * MIB):
        submit_all(desk)
    desk.components.journal.close()
    with grows_by(2 * MIB, at_once=8 * MIB):
        desk = Desk(tmp_path, NODES)
        (listing,) = desk.ask(b"x", m.ListJobs())
        desk.sent.clear()
    assert isinstance(listing, m.JobListing)
    assert [len("".join(job.argv)) < 5000 for job in listing.jobs] == [True] * JOBS

    for job in range(1, JOBS + 1):
        desk.ask(b"x", m.ChangeJobs.one(job, m.ReleaseJob()))
    groups: list[m.GroupStatus] = []
    with grows_by(2 * MIB, at_once=80 * MIB):
        while len(groups) < JOBS:
            orders = [order for order in desk.hello(groups) if isinstance(order, m.StartGroup)]
            assert 0 < len(orders) <= 8, "32 MiB go to the agent at a time"
            for order in orders:
                check_started(order)
                groups.append(m.GroupStatus(job=order.job, group=1, alive=True))
            desk.driver.changed_jobs.update(desk.components.core.live.keys())  # as a tick does
            del order, orders
            desk.sent.clear()
    ends = [m.GroupStatus(job=group.job, group=1, alive=False) for group in groups]
    for _ in range(3):
        desk.hello(ends)
        ends = []
    assert desk.components.core.jobs == {}
    assert desk.components.journal.parts() == set()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"array": ",".join(map(str, range(0, 4000, 2)))}, "array"),
        ({"dependency": "afterok:1" + " " * 20_000}, "dependency"),
    ],
)
def test_what_cannot_be_kept_apart_is_bounded(
    tmp_path: Path, fields: dict[str, str], why: str
) -> None:
    desk = Desk(tmp_path, NODES)
    submission = m.Submission(["x"], 1, 60.0, **fields)  # type: ignore[arg-type]
    (answer,) = desk.ask(b"x", m.Submit(submission=submission), OWNER)
    assert isinstance(answer, m.Failure)
    assert why in answer.message
    assert "characters" in answer.message
