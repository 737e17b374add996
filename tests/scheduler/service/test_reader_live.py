"""The reader of a running service: killed, it is replaced and nothing is lost."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
import pytest
from process_words import words_of
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler.protocol import messages as m


def readers_of(service: Any) -> list[int]:
    """Return the process numbers of the service's readers: one at most."""
    children = psutil.Process(service.process.pid).children()
    module = "scheduler.service.reader_process"
    return [child.pid for child in children if module in words_of(child)]


def reader_of(service: Any) -> int:
    """Return the process number of the service's reader, waiting for it."""
    [reader] = wait_until(lambda: readers_of(service))
    return reader


def history(service: Any) -> list[int]:
    answer = service.ask(m.ListJobs(ended=True, live=False))
    assert isinstance(answer, m.JobListing)
    return [job.job for job in answer.jobs]


def later_history(service: Any) -> list[int]:
    """History as the next reader answers it; on a loaded machine it may not start in time."""

    def answered() -> list[int]:
        try:
            return history(service)
        except ReshapeError:
            return []

    return wait_until(answered)


def test_a_reader_that_is_killed_is_replaced_and_one_that_stands_still_is_reported(
    service: Any,
) -> None:
    number = service.submit(["true"], 1)
    service.ask(m.Wait(job=number))
    assert not readers_of(service), "it is started with the first question"
    assert history(service) == [number]
    first = reader_of(service)
    os.kill(first, signal.SIGKILL)
    assert later_history(service) == [number]
    second = reader_of(service)
    assert second != first
    os.kill(second, signal.SIGSTOP)
    with pytest.raises(ReshapeError, match="the reader of the service did not answer within 8 s"):
        history(service)
    assert isinstance(service.ask(m.ServerInfo()), m.Info)
    assert later_history(service) == [number]  # by a third reader
    assert reader_of(service) != second
    explanation = service.ask(m.Explain(job=number))
    assert explanation.lines[0].text.startswith("submitted for 1")
