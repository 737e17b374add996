"""Calls of a batch system in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from scheduler.node.batch_system import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystemError,
)
from scheduler.service.pools.batch_jobs import BatchCalls, CallResult, LookedUp, SubmissionOutcome

REQUEST = BatchRequest("#!/bin/sh\n", 1, 60.0, "pool-1", Path("/tmp"), Path("/tmp/out"))


class Failing:
    """A batch system that accepts nothing."""

    name = "failing"

    def __init__(self, error: Exception) -> None:
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


def results(calls: BatchCalls, count: int) -> Sequence[CallResult]:
    found: list[CallResult] = []
    until = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < until
        found += calls.results()
        time.sleep(0.001)
    return found


def test_an_unexpected_exception_is_the_result_of_its_call_and_later_calls_are_made() -> None:
    for error, why in ((BatchSystemError("no answer"), "no answer"), (KeyError(), "KeyError()")):
        calls = BatchCalls(partial(Failing, error))
        calls.submit(REQUEST)
        calls.cancel(["1"])
        calls.look_up(["1"])
        refused, looked_up = results(calls, 2)
        calls.close(10)
        assert refused == SubmissionOutcome("pool-1", "", why)
        assert isinstance(looked_up, LookedUp)
        assert looked_up.statuses == {"1": BatchStatus(BatchState.QUEUED)}


def test_a_batch_system_that_cannot_be_made_is_the_result_of_the_calls() -> None:
    def make() -> Failing:
        raise BatchSystemError("it is not installed")

    calls = BatchCalls(make)
    calls.submit(REQUEST)
    calls.look_up(["1"])
    refused, looked_up = results(calls, 2)
    calls.close(10)
    assert refused == SubmissionOutcome("pool-1", "", "it is not installed")
    assert isinstance(looked_up, LookedUp)
    assert looked_up.why == "it is not installed"
