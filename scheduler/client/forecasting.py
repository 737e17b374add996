"""Forecasts for the commands: they are computed in the process of the client, not in the service.

The client reads the journal of the service, which only its user can read. The functions of
`scheduler.forecasts` work on a recorded state wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.topology import Topology
from reshape.wire import messages as m
from scheduler.client.asking import ask, service_info
from scheduler.forecasts.forecast import JobForecast, forecast
from scheduler.forecasts.quotes import Quote, Waiting, nearest_feasible, waiting
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec
from scheduler.model.job import JobState
from scheduler.replay.journal_reader import reading
from scheduler.text.tables import Table
from scheduler.text.times import format_moment, format_time


def recorded_state(directory: Path, now: float | None = None) -> RecordedState:
    """Read the recorded state of the service of a directory.

    Parameters
    ----------
    now : time on the service's clock, s; None: the service is asked for it.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the journal cannot be read.
    """
    now = service_info(directory).now if now is None else now
    with reading(directory) as journal:
        return RecordedState.of_journal(journal, now)


def expected_starts(state: RecordedState, horizon_s: float = inf) -> list[JobForecast]:
    """Forecast all queued jobs, in order of their expected starts."""
    found = forecast(state, horizon_s=horizon_s)
    queued = [job.id for job in state.jobs if job.state is JobState.PENDING]
    return sorted(map(found.of, queued), key=lambda job: (found.start(job.job), job.job))


def admissible(directory: Path, state: RecordedState, submission: m.Submission) -> JobSpec:
    """Ask the service for the request that it would admit.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the service would refuse the submission; the message names the nearest request
        that the machine can run, if there is one.
    """
    try:
        answer = ask(directory, m.CheckSubmission(submission=submission))
    except ServiceUnavailable:
        raise
    except ReshapeError as error:
        hint = _nearest_hint(state, submission)
        raise ReshapeError(f"{error}{hint}") from None
    assert isinstance(answer, m.Admissible)
    return msgspec.convert(answer.spec, JobSpec)


def _nearest_hint(state: RecordedState, submission: m.Submission) -> str:
    """Words on the nearest feasible request, empty if the machine can run the submission."""
    try:
        spec = JobSpec(
            submission.processors,
            submission.walltime_s,
            submission.max_processors,
            submission.topology,
            resources={name: amount for name, amount in submission.resources.items() if amount},
        )
    except ValueError:
        return ""
    nearest = nearest_feasible(state, spec)
    if nearest is None or nearest == spec:
        return ""
    words = [f"-n {nearest.processors}"]
    if nearest.max_processors is not None:
        words.append(f"--max {nearest.max_processors}")
    if nearest.resources:
        amounts = ",".join(f"{name}={amount}" for name, amount in nearest.resources.items())
        words.append(f"--resources {amounts}")
    return f" (the nearest feasible request is {' '.join(words)})"


def forecast_of_waiting(directory: Path, job: int) -> Waiting | None:
    """Forecast a job that is queued; None if it is not, or the service is on another machine.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the journal cannot be read.
    """
    if not (directory / "journal.db").is_file():
        return None
    state = recorded_state(directory)
    queued = {each.id for each in state.jobs if each.state is JobState.PENDING}
    return waiting(state, job) if job in queued else None


def bare_submission(
    processors: int,
    walltime_s: float,
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
        walltime_s=walltime_s,
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
    if quote.start_quantiles is not None and quote.end_quantiles is not None:
        for name, spread in (("Start", quote.start_quantiles), ("End", quote.end_quantiles)):
            times = [moment(at) for at in (spread.p10, spread.p50, spread.p90)]
            lines[f"{name} P10, P50, P90"] = ", ".join(times)
        lines["Futures"] = f"{quote.futures}, run times of {quote.past_jobs} past jobs"
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
            request = f"{change.processors} processors and {format_time(change.walltime_s)}"
            lines.append(f"with {request} it would start at {moment(change.start)}")
    return lines


def moment(at: float | None) -> str:
    """Write a time that may be beyond the horizon."""
    return "-" if at is None else format_moment(at)


def duration(seconds: float | None) -> str:
    """Write a duration that may have no end within the horizon."""
    return "-" if seconds is None else format_time(seconds)
