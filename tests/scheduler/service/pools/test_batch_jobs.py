"""Calls of Slurm in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reshape.errors import ReshapeError
from scheduler.node.slurm import (
    BatchRequest,
    BatchState,
    BatchStatus,
    Slurm,
)
from scheduler.service.pools.batch_jobs import BatchCalls, BatchJobs

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


def answers(calls: BatchCalls, *asks: Callable[[Slurm], Any]) -> list[tuple[Any, str]]:
    """Make calls, and wait for the answers and the reasons of those that failed."""
    told: list[tuple[Any, str]] = []
    for ask in asks:
        calls.call(ask, lambda answer, why: told.append((answer, why)))
    until = time.monotonic() + 20
    while len(told) < len(asks):
        assert time.monotonic() < until
        calls.deliver()
        time.sleep(0.001)
    calls.close(10)
    return told


def submit(batch: Slurm) -> str:
    return batch.submit(REQUEST)


def look_up(batch: Slurm) -> Mapping[str, BatchStatus]:
    return batch.statuses(["1"])


def test_an_unexpected_exception_is_the_result_of_its_call_and_later_calls_are_made() -> None:
    for error, why in ((ReshapeError("no answer"), "no answer"), (KeyError(), "KeyError()")):
        refused, looked_up = answers(BatchCalls(Failing(error)), submit, look_up)
        assert refused == (None, why)
        assert looked_up == ({"1": BatchStatus(BatchState.QUEUED)}, "")


def test_a_cancellation_that_fails_is_logged_and_does_not_keep_the_service_from_ending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = BatchJobs(Failing(ReshapeError("no answer")), lambda *_: None, lambda *_: None)
    jobs.cancel("7")
    jobs.cancel("7")  # that is due already
    jobs.close(10)
    assert caplog.messages == ["cannot cancel batch job 7: no answer"]
