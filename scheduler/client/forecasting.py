"""``reshape quote``, and forecasts for other commands: requests to the service and their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec.structs import replace

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from reshape.times import utc_moment
from scheduler.client.api.client import Client, forecast, list_jobs
from scheduler.client.api.service_option import service_option
from scheduler.client.options import WALLTIME, echo_json, json_option, refuse_given
from scheduler.client.requests.job_options import request_options
from scheduler.client.requests.submission import prepare
from scheduler.forecasts.answers import JobForecast, Quote, Starts, Waiting
from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.text.formats import counted, format_moment, format_time
from scheduler.text.tables import Table, labelled

#: Seconds that the forecaster may take for the expected starts of a listing, and that the listing
#: waits for them, because the forecaster may be starting, or busy with another question.
STARTS_S, STARTS_WAIT_S = 0.5, 1.0


def with_expected_starts(client: Client, jobs: list[m.JobInfo]) -> list[m.JobInfo]:
    """Give queued jobs of a listing their expected starts, as far as these are known soon."""
    if not any(job.state == JobState.PENDING.name for job in jobs):
        return jobs
    message = m.RequestForecast(limit_s=STARTS_S)
    try:
        forecasts = forecast(client, message, Starts, STARTS_WAIT_S).jobs
    except ReshapeError:  # it is busy, or cannot forecast this state
        return jobs
    starts = {expected.job: expected.start for expected in forecasts}
    return [
        job if job.started_at is not None else replace(job, started_at=starts.get(job.job))
        for job in jobs
    ]


def forecast_of_waiting(client: Client, job: int) -> Waiting | None:
    """Request a forecast of a job that was queued; None if it is not queued any more.

    Raises
    ------
    ServiceUnavailable : there is no service, or it does not answer in time.
    ReshapeError : the forecast takes too long.
    """
    try:
        return forecast(client, m.RequestForecast(of=job), Waiting)
    except ReshapeError:
        if list_jobs(client, job).jobs[0].state == JobState.PENDING.name:
            raise
        return None


def starts_table(jobs: Sequence[JobForecast], listed: Sequence[m.JobInfo], now: float) -> Table:
    """List expected starts; WAIT is the time from now to the start."""
    by_number = {job.job: job for job in listed}
    columns: dict[str, Callable[[JobForecast], object]] = {
        "JOBID": lambda job: job.job,
        "NAME": lambda job: by_number[job.job].name,
        "USER": lambda job: by_number[job.job].user,
        "PROCS": lambda job: by_number[job.job].requested,
        "START": lambda job: format_moment(job.start),
        "WAIT": lambda job: format_time(None if job.start is None else job.start - now),
        "END": lambda job: format_moment(job.end),
        "PROCESSORS": lambda job: job.processors or "-",
    }
    return Table.of(jobs, columns, "NAME USER")


def quote_text(quote: Quote) -> str:
    """Describe a quote."""
    lines = {
        "Start": f"{format_moment(quote.start)}, in {format_time(quote.wait_s)}",
        "End": format_moment(quote.end),
        "Processors": quote.processors or "-",
        "Slowdown": slowdown_text(quote),
    }
    if quote.looked_ahead_s is not None:
        lines["Looked ahead"] = f"{format_time(quote.looked_ahead_s)}; more takes too long"
    if quote.start_quantiles is not None and quote.end_quantiles is not None:
        for name, spread in (("Start", quote.start_quantiles), ("End", quote.end_quantiles)):
            times = [format_moment(at) for at in (spread.p10, spread.p50, spread.p90)]
            lines[f"{name} P10, P50, P90"] = ", ".join(times)
        lines["Futures"] = f"{quote.futures}, run times of {quote.past_jobs} past jobs"
        if quote.predicted_jobs:
            lines["Futures"] += f", of the predictor for {counted(quote.predicted_jobs, 'job')}"
        if quote.outcomes:
            lines["Futures"] += f"; calibrated by {counted(quote.outcomes, 'past forecast')}"
    return labelled(lines)


def slowdown_text(quote: Quote) -> str:
    """Write the quoted slowdown, which is not known without an end."""
    return "-" if quote.slowdown is None else f"{quote.slowdown:.2f}"


def waiting_lines(waiting: Waiting) -> list[str]:
    """Describe what a job waits for and what would change it, a sentence a line, moments in UTC."""
    lines = []
    task = f" of task {waiting.task}" if waiting.task else ""
    if waiting.task:
        pass  # its reason says which tasks come before it
    elif waiting.before_count:
        first = ", ".join(map(str, waiting.before))
        more = waiting.before_count - len(waiting.before)
        lines.append(f"before it in the queue: {first}{f' and {more} more' if more else ''}")
    else:
        lines.append("no job is before it in the queue")
    start = waiting.forecast.start
    if start is None:
        lines.append(f"no expected start{task}: {waiting.reason}")
    else:
        wait = format_time(start - waiting.now)
        lines.append(f"expected start{task}: {utc_moment(start)}, in {wait}")
    if waiting.start_quantiles is not None:
        spread = waiting.start_quantiles
        times = ", ".join(
            "-" if at is None else utc_moment(at) for at in (spread.p10, spread.p50, spread.p90)
        )
        lines.append(f"expected start, P10, P50 and P90: {times}")
    for change in waiting.changes:
        if change.start is not None and (start is None or change.start < start):
            size = counted(change.processors, "processor")
            request = f"{size} and {format_time(change.walltime_s)}"
            lines.append(f"with {request} it would start at {utc_moment(change.start)}")
    if waiting.looked_ahead_s is not None and start is None:
        lines.append(looked_ahead(waiting.looked_ahead_s))
    if waiting.untried:
        count = counted(waiting.untried, "other request")
        lines.append(f"{count} left out: to try them takes too long")
    return lines


def looked_ahead(seconds: float) -> str:
    """Say that a forecast had to end before it was complete."""
    return f"the forecast looks {format_time(seconds)} ahead; more takes too long"


@click.command()
@service_option
@click.option(
    "-n", "processors", type=WholeRange(min=1), required=True, help="Processors to start with."
)
@request_options
@click.option(
    "--futures",
    type=WholeRange(0, 1000),
    default=0,
    metavar="N",
    help="Also show P10, P50 and P90 over N forecasts with drawn run times.",
)
@click.option(
    "--arrivals",
    is_flag=True,
    help="With --futures: submit other jobs, too, at the rate of the latest ones.",
)
@click.option(
    "--seed",
    type=WholeRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the drawn run times.",
)
@click.option("--horizon", type=WALLTIME, help="Time from now at which forecasts end.")
@json_option
@example("reshape quote -n 16 --walltime 2:00:00 --json")
def quote(
    service: Client,
    futures: int,
    arrivals: bool,
    seed: int,
    horizon: float | None,
    as_json: bool,
    **request: Any,
) -> None:
    """Show when a job would start and end if it were submitted now.

    Running jobs are expected to run for their estimates; jobs to come are left out. The slowdown
    is the time from now to the end divided by the run time. Nothing is submitted.
    """
    if not futures:
        refuse_given(("arrivals", "seed"), "needs --futures N")
    submission = prepare(["true"], **request)
    message = m.RequestForecast(
        of=submission, horizon_s=horizon, futures=futures, seed=seed, arrivals=arrivals
    )
    answer = forecast(service, message, Quote)
    if as_json:
        echo_json(answer)
    else:
        click.echo(quote_text(answer))
