"""Calls of Slurm in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from waiting import LIMIT_S

from reshape.errors import ReshapeError
from scheduler.node.slurm import (
    BatchRequest,
    BatchState,
    BatchStatus,
    Slurm,
)
from scheduler.service.pools.batch_jobs import BatchJobs

REQUEST = BatchRequest("#!/bin/sh\n", 1, 60.0, "pool-1", Path("/tmp"), Path("/tmp/out"))


class Failing(Slurm):
    """A Slurm that accepts nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def submit(self, request: BatchRequest) -> str:
        raise self._error

    def check(self, request: BatchRequest) -> str:
        raise self._error

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        return {each: BatchStatus(BatchState.QUEUED) for each in ids}

    def find(self, names: Iterable[str]) -> dict[str, str]:
        raise self._error

    def cancel(self, ids: Iterable[str]) -> None:
        raise self._error


def test_an_unexpected_exception_is_the_result_of_its_call_and_later_calls_are_made() -> None:
    for error, why in ((ReshapeError("no answer"), "no answer"), (KeyError(), "KeyError()")):
        told, seen = list[tuple[str | None, str]](), list[Mapping[str, BatchStatus]]()

        def see(statuses: Mapping[str, BatchStatus], _at: float, seen: Any = seen) -> None:
            seen.append(statuses)

        jobs = BatchJobs(Failing(error), lambda *_: None, see)
        jobs.try_out(REQUEST, lambda answer, why, told=told: told.append((answer, why)))
        until = time.monotonic() + LIMIT_S
        while not seen:
            assert time.monotonic() < until
            jobs.on_tick(lambda: ["1"])
            time.sleep(0.001)
        jobs.close(10)
        assert told == [(None, why)]
        assert seen == [{"1": BatchStatus(BatchState.QUEUED)}]


def test_a_cancellation_that_fails_is_logged_and_does_not_keep_the_service_from_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = BatchJobs(Failing(ReshapeError("no answer")), lambda *_: None, lambda *_: None)
    jobs.cancel("7")
    jobs.cancel("7")  # that is due already
    jobs.close(10)
    assert caplog.messages == ["cannot cancel batch job 7: no answer"]


def test_nothing_is_looked_up_without_batch_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.service.pools.batch_jobs.LOOK_UP_S", 0.0)
    seen: list[Mapping[str, BatchStatus]] = []
    slurm = Failing(ReshapeError("no answer"))
    jobs = BatchJobs(slurm, lambda *_: None, lambda statuses, _: seen.append(statuses))
    for _ in range(3):
        jobs.on_tick(lambda: [])
    until = time.monotonic() + 20
    while not seen:
        assert time.monotonic() < until
        jobs.on_tick(lambda: ["1"])
    assert seen[0] == {"1": BatchStatus(BatchState.QUEUED)}
    jobs.close(10)
