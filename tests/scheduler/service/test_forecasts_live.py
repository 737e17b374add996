"""Forecasts of a running service, at its sockets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from ports import free_port
from process_words import words_of
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler import Client
from scheduler.client.api.client import forecast
from scheduler.client.forecasting import forecast_of_waiting, with_expected_starts
from scheduler.forecasts.answers import Quote
from scheduler.protocol import messages as m

SLEEP = ["sleep", "600"]


def request(processors: int, walltime_s: float) -> m.Submission:
    return m.Submission(argv=["true"], processors=processors, walltime_s=walltime_s)


def quote_of(client: Client, submission: m.Submission, **how: Any) -> Quote:
    return forecast(client, m.RequestForecast(of=submission, **how), Quote)


def listed_starts(client: Client) -> dict[int, float | None]:
    """Return the starts of a listing, which waits a second for the expected ones."""
    jobs = with_expected_starts(client, client.queue())
    return {job.job: job.started_at for job in jobs}


def forecaster_of(service: Any) -> int:
    """Return the process number of the service's forecaster."""
    [found] = [
        child.pid
        for child in psutil.Process(service.process.pid).children()
        if "scheduler.service.forecaster_process" in words_of(child)
    ]
    return found


def test_forecasts_follow_the_recorded_state_locally_and_over_tcp(served: Any) -> None:
    listens = ("--listen", f"127.0.0.1:{free_port()}", "--allow-root")
    served.start("--processors", "4", "--scenario", "easy", *listens)
    access: Path = served.directory / "access" / "admin.json"
    running = served.submit(SLEEP, 3, walltime_s=300.0)
    started_at = served.until(running, "RUNNING").started_at
    assert started_at is not None
    first, second = served.submit(SLEEP, 4, 100.0), served.submit(SLEEP, 2, 50.0)
    for directory in (served.directory, access):
        with Client(directory) as client:
            starts = {job.job: job for job in client.expected_starts()}
            assert starts[first].start == pytest.approx(started_at + 300.0, abs=1e-6)
            assert starts[second].start == pytest.approx(started_at + 400.0, abs=1e-6)
            assert starts[first].processors == "0-3"
            expected = {job: forecast.start for job, forecast in starts.items()}
            known = {**expected, running: started_at}
            wait_until(lambda client=client, known=known: listed_starts(client) == known)
            short, long = (quote_of(client, request(1, seconds)) for seconds in (50.0, 1000.0))
            assert (short.wait_s, short.slowdown, short.processors) == (0.0, 1.0, "3")
            assert long.start == pytest.approx(started_at + 400.0, abs=1e-6)

            found = forecast_of_waiting(client, second)
            assert found is not None
            assert (found.before, found.forecast.start) == ([first], starts[second].start)
            sooner = {change.processors for change in found.changes if change.start == found.now}
            assert sooner == {1}
            assert forecast_of_waiting(client, running) is None
            with pytest.raises(ReshapeError, match="asks for 9 processors, the machine has 4"):
                quote_of(client, request(9, 10.0))
    with pytest.raises(ReshapeError, match=f"job {running} is not queued"):
        served.ask(m.RequestForecast(of=running))

    served.ask(m.ChangeJobs.one(first, m.CancelJob()))  # the next forecast sees it
    with Client(served.directory) as client:
        [only] = client.expected_starts()
    assert (only.job, only.start) == (second, starts[first].start)


def test_a_forecaster_that_is_killed_is_replaced(served: Any) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    done = served.submit(["true"], 1, walltime_s=100.0)
    served.wait(done)
    with Client(served.directory) as client:
        found = quote_of(client, request(2, 10.0), futures=4, seed=1, arrivals=True)
    assert (found.wait_s, found.futures, found.past_jobs) == (0.0, 4, 1)
    assert found.start_quantiles is not None
    assert found.start_quantiles.p10 == found.start
    for wrong, text in (
        ({"futures": 10**9}, "futures must be from 0 to 1000, got 1000000000"),
        ({"futures": 2, "seed": -1}, "the seed must be >= 0, got -1"),
        ({"horizon_s": -1.0}, "the horizon must be above 0 s, got -1"),
    ):
        with pytest.raises(ReshapeError, match=text):
            served.ask(m.RequestForecast(of=request(1, 10.0), **wrong))
    first = forecaster_of(served)
    os.kill(first, signal.SIGKILL)
    with Client(served.directory) as client:
        assert quote_of(client, request(2, 10.0)).wait_s == 0.0
    assert forecaster_of(served) != first
