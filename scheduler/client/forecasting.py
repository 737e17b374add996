"""Forecasts for the commands: requests to the service, and the text of their answers.

The parameter `directory` of each function is the directory of a service, or an access file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from reshape.errors import ReshapeError
from reshape.topology import Topology
from scheduler.client.asking import ask, list_jobs
from scheduler.forecasts.forecast import JobForecast
from scheduler.forecasts.quotes import Quote, Waiting
from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.text.counts import counted
from scheduler.text.tables import Table
from scheduler.text.times import format_moment, format_time

#: Seconds that a client waits for a forecast; the service gives up earlier.
PATIENCE_S = 130.0

Found = TypeVar("Found")


def expected_starts(directory: Path, horizon_s: float | None = None) -> list[JobForecast]:
    """Request forecasts of all queued jobs, in order of their expected starts.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the forecast takes too long.
    """
    return _forecast(directory, m.ForecastStarts(horizon_s=horizon_s), list[JobForecast])


def quote_of(
    directory: Path,
    submission: m.Submission,
    *,
    horizon_s: float | None = None,
    futures: int = 0,
    seed: int = 0,
    arrivals: bool = False,
    timeout: float = PATIENCE_S,
) -> Quote:
    """Request a quote for a submission; nothing is submitted.

    Parameters
    ----------
    horizon_s : seconds from now at which forecasts end; None: no limit.
    futures, seed : number of forecasts with drawn run times, and the seed of the draws.
    arrivals : whether further jobs are submitted in them, at the rate of the latest ones.
    timeout : seconds to wait for the answer.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the service would refuse the submission; the message names the nearest request
        that the machine can run, if there is one.
    """
    message = m.RequestQuote(submission=submission, horizon_s=horizon_s, futures=futures, seed=seed)
    return _forecast(directory, message, Quote, timeout)


def forecast_of_waiting(directory: Path, job: int) -> Waiting | None:
    """Request a forecast of a job; None if it is not queued.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the forecast takes too long.
    """
    if not _is_queued(directory, job):
        return None
    try:
        return _forecast(directory, m.ForecastJob(job=job), Waiting)
    except ReshapeError:
        if _is_queued(directory, job):
            raise
        return None  # it has started meanwhile


def _is_queued(directory: Path, job: int) -> bool:
    return list_jobs(directory, job=job).jobs[0].state == JobState.PENDING.name


def _forecast(
    directory: Path, message: m.Message, kind: type[Found], timeout: float = PATIENCE_S
) -> Found:
    answer: Any = ask(directory, message, timeout)
    assert isinstance(answer, m.ForecastResult)
    return msgspec.convert(answer.found, kind)


def bare_submission(
    processors: int,
    walltime_s: float | None,
    max_processors: int | None,
    topology: Topology | None,
    priority: float | str | None,
    queue: str,
    resources: dict[str, int] | None,
) -> m.Submission:
    """Build a submission for a quote, which has no program."""
    return m.Submission(
        argv=["true"],
        processors=processors,
        walltime_s=walltime_s or 0.0,
        max_processors=max_processors,
        topology=topology,
        priority=priority,
        queue=queue,
        resources=resources or {},
    )


def starts_table(jobs: Sequence[JobForecast], listed: Sequence[m.JobInfo], now: float) -> Table:
    """List expected starts; WAIT is the time from now to the start."""
    by_number = {job.job: job for job in listed}
    rows = []
    for job in jobs:
        info = by_number.get(job.job)
        rows.append(
            (
                str(job.job),
                info.name if info else "",
                info.user if info else "",
                str(info.requested) if info else "",
                moment(job.start),
                "-" if job.start is None else format_time(job.start - now),
                moment(job.end),
                job.processors or "-",
            )
        )
    heads = ["JOBID", "NAME", "USER", "PROCS", "START", "WAIT", "END", "PROCESSORS"]
    return Table(heads, rows)


def quote_text(quote: Quote) -> str:
    """Describe a quote."""
    lines = {
        "Start": f"{moment(quote.start)}, in {duration(quote.wait_s)}",
        "End": moment(quote.end),
        "Processors": quote.processors or "-",
        "Slowdown": "-" if quote.slowdown is None else f"{quote.slowdown:.2f}",
    }
    if quote.looked_ahead_s is not None:
        lines["Looked ahead"] = f"{format_time(quote.looked_ahead_s)}; more takes too long"
    if quote.start_quantiles is not None and quote.end_quantiles is not None:
        for name, spread in (("Start", quote.start_quantiles), ("End", quote.end_quantiles)):
            times = [moment(at) for at in (spread.p10, spread.p50, spread.p90)]
            lines[f"{name} P10, P50, P90"] = ", ".join(times)
        lines["Futures"] = f"{quote.futures}, run times of {quote.past_jobs} past jobs"
        if quote.predicted_jobs:
            lines["Futures"] += f", of the predictor for {counted(quote.predicted_jobs, 'job')}"
        if quote.outcomes:
            lines["Futures"] += f"; calibrated by {counted(quote.outcomes, 'past forecast')}"
    return "\n".join(f"{name + ':':<21}{value}" for name, value in lines.items())


def waiting_lines(found: Waiting) -> list[str]:
    """Describe what a job waits for and what would change it, a sentence a line."""
    lines = []
    if found.before_count:
        first = ", ".join(map(str, found.before))
        more = found.before_count - len(found.before)
        lines.append(f"before it in the queue: {first}{f' and {more} more' if more else ''}")
    else:
        lines.append("no job is before it in the queue")
    start = found.forecast.start
    wait_s = None if start is None else start - found.now
    lines.append(f"expected start: {moment(start)}, in {duration(wait_s)}")
    if found.start_quantiles is not None:
        spread = found.start_quantiles
        times = ", ".join(moment(at) for at in (spread.p10, spread.p50, spread.p90))
        lines.append(f"expected start, P10, P50 and P90: {times}")
    for change in found.changes:
        if change.start is not None and (start is None or change.start < start):
            size = counted(change.processors, "processor")
            request = f"{size} and {format_time(change.walltime_s)}"
            lines.append(f"with {request} it would start at {moment(change.start)}")
    return lines


def moment(at: float | None) -> str:
    """Write a time that may be beyond the horizon."""
    return "-" if at is None else format_moment(at)


def duration(seconds: float | None) -> str:
    """Write a duration that may have no end within the horizon."""
    return "-" if seconds is None else format_time(seconds)
